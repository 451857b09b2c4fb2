"""Memory for what many streams publish, and the release that it becomes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fastdp.arrays.frames import FrameSource
from fastdp.arrays.kinds import Floats, Indices
from fastdp.guarantee import Guarantee
from fastdp.releases.batch import ReleasedMany
from fastdp.releases.nodes import ReleasedNodes
from fastdp.releases.revised import RevisedStream
from fastdp.systems.stream.ids import Ids
from fastdp.systems.stream.parameters import StreamParameters
from fastdp.systems.stream.row_batches import borders_of


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
        """What was written into it, under thresholds in grid steps, as one object."""
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
