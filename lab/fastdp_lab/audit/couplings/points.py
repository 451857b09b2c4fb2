"""Couplings of counters and of everything that publishes a changing set of points.

An event shifts one draw of each noisy sum that it enters, and the draws of the split decisions on its path whose
scores are above the floor.  A decision is all that its draw decides, so it costs the logarithm of the ratio of its
tails, not the shift (``docs/points.md``, "One step of PHDStream").
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial, partialmethod
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from fastdp import AdaptivePHDStream, Key, PHDStream
from fastdp.counters import BinaryTree, Block, Counter, RunningCounts, SelectiveCounting, Simple
from fastdp.kinds import Floats, Integers, Json
from fastdp.noise.words import Purpose, StreamId
from fastdp.points import Box, PrivTree
from fastdp.points.decomposition import Tree
from fastdp.points.domains import CellParameters, encode
from fastdp.points.phdstream import LEVEL
from fastdp_lab.audit.catalogue import Coin
from fastdp_lab.audit.couplings import check
from fastdp_lab.audit.couplings.check import (
    KEY,
    Draw,
    Generator,
    Instance,
    Name,
    Outputs,
    Shifts,
    Table,
    name_of,
    pick,
    reloaded,
)
from fastdp_lab.audit.tree_loss import Steps, log_above, log_at_most, noted_steps

#: A new publisher with this ``key``.
Make = Callable[..., Any]
#: A batch of points added and removed.
Batch = tuple[Floats, Floats]
#: Coordinates of the small sets: borders of cells, and points that share one.
COORDINATES = np.array([0.0, 0.1, 0.1, 0.12, 0.25, 0.5, 0.7, 0.99, 1.0])


class Event(NamedTuple):
    """One event more, in the first stream or in the adjacent one."""

    batch: int
    point: Floats
    removal: bool
    here: bool

    @property
    def effect(self) -> int:
        """The adjacent stream's count of the event's cell, less the first one's."""
        return (-1 if self.here else 1) * (-1 if self.removal else 1)

    def streams(self, batches: list[Batch]) -> tuple[list[Batch], list[Batch]]:
        """The first stream and the adjacent one, from one without the event."""
        added, removed = batches[self.batch]
        if self.removal:
            batch = added, np.concatenate([removed, self.point])
        else:
            batch = np.concatenate([added, self.point]), removed
        more = [*batches[: self.batch], batch, *batches[self.batch + 1 :]]
        return (more, batches) if self.here else (batches, more)


# Counters.


@dataclass
class Follower:
    """Notes the errors of all counters in a first run, and shifts noise of the adjacent run until they are as wanted.

    In the adjacent run errors differ by the events alone.
    """

    errors: list[Integers]
    shifts: Shifts | None = None
    events: dict[Name, tuple[int, int]] = field(default_factory=dict)

    @contextlib.contextmanager
    def on(self, table: Table) -> Iterator[None]:
        """While entered; the table's last draws are the noise of a call."""
        calls = iter(tuple(self.errors))

        def follow(work: Any, counter: Counter, state: Integers, noise: Integers) -> Integers:
            if self.shifts is None:
                self.errors.append(work(counter, state, noise))
                return self.errors[-1].copy()
            wanted = next(calls, noise[:0]).copy()
            if table.last in self.events:
                row, effect = self.events[table.last]
                wanted[row] -= effect
            tried = work(counter, state.copy(), noise.copy())
            # Shapes differ only where outputs do, which the check reports.
            missing = wanted - tried if wanted.shape == tried.shape else np.zeros_like(noise)
            for row in np.flatnonzero(missing).tolist():
                self.shifts.by[table.last][row] += int(missing[row])
            return np.asarray(work(counter, state, noise + missing))

        with contextlib.ExitStack() as stack:
            for kind, method in itertools.product((Simple, Block, BinaryTree), ("step", "settle")):
                followed = partialmethod(_as_method, follow, getattr(kind, method))
                stack.enter_context(mock.patch.object(kind, method, followed))
            yield


def _as_method(counter: Counter, follow: Any, work: Any, state: Integers, noise: Integers) -> Any:
    return follow(work, counter, state, noise)


# Split decisions.


