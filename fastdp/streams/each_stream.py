"""Many streams, each by a machine of its own: where no row kernel does what the parts do, or noise has names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from fastdp.data.column import as_floats
from fastdp.data.frames import FrameSource
from fastdp.data.kinds import Floats, Indices
from fastdp.data.rows import StreamRows
from fastdp.guarantee import Guarantee
from fastdp.noise.key import Key
from fastdp.releases.batch import ReleasedMany
from fastdp.releases.release import ReleasedNodes
from fastdp.releases.revised import RevisedStream
from fastdp.state.machine import Column
from fastdp.streams.adaptive_blocks import AdaptiveBlocks
from fastdp.streams.emission import Emission
from fastdp.streams.fixed_blocks import FixedBlocks
from fastdp.streams.ids import Ids
from fastdp.streams.parameters import StreamParameters
from fastdp.streams.row_batches import borders_of, concurrently
from fastdp.streams.stages import Schedule


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
