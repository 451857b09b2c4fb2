"""Errata of the papers that a computation shows; the tables are in docs/explanation/papers.md."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import fastdp
from fastdp.local import Distribution, Hybrid
from fastdp.thresholds import Fixed
from fastdp.thresholds.square_wave import range_errors


def mean_over_ranges(r: int, power: int) -> Fraction:
    """Of length^power, over all r (r + 1) / 2 ranges within r values."""
    ranges = [stop - start for start in range(r) for stop in range(start + 1, r + 1)]
    assert len(ranges) == r * (r + 1) // 2
    return Fraction(sum(length**power for length in ranges), len(ranges))


def test_the_objective_has_the_mean_square() -> None:
    """All values are near 100: clipped at theta, a range of j values loses about j (100 - theta)."""
    r, frequencies = 300, np.zeros(100)
    frequencies[-1] = 1.0
    near = Distribution(frequencies, 0.0, 100.0, "em", 1, True, 0.0, 1)
    candidates, errors = range_errors(near, r, 1.0, "corrected")
    bias = errors - r / 3 * Hybrid(1.0).worst_variance * (candidates / 2) ** 2
    expected = float(mean_over_ranges(r, 2)) * (99.5 - candidates) ** 2
    assert bias[:90] == pytest.approx(expected[:90], rel=0.011)


def test_the_sum_of_the_hold_out_must_be_clipped() -> None:
    """PAK Mechanism 1, line 2: noise tau / eps_2 on values up to B.

    All of the first m values are 0, or one of them is B.  If all are 0, tau is at most some thousandths of B, so that
    the noise of their sum stays below B / 2; with one B the sum exceeds B / 2 at least half of the time: a delta
    above 0.4 in place of 2^-20.
    """
    m, bound, epsilon, delta, beta = 65_536, 1.0, 1.0, 2.0**-20, 0.006
    above = m - math.ceil(0.995 * m)
    first, second = 0.85 * epsilon, 0.15 * epsilon
    a, b, g = first / 2, first / (2 * math.log(1 / delta)), -math.log(2 * beta)
    kappa = 1 / (1 - math.expm1(b) * g / a)
    # Zeros alone: the largest weight of a pair that reaches the bound is that of k = m - P.
    tau_scale = kappa * bound * math.exp(-b * above) / a
    # tau <= (g + 40) tau_scale but for e^-40 / 2; then P[sum > B / 2] is at most half of e^(-eps_2 B / (2 tau)).
    zeros = math.exp(-40) / 2 + math.exp(-second * bound / 2 / ((g + 40) * tau_scale)) / 2
    # One value B: the noise is symmetric about B, so P[sum > B / 2] >= 1/2.
    assert 0.5 - math.exp(epsilon) * zeros > 0.4 > 1e5 * delta


@pytest.mark.parametrize("lag_sums", [False, True])
def test_the_sum_of_the_hold_out_is_clipped(lag_sums: bool) -> None:
    """The same noise, one value 1,000 in place of 0, tau = 10: the sum moves by tau."""
    values = np.zeros(100)
    sums = []
    for last in (0.0, 1000.0):
        values[-1] = last
        publisher = fastdp.PAK(
            1.0, 1e-6, 1000.0, 200, holdout=100, threshold=Fixed(10.0), lag_sums=lag_sums, resolution=1.0, seed=1
        )
        sums.append(publisher.publish(values))
    moved = sums[1] - sums[0]
    assert moved[-1] == 10.0
    assert moved[:-1].tolist() == [0.0] * (moved.size - 1)
