"""Advice of docs/howto/choosing.md for counts: fastdp.counts of rows, or fastdp.release of their numbers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import fastdp
from benchmarks.accuracy import counts_mode

pytest.importorskip("pyarrow", reason="needs the extra tables")

import pyarrow as pa

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "choosing.md"
BEGIN = np.datetime64("2024-01-01", "s")


def test_the_limits_of_the_page_are_the_measured_ones() -> None:
    listed = re.findall(r"^\| (below|above) (\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert [(word, float(limit)) for word, limit in listed] == [
        ("below", counts_mode.LOW),
        ("above", counts_mode.HIGH),
    ]


@pytest.mark.parametrize(
    ("expected", "length", "most"), [(0.05, 24, 0.6), (4.0, 1, 1.0), (40.0, 1, 1.05), (40.0, 24, 1.15)]
)
def test_the_advised_door_has_the_lesser_error(expected: float, length: int, most: float) -> None:
    """Hours of a year with a pattern of the day; ``most`` times the other door's error."""
    rng, epsilon, hours = np.random.default_rng(1), 0.1, np.arange(24 * 200)
    rates = expected / epsilon * (1.0 + 0.8 * np.sin(2.0 * np.pi * hours / 24))
    numbers = rng.poisson(rates).astype(float)
    rows = pa.table({"time": BEGIN + 3600 * np.repeat(hours, numbers.astype(int))})
    time = fastdp.Time("time", "1h", start=str(BEGIN), stop=str(BEGIN + 3600 * hours.size))
    squares = {"counts": 0.0, "release": 0.0}
    for seed in range(3):
        table = fastdp.counts(rows, time, epsilon=epsilon, seed=seed)
        release = fastdp.release(numbers, epsilon=epsilon, sensitivity=1, seed=seed)
        answers = {"counts": table.sum(hours, hours + 1, revised=True), "release": release.revised}
        for door, values in answers.items():
            errors = np.concatenate([[0.0], np.cumsum(values - numbers)])
            squares[door] += float(np.mean((errors[length:] - errors[:-length]) ** 2))
    ours = counts_mode.advised(expected, length)
    (other,) = squares.keys() - {ours}
    assert squares[ours] <= most**2 * squares[other]
