"""PHDStream: equal to the paper's algorithm on the same noise; memory, any domain, bad input; intervals of counts."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdp import AdaptivePHDStream, PHDStream
from fastdp.counters import BinaryTree, Block, Simple
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.noise import sampler
from fastdp.noise.key import repeating
from fastdp.points import Box, PrivTree, decomposition, phdstream
from fastdp.points.decomposition import PACKED_CAPACITY, Tree
from fastdp.releases.intervals import MODEL_WIDTH, laplace_variance, wider_quantile
from tests.domains import Plain
from tests.grid import exhaustive
from tests.noise_values import bound_key
from tests.oracles import phdstream as oracle
from tests.oracles import total_count
from tests.points.streams import (
    KINDS,
    SQUARE,
    Half,
    advanced,
    batches,
    clustered,
    compare,
    make,
    noises,
    reference,
)

#: Dimension, fan-out, depth, counter, retention, score, and the share of a count of all points.
CASES = [
    (1, 2, 6, "simple", 3, "repaired", 0.0),
    (2, 2, 5, Block(3), 2, "repaired", 0.0),
    (2, 3, 3, BinaryTree(4), 1, "repaired", 0.0),
    (2, 2, 0, "simple", 1, "repaired", 0.0),
    (1, 5, 2, Block(1), 1, "repaired", 0.0),
    (2, 2, 1, BinaryTree(1), 1, "paper", 0.0),
    (1, 3, 4, BinaryTree(4, settles=True), 0, "repaired", 0.0),
    (1, 2, 4, "simple", 2, "repaired", 0.05),
    (2, 3, 4, "simple", 2, "repaired", 0.5),
    *exhaustive(
        (2, 2, 6, "simple", 0, "repaired", 0.0),
        (2, 2, 6, "simple", 2, "paper", 0.0),
        (3, 2, 5, "simple", 100, "repaired", 0.0),
        (2, 2, 5, Block(3, settles=True), 2, "repaired", 0.0),
        (2, 2, 6, BinaryTree(64, settles=True), 3, "paper", 0.0),
    ),
]


@pytest.mark.parametrize(("dim", "fan_out", "max_depth", "counter", "retention", "score", "share"), CASES)
def test_equals_the_paper_with_its_repairs(dim, fan_out, max_depth, counter, retention, score, share) -> None:
    options = {"fan_out": fan_out, "max_depth": max_depth, "retention": retention, "score": score}
    stream = make(PHDStream, Box([0.0] * dim, [1.0] * dim), 2.0, counter, total_share=share, **options)
    steps, deepest = batches(18, dim, 11 + dim, size=8) if share else batches(7, dim, 11 + dim), 0
    naive, noise = reference(stream, total_count.Stream if share else oracle.Stream), noises(stream, steps)
    if share:
        # Block, of which an event enters two sums.
        total = total_count.Total(noise["total"], 2 / (Fraction(share) * 2))
        naive.follow(total, total_count.laplace_variance(1 / (Fraction(3, 5) * Fraction(1 - share) * 2)))
    for added, removed in steps:
        stream.advance(added, removed)
        expected = naive.step(added.tolist(), removed.tolist(), noise["split"], noise["cell"], noise["settle"])
        compare(stream, expected)
        assert stream.n_nodes == len(naive.own)
        if not share:
            assert stream.total == max(0.0, float(naive.held(())))
        deepest = max(deepest, int(stream.tree.depths.max()))
    assert not share or stream._state.total.released == total.counter.g
    assert deepest == max_depth or (deepest >= 3 and dim == 3)


@pytest.mark.parametrize(("kind", "max_depth"), [(PHDStream, 3), (PHDStream, 30), (AdaptivePHDStream, 12)])
def test_arrays_may_be_just_long_enough(kind: Any, max_depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = batches(1 if kind is PHDStream else 4, 2, 1, size=40 if kind is PHDStream else 300)
    options = {} if kind is PHDStream else {"period": 1}

    def grown(capacity: int) -> Tree:
        monkeypatch.setattr(decomposition, "MIN_CAPACITY", capacity)
        return advanced(make(kind, epsilon=4.0, max_depth=max_depth, **options), steps)._state.tree

    tree = grown(10_000)
    assert tree.first.size > 8
    for capacity in (1, *range(tree.first.size - 2, tree.first.size + 3)):
        again = grown(capacity)
        assert all(np.array_equal(getattr(again, name), getattr(tree, name)) for name in tree._fields)


@given(order=st.permutations(range(30)), seed=st.integers(0, 5))
def test_the_order_within_a_batch_has_no_influence(order: list[int], seed: int) -> None:
    points = clustered(30, 2, np.random.default_rng(seed))
    one, other = make(), make()
    assert np.array_equal(one.step(points, points[:7]), other.step(points[order], points[:7][::-1]))
    assert np.array_equal(one.step(points[:3], None), other.step(points[:3][::-1].tolist(), []))


@pytest.mark.slow
def test_memory_is_bounded_over_ten_thousand_steps() -> None:
    """A cluster that moves on for ever, so that new cells are reached all the time."""
    generator, sizes = np.random.default_rng(4), np.empty((10_000, 2))
    stream = make(PHDStream, Box([0.0], [1.0]), 1.0, "block", max_depth=12, retention=4)
    for t in range(10_000):
        centres = 0.5 + 0.45 * np.sin(np.array([t, t - 60]) / 300)
        points, gone = (np.clip(generator.normal(centre, 0.01, (12, 1)), 0, 1) for centre in centres)
        stream.advance(points, gone if t >= 60 else None)
        sizes[t] = stream.n_nodes, stream._state.tree.first.size
    assert sizes[9000:, 0].max() < 4 * sizes[:, 1].max()
    # The released tree itself grows: the noise in cells where nothing is left adds up, as the square root of time.
    kept, released = sizes[9000:].mean(axis=0) / sizes[1000:2000].mean(axis=0)
    assert kept < 1.5 * released


def test_arrays_do_not_grow_with_the_steps() -> None:
    stream, generator, most = make(max_depth=10, retention=2), np.random.default_rng(3), 0
    for _ in range(120):
        stream.advance(generator.random((20, 2)), generator.random((20, 2)))
        most = max(most, stream.n_nodes)
        assert stream._state.kept.nodes.size <= PACKED_CAPACITY * most
    keeper = make(max_depth=10, retention=10_000)
    for _ in range(120):
        keeper.advance(generator.random((20, 2)), generator.random((20, 2)))
    assert keeper.n_nodes > 2 * most, "without forgetting nodes pile up"


@pytest.mark.parametrize(("kind", "options"), [(PHDStream, {}), (AdaptivePHDStream, {"period": 2})])
def test_events_of_one_person_share_epsilon(kind: Any, options: dict[str, Any]) -> None:
    one = make(kind, epsilon=0.5, key=bound_key(5), seed=None, **options)
    four = make(kind, epsilon=2.0, sensitivity=4, key=bound_key(5), seed=None, **options)
    for added, removed in batches(4, 2, 6):
        assert np.array_equal(one.step(added, removed), four.step(added, removed))
    guarantee = four.guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.arithmetic) == (2.0, 0.0, "exact")
    assert "4 events" in guarantee.unit
    assert any("group privacy" in line for line in guarantee.derivation)


both = pytest.mark.parametrize("kind", KINDS)


@both
@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 7.0])
def test_the_guarantee_says_what_holds(kind: Any, epsilon: float) -> None:
    guarantee = make(kind, epsilon=epsilon).guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.simulated) == (epsilon, 0.0, True)
    assert "one event" in guarantee.unit
    assert not any("whole (" in step for step in guarantee.derivation)
    assert not kind(SQUARE, 1.0).guarantee.simulated
    for share in (0.01, 0.05, 1 / 3, 0.5):
        guarantee = make(kind, epsilon=epsilon, total_share=share).guarantee
        assert epsilon * (1 - 1e-15) <= guarantee.epsilon <= epsilon
        assert sum("count of the whole" in step for step in guarantee.derivation) == 1
    default = make(kind, epsilon=epsilon, total_share=0.05).guarantee
    assert default == kind(SQUARE, epsilon, max_depth=8, seed=5).guarantee
    # Noise has the scales that add up to it.
    stream = make(kind, epsilon=epsilon, total_share=0.25, sensitivity=2)
    plan, machine = stream._plan, stream._machine
    assert machine.total.distribution == sampler.laplace_distribution(
        Fraction(4) / (Fraction(0.25) * Fraction(epsilon))
    )
    spent = 2 * (plan.epsilon_tree + plan.epsilon_count + machine.total.epsilon)
    assert 1 - 1e-15 < float(spent) / epsilon <= 1
    if kind is PHDStream:
        paper = make(epsilon=epsilon, score="paper", max_depth=20).guarantee
        assert paper.epsilon == pytest.approx(epsilon / 2 * (20 / 3 + 1))
        assert any("NOT proved" in line for line in paper.derivation)


@both
def test_every_event_is_in_the_count_of_all_points_once(kind: Any) -> None:
    stream, steps = make(kind, epsilon=2000.0, max_depth=5, total_share=0.05), batches(40, 2, 6)
    for number, (added, removed) in enumerate(steps, 1):
        stream.advance(added, removed)
        assert stream._state.total.released == sum(len(more) - len(less) for more, less in steps[:number])
    # No step leaves such a state.
    machine = stream._machine
    packed = machine.pack(stream._state)
    machine.unpack(packed, stream._key)
    total = packed["state"]["total"]
    row = {"shape": [1, 1], "data": total["row"]["data"]}
    for change in ({"released": 2**63}, {"steps": total["steps"] + 1}, {"row": row}, None):
        wrong = None if change is None else {**total, **change}
        with pytest.raises((ValueError, LookupError, TypeError)):
            machine.unpack({**packed, "state": {**packed["state"], "total": wrong}}, stream._key)


@pytest.mark.parametrize(("epsilon", "share"), [(1e-9, 1e-9), (0.1, 5e-324)])
def test_a_share_of_next_to_nothing_is_refused(epsilon: float, share: float) -> None:
    with pytest.raises(ParameterError, match="epsilon is too small"):
        phdstream.TotalCounter.of_fraction(epsilon, 1, share)


def test_batches_may_be_empty_and_remove_more_than_was_added() -> None:
    stream = make()
    assert stream.total == 0.0
    with pytest.raises(StateError, match="expected a step first"):
        _ = stream.tree
    for nothing in (None, [], np.empty((0, 2))):
        stream.step(nothing, nothing)
    out = stream.step(None, clustered(500, 2, np.random.default_rng(1)))
    assert (stream.total, len(out), stream.n_steps) == (0.0, 0, 4)
    stream.step(clustered(1500, 2, np.random.default_rng(2)))
    assert stream.total == pytest.approx(1000, abs=300), "what was removed too much stays in the state"


BAD = [
    ([[0.5, math.nan]], r"added\[0\]"),
    ([[0.5, 0.5, 0.5]], "shape"),
    ([["a", "b"]], "entries"),
    ([[0.5, 0.5], [1.5, 0.5], [0.2, -0.1]], r"a point outside the domain \(2 of 3 entries\)"),
    ("text", "added"),
    (np.ma.masked_array([[0.5, 0.5]], [[False, True]]), r"added\[0\]"),
    ([[0.5, {}]], "objects"),
    (np.empty((3, 0)), "shape"),
]


@pytest.mark.parametrize("as_removed", [False, True])
def test_bad_input_changes_nothing(as_removed: bool) -> None:
    first, second = batches(2, 2, 8)
    stream = advanced(make(), [first])
    for added, words in BAD:
        with pytest.raises(DataError, match=words.replace("added", "removed") if as_removed else words):
            stream.step(*(([[0.5, 0.5]], added) if as_removed else (added, None)))
        assert stream.n_steps == 1
    assert np.array_equal(stream.step(*second), advanced(make(), [first]).step(*second))


def test_points_outside_can_be_clipped() -> None:
    points = clustered(400, 2, np.random.default_rng(3)) * 1.5 - 0.1
    clipping, plain = (make(outside=outside, seed=None, key=bound_key(5)) for outside in ("clip", "raise"))
    assert np.array_equal(clipping.step(points), plain.step(np.clip(points, 0, 1)))


def test_the_constants_are_on_the_safe_side() -> None:
    for fan_out, epsilon in itertools.product((2, 3, 7), (1e-6, 0.1, 1.0, 30.0)):
        plan = make(epsilon=epsilon, fan_out=fan_out, max_depth=4)._plan
        scale = plan.split_distribution.scale
        assert scale / plan.unit == Fraction(2 * fan_out - 1, fan_out - 1) * 2 / Fraction(epsilon)
        assert math.log(fan_out) <= plan.bias / float(scale) <= math.log(fan_out) * 1.001 + 2 / float(scale)
        assert scale <= 2**40
        assert plan.cell_distribution.scale == 2 / Fraction(epsilon)


@pytest.mark.parametrize("kind", KINDS)
def test_points_on_the_border_of_a_domain_are_counted(kind: Any) -> None:
    points = np.column_stack([np.full(1500, 0.5), np.random.default_rng(1).uniform(0.0, 0.7, 1500)])
    for depth in (1, 6, 12):
        stream = make(kind, Half(), 50.0, max_depth=depth, **({} if kind is PHDStream else {"period": 2}))
        advanced(stream, [(points[begin : begin + 300], None) for begin in range(0, 1500, 300)])
        assert stream.total == pytest.approx(1500.0, abs=60.0)
        assert stream.tree.counts.sum() == pytest.approx(stream.total)
    stream.advance(None, points)
    stream.advance(None, None)
    assert stream.total == pytest.approx(0.0, abs=90.0)


class Slivers(Plain):
    """The unit square, but on the left of cells below a 64th nothing is seen: larger ones have parts without any."""

    def __init__(self) -> None:
        super().__init__(SQUARE)

    def measure(self, lower, upper):
        areas = (upper - lower).prod(axis=1)
        return np.where((areas >= 2.0**-6) | (lower[:, 0] >= 0.5), areas, 0.0)

    def sample(self, lower, upper, counts, generator):
        assert (self.measure(lower, upper)[counts > 0] > 0.0).all()
        return SQUARE.sample(lower, upper, counts, generator)


def check_cells(stream: Any, points: np.ndarray) -> None:
    """With next to no noise: each cell has the points in it, and the tree's arrays agree with each other."""
    shown, tree = stream.tree, stream._state.tree
    inner = np.flatnonzero(tree.first >= 0)
    for j in range(stream.fan_out):
        child = tree.first[inner] + j
        assert tree.parent[child].tolist() == inner.tolist()
        assert tree.code[child].tolist() == (tree.code[inner] * stream.fan_out + j).tolist()
        assert (tree.depth[child] == tree.depth[inner] + 1).all()
    assert tree.starts[-1] == tree.first.size == inner.size * stream.fan_out + 1
    assert (shown.upper - shown.lower).prod(axis=1).sum() == pytest.approx(1.0), "no cell is without measure"
    held = (points[:, None] >= shown.lower) & ((points[:, None] < shown.upper) | (shown.upper == 1.0))
    assert shown.counts == pytest.approx(held.all(axis=2).sum(axis=0), abs=0.5)
    assert SQUARE.contains(stream.sample()).all()


