"""Flat, Hierarchy and Blocks with Gaussian noise: distributions, budgets, groups, and the noise of each sum."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import fastdp
from fastdp.errors import ParameterError
from fastdp.guarantee import zcdp_delta
from fastdp.noise import chain_keys, gaussian
from fastdp.noise.gaussian import gaussian_distribution
from fastdp.noise.key import Key
from fastdp.noise.sampler import group_share, l2_square, noise_distribution, sigma_of_loss
from fastdp.noise.words import Purpose, StreamId
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.smoothers import Recent
from fastdp.streams.array_rule import array_rule
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree, SmoothQuantile
from tests.oracles import prefix as oracle

SECRET = Key.from_seed(1)
PARTS = {
    "flat": Flat(noise="gaussian"),
    "hierarchy": Hierarchy(2, prune=0, noise="gaussian"),
    "pruned": Hierarchy(2, prune=1, noise="gaussian"),
    "nodes": Hierarchy(2, prune=0, consistent=False, noise="gaussian"),
    "blocks": Blocks(noise="gaussian"),
}


def publisher(part, **options) -> fastdp.StreamPublisher:
    smoother = Recent() if isinstance(part, Hierarchy) and part.prune == 1 else None
    settings = {"threshold": 8.0, "epsilon": 1.0, "delta": 1e-6, "bound": 8.0, "max_range": 16, "seed": 3, **options}
    return fastdp.StreamPublisher(perturber=part, smoother=smoother, **settings)


@pytest.mark.parametrize(
    ("square", "epsilon"), [(1, 0.3), (1, 0.35), (7, 1.0), (3 * 2**60, 0.017), (2**64 - 1, 11.0)]
)
def test_sigma_is_never_too_small(square: int, epsilon: float) -> None:
    sigma = sigma_of_loss(square, epsilon)
    assert sigma**2 >= Fraction(square) / Fraction(epsilon) ** 2
    assert float(sigma) == pytest.approx(math.sqrt(square) / epsilon, rel=1e-15)
    share = group_share(epsilon, square)
    assert square * Fraction(share) ** 2 <= Fraction(epsilon) ** 2


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("group", [1, 2, 5, 13])
def test_consecutive_values_move_at_most_what_is_claimed(part, group: int) -> None:
    """Counts in nodes, for every alignment; blocks of one's own choice may hold all of them."""
    plan = part.plan(0.1, 16)
    widths = [plan.block * plan.fan_out**level for level in range(plan.levels)]
    claimed = part.group_square(plan, group) * plan.levels
    most = group**2
    if not isinstance(part, Blocks):
        most = max(
            sum((np.bincount(np.arange(at, at + group) // width) ** 2).sum() for width in widths) for at in range(16)
        )
    assert most <= claimed <= 2 * most
    if group == 1:
        assert claimed == plan.levels


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("group", [1, 7])
def test_the_guarantee_is_what_the_laws_give(part, group: int) -> None:
    made = publisher(part, contributions=group)
    c = made.composition
    promised = made.guarantee
    assert (promised.epsilon, promised.delta, promised.arithmetic) == (1.0, 1e-6, "exact")
    steps, levels = c.grid.snap(8.0), c.plan.levels
    sigma = noise_distribution("gaussian", steps, levels, c.publish_epsilon).sigma
    rho = float(part.group_square(c.plan, group) * levels * steps**2 / (2 * Fraction(sigma) ** 2))
    assert rho <= promised.rho * (1.0 + 1e-12)
    assert rho == pytest.approx(promised.rho, rel=1e-6)
    if isinstance(part, Blocks):
        assert zcdp_delta(promised.rho, 1.0) <= 1e-6
    else:
        # Normal noise of the same loss has this profile (Balle and Wang 2018), and so much is left for discreteness.
        mu = math.sqrt(2.0 * promised.rho)
        normal = stats.norm.cdf(mu / 2 - 1 / mu) - math.e * stats.norm.cdf(-mu / 2 - 1 / mu)
        assert normal <= 1e-6
        assert normal == pytest.approx(1e-6, rel=1e-3)


@pytest.mark.parametrize("rule", [NoisyMax(), ScaleFree()])
def test_thresholds_and_noise_share_one_rho(rule) -> None:
    made = publisher(Hierarchy(2, prune=0, noise="gaussian"), threshold=rule, holdout=4000, contributions=3)
    promised = made.guarantee
    assert zcdp_delta(promised.rho, 1.0) <= 1e-6
    c = made.composition
    # j of 3 values choose the threshold, the others enter the sums.
    for j in range(4):
        square = c.perturber.group_square(c.plan, 3 - j) if j < 3 else 0
        rho = (j * c.task.epsilon) ** 2 / 2 + float(square) * c.publish_epsilon**2 / 2
        assert rho <= promised.rho * (1.0 + 1e-12)


def test_events_without_a_bound() -> None:
    counts = np.random.default_rng(6).poisson(20.0, 2000).astype(float)
    release = fastdp.release(counts, 1.0, sensitivity=1.0, delta=1e-6, seed=1, contributions=5)
    assert (release.guarantee.unit, release.guarantee.delta) == ("any 5 events", 1e-6)
    assert zcdp_delta(release.guarantee.rho, 1.0) <= 1e-6
    low, high = release.interval([0], [2000], 0.9999)
    assert low[0] < counts.sum() < high[0]


def test_squared_norm_of_one_units_rows() -> None:
    for k, j in itertools.product((1, 5, 12), (1, 2, 5)):
        each = [counts for counts in itertools.product(range(j + 1), repeat=5) if sum(counts) <= k]
        best = max(sum(count * count for count in counts) for counts in each)
        assert l2_square(k, j) == best if k <= 5 * j else l2_square(k, j) >= best


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, r"delta = 0\.0: expected above 0"),
        ({"threshold": SmoothQuantile(p=0.5, delta=1e-3), "holdout": 100}, "threshold = .*: expected one with pure"),
        ({"resolution": 2.0**-45, "epsilon": 0.01}, "sigma = |noise of scale"),
    ],
)
def test_parameters(options: dict, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        publisher(Flat(noise="gaussian"), **options)


@pytest.mark.parametrize("scale", [Fraction(1, 3), 3, 2**30])
def test_settled_draws_of_a_chain_equal_those_of_the_oracle(scale: Fraction) -> None:
    """Words by hand; a distribution that rejects often reaches into further outputs of the block function."""
    distribution, chain = gaussian_distribution(Fraction(scale)), np.arange(4, dtype=np.uint64)
    for index, total in enumerate(np.random.default_rng(1).integers(-(2**40), 2**40, 100).tolist()):

        def word(k: int, index: int = index, total: int = total) -> int:
            return oracle.outputs(chain.tobytes(), index, total, k // 4)[1][k % 4]

        assert chain_keys.resolve(distribution, SECRET, chain, index, total) == gaussian.resolve(distribution, word)


def test_trees_draw_from_the_words_of_their_levels() -> None:
    part = Hierarchy(2, prune=0, consistent=False, noise="gaussian")
    plan, key = part.plan(0.2, 16), Key.from_seed(4)
    nodes = part.node_noise(plan, 100, 0.2, key, 3)
    distribution, start = noise_distribution("gaussian", 100, plan.levels, 0.2), 0
    for level, width in enumerate(plan.widths):
        expected = np.empty(width, np.int64)
        gaussian.fill(expected, distribution, key.again(), StreamId(Purpose.TREE, level + 1, 3))
        np.testing.assert_array_equal(nodes[start : start + width], expected)
        start += width


@pytest.mark.parametrize("rule", [None, Fixed(2.0), NoisyMax()])
@pytest.mark.parametrize("group", [1, 2, 9])
@pytest.mark.parametrize(("epsilon", "delta"), [(3.3, 0.3), (0.0158, 0.4), (0.01, 0.01), (0.001, 1e-4), (1.0, 1e-6)])
def test_a_whole_stream_spends_what_it_claims(rule, group: int, epsilon: float, delta: float) -> None:
    """Also where delta alone would pay for a value's part of the loss."""
    key = Key.choose(1, None)
    made = array_rule(5000, epsilon, 8.0, threshold=rule, contributions=group, delta=delta, key=key)
    rho = group**2 * sum(made.loss_of(part) ** 2 for part in made.shares if part) / 2.0
    assert (1.0 - 1e-8) * made.guarantee.rho < rho <= made.guarantee.rho * (1.0 + 1e-12)
    assert zcdp_delta(made.guarantee.rho, epsilon) <= delta * (1.0 + 1e-9)


def test_the_distance_of_the_sampler_counts_for_each_value_of_a_unit() -> None:
    given = {"perturber": Flat(noise="gaussian"), "epsilon": 1.0, "delta": 1e-3, "bound": 100.0, "resolution": 1.0}
    one, five = (
        fastdp.StreamPublisher(threshold=100.0, max_range=64, contributions=w, seed=1, **given) for w in (1, 5)
    )
    assert five.machine.composition.distance > 4.9 * one.machine.composition.distance
