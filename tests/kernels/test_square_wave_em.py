"""Square-wave EM: the matrix against exact integration, iterations against dense ones, the likelihood's ascent."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from fastdp.local.distribution import transition
from fastdp_kernels.local import square_wave_em
from fastdp_kernels.local.band_matrix import multiply_band
from tests.grid import exhaustive
from tests.oracles import square_wave_em as oracle

EPSILONS = [0.1, 0.2, 1.0, 2.0, 4.0, 8.0, 20.0, 32.0]
SHAPES = [(1, 1), (1, 7), (7, 1), (2, 3), (16, 16), (64, 64), (64, 17), (17, 64), (100, 333), (333, 100)]


def reports_for(window: oracle.WindowDistribution, bins: int, counts: np.ndarray) -> square_wave_em.Reports:
    return transition(window, bins, np.ascontiguousarray(counts, np.int64))


def dense_of(reports: square_wave_em.Reports, bins: int) -> np.ndarray:
    """The kernel's matrix, column by column."""
    cells = reports.counts.size
    shares = np.empty((cells, bins))
    for i in range(bins):
        column = np.empty(cells)
        multiply_band(reports.forward, np.eye(bins)[i], column)
        shares[:, i] = column
    return reports.flat[:, None] + reports.peak[:, None] * shares


def counts_of(window: oracle.WindowDistribution, cells: int, n: int = 65_536, seed: int = 5) -> np.ndarray:
    """Reports of a skewed distribution with a spike."""
    generator = np.random.default_rng(seed)
    values = np.minimum(generator.gamma(1.5, 0.05, n), 1.0)
    values[: n // 4] = 0.3
    x = np.rint(values * window.steps).astype(np.int64)
    return np.bincount(oracle.cells_of(window, oracle.report(window, x, generator), cells), minlength=cells)


# The matrix.


def test_matrix_is_the_exact_integral() -> None:
    for epsilon, (bins, cells) in itertools.product(EPSILONS, SHAPES):
        window = oracle.square_wave(epsilon)
        reports = reports_for(window, bins, np.ones(cells))
        dense = dense_of(reports, bins)
        expected = oracle.matrix(window, bins, cells)
        assert np.abs(dense - expected).max() < 1e-12
        # Much more: every entry is right to a few units in the last place.
        np.testing.assert_allclose(dense, expected, rtol=4e-15, atol=0)
        np.testing.assert_allclose(dense.sum(axis=0), 1.0, rtol=0, atol=1e-12)


@pytest.mark.parametrize("near", [1, 5, 64, 200, *exhaustive(2, 3, 40, 63, 65)])
def test_any_window_on_a_small_grid_in_fractions(near: int) -> None:
    """Bands narrower than a bin, wider than the domain, and cells of one output."""
    window = oracle.window_distribution(1.5, near, steps=64)
    for bins, cells in ((1, 1), (5, 7), (64, window.outputs), (13, 40), (7, 64)):
        exact = oracle.exact_matrix(window, bins, min(cells, window.outputs))
        assert all(sum(column) == 1 for column in zip(*exact, strict=True))
        dense = dense_of(reports_for(window, bins, np.ones(len(exact))), bins)
        for row, expected in zip(dense, exact, strict=True):
            assert all(
                abs(Fraction(entry) / e - 1) < Fraction(1, 2**48) for entry, e in zip(row, expected, strict=True)
            )
        np.testing.assert_allclose(oracle.matrix(window, bins, len(exact)), np.array(exact, float), rtol=1e-14)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("bins", "cells"), SHAPES)
def test_backward_is_the_transpose(epsilon: float, bins: int, cells: int) -> None:
    reports = reports_for(oracle.square_wave(epsilon), bins, np.ones(cells))
    generator = np.random.default_rng(bins + cells)
    x, y = generator.random(bins), generator.random(cells)
    forward, backward = np.empty(cells), np.empty(bins)
    multiply_band(reports.forward, x, forward)
    multiply_band(reports.backward, y, backward)
    assert float(y @ forward) == pytest.approx(float(x @ backward), rel=1e-13)


# The iteration.


def run(
    reports: square_wave_em.Reports, bins: int, steps: int, *, smooth: bool = False, tolerance: float = -math.inf
) -> tuple[np.ndarray, int, bool, float]:
    theta = np.full(bins, 1.0 / bins)
    return theta, *square_wave_em.iterate_plain(reports, smooth, tolerance, steps, theta)


