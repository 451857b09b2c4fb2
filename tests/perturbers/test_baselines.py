"""Perturbers: noise of trees and values, nodes, their variances, and windows of trees."""

from __future__ import annotations

import numpy as np
import pytest

import fastdp
import fastdp_lab
from fastdp.errors import DataError, ParameterError
from fastdp.perturbers import Flat, Hierarchy, tree_for_window
from fastdp.smoothers import Recent
from fastdp.thresholds import Fixed
from fastdp_kernels.streams import ranges
from tests.noise_values import chain_draws, prefix_noise, tree_key
from tests.oracles import nodes as oracle
from tests.oracles import tops
from tests.shared import move, release_many


def compose(perturber, **options) -> fastdp.StreamPublisher:
    settings = {"threshold": Fixed(20.0), "epsilon": 0.7, "bound": 50, "max_range": 64, "seed": 5, **options}
    return fastdp.StreamPublisher(perturber=perturber, **settings)


def stream(n: int) -> np.ndarray:
    return np.floor(np.random.default_rng(91).gamma(2.0, 6.0, n))


@pytest.mark.parametrize("fan_out", [2, 3, 16])
@pytest.mark.parametrize("max_range", [1, 9, 64, 100])
def test_ranges_are_tiled_by_the_fewest_nodes(fan_out: int, max_range: int) -> None:
    plan = Hierarchy(fan_out, consistent=False, prune=0).plan(1.0, max_range)
    ones = np.ones((3, plan.nodes))
    total = 3 * plan.tree_blocks
    starts, stops = (x.ravel() for x in np.meshgrid(np.arange(total + 1), np.arange(total + 1)))
    keep = starts <= stops
    starts, stops = starts[keep], stops[keep]
    out = np.empty(starts.size)
    ranges.sum_nodes(ones, plan.leaves, fan_out, plan.levels, plan.tree_blocks, starts, stops, out)
    sample = np.random.default_rng(1).permutation(starts.size)[:800]
    for i in sample.tolist():
        expected, begin = 0, int(starts[i])
        while begin < stops[i]:
            tree = begin // plan.tree_blocks
            end = min(int(stops[i]), (tree + 1) * plan.tree_blocks)
            offset = tree * plan.tree_blocks
            expected += oracle.tile_counts(begin - offset, end - offset, plan.leaves, fan_out, plan.levels)
            begin = end
        assert out[i] == expected


