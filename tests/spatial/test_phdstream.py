"""PHDStream whole: equal to the paper's algorithm on the same noise; laws, memory, bad input, interrupts."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdp import AdaptivePHDStream
from fastdp.counters import BinaryTree, Block
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.noise import sampler
from fastdp.noise.key import Key, repeating
from fastdp.noise.words import Purpose, StreamId
from fastdp.spatial import Box, decomposition, phdstream
from fastdp.spatial.decomposition import PACKED_CAPACITY, KeptTree, Tree
from fastdp.spatial.phdstream import PHDStream
from fastdp_lab.baselines import FixedTree
from tests import stat
from tests.domains import Plain
from tests.grid import exhaustive
from tests.noise_values import bound_key, step_keys
from tests.oracles import phdstream as oracle

SQUARE = Box([0.0, 0.0], [1.0, 1.0])


def make(domain: Box = SQUARE, epsilon: float = 1.0, counter="simple", **options) -> PHDStream:
    """As in the paper: without a count of all points (``test_whole_count.py``)."""
    return PHDStream(domain, epsilon, counter, **{"seed": 5, "max_depth": 8, "total_share": 0.0, **options})


def clustered(n: int, dim: int, generator: np.random.Generator) -> np.ndarray:
    """Points on a grid of 1/64, dense around one corner: many lie on borders of cells."""
    return np.floor(np.clip(generator.exponential(0.15, (n, dim)), 0, 1) * 64) / 64


def batches(steps: int, dim: int, seed: int, size: int = 40) -> list[tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(seed)
    out = [(clustered(5 * size, dim, generator), np.empty((0, dim)))]
    for _ in range(steps - 1):
        out.append((clustered(size, dim, generator), clustered(int(generator.integers(0, size)), dim, generator)))
    return out


def draws(keys: list[Key], law: sampler.LaplaceDistribution, purpose: Purpose, count: int, level: int = 0):
    """Noise i of step t, as the naive version asks for it, from each step's key."""
    rows: dict[int, np.ndarray] = {}

    def noise(t: int, i: int) -> int:
        if t not in rows:
            rows[t] = np.empty(count, np.int64)
            sampler.fill(rows[t], law, keys[t].again(), StreamId(purpose, level, t))
        return int(rows[t][i])

    return noise


CASES = [
    (1, 2, 6, "simple", 3, "repaired"),
    (2, 2, 5, Block(3), 2, "repaired"),
    (2, 3, 3, BinaryTree(4), 1, "repaired"),
    (2, 2, 0, "simple", 1, "repaired"),
    (1, 5, 2, Block(1), 1, "repaired"),
    (2, 2, 1, BinaryTree(1), 1, "paper"),
    (1, 3, 4, BinaryTree(4, settles=True), 0, "repaired"),
    *exhaustive(
        (2, 2, 6, "simple", 0, "repaired"),
        (2, 2, 6, "simple", 2, "paper"),
        (3, 2, 5, "simple", 100, "repaired"),
        (2, 2, 5, Block(3, settles=True), 2, "repaired"),
        (2, 2, 6, BinaryTree(64, settles=True), 3, "paper"),
    ),
]