@pytest.mark.parametrize("fan_out", [2, 8])
@pytest.mark.parametrize("kind", [PHDStream, AdaptivePHDStream])
def test_a_cell_whose_parts_have_no_measure_is_not_cut(kind: Any, fan_out: int) -> None:
    """Such a cell was cut for good, and every later batch with a point in it was a crash."""
    options = {"period": 1} if kind is AdaptivePHDStream else {}
    stream = kind(Slivers(), 400.0, max_depth=12 // (1 + fan_out // 4), fan_out=fan_out, seed=1, **options)
    generator = np.random.default_rng(4)
    # More on the left, where cells end at a 64th, and some on the right, where they do not.
    points = np.concatenate([generator.random((240, 2)) * [0.4, 1.0], 0.9 + generator.random((240, 2)) / 90.0])
    points = generator.permutation(points)
    for begin in range(0, 480, 120):
        stream.advance(points[begin : begin + 120])
        check_cells(stream, points[: begin + 120])
    depths = stream.tree.depths[stream.tree.lower[:, 0] < 0.5]
    assert depths.max() == 6 // (1 if fan_out == 2 else 3) < stream.tree.depths.max()
    stream.advance(None, points)
    assert stream.total == pytest.approx(0.0, abs=1.0)


def test_domains_of_ones_own() -> None:
    class Snapping(Half):
        def snap(self, points):
            return np.minimum(points, [0.25, 1.0])

    class Broken(Half):
        def measure(self, lower, upper):
            return np.where((upper - lower).prod(axis=1) < 0.2, np.nan, super().measure(lower, upper))

    stream = PHDStream(Snapping(), 50.0, max_depth=2, seed=1)
    stream.step(np.full((500, 2), 0.45))
    assert stream.count([0.0, 0.0], [0.5, 0.5]) == pytest.approx(500.0, abs=30.0)
    broken = PHDStream(Broken(), 50.0, max_depth=6, seed=1)
    with pytest.raises(ParameterError, match="finite measures"):
        broken.step(np.full((5000, 2), 0.3))
    assert broken.n_steps == 0


def test_a_reader_beside_a_step_does_not_bring_back_the_old_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = make(epsilon=5.0)
    stream.step(np.full((100, 2), 0.3))
    stream._made = None
    real, once = phdstream.ReleasedTree, []

    def slow(*parts):
        tree = real(*parts)
        if not once:
            once.append(tree)
            stream.advance(np.full((3000, 2), 0.3))
        return tree

    monkeypatch.setattr(phdstream, "ReleasedTree", slow)
    assert stream.tree.total < 1000
    assert stream.tree.total > 2000
    assert stream.tree.total == pytest.approx(stream.total)


def test_depths_whose_borders_floats_cannot_tell_are_refused() -> None:
    with pytest.raises(ParameterError, match="max_depth = 34: expected at most 33"):
        PHDStream(Box([0.0], [1.0]), 1.0, max_depth=34, fan_out=3)
    PHDStream(Box([0.0], [1.0]), 1.0, max_depth=33, fan_out=3)
    PHDStream(SQUARE, 1.0, max_depth=62)


@pytest.mark.parametrize("counter", ["simple", "block", "binary"])
def test_a_state_is_a_value(counter: str) -> None:
    stream = PHDStream(SQUARE, 1.0, counter, max_depth=8, retention=3, seed=1)
    generator = np.random.default_rng(2)
    machine, key, state = stream._machine, stream._key, stream._state
    kept = []
    # Few points after many: trees of one size, which share their arrays.
    for size in (400, *[5] * 14):
        batch = machine.read(generator.random((size, 2)), None)
        before, state = state, machine.step(state, batch, key).state
        kept.append((before, machine.pack(before), batch, state))
    last = machine.pack(state)
    for before, described, batch, after in reversed(kept):
        with repeating():
            machine.step(before, machine.read(generator.random((5, 2)), None), key)
            assert machine.pack(after) == last
            again = machine.step(before, batch, key).state
        assert machine.pack(again) == last
        assert machine.pack(before) == described
        last = described
    # Counters that settle pack every tree.
    shared = any(one[3].kept.nodes is two[3].kept.nodes for one, two in itertools.pairwise(kept))
    assert shared == (counter != "binary")


# Intervals of counts in boxes: noise of the cells inside, and what cut cells hide.

POINTS = np.random.default_rng(1).beta(2.0, 5.0, (3000, 2))


def stream_of(**options) -> PHDStream:
    return advanced(PHDStream(SQUARE, **({"epsilon": 1.0, "max_depth": 6, "seed": 1} | options)),
                    [(batch, None) for batch in np.array_split(POINTS, 3)])  # fmt: skip


@pytest.mark.parametrize("counter", [Simple(), Block(4), BinaryTree(16), BinaryTree(6)])
def test_open_draws_are_those_of_the_counters_errors(counter) -> None:
    # One draw of size 1 in each of many counters: a draw that is open shows in that counter's error.
    steps = 40
    state = np.zeros((steps, counter.width), np.int64)
    errors = np.zeros(steps, np.int64)
    for number in range(steps):
        errors += counter.step(state, (np.arange(steps) == number).astype(np.int64))
        assert np.abs(errors).sum() == counter.open_draws(number + 1)


def test_errors_of_whole_and_of_cut_cells() -> None:
    made = stream_of()
    cells, variance = made.tree, 3 * laplace_variance(made._plan.cell_distribution.scale)
    np.testing.assert_allclose(made.std_error(cells.lower[:9], cells.upper[:9]), np.sqrt(variance))
    assert made.std_error([0.0, 0.0], [1.0, 1.0]) == pytest.approx(np.sqrt(cells.n_leaves * variance))
    assert made.interval([0.5, 0.5], [0.5, 0.7]) == (0.0, 0.0)
    # One cell that is cut hides where its points are.
    made = stream_of(max_depth=0)
    count, found = made.total, made.std_error([0.0, 0.0], [0.5, 0.5])
    assert found**2 == pytest.approx(variance / 16 + (count + np.sqrt(variance)) ** 2 * 3 / 16)
    low, high = made.interval([0.0, 0.0], [0.5, 0.5], 0.8)
    half = MODEL_WIDTH * wider_quantile(0.8) * found
    assert (low, high) == (max(0.0, count / 4 - half), pytest.approx(count / 4 + half))


def test_intervals_hold_their_answers_and_most_of_the_truth() -> None:
    made = stream_of()
    corners = np.sort(np.random.default_rng(2).random((2, 200, 2)), axis=0)
    low, high = made.interval(*corners)
    answers = made.count(*corners)
    assert (low <= answers).all()
    assert (answers <= high).all()
    truth = ((corners[0][:, None] <= POINTS) & (corners[1][:, None] > POINTS)).all(axis=2).sum(axis=1)
    assert np.mean((low <= truth) & (truth <= high)) > 0.94


def test_what_has_no_interval_says_why() -> None:
    with pytest.raises(ParameterError, match="confidence"):
        stream_of().interval([0.0, 0.0], [0.5, 0.5], 2.0)
    # Points that wait for the next count are in no released number.
    waiting = advanced(AdaptivePHDStream(SQUARE, 1.0, seed=1), [(POINTS, None)])
    for made in (waiting, PrivTree(SQUARE, epsilon=1.0, seed=1).fit(POINTS)):
        with pytest.raises(StateError, match="does not state the noise"):
            made.interval([0.0, 0.0], [0.5, 0.5])
