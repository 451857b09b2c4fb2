"""Far out in a stream no word comes again: every index that noise depends on, driven past 8, 10, 16 and 32 bits.

Publishers are put there, not run there.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp import AdaptivePHDStream, PHDStream
from fastdp.counters import BinaryTree, RunningCounts, Simple
from fastdp.errors import ParameterError, StateError
from fastdp.local import Hybrid, Piecewise, SquareWave
from fastdp.local.reports import Words
from fastdp.noise.chain_keys import theta_key
from fastdp.noise.key import Binding, Key
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.perturbers.base import TreeRows
from fastdp.points import Box
from fastdp.streams.pak import RunningSum
from fastdp.thresholds import Fixed, NoisyMax
from fastdp.thresholds.renewals import RenewFromHoldout
from tests.drawn import FAR, FARTHEST, record
from tests.oracles import bulk, exact_noise
from tests.oracles.words import begun, within, words
from tests.shared import move

SQUARE = Box([0.0, 0.0], [1.0, 1.0])
#: Purposes of words.
TREE, COUNTER, CHAIN = 2, 3, 8
POINTS = np.random.default_rng(1).random((40, 2))


def test_the_record_sees_a_word_that_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for starts, again in (((0, 3), False), ((0, 2), True)):
        with record(monkeypatch) as drawn:
            for start in starts:
                Piecewise(1.0).perturb(np.full(3, 0.5), seed=1, start=start)
        assert (drawn.count, drawn.repeated) == (6, again)


def test_steps_of_running_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = RunningCounts(Simple(), 1e-3, size=8, seed=1)
    released = set()
    with record(monkeypatch) as drawn:
        for step in FARTHEST:
            counts._state = replace(counts._machine.start(counts._key), n_seen=step)
            released.add(tuple(counts.step(np.zeros(8, np.int64)).tolist()))
    assert len(released) == len(FARTHEST)
    assert drawn.count == 8 * len(FARTHEST)
    assert not drawn.repeated
    with pytest.raises(StateError, match="2\\^40"):
        counts.step(np.zeros(8, np.int64))


@pytest.mark.parametrize("counter", [Simple(), BinaryTree(4, settles=True)])
def test_steps_of_phdstream(monkeypatch: pytest.MonkeyPatch, counter) -> None:
    """Split decisions, counts, and what settles: words of its own for each step."""
    stream = PHDStream(SQUARE, 0.5, counter, max_depth=4, threshold=1.0, seed=1)
    with record(monkeypatch) as drawn:
        for step in FARTHEST:
            stream._state = replace(stream._state, n_steps=step)
            stream.advance(POINTS, POINTS[:30] if step else None)
    assert len(drawn.ranges) >= 2 * len(FARTHEST)
    assert not drawn.repeated
    with pytest.raises(StateError, match="2\\^40"):
        stream.advance(POINTS)


@pytest.mark.parametrize("recount", [False, True])
def test_steps_of_adaptive_phdstream(monkeypatch: pytest.MonkeyPatch, recount: bool) -> None:
    """Counts in cells that past releases chose, and in cells that are planted recount."""
    stream = AdaptivePHDStream(SQUARE, 0.5, max_depth=4, period=1, seed=1)
    with record(monkeypatch) as drawn:
        stream.advance(POINTS)
        for step in FARTHEST[1:]:
            schedule = replace(stream._state.schedule, prompt=step + 1 if recount else 0)
            stream._state = replace(stream._state, n_steps=step, last_count=step, schedule=schedule)
            stream.advance(POINTS, POINTS[:30])
    assert len(drawn.ranges) >= (1 + recount) * len(FARTHEST)
    assert not drawn.repeated


@pytest.mark.parametrize("mechanism", [SquareWave(2.0), Hybrid(2.0)])
def test_streams_and_starts_of_reports(monkeypatch: pytest.MonkeyPatch, mechanism) -> None:
    values, options = np.full(100, 0.5), {"key": bytes(range(32))}
    ends = [100 * far for far in FAR if far < 2**26]
    with record(monkeypatch) as drawn:
        one = [mechanism.perturb(values, stream=stream, start=0, **options) for stream in FARTHEST]
        two = [mechanism.perturb(values, stream=7, start=start, **options) for start in (*ends, 2**32, 2**33 - 100)]
    assert len({tuple(reports.tolist()) for reports in one + two}) == len(one + two)
    assert not drawn.repeated


def test_thresholds_and_values_of_reports_have_words_of_their_own() -> None:
    """Both begin at word 0 of a key's stream 0."""
    assert {SquareWave.WORD_LEVEL, Hybrid.WORD_LEVEL} == {0, 1}
    words = [Words(None, bytes(32), level, 0, 0).few(4) for level in (0, 1)]
    assert words[0] != words[1]


def test_numbers_of_streams_under_one_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    secret, released = Key.from_seed(1), set()
    with record(monkeypatch) as drawn:
        for number in (*FAR[:-2], 2**32 - 2):
            counts = RunningCounts(Simple(), 1e-3, size=8, key=secret.of_stream(number))
            released.add(tuple(counts.step(np.zeros(8, np.int64)).tolist()))
    assert len(released) == len(FAR) - 1
    assert not drawn.repeated


