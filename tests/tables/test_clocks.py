"""Warnings of a wrong clock, and of listed keys that no row has: by released numbers, at the caller's line."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fastdp
from tests.grid import exhaustive

HOUR = timedelta(hours=1)
BEGIN = datetime(2024, 1, 1)
RNG = np.random.default_rng(1)
#: Hours of rows after the begin, and whether one of them is so far off that a clock must be wrong.
CLOCKS: dict[str, tuple[Any, str, bool]] = {
    "1970": ([*range(2000), -24 * 365 * 54], "1h", True),
    "1970, days": ([*range(0, 24 * 200, 2), -24 * 365 * 54], "1d", True),
    "2106": ([*range(2000), 24 * 365 * 82], "1h", True),
    "few rows, and 2106": ([*range(100), 24 * 365 * 82], "1h", True),
    "many in 1970": ([*range(3000), *[-24 * 365 * 54] * 300], "1h", True),
    "two years": (RNG.uniform(0, 24 * 730, 5000), "1h", False),
    "few rows in ten years": (RNG.uniform(0, 24 * 3650, 1000), "1h", False),
    "seconds of two hours": (RNG.uniform(0, 2, 3000), "1s", False),
    "a week of seconds": (RNG.uniform(0, 168, 20_000), "1s", False),
    "more and more": (24 * 3650 * RNG.beta(8, 1, 5_000), "1h", False),
    "summers": (24 * (365 * RNG.integers(0, 20, 5_000) + RNG.uniform(150, 240, 5_000)), "1h", False),
    "working hours": (24 * RNG.integers(0, 2000, 5_000) + RNG.uniform(9, 17, 5_000), "15min", False),
    "a short table": ([0.0, 1.0, 900.0], "1h", False),
}


@pytest.mark.parametrize("statistic", ["count", "sum"])
@pytest.mark.parametrize(
    "name", [name for name in CLOCKS if "seconds" not in name] + exhaustive(*(n for n in CLOCKS if "seconds" in n))
)
def test_a_wrong_clock_is_warned_of(name: str, statistic: str) -> None:
    hours, every, wrong = CLOCKS[name]
    frame = pa.table({"t": [BEGIN + float(each) * HOUR for each in hours], "v": np.ones(len(hours))})
    asked = {"*": "count"} if statistic == "count" else {"v": "sum"}
    bounds = None if statistic == "count" else fastdp.Value(clip=1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fastdp.aggregate(frame, asked, "t", every, epsilon=1.0, bounds=bounds, seed=1)
    said = [str(each.message) for each in caught if "clock is wrong" in str(each.message)]
    assert bool(said) is wrong
    assert all("expected Time(start=, stop=)" in each for each in said)
    assert [each.filename for each in caught if "clock" in str(each.message)] == [__file__] * wrong
    # Public ends make no such windows.
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*were made")
        time = fastdp.Time("t", every, start="2024-01-01", stop="2024-02-01")
        fastdp.aggregate(frame, {"*": "count"}, time, epsilon=1.0, seed=1)


#: Rows of each key, and keys of which the released numbers show none.
LISTED: dict[str, tuple[dict[str, int], list[str], float, int]] = {
    "another case": ({"a": 5000}, ["A"], 1.0, 1),
    "one of two": ({"a": 5000, "b": 5000}, ["A", "b"], 1.0, 1),
    "a space": ({"a": 500, "b": 400}, ["a ", "b"], 1.0, 1),
    "all of many": ({f"k{i}": 50 for i in range(200)}, [f"K{i}" for i in range(200)], 1.0, 200),
    "all there": ({"a": 500, "b": 20}, ["a", "b"], 1.0, 0),
    "uneven": ({f"k{i}": 1 + 20_000 // (i + 1) for i in range(60)}, [f"k{i}" for i in range(60)], 1.0, 0),
    "noise": ({f"k{i}": 40 for i in range(60)}, [f"k{i}" for i in range(60)], 0.05, 0),
}


@pytest.mark.parametrize("name", LISTED)
def test_keys_that_no_row_has_are_warned_of(name: str) -> None:
    rows, keys, epsilon, missing = LISTED[name]
    frame = pa.table({"k": np.repeat(list(rows), list(rows.values())).tolist()})
    for seed in range(5):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fastdp.counts(frame, by="k", keys=keys, epsilon=epsilon, seed=seed)
        said = [each for each in caught if str(each.message).startswith("keys")]
        assert len(said) == bool(missing)
        # One cause, one warning; noise alone has its own.
        assert len(caught) == 1 if missing else name == "noise" or not caught
        for each in said:
            assert f"no row of {missing} of {len(keys)}, the first keys[0]; expected keys" in str(each.message)
