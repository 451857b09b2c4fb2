"""Counts in boxes equal brute force: points exactly, cells up to rounding; borders, any dimension, empty, huge."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fastdp.spatial import CellIndex
from fastdp.spatial.released_tree import LEAF
from fastdp_kernels.points import box_queries
from fastdp_lab.queries.boxes import PointIndex
from tests.oracles import boxes

SIZES = [0, 1, 2, LEAF - 1, LEAF, 2 * LEAF - 1, 2 * LEAF, 2 * LEAF + 1, 97, 512]


def random_corners(generator: np.random.Generator, count: int, dim: int, grid: int) -> tuple[np.ndarray, np.ndarray]:
    """Boxes with corners on a grid, so that many points and cells touch a border; some are flat or infinite."""
    corners = np.sort(generator.integers(-1, grid + 2, (2, count, dim)) / grid, axis=0)
    corners[0][generator.random((count, dim)) < 0.05] = -np.inf
    corners[1][generator.random((count, dim)) < 0.05] = np.inf
    return corners[0], corners[1]


def test_points_equal_brute_force() -> None:
    for dim, n in itertools.product((1, 2, 3, 5), SIZES):
        generator = np.random.default_rng(100 * n + dim)
        for grid in (4, 64, 2**40):
            points = generator.integers(0, grid + 1, (n, dim)) / grid
            lower, upper = random_corners(generator, 60, dim, grid)
            counts = PointIndex(points).count(lower, upper)
            assert counts.dtype == np.int64
            assert counts.tolist() == boxes.count_points(points.tolist(), lower.tolist(), upper.tolist())


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 64, 1000])
def test_the_tree_halves_its_nodes(n: int, dim: int) -> None:
    """Each node's items are parted by a plane across their widest axis, which is what makes counting fast."""
    generator = np.random.default_rng(n)
    for keys in (
        generator.random((n, dim)),
        generator.integers(0, 3, (n, dim)) / 1.0,
        np.arange(n * dim * 1.0)[::-1],
    ):
        given_keys = np.ascontiguousarray(keys.reshape(n, dim))
        levels = max(0, n.bit_length() - 3)
        items, order = given_keys.copy(), np.arange(n)
        box_queries.sort_into_tree(items, levels, order)
        assert sorted(order.tolist()) == list(range(n))
        assert np.array_equal(given_keys[order], items)
        for level in range(levels):
            for k in range(2**level):
                low, middle, high = (((2 * k + side) * n) >> (level + 1) for side in range(3))
                axis = np.argmax(np.ptp(items[low:high], axis=0))
                assert items[low:middle, axis].max() <= items[middle:high, axis].min()


def test_cells_equal_brute_force() -> None:
    for dim, depth in itertools.product((1, 2, 3), (0, 1, 4, 9)):
        generator = np.random.default_rng(10 * depth + dim)
        cells = boxes.bisection([0.0] * dim, [1.0] * dim, depth, generator)
        low, high = (np.array([cell[side] for cell in cells]) for side in (0, 1))
        counts = generator.integers(-3, 1000, len(cells)) / 8
        index = CellIndex(low, high, counts)
        assert index.total == pytest.approx(counts.sum(), abs=1e-9)
        for grid in (4, 97):
            lower, upper = random_corners(generator, 40, dim, grid)
            expected = boxes.count_cells(low.tolist(), high.tolist(), counts.tolist(), lower.tolist(), upper.tolist())
            np.testing.assert_allclose(index.count(lower, upper), expected, rtol=1e-12, atol=1e-9)


def test_equal_points_and_huge_coordinates() -> None:
    same = np.full((1000, 2), 3.5)
    assert PointIndex(same).count([[3.5, 3.5], [3.6, 0.0]], [[3.5, 3.5], [9.0, 9.0]]).tolist() == [1000, 0]
    far = np.array([[-1e308], [1e308], [0.0]] * 20)
    assert PointIndex(far).count([[-np.inf], [0.0], [1e307]], [[np.inf], [1e307], [1e308]]).tolist() == [60, 20, 20]
    cells = CellIndex([[-1e300], [5e299]], [[5e299], [1e308]], [3.0, 7.0])
    assert cells.count([[-np.inf], [-1e300]], [[np.inf], [-2.5e299]]).tolist() == [10.0, 1.5]