def test_streams_of_public_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    with record(monkeypatch) as drawn:
        draws = [fastdp.noise.discrete_laplace(1e6, 8, stream=stream, seed=1) for stream in FARTHEST]
    assert len({tuple(row.tolist()) for row in draws}) == len(FARTHEST)
    assert not drawn.repeated


def test_counters_of_selective_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 counters, each at its first step: as many keys."""

    class Next:
        """Names one counter after the other."""

        guarantee = fastdp.counters.event_guarantee(1.0, "looks at nothing")

        def select(self, values: Any, step: int, last: Any) -> int:
            return step

    counting = fastdp.counters.SelectiveCounting([Simple()] * 300, Next(), 1e-3, seed=1)
    with record(monkeypatch) as drawn:
        released = [int(counting.step(0).counts[0]) for _ in range(300)]
    assert len(set(released)) > 250
    assert drawn.count == 300
    assert not drawn.repeated


@pytest.mark.parametrize(("fan_out", "deepest"), [(2, 62), (3, 39), (4, 31), (5, 26), (1024, 6)])
def test_codes_of_cells_end_at_62_bits(fan_out: int, deepest: int) -> None:
    cube = Box([0.0] * 3, [1.0] * 3)
    PHDStream(cube, 1.0, fan_out=fan_out, max_depth=deepest)
    with pytest.raises(ParameterError, match=r"^max_depth"):
        PHDStream(cube, 1.0, fan_out=fan_out, max_depth=deepest + 1)


def own_leaves(key: Key, theta_steps: int, levels: int, tree: int, count: int, level: int = 1) -> list[int]:
    """Noise of a tree's first nodes of a level, from words of our own."""
    scale, found = Fraction(theta_steps * levels) / Fraction(0.5), []
    secret = within(key.reveal(), "theta", theta_steps)
    for place in range(count):
        name = {"level": level, "number": tree, "member": key.member, "start": place}
        found.append(
            exact_noise.draw(
                words(secret, TREE, 1, **name)[0],
                lambda k, name=name: words(secret, TREE, 1, refinement=k, **name)[0],
                scale,
                False,
            )
        )
    return found


TREES = Hierarchy(2, consistent=False, prune=0)
TREES_IN_BLOCKS = Hierarchy(2, prune=1)
OPTIONS = {"epsilon": 0.5, "bound": 64, "holdout": 0, "max_range": 16, "resolution": 0.25, "seed": 3}


@pytest.mark.parametrize("tree", FARTHEST[1:])
def test_trees_of_a_publisher(tree: int) -> None:
    """The last leaves of a tree, and the first ones of the next."""
    publisher = fastdp.StreamPublisher(threshold=Fixed(8.0), perturber=TREES, **OPTIONS)
    levels, before = publisher.composition.plan.levels, tree * 16 - 2
    move(publisher, blocks=before, n_seen=before)
    expected = own_leaves(publisher._key, 32, levels, tree - 1, 16)[14:]
    expected += own_leaves(publisher._key, 32, levels, tree, 3)
    assert publisher.publish(np.zeros(5)).tolist() == [noise * 0.25 for noise in expected]


def test_trees_of_many_streams_and_all_their_levels() -> None:
    """Rows with tree numbers and stream numbers far out: each what one stream has, level by level."""
    key, plan = Key(bytes(range(32)), simulated=True, binding=Binding.COMPOSITION), TREES.plan(0.5, 16)
    trees = np.array(FARTHEST)
    streams = np.array([0, 1, 255, 256, 1023, 1024, 2**15, 2**16, 2**31, 2**32 - 2, 9, 2**32 - 2])
    rows = TreeRows(plan, 0.5, key.again(), np.full(trees.size, 32), streams, trees, plan.leaves, nodes=True)
    drawn = TREES.noise_rows(rows)
    for row, stream, tree in zip(drawn, streams.tolist(), trees.tolist(), strict=True):
        own = theta_key(key, 32).of_stream(stream)
        assert np.array_equal(row, TREES.node_noise(plan, 32, 0.5, own, tree))
        start = 0
        for level, width in enumerate(plan.widths):
            expected = own_leaves(key.of_stream(stream), 32, plan.levels, tree, 2 if width > 1 else 1, level + 1)
            assert row[start : start + len(expected)].tolist() == expected
            start += width


@pytest.mark.parametrize(("perturber", "levels"), [(TREES, 4), (Flat(), 1), (Blocks(), 1)])
def test_leaves_of_a_tree_or_batch(perturber, levels: int) -> None:
    key = Key(bytes(range(32)), simulated=True, binding=Binding.COMPOSITION)
    plan = perturber.plan(0.5, 16)
    assert plan.levels == levels
    for tree in FARTHEST:
        drawn = perturber.leaf_noise(plan, 32, 0.5, theta_key(key, 32), tree)
        assert drawn[:3].tolist() == own_leaves(key, 32, levels, tree, 3)


