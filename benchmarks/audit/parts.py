"""Parts of publishers, with the noise of all runs drawn at once: trees, hierarchies, counters that settle.

The noise comes from the package's samplers, and each decision from the mechanism's own code.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.audit import row_kernels
from benchmarks.audit import row_kernels as kernel
from fastdp.counters import Counter, RunningCounts
from fastdp.counters.counter import noise_scale
from fastdp.guarantee import Guarantee
from fastdp.integer_grid import make_grid
from fastdp.kinds import Floats, Integers
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.perturbers import Blocks, Hierarchy
from fastdp.perturbers.base import HierarchyShape
from fastdp.points import domains
from fastdp.streams.adaptive_blocks import AdaptiveBlocks
from fastdp.streams.columns import ZERO, RowKeys
from fastdp.streams.pak import RunningSum
from fastdp_lab.audit.exact import split_plan
from fastdp_lab.audit.runs import ManyRuns

#: Values are clipped to so many grid steps.
THETA = 64
#: One value more in the first leaf, and in another one.
VALUE: Any = ([THETA, 0, 0, 0], [0, 0, 0, 0])
SECOND: Any = ([0, THETA, 0, 0], [0, 0, 0, 0])
#: One event more for a counter that is left after two values and goes on, and for one that is left after five.
LEFT: Any = ([1, 0, None, 0], [0, 0, None, 0])
LEFT_LATE: Any = ([1, 0, 0, 0, 0, None], [0, 0, 0, 0, 0, None])


def draw_noise(
    distribution: sampler.LaplaceDistribution, rows: int, columns: int, key: Key, *, level: int = 0, number: int = 0
) -> Integers:
    """Independent draws: int64[rows, columns]."""
    noise: Integers = np.empty((rows, columns), np.int64)
    sampler.fill(noise.reshape(-1), distribution, key, StreamId(Purpose.DRAWS, level, number))
    return noise


def _forest(perturber: Hierarchy, epsilon: float, max_range: int, trees: int) -> HierarchyShape:
    plan = perturber.plan(epsilon, max_range)
    return replace(plan, tops=trees, leaves=trees * plan.fan_out ** (plan.levels - 1))


def hierarchy(perturber: Hierarchy, epsilon: float, max_range: int, theta_steps: int = THETA) -> ManyRuns:
    """One tree a run: a forest with as many tops as runs.  Data: the true sums of one top's leaves."""

    def draw(data: Sequence[int], trials: int, key: Key) -> Integers:
        noise = perturber.leaf_noise(_forest(perturber, epsilon, max_range, trials), theta_steps, epsilon, key, 0)
        return noise.reshape(trials, -1) + np.asarray(data, np.int64)

    return ManyRuns(perturber.guarantee(perturber.plan(epsilon, max_range), epsilon), draw)


def nodes(perturber: Hierarchy, epsilon: float, max_range: int) -> ManyRuns:
    """All nodes of one tree a run, the leaf level first, as a hierarchy without consistency releases them."""

    def draw(data: Sequence[int], trials: int, key: Key) -> Integers:
        forest = _forest(perturber, epsilon, max_range, trials)
        noise = perturber.node_noise(forest, THETA, epsilon, key, 0)
        drawn = np.split(noise, np.cumsum(forest.widths[: forest.levels])[:-1])
        sums = [np.asarray(data, np.int64)]
        while sums[-1].size > 1:
            sums.append(sums[-1].reshape(-1, forest.fan_out).sum(axis=1))
        pairs = zip(drawn, sums, strict=True)
        return np.concatenate([level.reshape(trials, -1) + true for level, true in pairs], axis=1)

    return ManyRuns(perturber.guarantee(perturber.plan(epsilon, max_range), epsilon), draw)


