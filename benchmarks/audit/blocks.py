"""Blocks whose length follows released sums, many runs at once, and inputs that change the lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from benchmarks.audit import row_kernels
from fastdp.guarantee import Guarantee
from fastdp.integer_grid import make_grid
from fastdp.noise.key import Key
from fastdp.perturbers import Blocks
from fastdp.streams.adaptive_blocks import AdaptiveBlocks
from fastdp.streams.stream_state import Progress
from fastdp_lab.audit.runs import ManyRuns

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: A stream of so many values, the first ones a warm-up: blocks are long from the start, and lengths are soon chosen.
VALUES, WARM_UP = 2048, 1024
#: The first blocks of a run are looked at; what comes later is not.
LOOKED_AT = 40


@dataclass(frozen=True)
class BlocksTrials:
    """The first blocks of a stream a trial, lengths and sums, through the kernel of :class:`fastdp.Adaptive`.

    The warm-up's sums are outputs like the others, which is more than a publisher shows.
    """

    epsilon: float
    theta_steps: int

    @cached_property
    def pipeline(self) -> AdaptiveBlocks:
        """The publisher's; with values in steps, all of its range up to theta."""
        perturber = Blocks("none")
        plan = perturber.plan(self.epsilon, VALUES)
        grid = make_grid(float(self.theta_steps), 1.0, self.epsilon, VALUES, plan.levels, plan.fan_out)
        return AdaptiveBlocks(plan, grid, perturber, self.epsilon, Key.from_seed(0), VALUES, WARM_UP, False)

    @property
    def guarantee(self) -> Guarantee:
        """The perturber's."""
        return self.pipeline.perturber.guarantee(self.pipeline.plan, self.epsilon)

    @property
    def mechanism(self) -> ManyRuns:
        """Data: the values, in grid steps.  Outputs: exponent and sum of each block, -1 and 0 where none closed."""
        return ManyRuns(self.guarantee, lambda data, trials, key: self.release(data, self.noise(trials, key)))

    def noise(self, trials_: int, key: Key) -> Integers:
        """A batch of blocks a trial, by ``Blocks.leaf_noise``: int64[trials, LOOKED_AT]."""
        batch = replace(self.pipeline.plan, tops=trials_ * LOOKED_AT, leaves=trials_ * LOOKED_AT)
        drawn = self.pipeline.perturber.leaf_noise(batch, self.theta_steps, self.epsilon, key, 0)
        return drawn.reshape(trials_, LOOKED_AT)

    def release(self, data: Sequence[float] | Floats, noise: Integers) -> Integers:
        """A run for each row of noise: int64[trials, 2 * LOOKED_AT]."""
        values = np.asarray(data, np.float64)
        memory = self.pipeline.open(Progress(), float(self.theta_steps)).smoother
        out: Integers = np.empty((noise.shape[0], 2 * LOOKED_AT), np.int64)
        row_kernels.release_blocks(values, self.theta_steps, self.pipeline.shape, memory, noise, out)
        return out

    def true_lengths(self, data: Sequence[float] | Floats) -> Integers:
        """Exponents as they would be by the true sums: what may not be known."""
        return self.release(data, np.zeros((1, LOOKED_AT), np.int64))[0, ::2]


def turning_point(theta_steps: int, epsilon: float) -> tuple[Floats, Floats]:
    """Two streams that differ in one value, and in block lengths if these depended on true sums.

    On the way from a calm stream to a wild one, value by value, lengths change somewhere.
    """
    mechanism = BlocksTrials(epsilon, theta_steps)
    wild = np.where(np.arange(VALUES) // 64 % 2, float(theta_steps), 0.0)
    calm = np.full(VALUES, float(theta_steps))

    def stream(changed: int) -> Floats:
        return np.concatenate([wild[:changed], calm[changed:]])

    low, high, lengths = 0, VALUES, mechanism.true_lengths(stream(0))
    while high - low > 1:
        middle = (low + high) // 2
        same = np.array_equal(mechanism.true_lengths(stream(middle)), lengths)
        low, high = (middle, high) if same else (low, middle)
    return stream(low), stream(high)
