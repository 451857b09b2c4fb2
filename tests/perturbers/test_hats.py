"""Hat functions in a hierarchy: sensitivity, exactness, least squares, noise, and the publishers that use them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fastdp.errors import ParameterError, StateError
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.perturbers import Hierarchy
from fastdp.perturbers import hat_functions as hats
from fastdp.smoothers import Mean
from fastdp.streams.publisher import StreamPublisher
from fastdp.thresholds import Fixed, NoisyMax
from fastdp_kernels.noise import hats as kernels
from tests.oracles import hats as oracle

SHAPES = [(2, 16), (2, 100), (3, 81), (4, 60), (5, 20), (16, 20), (16, 300)]


def made(fan_out: int, max_range: int, **options: Any) -> tuple[Hierarchy, hats.HatsShape]:
    perturber = Hierarchy(fan_out, basis="hats", **{"prune": 0, **options})
    plan = perturber.plan(1.0, max_range)
    assert isinstance(plan, hats.HatsShape)
    return perturber, plan


def noise(plan: hats.HatsShape, seed: int, scale: float = 1e6) -> np.ndarray:
    """Of all sums, in whole numbers."""
    generator = np.random.default_rng(seed)
    scales = np.repeat([scale * plan.fan_out**level for level in range(plan.levels)], plan.widths)
    return np.rint(generator.laplace(0.0, scales)).astype(np.int64)


@pytest.mark.parametrize(("fan_out", "max_range"), SHAPES)
def test_a_value_moves_each_level_by_one_in_all(fan_out: int, max_range: int) -> None:
    """Whole weights, two of them at most, that sum to b^j: also as the kernel sums them, level by level."""
    _, plan = made(fan_out, max_range)
    below: list[np.ndarray] = list(np.eye(plan.leaves, dtype=np.int64))
    for level in range(plan.levels):
        rows = np.array(oracle.weights(plan.leaves, fan_out, level))
        assert rows.shape == (plan.widths[level], plan.leaves)
        assert (rows.sum(axis=0) == fan_out**level).all()
        assert ((rows > 0).sum(axis=0) <= 2).all()
        if level:
            sums = [np.empty(plan.widths[level], np.int64) for _ in below]
            for leaf, out in zip(below, sums, strict=True):
                kernels.restrict_whole(leaf, fan_out, out)
            below = sums
            assert (rows == np.array(below).T).all()


@pytest.mark.parametrize(("fan_out", "max_range"), SHAPES)
def test_what_is_released_is_a_function_of_the_noisy_sums(fan_out: int, max_range: int) -> None:
    """One value more, and noise that hides it in each sum: released leaves are the same, to the last bit."""
    _, plan = made(fan_out, max_range)
    moves = np.concatenate([oracle.weights(plan.leaves, fan_out, level) for level in range(plan.levels)])
    # The last scale overflows sums of knots: whole numbers modulo 2^64 are as good.
    for seed, scale in enumerate((0.5, 1e9, 2.0**50)):
        drawn = noise(plan, seed, scale)
        plain = hats.make_hats_consistent(drawn.copy(), plan)
        for leaf in {0, 1, fan_out - 1, plan.leaves // 2, plan.leaves - 1}:
            for step in (1, -7, 2**30):
                hidden = hats.make_hats_consistent(drawn - step * moves[:, leaf], plan)
                hidden[leaf] += step
                assert (hidden == plain).all()


@pytest.mark.parametrize(("fan_out", "max_range"), SHAPES)
def test_consistency_is_least_squares(fan_out: int, max_range: int) -> None:
    _, plan = made(fan_out, max_range)
    drawn = noise(plan, 3)
    expected = oracle.least_squares(drawn.tolist(), plan.leaves, fan_out, plan.levels)
    found = hats.make_hats_consistent(drawn.copy(), plan)
    spread = math.sqrt(2.0) * 1e6
    # Covariances of knots that are not neighbours are left out: a hundredth of the noise at b = 2, nothing at 16.
    assert np.abs(found - expected).max() < (0.02 if fan_out == 2 else 1e-3 if fan_out < 16 else 1e-5) * spread
    sums = np.cumsum(found) - np.cumsum(expected)
    assert np.abs(sums).max() < (0.05 if fan_out == 2 else 0.01) * spread


@pytest.mark.parametrize(("fan_out", "max_range"), SHAPES)
def test_variances_of_ranges(fan_out: int, max_range: int) -> None:
    """Omitted covariances count once here (6 % at b = 2), and squared in the noise itself; K is the mean."""
    near = 0.06 if fan_out == 2 else 0.004 if fan_out < 5 else 2e-4
    perturber, plan = made(fan_out, max_range)
    best = oracle.covariance(plan.leaves, fan_out, plan.levels)
    for start, stop in ((0, plan.leaves), (0, 1), (plan.leaves // 3, plan.leaves // 2 + 1), (5, 6)):
        found = hats.hats_variance(plan, start, stop)
        assert found == pytest.approx(best[start:stop, start:stop].sum(), rel=near)
    prefix = np.zeros((plan.leaves + 1, plan.leaves + 1))
    prefix[1:, 1:] = best.cumsum(axis=0).cumsum(axis=1)
    ends = np.arange(max_range + 1)
    inside = np.diag(prefix)[None, :] + np.diag(prefix)[:, None] - 2 * prefix
    mean = np.mean([inside[start, stop] for start in ends for stop in ends[start + 1 :]])
    assert perturber.noise_constant(plan, max_range) == pytest.approx(2 * plan.levels**2 * mean, rel=0.15)


def test_the_constant_at_the_papers_size() -> None:
    """935 for ranges (boxes: 1,196) and 730 for prefixes, by 32 ranges each."""
    perturber, plan = made(16, 2**20)
    assert plan.levels == 5
    assert perturber.noise_constant(plan, 2**20) == pytest.approx(935, rel=0.02)


def test_noise_is_that_of_the_key_tree_and_place() -> None:
    """Scale b^j theta levels / epsilon on level j, each level with words of its own."""
    perturber, plan = made(4, 60)
    key, drawn = Key.from_seed(1), []
    for level, width in enumerate(plan.widths):
        distribution = sampler.laplace_distribution(Fraction(4**level * 9 * plan.levels) / Fraction(0.3))
        part = np.empty(width, np.int64)
        sampler.fill(part, distribution, key.again(), StreamId(Purpose.TREE, level + 1, 7))
        drawn.append(part)
    nodes = perturber.node_noise(plan, 9, 0.3, key.again(), 7)
    assert (nodes == np.concatenate(drawn)).all()
    assert (perturber.leaf_noise(plan, 9, 0.3, key, 7) == hats.make_hats_consistent(nodes, plan)).all()


def publisher(**options: Any) -> StreamPublisher:
    hats = Hierarchy(4, prune=1, basis="hats")
    given = {"perturber": hats, "holdout": 0, "max_range": 64, "threshold": Fixed(8.0), "seed": 3}
    return StreamPublisher(**{"epsilon": 1.0, "bound": 10.0, "smoother": Mean(), **given, **options})


def test_its_guarantee_and_what_is_refused() -> None:
    guarantee = publisher().guarantee
    assert (guarantee.epsilon, guarantee.arithmetic) == (1.0, "exact")
    assert any("whole weights" in step for step in guarantee.derivation)
    with pytest.raises(ParameterError, match="expected consistent = True"):
        Hierarchy(consistent=False, prune=0, basis="hats")
    with pytest.raises(StateError):
        publisher().release(np.ones(100)).std_error(0, 10)
    with pytest.raises(ParameterError, match=r"^noise = 'gaussian': expected 'laplace'"):
        Hierarchy(basis="hats", noise="gaussian")


@pytest.mark.parametrize(("fan_out", "epsilon"), [(2, 0.01), (4, 1e-4)])
def test_the_default_grid_holds_the_whole_sums_of_long_trees(fan_out: int, epsilon: float) -> None:
    composition = publisher(
        perturber=Hierarchy(fan_out, prune=0, basis="hats"), threshold=Fixed(8.0), epsilon=epsilon, max_range=2**17
    ).composition
    hats, plan, key = composition.perturber, composition.plan, Key.from_seed(1)
    theta = composition.grid.snap(8.0)
    # The same words: noise in proportion to theta, unless the differences of sums do not fit.
    full, small = (hats.leaf_noise(plan, steps, epsilon, key.again(), 0) / steps for steps in (theta, 2**10))
    assert np.abs(np.cumsum(full) - np.cumsum(small)).max() < 1e-3 * np.abs(np.cumsum(small)).max()
    # A smaller threshold that is public may have a finer grid; one that is chosen may be as large as the bound.
    finer = publisher(perturber=hats, threshold=Fixed(0.001), epsilon=epsilon, max_range=2**17)
    chosen = publisher(perturber=hats, threshold=NoisyMax(), holdout=10, epsilon=epsilon, max_range=2**17)
    assert finer.resolution < composition.resolution <= chosen.resolution


def test_a_grid_too_fine_for_sums_of_hats_is_refused_before_there_are_values() -> None:
    with pytest.raises(ParameterError, match=r"^resolution = .*noise of hats may reach .* expected a coarser"):
        publisher(perturber=Hierarchy(2, prune=0, basis="hats"), max_range=2**17, resolution=2.0**-30, epsilon=0.1)


def test_a_single_level_has_no_hats() -> None:
    assert made(16, 16)[1].reach == 0
    perturber, plan = made(16, 16)
    boxes = Hierarchy(16, prune=0)
    key = Key.from_seed(4)
    expected = boxes.leaf_noise(boxes.plan(1.0, 16), 5, 1.0, key.again(), 0)
    assert (perturber.leaf_noise(plan, 5, 1.0, key, 0) == expected).all()
    assert hats.hats_variance(plan, 2, 9) == 7.0
