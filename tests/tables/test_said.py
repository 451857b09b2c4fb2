"""Warnings and log lines of tables are functions of public parameters and released numbers."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.randomness import prefix
from fastdp.thresholds import scale_free
from tests.tables.rows import as_family, random_rows

SPAN = {"start": "2024-03-29", "stop": "2024-04-02"}
#: Unrelated rows: many persons with one row each, and few with many.
TABLES = [
    [(*row[:3], number) for number, row in enumerate(random_rows(300, 11))],
    [(row[0], "a", 0.0, 1) for row in random_rows(40, 5)],
]
RELEASES: dict[str, dict[str, Any]] = {
    "persons": {"who": "person", "contributions": 2, "bound": (0.0, 2.0)},
    "chosen clip": {"bound": 2.0},
    "chosen clip, persons": {"bound": 2.0, "who": "person", "contributions": 2},
    "private keys": {"bound": (0.0, 2.0), "by": "meter", "delta": 1e-3, "keys": None},
}


def forced(place: int) -> Callable[..., Any]:
    """Noise that makes every noisy sum what follows from its place alone."""
    return lambda sums, law, chain, first: 1000 * (np.arange(sums.size) * place + 1) - sums


def said(rows: list[tuple], options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> Any:
    caplog.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = fastdp.totals(
            as_family(rows, "pyarrow", Path()), "kwh", "at", "3h", epsilon=9.0, seed=1, **SPAN, **options
        ).sums
    released = {name: each.steps.tolist() for name, each in found.columns.items() if "keys" not in options}
    return [str(each.message) for each in caught], caplog.messages, found.kept_persons, found.clip, released


@pytest.mark.parametrize("place", [1, 0])
@pytest.mark.parametrize("name", RELEASES)
def test_unrelated_tables_with_equal_noisy_numbers_say_the_same(
    name: str, place: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "fastdp")
    monkeypatch.setattr(prefix, "draw", forced(place))

    def draw_noise(law: Any, count: int, candidates: int, key: Any) -> Any:
        noise = np.zeros((count, candidates), np.int64)
        noise[0, 9] = 2**50
        return noise

    monkeypatch.setattr(scale_free, "draw_noise", draw_noise)
    first, second = (said(rows, RELEASES[name], caplog) for rows in TABLES)
    assert first == second
    if name == "persons":
        assert bool(first[0]) is bool(place), "of 1,000 and 2,000 persons most are cut; of 1,000 and 1,000 not"


def test_late_rows_and_unknown_keys_are_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fastdp")
    heard = []
    for hours in ([0, 1, 2], [-9, -8, 5]):
        caplog.clear()
        windows = fastdp.Windows("1h", 1.0, "2024-01-01", counts=True, by="k", keys=["a"], who=True, seed=1)
        for hour in hours:
            windows.add(np.array(["2024-01-01T00"], "M8[s]") + np.timedelta64(hour, "h"), keys=["b"], persons=[hour])
            windows.advance("2024-01-01T02")
        heard.append(caplog.messages)
    assert heard == [["2 windows of 1h closed"]] * 2
