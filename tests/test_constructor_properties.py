"""Arguments of any kind: a part that works, or one error of one line that says what is missing; no foreign one."""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import Callable
from datetime import UTC
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp import counters, local, perturbers, smoothers, thresholds
from fastdp.errors import DataError, FastDPError, ParameterError
from fastdp.local import Announcement, HistogramCollector, Piecewise, SquareWave, SumCollector, decode
from fastdp.noise.gaussian import gaussian_distribution
from fastdp.noise.sampler import laplace_distribution
from fastdp.noise.words import Purpose, StreamId, _layout
from fastdp.perturbers import Hierarchy
from fastdp.perturbers.hierarchy import consistency_weights
from fastdp.spatial import Box, CellIndex
from fastdp.tables.calendar import _changes
from fastdp.thresholds import NoisyMax, ThresholdTask, renewals
from fastdp.thresholds.noisy_max import _penalties
from fastdp.thresholds.scale_free import _candidates
from fastdp_lab import sweeps

reals = st.one_of(
    st.floats(),
    st.floats(1e-3, 1e3),
    st.sampled_from([5e-324, 2.0**-1022, 2.0**-33, 1.0, 2.0**53, 2.0**62, 1.7e308, np.float32(0.5), np.float16(6e4)]),
)
wholes = st.one_of(
    st.integers(-2, 70),
    st.integers(),
    st.sampled_from([2**31, 2**53, 2**63 - 1, 2**63, np.int8(5), np.uint64(2**63)]),
)
strangers = st.sampled_from(
    [None, True, "", "optimal", "recent", "laplace", "\ud800", b"1", 1j, [], {}, np.ones(1), object()]
)
anything = st.one_of(reals, wholes, strangers)

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ToPS": (fastdp.ToPS, {"epsilon": 0.5, "bound": 100.0, "holdout": 8, "max_range": 64, "seed": 1}),
    "PAK": (fastdp.PAK, {"epsilon": 0.5, "delta": 1e-6, "bound": 100.0, "length": 64, "holdout": 8, "seed": 1}),
    "ToPL": (fastdp.ToPL, {"epsilon": 0.5, "bound": 100.0, "holdout": 8, "max_range": 64, "seed": 1}),
    "PHDStream": (fastdp.PHDStream, {"domain": Box([0, 0], [1, 1]), "epsilon": 0.5, "seed": 1}),
    "Box": (Box, {"lower": [0.0, 0.0], "upper": [1.0, 1.0]}),
}
for module in (counters, thresholds, perturbers, renewals, smoothers):
    for name in ("Block", "BinaryTree", "Fixed", "NoisyMax", "PAKQuantile", "SmoothQuantile", "SquareWave",
                 "TruePercentile", "Hierarchy", "RenewFromPublished", "RenewFromHoldout",
                 "Exponential", "MovingAverage"):  # fmt: skip
        if hasattr(module, name):
            needed = {"Fixed": {"theta": 3.0}, "TruePercentile": {"p": 0.9}}.get(name, {})
            KINDS[f"{module.__name__.rpartition('.')[2]}.{name}"] = (getattr(module, name), needed)
for name in ("SquareWave", "StochasticRounding", "Piecewise", "Hybrid"):
    KINDS[f"local.{name}"] = (getattr(local, name), {"epsilon": 1.0})


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_constructor_makes_a_part_or_says_why_not(kind: str, data: st.DataObject) -> None:
    make, usual = KINDS[kind]
    names = [name for name in inspect.signature(make).parameters if name != "key"]
    chosen = data.draw(st.dictionaries(st.sampled_from(names), anything, min_size=1, max_size=3))
    made, said = None, ""
    try:
        made = make(**{**usual, **chosen})
    except ParameterError as error:
        said = str(error)
    assert "\n" not in said
    assert said or repr(made)
    if made is not None and kind in ("ToPS", "PAK", "ToPL") and getattr(made, "holdout", 0) <= 64:
        publish_something(made)