@pytest.mark.parametrize("fan_out", [2, 4])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_released_nodes_equal_the_oracle(fan_out: int, n: int) -> None:
    perturber = Hierarchy(fan_out, consistent=False, prune=0)
    publisher = compose(perturber)
    values = stream(n)
    release = publisher.release(values)
    plan, steps = publisher.plan, round(1 / publisher.resolution)
    theta_steps = 20 * steps
    rounded = (np.minimum(values, 20.0) * steps).astype(np.int64)
    for tree in range(-(-n // plan.tree_blocks)):
        noise = perturber.node_noise(plan, theta_steps, 0.7, tree_key(publisher._key, theta_steps), tree)
        part = rounded[tree * plan.tree_blocks : (tree + 1) * plan.tree_blocks]
        expected = np.array(oracle.noisy_sums(part.tolist(), noise, plan.leaves, fan_out, plan.levels))
        ours = release.nodes.sums[tree]
        complete = ~np.isnan(ours)
        assert np.array_equal(ours[complete], expected[complete] * publisher.resolution)
        # Nodes are complete just where all their values have come.
        start = 0
        for level, width in enumerate(plan.widths):
            assert complete[start : start + width].sum() == part.size // fan_out**level
            start += width
        leaves = release.values[tree * plan.tree_blocks : (tree + 1) * plan.tree_blocks]
        assert np.array_equal(ours[: part.size], leaves)


@pytest.mark.parametrize(("theta", "resolution"), [(20.0, None), (3.0, 1.0), (20.0, 2.0**-40)])
def test_flat_equals_the_oracle(theta: float, resolution: float | None) -> None:
    """A theta of 3 steps, and noise of 2^45 steps, whose draws are often doubtful; any chunking."""
    values, parts = stream(300), np.cumsum([1, 0, 120, 7])
    publisher = compose(Flat(), threshold=Fixed(theta), resolution=resolution)
    step = publisher.resolution
    sums = np.rint(np.minimum(values, theta) / step).astype(np.int64)
    noise = chain_draws(prefix_noise(publisher._key, round(theta / step), 0.7), sums)
    out = np.concatenate([publisher.publish(part) for part in np.split(values, parts)])
    assert np.array_equal(out, (sums + noise) * step)
    rows = {"threshold": Fixed(theta), "perturber": Flat(), "smoother": None, "max_range": 64}
    rows |= {"resolution": resolution, "key": publisher._key.again()}
    many = release_many([values[:9], values], 0.7, 50, **rows)
    own = prefix_noise(publisher._key.of_stream(1), round(theta / step), 0.7)
    assert np.array_equal(many[1].values, (sums + chain_draws(own, sums)) * step)


def test_nodes_and_values_see_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's array may change while it is released; the same noise must not meet both versions."""
    from fastdp.streams.publisher import StreamPublisher

    values = stream(64)
    original = StreamPublisher._take

    def publish_then_change(self, *arguments):
        out = original(self, *arguments)
        values[3] = 0.0 if values[3] else 9.0
        return out

    monkeypatch.setattr(StreamPublisher, "_take", publish_then_change)
    release = compose(Hierarchy(2, consistent=False, prune=0)).release(values)
    assert np.array_equal(release.nodes.sums[0, :64], release.values)


def test_zeros() -> None:
    zeros = fastdp_lab.baselines.Zeros(holdout=3)
    assert zeros.publish([1, 2]).size == 0
    assert zeros.publish([3, 4, 5]).tolist() == [0.0, 0.0]
    release = fastdp_lab.baselines.Zeros(2).release([1, 2, 3])
    assert (release.values.tolist(), release.offset, release.guarantee.epsilon) == ([0.0], 2, 0.0)
    assert release.sum(0, 1).tolist() == [0.0]
    with pytest.raises(DataError, match="hold-out"):
        fastdp_lab.baselines.Zeros(3).release([1, 2, 3])
    with pytest.raises(ParameterError, match="holdout"):
        fastdp_lab.baselines.Zeros(-1)


def test_combinations_that_make_no_sense() -> None:
    for options, words in (({}, r"prune = None.*consistency"), ({"prune": 1}, r"prune = 1.*consistency")):
        with pytest.raises(ParameterError, match=words):
            Hierarchy(2, consistent=False, **options)
    with pytest.raises(ParameterError, match=r"smoother = Recent\(\)"):
        compose(Hierarchy(2, consistent=False, prune=0), smoother=Recent())


def test_a_step_leaves_the_chain_of_the_state_before() -> None:
    """The state goes on from there if the step cannot be recorded."""
    publisher = compose(Flat())
    chain = publisher.state.rows["chain"].copy()
    publisher.machine.step(publisher.state, publisher.machine.read(stream(30)), publisher._key)
    assert chain.size
    assert np.array_equal(publisher.state.rows["chain"], chain)


@pytest.mark.parametrize("perturber", [Flat(), Hierarchy(2, prune=0), Hierarchy(2, prune=1)])
def test_values_are_clipped_to_a_bound_below_theta(perturber) -> None:
    """A noisy quantile may choose such a theta."""

    def published(value: float) -> np.ndarray:
        publisher = compose(perturber, smoother=Recent() if getattr(perturber, "prune", 0) else None, bound=20)
        theta_steps = int(publisher.state.rows["theta_steps"][0])
        move(publisher, theta_steps=theta_steps + theta_steps // 2)
        return publisher.publish(np.full(40, value))

    assert np.array_equal(published(20.0), published(25.0))


def closed_form(max_range: int, fan_out: int, height: int) -> float:
    starts, stops = fastdp_lab.queries.random_ranges(max_range, 20_000, seed=61)
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


def cut_error(block: int, max_range: int) -> float:
    """Largest mean square over all ranges, in theta^2, of what steady values err where blocks are cut, without noise.

    Published values are linear in the stream and theta / 2, so an error is w x - (sum of w) theta / 2.
    """
    published = np.zeros((max_range, max_range))
    for i in range(max_range):
        first = i // block * block
        if first:
            published[i, first - block : first] = 1.0 / block
        if i == first + block - 1:
            published[i] *= 1.0 - block
            published[i, first : i + 1] = 1.0
    wrong = np.cumsum(published - np.eye(max_range), axis=0)
    wrong = np.concatenate([np.zeros((1, max_range)), wrong])
    starts, stops = np.array(all_ranges(max_range)).T
    weights = wrong[stops] - wrong[starts]
    # A variance v and a mean mu in [0, theta] have v + (mu - theta / 2)^2 <= theta^2 / 4.
    spread, level = (weights**2).sum(axis=1).mean(), (weights.sum(axis=1) ** 2).mean()
    return float(max(spread, level)) / 4.0


@pytest.mark.parametrize(("fan_out", "max_range"), [(2, 64), (2, 37), (3, 81), (4, 100), (16, 120)])
def test_levels_are_pruned_by_the_error_that_is_proven(fan_out: int, max_range: int) -> None:
    plans = [Hierarchy(fan_out, prune=s).plan(1.0, max_range) for s in range(9) if fan_out**s < max_range]
    proven = [max(5 * plan.block / 12, plan.block**3 / (6 * max_range)) if plan.block > 1 else 0.0 for plan in plans]
    for plan, bound in zip(plans, proven, strict=True):
        assert cut_error(plan.block, max_range) <= bound
    for epsilon in (0.05, 0.2, 1.0, 3.0, 20.0):
        noise = [Hierarchy(fan_out).noise_constant(plan, max_range) / epsilon**2 for plan in plans]
        errors = np.add(noise, proven)
        assert Hierarchy(fan_out).plan(epsilon, max_range).pruned == np.argmin(errors)


def test_pruned_levels_at_the_papers_size() -> None:
    """The published code prunes 3 up to 0.05, and 2 at 0.1, where 3 err less on most streams."""
    chosen = [Hierarchy().plan(epsilon, 2**20).pruned for epsilon in (0.01, 0.05, 0.1, 0.2, 1.0, 2.0)]
    assert chosen == [3, 3, 3, 2, 2, 1]


def covariance(perturber: Hierarchy, max_range: int) -> np.ndarray:
    """Of a tree's leaves, by least squares on all nodes: one variance of a node's noise each, tops not tied."""
    plan = perturber.plan(1.0, max_range)
    rows = []
    for level in range(plan.levels):
        width = plan.fan_out**level
        rows += [np.repeat(np.eye(plan.leaves // width)[i], width) for i in range(plan.leaves // width)]
    nodes = np.array(rows)
    return 2.0 * plan.levels**2 * np.linalg.inv(nodes.T @ nodes)


@pytest.mark.parametrize("window", [3, 16, 40])
def test_the_variance_is_that_of_least_squares(window: int) -> None:
    perturber, size, variance = tree_for_window(window)
    one = covariance(perturber, size)[:size, :size]
    found = []
    for start in range(size):
        parts, left = [], window
        begin = start
        while left:
            end = min(size, begin + left)
            parts.append(one[begin:end, begin:end].sum())
            left, begin = left - (end - begin), 0
        found.append(sum(parts))
    assert variance == pytest.approx(np.mean(found), rel=1e-9)


@pytest.mark.parametrize(("window", "target"), [(256, 192.0), (4096, 450.0), (65_536, 968.0)])
def test_windows_have_less_noise_than_asked_for(window: int, target: float) -> None:
    assert tree_for_window(window).variance < target


@pytest.mark.parametrize("window", [0, 2**21, 2.5])
def test_what_a_window_may_be(window: object) -> None:
    with pytest.raises(ParameterError, match="window"):
        tree_for_window(window)  # type: ignore[arg-type]
