"""The online pass, short chunks, trees of nodes, consistency, range sums: against naive versions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastdp.perturbers.hierarchy import HierarchyShape, consistency_weights
from fastdp_kernels.streams import (
    adaptive_pass,
    hierarchy_nodes,
    online_pass,
    ranges,
    threshold_choice,
)
from fastdp_kernels.streams.hierarchy_nodes import PIECE, release_tree
from tests.kernels.adaptive_runs import advance, no_counts
from tests.oracles import nodes as oracle
from tests.oracles import tops

RESOLUTION = 2.0**-6


def stream(n: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    values = generator.gamma(2.0, 3.0, n)
    values[generator.random(n) < 0.05] *= -1.0
    values[generator.random(n) < 0.05] = 1e300
    half = generator.random(n) < 0.2
    values[half] = (np.floor(values[half] % 50) + 0.5) * RESOLUTION  # ties of the rounding
    return values


def test_block_sums_equal_python_integers() -> None:
    for block, n in itertools.product(
        (1, 2, 7, 16, 32, 64, 256), (0, 1, 15, 16, 17, 255, 256, 257, 1009, 2048, 2079, 5003)
    ):
        values = stream(n, n + block)
        top = 640.0
        steps = [int(np.rint(min(max(v, 0.0) / RESOLUTION, top))) for v in values]
        filled = n % block
        sums = np.full(-(-(filled + n) // block), -1, np.int64)
        assert online_pass.sum_blocks(values, 1 / RESOLUTION, top, block, filled, sums) is False
        expected = [0] * sums.size
        for i, step in enumerate(steps):
            expected[(filled + i) // block] += step
        assert sums.tolist() == expected
        rounded = np.empty(n, np.int64)
        assert online_pass.round_values(values, 1 / RESOLUTION, top, rounded) is False
        assert rounded.tolist() == steps


def test_non_finite_values_are_noticed_anywhere() -> None:
    for size, wrong in itertools.product((17, 6000), (np.nan, -np.nan, np.inf, -np.inf)):
        values = np.array([1.7976931348623157e308, -1e308, 5e-324, -0.0, 3.0] + [2.0] * (size - 5))
        for block, position in itertools.product((4, 16), (0, 4, 5, 8, 12, 16, size - 1)):
            sums, steps = np.empty(size // 4 + 1, np.int64), np.empty(size, np.int64)
            broken = values.copy()
            broken[position] = wrong
            for each, seen in ((values, False), (broken, True)):
                assert online_pass.sum_blocks(each, 1.0, 10.0, block, 1, sums) is seen
                assert online_pass.round_values(each, 1.0, 10.0, steps) is seen


def test_largest_threshold_rounds_exactly() -> None:
    values = np.array([2.0**51, 2.0**51 - 1, 2.0**50 + 0.5, 0.5, 1.5, 2.5])
    steps = np.empty(values.size, np.int64)
    online_pass.round_values(values, 1.0, 2.0**51, steps)
    assert steps.tolist() == [2**51, 2**51 - 1, 2**50, 0, 2, 2]


def test_emission_closes_every_block() -> None:
    for block, n in itertools.product((2, 3, 16), (0, 1, 2, 15, 16, 17, 100)):
        generator = np.random.default_rng(n)
        for filled in range(block):
            closing, rest = divmod(filled + n, block)
            totals, predictions = generator.normal(size=closing), generator.normal(size=closing + 1)
            out = np.full(n, np.nan)
            online_pass.emit_blocks(totals, predictions, block, filled, out)
            expected = []
            for i in range(filled, filled + n):
                j = i // block
                last = i % block == block - 1
                expected.append(totals[j] - predictions[j] * (block - 1) if last else predictions[j])
            assert out.tolist() == expected
            assert rest == (filled + n) % block


@pytest.mark.parametrize("noise_range", [0, 3, 2**40])
def test_noisy_max_equals_the_oracle(noise_range: int) -> None:
    generator = np.random.default_rng(41)
    for trial in range(50):
        holdout = generator.integers(0, 30, 200).astype(float)
        holdout[generator.random(200) < 0.3] *= 0.7
        unit, step = 16, 1.0 if trial % 2 else 0.5
        candidates = step * np.arange(1, 41)
        penalties = generator.integers(0, 200, 40)
        noise = generator.integers(-noise_range, noise_range + 1, 40)
        counts = np.zeros(41, np.int64)
        threshold_choice.bin_values(holdout[:77], step, counts)
        threshold_choice.bin_values(holdout[77:], step, counts)
        scores = [
            unit * sum(1 for v in holdout if v <= theta) - int(p) + int(z)
            for theta, p, z in zip(candidates, penalties, noise, strict=True)
        ]
        chosen = threshold_choice.choose_candidate(counts, unit, penalties, noise)
        # Values above the last candidate count as its equals.
        if holdout.max() <= candidates[-1]:
            assert chosen == tops.argmax_first(scores) + 1


def test_ties_go_to_the_lowest_candidate() -> None:
    counts = np.array([5, 0, 0, 1, 0], np.int64)
    zeros = np.zeros(4, np.int64)
    assert threshold_choice.choose_candidate(counts, 8, zeros, zeros) == 3
    assert threshold_choice.choose_candidate(np.zeros(5, np.int64), 8, zeros, zeros - 10**12) == 1


def test_range_sums() -> None:
    for n, block in itertools.product((0, 1, 255, 256, 257, 5000), (7, 256)):
        values = np.random.default_rng(n).normal(size=n)
        prefix = np.empty(n // block + 1)
        borders, places = np.array([0, n]), np.array([0, prefix.size])
        ranges.prefix_blocks(values, borders, block, places, prefix)
        starts, stops = (
            index.ravel() for index in np.meshgrid(np.linspace(0, n, 23).astype(np.int64), [0, n // 2, n])
        )
        starts, stops = np.minimum(starts, stops), np.maximum(starts, stops)
        out = np.empty(starts.size)
        whose = np.zeros(starts.size, np.int64)
        ranges.sum_ranges(values, borders, prefix, places, block, whose, starts, stops, out)
        assert out == pytest.approx([values[a:b].sum() for a, b in zip(starts, stops, strict=True)], abs=1e-9)


@pytest.mark.parametrize(("count", "block"), [(4, 16), (70, 16), (4, 64)])
def test_one_pass_detects_non_finite_values_anywhere(count: int, block: int) -> None:
    noise, last, public = np.zeros(count, np.int64), block * count, np.array([1.0, 2000.0, 1.0, block])
    for wrong, position in itertools.product((np.nan, np.inf, -np.inf), (0, 3, 15, 16, 31, 40, 63, last - 1)):
        values, published = np.arange(float(last)), np.empty(last)
        expected = sum(range(last - block, last)) / block
        assert online_pass.publish(values, public, noise, 0, count, 0, 0, 0.0, published) == (0, expected)
        values[position] = wrong
        assert np.isnan(online_pass.publish(values, public, noise, 0, count, 0, 0, 0.0, published)[1])


@pytest.mark.parametrize("size", [1, 7, 16, 1009])
def test_single_values_in_one_pass_equal_rounding_and_noise(size: int) -> None:
    values, noise = stream(size, size), np.random.default_rng(size).integers(-(2**60), 2**60, size + 3)
    steps, expected, published = np.empty(size, np.int64), np.empty(size), np.empty(size)
    assert not online_pass.round_values(values, 1 / RESOLUTION, 640.0, steps)
    online_pass.add_noise(steps, noise, RESOLUTION, expected)
    public = np.array([1 / RESOLUTION, 640.0, RESOLUTION, 1.0])
    assert online_pass.publish(values, public, noise, 0, size, 0, 0, 2.5, published) == (0, 2.5)
    assert published.tobytes() == expected.tobytes()
    noisy = [step + own for step, own in zip(steps.tolist(), noise[:size].tolist(), strict=True)]
    assert published.tolist() == [float(each) * RESOLUTION for each in noisy]
    for wrong, position in itertools.product((np.nan, np.inf, -np.inf), (0, size // 2, size - 1)):
        broken = values.copy()
        broken[position] = wrong
        assert np.isnan(online_pass.publish(broken, public, noise, 0, size, 0, 0, 2.5, published)[1])


#: Beyond 2^53 doubles are rounded to; both signs.
FAR = [2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1, 2**51, 2**51 + 1, -1, 0]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 150])
@pytest.mark.parametrize("block", [1, 16, 48, 256])
def test_whole_numbers_are_published_as_their_doubles_are(block: int, count: int) -> None:
    """For 16 values 64 blocks are summed together."""
    values = np.random.default_rng(block).integers(-10, 60, count * block)
    values[: len(FAR)] = FAR[: values.size]
    # As the package gives them: a further layout would be compiled for seconds.
    values.flags.writeable = False
    noise = np.random.default_rng(count).integers(-10_000, 10_000, count)
    for top in (640.0, 2.0**51):
        both = [np.empty(values.size), np.empty(values.size)]
        public = np.array([1 / RESOLUTION, top, RESOLUTION, block])
        for each, out in zip((values, values.astype(float)), both, strict=True):
            assert np.isfinite(online_pass.publish(each, public, noise, 0, count, 0, 0, 3.25, out)[1])
        assert both[0].tobytes() == both[1].tobytes()


TOP = 2000.0
BAD = (np.nan, np.inf, -np.inf)


def values_of(seed: int, size: int) -> np.ndarray:
    """Some below 0, some above the threshold."""
    return np.random.default_rng(seed).normal(4.0, 5.0, size)


def by_arrays(values: np.ndarray, block: int, noise: np.ndarray, filled: int, open_sum: int, first: float):
    """Sums, noise and output array by array; what is left open, and its prediction."""
    closing = noise.size
    sums = np.zeros(closing + 1, np.int64)
    touched = sums[: -(-(filled + values.size) // block)]
    assert not online_pass.sum_blocks(values, 1 / RESOLUTION, TOP, block, filled, touched)
    sums[0] += open_sum
    totals = np.empty(closing)
    online_pass.add_noise(sums[:closing], noise, RESOLUTION, totals)
    if block == 1:
        return 0, first, totals
    predictions = np.concatenate([[first], totals / block])
    out = np.empty(values.size)
    online_pass.emit_blocks(totals, predictions, block, filled, out)
    return sums[closing], predictions[closing], out


@example(seed=1, block=16, size=150 * 16, before=0, leaf=0)
@example(seed=2, block=48, size=70 * 48, before=0, leaf=0)
@example(seed=3, block=256, size=150 * 256, before=0, leaf=0)
@given(
    seed=st.integers(0, 2**32),
    block=st.integers(1, 40),
    size=st.integers(0, 200),
    before=st.integers(0, 39),
    leaf=st.integers(0, 5),
)
def test_fixed_blocks_are_those_of_the_arrays(seed: int, block: int, size: int, before: int, leaf: int) -> None:
    """Also published in place: integers are converted into the output."""
    values, filled = values_of(seed, size), before % block
    closing = (filled + size) // block
    noise = np.random.default_rng(seed + 1).integers(-(2**40), 2**40, leaf + closing + 3)
    open_sum, first = (3 * filled, 2.5) if filled else (0, 2.5)
    expected = by_arrays(values, block, noise[leaf : leaf + closing], filled, open_sum, first)
    public, place = np.array([1 / RESOLUTION, TOP, RESOLUTION, block]), values.copy()
    shared = place[:]
    shared.flags.writeable = False
    for given_values, out in ((values, np.empty(size)), (shared, place)):
        found = online_pass.publish(given_values, public, noise, leaf, closing, filled, open_sum, first, out)
        assert found == expected[:2]
        assert np.array_equal(out, expected[2])


@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize("bad", BAD)
def test_a_value_that_is_not_finite_is_reported_wherever_it_is(block: int, bad: float) -> None:
    public, noise, out = np.array([1.0, 100.0, 1.0, block]), np.zeros(20, np.int64), np.empty(11)
    for place in range(11):
        values = np.ones(11)
        values[place] = bad
        assert np.isnan(online_pass.publish(values, public, noise, 0, 13 // block, 2 % block, 0, 1.0, out)[1])
        for top in (100.0, -100.0):
            assert advance(values, 1.0, top, 1.0, 1.0, opened(5), out) == -1
            if place < 8:
                assert advance(values[:8], 1.0, top, 1.0, 1.0, opened(3), out) == -1


def opened(exponent: int) -> np.ndarray:
    """A row with an open block whose first values make up for something."""
    row = no_counts()
    row["exponent"], row["unit"], row["prediction"], row["extra"], row["catch"] = exponent, 1.0, 0.37, -0.05, 7.0
    return row


@example(seed=0, size=2, filled=30, events=False)
@given(seed=st.integers(0, 2**32), size=st.integers(0, 70), filled=st.integers(0, 31), events=st.booleans())
def test_open_blocks_are_those_of_the_arrays(seed: int, size: int, filled: int, events: bool) -> None:
    values, theta, top = values_of(seed, size), 9.0, -TOP if events else TOP
    row, steps, out = opened(5), theta / RESOLUTION, np.full(size, np.nan)
    row["filled"], row["open_sum"] = filled, 11
    whole = filled + size >= 32
    assert advance(values, 1 / RESOLUTION, top, steps, theta, row, out) == whole
    used = min(size, 32 - filled)
    scaled = np.clip(values[:used] / RESOLUTION, -TOP if events else 0.0, TOP)
    own = np.floor(scaled + 0.5) if events else np.rint(scaled)
    assert (row["filled"][0], row["open_sum"][0]) == (filled + used, 11 + own.sum())
    assert (row["n_seen"][0], row["stopped"][0]) == ((0, adaptive_pass.UNSETTLED) if whole else (size, 0))
    expected = np.where(np.arange(filled, filled + used) < 7, 0.37 * theta - 0.05 * theta, 0.37 * theta)
    assert np.array_equal(out[:used], expected)
    assert np.isnan(out[used:]).all()


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("fan_out", "levels", "tops"),
    # Pieces of one leaf, of whole trees, of parts of a tree; nodes wider than a piece; several tops.
    [(2, 1, 5), (2, 4, 1), (2, 4, 3), (2, 13, 1), (3, 8, 1), (16, 4, 1), (1500, 2, 2)],
)
def test_every_node_is_its_leaves_and_its_noise(fan_out: int, levels: int, tops: int, in_place: bool) -> None:
    leaves = tops * fan_out ** (levels - 1)
    widths = [leaves // fan_out**level for level in range(levels)]
    generator = np.random.default_rng(leaves)
    for n in {1, leaves // 2, leaves - 1, leaves, min(leaves, PIECE + 1)} - {0}:
        values = generator.uniform(-1.0, 30.0, n)
        noise = generator.integers(-(2**40), 2**40, sum(widths))
        rounded = np.rint(np.clip(values / RESOLUTION, 0.0, 160.0)).astype(np.int64)
        expected = np.array(oracle.noisy_sums(rounded.tolist(), noise, leaves, fan_out, levels)) * RESOLUTION
        out = noise.copy().view(np.float64) if in_place else np.empty(noise.size)
        given = out.view(np.int64) if in_place else noise
        scratch = np.empty(2 * max(PIECE, fan_out) + leaves, np.int64)
        release_tree(
            values,
            1.0 / RESOLUTION,
            160.0,
            given,
            fan_out,
            levels,
            leaves,
            RESOLUTION,
            scratch,
            out,
        )
        start = 0
        for level, width in enumerate(widths):
            complete = n // fan_out**level
            assert np.array_equal(out[start : start + complete], expected[start : start + complete])
            assert np.isnan(out[start + complete : start + width]).all()
            start += width


SHAPES = [(2, 1, 1), (2, 1, 5), (2, 3, 4), (3, 2, 4), (5, 1, 3), (16, 1, 2), (16, 3, 2), (16, 2, 3), (7, 5, 1)]


def plan(fan_out: int, tops_: int, levels: int) -> HierarchyShape:
    leaves = tops_ * fan_out ** (levels - 1)
    return HierarchyShape(fan_out, levels, 0, levels, 1, tops_, leaves, leaves)


def split(nodes: np.ndarray, shape: HierarchyShape) -> list[np.ndarray]:
    """Levels from the flat layout, leaves first."""
    levels, start, width = [], 0, shape.leaves
    for _ in range(shape.levels):
        levels.append(nodes[start : start + width])
        start, width = start + width, width // shape.fan_out
    return levels


def truth_tree(leaves: np.ndarray, shape: HierarchyShape) -> np.ndarray:
    """A consistent integer tree with these leaves."""
    levels = [leaves]
    for _ in range(shape.levels - 1):
        levels.append(levels[-1].reshape(-1, shape.fan_out).sum(axis=1))
    return np.concatenate(levels)


def run(nodes: np.ndarray, shape: HierarchyShape) -> np.ndarray:
    out = nodes.copy()
    hierarchy_nodes.make_consistent(out[None], shape.tops, shape.fan_out, shape.levels, consistency_weights(shape))
    return out


def random_nodes(shape: HierarchyShape, generator: np.random.Generator) -> np.ndarray:
    scale = int(generator.choice([1, 3, 1000, 2**33, 2**50]))
    return np.rint(generator.laplace(0, scale, shape.nodes)).astype(np.int64)


def test_a_thousand_random_trees() -> None:
    generator = np.random.default_rng(31)
    for number in range(1000):
        shape = plan(*SHAPES[number % len(SHAPES)])
        noise = random_nodes(shape, generator)
        done = run(noise, shape)
        levels = split(done, shape)
        for below, above in itertools.pairwise(levels):
            assert np.array_equal(below.reshape(-1, shape.fan_out).sum(axis=1), above), "children sum to the parent"
        truth = truth_tree(generator.integers(0, int(generator.choice([1, 100, 2**40])) + 1, shape.leaves), shape)
        assert np.array_equal(run(noise + truth, shape), done + truth), "f(T + N) = T + f(N)"


def test_wrapping_around_keeps_both_properties() -> None:
    """Even where sums overflow int64, f is a map of the noisy counts modulo 2^64."""
    generator = np.random.default_rng(32)
    for shape in (plan(16, 2, 3), plan(2, 3, 4), plan(3, 2, 4)):
        noise = generator.integers(-(2**63), 2**63, shape.nodes)
        truth = truth_tree(generator.integers(-(2**63), 2**63, shape.leaves), shape)
        assert np.array_equal(run(noise + truth, shape), run(noise, shape) + truth)


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_oracle(shape: tuple[int, int, int]) -> None:
    generator = np.random.default_rng(33)
    for _ in range(10):
        form = plan(*shape)
        noise = random_nodes(form, generator)
        expected = tops.consistent_integers(split(noise, form), form.fan_out)
        for ours, theirs in zip(split(run(noise, form), form), expected, strict=True):
            assert ours.tolist() == theirs


@pytest.mark.parametrize(("fan_out", "levels"), [(16, 2), (2, 13), (3, 11)])
def test_trees_that_are_settled_in_groups_do_not_touch_each_other(fan_out: int, levels: int) -> None:
    each = max(1, hierarchy_nodes.CACHED // fan_out ** (levels - 1))
    shape = plan(fan_out, 2 * each + 1, levels)
    noise = random_nodes(shape, np.random.default_rng(36))
    rows = np.concatenate([level.reshape(shape.tops, -1) for level in split(noise, shape)], axis=1)
    hierarchy_nodes.make_consistent(rows, 1, fan_out, levels, consistency_weights(shape))
    done = np.concatenate([level.reshape(shape.tops, -1) for level in split(run(noise, shape), shape)], axis=1)
    assert np.array_equal(done, rows)


@pytest.mark.parametrize("shape", SHAPES)
def test_is_least_squares_but_for_rounding(shape: tuple[int, int, int]) -> None:
    form = plan(*shape)
    noise = np.rint(np.random.default_rng(34).laplace(0, 1e6, form.nodes)).astype(np.int64)
    exact = tops.least_squares(split(noise, form), form.fan_out)
    ours = run(noise, form)[: form.leaves]
    assert np.abs(ours - exact).max() <= 2.0 * form.levels
    unfinished = noise[: form.leaves]
    assert form.levels == 1 or np.abs(unfinished - exact).max() > 1e4, "the comparison must be able to fail"
