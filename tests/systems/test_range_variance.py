"""Variance of random ranges of the consistent hierarchy (design/tops.md: 1,196 / epsilon^2 at r = 2^20, s = 0)."""

from __future__ import annotations

import numpy as np
import pytest

import fastdp
from fastdp.perturbers import Hierarchy
from fastdp.randomness.key import Key
from tests.oracles import tops

STEPS = 2**20


def closed_form(max_range: int, fan_out: int, height: int) -> float:
    starts, stops = fastdp.workloads.random_ranges(max_range, 20_000, seed=61)
    variances = [
        tops.range_variance(a, b, max_range, fan_out, height)
        for a, b in zip(starts.tolist(), stops.tolist(), strict=True)
    ]
    return 2.0 * height**2 * float(np.mean(variances))


def sampled(max_range: int, fan_out: int, trees: int) -> tuple[float, float]:
    """Mean square of random ranges of the noise at theta = 1, epsilon = 1, and its standard error over trees."""
    perturber = Hierarchy(fan_out=fan_out, prune=0)
    plan = perturber.plan(1.0, max_range)
    key, prefix, means = Key.from_seed(62), np.zeros(max_range + 1), np.empty(trees)
    for tree in range(trees):
        np.cumsum(perturber.leaf_noise(plan, STEPS, 1.0, key, tree)[:max_range] / STEPS, out=prefix[1:])
        starts, stops = fastdp.workloads.random_ranges(max_range, 2000, seed=tree)
        means[tree] = np.mean((prefix[stops] - prefix[starts]) ** 2)
    return float(means.mean()), float(means.std() / np.sqrt(trees))


def test_closed_form_at_the_papers_size() -> None:
    assert closed_form(2**20, 16, 5) == pytest.approx(1196, rel=0.01)


def test_closed_form_is_the_dense_one() -> None:
    dense = tops.leaf_covariance(81, 3, 4)
    for start, stop in ((0, 81), (0, 1), (26, 55), (5, 6), (13, 80)):
        assert tops.range_variance(start, stop, 81, 3, 4) == pytest.approx(dense[start:stop, start:stop].sum())


@pytest.mark.parametrize(("max_range", "fan_out", "height"), [(256, 16, 2), (256, 2, 8), (729, 3, 6)])
def test_released_noise_has_that_variance(max_range: int, fan_out: int, height: int) -> None:
    mean, error = sampled(max_range, fan_out, 3000)
    exact = closed_form(max_range, fan_out, height)
    assert abs(mean - exact) < 5 * error + 0.01 * exact
    assert error < 0.05 * exact


@pytest.mark.slow
def test_within_two_percent_at_the_papers_size() -> None:
    mean, error = sampled(2**20, 16, 4000)
    assert error < 0.01 * 1196
    assert mean == pytest.approx(1196, rel=0.02)
