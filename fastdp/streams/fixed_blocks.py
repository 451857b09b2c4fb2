"""Blocks of fixed length: a pure function from (progress, values) to (progress, published values).

Source: ToPS Algorithm 1, lines 11 to 28, as read in ``docs/tops.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from fastdp.data.column import exact_sum
from fastdp.integer_grid import Grid
from fastdp.kinds import Floats, Integers
from fastdp.noise.binding import Chain, PrefixNoise
from fastdp.noise.key import Key, repeating
from fastdp.perturbers import HierarchyShape, Perturber
from fastdp.perturbers.base import BoundDistributions, correlation, theta_key
from fastdp.releases.release import ReleasedNodes
from fastdp.smoothers import Recent, Smoother, SmootherState
from fastdp.smoothers.smoothers import CheckedSmoother
from fastdp.state.machine import record
from fastdp.streams.stream_state import NO_FLOATS, Progress, Published, Step, TreeNoise, next_chain
from fastdp_kernels.streams import hierarchy_nodes, online_pass

NO_NOISE: Integers = np.empty(0, np.int64)


def nodes_scratch(plan: HierarchyShape) -> Integers:
    """Scratch buffer while a tree's nodes are released."""
    return np.empty(2 * max(hierarchy_nodes.PIECE, plan.fan_out) + plan.leaves, np.int64)


