"""Variance of random ranges of the consistent hierarchy (design/tops.md: 1,196 / epsilon^2 at r = 2^20, s = 0)."""

from __future__ import annotations

import numpy as np
import pytest

import fastdp_lab
from fastdp.perturbers import Flat, Hierarchy
from tests.oracles import tops


def closed_form(max_range: int, fan_out: int, height: int) -> float:
    starts, stops = fastdp_lab.workloads.random_ranges(max_range, 20_000, seed=61)
    variances = [
        tops.range_variance(a, b, max_range, fan_out, height)
        for a, b in zip(starts.tolist(), stops.tolist(), strict=True)
    ]
    return 2.0 * height**2 * float(np.mean(variances))


def test_closed_form_at_the_papers_size() -> None:
    assert closed_form(2**20, 16, 5) == pytest.approx(1196, rel=0.01)


def test_closed_form_is_the_dense_one() -> None:
    dense = tops.leaf_covariance(81, 3, 4)
    for start, stop in ((0, 81), (0, 1), (26, 55), (5, 6), (13, 80)):
        assert tops.range_variance(start, stop, 81, 3, 4) == pytest.approx(dense[start:stop, start:stop].sum())


def all_ranges(max_range: int) -> list[tuple[int, int]]:
    return [(start, stop) for start in range(max_range) for stop in range(start + 1, max_range + 1)]


@pytest.mark.parametrize(
    ("fan_out", "prune", "max_range"),
    [(2, 0, 16), (3, 1, 27), (3, 0, 20), (4, 1, 100), (2, 2, 37), (16, 1, 150), (5, 0, 1), (4, 2, 17)],
)
def test_noise_constant_is_the_mean_over_all_ranges(fan_out: int, prune: int, max_range: int) -> None:
    """The product's sums over nodes against the oracle's closed form of each range; max_range need be no power."""
    perturber = Hierarchy(fan_out, prune=prune)
    plan = perturber.plan(1.0, max_range)
    variances = [
        tops.range_variance(a // plan.block, b // plan.block, plan.leaves, fan_out, plan.levels)
        if b // plan.block > a // plan.block
        else 0.0
        for a, b in all_ranges(max_range)
    ]
    exact = 2.0 * plan.levels**2 * float(np.mean(variances))
    assert perturber.noise_constant(plan, max_range) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(("fan_out", "max_range"), [(2, 16), (2, 37), (3, 20), (16, 100)])
def test_noise_constant_of_tilings_and_of_single_values(fan_out: int, max_range: int) -> None:
    perturber = Hierarchy(fan_out, consistent=False, prune=0)
    plan = perturber.plan(1.0, max_range)

    def fewest(start: int, stop: int) -> int:
        """The largest node that begins at ``start`` and fits, then the rest."""
        if start == stop:
            return 0
        width = max(fan_out**j for j in range(plan.levels) if start % fan_out**j == 0 and start + fan_out**j <= stop)
        return 1 + fewest(start + width, stop)

    nodes = np.mean([fewest(a, b) for a, b in all_ranges(max_range)])
    assert perturber.noise_constant(plan, max_range) == pytest.approx(2 * plan.levels**2 * nodes, rel=1e-12)
    lengths = np.mean([b - a for a, b in all_ranges(max_range)])
    assert Flat().noise_constant(Flat().plan(1.0, max_range), max_range) == pytest.approx(2.0 * lengths, rel=1e-12)


def test_noise_constants_at_the_papers_size() -> None:
    """Design: 1196, 605, 256, 76, 10 by levels pruned (from simulation, rounded), and 14,400 and 3,185 unpruned."""
    constants = [
        Hierarchy(16, prune=s).noise_constant(Hierarchy(16, prune=s).plan(1.0, 2**20), 2**20) for s in range(5)
    ]
    assert constants == pytest.approx([1196, 605, 256, 76, 10], rel=0.07)
    for fan_out, paper in ((2, 14_400), (16, 3185)):
        tiled = Hierarchy(fan_out, consistent=False, prune=0)
        assert tiled.noise_constant(tiled.plan(1.0, 2**20), 2**20) == pytest.approx(paper, rel=1e-3)
