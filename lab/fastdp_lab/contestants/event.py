"""Event level: epsilon protects one value of an endless stream; answers are values whose sums are the prefix sums."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

import fastdp
from fastdp.kinds import Floats, Integers
from fastdp.perturbers import Hierarchy, Toeplitz
from fastdp_lab.contestants.budget import UNITS, compiled, draws, parts, steps_of
from fastdp_lab.mechanism import Answer, Mechanism

# Noise without structure.


def laplace(values: Integers, epsilon: float, key: bytes, *, sensitivity: float) -> Floats:
    """Noise on each value."""
    steps, unit = steps_of(values, sensitivity, parts(epsilon))
    return (steps + draws(key, values.size)).astype(np.float64) * unit


def flat_blocks(values: Integers, epsilon: float, key: bytes, *, sensitivity: float, length: int = 32) -> Floats:
    """Noise on the sum of each block; a block's values are its mean."""
    steps, unit = steps_of(values, sensitivity, parts(epsilon))
    starts = np.arange(0, values.size, length)
    sums = np.add.reduceat(steps, starts) + draws(key, starts.size)
    sizes = np.diff(starts, append=values.size)
    return np.repeat(sums / sizes, sizes) * unit


# Trees: each value is in one node a level, and a prefix is a sum of few nodes.


