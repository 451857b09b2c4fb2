"""Workloads are uniform over all ranges; metrics are what the papers say, by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from fastdp_lab import metrics
from fastdp_lab.queries.workloads import random_ranges

ALPHA = 1e-6  # false alarm of a test; seeds are fixed
DRAWS = 40_000


def all_ranges(n: int, longest: int) -> list[tuple[int, int]]:
    return [(start, stop) for start in range(n) for stop in range(start + 1, min(n, start + longest) + 1)]


def p_value(n: int, longest: int, starts: np.ndarray, stops: np.ndarray) -> float:
    """Chi-square test that all ranges are equally likely; fails at once for a range that is none."""
    number = {pair: k for k, pair in enumerate(all_ranges(n, longest))}
    counts = np.zeros(len(number))
    for pair, count in zip(*np.unique(np.stack([starts, stops], 1), axis=0, return_counts=True), strict=True):
        counts[number[tuple(pair.tolist())]] = count
    return 1.0 if len(number) == 1 else float(stats.chisquare(counts).pvalue)


CASES = [(n, longest) for n in (1, 2, 3, 4, 7, 12) for longest in (1, 2, 3, n - 1, n, n + 1, 100) if longest > 0]


def test_all_ranges_are_equally_likely() -> None:
    for n, longest in sorted(set(CASES)):
        starts, stops = random_ranges(n, DRAWS, longest, seed=1000 * n + longest)
        assert starts.dtype == stops.dtype == np.int64
        assert p_value(n, longest, starts, stops) > ALPHA


def test_the_chi_square_test_has_power() -> None:
    generator = np.random.default_rng(5)
    # Uniform lengths, then uniform places: long ranges too frequent.
    length = generator.integers(1, 8, DRAWS)
    starts = generator.integers(0, 7 - length + 1)
    assert p_value(7, 7, starts, starts + length) < ALPHA
    # Two sorted end points: right for stops > starts only, wrong for a limited length that is clipped.
    starts, stops = random_ranges(7, DRAWS, seed=6)
    assert p_value(7, 3, starts, np.minimum(stops, starts + 3)) < ALPHA
    with pytest.raises(KeyError):
        p_value(7, 3, starts, stops)


def test_bounds() -> None:
    for n, longest in itertools.product(
        (5, 1000, 2**31 + 11, 2**40, 2**53 + 1, 2**62), (None, 1, 2, 1000, 2**20, 2**40, 2**62, 2**80)
    ):
        starts, stops = random_ranges(n, 5000, longest, seed=8)
        lengths = stops - starts
        limit = n if longest is None else min(n, longest)
        assert starts.min() >= 0
        assert stops.max() <= n
        assert lengths.min() >= 1
        assert lengths.max() <= limit
        assert lengths.max() > 0.9 * limit - 1


@pytest.mark.parametrize(
    ("n", "longest"), [(2**40, 2**40), (2**40, 2**39), (2**62, 2**62), (2**40, 2**20), (2**40, 1)]
)
def test_law_on_long_streams(n: int, longest: int) -> None:
    """Ranges too many to count: lengths have density n - j + 1, places are uniform given the length."""
    starts, stops = random_ranges(n, DRAWS, longest, seed=9)
    lengths = stops - starts
    share = longest / n

    def distribution(x: np.ndarray) -> np.ndarray:
        y = np.asarray(x) / n
        return (y - y * y / 2) / (share - share * share / 2)

    if longest > 1:
        assert stats.kstest(lengths, distribution).pvalue > ALPHA
        assert stats.kstest(np.sqrt(lengths / n) * np.sqrt(n), distribution).pvalue < ALPHA
    # The KS test is for continuous distributions; few places left would show as ties.
    room = (n - lengths).astype(float)
    places = (starts / np.where(room > 0, room, 1.0))[room > 2**20]
    assert stats.kstest(places, "uniform").pvalue > ALPHA


TRUTH = [10.0, 20.0, -4.0, 0.5]
ANSWERS = [13.0, 18.0, -4.0, 1.5]  # differences 3, -2, 0, 1
LENGTHS = [1, 2, 4, 5]  # means' differences 3, -1, 0, 0.2


def test_metrics_by_hand() -> None:
    assert metrics.mse(TRUTH, ANSWERS) == 14 / 4
    assert metrics.mae(TRUTH, ANSWERS) == 6 / 4
    assert metrics.mmse(TRUTH, ANSWERS, LENGTHS) == pytest.approx(10.04 / 4)
    assert metrics.mmae(TRUTH, ANSWERS, LENGTHS) == pytest.approx(4.2 / 4)
    assert metrics.relative_error(TRUTH, ANSWERS) == pytest.approx((0.3 + 0.1 + 0.0 + 2.0) / 4)
    assert metrics.relative_error(TRUTH, ANSWERS, floor=5.0) == pytest.approx((0.3 + 0.1 + 0.0 + 0.2) / 4)
    assert metrics.relative_error([0.0], [3.0], floor=2.0) == 1.5


@pytest.mark.parametrize("build", [list, tuple, np.array, lambda v: np.array([v, v]), lambda v: np.array(v, "f2")])
def test_metrics_take_any_shape(build) -> None:
    assert metrics.mse(build(TRUTH), build(ANSWERS)) == 3.5
    assert metrics.mmae(build(TRUTH), build(ANSWERS), LENGTHS) == pytest.approx(1.05)
    assert metrics.mmse(build(TRUTH), build(ANSWERS), 2) == 3.5 / 4
    assert isinstance(metrics.mae(build(TRUTH), build(ANSWERS)), float)


def test_metrics_take_scalars_and_integers() -> None:
    assert metrics.mse(3, 5) == 4.0
    assert metrics.mae(np.uint8([3]), np.uint8([5])) == 2.0  # no wrap-around
    assert metrics.mae(np.array([2**63], np.uint64), np.array([0])) == 2.0**63
