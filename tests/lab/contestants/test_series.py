"""Whole series: without noise the values, and with noise the variances that L1 sensitivities of n values ask for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastdp_lab.contestants import series
from fastdp_lab.contestants.series import SERIES

KEY = bytes(range(32))
WAVE = np.rint(50 + 40 * np.sin(np.arange(500) / 30)).astype(np.int64)


def errors(release, n: int, **parameters) -> np.ndarray:
    keys = [bytes([k]) * 32 for k in range(40)]
    return np.stack([release(np.zeros(n, np.int64), 1.0, key, sensitivity=1.0, **parameters) for key in keys])


@pytest.mark.parametrize("size", [1, 2, 3, 64, 101])
def test_without_noise_the_values_come_back(size):
    values = np.random.default_rng(size).integers(0, 50, size)
    for release, parameters in ((series.laplace, {}), (series.wavelet, {}), (series.fourier, {"keep": size})):
        found = release(values, 1e7, KEY, sensitivity=1.0, **parameters)
        np.testing.assert_allclose(found, values, atol=0.05)


def test_noise_is_that_of_all_values_together():
    n = 256
    assert np.mean(errors(series.laplace, n) ** 2) == pytest.approx(2 * n**2, rel=0.05)
    # The sum of a half has the noise of two coefficients: (total + difference) / 2.
    halves = errors(series.wavelet, n)[:, : n // 2].sum(1)
    assert np.mean(halves**2) == pytest.approx(2 * (n * 9) ** 2 / 2, rel=0.5)
    # k coefficients, each of scale sqrt(k) sqrt(n), spread over n values.
    assert np.mean(errors(series.fourier, n, keep=16) ** 2) == pytest.approx(2 * 16 * 16 * n / n, rel=0.15)


def test_efpa_keeps_as_many_coefficients_as_the_budget_pays_for():
    def kept(epsilon: float) -> int:
        found = series.chosen_fourier(WAVE, epsilon, KEY, sensitivity=1.0)
        return int(np.count_nonzero(np.abs(np.fft.rfft(found)) > 1e-6))

    assert [kept(epsilon) for epsilon in (0.5, 20.0)] == sorted([kept(0.5), kept(20.0)])
    assert kept(0.5) <= 4
    assert 3 <= kept(20.0) < 40
    best = series.chosen_fourier(WAVE, 100.0, KEY, sensitivity=1.0)
    assert math.sqrt(np.mean((best - WAVE) ** 2)) < 3


@pytest.mark.parametrize("mechanism", SERIES, ids=lambda each: each.name)
def test_each_follows_a_wave_at_a_large_epsilon(mechanism):
    released = mechanism.run(WAVE, 1e5, KEY, bound=100, sensitivity=100.0)
    assert np.sqrt(np.mean((released - WAVE) ** 2)) < 20