def one_tree(mechanism: ManyRuns) -> ManyRuns:
    """The same with a key for each run: in a forest, noise shared by two levels is in trees of different runs."""

    def draw(data: Sequence[int], trials: int, key: Key) -> Integers:
        return np.concatenate([mechanism.draw(data, 1, key.derive("tree", number)) for number in range(trials)])

    return replace(mechanism, draw=draw)


def binary_tree(epsilon: float, length: int, claim: float | None = None) -> ManyRuns:
    """PAK's binary tree over a short stream; noise is laid out height by height as in ``RunningSum.advance``."""

    def draw(data: Sequence[int], trials: int, key: Key) -> Integers:
        tree = RunningSum.start(key, 0, length, THETA, epsilon, 0)
        sizes = [length >> height for height in range(length.bit_length())]
        offsets: Integers = np.cumsum([0, *sizes[:-1]])
        out: Integers = np.empty((trials, length), np.int64)
        noise = draw_noise(tree.distribution, trials, sum(sizes), key)
        kernel.count_streams(np.asarray(data, np.int64), length.bit_length(), noise, offsets, out)
        return out

    return ManyRuns(Guarantee(epsilon=epsilon if claim is None else claim, arithmetic="exact"), draw)


def settling_counter(counter: Counter, epsilon: float) -> ManyRuns:
    """A counter that settles where it is left (None in the data), as PHDStream's cells do; a row a run."""
    distribution = sampler.laplace_distribution(noise_scale(counter, Fraction(epsilon)))

    def draw(data: Sequence[int | None], trials: int, key: Key) -> Integers:
        noise = draw_noise(distribution, trials, len(data), key)
        state: Integers = np.zeros((trials, counter.width), np.int64)
        changes = []
        for i, value in enumerate(data):
            own = noise[:, i].copy()
            changes.append(counter.settle(state, own) if value is None else value + counter.step(state, own))
        return np.cumsum(np.stack(changes, axis=1), axis=1)

    return ManyRuns(RunningCounts(counter, epsilon, 1, seed=0).guarantee, draw)


def open_sums(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-likelihood ratio of a binary counter's outputs for a first value of 0 or THETA, times the scale.

    Node [1, 2^j] is released alone at time 2^j; a shift of Laplace noise by THETA has a clipped linear log-ratio.
    """
    times = [2**j - 1 for j in range(outputs.shape[1].bit_length())]
    return np.clip(outputs[:, times], 0.0, THETA).sum(axis=1)


def open_nodes(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same for all nodes of a tree with fan-out 2: those that hold the first leaf."""
    leaves = (outputs.shape[1] + 1) // 2
    first = np.cumsum([0, *(leaves >> height for height in range(leaves.bit_length() - 1))])
    return np.clip(outputs[:, first], 0.0, THETA).sum(axis=1)


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
        perturber = Blocks()
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
        keys, theta = RowKeys(self.pipeline.key), np.array([float(self.theta_steps)])
        opened = self.pipeline.open(self.pipeline.columns(1), ZERO, theta, keys)
        memory = self.pipeline.memories(opened, ZERO)
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


#: Points added and removed.
Points = tuple[Floats, Floats]


def with_split_noise(plan: domains.CellParameters, scale: Any) -> domains.CellParameters:
    """The same decisions with noise of another scale, which no parameters give."""
    made = copy.copy(plan)
    object.__setattr__(made, "split_distribution", sampler.laplace_distribution(scale))
    return made


def attack(depth: int, epsilon: float) -> Points:
    """Additions and removals on [0, 1] that keep the paper's score at its threshold along one path.

    The cell of depth i around 0 must hold i penalties of a level: additions go into the deepest cell, removals into
    the siblings.
    """
    plan = split_plan(epsilon, depth, repaired=False)
    penalty = plan.bias / plan.unit
    wanted = [round((i + 0.15) * penalty) for i in range(depth)]
    siblings = 0.75 * 2.0 ** -np.arange(depth - 1.0)
    return np.zeros(wanted[-1]), np.repeat(siblings, np.diff(wanted))