def _sums_of_nodes(n: int, fan_out: int, signed: bool) -> list[tuple[Integers, Integers]]:
    """By level, ends of the run of nodes that a prefix adds, or takes away where the first end is the smaller."""
    at, runs = np.arange(1, n + 1), []
    while at[-1] > 0:
        above = (at + (fan_out // 2 if signed else 0)) // fan_out
        runs.append((at, fan_out * above))
        at = above
    return runs


def tree(
    values: Integers, epsilon: float, key: bytes, *, sensitivity: float, fan_out: int = 2, signed: bool = False
) -> Floats:
    """Noise on the nodes of a tree; prefixes by digits to the base `fan_out`, of both signs or not."""
    runs = _sums_of_nodes(values.size, fan_out, signed)
    steps, unit = steps_of(values, sensitivity, parts(epsilon) // len(runs))
    prefixes = np.cumsum(steps)
    for level, (at, start) in enumerate(runs):
        noise = np.cumsum(draws(key, int(max(at.max(), start.max())), level))
        noise = np.concatenate([[0], noise])
        prefixes += noise[at] - noise[start]
    return np.diff(prefixes, prepend=0) * unit


def honaker(values: Integers, epsilon: float, key: bytes, *, sensitivity: float) -> Floats:
    """The binary tree whose nodes are averaged with what lies below them."""
    runs = _sums_of_nodes(values.size, 2, False)
    steps, unit = steps_of(values, sensitivity, parts(epsilon) // len(runs))
    prefixes, below = np.cumsum(steps), np.empty(0, np.int64)
    for level, (at, start) in enumerate(runs):
        noise = draws(key, values.size >> level, level)
        if level:
            # In whole numbers, so that noise does not depend on what it is added to.
            children = below[: 2 * noise.size].reshape(-1, 2).sum(1)
            weight = 2**level / (2 ** (level + 1) - 1)
            noise = children + np.rint((noise - children) * weight).astype(np.int64)
        below = noise
        sums = np.concatenate([[0], np.cumsum(noise)])
        prefixes += sums[at] - sums[start]
    return np.diff(prefixes, prepend=0) * unit


@lru_cache(maxsize=8)
def _balanced(n: int) -> tuple[Integers, int]:
    """The first `n` + 1 numbers with as many ones as zeros, in the fewest binary digits; and how many these are."""
    digits = 2
    while True:
        numbers = np.arange(2**digits, dtype=np.int64)
        found = numbers[np.bitwise_count(numbers) == digits // 2]
        if found.size > n:
            return found[: n + 1], digits
        digits += 2


def smooth_binary(values: Integers, epsilon: float, key: bytes, *, sensitivity: float) -> Floats:
    """The binary tree on balanced leaves: each prefix is half as many nodes as there are levels."""
    leaves, levels = _balanced(values.size)
    steps, unit = steps_of(values, sensitivity, parts(epsilon) // (levels // 2))
    prefixes = np.cumsum(steps)
    for level in range(levels):
        ones = (leaves[1:] >> level) & 1 == 1
        parents = leaves[1:][ones] >> (level + 1)
        prefixes[ones] += draws(key, int(leaves[-1] >> (level + 1)) + 1, level)[parents]
    return np.diff(prefixes, prepend=0) * unit


# PeGaSus.


def pegasus(
    values: Integers, epsilon: float, key: bytes, *, sensitivity: float, share: float = 0.8, theta: float = 5.0
) -> Floats:
    """Noise on each value, and the median over the run of alike values that ends in it."""
    grouping = parts(epsilon) - parts(epsilon * share)
    noisy = laplace(values, epsilon * share, key, sensitivity=sensitivity)
    # The deviation moves by two values' steps, and by one that rounds it.
    steps, _ = steps_of(values, sensitivity, (grouping // 2 - 1) // 2)
    first = round(theta * UNITS / 4)
    starts = _groups(steps, first + draws(key, values.size, 1), draws(key, values.size, 2, times=2))
    return _medians(noisy, starts)


@compiled
def _groups(steps: Integers, thresholds: Integers, noise: Integers) -> Integers:
    """Start of the group of each value, by its deviation (Algorithm 2)."""
    starts = np.empty(steps.size, np.int64)
    start, total, is_open = 0, 0, False
    for t in range(steps.size):
        if not is_open:
            start, total, is_open = t, steps[t], True
        else:
            size = t - start + 1
            mean = (total + steps[t]) / size
            deviation = 0.0
            for i in range(start, t + 1):
                deviation += abs(steps[i] - mean)
            if int(deviation) + noise[t] < thresholds[start]:
                total += steps[t]
            else:
                start, is_open = t, False
        starts[t] = start
    return starts


@compiled
def _medians(noisy: Floats, starts: Integers) -> Floats:
    """Median of what is known of each value's group, kept in order."""
    out, ranked = np.empty(noisy.size), np.empty(noisy.size)
    for t in range(noisy.size):
        size = t - starts[t]
        place = np.searchsorted(ranked[:size], noisy[t])
        for i in range(size, place, -1):
            ranked[i] = ranked[i - 1]
        ranked[place] = noisy[t]
        out[t] = (ranked[size // 2] + ranked[(size + 1) // 2]) / 2
    return out


# The package's own methods, and two noises of others that it has.


def _values_of(publisher: Any, values: Integers) -> Floats:
    """Published values; those that choose a threshold have their mean."""
    out = np.asarray(publisher.release(values).values, np.float64)
    return np.concatenate([np.full(values.size - out.size, out.mean()), out])


def consistent_hierarchy(
    values: Integers, epsilon: float, key: bytes, *, bound: int, max_range: int, fan_out: int = 16
) -> Floats:
    """A tree whose nodes are the sums of their children, by least squares."""
    common: dict[str, Any] = {"threshold": float(bound), "bound": float(bound), "max_range": max_range}
    perturber = Hierarchy(fan_out, prune=0)
    return _values_of(fastdp.StreamPublisher(perturber=perturber, epsilon=epsilon, key=key, **common), values)


def toeplitz(
    values: Integers, epsilon: float, key: bytes, *, bound: int, max_range: int, delta: float = 1e-9
) -> Floats:
    """Correlated Gaussian noise, close to that of the square root of the prefix sums."""
    common: dict[str, Any] = {"threshold": float(bound), "bound": float(bound), "max_range": max_range}
    perturber = Toeplitz(length=_rounded_up(values.size))
    publisher = fastdp.StreamPublisher(perturber=perturber, epsilon=epsilon, delta=delta, key=key, **common)
    return _values_of(publisher, values)


def _rounded_up(size: int) -> int:
    # Few lengths: the matrix is fitted to each.
    return max(2, 1 << (size - 1).bit_length())


def pak(values: Integers, epsilon: float, key: bytes, *, bound: int, holdout: int, delta: float = 1e-9) -> Floats:
    """Binary tree below a threshold of smooth sensitivity."""
    held = max(holdout, 1)
    return _values_of(fastdp.PAK(epsilon, delta, float(bound), values.size, holdout=held, key=key), values)


def tops(values: Integers, epsilon: float, key: bytes, *, bound: int, holdout: int, max_range: int) -> Floats:
    """Tree of pruned leaves below a threshold of a noisy maximum, smoothed."""
    return _values_of(fastdp.ToPS(epsilon, float(bound), max(holdout, 1), max_range, key=key), values)


def adaptive(
    values: Integers,
    epsilon: float,
    key: bytes,
    *,
    bound: int,
    sensitivity: float,
    holdout: int,
    max_range: int,
    w: int,
) -> Floats:
    """Blocks whose lengths follow released sums."""
    common: dict[str, Any] = {"max_range": max_range, "contributions": w, "key": key}
    if sensitivity < bound:
        return _values_of(fastdp.Adaptive(epsilon, sensitivity=sensitivity, **common), values)
    # Without a hold-out nothing can choose a threshold.
    threshold: dict[str, Any] = {} if holdout else {"threshold": float(bound)}
    return _values_of(fastdp.Adaptive(epsilon, float(bound), holdout or None, **common, **threshold), values)


def whole_array(
    values: Integers, epsilon: float, key: bytes, *, bound: int, sensitivity: float, w: int, delta: float = 0.0
) -> Answer:
    """Equal blocks of a finished array, with intervals."""
    counts = sensitivity < bound
    public: dict[str, Any] = {"sensitivity": sensitivity} if counts else {"bound": float(bound)}
    release = fastdp.release(values, epsilon, contributions=w, delta=delta, key=key, **public)
    return Answer(np.asarray(release.values, np.float64), release.interval)


def _event(name: str, release: Any, source: str, **parameters: Any) -> Mechanism:
    return Mechanism(name, "event", release, source, parameters)


_SIGNED = "Andersson, Pagh, Steiner and Torkamani 2025 (FORC), digits of both signs: epsilon / levels a node"
_SMOOTH = "Andersson and Pagh 2023 (NeurIPS), balanced leaves; Laplace noise: epsilon over half of the levels a node"
_CONSISTENT = "Qardaji, Yang and Li 2013 (PVLDB 6); online: ToPS, section 3.5; "
_TOEPLITZ = "Fichtenberger, Henzinger and Upadhyay 2023 (ICML), square root; coefficients: Dvijotham et al. 2024; "
_PEGASUS = "Chen, Machanavajjhala, Hay and Miklau 2017 (CCS), Algorithms 1 to 3, section 6.1: epsilon 4 : 1, theta 5"
_BOUND = "noise by the bound, also for a smaller sensitivity"
_PAK = "Perrier, Asghar and Kaafar 2019 (NDSS), Algorithms 1 and 2: delta for the threshold; "
EVENT = (
    _event("Laplace", laplace, "Dwork, McSherry, Nissim and Smith 2006 (TCC), Proposition 1: epsilon a value"),
    _event("flat blocks", flat_blocks, "Blocks of fixed length, each with epsilon: each value is in one"),
    _event("binary tree", tree, "Chan, Shi and Song 2011 (TISSEC), Algorithm 2: epsilon / levels a node"),
    _event("Honaker", honaker, "Honaker 2015 (TPDP), estimation from below: as the binary tree"),
    _event("signed digits", tree, _SIGNED, fan_out=19, signed=True),
    _event("smooth binary", smooth_binary, _SMOOTH),
    _event("H_16", tree, "Qardaji, Yang and Li 2013 (PVLDB 6), without consistency: epsilon / levels", fan_out=16),
    _event("H_16^c", consistent_hierarchy, _CONSISTENT + _BOUND),
    _event("Toeplitz", toeplitz, _TOEPLITZ + _BOUND, delta=1e-9),
    _event("PeGaSus", pegasus, _PEGASUS),
    _event("PAK", pak, _PAK + _BOUND, delta=1e-9),
    _event("ToPS", tops, "Wang et al. 2021 (CCS), sections 3.3 to 3.6; " + _BOUND),
    _event("Adaptive", adaptive, "fastdp.Adaptive (docs/streams.md)"),
    _event("release", whole_array, "fastdp.release, which sees the whole array first (docs/streams.md)"),
)
