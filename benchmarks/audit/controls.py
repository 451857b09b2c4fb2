"""Negative controls: mechanisms that lose more privacy than they claim.  FOR AUDITS ONLY.

Each repeats an error of a paper, of published code, or one that is easily made; an audit that does not catch them
shows nothing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.audit.parts import LOOKED_AT, THETA, BlocksTrials
from fastdp.guarantee import Guarantee
from fastdp.kinds import Floats, Integers
from fastdp.noise import sampler
from fastdp.noise.given_noise import Name, given
from fastdp.noise.key import Key
from fastdp.noise.sampler import Distribution, LaplaceDistribution
from fastdp.noise.words import Purpose, StreamId
from fastdp.perturbers import Hierarchy
from fastdp.perturbers.base import HierarchyShape
from fastdp.points.adaptive_phdstream import AdaptivePHDStream
from fastdp.streams.methods import Adaptive
from fastdp_lab.audit.catalogue import rising
from fastdp_lab.audit.runs import ManyRuns, OneRun, collected

Mechanism = ManyRuns | OneRun


def claiming(mechanism: Mechanism, epsilon: float) -> Mechanism:
    """A right mechanism under a wrong claim, which is what most errors of calibration amount to."""
    return replace(mechanism, guarantee=replace(mechanism.guarantee, epsilon=epsilon))


class SharedNoise(Hierarchy):
    """A hierarchy whose trees all have the first one's noise."""

    def node_noise(self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int) -> Integers:
        del tree
        # ``again``: the check for words drawn twice would refuse it before the audit sees it.
        return super().node_noise(plan, theta_steps, epsilon, key.again(), 0)


def tied_to_position(make: Callable[..., Any]) -> Callable[[Key], Any]:
    """Noise that follows from the key and the position alone."""

    def in_place(key: Key) -> Any:
        def table(
            name: Name, distribution: LaplaceDistribution, start: int, out: Integers, sums: Integers | None
        ) -> None:
            own = Key(key.reveal(), simulated=True).within(repr(name))
            sampler.fill(out, distribution, own, StreamId(Purpose.TREE), start)

        return make(key=given(table))

    return in_place


def reported_twice(fresh: Callable[[], Any], data: Sequence[float]) -> Floats:
    """The users before the threshold report once more after it."""
    return collected(fresh, [*data, *data])


class RecountingPHDStream(AdaptivePHDStream):
    """Additions after the first batch are counted again in every later count."""

    _seen: tuple[Any, ...] = ()

    def _with_earlier(self, added: Any) -> Any:
        if self.n_steps:
            self._seen = (*self._seen, np.asarray(added, np.float64).reshape(-1, self.domain.dim))
            return np.concatenate(self._seen)
        return added

    def step(self, added: Any, removed: Any = None) -> Floats:
        return super().step(self._with_earlier(added), removed)

    def advance(self, added: Any, removed: Any = None) -> None:
        super().advance(self._with_earlier(added), removed)


def peeking_blocks(epsilon: float) -> ManyRuns:
    """Blocks with the right noise, whose ends are chosen by the true sums: noise comes too late."""
    right = BlocksTrials(epsilon, THETA)

    def draw(data: Sequence[float], trials: int, key: Key) -> Integers:
        rows = np.repeat(right.release(data, np.zeros((1, LOOKED_AT), np.int64)), trials, axis=0)
        rows[:, 1::2] += np.where(rows[:, ::2] >= 0, right.noise(trials, key), 0)
        return rows

    return ManyRuns(right.guarantee, draw)


class FirstLaw:
    """The distribution of noise under the first threshold, whatever the threshold rises to."""

    def __init__(self, law: Callable[[int], Distribution]) -> None:
        self._law, self._first = law, 0

    def __call__(self, theta_steps: int) -> Distribution:
        self._first = self._first or theta_steps
        return self._law(self._first)


def rising_without_noise(key: Key) -> Adaptive:
    """A theta that rises, and noise that does not rise with it."""
    publisher = rising(1.0)(key=key)
    pipeline = publisher._pipeline
    vars(pipeline)["distribution"] = FirstLaw(pipeline.distribution)
    return publisher


def _generator(key: Key) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(key.reveal(), "big"))


def floating_point_laplace(epsilon: float) -> ManyRuns:
    """The textbook's value + Laplace noise in doubles (Mironov 2012); data: one value, of sensitivity 1."""
    return ManyRuns(
        Guarantee(epsilon=epsilon),
        lambda data, trials, key: data + _generator(key).laplace(0.0, 1.0 / epsilon, trials),
    )


def leaking_piecewise(epsilon: float) -> ManyRuns:
    """The piecewise mechanism with the error of the published code of ToPL.

    One name stands for the domain's lower end and for the near interval's: the loop over users overwrites the first,
    and the reports are scaled back with what the last user's value left there (``docs/local.md``).  Data: the users'
    values, in [-1, 1]; outputs are all their reports.
    """

    def draw(data: Sequence[float], trials: int, key: Key) -> Floats:
        generator, root = _generator(key), math.exp(epsilon / 2.0)
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

    return ManyRuns(Guarantee(epsilon=epsilon, model="local"), draw)
