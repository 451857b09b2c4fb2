"""The step of a publisher with blocks of fixed length: where they close and get their noise.

A pure function from (progress, values) to (progress, published values).

Source: ToPS Algorithm 1, lines 11 to 28, in the reading of ``docs/tops.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp.data.column import as_floats, exact_sum
from fastdp.integer_grid import Grid
from fastdp.kinds import Floats, Integers
from fastdp.noise.binding import Chain, PrefixNoise
from fastdp.noise.key import Key, repeating
from fastdp.perturbers import HierarchyShape, Perturber
from fastdp.perturbers.base import BoundLaws, correlation, theta_key
from fastdp.releases.release import ReleasedNodes
from fastdp.smoothers import Recent, Smoother, SmootherState
from fastdp.smoothers.smoothers import CheckedSmoother
from fastdp.state.machine import record
from fastdp.streams.stream_state import NO_FLOATS, Progress, TreeNoise, next_chain
from fastdp_kernels.streams import online_pass, tree_nodes

#: Chunks of fewer blocks are not worth a pass of their own.
MIN_BLOCKS = 4


def nodes_scratch(plan: HierarchyShape) -> NDArray[np.int64]:
    """Memory for sums while a tree's nodes are released."""
    return np.empty(2 * max(tree_nodes.PIECE, plan.fan_out) + plan.leaves, np.int64)


class Step(NamedTuple):
    """What a step has computed, before anything leaves.

    Attributes
    ----------
    following : Progress
        The progress after the values.
    noise : (int, int64[leaves]) or None
        The tree in use.
    totals, predictions : float64
        Released totals of the blocks that close, and the prediction of each block and the one left open; without
        predictions ``totals`` are the published values themselves.
    block : int
        g.
    filled, size : int
        Values in the first block before the step, and values of the step.
    """

    following: Progress
    noise: TreeNoise | None
    totals: Floats
    predictions: Floats | None
    block: int
    filled: int
    size: int

    def emit(self, out: Floats) -> None:
        """Write the published values into ``out``."""
        if self.predictions is None:
            out[:] = self.totals
        elif not self.totals.size:
            out.fill(self.predictions[0])
        else:
            online_pass.emit_blocks(self.totals, self.predictions, self.block, self.filled, out)


class SummedStep(NamedTuple):
    """As :class:`Step`, of blocks whose mean predicts the next one: nothing is kept but their sums and noise.

    Attributes
    ----------
    following, noise, block, filled, size
        As of :class:`Step`.
    sums, drawn : int64
        Exact sums of the blocks that close, and their noise, in grid steps.  Secret.
    resolution : float
        The grid step.
    prediction : float
        Of the first block.
    """

    following: Progress
    noise: TreeNoise | None
    sums: NDArray[np.int64]
    drawn: NDArray[np.int64]
    resolution: float
    prediction: float
    block: int
    filled: int
    size: int

    def emit(self, out: Floats) -> None:
        """Write the published values into ``out``."""
        account = self.sums, self.drawn, self.resolution, self.prediction, self.block, self.filled
        online_pass.emit_sums(*account, out)


