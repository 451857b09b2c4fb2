"""Cells from released counts alone: equal to the naive version on the same noise; influence of one event."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fastdp import AdaptivePHDStream
from fastdp.counters import Simple
from fastdp.noise import sampler
from fastdp.noise.words import Purpose, StreamId
from fastdp.points import Box, decomposition
from fastdp.points.adaptive_phdstream import (
    PROMPT_STEPS,
    TRIAL_STEPS,
    CountParameters,
    Growth,
    ReleaseSchedule,
    periods,
)
from fastdp_lab.audit.tree_loss import tree_step_loss
from tests.domains import HalfBox, Plain
from tests.grid import exhaustive
from tests.noise_values import bound_key, step_keys, unbound_key
from tests.oracles import counts_alone, total_count
from tests.points import streams
from tests.points.streams import SQUARE, advanced, batches, check_interrupt, clustered, compare, noises, reference


def make(domain: Any = SQUARE, epsilon: float = 1.0, **options: Any) -> AdaptivePHDStream:
    return streams.make(AdaptivePHDStream, domain, epsilon, **options)


CASES = [
    (1, 2, 6, {}),
    (2, 2, 6, {"period": 1, "epsilon": 4.0}),
    (2, 3, 4, {"max_period": 4}),
    (2, 2, 0, {"max_period": 3}),
    (1, 5, 2, {"max_period": 5, "shrink": False}),
    (2, 2, 5, {"epsilon": 4.0, "max_period": 4, "total_share": 0.05}),
    *exhaustive(
        (2, 2, 6, {"period": 3, "shrink": False}),
        (3, 2, 5, {}),
        (2, 2, 5, {"epsilon": 16.0, "period": 1, "total_share": 0.05}),
        (2, 2, 5, {"epsilon": 8.0, "period": 2, "shrink": False, "total_share": 0.05}),
    ),
]


def moving(steps: int, dim: int, seed: int) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """A cluster that is elsewhere at every fourth step, of which the last two steps are present."""
    generator = np.random.default_rng(seed)
    places = generator.random((steps, dim)).repeat(4, axis=0)
    made = [np.clip(generator.normal(place, 0.02, (40, dim)), 0, 1) for place in places[:steps]]
    return [(made[t], made[t - 2] if t >= 2 else np.empty((0, dim))) for t in range(steps)]


@pytest.mark.parametrize(
    "stream_of", [lambda dim: batches(24, dim, 11 + dim, size=12), lambda dim: moving(18, dim, dim)]
)
@pytest.mark.parametrize(("dim", "fan_out", "max_depth", "options"), CASES)
def test_equals_the_naive_version(dim: int, fan_out: int, max_depth: int, options: dict, stream_of) -> None:
    """With a count of all points it goes on from bytes, also between two counts."""
    domain, share = Box([0.0] * dim, [1.0] * dim), options.get("total_share")
    stream = make(domain, **{"epsilon": 2.0, "fan_out": fan_out, "max_depth": max_depth, **options})
    counting, steps, sizes = stream._machine.counting, stream_of(dim), set()
    followed = counting.noise, counting.first, stream.shrink, stream.period, stream.max_period
    naive, noise = counts_alone.Follower(reference(stream), *followed), noises(stream, steps)
    if share:
        naive.total_counter = total_count.Total(noise["total"], 2 / (Fraction(share) * Fraction(stream.epsilon)))
    for t, (added, removed) in enumerate(steps):
        stream.advance(added, removed)
        batch = added.tolist(), removed.tolist()
        expected = naive.step(*batch, noise["later"]) if t else naive.begin(*batch, noise["split"], noise["cell"])
        assert stream.next_count == naive.since + naive.period + 1
        compare(stream, expected)
        sizes.add(len(expected))
        assert (stream._state.last_count < stream._state.schedule.prompt) == naive.recounts
        if share:
            stream = AdaptivePHDStream.from_bytes(stream.to_bytes())
            compare(stream, expected)
            assert naive.total_counter.times == stream._state.total.steps
    # Trees of two levels have few shapes.
    assert max_depth == 0 or len(sizes) > min(max_depth - 1, 2), "cells were cut and merged"
    assert share or len(steps) == 24 or set(naive.kinds) == ({False, True} if max_depth else {False})


def test_an_event_is_counted_once_whatever_becomes_of_its_cell() -> None:
    stream = make(epsilon=200.0, max_depth=6, period=3)
    points, present = clustered(2000, 2, np.random.default_rng(1)), 0
    held = []
    for t in range(30):
        added = points[t * 60 : t * 60 + 60]
        removed = points[(t - 12) * 60 : (t - 12) * 60 + 55] if t >= 12 else None
        stream.advance(added, removed)
        present += 60 - (0 if removed is None else 55)
        state = stream._state
        waiting = sum(map(len, state.added)) - sum(map(len, state.removed))
        assert int(state.counted.released[0]) + waiting == present
        assert not state.added or stream.next_count > stream.n_steps
        held.append(len(state.added))
    assert min(held) == 0 < max(held) < 3


def test_what_is_released_between_counts_does_not_depend_on_the_batches() -> None:
    one, other = (make(period=4, seed=None, key=unbound_key(5)) for _ in range(2))
    for t, (added, removed) in enumerate(batches(13, 2, 3)):
        one.advance(added, removed)
        other.advance(np.concatenate([added, [[0.9, 0.9]]]) if t == 9 else added, removed)
        same = np.array_equal(one.tree.counts, other.tree.counts)
        assert same == (t < 12), "it comes in step 9 and is counted in step 12"
    difference = other._state.counted.released - one._state.counted.released
    assert sorted(set(difference.tolist())) == [0, 1], "one leaf and its ancestors, by 1, with the same noise"
    assert one._state.counted.first.tolist() == other._state.counted.first.tolist()


@pytest.mark.parametrize("size", [40_000, 300_000])
def test_events_wait_for_their_count_however_many_they_are(size: int) -> None:
    one, many = make(period=4, max_depth=4), make(period=4, max_depth=4)
    crowd = np.full((size, 2), 0.3)
    for step in range(1, 9):
        one.advance([[0.5, 0.5]])
        many.advance(crowd if step > 1 else [[0.5, 0.5]], crowd[: size - step] if step % 2 == 0 else None)
        assert one.next_count == many.next_count == (5 if step < 5 else 9)
        assert np.array_equal(one.tree.counts, many.tree.counts) == (step < 5)
    assert sum(map(len, many._state.added)) == 3 * size


def test_cells_are_chosen_before_the_batch_is_looked_at() -> None:
    ways = [clustered(400, 2, np.random.default_rng(7)), np.full((900, 2), 0.99), None]
    cells = []
    for last in ways:
        stream = advanced(make(epsilon=3.0, period=1), [*batches(5, 2, 4), (last, None)])
        cells.append(stream._state.tree.code.tolist())
    assert cells[0] == cells[1] == cells[2]
    assert len(cells[0]) > 9


def test_the_noise_is_that_of_the_key_step_and_place() -> None:
    stream = advanced(make(epsilon=0.02, period=2, max_depth=0), [(None, None)] * 3)
    assert stream._machine.counting.distribution == sampler.laplace_distribution(Simple().draws / Fraction(0.02))
    assert stream._plan.cell_distribution == sampler.laplace_distribution(2 / Fraction(0.02))
    keys, drawn = step_keys(stream, [(np.empty((0, 2)), np.empty((0, 2)))] * 3), []
    for distribution, step in ((stream._plan.cell_distribution, 0), (stream._machine.counting.distribution, 2)):
        noise = np.empty(1, np.int64)
        sampler.fill(noise, distribution, keys[step], StreamId(Purpose.CELL, number=step))
        drawn.append(int(noise[0]))
    counted = stream._state.counted
    assert (counted.released.tolist(), counted.weight.tolist()) == ([sum(drawn)], [4 + 1])


def test_domains_of_any_shape() -> None:
    plain, hidden = (make(domain, period=2, seed=None, key=bound_key(5)) for domain in (SQUARE, Plain(SQUARE)))
    below = Plain(HalfBox([0.0, 0.0], [1.0, 1.0], 0.6))
    cut = make(below, 5.0, period=2)
    for added, removed in batches(6, 2, 5):
        assert np.array_equal(plain.step(added, removed), hidden.step(added, removed))
        assert below.contains(cut.step(added[added[:, 1] <= 0.6])).all()
        assert (cut.tree.lower[:, 1] < 0.6).all()


def test_an_interrupt_leaves_the_batch_consumed_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    check_interrupt(monkeypatch, CountParameters, "recount", AdaptivePHDStream, period=1)


def test_the_period_follows_what_moves() -> None:
    generator = np.random.default_rng(5)
    size = 400
    estimate = np.full(size, 50.0)
    calm = wild = ReleaseSchedule(8)
    for step in range(12):
        for moves in (False, True):
            now = wild if moves else calm
            found = generator.laplace(0.0, 1.0, size) + moves * generator.normal(0.0, 20.0 * now.period, size)
            nothing = np.zeros(size)
            growth = Growth(np.rint(found).astype(np.int64), nothing, nothing, estimate, now.period)
            after = now.following(growth, estimate.sum(), 8 * (step + 1), 2.0, 64)
            assert now.period / 1.5 - 1 <= after.period <= now.period * 1.5 + 1
            calm, wild = (calm, after) if moves else (after, wild)
    assert calm.period > 24
    assert wild.period == 1
    assert periods(1).tolist() == [1]
    assert periods(64)[[0, -1]].tolist() == [1, 64]


def test_cells_do_not_pile_up_where_there_is_next_to_no_noise() -> None:
    stream = advanced(make(epsilon=60.0, period=1, max_depth=20), batches(6, 2, 1))
    assert stream.total > 200
    assert stream.tree.n_leaves < 20 * stream.total


def test_the_schedule_after_a_jump() -> None:
    before = ReleaseSchedule(9, prompt=0)
    jumped = before.after(50, True, PROMPT_STEPS)
    assert (jumped.period, jumped.prompt) == (1, 50 + PROMPT_STEPS)
    assert replace(jumped, period=3).after(49 + PROMPT_STEPS, False, TRIAL_STEPS) == jumped
    assert replace(jumped, period=3).after(50 + PROMPT_STEPS, False, TRIAL_STEPS) == replace(jumped, period=3)
    assert before.after(50, True, None) == replace(before, prompt=59)


def test_how_cells_are_chosen_does_not_follow_from_what_waits() -> None:
    steps = moving(20, 2, 3)
    at = 14
    three = [make(period=2, epsilon=4.0, seed=None, key=unbound_key(5)) for _ in range(3)]
    for t, (added, removed) in enumerate(steps[: at + 1]):
        for k, stream in enumerate(three):
            event = np.full((1, 2), 0.3)
            come = np.concatenate([added, event]) if (k, t) == (1, at - 1) else added
            gone = np.concatenate([removed, event]) if (k, t) == (2, at - 1) else removed
            if t == at - 1:
                kind = stream._state.last_count < stream._state.schedule.prompt
            stream.advance(come, gone)
        plain = three[0]._state
        if t == at - 1:
            assert kind, "the count to come lets PrivTree choose"
            for stream in three[1:]:
                assert stream.next_count == three[0].next_count == at + 1
                assert np.array_equal(stream.tree.counts, three[0].tree.counts)
    without, fewer = plain.counted, three[2]._state.counted
    assert without.code.tolist() == fewer.code.tolist()
    assert sorted({*(without.released - fewer.released).tolist()}) == [0, 1]
    assert int((without.released - fewer.released)[without.leaves].sum()) == 1
    more = three[1]._state.counted
    assert int(more.released[0]) != int(without.released[0])


def test_the_exact_loss_of_cells_chosen_by_privtree_is_half_of_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    real, losses = decomposition.take_step, []

    def watched(plan, *arguments):
        found = real(plan, *arguments)
        losses.append(tree_step_loss(plan, found[1]).worst)
        return found

    monkeypatch.setattr(decomposition, "take_step", watched)
    for seed in range(6):
        crowd = [tuple(np.repeat(points, 5, axis=0) for points in batch) for batch in moving(40, 2, seed)]
        advanced(make(epsilon=1.0, seed=seed, max_depth=20), crowd)
    assert len(losses) > 60
    assert 0.2 < max(losses) <= 0.5
