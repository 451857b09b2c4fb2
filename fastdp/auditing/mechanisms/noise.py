"""Sums with noise, of which each trial is one row: counts, trees, hierarchies.

All noise comes from the package's own samplers, and each decision from the mechanism's own code; where a loop over
trials had to be written anew, the class says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastdp.guarantee import Guarantee
from fastdp.perturbers import Hierarchy
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId
from fastdp.systems.pak.running_sum import RunningSum
from fastdp_kernels import trials

Integers = NDArray[np.int64]


def draw_noise(law: sampler.Law, rows: int, columns: int, key: Key, *, level: int = 0, number: int = 0) -> Integers:
    """Independent draws: int64[rows, columns]."""
    noise: Integers = np.empty((rows, columns), np.int64)
    sampler.fill(noise.reshape(-1), law, key, StreamId(Purpose.DRAWS, level, number))
    return noise


@dataclass(frozen=True)
class Count:
    """A count with discrete Laplace noise of scale 1 / epsilon; ``sampler.fill`` draws all trials."""

    epsilon: float

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon."""
        return Guarantee(epsilon=self.epsilon, arithmetic="exact")

    def draw_trials(self, data: int, trials: int, key: Key) -> Integers:
        """Data: the count."""
        return data + draw_noise(sampler.discrete_laplace_law(1 / Fraction(self.epsilon)), trials, 1, key)


@dataclass(frozen=True)
class HierarchyTrials:
    """One tree of a hierarchy a trial: a forest with as many tops as trials, through ``Hierarchy.leaf_noise``."""

    perturber: Hierarchy
    epsilon: float
    max_range: int
    theta_steps: int

    @property
    def guarantee(self) -> Guarantee:
        """The perturber's."""
        return self.perturber.guarantee(self.perturber.plan(self.epsilon, self.max_range), self.epsilon)

    def draw_trials(self, data: Sequence[int], trials_: int, key: Key) -> Integers:
        """Data: the true sums of one top's leaves, in grid steps."""
        plan = self.perturber.plan(self.epsilon, self.max_range)
        forest = replace(plan, tops=trials_, leaves=trials_ * plan.fan_out ** (plan.levels - 1))
        noise = self.perturber.leaf_noise(forest, self.theta_steps, self.epsilon, key, 0)
        rows: Integers = noise.reshape(trials_, -1) + np.asarray(data, np.int64)
        return rows


def _levels(leaves: Sequence[int], fan_out: int) -> list[Integers]:
    """True sums of a tree's nodes, level by level."""
    levels: list[Integers] = [np.asarray(leaves, np.int64)]
    while levels[-1].size > 1:
        levels.append(levels[-1].reshape(-1, fan_out).sum(axis=1))
    return levels


@dataclass(frozen=True)
class NodesTrials(HierarchyTrials):
    """All nodes of one tree a trial, as a hierarchy without consistency releases them."""

    def draw_trials(self, data: Sequence[int], trials_: int, key: Key) -> Integers:
        """Data: the true sums of one top's leaves, in grid steps.  Outputs: nodes, the leaf level first."""
        plan = self.perturber.plan(self.epsilon, self.max_range)
        forest = replace(plan, tops=trials_, leaves=trials_ * plan.fan_out ** (plan.levels - 1))
        noise = self.perturber.node_noise(forest, self.theta_steps, self.epsilon, key, 0)
        drawn = np.split(noise, np.cumsum(forest.widths[: plan.levels])[:-1])
        pairs = zip(drawn, _levels(data, plan.fan_out), strict=True)
        return np.concatenate([level.reshape(trials_, -1) + sums for level, sums in pairs], axis=1)


@dataclass(frozen=True)
class OneTreeTrials(NodesTrials):
    """The same with a key of its own for each trial: in a forest, noise that two levels shared would hide.

    It would stand in the trees of different trials.
    """

    def draw_trials(self, data: Sequence[int], trials_: int, key: Key) -> Integers:
        """Data and outputs: as of ``NodesTrials``."""
        draw = super().draw_trials
        return np.concatenate([draw(data, 1, key.derive("tree", number)) for number in range(trials_)])


@dataclass(frozen=True)
class BinaryTreeTrials:
    """PAK's binary tree over a short stream; the kernel counts row by row.

    Noise is laid out height by height as in ``RunningSum.count``, for all trials at once.
    """

    epsilon: float
    length: int
    theta_steps: int

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon (``RunningSum``)."""
        return Guarantee(epsilon=self.epsilon, arithmetic="exact")

    def draw_trials(self, data: Sequence[int], trials_: int, key: Key) -> Integers:
        """Data: the values, in grid steps."""
        tree = RunningSum.start(key, 0, self.length, self.theta_steps, self.epsilon, 0)
        nodes = [self.length >> height for height in range(tree.levels)]
        offsets: Integers = np.cumsum([0, *nodes[:-1]])
        out: Integers = np.empty((trials_, self.length), np.int64)
        noise = draw_noise(tree.law, trials_, sum(nodes), key)
        trials.count_streams(np.asarray(data, np.int64), tree.levels, noise, offsets, out)
        return out
