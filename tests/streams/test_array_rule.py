"""A finished array by one rule: its steps beside a slow oracle, exact losses, and one answer that agrees."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.noise.key import Key
from fastdp.streams.array_rule import STEPS, ArrayRule, array_rule, shares_of, shares_of_sums
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree
from fastdp_kernels.streams import array_rule as kernel
from tests.oracles import array_rule as oracle

SECRET = bytes(range(32))


def rule(size: int, epsilon: float = 1.0, bound: float = 100.0, *, seed: int = 1, **options: Any) -> ArrayRule:
    return array_rule(size, epsilon, bound, **{"key": Key.from_seed(seed), **options})


def waves(n: int) -> np.ndarray:
    t = np.arange(n) / n
    return 40.0 + 30.0 * np.sin(6.0 * np.pi * t) + np.random.default_rng(3).gamma(1.0, 2.0, n)


SHAPES = {
    "waves": waves,
    "zeros": lambda n: np.zeros(n),
    "95 % zeros": lambda n: np.where(np.arange(n) % 20, 0.0, 5.0 + np.arange(n) % 170),
    "bursts": lambda n: np.where(np.arange(n) % 1000 < 10, 300.0, 1.0),
    "one value": lambda n: np.where(np.arange(n) == 7, 900.0, 0.0),
    "constant": lambda n: np.full(n, 70.0),
}


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=60), st.integers(1, 9), st.integers(64, 3000))
def test_kernels_are_the_oracles(entries: list[int], block: int, theta: int) -> None:
    made, steps = rule(5000), np.array(entries, np.int64)
    levels = np.array([level for level in (2900, 2048, 2047, 900, 300, 128, 64) if level < 3000], np.int64)
    exponents = [int(level).bit_length() + 1022 for level in levels]
    first = np.searchsorted(-np.array(exponents), -np.arange(2048)).astype(np.int64)
    counts = np.zeros((kernel.TURNS, levels.size + 1), np.int64)
    kernel.count_levels(steps, np.append(levels, [-1, -1]), first, counts)
    assert np.cumsum(counts.sum(axis=0))[:-1].tolist() == oracle.above(steps, levels)
    assert made.above(steps[None] << 20)[0].tolist() == oracle.above(steps << 20, made.levels)
    whole, found = np.empty(steps.size, np.int32), np.empty(4, np.int64)
    kernel.rescale(steps, theta, STEPS, whole)
    assert whole.tolist() == [math.floor(Fraction(min(s, theta) * STEPS, theta) + Fraction(1, 2)) for s in entries]
    kernel.distances(whole, block, np.empty(-(-steps.size // block), np.int32), found)
    assert found.tolist() == [oracle.distance(whole, block << i) for i in range(4)]
    sums = np.empty(-(-steps.size // block), np.int64)
    kernel.sum_clipped(steps, theta, block, sums)
    assert sums.tolist() == [int(np.minimum(steps[i : i + block], theta).sum()) for i in range(0, steps.size, block)]


@pytest.mark.parametrize("size", [2, 3, 45, 400])
@pytest.mark.parametrize("noise", [0.01, 3.0])
def test_levels_are_the_oracles(size: int, noise: float) -> None:
    for seed in range(4):
        rng = np.random.default_rng([seed, size])
        z = np.cumsum(rng.normal(size=size)) * (seed % 2) + rng.normal(size=size) * noise**0.5
        np.testing.assert_allclose(kernel.smooth(z, noise), oracle.smooth(z, noise), rtol=1e-6, atol=1e-9)


def test_totals_and_tails_are_the_oracles() -> None:
    grid, p = np.empty(kernel.POINTS + 1), np.empty(kernel.POINTS + 1)
    for missing, clipped, theta in itertools.product((-20.0, 0.5, 80.0), (-3.0, 50.0), (0.1, 2.0)):
        given = missing, 7.0, clipped, theta, 4000.0, 30.0
        assert kernel.tail(*given, grid, p) == pytest.approx(oracle.tail(*given), rel=1e-9)
    for total in (-40.0, -1.0, 0.0, 3.0, 35.0, 300.0):
        made = kernel.shrunk(total, 9.0, 500, 2.0)
        assert made == pytest.approx(oracle.shrunk(total, 9.0, 500, 2.0), rel=1e-9)


# Privacy: exact losses on small domains.


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_theta_loses_epsilon_at_most(epsilon: float) -> None:
    """All neighbours of all counts of three levels: a value moves some neighbouring counts by 1, up or down."""
    needed, worst = oracle.limits(epsilon, 3), 0.0
    for counts in itertools.combinations_with_replacement(range(0, 24, 3), 3):
        before = oracle.stops(list(counts), needed, epsilon)
        for first, last in itertools.combinations(range(4), 2):
            moved = [count + (first <= j < last) for j, count in enumerate(counts)]
            ratio = np.abs(np.log(oracle.stops(moved, needed, epsilon) / before))
            worst = max(worst, float(ratio.max()))
    assert 0.9 * epsilon < worst <= epsilon * (1 + 1e-9)


@pytest.mark.exhaustive
def test_distances_move_by_theta_at_most() -> None:
    most = 3
    for entries in itertools.product(range(most + 1), repeat=5):
        before = [oracle.distance(np.array(entries), block) for block in (1, 2, 3, 5)]
        for place, other in itertools.product(range(5), range(most + 1)):
            there = np.array(entries)
            there[place] = other
            moved = [oracle.distance(there, block) for block in (1, 2, 3, 5)]
            assert np.abs(np.subtract(moved, before)).max() <= most


def test_the_number_of_blocks_loses_epsilon_at_most() -> None:
    """Scores that move by up to theta, in any direction: noise of scale 2 theta / epsilon is what they need."""
    theta, epsilon, worst, narrow = 4, 1.0, 0.0, 0.0
    for scores in ((0, 0), (0, 7), (3, -9, 1)):
        for moves in itertools.product((-theta, 0, theta), repeat=len(scores)):
            moved = [score + move for score, move in zip(scores, moves, strict=True)]
            for scale, seen in ((2 * theta / epsilon, "wide"), (theta / epsilon, "narrow")):
                here, there = (oracle.winners(list(each), scale, 900) for each in (scores, moved))
                ratio = float(np.abs(np.log(there / here)).max())
                worst, narrow = (max(worst, ratio), narrow) if seen == "wide" else (worst, max(narrow, ratio))
    assert worst <= epsilon * (1 + 1e-9) < narrow


@pytest.mark.parametrize("size", [12, pytest.param(24, marks=pytest.mark.slow)])
def test_the_whole_loses_epsilon_at_most(size: int) -> None:
    """All steps together, exactly: of each theta and number of blocks, what these and the sums tell of one value."""
    made = rule(size, 1200.0 / size, 100.0)
    epsilon, levels, worst, quiet = made.unit, made.levels[:12], 0.0, 0.0
    of_theta, of_number = (made.loss_of(part) for part in made.shares[:2])
    runs = np.arange(size) < size // 3, np.arange(size) % 5 == 0, np.arange(size) < size
    for loud, (low, high) in itertools.product(runs, ((0.0, 100.0), (20.0, 45.0))):
        values = np.where(loud, high, low)
        for place, other in itertools.product((0, size // 3, size - 1), (0.0, 30.0, 100.0)):
            both = np.stack([values, np.where(np.arange(size) == place, other, values)])
            steps = np.round(both / made.grid.resolution).astype(np.int64)
            limits = oracle.limits(of_theta, levels.size)
            here, there = (np.log(oracle.stops(oracle.above(own, levels), limits, of_theta)) for own in steps)
            for stop, told in enumerate(np.abs(here - there).tolist()):
                theta = int(levels[stop - 1]) if 0 < stop < levels.size else made.top
                # In whole 1/64 of theta, rounded so that none moves further.
                scores = np.array([made.scores(own, theta) for own in steps])
                scores = np.stack(
                    [scores[0] // 1024, scores[0] // 1024 + np.fix(np.diff(scores, axis=0)[0] / 1024).astype(int)]
                )
                chances = [oracle.winners(each.tolist(), 128.0 / of_number, 2000) for each in scores]
                moved = np.abs(np.diff(np.minimum(steps, theta), axis=0)).max()
                for length, chosen in zip(
                    made.block_lengths, np.abs(np.diff(np.log(chances), axis=0))[0], strict=True
                ):
                    parts = shares_of_sums(made.shares.rest, theta, made.top, -(-size // length))
                    total = made.loss_of(parts.total) * np.abs(np.diff(steps.sum(axis=1)))[0] / made.top
                    sums = sum(made.loss_of(part) for part in parts[1:] if part) * moved / theta
                    worst = max(worst, told + chosen + total + sums)
                    # With half of the sums' noise it would not.
                    quiet = max(quiet, told + chosen + 2.0 * (total + sums))
    assert 0.85 * epsilon < worst <= epsilon * (1 + 1e-9) < quiet


@given(st.integers(1, 2**45), st.floats(1e-3, 50.0), st.booleans(), st.sampled_from([0.0, 1e-6]))
def test_shares_are_public_and_add_up(size: int, epsilon: float, chooses: bool, delta: float) -> None:
    shares = shares_of(size, epsilon, chooses=chooses)
    assert sum(shares) == 1
    assert (shares.threshold > 0) == (chooses and size * epsilon >= 1000)
    for theta, blocks in itertools.product((1, 250, 1000), (1, 12, 300)):
        sums = shares_of_sums(shares.rest, theta, 1000, blocks)
        assert sum(sums) == shares.rest
        assert sums.total >= shares.rest * Fraction(2, 5)
        assert (sums.groups > 0) == (blocks >= 256)
    made = rule(size, epsilon, delta=delta, threshold=None if chooses else Fixed(50.0))
    assert made.guarantee.epsilon <= epsilon
    assert made.guarantee.epsilon >= epsilon * (1 - 1e-6)
    assert made.guarantee.delta == delta
    losses = [Fraction(made.loss_of(part)) for part in made.shares if part]
    assert sum(loss**2 for loss in losses) <= Fraction(made.unit) ** 2 if delta else sum(losses) <= Fraction(epsilon)


def test_a_score_that_might_wrap_is_refused() -> None:
    with pytest.raises(ParameterError, match="scores of"):
        rule(2**47, 1e-3)


def test_noise_is_bound_to_what_it_protects() -> None:
    values = np.floor(waves(3000))
    other = values.copy()
    other[1500] += 1.0
    made = rule(3000, key=Key.from_bytes(SECRET))
    first, again, altered = (
        rule(3000, key=Key.from_bytes(SECRET)).release(each).answers[0] for each in (values, values, other)
    )
    assert np.array_equal(first.sums, again.sums)
    noise = first.sums - np.add.reduceat(values, np.arange(0, 3000, first.block)) / first.scale
    assert not np.any(np.isin(altered.sums, first.sums))
    assert np.ptp(noise) > 0
    pairs = rule(3000, epsilon=2.0, contributions=2, key=Key.from_bytes(SECRET))
    assert pairs.unit == made.unit
    assert pairs.noise_fingerprint != made.noise_fingerprint
    assert rule(3000).noise_fingerprint is None


# The answer.


@pytest.mark.parametrize("options", [
    {}, {"delta": 1e-6}, {"season": 240.0}, {"contributions": 2}, {"threshold": Fixed(200.0)},
    {"threshold": NoisyMax()}, {"threshold": ScaleFree()},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("size", [1, 2, 24, 400, 1001, 6000])
def test_values_sums_total_and_intervals_agree(size: int, options: Any) -> None:
    for name, shape in SHAPES.items():
        values, bound = shape(size), 900.0
        made = rule(size, 1.0, bound, **options)
        release = made.release(values)
        assert len(release) == size
        assert release.values.min() >= 0.0, name
        assert release.values.max() <= bound * (1 + 1e-12)
        starts = np.array([0, 0, size // 3, size // 2])
        stops = np.array([size, size // 2, size // 3 + 1, size])
        sums = release.answers[0].sums_before(stops) - release.answers[0].sums_before(starts)
        before = np.append(0.0, np.cumsum(release.values))
        np.testing.assert_allclose(sums, before[stops] - before[starts], rtol=1e-9, atol=1e-6 * bound)
        low, high = release.answers[0].interval(starts, stops, 0.95)
        wider = release.answers[0].interval(starts, stops, 0.999)
        assert np.all((low <= sums) & (sums <= high) & (low >= 0.0))
        assert np.all((wider[0] <= low + 1e-9) & (high <= wider[1] + 1e-9))
        again = rule(size, 1.0, bound, **options).release(values)
        assert np.array_equal(again.values, release.values)


@pytest.mark.parametrize("positive", [0, 1, 30])
def test_zeros_keep_the_bound(positive: int) -> None:
    values = np.zeros(2000)
    values[:positive] = 90.0
    thetas = [rule(2000, 1.0, 1000.0, seed=seed).release(values).threshold for seed in range(30)]
    assert sum(theta == 1000.0 for theta in thetas) >= 25
    assert min(thetas) > 1.0


@pytest.mark.statistical
@pytest.mark.parametrize("name", [name for name in SHAPES if name != "constant"])
@pytest.mark.parametrize(("size", "epsilon"), [(365, 1.0), (2000, 1.0), (20_000, 0.1)])
def test_intervals_hold_true_totals(name: str, size: int, epsilon: float) -> None:
    values, held, runs = SHAPES[name](size), 0, 40
    for seed in range(runs):
        answer = rule(size, epsilon, 1.5 * max(values.max(), 1.0), seed=seed).release(values).answers[0]
        (low,), (high,) = answer.interval(np.array([0]), np.array([size]), 0.95)
        held += low - 1e-6 <= values.sum() <= high + 1e-6
        assert high >= values.sum() / 2 or held > seed - 2
    assert held >= 35


BURSTS = {
    "in the middle": lambda n: np.where(np.abs(np.arange(n) - 0.42 * n) < 0.025 * n, 92.0, 2.0),
    "at the end": lambda n: np.where(np.arange(n) > 0.99 * n, 300.0, 1.0),
    "of one value": lambda n: np.where(np.arange(n) == n // 3, 5000.0, 1.0),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", BURSTS)
@pytest.mark.parametrize(("size", "epsilon"), [(1000, 1.0), (5000, 0.2), (20_000, 0.1), (50_000, 1.0)])
def test_intervals_hold_ranges_of_bursts(name: str, size: int, epsilon: float) -> None:
    """A threshold that cuts a burst leaves its sum to no block: it may be in any range, or in none."""
    values, generator = BURSTS[name](size), np.random.default_rng(size)
    before, held, asked = np.concatenate([[0.0], np.cumsum(values)]), 0, 0
    for seed in range(20):
        lengths = generator.choice([size // 20, size // 4, size // 2, size], 20)
        first = generator.integers(0, size - lengths + 1)
        answer = rule(size, epsilon, 1.5 * values.max(), seed=seed).release(values).answers[0]
        low, high = answer.interval(first, first + lengths, 0.95)
        true = before[first + lengths] - before[first]
        held, asked = held + int(((low - 1e-6 <= true) & (true <= high + 1e-6)).sum()), asked + first.size
    assert held >= 0.9 * asked


def test_intervals_hold_ranges_that_cut_blocks() -> None:
    """Half waves shorter than a block, all at one phase, and ranges that begin or end beside a burst within one."""
    size, at = 10_000, np.arange(10_000)
    for period in (24, 96, 168, 400):
        waves, starts, held = 1.0 + np.sin(at * 2.0 * np.pi / period), np.arange(0, 8000, period), []
        for seed in range(12):
            values = np.minimum(np.random.default_rng(seed).exponential(20.0, size) * waves, 100.0)
            low, high = rule(size, 1.0, 100.0, seed=seed).release(values).interval(starts, starts + period // 2)
            true = np.add.reduceat(values, np.sort(np.concatenate([starts, starts + period // 2])))[::2]
            held.append(np.mean((low <= true) & (true <= high)))
        assert np.mean(held) >= 0.9, period
    starts, stops, held = np.array([5050, 5060, 4600, 5025]), np.array([5400, 5500, 5000, 5500]), []
    for seed in range(20):
        values = np.minimum(np.random.default_rng(seed).exponential(2.0, size), 100.0)
        values[5000:5050] = 15.0
        low, high = rule(size, 1.0, 100.0, seed=seed).release(values).interval(starts, stops)
        true = [values[first:last].sum() for first, last in zip(starts, stops, strict=True)]
        held.append((low <= true) & (true <= high))
    assert np.mean(held, axis=0).min() >= 0.9


def test_intervals_hold_ranges_of_zeros() -> None:
    """Levels that are kept at 0 and more add up to too much where all values are 0, and to too little elsewhere."""
    rng, size, held = np.random.default_rng(4), 2**20, []
    values = np.where(np.arange(size) < size // 2, rng.gamma(2.0, 20.0, size), 0.0)
    before = np.append(0.0, np.cumsum(values))
    starts, stops = np.sort(rng.integers(0, size + 1, (2, 300)), axis=0)
    for seed in range(3):
        low, high = fastdp.release(values, epsilon=1.0, bound=5000.0, seed=seed).interval(starts, stops)
        truth = before[stops] - before[starts]
        held.append(np.mean((low - 1e-3 <= truth) & (truth <= high + 1e-3)))
    assert min(held) >= 0.95


def test_extreme_bounds_are_scaled() -> None:
    one, far = rule(2000, 1.0, 2.0**6), rule(2000, 1.0, 2.0**780)
    values = waves(2000) / 2.0
    near, distant = one.release(values), far.release(np.ldexp(values, 774))
    # Another bound is another key: the sizes agree, not the noise.
    ratio = distant.values.sum() / np.ldexp(near.values.sum(), 774)
    assert 0.9 < ratio < 1.1
    assert np.all(np.isfinite(distant.answers[0].interval(np.array([0]), np.array([2000]), 0.95)))


def test_values_are_checked() -> None:
    with pytest.raises(StateError, match="3 entries: expected 4"):
        rule(4).release([1.0, 2.0, 3.0])
    with pytest.raises(DataError, match=r"values\[1\]: not a finite number"):
        rule(1200).release([1.0, math.inf] * 600)
    holes = np.where(np.arange(2000) % 9 == 0, np.nan, np.arange(2000) % 7)
    one, two = (rule(2000, nonfinite="zero").release(each) for each in (holes, np.nan_to_num(holes)))
    assert np.array_equal(one.values, two.values)
    with pytest.raises(ParameterError, match="theta"):
        rule(50, threshold=Fixed(300.0))


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("ids", [None, [f"meter {i}" for i in range(10)]], ids=["numbers", "names"])
@pytest.mark.parametrize("threshold", [None, 60.0])
def test_each_of_many_streams_is_its_own_release(ids: list[str] | None, threshold: float | None) -> None:
    """In one pass by compiled code, of several lengths, also where neighbours choose other thetas and lengths."""
    streams = [shape(size) for size, shape in zip((1500,) * 9 + (700,), [*SHAPES.values()] * 2, strict=False)]
    many = fastdp.release_many(streams, 1.0, 900.0, ids=ids, threshold=threshold, key=SECRET)
    for i, values in enumerate(streams):
        own = Key.from_bytes(SECRET).of_stream(i if ids is None else ids[i])
        one = fastdp.release(values, 1.0, 900.0, threshold=threshold, key=own)
        assert np.array_equal(one.values, many[i].values)
        assert np.array_equal(one.interval([0, 9], [700, 80]), many[i].interval([0, 9], [700, 80]))
        assert one.noise_fingerprint.partition(":")[0] == many.noise_fingerprint.partition(":")[0]
