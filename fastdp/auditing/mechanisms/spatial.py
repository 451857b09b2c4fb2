"""Counters, cells, and whole streams of points."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.auditing.mechanisms.noise import draw_noise
from fastdp.counters import RunningCounts, SelectiveCounting
from fastdp.counters.base import Counter, counter_guarantee, event_guarantee, noise_scale
from fastdp.counters.selective import Selected
from fastdp.counters.simple import Simple
from fastdp.guarantee import Guarantee
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.spatial import Box, cells
from fastdp.spatial.cell_parameters import CellParameters
from fastdp.systems.phdstream.publisher import PHDStream
from fastdp.systems.phdstream.spatial_publisher import SpatialPublisher
from fastdp_kernels import trials

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Trees grown side by side.
ROWS = 4096


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
class SettlingTrials(CounterTrials):
    """A counter that is left now and then and settles, as PHDStream's cells do; its own steps, a row a trial."""

    def draw_trials(self, data: Sequence[int | None], trials_: int, key: Key) -> Integers:
        """Data: the increments, None where the counter is left.  Outputs: the sum after each."""
        law = sampler.discrete_laplace_law(noise_scale(self.counter, Fraction(self.epsilon)))
        noise = draw_noise(law, trials_, len(data), key)
        state: Integers = np.zeros((trials_, self.counter.width), np.int64)
        changes = [self._change(state, noise[:, i].copy(), value) for i, value in enumerate(data)]
        sums: Integers = np.cumsum(np.stack(changes, axis=1), axis=1)
        return sums

    def _change(self, state: Integers, noise: Integers, value: int | None) -> Integers:
        if value is None:
            return self.counter.settle(state, noise)
        return value + self.counter.step(state, noise)


@dataclass(frozen=True)
class Coin:
    """A selector of two counters by randomised response: whether the input is positive, told truly or not."""

    epsilon: float
    seed: int

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon for an event, which changes one input."""
        return event_guarantee(self.epsilon, "randomised response to one input")

    def select(self, values: Integers, step: int, last: Selected | None) -> int:
        """The second counter if the input is positive, or with probability 1 / (1 + e^epsilon) if it is not."""
        del last
        word = np.random.default_rng([self.seed, step]).random()
        return int((values[0] > 0) == (word < 1.0 / (1.0 + math.exp(-self.epsilon))))


@dataclass(frozen=True)
class SelectiveTrials:
    """Online selective counting, two counters, a whole stream a trial: which one was active, and its sum.

    Attributes
    ----------
    epsilon : float
        Half for the selector, half for the counters.
    counters : type
        What counts.
    """

    epsilon: float
    counters: type[SelectiveCounting] = SelectiveCounting

    def make(self, seed: int) -> SelectiveCounting:
        """A fresh one."""
        half = self.epsilon / 2.0
        return self.counters([Simple(), Simple()], Coin(half, seed), half, seed=seed)

    @property
    def guarantee(self) -> Guarantee:
        """Of both parts."""
        return self.make(0).guarantee

    def __call__(self, data: Sequence[int], seed: int) -> Integers:
        """Data: the increments."""
        counting = self.make(seed)
        released = [counting.step(value) for value in data]
        return np.array([number for one in released for number in (one.counter, *one.counts.tolist())])


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
    def plan(self) -> CellParameters:
        """The constants of the split tests on [0, 1], of which a publisher's epsilon pays for half."""
        return PHDStream(
            Box(0, 1),
            2.0 * self.epsilon,
            max_depth=self.max_depth,
            score="repaired" if self.repaired else "paper",
            seed=0,
        )._plan

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon for one addition, with the repaired score."""
        return event_guarantee(self.epsilon, "PrivTree's decisions alone")

    def draw_trials(self, data: tuple[Any, Any], trials_: int, key: Key) -> Integers:
        """Data: the points added and removed."""
        plan = self.plan
        added, removed, target = (
            cells.encode(plan, np.asarray(points, np.float64).reshape(-1, 1)) for points in (*data, [self.target])
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
class SpatialTrials:
    """A whole stream of points on [0, 1] a trial; outputs tell of the released tree after each batch.

    That is, where the inputs differ: the number of leaves, depth and count of the leaf around the target, and the
    total.

    Attributes
    ----------
    make : callable
        A fresh publisher of points with this key.
    share : float
        Of its epsilon, what can be lost at all: a single cell is never cut, which leaves the counts' half.
    target : float
        The place of the events in which the inputs differ.
    """

    make: Callable[[Key], SpatialPublisher]
    share: float = 1.0
    target: float = 0.1

    @property
    def guarantee(self) -> Guarantee:
        """The stream's."""
        whole = self.make(Key.from_seed(0)).guarantee
        return replace(whole, epsilon=whole.epsilon * self.share)

    def __call__(self, data: Sequence[tuple[Sequence[float], Sequence[float]]], seed: int) -> Floats:
        """Data: batches of points added and removed."""
        stream = self.make(Key.from_seed(seed))
        seen: list[float] = []
        for batch in data:
            stream.advance(*(np.asarray(points, np.float64).reshape(-1, 1) for points in batch))
            tree = stream.tree
            leaf = int(np.flatnonzero((tree.lower[:, 0] <= self.target) & (self.target < tree.upper[:, 0]))[0])
            seen += [tree.n_leaves, tree.depths[leaf], tree.counts[leaf], tree.total]
        return np.array(seen, np.float64)
