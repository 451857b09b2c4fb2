"""The mechanisms of this package, each ready to run millions of trials.

All noise comes from the package's own samplers, and each decision from the mechanism's own code; where a loop over
trials had to be written anew, the class says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.counters import RunningCounts
from fastdp.counters.base import Counter, counter_guarantee, event_guarantee
from fastdp.counters.simple import Simple
from fastdp.errors import AccuracyWarning
from fastdp.local.base import Mechanism
from fastdp.perturbers import Hierarchy
from fastdp.privacy import Guarantee
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId, WordStream
from fastdp.spatial import Box
from fastdp.spatial.cells import encode
from fastdp.spatial.plan import Plan, make_plan
from fastdp.systems.pak import PAK
from fastdp.systems.running_sum import RunningSum
from fastdp.systems.spatial_publisher import SpatialPublisher
from fastdp.systems.stream_publisher import StreamPublisher
from fastdp.thresholds import NoisyMax, ScaleFree, SmoothQuantile
from fastdp.thresholds.base import ThresholdTask
from fastdp.thresholds.noisy_choice import CountedHoldout
from fastdp.thresholds.quantile import CELLS
from fastdp.thresholds.smooth_noise import decay_table
from fastdp.thresholds.sorted_holdout import rank_of
from fastdp_kernels import smooth_sensitivity, trials

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Trees grown side by side.
ROWS = 4096


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
class NoisyMaxTrials:
    """Noisy max on one hold-out: the rule's own choices, of which a publisher takes one."""

    rule: NoisyMax | ScaleFree
    task: ThresholdTask

    @property
    def guarantee(self) -> Guarantee:
        """The rule's."""
        return self.rule.guarantee(self.task)

    def chooser(self, data: Sequence[float]) -> CountedHoldout:
        """The rule's, with the hold-out in it."""
        with warnings.catch_warnings():
            # A hold-out small enough to enumerate is too short to be of use.
            warnings.simplefilter("ignore", AccuracyWarning)
            chooser = self.rule.start(self.task)
        chooser.observe(np.asarray(data, np.float64))
        return chooser

    def draw_trials(self, data: Sequence[float], trials_: int, key: Key) -> Floats:
        """Data: the hold-out."""
        return self.chooser(data).choices(key, trials_)


