"""Mechanisms that make many runs in one call: counts, noisy max, whole streams cut in pieces, counters, reports."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastdp.counters import BinaryTree, Block, Counter, RunningCounts, Simple
from fastdp.guarantee import Guarantee
from fastdp.local import Hybrid, Piecewise, SquareWave, StochasticRounding
from fastdp.local.base import Mechanism
from fastdp.perturbers import Flat, Hierarchy, Perturber, Toeplitz
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId
from fastdp.systems.stream.publisher import StreamPublisher
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree
from fastdp.thresholds.base import ThresholdTask
from fastdp_lab.audit.catalogue.case import FAST, MEDIUM, Case, ManyRuns
from fastdp_lab.audit.catalogue.inputs import EVENT, HOLDOUTS
from fastdp_lab.audit.exact import observed

Integers = NDArray[np.int64]

#: The noisy-max rules that are audited.
RULES: dict[str, NoisyMax | ScaleFree] = {
    "noisy-max-laplace": NoisyMax(step=1.0),
    "noisy-max-exponential": NoisyMax(step=1.0, noise="exponential"),
    "scale-free-laplace": ScaleFree("laplace"),
    "scale-free-exponential": ScaleFree("exponential"),
}


#: Of Gaussian noise: large enough to be seen in an audit's runs.
DELTA = 1e-3
#: Noise of four values a run, and a stream whose first value differs.
FOUR = Toeplitz(length=4)
FIRST_OF_FOUR = [0.0] * 4, [1.0, 0.0, 0.0, 0.0]


def filtered(runs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sums that tell the first of four values best: C y, weighed as C says."""
    keeps, shares = 1.0 - np.array(FOUR.rates), np.array(FOUR.shares)
    factor = np.array([1.0, *(shares @ keeps**j for j in range(3))])
    undone = np.stack([runs[:, : t + 1] @ factor[: t + 1][::-1] for t in range(4)], axis=1)
    sums: NDArray[np.float64] = undone @ factor
    return sums


def small_task(epsilon: float) -> ThresholdTask:
    """A choice from three held-out values, few enough to enumerate."""
    return ThresholdTask(
        epsilon=epsilon, bound=4.0, holdout=3, max_range=4, resolution=1.0, publish_epsilon=1.0, noise_constant=1.0
    )


def count(epsilon: float) -> ManyRuns:
    """A count with discrete Laplace noise of scale 1 / epsilon."""
    law = sampler.discrete_laplace_law(1 / Fraction(epsilon))

    def draw(data: int, trials: int, key: Key) -> Integers:
        noise: Integers = np.empty((trials, 1), np.int64)
        sampler.fill(noise.reshape(-1), law, key, StreamId(Purpose.DRAWS))
        return data + noise

    return ManyRuns(Guarantee(epsilon=epsilon, arithmetic="exact"), draw)


def noisy_max(rule: NoisyMax | ScaleFree, task: ThresholdTask) -> ManyRuns:
    """Choices from one hold-out, of which a publisher makes one."""
    return ManyRuns(rule.guarantee(task), lambda data, trials, key: observed(rule, task, data).choices(key, trials))


def published(perturber: Perturber, epsilon: float, delta: float = 0.0) -> ManyRuns:
    """One long stream through one publisher, one piece of it a run; values above theta are clipped.

    Noise trees and epochs must begin where pieces begin, and there is no smoother, so pieces are independent.
    """

    def make(key: Key) -> StreamPublisher:
        return StreamPublisher(
            threshold=Fixed(1.0),
            perturber=perturber,
            epsilon=epsilon,
            bound=4.0,
            max_range=1024,
            resolution=2.0**-10,
            delta=delta,
            key=key,
        )

    def draw(data: Sequence[float], trials: int, key: Key) -> NDArray[np.float64]:
        return make(key).publish(np.tile(np.asarray(data, np.float64), trials)).reshape(trials, -1)

    return ManyRuns(make(Key.from_seed(0)).guarantee, draw)


def counter(kind: Counter, epsilon: float) -> ManyRuns:
    """``RunningCounts`` with one running sum a run."""

    def draw(data: Sequence[int], trials: int, key: Key) -> Integers:
        counts = RunningCounts(kind, epsilon, trials, key=key)
        return np.stack([counts.step(np.full(trials, value)) for value in data], axis=1)

    return ManyRuns(RunningCounts(kind, epsilon, 1, seed=0).guarantee, draw)


def reports(mechanism: Mechanism) -> ManyRuns:
    """Reports of one user's value."""
    return ManyRuns(
        mechanism.guarantee,
        lambda data, trials, key: mechanism.perturb(np.full(trials, data), key=key, start=0),
    )


def sums(epsilon: float) -> list[Case]:
    """All of them, at a budget of one's choice."""
    rules = {name: noisy_max(rule, small_task(epsilon)) for name, rule in RULES.items()}
    hierarchy = published(Hierarchy(32, prune=0), epsilon)
    gaussian = published(Hierarchy(32, prune=0, noise="gaussian"), epsilon, DELTA)
    toeplitz = published(FOUR, epsilon, DELTA)
    return [
        Case("count", count(epsilon), 0, 1, FAST),
        *(Case(name, rule, *HOLDOUTS[name], FAST) for name, rule in rules.items()),
        # With far too little noise the pairs above have one winner; this pair has two.
        *(Case(f"{name}-ends", rule, [0, 0, 0], [4, 0, 0], FAST) for name, rule in rules.items() if "max" in name),
        Case("counter-simple", counter(Simple(), epsilon), *EVENT, FAST),
        Case("counter-block", counter(Block(2), epsilon), *EVENT, MEDIUM),
        Case("counter-binary", counter(BinaryTree(4), epsilon), *EVENT, MEDIUM),
        Case("stream-flat", published(Flat(), epsilon), [-3.0], [9.0], FAST),
        Case("stream-hierarchy", hierarchy, [0.0] * 32, [1.0] + [0.0] * 31, MEDIUM),
        Case("stream-flat-gaussian", published(Flat(noise="gaussian"), epsilon, DELTA), [-3.0], [9.0], FAST),
        Case("stream-hierarchy-gaussian", gaussian, [0.0] * 32, [1.0] + [0.0] * 31, MEDIUM),
        Case("stream-toeplitz", toeplitz, *FIRST_OF_FOUR, FAST, (filtered,)),
        *(
            Case(f"local-{law.__name__.lower()}", reports(law(epsilon)), -1.0, 1.0, FAST)
            for law in (SquareWave, StochasticRounding, Piecewise, Hybrid)
        ),
    ]