def on_path(plan: CellParameters, tree: Tree, code: int) -> NDArray[np.bool_]:
    """Flags of nodes that hold the event's cell of the greatest depth."""
    widths = np.array([plan.fan_out ** (plan.max_depth - depth) for depth in tree.depth.tolist()], np.int64)
    return np.asarray(tree.code == code // widths)


def leaf_of(plan: CellParameters, tree: Tree, code: int) -> int:
    """Index, among the leaves, of the one that counts the event."""
    return int(np.flatnonzero(on_path(plan, tree, code)[tree.leaves])[0])


def decide(shifts: Shifts, plan: CellParameters, step: int, tree: Tree, code: int, more: int) -> None:
    """Shift the draws of the decisions whose scores rise by ``more`` points, and add the cost of those decisions."""
    floor, scale = plan.threshold - plan.bias, float(plan.split_distribution.scale)
    moved = tree.score + np.where(on_path(plan, tree, code), more * plan.unit, 0)
    scores = before, after = np.maximum(tree.score, floor), np.maximum(moved, floor)
    made = tree.depth < plan.max_depth
    for node in np.flatnonzero(made & (before != after)).tolist():
        shifts.add(KEY, StreamId(Purpose.SPLIT, number=step), node, int(before[node] - after[node]))
    logs = [
        np.where(tree.first >= 0, log_above(above, scale), log_at_most(above, scale))
        for above in (score - plan.threshold for score in scores)
    ]
    shifts.loss += abs(float((logs[0] - logs[1])[made].sum()))


def point_shifts(
    make: Make, x: list[Batch], there: list[Batch], event: Event, code: int, table: Table, shifts: Shifts
) -> None:
    """PrivTree's decisions, and the sums that hold the event, by following both runs.

    Of cells that follow counts the first count from the event on has it, alone; that of all points at once.
    """

    def run(own: Table, follower: Follower, batches: list[Batch]) -> tuple[Any, list[Any], Steps]:
        stream, states = make(key=own.key), []
        with noted_steps() as steps, follower.on(own):
            for added, removed in batches:
                stream.advance(added, removed)
                states.append(stream.state)
        return stream, states, steps

    first = Follower([])
    stream, states, steps = run(table, first, x)
    plan, number, later = stream._plan, event.batch, isinstance(stream, AdaptivePHDStream)
    if later:
        number = next((n for n in range(number, len(x)) if states[n].last_count == n + 1), -1)
    events = {name_of(KEY, StreamId(Purpose.CELL, level=LEVEL, number=event.batch)): (0, event.effect)}
    if number >= 0:
        if number in steps and not (event.removal and (later or plan.repaired)):
            decide(shifts, plan, number, steps[number], code, event.effect)
        cells = StreamId(Purpose.CELL, number=number)
        leaf = leaf_of(plan, states[number].tree, code)
        events[name_of(KEY, cells)] = leaf, event.effect
        if later:
            shifts.add(KEY, cells, leaf, -event.effect)
    run(Table(table.seed, shifts), Follower(first.errors, shifts, events), there)


def see_points(make: Make, saved: int, key: Key, batches: list[Batch]) -> Outputs:
    """Trees, synthetic points and counts after each batch, with the state saved and loaded after one of them."""
    stream = make(key=key)
    for number, (added, removed) in enumerate(batches):
        yield "points", stream.step(added, removed)
        if number == saved:
            stream = reloaded(stream)
        tree = stream.tree
        yield "tree", tree.lower, tree.upper, tree.counts, tree.depths, repr(tree), str(tree)
        yield "total", stream.total, stream.n_steps, stream.guarantee
        half = np.full((1, stream.domain.dim), 0.5)
        yield "counts", stream.count(half * 0.3, half * 1.7), stream.count(half * 0.0, half)
        yield "samples", stream.sample(), tree.sample(1)
        if isinstance(stream, AdaptivePHDStream):
            yield "next_count", stream.next_count
        if isinstance(stream, PHDStream):
            yield "n_nodes", stream.n_nodes


def points_of(rng: Generator, dim: int, most: int) -> Floats:
    """A few points, many of them equal."""
    return np.asarray(rng.choice(COORDINATES, (int(rng.integers(most + 1)), dim)), np.float64)


def batches_of(rng: Generator, dim: int, count: int) -> list[Batch]:
    """Batches of few points or none, the first one larger."""
    sizes = [40, *rng.choice([0, 3, 12], count - 1).tolist()]
    return [(points_of(rng, dim, size), points_of(rng, dim, size // 3)) for size in sizes]


# Small random instances of counters and of everything that publishes a changing set of points.


COUNTERS = Simple(), Block(3), Block(3, settles=True), BinaryTree(4), BinaryTree(5, settles=True)


# Counters.


def counter_of(rng: Generator) -> Counter:
    """One of all counters, with trees and blocks short enough to end."""
    return pick(rng, *COUNTERS)  # type: ignore[no-any-return]


def running_counts(rng: Generator, counter: Counter | None = None) -> Instance:
    """Several running sums, one event in one of them; by default with any counter."""
    saves, counter = counter is None, counter_of(rng) if counter is None else counter
    size, count = 3, int(rng.integers(1, 12))
    make = partial(RunningCounts, counter, pick(rng, 0.5, 1.0, 6.0), size)
    x = rng.integers(-2, 3, (count, size))
    step, row, effect = int(rng.integers(count)), int(rng.integers(size)), pick(rng, -1, 1)
    there = x.copy()
    there[step, row] += effect
    saved = int(rng.integers(count)) if saves else -1

    def publish(key: Key, values: Integers) -> Outputs:
        counts = make(key=key)
        for number, increments in enumerate(values):
            yield "sums", counts.step(increments)
            if number == saved:
                counts = check.reloaded(counts)
            yield "released", counts.released, counts.n_steps, counts.guarantee

    def shifts(table: Table, found: Shifts) -> None:
        first = Follower([])
        event = {check.name_of(KEY, StreamId(Purpose.CELL, number=step)): (row, effect)}
        for values, follower in ((x, first), (there, Follower(first.errors, found, event))):
            counts = make(key=table.key)
            with follower.on(table):
                for increments in values:
                    counts.step(increments)

    return Instance(make(key=KEY).guarantee.epsilon, publish, x, there, shifts)


@dataclass(frozen=True)
class FlippedCoin(Coin):
    """A coin whose word is the opposite at one step: what keeps its choice where the input changes sides."""

    flipped: int = -1

    def select(self, values: Integers, step: int, last: Any) -> int:
        """The coin's."""
        choice = super().select(values, step, last)
        return 1 - choice if step == self.flipped else choice


def selective_counting(rng: Generator, key_of: Callable[[Key], Key] = lambda key: key) -> Instance:
    """Two counters and a coin, whose word is coupled too; ``key_of`` makes the publisher's key of a table's."""
    counters = [counter_of(rng) for _ in range(2)]
    epsilon, seed, count = pick(rng, 0.5, 1.0, 6.0), int(rng.integers(2**30)), 12
    x = rng.integers(-1, 2, count)
    step, effect = int(rng.integers(count)), pick(rng, -1, 1)
    there = x.copy()
    there[step] += effect
    flipped = step if (x[step] > 0) != (there[step] > 0) else -1
    saved = int(rng.integers(count))

    def make(key: Key, coin: FlippedCoin) -> SelectiveCounting:
        return SelectiveCounting(counters, coin, epsilon, key=key_of(key))

    def publish(key: Key, data: tuple[Integers, int]) -> Outputs:
        coin = FlippedCoin(epsilon, seed, data[1])
        counting = make(key, coin)
        for number, value in enumerate(data[0].tolist()):
            selected = counting.step(value)
            yield "counts", selected.counter, selected.counts, repr(selected)
            if number == saved:
                counting = check.reloaded(counting, selector=coin)
            yield "place", counting.n_steps, counting.guarantee

    def shifts(table: Table, found: Shifts) -> None:
        def choices(values: Integers, flips: int, follower: Follower) -> list[int]:
            counting = make(table.key, FlippedCoin(epsilon, seed, flips))
            with follower.on(table):
                return [counting.step(value).counter for value in values.tolist()]

        first = Follower([])
        chosen = choices(x, -1, first)
        # Each counter has steps of its own, so the event is at one of the chosen counter's.
        where = StreamId(Purpose.CELL, number=chosen[:step].count(chosen[step]))
        own = check.name_of(key_of(table.key).derive("counter", chosen[step]), where)
        choices(there, flipped, Follower(first.errors, found, {own: (0, effect)}))
        found.loss += epsilon if flipped >= 0 else 0.0

    claim = make(KEY, FlippedCoin(epsilon, seed)).guarantee.epsilon
    return Instance(claim, publish, (x, -1), (there, flipped), shifts)


# Points.


def event_of(rng: Generator, dim: int, count: int, *, removal: bool | None = None) -> Event:
    """An event in the first batch, the last or any other."""
    batch = pick(rng, 0, 1, count - 1, int(rng.integers(count)))
    removes = pick(rng, False, True) if removal is None else removal
    return Event(batch % count, rng.choice(COORDINATES, (1, dim)), removes, pick(rng, False, True))


def of_points(
    rng: Generator,
    make: Make,
    count: int,
    *,
    saves: bool = True,
    event: Event | None = None,
    batches: list[Batch] | None = None,
) -> Instance:
    """A publisher of points and so many batches."""
    stream = make(key=KEY)
    event = event or event_of(rng, stream.domain.dim, count)
    x, there = event.streams(batches or batches_of(rng, stream.domain.dim, count))
    shifts = partial(point_shifts, make, x, there, event, int(encode(stream._plan, event.point)[0]))
    saved = int(rng.integers(count)) if saves else -1
    return Instance(stream.guarantee.epsilon, partial(see_points, make, saved), x, there, shifts)


def shape_of(rng: Generator) -> Json:
    """Parameters of all publishers of points, on the unit interval or the unit square."""
    return {
        "domain": pick(rng, Box(0, 1), Box((0, 0), (1, 1))),
        "epsilon": pick(rng, 0.5, 1.0, 6.0),
        "max_depth": pick(rng, 0, 2, 6),
        "fan_out": pick(rng, 2, 3),
    }


def phdstream(rng: Generator) -> Instance:
    """Draw a PHDStream with each counter and with cells that are forgotten."""
    options = {**shape_of(rng), "counter": counter_of(rng), "retention": pick(rng, 0, 1, 16)}
    return with_whole(rng, options, PHDStream, int(rng.integers(1, 10)))


def phdstream_adaptive(rng: Generator) -> Instance:
    """Counts at public times, with cells of the past or chosen by PrivTree."""
    options = {**shape_of(rng), "period": pick(rng, None, 1, 3), "shrink": pick(rng, False, True)}
    options |= {"max_period": 4} if options["period"] is None else {}
    return with_whole(rng, options, AdaptivePHDStream, int(rng.integers(1, 14)))


def with_whole(rng: Generator, options: Json, kind: Make, count: int) -> Instance:
    """Draw a PHDStream that counts all points in every other instance; a block of that count may end."""
    share = pick(rng, 0.0, 0.0, 0.05, 0.5)
    make = partial(kind, **options, total_share=share)
    return of_points(rng, make, pick(rng, count, 18) if share else count)


def privtree(rng: Generator) -> Instance:
    """One set of points."""
    make = partial(PrivTree, **shape_of(rng))
    plan, dim = make(key=KEY)._plan, make(key=KEY).domain.dim
    event = event_of(rng, dim, 1, removal=False)._replace(batch=0)
    x, there = event.streams([(points_of(rng, dim, 40), np.zeros((0, dim)))])
    code = int(encode(plan, event.point)[0])

    def publish(key: Key, batches: list[Batch]) -> Outputs:
        fitted = make(key=key)
        tree = fitted.fit(batches[0][0])
        yield "tree", tree.lower, tree.upper, tree.counts, tree.depths, tree.total, repr(tree), str(tree)
        yield "samples", tree.sample(1), fitted.guarantee

    def shifts(table: Table, found: Shifts) -> None:
        with noted_steps() as steps:
            make(key=table.key).fit(x[0][0])
        decide(found, plan, 0, steps[0], code, event.effect)
        found.add(KEY, StreamId(Purpose.CELL), leaf_of(plan, steps[0], code), -event.effect)

    return Instance(make(key=KEY).guarantee.epsilon, publish, x, there, shifts)


_DRAWN = (running_counts, selective_counting, privtree, phdstream, phdstream_adaptive)
#: Counters, and publishers of points.
POINTS: dict[str, Draw] = {draw.__name__.replace("_", "-"): draw for draw in _DRAWN}
