"""Points: cells as the papers size them, consistent counts against least squares, and points where points are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fastdp_lab.contestants import points
from fastdp_lab.contestants.points import POINTS

KEY = bytes(range(32))


def clusters(n: int = 4_000) -> np.ndarray:
    rng = np.random.default_rng(4)
    found = np.concatenate([rng.normal([0.3, 0.6], 0.05, (n // 2, 2)), rng.random((n // 2, 2)) * [1, 0.5]])
    return np.random.default_rng(5).permutation(found.clip(0, 1 - 1e-9))


def share(found: np.ndarray, low: list[float], high: list[float]) -> float:
    return float(((found >= low) & (found < high)).all(1).mean())


@pytest.mark.parametrize("mechanism", POINTS, ids=lambda each: each.name)
def test_boxes_have_their_share_of_the_points(mechanism):
    given = clusters()
    found = mechanism.run(given, 50.0, KEY, times=np.repeat(np.arange(4), 1_000))
    assert len(found) == pytest.approx(4_000, rel=0.02)
    assert ((found >= 0) & (found <= 1)).all()
    for low, high in (([0, 0], [1, 0.5]), ([0.25, 0.5], [0.4, 0.75]), ([0, 0.8], [1, 1]), ([0.5, 0.1], [0.75, 0.3])):
        assert share(found, low, high) == pytest.approx(share(given, low, high), abs=0.03)


def test_grids_are_as_fine_as_the_guidelines_say():
    # Without noise, c = 10: sqrt(4,000 x 90 / 10) = 189.7 cells a side.
    found = points.uniform_grid(np.full((4_000, 2), 0.001), 90.0, KEY)
    assert np.ptp(found, axis=0) == pytest.approx([1 / 190, 1 / 190], rel=0.2)
    # The first grid has sqrt(36,000) / 4 = 47.4 cells; .475 of 90 gives a cell sqrt(4,000 x 42.75 / 5) = 184.9.
    found = points.adaptive_grid(np.full((4_000, 2), 0.0001), 90.0, KEY)
    close = found[(found < 1 / 48).all(1)]
    assert np.quantile(close, 0.9) == pytest.approx(0.9 / 48 / 185, rel=0.1)


def test_rows_are_projected_to_the_nearest_of_their_total():
    rng = np.random.default_rng(6)
    rows, totals = rng.normal(1, 2, (20, 4)), rng.uniform(0, 6, 20)
    found = points.projected(rows, totals)
    np.testing.assert_allclose(found.sum(1), totals)
    assert (found >= 0).all()
    for row, total, nearest in zip(rows, totals, found, strict=True):
        # Of all choices of numbers that stay above 0, the best.
        best = np.inf
        for mask in itertools.product([False, True], repeat=4):
            kept = np.array(mask)
            if kept.any():
                other = np.where(kept, row + (total - row[kept].sum()) / kept.sum(), 0.0)
                if (other >= -1e-12).all():
                    best = min(best, ((other - row) ** 2).sum())
        assert ((nearest - row) ** 2).sum() == pytest.approx(best)


def test_levels_are_made_consistent_by_least_squares():
    rng, budgets = np.random.default_rng(7), [3, 2, 5]
    leaves = rng.uniform(100, 200, 64)
    levels = [leaves.reshape(-1, 4 ** (2 - k)).sum(1) + rng.normal(0, 1, 4 ** (k + 1)) for k in range(3)]
    matrix = np.concatenate([np.repeat(np.eye(4 ** (k + 1)), 4 ** (2 - k), axis=1) * budgets[k] for k in range(3)])
    observed = np.concatenate([level * budget for level, budget in zip(levels, budgets, strict=True)])
    expected = np.linalg.lstsq(matrix, observed, rcond=None)[0]
    np.testing.assert_allclose(points.consistent(levels, budgets), expected, rtol=1e-9)


@pytest.mark.parametrize("release", [points.hierarchical, points.kd_hybrid, points.priv_hp])
def test_no_points_give_few_points(release):
    sizes = [len(release(np.empty((0, 2)), 1.0, bytes([k]) * 32)) for k in range(10)]
    assert np.median(sizes) < 100
