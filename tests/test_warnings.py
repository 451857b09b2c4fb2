"""Warnings: each call of ``warn`` is reached by a case, and equal released numbers give equal warnings."""

from __future__ import annotations

import ast
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fastdp
from fastdp import auditing, errors
from fastdp.thresholds import Fixed, ScaleFree

SOURCES = Path(fastdp.__file__).parent
DAY = pd.date_range("2024-05-01", periods=24, freq="1h")


def test_a_warning_behind_the_standard_library_is_at_the_callers_line() -> None:
    """A property that functools keeps has a frame of functools between two of the package."""
    own = {"__name__": "fastdp.made", "errors": errors, "functools": functools}
    exec(  # noqa: S102 - with the package's name
        "class Made:\n"
        "    @functools.cached_property\n"
        "    def kept(self): errors.warn('here', RuntimeWarning)\n"
        "def outer(): return Made().kept\n",
        own,
    )
    with pytest.warns(RuntimeWarning, match="here") as caught:
        own["outer"]()
    assert [each.filename for each in caught] == [__file__]


def places() -> set[tuple[str, int, int]]:
    """File, first and last line of each call of ``warn``."""
    found = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "warn":
                found.add((str(path.relative_to(SOURCES)), node.lineno, node.end_lineno or node.lineno))
    return found


@contextmanager
def callers() -> Iterator[set[tuple[str, int]]]:
    """File and line of each caller of ``fastdp.errors.warn`` while it lasts."""
    found: set[tuple[str, int]] = set()

    def seen(*_: Any) -> None:
        frame: Any = sys._getframe()
        while frame.f_code.co_filename != errors.__file__:
            frame = frame.f_back
        caller = frame.f_back
        found.add((str(Path(caller.f_code.co_filename).relative_to(SOURCES)), caller.f_lineno))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = seen
        yield found


def table(values: Any, persons: int = 1) -> pd.DataFrame:
    """A day of values, in turn of so many persons."""
    values = np.asarray(values, float)
    at = DAY[np.arange(values.size) * 24 // values.size]
    return pd.DataFrame({"at": at, "value": values, "who": np.arange(values.size) % persons})


def tables() -> None:
    """Hopeless ones, and such that cut or drop nearly all rows."""
    rng = np.random.default_rng(1)
    hourly: dict[str, Any] = {"time": "at", "every": "1h"}
    for seed in range(6):
        for values in (np.zeros(400), rng.exponential(1e-3, 40), rng.exponential(1.0, 3000)):
            for epsilon in (0.05, 1.0):
                fastdp.totals(table(values), "value", epsilon=epsilon, bound=1e6, seed=seed, **hourly)
    fastdp.totals(table(np.full(5000, 50.0)), "value", epsilon=5.0, bound=100.0, clip=1.0, seed=1, **hourly)
    fastdp.totals(table(np.full(5000, -50.0)), "value", epsilon=5.0, bound=100.0, seed=1, **hourly)
    keyed = table(np.ones(5000)).assign(key="a")
    fastdp.counts(keyed, by="key", keys=["a", "A"], epsilon=5.0, seed=1)
    wrong = pd.DataFrame({"at": [*DAY.repeat(90), pd.Timestamp("1970-01-01")]})
    fastdp.counts(wrong, "at", "1h", epsilon=1.0, seed=1)
    fastdp.counts(table(np.ones(9000), 90), epsilon=50.0, unit=fastdp.Person("who", 1), seed=1, **hourly)


def streams() -> None:
    fastdp.release(np.full(3000, 50.0), 30.0, 100.0, threshold=20.0, seed=1)
    fastdp.Adaptive(30.0, 100.0, threshold=Fixed(20.0), seed=1).release(np.full(3000, 50.0))
    fastdp.ToPS(1.0, 50.0, every="30min", expected_length=10**5, seed=1)
    tops = fastdp.ToPS(0.5, 64.0, 16, 64, threshold=ScaleFree(), seed=1)
    # Hold-outs of zeros.
    fastdp.Adaptive(1.0, 1000.0, holdout=2000, seed=1).publish(np.zeros(3000))
    tops.release_many([np.zeros(100), np.zeros(100)])
    # Growth behind a hold-out.
    values = np.random.default_rng(1).gamma(2.0, 5.0, 20_000) * np.repeat([1.0, 8.0], [16_000, 4000])
    fastdp.ToPL(1.0, 200, 8000, max_range=4096, seed=4).release(values)


def audits() -> None:
    """A factory that ignores its seed."""
    parts: dict[str, Any] = {
        "threshold": Fixed(1.0),
        "perturber": fastdp.perturbers.Flat(),
        "epsilon": 1.0,
        "bound": 1.0,
    }
    mechanism = auditing.Publishing(lambda seed: fastdp.StreamPublisher(**parts, max_range=2, seed=1))
    fastdp.audit(mechanism, [1.0, 0.0], [0.0, 0.0], trials=100)


def test_every_warning_is_reached() -> None:
    with callers() as found:
        for case in (tables, streams, audits):
            case()
    missed = {
        each for each in places() if not any(each[0] == file and each[1] <= at <= each[2] for file, at in found)
    }
    assert not missed


# Values that are cut to one threshold release the same, whatever they were: so do neighbours beyond it.

#: Values just above the threshold and far above it, in one place or in all.
ABOVE = (1.001, 3.0, 99.0)
RELEASES: dict[str, Callable[[np.ndarray], Any]] = {
    "release": lambda values: fastdp.release(values, epsilon=1.0, bound=100.0, threshold=1.0, seed=1),
    "tops": lambda values: fastdp.ToPS(1.0, 100.0, 0, 64, threshold=Fixed(1.0), seed=1).release(values),
    "adaptive": lambda values: fastdp.Adaptive(30.0, 100.0, threshold=Fixed(1.0), seed=1).release(values),
    "many": lambda values: fastdp.release_many(
        np.stack([values, values]), epsilon=1.0, bound=100.0, threshold=1.0, seed=1
    ),
    "online": lambda values: fastdp.Adaptive(1.0, 100.0, threshold=Fixed(1.0), seed=1).publish(values),
}


@pytest.mark.parametrize("name", RELEASES)
def test_equal_released_numbers_give_equal_warnings(name: str) -> None:
    told: list[Any] = []
    for size in (12, 300, 3000):
        for one in (slice(0, 1), slice(size // 2, size // 2 + 1), slice(None), slice(size // 3, None)):
            shown = []
            for above in ABOVE:
                values = np.tile([0.0, 0.5, 2.0], size // 3)
                values[one] = above
                with warnings.catch_warnings(record=True) as warned:
                    warnings.simplefilter("always")
                    released = RELEASES[name](values)
                said = [(str(each.message), each.category) for each in warned]
                shown.append((np.asarray(getattr(released, "values", released)).tobytes(), said))
            assert shown[0] == shown[1] == shown[2], (size, one)
            told += shown[0][1]
    assert told or name not in ("release", "adaptive")
