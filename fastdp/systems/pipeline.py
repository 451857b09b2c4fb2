"""The step of a publisher: a pure function from (progress, values) to (progress, published values).

Source: ToPS Algorithm 1, lines 11 to 28, in the reading of ``docs/tops.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastdp.grid import Grid
from fastdp.perturbers import Hierarchy, HierarchyPlan
from fastdp.randomness.key import Key
from fastdp.smoothers import Smoother
from fastdp.smoothers.recent import SmootherState
from fastdp_kernels import online_pass

Floats = NDArray[np.float64]
#: The number of a tree and the noise of its leaves; a cache, since the key determines it.
TreeNoise = tuple[int, NDArray[np.int64]]


@dataclass(frozen=True)
class Progress:
    """Everything that lives between two chunks, but for the hold-out's summary and the noise (a function of the key).

    Attributes
    ----------
    n_seen : int
        Values consumed, the hold-out included.
    theta_steps : int
        The threshold in grid steps; 0 until it is chosen.
    blocks : int
        Closed blocks.
    filled : int
        Values in the open block.
    open_sum : int
        Their exact sum, in grid steps.  Secret.
    prediction : float
        What each value of the open block is published as.
    smoother : tuple of float
        The smoother's own memory.
    """

    n_seen: int = 0
    theta_steps: int = 0
    blocks: int = 0
    filled: int = 0
    open_sum: int = 0
    prediction: float = 0.0
    smoother: SmootherState = ()


@dataclass(frozen=True)
class Pipeline:
    """The parts between clipped values and published ones, composed.

    Attributes
    ----------
    plan : HierarchyPlan
        Shape of the hierarchy.
    grid : Grid
        Integers that values are rounded to.
    perturber, smoother, epsilon, key
        As given to the publisher.
    """

    plan: HierarchyPlan
    grid: Grid
    perturber: Hierarchy
    smoother: Smoother | None
    epsilon: float
    key: Key

    def open(self, progress: Progress, theta: float) -> Progress:
        """Begin to publish with this threshold; the first block predicts theta / 2 a value (Appendix D, u_0)."""
        steps = self.grid.snap(theta)
        first = steps * self.grid.resolution / 2.0
        state = self.smoother.start(first) if self.smoother is not None else ()
        return replace(progress, theta_steps=steps, prediction=first, smoother=state)

    def step(
        self, progress: Progress, noise: TreeNoise | None, values: Floats, out: Floats
    ) -> tuple[Progress, TreeNoise | None, bool]:
        """Publish values behind the hold-out into ``out``; also says whether some were NaN or infinite."""
        per_unit, top = 1.0 / self.grid.resolution, float(progress.theta_steps)
        n_seen = progress.n_seen + values.size
        if self.smoother is None or self.plan.block == 1:
            # The output's memory holds the integers until their noise is added.
            steps = out.view(np.int64)
            bad = online_pass.round_values(values, per_unit, top, steps)
            noise = self._add_noise(progress, noise, steps, out)
            return replace(progress, n_seen=n_seen, blocks=progress.blocks + values.size), noise, bad
        block = self.plan.block
        closing, filled = divmod(progress.filled + values.size, block)
        sums: NDArray[np.int64] = np.empty(closing + 1, np.int64)
        sums[closing] = 0
        touched = sums[: closing + (filled > 0)]
        bad = online_pass.sum_blocks(values, per_unit, top, block, progress.filled, touched)
        sums[0] += progress.open_sum
        # Totals take the memory of the sums, means that of the predictions: long chunks of short blocks stay lean.
        totals = sums[:closing].view(np.float64)
        open_sum = int(sums[closing])
        noise = self._add_noise(progress, noise, sums[:closing], totals)
        predictions = np.empty(closing + 1)
        predictions[0] = progress.prediction
        means = np.divide(totals, block, out=predictions[1:])
        state, predicted = self.smoother.step(progress.smoother, means)
        if predicted is not means:
            means[:] = predicted
        online_pass.emit_blocks(totals, predictions, block, progress.filled, out)
        following = Progress(
            n_seen=n_seen,
            theta_steps=progress.theta_steps,
            blocks=progress.blocks + closing,
            filled=filled,
            open_sum=open_sum,
            prediction=float(predictions[closing]),
            smoother=state,
        )
        return following, noise, bad

    def _add_noise(
        self, progress: Progress, noise: TreeNoise | None, sums: NDArray[np.int64], out: Floats
    ) -> TreeNoise | None:
        """Add each closed block's leaf noise, tree by tree; the last tree's noise stays for the next chunk."""
        begin = 0
        while begin < sums.size:
            tree, leaf = divmod(progress.blocks + begin, self.plan.tree_blocks)
            if noise is None or noise[0] != tree:
                leaves = self.perturber.leaf_noise(self.plan, progress.theta_steps, self.epsilon, self.key, tree)
                noise = (tree, leaves)
            count = min(sums.size - begin, self.plan.tree_blocks - leaf)
            part = slice(begin, begin + count)
            online_pass.add_noise(sums[part], noise[1][leaf : leaf + count], self.grid.resolution, out[part])
            begin += count
        return noise