@pytest.mark.parametrize(("dim", "fan_out", "max_depth", "counter", "retention", "score"), CASES)
def test_equals_the_paper_with_its_repairs(dim, fan_out, max_depth, counter, retention, score) -> None:
    domain = Box([0.0] * dim, [1.0] * dim)
    stream = make(domain, 2.0, counter, fan_out=fan_out, max_depth=max_depth, retention=retention, score=score)
    plan = stream._plan
    naive = {
        "Simple": oracle.SimpleCounter,
        "Block": lambda: oracle.BlockCounter(counter.size),
        "BinaryTree": lambda: oracle.BinaryTreeCounter(counter.horizon),
    }[type(stream.counter).__name__]
    reference = oracle.Stream(
        domain.lower,
        domain.upper,
        fan_out,
        max_depth,
        plan.unit,
        plan.bias,
        plan.threshold,
        naive,
        retention,
        score == "repaired",
        stream.counter.settles,
    )
    steps = batches(7, dim, 11 + dim)
    keys = step_keys(stream, steps)
    split = draws(keys, plan.split_distribution, Purpose.SPLIT, 4096)
    cell = draws(keys, plan.cell_distribution, Purpose.CELL, 4096)
    settle = draws(keys, plan.cell_distribution, Purpose.CELL, 4096, level=1)
    deepest = 0
    for added, removed in steps:
        stream.advance(added, removed)
        expected = reference.step(added.tolist(), removed.tolist(), split, cell, settle)
        cells = {
            tuple(zip(*oracle.cell_of(path, domain.lower, domain.upper, fan_out), strict=True)): value
            for path, value in expected.items()
        }
        tree = stream.tree
        assert tree.n_leaves == len(cells)
        for low, high, value in zip(tree.lower.tolist(), tree.upper.tolist(), tree.counts.tolist(), strict=True):
            near = [
                count
                for bounds, count in cells.items()
                if np.allclose([float(a) for a, _ in bounds], low)
                and np.allclose([float(b) for _, b in bounds], high)
            ]
            assert len(near) == 1
            assert value == pytest.approx(float(near[0]), rel=1e-9, abs=1e-9)
        assert stream.total == max(0.0, float(reference.held(())))
        assert stream.n_nodes == len(reference.own)
        deepest = max(deepest, int(tree.depths.max()))
    assert deepest == max_depth or (deepest >= 3 and dim == 3)