def publish_something(publisher: Any) -> None:
    stream = np.arange(60.0) % 7
    try:
        published = publisher.publish(stream)
    except DataError:
        # An option may refuse values as they are.
        return
    assert np.isfinite(published).all()
    assert publisher.guarantee.epsilon > 0


MECHANISM = Piecewise(1.0, 0.0, 64.0)
BOX = Box([0, 0], [1, 1])
#: One part of each kind, and what takes such a part.
PARTS: dict[str, Any] = {
    "threshold": thresholds.Fixed(3.0),
    "perturber": perturbers.Hierarchy(),
    "smoother": smoothers.Recent(),
    "renewal": renewals.RenewFromHoldout(),
    "counter": counters.Simple(),
    "domain": BOX,
    "mechanism": MECHANISM,
}


def composed(**parts: Any) -> Any:
    usual = {"threshold": thresholds.NoisyMax(), "perturber": perturbers.Hierarchy(), "smoother": smoothers.Recent()}
    return fastdp.StreamPublisher(epsilon=1.0, bound=100, holdout=1000, max_range=4096, **{**usual, **parts})


TAKERS: dict[str, list[Any]] = {
    **{name: [lambda part, name=name: composed(**{name: part})] for name in ("perturber", "smoother", "renewal")},
    "threshold": [
        lambda part: composed(threshold=part),
        lambda part: fastdp.PAK(epsilon=1.0, delta=0.5, bound=100, length=99, holdout=9, threshold=part),
    ],
    "counter": [lambda part: fastdp.PHDStream(BOX, 1.0, part), lambda part: counters.RunningCounts(part, 1.0)],
    "domain": [lambda part: fastdp.PHDStream(part, 1.0)],
    "mechanism": [Announcement],
}


@pytest.mark.parametrize("taker", TAKERS)
def test_a_part_of_another_kind_says_what_it_lacks(taker: str) -> None:
    for take, other in itertools.product(TAKERS[taker], PARTS):
        if taker == other:
            take(PARTS[other])
            continue
        with pytest.raises(
            ParameterError, match=rf"^{taker} = .*: expected an object from fastdp\.[\w.]+ \(it lacks \w"
        ):
            take(PARTS[other])
        with pytest.raises(ParameterError, match=rf"^{taker} = .*\(it is a class\)$"):
            take(type(PARTS[taker]))
    half = type("Half", (), {"step": lambda self, state, means: (state, means)})()
    with pytest.raises(ParameterError, match=r"expected an object from fastdp.smoothers \(it lacks start\)$"):
        composed(smoother=half)


