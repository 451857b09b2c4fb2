"""Many streams, each by a machine of its own: where no row kernel does what the parts do, or noise has names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock, Thread
from typing import TypeVar, cast

import numpy as np

from fastdp.data.column import as_floats
from fastdp.data.frames import FrameSource, StreamRows
from fastdp.guarantee import Guarantee
from fastdp.integer_grid import Grid
from fastdp.kinds import Floats, Indices
from fastdp.noise.key import Key
from fastdp.releases.batch import ReleasedMany
from fastdp.releases.release import ReleasedNodes
from fastdp.releases.revised import RevisedStream
from fastdp.state.machine import Column
from fastdp.streams.adaptive_blocks import AdaptiveBlocks
from fastdp.streams.fixed_blocks import FixedBlocks
from fastdp.streams.ids import Ids
from fastdp.streams.parameters import StreamParameters
from fastdp.streams.stages import Emission, Schedule
from fastdp.thresholds import Chooser
from fastdp.thresholds.base import RowChooser, held_out

# Many streams a slab at a time: which go together, who works on them, and their thresholds.

T = TypeVar("T")


def slabs(order: Indices, counts: Indices, rows_at_once: Callable[[int], int]) -> Iterator[Indices]:
    """Streams, given from the shortest to the longest, in groups that are worked on together."""
    begin = 0
    while begin < order.size:
        end = min(order.size, begin + rows_at_once(int(counts[order[begin]])))
        end = min(end, begin + rows_at_once(int(counts[order[end - 1]])))
        yield order[begin:end]
        begin = end


def worth(threads: int, amount: int, slab: int) -> int:
    """How many threads gain by so much work: one for each slab's worth of it, at most so many."""
    return max(1, min(threads, -(-amount // slab)))


def even(count: int, most: int, threads: int) -> int:
    """How many of ``count`` make a slab, at most ``most``, so that every thread has as many slabs."""
    turns = max(1, -(-count // (most * threads)))
    return max(1, -(-count // (turns * threads)))


def concurrently(threads: int, work: Callable[[T], object], slabs: Iterable[T]) -> None:
    """Work on every slab; the first error, in the order of the slabs, is raised once no thread works any more.

    The calling thread is one of them: short work would wait for the others to begin.
    """
    if threads == 1:
        for slab in slabs:
            work(slab)
        return
    source, turn = enumerate(slabs), Lock()
    errors: list[tuple[int, BaseException]] = []

    def take() -> None:
        number = -1
        try:
            # Slabs may bring memory along, so none is made before its turn.
            while not errors:
                with turn:
                    number, slab = next(source, (number, None))
                if slab is None:
                    return
                work(slab)
        except BaseException as error:
            errors.append((number, error))

    others = [Thread(target=take) for _ in range(threads - 1)]
    try:
        for each in others:
            each.start()
        take()
    except BaseException as error:
        # A thread that cannot start, or an interrupt: the others begin nothing more.
        errors.append((-1, error))
    for each in others:
        while each.is_alive():
            try:
                each.join()
            except BaseException as error:
                errors.append((-1, error))
    if errors:
        raise min(errors, key=lambda found: found[0])[1]


def choose_thetas(
    chooser: Chooser, holdout: int, values: Floats, starts: Indices, key: Key, streams: Indices
) -> Floats:
    """Theta of each stream, whose hold-out begins at ``starts[i]``; the chooser has seen nothing, and stays so."""
    if isinstance(chooser, RowChooser):
        return chooser.choose_rows(chooser.histograms(values, starts), key, streams)
    thetas = np.empty(streams.size)
    for row, (start, number) in enumerate(zip(starts.tolist(), streams.tolist(), strict=True)):
        one = chooser.copy()
        one.observe(values[start : start + holdout])
        thetas[row] = one.choose(held_out(key, one.pack()).of_stream(number))
    return thetas


def snapped(grid: Grid, thetas: Floats) -> Indices:
    """Thresholds in grid steps; few are distinct."""
    distinct, place = np.unique(thetas, return_inverse=True)
    steps: Indices = np.array([grid.snap(theta) for theta in distinct.tolist()], np.int64)
    return steps[place]


def borders_of(counts: Indices) -> Indices:
    """Where each of some runs begins, and the last ends, if one follows the other: int64[n + 1]."""
    borders: Indices = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=borders[1:])
    return borders


@dataclass(frozen=True)
class Room:
    """Memory for the release of many streams under one composition.

    Attributes
    ----------
    composition : StreamParameters
        Parts and parameters of every stream.
    ids : int64[n], or tuple of int and str
        Names of the streams.
    source : FrameSource or None
        The data frame that they came in.
    counts : int64[n]
        Published values of each stream.
    borders, values : int64[n + 1] and float64[all]
        Values one stream after another, and where each begins.
    trees, nodes : int64[n + 1] and float64[all, nodes], or None
        The same of trees, where the perturber releases nodes.
    """

    composition: StreamParameters
    ids: Ids
    source: FrameSource | None
    counts: Indices
    borders: Indices
    values: Floats
    trees: Indices | None
    nodes: Floats | None

    @classmethod
    def of(cls, composition: StreamParameters, lengths: Indices, ids: Ids, source: FrameSource | None = None) -> Room:
        """As much as streams of these lengths need."""
        plan = composition.plan
        counts = lengths - int(composition.holdout or 0)
        borders = borders_of(counts)
        trees = borders_of(-(-counts // plan.tree_blocks)) if composition.perturber.released_nodes else None
        nodes = None if trees is None else np.empty((int(trees[-1]), plan.nodes))
        return cls(composition, ids, source, counts, borders, np.empty(int(borders[-1])), trees, nodes)

    def released(
        self, steps: Indices, *, simulated: bool, revisions: tuple[RevisedStream, ...] | None = None
    ) -> ReleasedMany:
        """The values written into it, under thresholds in grid steps, as one release."""
        composition, plan = self.composition, self.composition.plan
        self.values.flags.writeable = False
        thetas: Floats = np.multiply(steps, composition.grid.resolution)
        return ReleasedMany(
            values=self.values,
            borders=self.borders,
            offset=int(composition.holdout or 0),
            thresholds=thetas,
            guarantee=guarantee_of_many(composition.guarantee(simulated=simulated)),
            ids=self.ids,
            block=plan.block,
            nodes=None if self.nodes is None else ReleasedNodes.of(self.nodes, plan),
            tree_borders=np.zeros(self.counts.size + 1, np.int64) if self.trees is None else self.trees,
            revisions=revisions,
            source=self.source,
            noise=composition.noise,
        )


def guarantee_of_many(one: Guarantee) -> Guarantee:
    """One stream's guarantee holds for all together: a value is in one of them."""
    step = "each value is in one of the streams, whose noise is independent: epsilon for all together (parallel)"
    return replace(one, derivation=(*one.derivation, step))


#: Streams that a thread takes at a time.
STREAMS = 64


@dataclass(frozen=True)
class EachStream:
    """Streams, and the ids that their noise belongs to.

    Attributes
    ----------
    composition : StreamParameters
        Parts and parameters of every stream.
    secret : Key
        Of all streams; stream i has ``secret.of_stream(ids[i])``.
    rows : StreamRows
        Each longer than the hold-out.
    ids : list of int or str
        Distinct.
    """

    composition: StreamParameters
    secret: Key
    rows: StreamRows
    ids: list[int | str]

    def release(self, room: Room, threads: int) -> ReleasedMany:
        """Publish every stream into the room; ``threads`` work at once."""
        values, borders, nodes, trees = room.values, room.borders, room.nodes, room.trees
        n, machine = self.rows.size, Schedule(self.composition)
        steps: Indices = np.empty(n, np.int64)
        revisions: list[RevisedStream | None] = [None] * n

        def publish(which: range) -> None:
            for i in which:
                key, stream, name = self._key(i), self._values(i), f"streams[{i}]"
                made = machine.step(machine.start(key), Column(stream, name), key)
                emission = cast("Emission", made.emit)
                emission(values[borders[i] : borders[i + 1]])
                progress, pipeline = made.state.progress, machine.pipeline(key)
                steps[i] = progress.theta_steps
                if isinstance(pipeline, AdaptiveBlocks):
                    steps[i] = pipeline.highest(progress.theta_steps, progress.smoother)
                    revisions[i] = pipeline.revised(emission.parts, progress.theta_steps)
                elif nodes is not None and trees is not None:
                    nodes[trees[i] : trees[i + 1]] = self._nodes(machine, pipeline, stream, name, int(steps[i]))

        concurrently(threads, publish, (range(i, min(n, i + STREAMS)) for i in range(0, n, STREAMS)))
        found = tuple(each for each in revisions if each is not None)
        simulated = self.secret.simulated
        return room.released(steps, simulated=simulated, revisions=found if n and len(found) == n else None)

    @cached_property
    def _shared(self) -> Key:
        return self.composition.noise_key(self.secret)

    def _key(self, i: int) -> Key:
        """``noise_key(secret.of_stream(ids[i]))``; numbers share the composition's key."""
        name = self.ids[i]
        if isinstance(name, str):
            return self.composition.noise_key(self.secret.of_stream(name))
        return self._shared.of_stream(name)

    def _values(self, i: int) -> Floats:
        values, starts = self.rows.take(np.array([i]), 0)
        # Rows of one array lie in it as they are; others come alone.
        begin = int(starts[0])
        return as_floats(values[begin : begin + int(self.rows.lengths[i])])

    def _nodes(self, machine: Schedule, pipeline: FixedBlocks, stream: Floats, name: str, steps: int) -> Floats:
        holdout = self.composition.task.holdout
        return pipeline.released_nodes(steps, machine.finite(as_floats(stream[holdout:]), holdout, name)).sums
