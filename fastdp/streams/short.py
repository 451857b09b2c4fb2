"""Short chunks behind the hold-out, in one call of a kernel.

A kernel takes less time than what Python does around it, so here are few calls and few records.  Outputs are those of
:meth:`FixedBlocks.prepare` and :meth:`AdaptiveBlocks.prepare`, to which some chunks are left.
Kernels write to new memory: copying a short output costs less than a second call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fastdp.kinds import Floats
from fastdp.smoothers import Recent
from fastdp.state.machine import record
from fastdp.streams.adaptive_blocks import AdaptiveBlocks
from fastdp.streams.fixed_blocks import FixedBlocks
from fastdp.streams.stream_state import Progress, TreeNoise
from fastdp_kernels.streams import short_chunks
from fastdp_kernels.streams.block_lengths import UNIT

#: Longer chunks gain nothing.
MAX_SHORT = 8192
#: Bits of an array's flags: C-contiguous, aligned, writable.
IN_ORDER = 0x0501
NO_NOISE = np.empty(0, np.int64)
#: The progress behind the values, None where they are left to the pipeline; the noise in use; the published values.
Published = tuple[Progress | None, TreeNoise | None, Floats]


@dataclass(frozen=True, slots=True)
class ShortFixed:
    """Blocks of fixed length with a tree's noise, of which each predicts the next by its mean.

    Attributes
    ----------
    pipeline : FixedBlocks
        What longer chunks go through.
    begin : int
        Values before the first one for which this is made.
    block, tree_blocks, public
        Its public parameters under one threshold.
    """

    pipeline: FixedBlocks
    begin: int
    block: int
    tree_blocks: int
    public: Floats

    def publish(self, progress: Progress, noise: TreeNoise | None, values: Floats) -> Published:
        """What the values lead to; nothing if a tree ends within them, or one of them is NaN or infinite."""
        n_seen, cycle, held, released, theta, blocks, filled, total, prediction, memory, chain = progress
        size = values.size
        published = np.empty(size)
        closing, drawn, leaf = (filled + size) // self.block, NO_NOISE, 0
        if closing:
            tree, leaf = divmod(blocks, self.tree_blocks)
            if leaf + closing > self.tree_blocks:
                return None, noise, published
            if noise is None or noise[0] != tree:
                noise, _ = self.pipeline.tree(progress, noise, 0)
            drawn = noise[1]
        total, prediction = short_chunks.publish_short(
            values, self.public, drawn, leaf, closing, filled, total, prediction, published
        )
        if math.isnan(prediction):
            return None, noise, published
        filled += size - closing * self.block
        now = n_seen + size, cycle, held, released, theta, blocks + closing, filled, total, prediction, memory, chain
        return record(Progress, now), noise, published


@dataclass(frozen=True, slots=True)
class ShortAdaptive:
    """Values that leave an adaptive block open: nothing is released, and the memory stays as it is.

    Attributes
    ----------
    pipeline : AdaptiveBlocks
        What longer chunks go through.
    begin : int
        Values before the first one for which this is made.
    theta, per_unit, top
        Its public parameters under one first threshold.
    """

    pipeline: AdaptiveBlocks
    begin: int
    theta: float
    per_unit: float
    top: float

    def publish(self, progress: Progress, noise: TreeNoise | None, values: Floats) -> Published:
        """What the values lead to; nothing if they fill the block, or one of them is NaN or infinite."""
        n_seen, cycle, held, released, steps, blocks, filled, total, prediction, memory, chain = progress
        top = self.top
        if memory.item(UNIT) != 1.0:
            top = self.pipeline.top(self.pipeline.steps(steps, memory))
        size = values.size
        published = np.empty(size)
        total, prediction = short_chunks.publish_open(
            values, self.per_unit, top, filled, total, memory, self.theta, published
        )
        if math.isnan(prediction):
            return None, noise, published
        now = n_seen + size, cycle, held, released, steps, blocks, filled + size, total, prediction, memory, chain
        return record(Progress, now), noise, published


Short = ShortFixed | ShortAdaptive


def short_of(pipeline: FixedBlocks | AdaptiveBlocks, theta_steps: int, begin: int) -> Short | None:
    """For chunks under this threshold; None where a smoother, a season or bound noise needs more."""
    grid, plan = pipeline.grid, pipeline.plan
    per_unit = 1.0 / grid.resolution
    if isinstance(pipeline, AdaptiveBlocks) and pipeline.perturber.season is not None:
        # Predictions differ within a block.
        return None
    # A subclass may do something else with its steps.
    if type(pipeline) is AdaptiveBlocks:
        theta = theta_steps * grid.resolution
        return ShortAdaptive(pipeline, begin, theta, per_unit, pipeline.top(theta_steps))
    if type(pipeline) is not FixedBlocks or pipeline.sums_releases or pipeline.laws[theta_steps] is not None:
        return None
    if plan.block > 1 and type(pipeline.smoother) is not Recent:
        return None
    top = float(min(theta_steps, grid.bound_steps))
    public = np.array([per_unit, top, grid.resolution, plan.block])
    return ShortFixed(pipeline, begin, plan.block, plan.tree_blocks, public)
