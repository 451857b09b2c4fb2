"""Numbers computed from an output, on which events are made.

Any fixed function of the output gives a valid bound; a good one gives a high bound.  So features may be trained, as
long as the bound is computed from other trials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: Outputs of many trials in, one number for each trial out.
Statistic = Callable[[Floats], Floats]

#: Coordinates that get features of their own: those that differ most.
MAX_COORDINATES = 32
#: Bins of the learned likelihood ratio.
BINS = 32
EXPONENT_BITS = 52


@dataclass(frozen=True)
class Feature:
    """A named function of outputs.

    Attributes
    ----------
    name : str
        For the report.
    of : callable
        float64[n, k] to float64[n].
    discrete_only : bool
        A fingerprint: its order means nothing, only equality does.
    """

    name: str
    of: Statistic
    discrete_only: bool = False


def make_features(outputs: Floats, adjacent: Floats, given: Sequence[tuple[str, Statistic]]) -> list[Feature]:
    """The features for these outputs: the caller's, and those of ``events="auto"``.

    Parameters
    ----------
    outputs, adjacent : float64[n, k]
        Outputs on either input, from trials that only train features.
    given : sequence of (name, statistic)
        The caller's own.

    Returns
    -------
    list of Feature
        Those, coordinates, their distances from the median, running sums, a linear discriminant, a learned likelihood
        ratio, a fingerprint of the whole output, and the grain of floating-point outputs.
    """
    features = [Feature(name, statistic) for name, statistic in given]
    k = outputs.shape[1]
    chosen = _most_different(outputs, adjacent)
    pooled = np.concatenate([outputs, adjacent])
    for j in chosen:
        label = "output" if k == 1 else f"output[{j}]"
        features.append(Feature(label, _coordinate(j)))
        features.append(Feature(f"|{label} - median|", _distance(j, float(np.median(pooled[:, j])))))
        if not (pooled[:, j] == np.rint(pooled[:, j])).all():
            features.append(Feature(f"grain of {label}", _grain_of(j)))
    if k > 1:
        features.extend(Feature(f"sum of output[:{j + 1}]", _running_sum(j + 1)) for j in chosen if j > 0)
        features.append(Feature("linear discriminant", _discriminant(outputs, adjacent)))
        features.append(Feature("learned likelihood ratio", _likelihood_ratio(outputs, adjacent, chosen)))
        features.append(Feature("whole output", fingerprint, discrete_only=True))
    return features


def fingerprint(outputs: Floats) -> Floats:
    """A 53-bit hash of each row; equal rows have equal hashes; collisions do not invalidate a bound."""
    # Adding 0 makes -0 and 0 the same number.
    words = np.ascontiguousarray(outputs + 0.0).view(np.uint64)
    mixed: NDArray[np.uint64] = np.zeros(outputs.shape[0], np.uint64)
    for j in range(outputs.shape[1]):
        mixed = (mixed ^ words[:, j]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return (mixed >> np.uint64(11)).astype(np.float64)


def grain(numbers: Floats) -> Floats:
    """Exponent of the lowest set bit of each double: the coarsest grid of powers of two that it lies on.

    Textbook noise in floating point reveals the value's exponent here (Mironov 2012).
    """
    bits = np.ascontiguousarray(numbers).view(np.int64)
    exponent = (bits >> EXPONENT_BITS) & 0x7FF
    mantissa = (bits & ((1 << EXPONENT_BITS) - 1)) | np.where(exponent > 0, np.int64(1) << EXPONENT_BITS, 0)
    lowest = (mantissa & -mantissa).astype(np.float64)
    zeros = np.log2(np.where(lowest > 0.0, lowest, 1.0))
    return np.where(lowest > 0.0, np.maximum(exponent, 1) - 1023.0 - EXPONENT_BITS + zeros, 1024.0)


def _most_different(outputs: Floats, adjacent: Floats) -> list[int]:
    spread = np.sqrt(outputs.var(axis=0) + adjacent.var(axis=0))
    scale = np.where(spread > 0.0, spread, 1.0)
    # Where the spread is 0, any difference is clear.
    difference = np.abs(outputs.mean(axis=0) - adjacent.mean(axis=0)) / scale
    difference += np.abs(outputs.std(axis=0) - adjacent.std(axis=0)) / scale
    order = np.argsort(-difference, kind="stable")[:MAX_COORDINATES]
    return sorted(int(j) for j in order)


def _coordinate(j: int) -> Statistic:
    return lambda outputs: outputs[:, j]


def _distance(j: int, centre: float) -> Statistic:
    return lambda outputs: np.abs(outputs[:, j] - centre)


def _grain_of(j: int) -> Statistic:
    return lambda outputs: grain(outputs[:, j])


def _running_sum(stop: int) -> Statistic:
    return lambda outputs: outputs[:, :stop].sum(axis=1)


def _discriminant(outputs: Floats, adjacent: Floats) -> Statistic:
    """Fisher's direction, with a ridge that keeps it defined where outputs depend on each other."""
    centre = (outputs.mean(axis=0) + adjacent.mean(axis=0)) / 2.0
    both = np.concatenate([outputs - outputs.mean(axis=0), adjacent - adjacent.mean(axis=0)])
    scale = both.std(axis=0)
    scale[scale == 0.0] = 1.0
    both /= scale
    spread = both.T @ both / both.shape[0]
    gap = (outputs.mean(axis=0) - adjacent.mean(axis=0)) / scale
    direction = np.linalg.solve(spread + 1e-6 * np.eye(spread.shape[0]), gap) / scale
    return lambda rows: (rows - centre) @ direction


def _likelihood_ratio(outputs: Floats, adjacent: Floats, chosen: list[int]) -> Statistic:
    """Sum over coordinates of learned ln(P / P'), each a step function over bins of equal weight."""
    parts: list[tuple[int, Floats, Floats]] = []
    for j in chosen:
        pooled = np.concatenate([outputs[:, j], adjacent[:, j]])
        edges = np.unique(np.quantile(pooled, np.linspace(0.0, 1.0, BINS + 1)[1:-1]))
        here, there = (
            np.bincount(np.searchsorted(edges, side[:, j], side="right"), minlength=edges.size + 1) + 0.5
            for side in (outputs, adjacent)
        )
        parts.append((j, edges, np.log(here / there)))

    def ratio(rows: Floats) -> Floats:
        total = np.zeros(rows.shape[0])
        for j, edges, logs in parts:
            total += logs[np.searchsorted(edges, rows[:, j], side="right")]
        return total

    return ratio
