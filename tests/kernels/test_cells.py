"""Cell codes, boxes and their counts against brute force."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from fastdp_kernels.points import cell_codes
from fastdp_lab.queries import LEAF, PointIndex
from tests import stat
from tests.oracles import boxes
from tests.oracles import phdstream as oracle


def encode(points: np.ndarray, low, high, fan_out: int, depth: int) -> np.ndarray:
    out = np.empty(len(points), np.int64)
    corners = np.array(low, float), np.array(high, float)
    cell_codes.encode_points(np.ascontiguousarray(points), *corners, fan_out, depth, out)
    return out


def path(code: int, fan_out: int, depth: int) -> tuple[int, ...]:
    digits = []
    for _ in range(depth):
        code, digit = divmod(code, fan_out)
        digits.append(digit)
    return tuple(reversed(digits))


def test_codes_are_paths_to_the_cell_that_holds_the_point() -> None:
    for depth, fan_out, dim in itertools.product((0, 1, 2, 3, 7), (2, 3, 5), (1, 2, 3)):
        generator = np.random.default_rng(7)
        # Powers of two as corners: borders of halves are exact, so that points on them have one right cell.
        low, high = [-2.0] * dim, [2.0] * dim
        points = generator.uniform(-2, 2, (60, dim))
        points[:20] = np.round(points[:20] * 8) / 8
        points[20], points[21] = low, high
        codes = encode(points, low, high, fan_out, depth)
        for code, point in zip(codes.tolist(), points.tolist(), strict=True):
            assert oracle.holds(path(code, fan_out, depth), [Fraction(x) for x in point], low, high, fan_out)


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.7), (1e6, 1e6 + 1e-3), (-1e-300, 1e300), (-73.3, 41.9)])
@pytest.mark.parametrize("fan_out", [2, 3])
def test_points_lie_within_the_float_borders_of_their_cell(low: float, high: float, fan_out: int) -> None:
    """Also where cells are finer than floats, and for points on a border and next to it."""
    generator = np.random.default_rng(8)
    for depth in (1, 5, 20, 39 if fan_out == 3 else 62):
        corners = np.array([low]), np.array([high])
        points = generator.uniform(low, high, (200, 1))
        some = encode(points, [low], [high], fan_out, depth)
        lower, upper = np.empty((200, 1)), np.empty((200, 1))
        cell_codes.decode_cells(some, np.full(200, depth), *corners, fan_out, lower, upper)
        near = [lower, upper, np.nextafter(lower, high), np.nextafter(lower, low), np.nextafter(upper, low)]
        points = np.clip(np.concatenate([points, *near, corners[0][None], corners[1][None]]), low, high)
        codes = encode(points, [low], [high], fan_out, depth)
        lower, upper = np.empty_like(points), np.empty_like(points)
        cell_codes.decode_cells(codes, np.full(len(codes), depth), *corners, fan_out, lower, upper)
        assert (lower <= points).all()
        assert ((points < upper) | ((points == high) & (upper == high)) | (lower == upper)).all()
        order = np.argsort(points[:, 0], kind="stable")
        assert (np.diff(codes[order]) >= 0).all()


def test_bounds_equal_the_naive_ones() -> None:
    generator = np.random.default_rng(9)
    low, high = np.array([-2.0, 0.0, 1.0]), np.array([2.0, 8.0, 2.0])
    for depth in range(8):
        codes = generator.integers(0, 2**depth, 20)
        lower, upper = np.empty((20, 3)), np.empty((20, 3))
        cell_codes.decode_cells(codes, np.full(20, depth), low, high, 2, lower, upper)
        for i, code in enumerate(codes.tolist()):
            expected = oracle.cell_of(path(code, 2, depth), low, high, 2)
            assert (lower[i].tolist(), upper[i].tolist()) == tuple([float(x) for x in side] for side in expected)


def test_counts_round_up_with_the_probability_of_their_fraction() -> None:
    trials = 100_000
    for share in (0.0, 0.3, 0.99):
        counts, out = np.full(trials, 5 + share), np.empty(trials, np.int64)
        total = cell_codes.round_counts(counts, np.random.default_rng(stat.seed(81)).random(trials), out)
        assert total == out.sum()
        ups = np.count_nonzero(out == 6)
        assert ups + np.count_nonzero(out == 5) == trials
        if share == 0.0:
            assert ups == 0
        else:
            spread = math.sqrt(trials * share * (1 - share))
            stat.accept(math.erfc(abs(ups - trials * share) / spread / math.sqrt(2)))
            stat.reject(math.erfc(abs(ups - trials * (share + 0.009)) / spread / math.sqrt(2)))


def test_points_are_placed_box_by_box() -> None:
    lower, upper = np.array([[0.0, 1.0], [5.0, 5.0], [-1.0, 2.0]]), np.array([[1.0, 3.0], [6.0, 9.0], [0.0, 2.5]])
    counts = np.array([3, 0, 4])
    uniforms = np.random.default_rng(1).random((7, 2))
    out = uniforms.copy()
    cell_codes.place_points(lower, upper, counts, out)
    box = np.repeat([0, 1, 2], counts)
    assert np.array_equal(out, lower[box] + (upper - lower)[box] * uniforms)
    # Where the border is the nearest float, and in a flat box.
    low, high, last = np.array([[1.0, 1.0]]), np.array([[1.0 + 3.0 * 2.0**-52, 1.0]]), np.full((1, 2), 1.0 - 2.0**-53)
    cell_codes.place_points(low, high, np.array([1]), last)
    assert last.tolist() == [[1.0 + 2.0**-51, 1.0]]


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


def test_equal_points_and_huge_coordinates() -> None:
    same = np.full((1000, 2), 3.5)
    assert PointIndex(same).count([[3.5, 3.5], [3.6, 0.0]], [[3.5, 3.5], [9.0, 9.0]]).tolist() == [1000, 0]
    far = np.array([[-1e308], [1e308], [0.0]] * 20)
    assert PointIndex(far).count([[-np.inf], [0.0], [1e307]], [[np.inf], [1e307], [1e308]]).tolist() == [60, 20, 20]