@dataclass(frozen=True)
class FixedBlocks:
    """Turns clipped values into noisy block sums, and these into published values, in buffers of its own.

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
        True keeps ``Progress.released``.
    """

    plan: HierarchyShape
    grid: Grid
    perturber: Perturber
    smoother: Smoother | None
    epsilon: float
    key: Key
    sums_releases: bool = False

    @cached_property
    def distributions(self) -> BoundDistributions:
        """Distribution of bound noise, by threshold in steps."""
        return BoundDistributions(self.perturber, self.key, self.epsilon)

    @cached_property
    def prefixes(self) -> PrefixNoise:
        """Source of prefix-bound noise."""
        return PrefixNoise(self.key)

    def open(self, progress: Progress, theta: float) -> Progress:
        """Progress at the start of publishing with `theta`.

        The first block predicts theta / 2 a value (Appendix D, u_0), after a renewal the last prediction, clipped to
        theta.
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

    @cached_property
    def every(self) -> bool:
        """True if every value has noise."""
        return self.smoother is None or self.plan.block == 1

    def is_long_pass(self, theta_steps: int) -> bool:
        """True if one pass is also fastest for long chunks."""
        return (self.every or self.plan.block % online_pass.LANES == 0) and self.in_one_pass(theta_steps)

    def in_one_pass(self, theta_steps: int) -> bool:
        """True if one pass can read, perturb and publish values.

        Noise must be independent of sums, and predictions need the last mean only.
        """
        ready = not self.sums_releases and self.distributions[theta_steps] is None
        return ready and (self.every or type(self.smoother) is Recent)

    def publish(
        self,
        progress: Progress,
        noise: TreeNoise | None,
        values: Floats | Integers,
        published: Floats,
        public: Floats,
    ) -> Published:
        """Publish `values` into `published` in one pass, before the step is recorded.

        Returns no progress if a tree ends within them, or if one is not finite.
        """
        # By position: names, and _replace, cost more than the kernels of a short call.
        n_seen, cycle, held, released, theta, blocks, filled, total, prediction, memory, chain = progress
        size, (block, tree_blocks) = values.size, self.sizes
        closing, leaf, drawn = (filled + size) // block, 0, NO_NOISE
        if closing:
            tree, leaf = divmod(blocks, tree_blocks)
            if leaf + closing > tree_blocks:
                return None, noise
            if noise is None or noise[0] != tree:
                noise = self._tree(tree, theta)
            drawn = noise[1]
        total, prediction = online_pass.publish(
            values, public, drawn, leaf, closing, filled, total, prediction, published
        )
        if prediction != prediction:  # NaN
            return None, noise
        filled += size - closing * block
        now = n_seen + size, cycle, held, released, theta, blocks + closing, filled, total, prediction, memory, chain
        return record(Progress, now), noise

    def publish_long(
        self, progress: Progress, noise: TreeNoise | None, values: Floats | Integers, published: Floats
    ) -> Step | None:
        """The one pass, tree by tree; None if a value is not finite."""
        block, tree_blocks = self.sizes
        begin, public = 0, self.public(progress.theta_steps)
        while begin < values.size:
            left = (tree_blocks - progress.blocks % tree_blocks) * block - progress.filled
            part = slice(begin, begin + left)
            following, noise = self.publish(progress, noise, values[part], published[part], public)
            if following is None:
                return None
            progress, begin = following, begin + left
        return Step(progress, noise, values.size, published)

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """Values in a block, and blocks in a tree."""
        return self.plan.block, self.plan.tree_blocks

    def public(self, theta_steps: int) -> Floats:
        """Public parameters of the one pass, float64[4]."""
        top, resolution = float(min(theta_steps, self.grid.bound_steps)), self.grid.resolution
        return np.array([1.0 / resolution, top, resolution, self.plan.block])

    def prepare(self, progress: Progress, noise: TreeNoise | None, values: Floats) -> Step | None:
        """The step, array by array, without output; None if a value is not finite."""
        per_unit, top = 1.0 / self.grid.resolution, float(min(progress.theta_steps, self.grid.bound_steps))
        n_seen, size, block = progress.n_seen + values.size, values.size, self.plan.block
        if self.every:
            steps: Integers = np.empty(size, np.int64)
            if online_pass.round_values(values, per_unit, top, steps):
                return None
            noise, released, chain, memory = self._add_noise(progress, noise, steps)
            blocks = progress.blocks + size
            following = progress._replace(
                n_seen=n_seen, released=released, blocks=blocks, smoother=memory, chain=chain
            )
            return Step(following, noise, size, published=steps.view(np.float64))
        closing, filled = divmod(progress.filled + size, block)
        sums: Integers = np.empty(closing + 1, np.int64)
        sums[closing] = 0
        touched = sums if filled else sums[:closing]
        if online_pass.sum_blocks(values, per_unit, top, block, progress.filled, touched):
            return None
        sums[0] += progress.open_sum
        following = progress._replace(
            n_seen=n_seen, blocks=progress.blocks + closing, filled=filled, open_sum=int(sums[closing])
        )
        first = progress.prediction
        if closing and self.in_one_pass(progress.theta_steps):
            noise, drawn = self._leaves(progress, noise, closing)
            # As arrays, so that sums wrap.
            last = float((sums[closing - 1 : closing] + drawn[closing - 1 :])[0]) * self.grid.resolution
            account = sums, drawn, self.grid.resolution, first, block, progress.filled
            following = following._replace(prediction=last / block)
            return Step(following, noise, size, write=partial(online_pass.emit_sums, *account))
        predictions, totals = np.empty(closing + 1), NO_FLOATS
        predictions[0] = first
        if closing:
            noise, released, chain, _ = self._add_noise(progress, noise, sums[:closing])
            # Means take the memory of the predictions: long chunks of short blocks stay lean.
            totals = sums[:closing].view(np.float64)
            means = np.divide(totals, block, out=predictions[1:])
            assert self.smoother is not None  # noqa: S101 - blocks have one
            state, predicted = self.smoother.step(progress.smoother, means)
            if predicted is not means:
                means[:] = predicted
            following = following._replace(
                released=released, prediction=float(predictions[closing]), smoother=state, chain=chain
            )
        return Step(
            following,
            noise,
            size,
            write=partial(online_pass.emit_blocks, totals, predictions, block, progress.filled),
        )

    def steps(self, theta_steps: int, memory: Floats) -> int:
        """Threshold in use, in grid steps."""
        return theta_steps

    def remembered(self, numbers: Floats) -> Floats:
        """Smoother's state from a file's numbers."""
        return numbers

    def fits(self, progress: Progress) -> bool:
        """True if the memory's size is right and indices are in range."""
        memory = progress.smoother
        follows = correlation(self.perturber)
        size = 0 if follows is None else follows.memory
        if self.smoother is not None:
            size = self.smoother.start(0.5, 1.0).size
        fits = progress.filled < self.plan.block and memory.size == size and np.isfinite(memory).all()
        smoother: object = self.smoother
        # A user's smoother need not implement the check.
        if not fits or not isinstance(smoother, CheckedSmoother):
            return bool(fits)
        return smoother.is_state(progress.smoother, progress.theta_steps * self.grid.resolution, progress.blocks)

    def released_nodes(self, theta_steps: int, values: Floats) -> ReleasedNodes:
        """Noisy sums of all nodes over a fully published stream; leaves repeat the published values."""
        plan = self.plan
        trees = -(-values.size // plan.tree_blocks)
        top = float(min(theta_steps, self.grid.bound_steps))
        scratch, key = nodes_scratch(plan), theta_key(self.key, theta_steps)
        released = np.empty((0 if trees == 1 else trees, plan.nodes))
        for tree in range(trees):
            # The leaves' noise is that of the published values.
            with repeating():
                noise = self.perturber.node_noise(plan, theta_steps, self.epsilon, key, tree)
            # New memory costs as much as the sums, so a single tree overwrites its noise.
            out = noise.view(np.float64) if trees == 1 else released[tree]
            hierarchy_nodes.release_tree(
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
        self, progress: Progress, noise: TreeNoise | None, sums: Integers
    ) -> tuple[TreeNoise | None, int, Chain, SmootherState]:
        """Turn closed blocks' sums into released totals, in place and tree by tree.

        Returns the last tree's noise, the sum released under the threshold, the chain key and noise memory.
        """
        begin, released, chain, memory = 0, progress.released, progress.chain, progress.smoother
        distribution = self.distributions[progress.theta_steps]
        if distribution is not None:
            chain = chain.copy()
            drawn = self.prefixes.draw(sums, distribution, chain, progress.blocks)
            follows = correlation(self.perturber)
            if follows is not None:
                memory = follows.correlate(drawn, memory, progress.blocks)
            if self.sums_releases:
                released += exact_sum(sums + drawn)
            online_pass.add_noise(sums, drawn, self.grid.resolution, sums.view(np.float64))
            return None, released, chain, memory
        while begin < sums.size:
            noise, leaf = self._leaf(progress, noise, begin)
            count = min(sums.size - begin, self.plan.tree_blocks - leaf)
            part, drawn = sums[begin : begin + count], noise[1][leaf : leaf + count]
            if self.sums_releases:
                # Sum of the released totals modulo 2^64: sums without noise would wrap elsewhere.
                released += exact_sum(part + drawn)
            online_pass.add_noise(part, drawn, self.grid.resolution, part.view(np.float64))
            begin += count
        return noise, released, chain, memory

    def _leaves(self, progress: Progress, noise: TreeNoise | None, count: int) -> tuple[TreeNoise | None, Integers]:
        parts: list[Integers] = []
        begin = 0
        while begin < count:
            noise, leaf = self._leaf(progress, noise, begin)
            parts.append(noise[1][leaf : leaf + min(count - begin, self.plan.tree_blocks - leaf)])
            begin += parts[-1].size
        return noise, parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _leaf(self, progress: Progress, noise: TreeNoise | None, after: int) -> tuple[TreeNoise, int]:
        tree, leaf = divmod(progress.blocks + after, self.plan.tree_blocks)
        return noise if noise is not None and noise[0] == tree else self._tree(tree, progress.theta_steps), leaf

    def _tree(self, tree: int, theta_steps: int) -> TreeNoise:
        key = theta_key(self.key, theta_steps)
        return tree, self.perturber.leaf_noise(self.plan, theta_steps, self.epsilon, key, tree)