@dataclass(frozen=True)
class SmoothQuantileTrials:
    """A quantile with Laplace noise of its smooth sensitivity.

    A vectorised twin of ``SmoothQuantile``'s release and ``SmoothNoise.draw``: the same words, rank, sensitivity,
    constants and cells, but tails below 2^-10 keep the bits of their first word, and cells are found in doubles.  The
    tests compare it with the rule itself.
    """

    rule: SmoothQuantile
    task: ThresholdTask

    @property
    def guarantee(self) -> Guarantee:
        """The rule's."""
        return self.rule.guarantee(self.task)

    def draw_trials(self, data: Sequence[float], trials_: int, key: Key) -> Floats:
        """Data: the hold-out."""
        words: NDArray[np.uint64] = np.empty(trials_, np.uint64)
        WordStream(key, StreamId(Purpose.THRESHOLD)).fill(words)
        return self.thetas(data, words)

    def thetas(self, data: Sequence[float], words: NDArray[np.uint64]) -> Floats:
        """Theta by each word."""
        law, resolution = self.rule.law(self.task), self.task.resolution
        chooser = self.rule.start(self.task)
        chooser.observe(np.asarray(data, np.float64))
        steps, bound = np.sort(chooser.pack()), round(self.task.bound / resolution)
        rank = rank_of(self.rule.p, steps.size)
        width = smooth_sensitivity.divide_pairs(steps, bound, rank, decay_table(law.b, steps.size)) / law.a
        leading = (words >> np.uint64(1)).astype(np.float64)
        shift = width * -np.log((2.0 * leading + 1.0) / 2.0**64)
        shift = np.where(words & np.uint64(1), -shift, shift)
        cell = max(1, bound // CELLS)
        theta = np.floor((steps[rank - 1] + shift + 0.5) / cell) * cell + cell // 2
        clipped: Floats = np.clip(theta * resolution, resolution, self.task.bound)
        return clipped


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


@dataclass(frozen=True)
class NodesTrials(HierarchyTrials):
    """All nodes of one tree a trial, as a hierarchy without consistency releases them."""

    def draw_trials(self, data: Sequence[int], trials_: int, key: Key) -> Integers:
        """Data: the true sums of one top's leaves, in grid steps.  Outputs: nodes, the leaf level first."""
        plan = self.perturber.plan(self.epsilon, self.max_range)
        forest = replace(plan, tops=trials_, leaves=trials_ * plan.fan_out ** (plan.levels - 1))
        noise = self.perturber.node_noise(forest, self.theta_steps, self.epsilon, key, 0)
        sums, levels = np.asarray(data, np.int64), []
        for level in np.split(noise, np.cumsum(forest.widths[: plan.levels])[:-1]):
            levels.append(level.reshape(trials_, -1) + sums)
            sums = sums.reshape(-1, plan.fan_out).sum(axis=1) if sums.size > 1 else sums
        return np.concatenate(levels, axis=1)


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
        tree = RunningSum.plant(key, 0, self.length, self.theta_steps, self.epsilon, 0)
        nodes = [self.length >> height for height in range(tree.levels)]
        offsets: Integers = np.cumsum([0, *nodes[:-1]])
        out: Integers = np.empty((trials_, self.length), np.int64)
        noise = draw_noise(tree.law, trials_, sum(nodes), key)
        trials.count_streams(np.asarray(data, np.int64), tree.levels, noise, offsets, out)
        return out


@dataclass(frozen=True)
class CounterTrials:
    """A counter of PHDStream: ``RunningCounts`` with as many running sums as trials."""

    counter: Counter
    epsilon: float

    @property
    def guarantee(self) -> Guarantee:
        """The counter's."""
        return counter_guarantee(self.counter, self.epsilon)

    def draw_trials(self, data: Sequence[int], trials_: int, key: Key) -> Integers:
        """Data: the increments."""
        counts = RunningCounts(self.counter, self.epsilon, trials_, key=key)
        return np.stack([counts.step(np.full(trials_, value)) for value in data], axis=1)


@dataclass(frozen=True)
class LocalTrials:
    """Reports of one value: ``Mechanism.perturb`` on as many copies as trials."""

    mechanism: Mechanism

    @property
    def guarantee(self) -> Guarantee:
        """The mechanism's."""
        return self.mechanism.guarantee

    def draw_trials(self, data: float, trials_: int, key: Key) -> NDArray[np.int32]:
        """Data: the value."""
        return self.mechanism.perturb(np.full(trials_, data), key=key, start=0)


@dataclass(frozen=True)
class SplitTrials:
    """PrivTree's decisions for one batch on an empty tree; the kernel descends row by row.

    Attributes
    ----------
    epsilon : float
        Of the decisions alone.
    max_depth : int
        D.
    repaired : bool
        The package's score, or the paper's.
    target : float
        Outputs are the depth of the leaf around this point, and the number of nodes.
    """

    epsilon: float
    max_depth: int
    repaired: bool = True
    target: float = 0.0

    @property
    def plan(self) -> Plan:
        """The constants of the split tests on [0, 1]."""
        half = Fraction(self.epsilon)
        return make_plan(Box(0, 1), 2, self.max_depth, half, half, Simple(), threshold=0.0, repaired=self.repaired)

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon for one addition, with the repaired score."""
        return event_guarantee(self.epsilon, "PrivTree's decisions alone")

    def draw_trials(self, data: tuple[Any, Any], trials_: int, key: Key) -> Integers:
        """Data: the points added and removed."""
        plan = self.plan
        added, removed, target = (
            encode(plan, np.asarray(points, np.float64).reshape(-1, 1)) for points in (*data, [self.target])
        )
        out: Integers = np.full((trials_, 2), -1, np.int64)
        fixed = (plan.max_depth, plan.fan_out, plan.unit, plan.bias, plan.threshold, plan.repaired)
        for number, begin in enumerate(range(0, trials_, ROWS)):
            part, level = out[begin : begin + ROWS], 0
            noise: Integers = np.empty((part.shape[0], 0), np.int64)
            waiting = np.arange(part.shape[0])
            while waiting.size:
                # Trees that were too large go on with further draws behind the same ones, so none is chosen by size.
                columns = max(4 * (self.max_depth + 1), noise.shape[1])
                more = draw_noise(plan.split_law, part.shape[0], columns, key, level=level, number=number)
                noise, level = np.concatenate([noise, more], axis=1), level + 1
                grown: Integers = np.empty((waiting.size, 2), np.int64)
                trials.split_trees(*fixed, added, removed, int(target[0]), noise[waiting], grown)
                part[waiting] = grown
                waiting = waiting[grown[:, 0] < 0]
        return out


@dataclass(frozen=True)
class PublisherTrials:
    """One long stream through one ``StreamPublisher``, a piece of it a trial.

    Attributes
    ----------
    make : callable
        A fresh publisher with this key; trees of its noise must begin where pieces do, and nothing may be predicted
        from the piece before (no smoother).
    """

    make: Callable[[Key], StreamPublisher]

    @property
    def guarantee(self) -> Guarantee:
        """The publisher's."""
        return self.make(Key.from_seed(0)).guarantee

    def draw_trials(self, data: Sequence[float], trials_: int, key: Key) -> Floats:
        """Data: one piece."""
        return self.make(key).publish(np.tile(np.asarray(data, np.float64), trials_)).reshape(trials_, -1)


@dataclass(frozen=True)
class WholeTrials:
    """A whole stream a trial, from a fresh publisher: theta, which is public, and what is published.

    Parameters
    ----------
    make : callable
        From a seed to a publisher.
    """

    make: Callable[[int], StreamPublisher | PAK]

    @property
    def guarantee(self) -> Guarantee:
        """The publisher's."""
        return self.make(0).guarantee

    def __call__(self, data: Sequence[float], seed: int) -> Floats:
        """Data: the stream, the hold-out first."""
        publisher = self.make(seed)
        published = publisher.publish(data)
        return np.concatenate([np.asarray([publisher.threshold], np.float64), published])


@dataclass(frozen=True)
class SpatialTrials:
    """A whole stream of points on [0, 1] a trial; outputs are the counts of four intervals after each batch.

    Parameters
    ----------
    make : callable
        From a seed to a publisher of points.
    """

    make: Callable[[int], SpatialPublisher]

    @property
    def guarantee(self) -> Guarantee:
        """The stream's."""
        return self.make(0).guarantee

    def __call__(self, data: Sequence[Any], seed: int) -> Floats:
        """Data: batches of additions."""
        stream = self.make(seed)
        lower = np.arange(4.0).reshape(-1, 1) / 4.0
        counts = []
        for batch in data:
            stream.advance(np.asarray(batch, np.float64).reshape(-1, 1))
            counts.append(np.asarray(stream.count(lower, lower + 0.25), np.float64))
        return np.concatenate(counts)
