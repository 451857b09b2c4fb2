"""Quantiles of sums of discrete Laplace noise: against exact convolution and the real distribution."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fastdp.releases.intervals import laplace_sum_quantile, laplace_sum_quantiles, laplace_variance
from tests.oracles.laplace_sums import inside_exact, real_tail

CONFIDENCES = (0.01, 0.5, 0.68, 0.9, 0.95, 0.99, 0.9999)


@pytest.mark.parametrize("p", [Fraction(1, 1000), Fraction(1, 4), Fraction(3, 5)])
@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_quantiles_are_those_of_the_exact_law(p: Fraction, m: int) -> None:
    inside = inside_exact(p, m, 30 if p < Fraction(1, 2) else 55)
    for confidence in CONFIDENCES:
        t = laplace_sum_quantile(-1.0 / math.log(p), m, confidence)
        assert float(inside[t][1]) >= confidence
        assert t == 0 or float(inside[t - 1][0]) < confidence + 1e-10


@pytest.mark.parametrize("m", [1, 2, 3, 4, 7, 20, 100, 400])
def test_on_a_fine_grid_quantiles_are_those_of_the_real_law(m: int) -> None:
    # A discrete draw is a real one with two fractional parts less, so that sums differ by at most m steps.
    scale = 2**40
    for confidence in CONFIDENCES:
        t = laplace_sum_quantile(Fraction(scale), m, confidence)
        assert real_tail(t / scale, m) == pytest.approx(1.0 - confidence, rel=1e-6)


def test_a_wider_sum_has_a_wider_quantile_and_many_terms_are_normal() -> None:
    many = laplace_sum_quantiles(2.0**32, np.array([0, 1, 2, 3, 10, 100, 10**6, 2**40, 10]), 0.95)
    assert many[0] == 0
    assert (np.diff(many[:-1]) > 0).all()
    assert many[4] == many[8] == laplace_sum_quantile(2**32, 10, 0.95)
    assert many[7] / math.sqrt(2**40 * laplace_variance(2**32)) == pytest.approx(1.959963985, rel=1e-8)