def run_accelerated(
    reports: square_wave_em.Reports, bins: int, steps: int, tolerance: float = -math.inf
) -> tuple[np.ndarray, int, bool, float]:
    theta = np.full(bins, 1.0 / bins)
    return theta, *square_wave_em.iterate_accelerated(reports, tolerance, steps, theta)


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("epsilon", [0.1, 2.0, *exhaustive(0.5, 1.0, 8.0)])
@pytest.mark.parametrize(
    ("bins", "cells", "steps"), [(64, 50, 200), (1024, 1024, 15), *exhaustive((64, 64, 400), (256, 256, 60))]
)
def test_the_distribution_is_that_of_the_dense_iteration(
    smooth: bool, epsilon: float, bins: int, cells: int, steps: int
) -> None:
    window = oracle.square_wave(epsilon)
    counts = counts_of(window, cells)
    reports, dense = reports_for(window, bins, counts), oracle.matrix(window, bins, cells)
    *_, expected = oracle.estimates(dense, counts, steps, smooth)
    theta, taken, converged, likelihood = run(reports, bins, steps, smooth=smooth)
    assert (taken, converged) == (steps, False)
    assert np.abs(theta - expected).max() < 1e-9
    assert likelihood == pytest.approx(oracle.log_likelihood(dense, counts, expected), rel=1e-12)
    # Power: one step more is further away.
    *_, further = oracle.estimates(dense, counts, steps + 1, smooth)
    assert np.abs(theta - further).max() > 1e-9 or smooth


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.0])
def test_the_stopping_rule_is_the_published_one(smooth: bool, epsilon: float) -> None:
    window, bins = oracle.square_wave(epsilon), 64
    counts = counts_of(window, bins)
    tolerance = 1e-3 * (1.0 if smooth else math.exp(epsilon))
    expected, steps, stopped, likelihood = oracle.iterate(
        oracle.matrix(window, bins, bins), counts, tolerance, 5000, smooth
    )
    theta, taken, converged, reached = run(
        reports_for(window, bins, counts), bins, 5000, smooth=smooth, tolerance=tolerance
    )
    assert stopped
    assert (taken, converged) == (steps, True)
    assert np.abs(theta - expected).max() < 1e-9
    assert reached == pytest.approx(likelihood, rel=1e-12)


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("cells", [64, 17])
def test_a_step_without_logarithms_gains_the_tolerance(smooth: bool, cells: int) -> None:
    """Tolerances equal to a step's gain, and the next number above: the first step that gains less is the last."""
    window, bins = oracle.square_wave(1.0), 64
    reports = reports_for(window, bins, counts_of(window, cells))
    likelihoods = [run(reports, bins, steps, smooth=smooth)[3] for steps in range(1, 60)]
    gains = [later - before for before, later in itertools.pairwise(likelihoods)]
    size = np.abs if smooth else np.asarray
    for tolerance in [t for gain in gains for t in (gain, math.nextafter(gain, math.inf)) if t > 0.0]:
        stops = [step for step, gain in enumerate(gains, 2) if size(gain) < tolerance]
        _, taken, converged, likelihood = run(reports, bins, 59, smooth=smooth, tolerance=tolerance)
        assert (taken, converged) == ((stops[0], True) if stops else (59, False))
        assert likelihood == likelihoods[taken - 1]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("bins", [16, 64, 256])
def test_the_likelihood_never_falls(epsilon: float, bins: int) -> None:
    """Of plain steps one by one; of the accelerated iteration at every number of steps, of its own matrix too."""
    window = oracle.square_wave(epsilon)
    counts = counts_of(window, bins)
    reports, dense = reports_for(window, bins, counts), oracle.matrix(window, bins, bins)
    for iterate in (run, run_accelerated):
        before = oracle.log_likelihood(dense, counts, np.full(bins, 1.0 / bins))
        for steps in range(1, 80):
            theta, taken, converged, likelihood = iterate(reports, bins, steps)
            now = oracle.log_likelihood(dense, counts, theta)
            assert (taken, converged) == (steps, False)
            assert likelihood == pytest.approx(now, rel=1e-12)
            assert theta.min() >= 0.0
            assert theta.sum() == pytest.approx(1.0, abs=1e-12)
            # An odd number of steps ends on a plain one, whose estimate precedes an extrapolation.
            assert now > before - 1e-9 * abs(before)
            before = now


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.0])
def test_acceleration_gets_as_far_in_fewer_steps(epsilon: float) -> None:
    window, bins = oracle.square_wave(epsilon), 1024
    reports = reports_for(window, bins, counts_of(window, bins))
    tolerance = 1e-3 * math.exp(epsilon)
    _, steps, converged, likelihood = run(reports, bins, 10_000, tolerance=tolerance)
    _, quick, stopped, reached = run_accelerated(reports, bins, 10_000, tolerance)
    assert converged
    assert stopped
    assert quick < steps / 5
    # Both stop on the slope, not at the top: a factor of e or less in the likelihood of all 65,536 reports.
    assert reached > likelihood - 1.0


def test_vanishing_shares_become_zero() -> None:
    """Not subnormal, which would slow every later step."""
    window, bins = oracle.square_wave(8.0), 256
    counts = np.zeros(bins, np.int64)
    counts[20] = 10**6
    reports, theta = reports_for(window, bins, counts), np.full(bins, 1.0 / bins)
    for _ in range(400):
        square_wave_em.iterate_plain(reports, False, -math.inf, 1, theta)
        assert not ((theta > 0.0) & (theta < 2.0**-900)).any()
    assert (theta == 0.0).any()
