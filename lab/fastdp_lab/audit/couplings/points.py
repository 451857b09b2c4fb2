"""Couplings of counters and of everything that publishes a changing set of points.

An event shifts one draw of each noisy sum that it enters, and the draws of the split decisions on its path whose
scores are above the floor.  A decision is all that its draw decides, so it costs the logarithm of the ratio of its
tails, not the shift (``docs/phdstream.md``, "Proof of the repaired step").
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partialmethod
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from fastdp import AdaptivePHDStream, Key, PHDStream
from fastdp.counters import BinaryTree, Block, Counter, Simple
from fastdp.noise.words import Purpose, StreamId
from fastdp.spatial.domains import CellParameters
from fastdp.spatial.phdstream import LEVEL
from fastdp.spatial.tree import Tree
from fastdp_lab.audit.couplings.check import KEY, Generator, Integers, Name, Outputs, Shifts, Table, name_of, reloaded
from fastdp_lab.baselines.points import OfflineOnBatch
from fastdp_lab.planning.tree_loss import Steps, log_above, log_at_most, noted_steps

Floats = NDArray[np.float64]
#: A new publisher with this ``key``.
Make = Callable[..., Any]
#: A batch of points added and removed, and by how much the size that all know differs from theirs.
Batch = tuple[Floats, Floats, int]
#: Coordinates of the small sets: borders of cells, and points that share one.
COORDINATES = np.array([0.0, 0.1, 0.1, 0.12, 0.25, 0.5, 0.7, 0.99, 1.0])


class Event(NamedTuple):
    """One event more, in the first stream or in the adjacent one.

    Attributes
    ----------
    batch : int
        Number of its batch.
    point : float64[1, d]
        Its place.
    removal : bool
        A removal, or an addition.
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


# Counters.


@dataclass
class Follower:
    """Notes the errors of all counters in a first run, and shifts noise of the adjacent run until they are as wanted.

    In the adjacent run errors differ by the events alone.

    Attributes
    ----------
    errors : list
        Outputs of each call of a counter in the first run.
    shifts : Shifts or None
        Of the adjacent run; None in the first one.
    events : dict
        The draws of the events by name: the row, and by how much the input differs there.
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
    """Which nodes hold the event's cell of the greatest depth."""
    widths = np.array([plan.fan_out ** (plan.max_depth - depth) for depth in tree.depth.tolist()], np.int64)
    return np.asarray(tree.code == code // widths)


def leaf_of(plan: CellParameters, tree: Tree, code: int) -> int:
    """The place among the leaves of the one that counts the event."""
    return int(np.flatnonzero(on_path(plan, tree, code)[tree.leaves])[0])


def decide(shifts: Shifts, plan: CellParameters, step: int, tree: Tree, code: int, more: int) -> None:
    """Shift the draws of the decisions whose scores rise by ``more`` points, and add the cost of those decisions."""
    floor, scale = plan.threshold - plan.bias, float(plan.split_law.scale)
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

    Of cells that follow counts the first count from the event on has it, alone.
    """

    def run(own: Table, follower: Follower, batches: list[Batch]) -> tuple[Any, list[Any], Steps]:
        stream, states = make(key=own.key), []
        with noted_steps() as steps, follower.on(own):
            for added, removed, _ in batches:
                stream.advance(added, removed)
                states.append(stream.state)
        return stream, states, steps

    first = Follower([])
    stream, states, steps = run(table, first, x)
    plan, number, later = stream._plan, event.batch, isinstance(stream, AdaptivePHDStream)
    if later:
        number = next((n for n in range(number, len(x)) if states[n].last_count == n + 1), -1)
    if number < 0:
        return
    if number in steps and not (event.removal and (later or plan.repaired)):
        decide(shifts, plan, number, steps[number], code, event.effect)
    cells = StreamId(Purpose.CELL, number=number)
    leaf = leaf_of(plan, states[number].tree, code)
    events = {name_of(KEY, cells): (leaf, event.effect)}
    events[name_of(KEY, StreamId(Purpose.CELL, level=LEVEL, number=number))] = 0, event.effect
    if later:
        shifts.add(KEY, cells, leaf, -event.effect)
    run(Table(table.seed, shifts), Follower(first.errors, shifts, events), there)


def see_points(make: Make, saved: int, key: Key, batches: list[Batch]) -> Outputs:
    """Trees, synthetic points and counts after each batch, with the state saved and loaded after one of them."""
    stream = make(key=key)
    for number, (added, removed, public) in enumerate(batches):
        if isinstance(stream, OfflineOnBatch):
            # The number of points is public, and the same for adjacent streams.
            stream._state = replace(stream.state, size=stream.state.size + public)
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
    return [(points_of(rng, dim, size), points_of(rng, dim, size // 3), 0) for size in sizes]
