"""Many streams, each by a machine of its own: where no row kernel does what the parts do, or noise has names.

Slower than :mod:`fastdp.systems.stream.row_steps` by the calls of a machine for each stream, and equal to it, bit for
bit, where both apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from fastdp.arrays.column import as_floats
from fastdp.arrays.kinds import Floats, Indices
from fastdp.arrays.rows import StreamRows
from fastdp.randomness.key import Key
from fastdp.releases.batch import ReleasedMany
from fastdp.releases.revised import RevisedStream
from fastdp.state.machine import Column
from fastdp.systems.stream.adaptive_blocks import AdaptiveBlocks
from fastdp.systems.stream.emission import Emission
from fastdp.systems.stream.fixed_blocks import FixedBlocks
from fastdp.systems.stream.parameters import StreamParameters
from fastdp.systems.stream.room import Room
from fastdp.systems.stream.row_batches import concurrently
from fastdp.systems.stream.stages import Schedule

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