@pytest.mark.parametrize("path", ["a\0b", b"a\0b", "\ud800", "", b"", 5, None, ["a"]], ids=repr)
def test_paths_that_no_file_can_have(path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save = fastdp.ToPS(epsilon=1.0, bound=100).save
    for take in (fastdp.Ledger, save, sweeps.read_specification, sweeps.load):
        with pytest.raises(ParameterError, match=r"(path|folder) = .*: expected the path of a file or folder"):
            take(path)
    assert not list(tmp_path.iterdir())
    encoded = os.fsencode(tmp_path / "budget")
    assert repr(fastdp.Ledger(encoded)) == repr(fastdp.Ledger(tmp_path / "budget"))


@pytest.mark.parametrize(
    "data", ["x", 5, None, [1], memoryview(np.zeros(6))[::2]], ids=lambda data: type(data).__name__
)
def test_messages_that_are_no_bytes(data: Any, tmp_path: Path) -> None:
    collector = HistogramCollector(SquareWave(1.0, 0.0, 64.0))
    server = fastdp.ToPLServer(epsilon=1.0, bound=100, holdout=10, max_range=64)
    kept = SumCollector(MECHANISM)
    kept.keep(tmp_path / "kept")
    for take in (collector.receive, kept.receive, server.receive, decode):
        with pytest.raises(DataError, match=f"^data is a {type(data).__name__}: expected bytes"):
            take(data)
    assert collector.refused.messages == kept.refused.messages == 0


RAGGED = [[[0.0, 0.0], [1.0]], [0.0, [0.0, 1.0]]]


@pytest.mark.parametrize("ragged", RAGGED)
def test_ragged_boxes(ragged: Any) -> None:
    publisher = fastdp.PHDStream(BOX, 1.0, seed=1)
    publisher.advance(np.random.default_rng(1).random((50, 2)))
    index = CellIndex([[0.0, 0.0]], [[1.0, 1.0]], [3.0])
    whole = [[1.0, 1.0], [1.0, 1.0]]
    for count in (publisher.count, publisher.tree.count, index.count):
        for lower, upper in ((ragged, whole), (whole, ragged)):
            with pytest.raises(FastDPError, match=r"(lower|upper).*expected"):
                count(lower, upper)
    for corners in ((ragged, whole, [1.0]), (whole, ragged, [1.0]), ([[0.0]], [[1.0]], ragged)):
        with pytest.raises(FastDPError, match=r"(lower|upper|counts).*expected"):
            CellIndex(*corners)


@pytest.mark.parametrize("place", [1.5, "x", None, slice(0, 1), [0]], ids=repr)
def test_streams_have_whole_numbers(place: Any) -> None:
    many = fastdp.release_many([np.arange(90.0)] * 2, epsilon=1.0, bound=100, holdout=10, max_range=64, seed=1)
    with pytest.raises(ParameterError, match=r"^stream = .*: expected a whole number"):
        many[place]
    assert np.array_equal(many[np.int64(1)].values, many[-1].values)
    with pytest.raises(IndexError):
        many[2]


@pytest.mark.parametrize("text", ["x = " + "[" * 5000 + "]" * 5000, "x = " + "{a=" * 5000 + "1" + "}" * 5000])
def test_tables_nested_5000_deep(text: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"^{path}: .*too deep"):
        sweeps.read_specification(path)


@pytest.mark.parametrize("place", [("datasets", "name"), ("mechanisms", "name")])
def test_lone_surrogates_in_a_specification(place: tuple[str, str]) -> None:
    """No column of results can hold them."""
    tables: dict[str, Any] = {
        "epsilons": [1.0],
        "datasets": [{"name": "a", "generator": "table1", "stream": "pos", "n": 1500}],
        "mechanisms": [{"name": "b", "system": "tops"}],
    }
    tables[place[0]][0][place[1]] = "\ud800"
    with pytest.raises(ParameterError, match=r"\[0\]\.\w+ = '.ud800': expected a text of Unicode characters"):
        sweeps.from_table(tables)


TASK = ThresholdTask(0.5, 64.0, 500, 4096, 2.0**-10)
CACHED: dict[str, Callable[[], Any]] = {
    "consistency": lambda: [consistency_weights(Hierarchy(prune=0).plan(0.5, 4096))],
    "penalties": lambda: [_penalties(NoisyMax(), TASK, 1.0, 64)],
    "candidates": lambda: _candidates(2**20),
    "changes of a clock": lambda: _changes(0, 3, UTC),
    "a distribution": lambda: [laplace_distribution(Fraction(7, 2)).constants],
    "counters of rows": lambda: _layout(((StreamId(Purpose.TREE), 3),)),
    "a Gaussian distribution": lambda: [
        getattr(gaussian_distribution(Fraction(9)), each) for each in ("table", "inverses", "constants")
    ],
}


@pytest.mark.parametrize("name", CACHED)
def test_cached_arrays_are_read_only(name: str) -> None:
    first, second = CACHED[name](), CACHED[name]()
    for array, same in zip(first, second, strict=True):
        assert array is same
        with pytest.raises(ValueError, match=r"read-only|cannot set WRITEABLE"):
            array.reshape(-1)[:1] = np.zeros(1, array.dtype)