def test_cycles_of_thresholds() -> None:
    """Equal hold-outs, one after the other: each choice has noise of its own (the suite checks every word)."""
    publisher = fastdp.StreamPublisher(
        threshold=NoisyMax(step=1.0), perturber=TREES_IN_BLOCKS, smoother=fastdp.smoothers.Recent(),
        renewal=RenewFromHoldout(holdout=4), **{**OPTIONS, "epsilon": 0.05, "holdout": 4},
    )  # fmt: skip
    publisher.publish(np.full(4, 9.0))
    thetas, period = [publisher.threshold], publisher.composition.period
    block = publisher.composition.plan.block
    for cycle in FARTHEST[1:-1]:
        move(publisher, cycle=cycle, blocks=cycle * period // block, filled=0, held=0, open_sum=0)
        publisher.publish(np.full(4, 9.0))
        assert publisher._state.rows["cycle"][0] == cycle + 1
        thetas.append(publisher.threshold)
    assert len(set(thetas)) > 5


@pytest.mark.parametrize("far", [2**8 - 3, 2**16 + 5, 2**31 - 3, 2**32 - 3, 2**32 + 5, 2**33 - 8])
def test_nodes_of_a_running_sum(far: int) -> None:
    """A counter far out releases what one with the nodes' noise by hand does."""
    key, length = Key(bytes(range(32)), simulated=True, binding=Binding.COMPOSITION), 2**33 - 1
    counter = RunningSum.start(key, 0, length, 5, 0.5, 0)
    counter = counter._replace(seen=far)
    after, out = counter.advance(np.zeros(6, np.int64))
    scale = Fraction(5 * length.bit_length()) / Fraction(0.5)
    above = [0] * counter.above.size
    for t, released in zip(range(far + 1, far + 7), out.tolist(), strict=True):
        height = (t & -t).bit_length() - 1
        name = {"level": height, "start": (t >> height) - 1}
        word = words(key.reveal(), COUNTER, 1, **name)[0]
        above[height] = above[height + 1] + exact_noise.draw(
            word, lambda k, name=name: words(key.reveal(), COUNTER, 1, refinement=k, **name)[0], scale, False
        )
        above[:height] = [above[height]] * height
        assert released == above[0]
    assert after.seen == far + 6


def test_copies_of_a_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = fastdp.StreamPublisher(threshold=Fixed(8.0), perturber=TREES, **OPTIONS)
    outputs = set()
    for copies in FARTHEST:
        publisher._copies = copies
        outputs.add(tuple(copy.copy(publisher).publish(np.zeros(8)).tolist()))
    assert len(outputs) == len(FARTHEST)


def bound_noise(publisher: fastdp.StreamPublisher, index: int = 0) -> bulk.PrefixNoise:
    """Of a threshold of 32 steps at epsilon 0.5, from a chain key of our own."""
    secret, member = publisher._key.reveal(), publisher._key.member
    low, high = begun(within(secret, "theta", 32), CHAIN, 2, member=member)
    return bulk.PrefixNoise(secret, low + high * 2**64, bulk.laplace(Fraction(64)), index, member)


@pytest.mark.parametrize("member", [None, 0, 255, 2**32 - 2])
def test_bound_noise_of_a_publisher_value_by_value(member: int | None) -> None:
    key = Key.from_seed(3) if member is None else Key.from_seed(3).of_stream(member)
    publisher = fastdp.StreamPublisher(
        threshold=Fixed(8.0), perturber=Flat(), **{**OPTIONS, "seed": None, "key": key}
    )
    values = np.random.default_rng(1).gamma(2.0, 3.0, 300)
    out = np.concatenate([publisher.publish(part) for part in np.split(values, [1, 2, 100, 259])])
    noise = bound_noise(publisher)
    steps = np.rint(np.clip(values * 4.0, 0.0, 32.0)).astype(np.int64).tolist()
    assert out.tolist() == [(step + noise(step)) * 0.25 for step in steps]


@pytest.mark.parametrize("far", [254, 4094, 2**16 - 2, 2**24 - 2, 2**32 - 2, 2**40])
def test_indices_of_bound_sums(far: int) -> None:
    publisher = fastdp.StreamPublisher(threshold=Fixed(8.0), perturber=Flat(), **OPTIONS)
    move(publisher, blocks=far, n_seen=far)
    noise = bound_noise(publisher, far)
    assert publisher.publish(np.zeros(6)).tolist() == [noise(0) * 0.25 for _ in range(6)]


def test_mechanisms_have_words_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under one key, from the same position on: another epsilon, domain or kind of report is another stream."""
    mechanisms = [Piecewise(1.0), Piecewise(2.0), Piecewise(1.0, low=0.0), Piecewise(1.0, high=2.0), Hybrid(1.0)]
    with record(monkeypatch) as drawn:
        for mechanism in [*mechanisms, SquareWave(1.0, low=-1.0)]:
            mechanism.perturb(np.full(100, 0.5), key=bytes(32), start=0)
    assert drawn.count == 600
    assert not drawn.repeated
