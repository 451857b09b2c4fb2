"""Mechanisms that are broken on purpose.  FOR AUDITS ONLY: none of them is private as it claims.

Each repeats an error of a paper, of a published code, or one that is easily made; an audit that does not catch them
shows nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.auditing.blocks import LOOKED_AT, BlocksTrials
from fastdp.auditing.mechanisms import (
    BinaryTreeTrials,
    HierarchyTrials,
    ReplayTrials,
    SettlingTrials,
    SplitTrials,
    StreamTrials,
    ToPLTrials,
)
from fastdp.auditing.trials import TrialMechanism
from fastdp.counters import RunningCounts, SelectiveCounting
from fastdp.guarantee import Guarantee
from fastdp.perturbers import Hierarchy
from fastdp.perturbers.base import HierarchyShape
from fastdp.randomness.key import Binding, Key
from fastdp.systems.phdstream.adaptive import AdaptivePHDStream
from fastdp.systems.stream.parameters import StreamParameters
from fastdp.systems.stream.publisher import StreamPublisher
from fastdp.systems.stream.stages import Advance, FillIn, Mend, Schedule
from fastdp.thresholds import NoisyMax

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Misclaimed:
    """A right mechanism under a wrong claim, which is what most errors of calibration come down to."""

    mechanism: TrialMechanism
    epsilon: float

    @property
    def guarantee(self) -> Guarantee:
        """The wrong claim."""
        return Guarantee(epsilon=self.epsilon)

    def draw_trials(self, data: Any, trials: int, key: Key) -> NDArray[Any]:
        """The mechanism's own."""
        return self.mechanism.draw_trials(data, trials, key)


@dataclass(frozen=True)
class MisclaimedRuns:
    """The same for a mechanism that makes one run a call; its delta is as it was."""

    mechanism: Any
    epsilon: float

    @property
    def guarantee(self) -> Guarantee:
        """The wrong claim."""
        return Guarantee(epsilon=self.epsilon, delta=self.mechanism.guarantee.delta)

    def __call__(self, data: Any, seed: int) -> NDArray[Any]:
        """The mechanism's own."""
        outputs: NDArray[Any] = self.mechanism(data, seed)
        return outputs


def theta_missing(epsilon: float, perturber: Hierarchy, max_range: int) -> Misclaimed:
    """A hierarchy whose noise has scale levels / epsilon for values up to theta steps."""
    return Misclaimed(HierarchyTrials(perturber, epsilon, max_range, theta_steps=1), epsilon)


def log2_levels(epsilon: float, length: int, theta_steps: int) -> Misclaimed:
    """The binary counter as PAK and PHDStream print it: scale log2(T) / epsilon, T a power of two."""
    printed = length.bit_length() - 1
    return Misclaimed(BinaryTreeTrials(epsilon * (printed + 1) / printed, length, theta_steps), epsilon)


def papers_score(epsilon: float, max_depth: int) -> Misclaimed:
    """PHDStream's split decisions by the printed score, with the lambda that its Theorem 3.2 takes."""
    return Misclaimed(SplitTrials(epsilon, max_depth, repaired=False), epsilon)


class SharedNoise(Hierarchy):
    """A hierarchy whose trees all have the first one's noise."""

    def node_noise(
        self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int
    ) -> NDArray[np.int64]:
        """That of tree 0."""
        del tree
        # On purpose: the check of words would see it before the audit does.
        return super().node_noise(plan, theta_steps, epsilon, key.again(), 0)


def shared_noise(key: Key) -> StreamPublisher:
    """ToPS with two leaves a tree and one noise for all trees."""
    return StreamPublisher(
        threshold=NoisyMax(fan_out=2),
        perturber=SharedNoise(2, prune=0),
        epsilon=1.0,
        bound=4.0,
        holdout=4,
        max_range=2,
        resolution=1.0,
        key=key,
    )


class FreeRefinement(StreamParameters):
    """Published values choose the next theta, and nobody takes its epsilon from their noise."""

    @cached_property
    def publish_epsilon(self) -> float:
        """All of it."""
        return self.epsilon


def free_refinement(right: StreamPublisher) -> MisclaimedRuns:
    """A publisher with a :class:`fastdp.thresholds.renewals.RenewFromPublished`, without its price."""
    fields = {field.name: getattr(right.composition, field.name) for field in dataclasses.fields(StreamParameters)}
    wrong = FreeRefinement(**fields)
    return MisclaimedRuns(StreamTrials(lambda key: right._of(wrong, key)), right.epsilon)


class TellingCourse(Schedule):
    """What is published in the place of withheld values is their own mean, without noise."""

    def _withhold(self, journey: Advance, floats: Floats, at: int, mend: Mend) -> None:
        super()._withhold(journey, floats, at, mend)
        if journey.standing.progress.theta_steps:
            journey.steps[-1] = FillIn(float(floats.mean()), floats.size)


