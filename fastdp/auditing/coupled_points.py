"""Couplings of counters and of everything that publishes a changing set of points.

An event shifts one draw of each noisy sum that it enters, and the draws of the split decisions on its path whose scores
are above the floor.  A decision is all that its draw decides, so it costs the logarithm of the ratio of its tails, not
the shift (``docs/phdstream.md``, "Proof of the repaired step").
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.analysis.tree_loss import log_above, log_at_most
from fastdp.auditing.couplings import KEY, Case, Instance, Seen, Shifts, Table
from fastdp.auditing.coupled_streams import pick
from fastdp.auditing.mechanisms import Coin
from fastdp.counters import BinaryTree, Block, Counter, RunningCounts, Selected, SelectiveCounting, Simple
from fastdp.randomness.words import Purpose, StreamId
from fastdp.spatial import Box, PrivTree, counts_alone, decomposition
from fastdp.spatial.cells import Evidence, Visit, encode
from fastdp.spatial.plan import Plan
from fastdp.systems.adaptive_phdstream import AdaptivePHDStream
from fastdp.systems.phdstream import PHDStream
from fastdp.systems.spatial_baselines import FixedTree, OfflineOnBatch
from fastdp.systems.spatial_publisher import SpatialPublisher

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Generator = np.random.Generator
#: A batch of points added and removed, and by how much the size that all know differs from theirs.
Batch = tuple[Floats, Floats, int]
#: Coordinates of the small sets: borders of cells, and points that share one.
COORDINATES = np.array([0.0, 0.1, 0.1, 0.12, 0.25, 0.5, 0.7, 0.99, 1.0])


@dataclass(frozen=True)
class Event:
    """One event more, in the first stream or in the adjacent one.

    Attributes
    ----------
    batch : int
        Where.
    point : float64[1, d]
        What comes or goes.
    removal : bool
        Whether it goes.
    here : bool
        Whether the first stream has it.
    """

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
        added, removed, _ = batches[self.batch]
        if self.removal:
            batch = added, np.concatenate([removed, self.point]), 1
        else:
            batch = np.concatenate([added, self.point]), removed, -1
        more = [*batches[: self.batch], batch, *batches[self.batch + 1 :]]
        return (more, batches) if self.here else (batches, more)


class Follower:
    """A counter that notes the errors of one run, or makes those of the adjacent run what they must be.

    Parameters
    ----------
    counter : Counter
        What counts.
    table : Table
        Whose last draws are the counter's noise.
    errors : list
        Of the first run: filled, or followed where ``shifts`` are given.
    shifts : Shifts, optional
        Receives what the noise of the adjacent run is shifted by.
    event : (StreamId, int, int), optional
        The draws, the row, and by how much the input differs there.
    """

    def __init__(
        self,
        counter: Counter,
        table: Table,
        errors: list[Integers],
        shifts: Shifts | None = None,
        event: tuple[StreamId, int, int] | None = None,
    ) -> None:
        self.width, self.draws, self.settles = counter.width, counter.draws, counter.settles
        self._counter, self._table, self._errors, self._shifts, self._event = counter, table, errors, shifts, event
        self._calls = 0

    def step(self, state: Integers, noise: Integers) -> Integers:
        """The counter's."""
        return self._follow(self._counter.step, state, noise)

    def settle(self, state: Integers, noise: Integers) -> Integers:
        """The counter's."""
        return self._follow(self._counter.settle, state, noise)

    def _follow(self, work: Callable[[Integers, Integers], Integers], state: Integers, noise: Integers) -> Integers:
        if self._shifts is None:
            error = work(state, noise)
            self._errors.append(error.copy())
            return error
        wanted = self._errors[self._calls].copy() if self._calls < len(self._errors) else noise[:0]
        self._calls += 1
        key, stream = self._table.last
        if self._event is not None and stream == self._event[0]:
            wanted[self._event[1]] -= self._event[2]
        tried = work(state.copy(), noise.copy())
        if wanted.shape != tried.shape:
            # Only where outputs differ, which the check will say.
            return work(state, noise)
        missing: Integers = wanted - tried
        for row in np.flatnonzero(missing).tolist():
            self._shifts.add(key, stream, row, int(missing[row]))
        return work(state, noise + missing)


