"""Parts of publishers, with the noise of all runs drawn at once: trees, hierarchies, counters that settle.

The noise comes from the package's samplers, and each decision from the mechanism's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.audit import row_kernels as kernel
from fastdp.counters import Counter, RunningCounts
from fastdp.counters.counter import noise_scale
from fastdp.guarantee import Guarantee
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.perturbers import Hierarchy
from fastdp.perturbers.base import HierarchyShape
from fastdp.streams.pak import RunningSum
from fastdp_lab.audit.runs import ManyRuns

Integers = NDArray[np.int64]

#: Values are clipped to so many grid steps.
THETA = 64
#: One value more in the first leaf, and in another one.
VALUE: Any = ([THETA, 0, 0, 0], [0, 0, 0, 0])
SECOND: Any = ([0, THETA, 0, 0], [0, 0, 0, 0])
#: One event more for a counter that is left after two values and goes on, and for one that is left after five.
LEFT: Any = ([1, 0, None, 0], [0, 0, None, 0])
LEFT_LATE: Any = ([1, 0, 0, 0, 0, None], [0, 0, 0, 0, 0, None])


def draw_noise(
    law: sampler.LaplaceDistribution, rows: int, columns: int, key: Key, *, level: int = 0, number: int = 0
) -> Integers:
    """Independent draws: int64[rows, columns]."""
    noise: Integers = np.empty((rows, columns), np.int64)
    sampler.fill(noise.reshape(-1), law, key, StreamId(Purpose.DRAWS, level, number))
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
        sizes = [length >> height for height in range(tree.levels)]
        offsets: Integers = np.cumsum([0, *sizes[:-1]])
        out: Integers = np.empty((trials, length), np.int64)
        noise = draw_noise(tree.law, trials, sum(sizes), key)
        kernel.count_streams(np.asarray(data, np.int64), tree.levels, noise, offsets, out)
        return out

    return ManyRuns(Guarantee(epsilon=epsilon if claim is None else claim, arithmetic="exact"), draw)


def own_settling(counter: Counter, state: Integers, noise: Integers) -> Integers:
    return counter.settle(state, noise)


def settling_counter(
    counter: Counter, epsilon: float, settle: Callable[[Counter, Integers, Integers], Integers] = own_settling
) -> ManyRuns:
    """A counter that settles where it is left (None in the data), as PHDStream's cells do; a row a run."""
    law = sampler.laplace_distribution(noise_scale(counter, Fraction(epsilon)))

    def draw(data: Sequence[int | None], trials: int, key: Key) -> Integers:
        noise = draw_noise(law, trials, len(data), key)
        state: Integers = np.zeros((trials, counter.width), np.int64)
        changes = []
        for i, value in enumerate(data):
            own = noise[:, i].copy()
            changes.append(settle(counter, state, own) if value is None else value + counter.step(state, own))
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
