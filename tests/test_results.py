"""Every public object as Python's own tools take it: hasattr, inspect, copy, pickle, repr, iteration, NumPy."""

from __future__ import annotations

import contextlib
import copy
import inspect
import operator
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import MissingError, ParameterError, StateError
from fastdp.releases.release import Release
from fastdp.tables.table import Table
from tests.state.saved_objects import CASES

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")

N = 600
VALUES = np.random.default_rng(1).gamma(2.0, 3.0, N)
ROWS = pa.table({"at": np.datetime64("2024-01-01", "s") + 60 * np.arange(N), "v": VALUES, "k": ["a", "b"] * (N // 2)})
DAY = fastdp.Time("at", "1h", start="2024-01-01", stop="2024-01-02")
LONG = pa.table({"id": np.repeat([1, 2], 50), "time": np.tile(np.arange(50), 2), "value": np.ones(100)})


def one(kind: type = fastdp.Adaptive, **given: Any) -> Release:
    found: Release = kind(epsilon=1.0, bound=50.0, seed=1, threshold=20.0, **given).release(VALUES)
    return found


def many(lengths: tuple[int, ...], **given: Any) -> Release:
    return fastdp.release_many([VALUES[:n] for n in lengths], 1.0, 50.0, threshold=20.0, seed=1, **given)


def table(asked: dict[str, Any], time: fastdp.Time | None = DAY, **given: Any) -> Table:
    bounds = {"v": 50.0} if "v" in asked else None
    return fastdp.aggregate(ROWS, asked, time, epsilon=2.0, bounds=bounds, seed=1, **given)


def closed(to: str) -> Table:
    windows = fastdp.Windows(
        {"v": "sum"}, fastdp.Time("at", "1h", start="2024-01-01"), epsilon=1.0, bounds=9.0, seed=1
    )
    windows.add(ROWS["at"], VALUES)
    return windows.advance(to)


RESULTS: dict[str, Callable[[], Any]] = {
    "release": one,
    "release of blocks": partial(one, fastdp.ToPS, max_range=64),
    "release of nodes": lambda: fastdp.StreamPublisher(
        threshold=fastdp.thresholds.Fixed(20.0),
        perturber=fastdp.perturbers.Hierarchy(4, consistent=False, prune=0),
        epsilon=1.0,
        bound=50.0,
        seed=1,
        max_range=64,
    ).release(VALUES),
    "release of reports": lambda: fastdp.ToPL(epsilon=1.0, bound=50.0, holdout=100, seed=1).release(VALUES),
    "release of averages": lambda: fastdp.PAK(
        epsilon=1.0, delta=1e-6, bound=50.0, length=N, holdout=100, seed=1
    ).release(VALUES),
    "streams": partial(many, (100, 100, 100)),
    "uneven streams": partial(many, (100, 90)),
    "one of many": lambda: many((100, 90))[1],
    "streams of a frame": lambda: fastdp.release_many(
        LONG, 1.0, 5.0, by="id", time="time", value="value", threshold=2.0, seed=1
    ),
    "table": partial(table, {"v": "sum"}),
    "table without times": partial(table, {"*": "count"}, None),
    "table of keys": partial(table, {"v": "mean"}, by="k", keys=["a", "b"]),
    "table of several": partial(table, {"v": ["sum", "median", "nunique"], "*": "count"}),
    "table of windows": partial(closed, "2024-01-01T03:00"),
    "no window": partial(closed, "2024-01-01T00:30"),
    "plan": partial(fastdp.plan, {"v": "sum"}, epsilon=1.0, bounds=9.0),
    "guarantee": lambda: one().guarantee,
    "unit": partial(fastdp.Person, "who", 4),
}


def pickled(made: Any) -> Any:
    return pickle.loads(pickle.dumps(made))  # noqa: S301 - its own bytes


def lost_fleet() -> fastdp.Fleet:
    fleet = fastdp.Fleet(fastdp.Adaptive(epsilon=1.0, bound=5.0, threshold=4.0), seed=1)
    fleet.publish([1, 2], [1.0, 2.0])
    fleet.split(2)
    return fleet


def used(name: str) -> Any:
    case = CASES[name]
    made = case.make()
    for call in case.calls:
        case.run(made, call)
    return made


ONLINE: dict[str, Callable[[], Any]] = {
    "lost fleet": lost_fleet,
    "fleet of machines": lambda: fastdp.Fleet(fastdp.ToPS(1.0, 5.0, threshold=4.0, max_range=64), seed=1),
    **{f"new {name}": case.make for name, case in CASES.items()},
    **{f"used {name}": partial(used, name) for name in CASES},
    **{f"tree of {name}": lambda name=name: used(name).tree for name in CASES if "phdstream" in name},
}


@pytest.mark.parametrize("name", [*RESULTS, *ONLINE])
def test_attributes_are_there_or_missing(name: str) -> None:
    """`hasattr`, `getattr` with a default and `inspect` raise nothing; a missing attribute says what is expected."""
    made = (RESULTS | ONLINE)[name]()
    inspect.getmembers(made)
    for attribute in dir(made):
        if not hasattr(made, attribute):
            with pytest.raises(MissingError, match="expected"):
                getattr(made, attribute)
    assert len(repr(made)) + len(str(made)) < 4_000


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_copied_and_pickled(name: str) -> None:
    made = RESULTS[name]()
    for again in (copy.copy(made), copy.deepcopy(made), pickled(made)):
        assert type(again) is type(made)
        assert (repr(again), str(again)) == (repr(made), str(made))
        if isinstance(made, Release):
            np.testing.assert_array_equal(again.values, made.values)
        if isinstance(made, Table):
            assert repr(again.arrow.to_pydict()) == repr(made.arrow.to_pydict())


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_sequences_and_arrays_or_say_why_not(name: str) -> None:
    made = RESULTS[name]()
    if isinstance(made, Table):
        with pytest.raises(TypeError, match="not iterable"):
            iter(made)
        for wrong in (0, slice(0, 2)):
            with pytest.raises(ParameterError, match="expected one of"):
                made[wrong]
        if len(made.names) > 1:
            with pytest.raises(ParameterError, match=r"expected one statistic, table\['v_sum'\]"):
                np.asarray(made)
        else:
            array = np.asarray(made)
            np.testing.assert_array_equal(array.ravel(), made.arrow["estimate"].to_numpy())
            assert array.shape == (len(made), *([len(made.keys["k"])] if made.keys else []))
            assert np.asarray(made, np.float32).dtype == np.float32
    elif isinstance(made, Release):
        listed = list(made)
        assert len(listed) == len(made)
        for part in (slice(0, 2), slice(None, None, 2), slice(-1, None)):
            assert len(made[part]) == len(listed[part])
            assert all(np.array_equal(one, other) for one, other in zip(made[part], listed[part], strict=True))
        with pytest.raises(IndexError):
            made[len(made)]
        for wrong in ("no name", 0.5):
            with pytest.raises(IndexError if made.ids is None else ParameterError):
                made[wrong]
        if made.ids is None:
            np.testing.assert_array_equal(np.asarray(made), made.values)
            assert made.values.size == 0 or made[-1] == made.values[-1]
            assert np.shares_memory(np.asarray(made), made.values)
            assert not np.shares_memory(np.array(made), made.values)
        elif name == "uneven streams":
            with pytest.raises(MissingError, match="expected streams of one length"):
                np.asarray(made)
        else:
            np.testing.assert_array_equal(np.asarray(made), [each.values for each in listed])
    else:
        assert np.asarray(made).shape == ()
        with pytest.raises(TypeError):
            iter(made)
        with pytest.raises(TypeError):
            made[0:2]


@pytest.mark.parametrize("name", [name for name in ONLINE if not name.startswith("new")])
def test_online_objects_are_copied_or_refuse(name: str) -> None:
    made = ONLINE[name]()
    for make in (copy.copy, copy.deepcopy, pickled):
        again = None
        with contextlib.suppress(StateError):
            again = make(made)
        if again is None:
            with pytest.raises(StateError, match=r"cannot be (copied|pickled)"):
                make(made)
        else:
            assert (type(again), repr(again)) == (type(made), repr(made))
    for refused in (iter, operator.itemgetter(slice(0, 2))):
        with pytest.raises(TypeError):
            refused(made)
