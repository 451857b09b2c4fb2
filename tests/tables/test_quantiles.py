"""Quantiles of cells: bins, consistent counts against dense least squares, intervals, and their coverage."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fastdp.errors import ParameterError
from fastdp.releases.intervals import DrawnNoise
from fastdp.tables import quantiles
from fastdp.tables.quantiles import BINS, FAN_OUT, LEVELS, Bins, Histogram

ENDS = [(0.0, 10.0), (-5.0, 20.0), (-3.0, 0.0), (2.0, 3.0), (-4.0, -1.0)]


def design() -> np.ndarray:
    """One row a node: the bins that it counts."""
    return np.concatenate([np.kron(np.eye(FAN_OUT), np.ones(BINS // FAN_OUT)), np.eye(BINS)])


def histogram(values: np.ndarray, ends: tuple[float, float], epsilon: float, seed: int) -> Histogram:
    """Noisy histogram of one cell a row of `values`, float64[W, n]."""
    bins, counts = Bins(*ends), np.zeros((len(values), 1, BINS), np.int64)
    windows = np.repeat(np.arange(len(values)), values.shape[1])
    bins.add((windows, np.zeros(values.size, np.int32), values.ravel()), 0, counts)
    nodes, rng = bins.nodes(counts), np.random.default_rng(seed)
    noise = np.rint(rng.laplace(0.0, LEVELS / epsilon, nodes.shape)).astype(np.int64)
    return Histogram(bins, nodes + noise, DrawnNoise(Fraction(LEVELS) / Fraction(epsilon)), np.ones(1, np.int64))


@pytest.mark.parametrize("ends", ENDS)
def test_bins_cover_the_range_and_hold_their_values(ends: tuple[float, float]) -> None:
    bins = Bins(*ends)
    borders = bins.borders
    assert borders.size == BINS + 1
    assert (borders[0], borders[-1]) == ends
    assert (np.diff(borders) > 0.0).all()
    values = np.concatenate([borders, (borders[1:] + borders[:-1]) / 2.0, [ends[0] - 1.0, ends[1] + 1.0]])
    found = bins.of(values)
    inside = np.clip(values, *ends)
    assert (borders[found] <= inside).all()
    assert (inside <= borders[found + 1]).all()
    near = np.argmin(np.abs(borders[:-1] + borders[1:]))
    assert np.diff(borders)[near] <= np.diff(borders).min() * 1.1


def test_rows_of_other_keys_and_windows_do_not_count() -> None:
    bins, counts = Bins(0.0, 1.0), np.zeros((2, 2, BINS), np.int64)
    rows = np.array([4, 5, 6, 7]), np.array([0, 1, -1, 0], np.int32), np.full(4, 0.5)
    bins.add(rows, 5, counts)
    assert np.argwhere(counts).tolist() == [[0, 1, bins.of(np.array([0.5]))[0]]]
    nodes = bins.nodes(counts)
    assert nodes.shape == (FAN_OUT + BINS, 2, 2)
    assert nodes[:FAN_OUT].sum() == nodes[FAN_OUT:].sum() == 1


def test_consistent_counts_equal_dense_least_squares() -> None:
    noisy = np.random.default_rng(1).normal(size=(3, FAN_OUT + BINS))
    dense = np.linalg.lstsq(design(), noisy.T, rcond=None)[0].T
    np.testing.assert_allclose(quantiles.consistent_leaves(noisy), dense, atol=1e-10)


@pytest.mark.parametrize("rank", [0.0, 0.25, 0.5, 0.95])
def test_variances_equal_dense_least_squares(rank: float) -> None:
    covariance = np.linalg.inv(design().T @ design())
    weights = np.tri(BINS + 1, BINS, -1) - rank
    expected = np.einsum("ij,jk,ik->i", weights, covariance, weights)
    np.testing.assert_allclose(quantiles.prefix_variances(rank), expected, atol=1e-9)


@pytest.mark.parametrize("rank", [0.1, 0.5, 0.95])
def test_without_noise_quantiles_are_within_a_bin(rank: float) -> None:
    values = np.random.default_rng(2).lognormal(0.0, 2.0, (4, 5001))
    found = histogram(values, (0.0, 1000.0), 1e9, 3)
    estimate, low, high = (each[:, 0] for each in found.quantiles(rank, np.arange(4), np.arange(1, 5), 0.95))
    true = np.quantile(values, rank, axis=1)
    assert ((low <= true) & (true <= high)).all()
    np.testing.assert_allclose(estimate, true, rtol=0.015)
    assert (high - low <= 0.04 * true).all()


def test_quantiles_of_ranges_count_the_rows_of_all_their_windows() -> None:
    values = np.stack([np.full(1001, 1.0), np.full(1001, 5.0), np.full(1001, 9.0)])
    found = histogram(values, (0.0, 10.0), 1e9, 4)
    estimate, low, high = found.quantiles(0.5, np.array([0, 1]), np.array([3, 3]), 0.9)
    assert low[0, 0] <= 5.0 <= high[0, 0]
    assert estimate[0, 0] == pytest.approx(5.0, rel=0.02)
    assert low[1, 0] <= 5.0 <= 9.0 <= high[1, 0] * 1.001


def test_a_cell_without_rows_says_nothing() -> None:
    found = histogram(np.empty((5, 0)), (-1.0, 1.0), 0.1, 5)
    _, low, high = found.quantiles(0.5, np.arange(5), np.arange(5) + 1, 0.95)
    assert (high - low > 1.9).mean() >= 0.8


@pytest.mark.statistical
@pytest.mark.parametrize("rank", [0.25, 0.5, 0.9])
def test_intervals_cover_the_quantiles_of_the_rows(rank: float) -> None:
    values = np.random.default_rng(6).gamma(2.0, 0.2, (400, 500))
    found = histogram(values, (0.0, 10.0), 1.0, 7)
    _, low, high = (each[:, 0] for each in found.quantiles(rank, np.arange(400), np.arange(1, 401), 0.9))
    true = np.quantile(values, rank, axis=1)
    covered = ((low <= true) & (true <= high)).mean()
    assert covered >= 0.9


def test_more_histograms_than_fit_are_refused() -> None:
    with pytest.raises(ParameterError, match="quantiles of 70,000 windows and keys: expected at most 65,536"):
        quantiles.check_bins(70_000)