@pytest.mark.parametrize("max_depth", [3, 30])
def test_arrays_may_be_just_long_enough(max_depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Down to the last node, of the greatest depth and of a smaller one."""
    added, removed = batches(1, 2, 1)[0]

    def visited(capacity: int) -> Tree:
        monkeypatch.setattr(decomposition, "MIN_CAPACITY", capacity)
        stream = make(max_depth=max_depth, epsilon=4.0)
        stream.advance(added, removed)
        return stream._state.tree

    tree = visited(10_000)
    assert tree.first.size > 8
    for capacity in range(tree.first.size - 2, tree.first.size + 3):
        assert same_trees(visited(capacity), tree)


def same_trees(one: Tree, two: Tree) -> bool:
    """Whether all numbers are the same."""
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in one._fields)


@given(order=st.permutations(range(30)), seed=st.integers(0, 5))
def test_the_order_within_a_batch_has_no_influence(order: list[int], seed: int) -> None:
    points = clustered(30, 2, np.random.default_rng(seed))
    one, other = make(), make()
    assert np.array_equal(one.step(points, points[:7]), other.step(points[order], points[:7][::-1]))
    assert np.array_equal(one.step(points[:3], None), other.step(points[:3][::-1].tolist(), []))


def check_tree(stream, points: np.ndarray) -> None:
    """What is released after a step: counts that add up, cells that cover the square, points within it."""
    visit, tree = stream._state.tree, stream.tree
    inner = np.flatnonzero(visit.first >= 0)
    sums = visit.projected[visit.first[inner]] + visit.projected[visit.first[inner] + 1]
    assert np.allclose(sums, visit.projected[inner], rtol=1e-12)
    assert (visit.projected >= 0).all()
    assert tree.counts.sum() == pytest.approx(stream.total)
    assert np.prod(tree.upper - tree.lower, axis=1).sum() == pytest.approx(1.0)
    assert abs(len(points) - stream.total) < 6 * math.sqrt(tree.n_leaves / 4) + 1
    assert SQUARE.contains(points).all()


@pytest.mark.parametrize("counter", ["simple", "block", "binary"])
def test_the_released_tree_is_consistent(counter: str) -> None:
    stream = make(counter=counter, epsilon=0.3)
    for added, removed in batches(20, 2, 2):
        check_tree(stream, stream.step(added, removed))
        visit = stream._state.tree
        assert (visit.projected[1:] <= visit.projected[visit.parent[1:]]).all(), "s+ never rises, in floats too"


@pytest.mark.statistical
def test_totals_are_unbiased() -> None:
    """G(root) less the true count has mean 0 and the variance of all noise drawn; 4 % of it would be detected."""
    totals, variances = [], []
    base = stat.seed(300)
    for seed in range(500):
        stream = make(seed=base + seed, max_depth=6)
        noises = 0
        truth = 0
        for added, removed in batches(6, 2, 3):
            stream.advance(added, removed)
            noises += stream.tree.n_leaves
            truth += len(added) - len(removed)
        totals.append(float(stream._state.kept.tree.released[0]) - truth)
        variances.append(noises * 8.0)
    z = np.sum(totals) / math.sqrt(np.sum(variances))
    stat.accept(math.erfc(abs(z) / math.sqrt(2)))
    shifted = (np.sum(totals) + 500 * 0.04 * truth) / math.sqrt(np.sum(variances))
    stat.reject(math.erfc(abs(shifted) / math.sqrt(2)))


@pytest.mark.slow
def test_memory_is_bounded_over_ten_thousand_steps() -> None:
    generator = np.random.default_rng(4)
    stream = make(Box([0.0], [1.0]), 1.0, "block", max_depth=12, retention=4)
    sizes, visited = [], []
    for t in range(10_000):
        # A cluster that moves on for ever, so that new cells are visited all the time.
        centre = 0.5 + 0.45 * math.sin(t / 300)
        points = np.clip(generator.normal(centre, 0.01, (12, 1)), 0, 1)
        old = 0.5 + 0.45 * math.sin((t - 60) / 300)
        gone = np.clip(generator.normal(old, 0.01, (12, 1)), 0, 1) if t >= 60 else None
        stream.advance(points, gone)
        sizes.append(stream.n_nodes)
        visited.append(stream._state.tree.first.size)
    early, late = np.array(sizes[1000:2000]), np.array(sizes[9000:])
    assert late.max() < 4 * np.max(visited)
    assert stream._state.kept.tree.state.shape == (stream.n_nodes, 2)
    # The released tree itself grows: the noise in cells where nothing is left adds up, as the square root of time.
    assert late.mean() / early.mean() < 1.5 * np.mean(visited[9000:]) / np.mean(visited[1000:2000])
    keeper = make(Box([0.0], [1.0]), 1.0, "block", max_depth=12, retention=10_000)
    generator = np.random.default_rng(4)
    for _ in range(1000):
        keeper.advance(np.clip(generator.normal(0.5, 0.2, (12, 1)), 0, 1))
    assert keeper.n_nodes > 3 * keeper._state.tree.first.size, "without forgetting nodes pile up"


def test_events_of_one_person_share_epsilon() -> None:
    one = make(epsilon=0.5, seed=None, key=bound_key(5))
    four = make(epsilon=2.0, sensitivity=4, seed=None, key=bound_key(5))
    for added, removed in batches(3, 2, 6):
        assert np.array_equal(one.step(added, removed), four.step(added, removed))
    guarantee = make(epsilon=2.0, sensitivity=4, seed=None, key=bytes(range(32))).guarantee
    assert (guarantee.epsilon, guarantee.arithmetic) == (2.0, "exact")
    assert "4 events" in guarantee.unit
    assert any("group privacy" in line for line in guarantee.derivation)


def test_the_guarantee_says_what_holds() -> None:
    for epsilon in (0.1, 0.3, 1.0, 7.0):
        guarantee = make(epsilon=epsilon).guarantee
        assert guarantee.epsilon == epsilon
        assert guarantee.delta == 0.0
        assert guarantee.simulated
        paper = make(epsilon=epsilon, score="paper", max_depth=20).guarantee
        assert paper.epsilon == pytest.approx(epsilon / 2 * (20 / 3 + 1))
        assert any("NOT proved" in line for line in paper.derivation)
    assert not PHDStream(SQUARE, 1.0).guarantee.simulated
    assert "one event" in make().guarantee.unit


def test_first_batch_is_all_so_far_and_batches_may_be_empty() -> None:
    stream = make()
    assert stream.total == 0.0
    with pytest.raises(StateError, match="expected a step first"):
        _ = stream.tree
    for nothing in (None, [], np.empty((0, 2))):
        stream.step(nothing, nothing)
    assert stream.n_steps == 3
    points = clustered(2000, 2, np.random.default_rng(1))
    stream.step(points)
    assert stream.total == pytest.approx(2000, abs=400)
    assert stream.n_steps == 4


def test_removals_never_added_lower_the_count_but_not_below_zero() -> None:
    stream = make()
    out = stream.step(None, clustered(500, 2, np.random.default_rng(1)))
    assert stream.total == 0.0
    assert len(out) == 0
    stream.step(clustered(1500, 2, np.random.default_rng(2)))
    assert stream.total == pytest.approx(1000, abs=300), "what was removed too much stays in the state"


BAD = [
    ([[0.5, math.nan]], r"added\[0\]"),
    ([[0.5, math.inf]], r"added\[0\]"),
    ([[0.5, 0.5, 0.5]], "shape"),
    ([0.5, 0.5], "shape"),
    ([["a", "b"]], "entries"),
    ([[0.5, 0.5], [1.5, 0.5], [0.2, -0.1]], r"a point outside the domain \(2 of 3 entries\)"),
    ([[1 + 2j, 0.5]], "complex"),
    ("text", "added"),
    (np.ma.masked_array([[0.5, 0.5]], [[False, True]]), r"added\[0\]"),
    ([[0.5, None]], r"added\[0\]"),
    ([[0.5, {}]], "objects"),
    (object(), "shape"),
    (np.empty((3, 0)), "shape"),
]


def test_bad_input_changes_nothing() -> None:
    for (added, words), as_removed in itertools.product(BAD, (False, True)):
        reference, stream = make(), make()
        for one in (reference, stream):
            one.step(*batches(2, 2, 8)[0])
        with pytest.raises(DataError, match=words.replace("added", "removed") if as_removed else words):
            stream.step(*(([[0.5, 0.5]], added) if as_removed else (added, None)))
        assert stream.n_steps == 1
        batch = batches(2, 2, 8)[1]
        assert np.array_equal(stream.step(*batch), reference.step(*batch))


def test_points_outside_can_be_clipped() -> None:
    points = clustered(400, 2, np.random.default_rng(3)) * 1.5 - 0.1
    clipping, plain = (make(outside=outside, seed=None, key=bound_key(5)) for outside in ("clip", "raise"))
    assert np.array_equal(clipping.step(points), plain.step(np.clip(points, 0, 1)))


def check_interrupt(reference, stream, monkeypatch: pytest.MonkeyPatch, home: type | ModuleType, name: str) -> None:
    """Behind a function of the second step: the batch is not consumed, and the stream goes on as the reference."""
    steps = batches(3, 2, 9)
    for one in (reference, stream):
        one.step(*steps[0])
    real = getattr(home, name)

    def interrupted(*arguments):
        real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(home, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            stream.step(*steps[1])
    with pytest.raises(DataError, match="outside"):
        stream.step([[1.5, 0.5]])
    assert stream.n_steps == 1
    for batch in steps[1:]:
        assert np.array_equal(stream.step(*batch), reference.step(*batch))


@pytest.mark.parametrize("counter", ["simple", "block"])
def test_an_interrupt_leaves_the_batch_consumed_or_not(counter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_interrupt(make(counter=counter), make(counter=counter), monkeypatch, KeptTree, "append")


def test_a_copy_has_noise_of_its_own_and_the_batch_leaves_no_secret() -> None:
    stream = make()
    first, second = batches(2, 2, 1)
    stream.step(*first)
    twin = copy.deepcopy(stream)
    assert np.array_equal(twin.tree.counts, stream.tree.counts)
    twin.step(*second)
    stream.step(*second)
    assert not np.array_equal(twin._state.tree.released, stream._state.tree.released)
    with pytest.raises(StateError, match="cannot be pickled"):
        pickle.dumps(stream)
    assert stream._state.tree.score.size == stream._state.tree.ends.size == 0
    assert np.array_equal(stream.sample(), stream.sample())


def test_the_constants_are_on_the_safe_side() -> None:
    for fan_out, epsilon in itertools.product((2, 3, 7), (1e-6, 0.1, 1.0, 30.0)):
        plan = make(epsilon=epsilon, fan_out=fan_out, max_depth=4)._plan
        scale = plan.split_distribution.scale
        assert scale / plan.unit == Fraction(2 * fan_out - 1, fan_out - 1) * 2 / Fraction(epsilon)
        assert plan.bias / float(scale) >= math.log(fan_out)
        assert plan.bias / float(scale) <= math.log(fan_out) * 1.001 + 2 / float(scale)
        assert scale <= 2**40
        assert plan.cell_distribution.scale == 2 / Fraction(epsilon)


class Half:
    """The lower half of the unit square and a corner: cells without any of it, whose border points it holds."""

    dim = 2
    lower, upper = np.zeros(2), np.ones(2)

    def measure(self, lower, upper):
        sides = np.maximum(np.minimum(upper, [0.5, 1.0]) - np.maximum(lower, 0.0), 0.0)
        corner = np.maximum(np.minimum(upper, 1.0) - np.maximum(lower, 0.75), 0.0)
        return sides.prod(axis=1) + corner.prod(axis=1)

    def sample(self, lower, upper, counts, generator):
        return np.repeat(lower, counts, axis=0)

    def contains(self, points):
        low = (points >= 0.0).all(axis=1) & (points[:, 0] <= 0.5)
        return low | (points >= 0.75).all(axis=1)


def test_points_on_the_border_of_a_domain_are_counted() -> None:
    """They may lie in a cell without any of the domain; a cell beside counts them."""
    points = np.column_stack([np.full(1000, 0.5), np.random.default_rng(1).uniform(0.0, 0.7, 1000)])
    for depth in (1, 6, 12):
        stream = PHDStream(Half(), 50.0, max_depth=depth, seed=1)
        stream.step(points)
        assert stream.total == pytest.approx(1000.0, abs=30.0)
        assert stream.tree.counts.sum() == pytest.approx(stream.total)
        stream.step(None, points)
        assert stream.total == pytest.approx(0.0, abs=60.0)


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


def check_cells(stream, points: np.ndarray) -> None:
    """With next to no noise: each cell has the points in it, and the tree's arrays agree with each other."""
    tree, visit = stream.tree, stream._state.tree
    inner = np.flatnonzero(visit.first >= 0)
    for j in range(stream.fan_out):
        child = visit.first[inner] + j
        assert visit.parent[child].tolist() == inner.tolist()
        assert visit.code[child].tolist() == (visit.code[inner] * stream.fan_out + j).tolist()
        assert (visit.depth[child] == visit.depth[inner] + 1).all()
    assert (visit.starts[-1], inner.size * stream.fan_out + 1) == (visit.first.size, visit.first.size)
    assert (tree.upper - tree.lower).prod(axis=1).sum() == pytest.approx(1.0), "no cell is without measure"
    held = (points[:, None] >= tree.lower) & ((points[:, None] < tree.upper) | (tree.upper == 1.0))
    assert tree.counts == pytest.approx(held.all(axis=2).sum(axis=0), abs=0.5)
    assert SQUARE.contains(stream.sample()).all()


@pytest.mark.parametrize("fan_out", [2, 8])
@pytest.mark.parametrize("make", [PHDStream, AdaptivePHDStream, FixedTree])
def test_a_cell_whose_parts_have_no_measure_is_not_cut(make, fan_out: int) -> None:
    """Such a cell was cut for good, and every later batch with a point in it was a crash."""
    options = {"period": 1} if make is AdaptivePHDStream else {}
    stream = make(Slivers(), 400.0, max_depth=12 // (1 + fan_out // 4), fan_out=fan_out, seed=1, **options)
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


def test_a_domain_that_snaps_is_asked_to() -> None:
    class Snapping(Half):
        def snap(self, points):
            return np.minimum(points, [0.25, 1.0])

    stream = PHDStream(Snapping(), 50.0, max_depth=2, seed=1)
    stream.step(np.full((500, 2), 0.45))
    assert stream.count([0.0, 0.0], [0.5, 0.5]) == pytest.approx(500.0, abs=30.0)
    assert Snapping().contains(np.full((1, 2), 0.45)).all()


def test_a_reader_beside_a_step_does_not_bring_back_the_old_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = PHDStream(Box([0, 0], [1, 1]), 5.0, seed=1)
    stream.step(np.full((100, 2), 0.3))
    stream._made = None
    real = phdstream.ReleasedTree

    def slow(*parts):
        tree = real(*parts)
        monkeypatch.setattr(phdstream, "ReleasedTree", real)
        stream.advance(np.full((3000, 2), 0.3))
        return tree

    monkeypatch.setattr(phdstream, "ReleasedTree", slow)
    assert stream.tree.total < 1000
    assert stream.tree.total > 2000
    assert stream.tree.total == pytest.approx(stream.total)


def test_measures_that_are_none_are_refused_and_change_nothing() -> None:
    class Broken(Half):
        def measure(self, lower, upper):
            return np.where((upper - lower).prod(axis=1) < 0.2, np.nan, super().measure(lower, upper))

    stream = PHDStream(Broken(), 50.0, max_depth=6, seed=1)
    with pytest.raises(ParameterError, match="finite measures"):
        stream.step(np.full((5000, 2), 0.3))
    assert stream.n_steps == 0


def test_depths_whose_borders_floats_cannot_tell_are_refused() -> None:
    box = Box([0.0], [1.0])
    with pytest.raises(ParameterError, match="max_depth = 34: expected at most 33"):
        PHDStream(box, 1.0, max_depth=34, fan_out=3)
    PHDStream(box, 1.0, max_depth=33, fan_out=3)
    PHDStream(Box([0, 0], [1, 1]), 1.0, max_depth=62)


@pytest.mark.parametrize("counter", ["simple", "block", "binary"])
def test_a_state_is_a_value(counter: str) -> None:
    """A state may be stepped from twice, and is what it was after others have followed it."""
    stream = PHDStream(Box((0, 0), (1, 1)), 1.0, counter, max_depth=8, retention=3, seed=1)
    generator = np.random.default_rng(2)
    machine, key, state = stream._machine, stream._key, stream._state
    kept = []
    for _ in range(12):
        batch = machine.read(generator.random((60, 2)), None)
        kept.append((state, machine.pack(state), batch))
        state = machine.step(state, batch, key).state
    last = machine.pack(state)
    for before, described, batch in reversed(kept):
        with repeating():
            again = machine.step(before, batch, key).state
        assert machine.pack(again) == last
        assert machine.pack(before) == described
        last = described


def test_room_is_used_again() -> None:
    """Arrays do not grow with the steps."""
    stream = PHDStream(Box((0, 0), (1, 1)), 1.0, max_depth=10, retention=2, seed=1)
    generator = np.random.default_rng(3)
    most = 0
    for _ in range(120):
        stream.advance(generator.random((20, 2)), generator.random((20, 2)))
        most = max(most, stream.n_nodes)
        assert stream._state.kept.nodes.size <= PACKED_CAPACITY * most
