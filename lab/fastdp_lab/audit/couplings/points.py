"""Couplings of counters and of everything that publishes a changing set of points.

An event shifts one draw of each noisy sum that it enters, and the draws of the split decisions on its path whose
scores are above the floor.  A decision is all that its draw decides, so it costs the logarithm of the ratio of its
tails, not the shift (``docs/phdstream.md``, "Proof of the repaired step").
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.counters import Counter
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId
from fastdp.spatial import count_only, decomposition
from fastdp.spatial.cells import CellParameters
from fastdp.spatial.tree import Tree
from fastdp.systems.phdstream.adaptive import AdaptivePHDStream
from fastdp.systems.phdstream.publisher import PHDStream
from fastdp.systems.phdstream.spatial_publisher import LEVEL, SpatialPublisher
from fastdp_lab.audit.couplings.check import KEY, Seen, Shifts, Table
from fastdp_lab.baselines.points import FixedTree, OfflineOnBatch
from fastdp_lab.planning.tree_loss import log_above, log_at_most

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Generator = np.random.Generator
#: A new publisher with this key.
Make = Callable[[Key], SpatialPublisher]
#: A batch of points added and removed, and by how much the size that all know differs from theirs.
Batch = tuple[Floats, Floats, int]
#: Coordinates of the small sets: borders of cells, and points that share one.
COORDINATES = np.array([0.0, 0.1, 0.1, 0.12, 0.25, 0.5, 0.7, 0.99, 1.0])


@dataclass(frozen=True)
class Event:
    """One event more, in the first stream or in the adjacent one."""

    batch: int
    #: float64[1, d].
    point: Floats
    #: A removal, or an addition.
    removal: bool
    #: Whether the first stream has it.
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
    """A counter that notes its errors (first run), or shifts its noise until they are as they must be (adjacent run).

    The table's last draws are its noise.  In the adjacent run ``shifts`` receives the shifts, and ``event`` says
    which draws, which row, and by how much the input differs there.
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
        name = self._table.last
        assert name is not None  # noqa: S101 - a counter gets noise
        if self._event is not None and name.stream == self._event[0]:
            wanted[self._event[1]] -= self._event[2]
        tried = work(state.copy(), noise.copy())
        if wanted.shape != tried.shape:
            # Only where outputs differ, which the check reports.
            return work(state, noise)
        missing: Integers = wanted - tried
        for row in np.flatnonzero(missing).tolist():
            self._shifts.by[name][row] += int(missing[row])
        return work(state, noise + missing)


# Split decisions.

#: Number of a step, and its tree with the scores of its decisions.
Steps = dict[int, Tree]


@contextlib.contextmanager
def noted_steps() -> Iterator[Steps]:
    """What PrivTree decided, step by step, while entered."""
    steps: Steps = {}
    real = decomposition.take_step

    def noting(plan: CellParameters, kept: Any, added: Any, removed: Any, step: int, *others: Any) -> Any:
        found = real(plan, kept, added, removed, step, *others)
        steps[step] = found[2]
        return found

    # Both modules have the function under a name of their own.
    for module in (decomposition, count_only):
        setattr(module, "take_step", noting)  # noqa: B010 - the name is imported there, not exported
    try:
        yield steps
    finally:
        for module in (decomposition, count_only):
            setattr(module, "take_step", real)  # noqa: B010


def on_path(plan: CellParameters, tree: Tree, code: int) -> NDArray[np.bool_]:
    """Which nodes hold the event's cell of the greatest depth."""
    widths = np.array([plan.fan_out ** (plan.max_depth - depth) for depth in tree.depth.tolist()], np.int64)
    holds: NDArray[np.bool_] = tree.code == code // widths
    return holds


def leaf_of(plan: CellParameters, tree: Tree, code: int) -> int:
    """The place among the leaves of the one that counts the event."""
    return int(np.flatnonzero(on_path(plan, tree, code)[tree.leaves])[0])