# Split decisions.

#: Number of a step, its tree, and what its decisions were made from.
Steps = dict[int, tuple[Visit, Evidence]]


@contextlib.contextmanager
def noted_steps() -> Iterator[Steps]:
    """What PrivTree decided, step by step, while entered."""
    steps: Steps = {}
    real = decomposition.take_step

    def noting(plan: Plan, residents: Any, added: Any, removed: Any, step: int, *others: Any) -> Any:
        found = real(plan, residents, added, removed, step, *others)
        steps[step] = (found[1], found[2])
        return found

    decomposition.take_step = counts_alone.take_step = noting
    try:
        yield steps
    finally:
        decomposition.take_step = counts_alone.take_step = real


def on_path(plan: Plan, visit: Visit, code: int) -> NDArray[np.bool_]:
    """Which nodes hold the event's cell of the greatest depth."""
    widths = np.array([plan.fan_out ** (plan.max_depth - depth) for depth in visit.depth.tolist()], np.int64)
    holds: NDArray[np.bool_] = visit.code == code // widths
    return holds


def leaf_of(plan: Plan, visit: Visit, code: int) -> int:
    """The place among the leaves of the one that counts the event."""
    return int(np.flatnonzero(on_path(plan, visit, code)[visit.leaves])[0])


def decide(shifts: Shifts, plan: Plan, step: int, found: tuple[Visit, Evidence], code: int, more: int) -> None:
    """Shift the draws of the decisions whose scores rise by ``more`` points, and add the cost of those decisions."""
    visit, evidence = found
    floor, scale = plan.threshold - plan.bias, float(plan.split_law.scale)
    moved = evidence.score + np.where(on_path(plan, visit, code), more * plan.unit, 0)
    before, after = (np.maximum(score, floor) for score in (evidence.score, moved))
    made = visit.depth < plan.max_depth
    for node in np.flatnonzero(made & (before != after)).tolist():
        shifts.add(KEY, StreamId(Purpose.SPLIT, number=step), node, int(before[node] - after[node]))
    logs = [
        np.where(visit.first >= 0, log_above(score - plan.threshold, scale), log_at_most(score - plan.threshold, scale))
        for score in (before, after)
    ]
    shifts.loss += abs(float((logs[0] - logs[1])[made].sum()))


# What is seen.


def see_points(make: Callable[[], SpatialPublisher], saved: int, batches: list[Batch]) -> Seen:
    """Trees, synthetic points and counts after each batch, with the state saved and loaded behind one of them."""
    seen = Seen()
    with seen.warned():
        stream = make()
        for number, (added, removed, public) in enumerate(batches):
            if isinstance(stream, OfflineOnBatch):
                # The number of points is public, and the same for adjacent streams.
                stream._state = replace(stream._state, size=stream._state.size + public)
            seen.add("points", stream.step(added, removed))
            if number == saved:
                stream = seen.reloaded(stream)
            tree = stream.tree
            seen.add("tree", tree.lower, tree.upper, tree.counts, tree.depths, repr(tree), str(tree))
            seen.add("total", stream.total, stream.n_steps, stream.guarantee)
            half = np.full((1, stream.domain.dim), 0.5)
            seen.add("counts", stream.count(half * 0.3, half * 1.7), stream.count(half * 0.0, half))
            seen.add("samples", stream.sample(), tree.sample(1))
            if isinstance(stream, AdaptivePHDStream):
                seen.add("next_count", stream.next_count)
            if isinstance(stream, PHDStream):
                seen.add("n_nodes", stream.n_nodes)
    return seen


# Instances.


def points_of(generator: Generator, dim: int, most: int) -> Floats:
    """A few points, many of them equal."""
    drawn: Floats = generator.choice(COORDINATES, (int(generator.integers(most + 1)), dim))
    return drawn