def telling_mean(right: StreamPublisher) -> StreamTrials:
    """A publisher with a :class:`fastdp.thresholds.renewals.RenewFromHoldout` that tells what it withholds."""

    def make(key: Key) -> StreamPublisher:
        publisher = right._fresh(key)
        publisher._course = TellingCourse(publisher.composition, key)
        return publisher

    return StreamTrials(make)


def tied_to_position(right: StreamPublisher) -> ReplayTrials:
    """A stream and its altered copy with noise of the first format, which follows from the position alone."""

    def make(key: Key) -> StreamPublisher:
        return right._fresh(Key(key.reveal(), simulated=True, binding=Binding.FIRST_FORMAT))

    return ReplayTrials(make, noises=2)


class FreeSettling(SettlingTrials):
    """A counter that takes back its open noise when it is left, and puts none in its place."""

    def _change(self, state: Integers, noise: Integers, value: int | None) -> Integers:
        return super()._change(state, np.zeros_like(noise) if value is None else noise, value)


class OneKeyCounting(SelectiveCounting):
    """Selective counting whose counters all have the first one's noise."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        first = self._key.derive("counter", 0)
        self._counts = [
            RunningCounts(counter, self.epsilon, self.dimension, key=first.again()) for counter in self.counters
        ]


class TwiceReporting(ToPLTrials):
    """ToPL where the users before the threshold report once more after it."""

    def __call__(self, data: Sequence[float], seed: int) -> Floats:
        """Data: the users' values, as many as before the threshold."""
        return super().__call__([*data, *data], seed)


class RecountingPHDStream(AdaptivePHDStream):
    """Cells from released counts, where events go on waiting after they were counted, and are counted again."""

    def _following(self, added: Integers, removed: Integers) -> Any:
        before = self._state
        after = super()._following(added, removed)
        return after if before.grown is None else replace(after, added=(*before.added, added))


@dataclass(frozen=True)
class PeekingBlocks:
    """Blocks with the right noise, whose ends are chosen by the true sums: noise comes too late."""

    epsilon: float
    theta_steps: int

    @property
    def guarantee(self) -> Guarantee:
        """What sums alone would have, were the blocks fixed."""
        return BlocksTrials(self.epsilon, self.theta_steps).guarantee

    def draw_trials(self, data: Sequence[float], trials: int, key: Key) -> NDArray[np.int64]:
        """Data and outputs: as of ``BlocksTrials``."""
        right = BlocksTrials(self.epsilon, self.theta_steps)
        rows = np.repeat(right.release(data, np.zeros((1, LOOKED_AT), np.int64)), trials, axis=0)
        rows[:, 1::2] += np.where(rows[:, ::2] >= 0, right.noise(trials, key), 0)
        return rows


@dataclass(frozen=True)
class FloatingPointLaplace:
    """The textbook: value + Laplace noise in doubles (Mironov 2012)."""

    epsilon: float

    @property
    def guarantee(self) -> Guarantee:
        """True for real numbers, not for doubles."""
        return Guarantee(epsilon=self.epsilon)

    def draw_trials(self, data: float, trials: int, key: Key) -> Floats:
        """Data: one value; sensitivity 1."""
        generator = np.random.default_rng(int.from_bytes(key.reveal(), "big"))
        return data + generator.laplace(0.0, 1.0 / self.epsilon, trials)


@dataclass(frozen=True)
class LeakingPiecewise:
    """The piecewise mechanism with the error of the published code of ToPL.

    One name stands for the domain's lower end and for the near interval's: the loop over users overwrites the first,
    and the reports are scaled back with what the last user's value left there (``docs/topl.md``).
    """

    epsilon: float

    @property
    def guarantee(self) -> Guarantee:
        """What each report would have, were the mechanism right."""
        return Guarantee(epsilon=self.epsilon, model="local")

    def draw_trials(self, data: Sequence[float], trials: int, key: Key) -> Floats:
        """Data: the users' values, in [-1, 1]; outputs are all their reports."""
        generator = np.random.default_rng(int.from_bytes(key.reveal(), "big"))
        root = math.exp(self.epsilon / 2.0)
        end = (root + 1.0) / (root - 1.0)
        low, high = -1.0, 1.0
        reports = np.empty((trials, len(data)))
        for user, value in enumerate(data):
            position = 2.0 * (value - low) / (high - low) - 1.0
            low = (end + 1.0) / 2.0 * position - (end - 1.0) / 2.0
            near = generator.random(trials) < root / (root + 1.0)
            inside = low + (end - 1.0) * generator.random(trials)
            # Outside: two pieces laid end to end, end + 1 long in all.
            along = -end + (end + 1.0) * generator.random(trials)
            reports[:, user] = np.where(near, inside, np.where(along < low, along, along + end - 1.0))
        return low + (high - low) * (reports + 1.0) / 2.0