def decide(shifts: Shifts, plan: CellParameters, step: int, tree: Tree, code: int, more: int) -> None:
    """Shift the draws of the decisions whose scores rise by ``more`` points, and add the cost of those decisions."""
    floor, scale = plan.threshold - plan.bias, float(plan.split_law.scale)
    moved = tree.score + np.where(on_path(plan, tree, code), more * plan.unit, 0)
    before, after = (np.maximum(score, floor) for score in (tree.score, moved))
    made = tree.depth < plan.max_depth
    for node in np.flatnonzero(made & (before != after)).tolist():
        shifts.add(KEY, StreamId(Purpose.SPLIT, number=step), node, int(before[node] - after[node]))
    logs = [
        np.where(
            tree.first >= 0, log_above(score - plan.threshold, scale), log_at_most(score - plan.threshold, scale)
        )
        for score in (before, after)
    ]
    shifts.loss += abs(float((logs[0] - logs[1])[made].sum()))


# What is seen.


def see_points(make: Make, saved: int, key: Key, batches: list[Batch]) -> Seen:
    """Trees, synthetic points and counts after each batch, with the state saved and loaded after one of them."""
    seen = Seen()
    with seen.warned():
        stream = make(key)
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


def counted_shifts(
    make: Make,
    table: Table,
    x: list[Batch],
    there: list[Batch],
    event: Event,
    code: int,
) -> Shifts:
    """Of cells that follow counts: the one count that has the event, and PrivTree's decisions where it chose."""
    stream = make(table.key)
    found, plan = Shifts(), stream._plan
    with noted_steps() as steps:
        for number, (added, removed, _) in enumerate(x):
            stream.advance(added, removed)
            if number >= event.batch and stream._state.last_count == number + 1:
                tree = stream._state.tree
                assert tree is not None  # noqa: S101 - a count has been made
                if number in steps and not event.removal:
                    decide(found, plan, number, steps[number], code, event.effect)
                place = leaf_of(plan, tree, code)
                found.add(KEY, StreamId(Purpose.CELL, number=number), place, -event.effect)
                whole_shifts(found, make, table, x, there, number, event.effect)
                break
    return found


def whole_shifts(
    found: Shifts,
    make: Make,
    table: Table,
    x: list[Batch],
    there: list[Batch],
    step: int,
    effect: int,
) -> None:
    """Of the count of the whole, where there is one: the sums that hold an event counted in this step."""
    if getattr(make(table.key).machine, "whole", None) is None:
        return
    where = StreamId(Purpose.CELL, level=LEVEL, number=step), 0, effect
    errors: list[Integers] = []
    _follow_whole(make(table.key), table, x, errors)
    again = Table(table.seed, found)
    _follow_whole(make(again.key), again, there, errors, found, where)


def _follow_whole(
    stream: SpatialPublisher, table: Table, batches: list[Batch], errors: list[Integers], *others: Any
) -> None:
    machine: Any = stream.machine
    machine.__dict__["whole"] = replace(
        machine.whole, counter=Follower(machine.whole.counter, table, errors, *others)
    )
    for added, removed, _ in batches:
        stream.advance(added, removed)


def followed_shifts(
    make: Make,
    table: Table,
    x: list[Batch],
    there: list[Batch],
    event: Event,
    code: int,
) -> Shifts:
    """Of counters at work: PrivTree's decisions, and the sums that hold the event, by following both runs."""
    found = Shifts()
    errors: tuple[list[Integers], list[Integers]] = [], []
    first = make(table.key)
    _follow(first, table, errors)
    trees = []
    with noted_steps() as steps:
        for added, removed, _ in x:
            first.advance(added, removed)
            trees.append(first._state.tree)
    plan, tree = first._plan, trees[event.batch]
    assert tree is not None  # noqa: S101 - a step has been taken
    if event.batch in steps and not (event.removal and plan.repaired):
        decide(found, plan, event.batch, steps[event.batch], code, event.effect)
    where = StreamId(Purpose.CELL, number=event.batch), leaf_of(plan, tree, code), event.effect
    again = Table(table.seed, found)
    second = make(again.key)
    _follow(second, again, errors, found, where)
    for added, removed, _ in there:
        second.advance(added, removed)
    whole_shifts(found, make, table, x, there, event.batch, event.effect)
    return found


def _follow(
    stream: SpatialPublisher, table: Table, errors: tuple[list[Integers], list[Integers]], *others: Any
) -> None:
    machine: Any = stream.machine
    # The plan follows from the parameters, so it is put in its place.
    plan = replace(machine.plan, counter=Follower(machine.plan.counter, table, errors[0], *others))
    machine.__dict__["plan"] = plan
    if isinstance(stream, FixedTree):
        machine.__dict__["counter"] = Follower(stream.counter, table, errors[1], *others)