@dataclass(frozen=True)
class FixedBlocks:
    """The parts between clipped values and published ones, composed.

    A step prepares in memory of its own, so that what is not released yet (sums without noise, or outputs
    whose place in the stream is not recorded yet) is never seen in the caller's array; then it emits.

    Attributes
    ----------
    plan : HierarchyShape
        Shape of the hierarchy.
    grid : Grid
        Integers that values are rounded to.
    perturber, smoother, key
        As given to the publisher.
    epsilon : float
        The perturber's budget.
    sums_releases : bool
        Whether ``Progress.released`` is kept.
    """

    plan: HierarchyShape
    grid: Grid
    perturber: Perturber
    smoother: Smoother | None
    epsilon: float
    key: Key
    sums_releases: bool = False

    @cached_property
    def laws(self) -> BoundLaws:
        """Of noise that is bound to the prefix."""
        return BoundLaws(self.perturber, self.key, self.epsilon)

    @cached_property
    def prefixes(self) -> PrefixNoise:
        """The noise of these laws."""
        return PrefixNoise(self.key)

    def open(self, progress: Progress, theta: float) -> Progress:
        """Begin to publish with this threshold.

        The very first block predicts theta / 2 a value (Appendix D, u_0); after a renewal the last prediction stands,
        as far as theta allows, and the smoother starts again with it.
        """
        steps = self.grid.snap(theta)
        top = steps * self.grid.resolution
        first = min(progress.prediction, top) if progress.cycle else top / 2.0
        follows = correlation(self.perturber)
        state = NO_FLOATS if follows is None else np.zeros(follows.memory)
        if self.smoother is not None:
            state = self.smoother.start(first, top)
        renewed = progress._replace(cycle=progress.cycle + 1, held=0, released=0)
        chain = next_chain(self.perturber, self.key, steps, self.epsilon, progress.chain)
        return renewed._replace(theta_steps=steps, prediction=first, smoother=state, chain=chain)

    def prepare(
        self, progress: Progress, noise: TreeNoise | None, values: Floats | Integers, new: Floats | None = None
    ) -> Step | SummedStep | None:
        """All that these values, behind the hold-out, lead to; None if one of them is NaN or infinite.

        New memory for the output is invisible to callers until the step is recorded: it is written at once.  Whole
        numbers are read where that takes :meth:`one pass <in_one_pass>`.
        """
        if new is not None and self.in_one_pass(progress, values.size):
            publish = self._publish_values if self.every else self._publish_blocks
            return publish(progress, noise, values, new)
        step = self._prepare(progress, noise, as_floats(values))
        if new is None or step is None:
            return step
        step.emit(new)
        return Step(step.following, step.noise, new, None, 1, 0, new.size)

    def _prepare(self, progress: Progress, noise: TreeNoise | None, values: Floats) -> Step | SummedStep | None:
        """:meth:`prepare` without writing anything."""
        per_unit, top = 1.0 / self.grid.resolution, float(min(progress.theta_steps, self.grid.bound_steps))
        n_seen, size = progress.n_seen + values.size, values.size
        if self.smoother is None or self.every:
            steps: NDArray[np.int64] = np.empty(size, np.int64)
            if online_pass.round_values(values, per_unit, top, steps):
                return None
            noise, released, chain, memory = self._add_noise(progress, noise, steps)
            # By position: names, and _replace, cost more than the kernels of a short call.
            _, cycle, held, _, theta, blocks, filled, total, prediction, _, _ = progress
            now = n_seen, cycle, held, released, theta, blocks + size, filled, total, prediction, memory, chain
            following = record(Progress, now)
            return Step(following, noise, steps.view(np.float64), None, 1, 0, size)
        block = self.plan.block
        closing, filled = divmod(progress.filled + size, block)
        sums: NDArray[np.int64] = np.empty(closing + 1, np.int64)
        sums[closing] = 0
        touched = sums if filled else sums[:closing]
        if online_pass.sum_blocks(values, per_unit, top, block, progress.filled, touched):
            return None
        sums[0] += progress.open_sum
        open_sum = int(sums[closing])
        if closing and self.predicts_itself(progress):
            noise, drawn = self._leaves(progress, noise, closing)
            # Of arrays, whose sums wrap.
            last = float((sums[closing - 1 : closing] + drawn[closing - 1 :])[0]) * self.grid.resolution
            following = Progress(
                *(n_seen, progress.cycle, progress.held, progress.released, progress.theta_steps),
                *(progress.blocks + closing, filled, open_sum, last / block),
                smoother=progress.smoother,
                chain=progress.chain,
            )
            account = sums, drawn, self.grid.resolution, progress.prediction, block, progress.filled
            return SummedStep(following, noise, *account, size)
        predictions = np.empty(closing + 1)
        predictions[0] = prediction = progress.prediction
        totals, released, state, chain = NO_FLOATS, progress.released, progress.smoother, progress.chain
        if closing:
            noise, released, chain, _ = self._add_noise(progress, noise, sums[:closing])
            # Means take the memory of the predictions: long chunks of short blocks stay lean.
            totals = sums[:closing].view(np.float64)
            means = np.divide(totals, block, out=predictions[1:])
            state, predicted = self.smoother.step(state, means)
            if predicted is not means:
                means[:] = predicted
            prediction = float(predictions[closing])
        following = Progress(
            *(n_seen, progress.cycle, progress.held, released, progress.theta_steps, progress.blocks + closing),
            *(filled, open_sum, prediction, state, chain),
        )
        return Step(following, noise, totals, predictions, block, progress.filled, size)

    @cached_property
    def every(self) -> bool:
        """Whether noise is added to every value."""
        return self.smoother is None or self.plan.block == 1

    def in_one_pass(self, progress: Progress, size: int) -> bool:
        """Whether values are read, get their noise and are published in one pass over new memory.

        Noise must not follow the sums, and a block need nothing but the one before.
        """
        if self.every:
            return not self.sums_releases and self.laws[progress.theta_steps] is None
        block = self.plan.block
        whole = progress.filled == 0 and size >= MIN_BLOCKS * block and block % online_pass.LANES == 0
        return whole and self.predicts_itself(progress)

    def predicts_itself(self, progress: Progress) -> bool:
        """Whether a block needs nothing but its sum, its noise and the mean of the block before."""
        ready = not self.sums_releases and self.laws[progress.theta_steps] is None
        return ready and type(self.smoother) is Recent

    def _publish_values(
        self, progress: Progress, noise: TreeNoise | None, values: Floats | Integers, published: Floats
    ) -> Step | None:
        """:meth:`prepare` in one pass over single values."""
        resolution, top = self.grid.resolution, float(min(progress.theta_steps, self.grid.bound_steps))
        begin = 0
        while begin < values.size:
            noise, leaf = self.tree(progress, noise, begin)
            end = min(values.size, begin + self.plan.tree_blocks - leaf)
            drawn, out = noise[1][leaf : leaf + end - begin], published[begin:end]
            if online_pass.publish_values(values[begin:end], 1.0 / resolution, top, drawn, resolution, out):
                return None
            begin = end
        following = progress._replace(n_seen=progress.n_seen + values.size, blocks=progress.blocks + values.size)
        return Step(following, noise, published, None, 1, 0, values.size)

    def _publish_blocks(
        self, progress: Progress, noise: TreeNoise | None, values: Floats | Integers, published: Floats
    ) -> Step | None:
        """:meth:`prepare` in one pass over blocks."""
        grid, block = self.grid, self.plan.block
        per_unit, top = 1.0 / grid.resolution, float(min(progress.theta_steps, grid.bound_steps))
        closing, filled = divmod(values.size, block)
        prediction, begin = progress.prediction, 0
        while begin < closing:
            noise, leaf = self.tree(progress, noise, begin)
            count = min(closing - begin, self.plan.tree_blocks - leaf)
            part, drawn = slice(begin * block, (begin + count) * block), noise[1][leaf : leaf + count]
            prediction = online_pass.publish_blocks(
                values[part], per_unit, top, drawn, grid.resolution, prediction, published[part]
            )
            if math.isnan(prediction):
                return None
            begin += count
        open_sum: NDArray[np.int64] = np.zeros(1, np.int64)
        if filled:
            rest = as_floats(values[closing * block :])
            if online_pass.sum_blocks(rest, per_unit, top, block, 0, open_sum):
                return None
            published[closing * block :] = prediction
        following = progress._replace(
            n_seen=progress.n_seen + values.size,
            blocks=progress.blocks + closing,
            filled=filled,
            open_sum=int(open_sum[0]),
            prediction=prediction,
        )
        return Step(following, noise, published, None, 1, 0, values.size)

    def steps(self, theta_steps: int, memory: Floats) -> int:
        """The threshold in use, in grid steps."""
        return theta_steps

    def fits(self, progress: Progress) -> bool:
        """Whether the memory has its form, and what kernels follow as an index is in range."""
        memory = progress.smoother
        follows = correlation(self.perturber)
        size = 0 if follows is None else follows.memory
        if self.smoother is not None:
            size = self.smoother.start(0.5, 1.0).size
        fits = progress.filled < self.plan.block and memory.size == size and np.isfinite(memory).all()
        smoother: object = self.smoother
        # Smoothers of one's own need not say.
        if not fits or not isinstance(smoother, CheckedSmoother):
            return bool(fits)
        return smoother.is_state(progress.smoother, progress.theta_steps * self.grid.resolution, progress.blocks)

    def released_nodes(self, theta_steps: int, values: Floats) -> ReleasedNodes:
        """Noisy sums of all nodes over a whole published stream, from its first value on.

        Only for perturbers that release nodes with noise of their own.  Leaves are the published values again.
        """
        plan = self.plan
        trees = -(-values.size // plan.tree_blocks)
        top = float(min(theta_steps, self.grid.bound_steps))
        scratch, key = nodes_scratch(plan), theta_key(self.key, theta_steps)
        released = np.empty((0 if trees == 1 else trees, plan.nodes))
        for tree in range(trees):
            # The leaves' noise is that of the published values.
            with repeating():
                noise = self.perturber.node_noise(plan, theta_steps, self.epsilon, key, tree)
            # Fresh pages cost as much as the sums, so a single tree takes its noise's place.
            out = noise.view(np.float64) if trees == 1 else released[tree]
            tree_nodes.release_tree(
                values[tree * plan.tree_blocks : (tree + 1) * plan.tree_blocks],
                1.0 / self.grid.resolution,
                top,
                noise,
                plan.fan_out,
                plan.levels,
                plan.leaves,
                self.grid.resolution,
                scratch,
                out,
            )
            released = out.reshape(1, -1) if trees == 1 else released
        return ReleasedNodes(released, plan.leaves, plan.fan_out, plan.levels, plan.tree_blocks)

    def _add_noise(
        self, progress: Progress, noise: TreeNoise | None, sums: NDArray[np.int64]
    ) -> tuple[TreeNoise | None, int, Chain, SmootherState]:
        """Turn each closed block's sum into its released total, tree by tree, in the same memory.

        The last tree's noise stays for the next chunk.  Also the sum of what the present threshold released, and the
        chain key and the memory behind these sums.
        """
        begin, released, chain, memory = 0, progress.released, progress.chain, progress.smoother
        law = self.laws[progress.theta_steps]
        if law is not None:
            chain = chain.copy()
            drawn = self.prefixes.draw(sums, law, chain, progress.blocks)
            follows = correlation(self.perturber)
            if follows is not None:
                memory = follows.correlate(drawn, memory, progress.blocks)
            if self.sums_releases:
                released += exact_sum(sums + drawn)
            online_pass.add_noise(sums, drawn, self.grid.resolution, sums.view(np.float64))
            return None, released, chain, memory
        while begin < sums.size:
            noise, leaf = self.tree(progress, noise, begin)
            count = min(sums.size - begin, self.plan.tree_blocks - leaf)
            part, drawn = sums[begin : begin + count], noise[1][leaf : leaf + count]
            if self.sums_releases:
                # Of what is released, sums plus noise modulo 2^64: the sums alone would wrap at places of their own.
                released += exact_sum(part + drawn)
            online_pass.add_noise(part, drawn, self.grid.resolution, part.view(np.float64))
            begin += count
        return noise, released, chain, memory

    def _leaves(
        self, progress: Progress, noise: TreeNoise | None, count: int
    ) -> tuple[TreeNoise | None, NDArray[np.int64]]:
        """Noise of the blocks that close next, and the tree in use behind them."""
        parts: list[NDArray[np.int64]] = []
        begin = 0
        while begin < count:
            noise, leaf = self.tree(progress, noise, begin)
            parts.append(noise[1][leaf : leaf + min(count - begin, self.plan.tree_blocks - leaf)])
            begin += parts[-1].size
        return noise, parts[0] if len(parts) == 1 else np.concatenate(parts)

    def tree(self, progress: Progress, noise: TreeNoise | None, after: int) -> tuple[TreeNoise, int]:
        """The tree of the block that comes so many behind those closed, made if it is not at hand, and its leaf."""
        tree, leaf = divmod(progress.blocks + after, self.plan.tree_blocks)
        if noise is None or noise[0] != tree:
            key = theta_key(self.key, progress.theta_steps)
            noise = (tree, self.perturber.leaf_noise(self.plan, progress.theta_steps, self.epsilon, key, tree))
        return noise, leaf