def batches_of(generator: Generator, dim: int, count: int) -> list[Batch]:
    """Batches of few points or none, the first one larger."""
    sizes = [40, *generator.choice([0, 3, 12], count - 1).tolist()]
    return [(points_of(generator, dim, size), points_of(generator, dim, size // 3), 0) for size in sizes]


def event_of(generator: Generator, dim: int, count: int, *, removal: bool | None = None) -> Event:
    """An event in the first batch, the last or any other."""
    batch = int(pick(generator, 0, 1, count - 1, int(generator.integers(count))))
    goes = bool(pick(generator, False, True)) if removal is None else removal
    return Event(batch % count, generator.choice(COORDINATES, (1, dim)), goes, bool(pick(generator, False, True)))


def of_points(
    generator: Generator,
    make: Callable[[], SpatialPublisher],
    count: int,
    *,
    saves: bool = True,
    event: Event | None = None,
    batches: list[Batch] | None = None,
    epsilon: float | None = None,
) -> Instance:
    """A publisher of points and so many batches; by default it claims what it guarantees."""
    stream = make()
    dim, plan = stream.domain.dim, stream._plan
    event = event_of(generator, dim, count) if event is None else event
    x, there = event.streams(batches_of(generator, dim, count) if batches is None else batches)
    code = int(encode(plan, event.point)[0])

    def shifts(table: Table) -> Shifts:
        if isinstance(stream, AdaptivePHDStream):
            return _counted(make(), x, event, code)
        return _followed(make, table, x, there, event, code)

    saved = int(generator.integers(count)) if saves else -1
    claim = stream.guarantee.epsilon if epsilon is None else epsilon
    return Instance(claim, partial(see_points, make, saved), x, there, shifts)


def _counted(stream: AdaptivePHDStream, x: list[Batch], event: Event, code: int) -> Shifts:
    """Of cells that follow counts: the one count that the event waits for, and PrivTree's decisions where it chose."""
    found, plan = Shifts(), stream._plan
    with noted_steps() as steps:
        for number, (added, removed, _) in enumerate(x):
            stream.advance(added, removed)
            if number >= event.batch and stream._state.counted == number + 1:
                visit = stream._state.visit
                assert visit is not None  # noqa: S101 - a count has been made
                if number in steps and not event.removal:
                    decide(found, plan, number, steps[number], code, event.effect)
                place = leaf_of(plan, visit, code)
                found.add(KEY, StreamId(Purpose.CELL, number=number), place, -event.effect)
                break
    return found


def _followed(
    make: Callable[[], SpatialPublisher],
    table: Table,
    x: list[Batch],
    there: list[Batch],
    event: Event,
    code: int,
) -> Shifts:
    """Of counters at work: PrivTree's decisions, and the sums that hold the event, by following both runs."""
    found = Shifts()
    errors: tuple[list[Integers], list[Integers]] = [], []
    first = make()
    _follow(first, table, errors)
    visits = []
    with noted_steps() as steps:
        for added, removed, _ in x:
            first.advance(added, removed)
            visits.append(first._state.visit)
    plan, visit = first._plan, visits[event.batch]
    assert visit is not None  # noqa: S101 - a step has been taken
    if event.batch in steps and not (event.removal and plan.repaired):
        decide(found, plan, event.batch, steps[event.batch], code, event.effect)
    where = StreamId(Purpose.CELL, number=event.batch), leaf_of(plan, visit, code), event.effect
    second = make()
    with Table(table.seed, found) as again:
        _follow(second, again, errors, found, where)
        for added, removed, _ in there:
            second.advance(added, removed)
    return found


def _follow(stream: SpatialPublisher, table: Table, errors: tuple[list[Integers], list[Integers]], *others: Any) -> None:
    stream._plan = replace(stream._plan, counter=Follower(stream._plan.counter, table, errors[0], *others))
    if isinstance(stream, FixedTree):
        stream.counter = Follower(stream.counter, table, errors[1], *others)


def domain_of(generator: Generator) -> Box:
    """The unit interval, or the unit square."""
    return pick(generator, Box(0, 1), Box((0, 0), (1, 1)))


def shape_of(generator: Generator) -> dict[str, Any]:
    """Parameters of all publishers of points."""
    return {
        "domain": domain_of(generator),
        "epsilon": float(pick(generator, 0.5, 1.0, 6.0)),
        "max_depth": int(pick(generator, 0, 2, 6)),
        "fan_out": int(pick(generator, 2, 3)),
    }


def counter_of(generator: Generator) -> Counter:
    """One of all counters, with trees and blocks short enough to end."""
    return pick(
        generator,
        Simple(),
        Block(3),
        Block(3, settles=True),
        BinaryTree(4),
        BinaryTree(5, settles=True),
    )


def phdstream(generator: Generator) -> Instance:
    """Each counter; cells that are forgotten."""
    options = {**shape_of(generator), "counter": counter_of(generator), "retention": int(pick(generator, 0, 1, 16))}
    return of_points(generator, lambda: PHDStream(**options, key=KEY), int(generator.integers(1, 10)))


def adaptive_phdstream(generator: Generator) -> Instance:
    """Counts at public times, planted anew or not."""
    options = {
        **shape_of(generator),
        "period": pick(generator, None, 1, 3),
        "max_period": 4,
        "shrink": bool(pick(generator, False, True)),
    }
    if options["period"] is not None:
        del options["max_period"]
    return of_points(generator, lambda: AdaptivePHDStream(**options, key=KEY), int(generator.integers(1, 14)))


def planted(generator: Generator) -> Instance:
    """Next to nothing at first, then much at one place: PrivTree chooses the cells of a later count."""
    options = {**shape_of(generator), "epsilon": 6.0, "max_depth": 6, "period": int(pick(generator, 1, 2))}
    dim, count = options["domain"].dim, 6
    batches: list[Batch] = [(np.zeros((0, dim)), np.zeros((0, dim)), 0)]
    batches += [(np.full((30, dim), generator.choice(COORDINATES)), np.zeros((0, dim)), 0) for _ in range(count - 1)]
    event = event_of(generator, dim, count)
    return of_points(
        generator, lambda: AdaptivePHDStream(**options, key=KEY), count, event=event, batches=batches
    )


def baselines(generator: Generator) -> Instance:
    """Those with a guarantee; of the one that scales its trees up the number of points is public."""
    options = shape_of(generator)
    if pick(generator, False, True):
        return of_points(generator, lambda: OfflineOnBatch(**options, key=KEY), int(generator.integers(1, 6)))
    counter = counter_of(generator)
    return of_points(generator, lambda: FixedTree(counter=counter, **options, key=KEY), int(generator.integers(1, 12)))


def privtree(generator: Generator) -> Instance:
    """One set of points."""
    options = shape_of(generator)
    dim, plan = options["domain"].dim, PrivTree(**options, key=KEY)._plan
    event = replace(event_of(generator, dim, 1, removal=False), batch=0)
    x, there = event.streams([(points_of(generator, dim, 40), np.zeros((0, dim)), 0)])
    code = int(encode(plan, event.point)[0])

    def publish(batches: list[Batch]) -> Seen:
        seen = Seen()
        with seen.warned():
            fitted = PrivTree(**options, key=KEY)
            tree = fitted.fit(batches[0][0])
            seen.add("tree", tree.lower, tree.upper, tree.counts, tree.depths, tree.total, repr(tree), str(tree))
            seen.add("samples", tree.sample(1), fitted.guarantee)
        return seen

    def shifts(_: Table) -> Shifts:
        found = Shifts()
        with noted_steps() as steps:
            PrivTree(**options, key=KEY).fit(x[0][0])
        decide(found, plan, 0, steps[0], code, event.effect)
        found.add(KEY, StreamId(Purpose.CELL), leaf_of(plan, steps[0][0], code), -event.effect)
        return found

    return Instance(PrivTree(**options, key=KEY).guarantee.epsilon, publish, x, there, shifts)


def running_counts(generator: Generator, counter: Counter | None = None) -> Instance:
    """Several running sums, one event in one of them; by default with any counter."""
    saves = counter is None
    counter = counter_of(generator) if counter is None else counter
    size, count = 3, int(generator.integers(1, 12))
    epsilon = float(pick(generator, 0.5, 1.0, 6.0))
    x = generator.integers(-2, 3, (count, size))
    step, row, effect = int(generator.integers(count)), int(generator.integers(size)), int(pick(generator, -1, 1))
    there = x.copy()
    there[step, row] += effect
    saved = int(generator.integers(count)) if saves else -1

    def publish(values: Integers) -> Seen:
        seen = Seen()
        counts = RunningCounts(counter, epsilon, size, key=KEY)
        for number, increments in enumerate(values):
            seen.add("sums", counts.step(increments))
            if number == saved:
                counts = seen.reloaded(counts)
            seen.add("released", counts.released, counts.n_steps, counts.guarantee)
        return seen

    def shifts(table: Table) -> Shifts:
        found, errors = Shifts(), list[Integers]()
        where = StreamId(Purpose.CELL, number=step), row, effect
        for values, others in ((x, ()), (there, (found, where))):
            counts = RunningCounts(counter, epsilon, size, key=KEY)
            counts.counter = Follower(counter, table, errors, *others)
            for increments in values:
                counts.step(increments)
        return found

    return Instance(RunningCounts(counter, epsilon, size, key=KEY).guarantee.epsilon, publish, x, there, shifts)


@dataclass(frozen=True)
class FlippedCoin(Coin):
    """A coin whose word is the opposite at one step: what keeps its choice where the input changes sides."""

    flipped: int = -1

    def select(self, values: Integers, step: int, last: Selected | None) -> int:
        """The coin's."""
        choice = super().select(values, step, last)
        return 1 - choice if step == self.flipped else choice


def selective(generator: Generator, kind: type[SelectiveCounting] = SelectiveCounting) -> Instance:
    """Two counters and a coin; the coin's word is coupled, too."""
    counters = [counter_of(generator) for _ in range(2)]
    epsilon, seed, count = float(pick(generator, 0.5, 1.0, 6.0)), int(generator.integers(2**30)), 12
    x = generator.integers(-1, 2, count)
    step, effect = int(generator.integers(count)), int(pick(generator, -1, 1))
    there = x.copy()
    there[step] += effect
    flipped = step if (x[step] > 0) != (there[step] > 0) else -1
    saved = -1 if kind is not SelectiveCounting else int(generator.integers(count))

    def publish(data: tuple[Integers, int]) -> Seen:
        seen, coin = Seen(), FlippedCoin(epsilon, seed, data[1])
        counting = kind(counters, coin, epsilon, key=KEY)
        for number, value in enumerate(data[0].tolist()):
            selected = counting.step(value)
            seen.add("counts", selected.counter, selected.counts, repr(selected))
            if number == saved:
                counting = seen.reloaded(counting, selector=coin)
            seen.add("place", counting.n_steps, counting.guarantee)
        return seen

    def shifts(table: Table) -> Shifts:
        found = Shifts()
        chosen: list[int] = []
        counting = kind(counters, FlippedCoin(epsilon, seed), epsilon, key=KEY)
        for value in x.tolist():
            chosen.append(counting.step(value).counter)
        # Each counter has steps of its own, so the event is at one of the chosen counter's.
        own = chosen[step]
        where = StreamId(Purpose.CELL, number=chosen[:step].count(own)), 0, effect
        errors: list[list[Integers]] = [[], []]
        for values, coin, others in (
            (x, FlippedCoin(epsilon, seed), ((), ())),
            (there, FlippedCoin(epsilon, seed, flipped), ((found, where), (found, None))),
        ):
            counting = kind(counters, coin, epsilon, key=KEY)
            for number, counts in enumerate(counting._counts):
                counts.counter = Follower(
                    counters[number], table, errors[number], *others[0 if number == own else 1]
                )
            for value in values.tolist():
                counting.step(value)
        found.loss += epsilon if flipped >= 0 else 0.0
        return found

    claim = kind(counters, FlippedCoin(epsilon, seed), epsilon, key=KEY).guarantee.epsilon
    return Instance(claim, publish, (x, -1), (there, flipped), shifts)


def point_cases() -> list[Case]:
    """Counters, and publishers of points."""
    return [
        Case("running-counts", running_counts),
        Case("selective-counting", selective),
        Case("privtree", privtree),
        Case("phdstream", phdstream),
        Case("phdstream-adaptive", adaptive_phdstream),
        Case("phdstream-planted", planted),
        Case("baselines", baselines),
    ]
