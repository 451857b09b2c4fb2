"""Quantiles of cells from hierarchical histograms of their values.

Every window and key has a tree of counts over bins: two noisy levels, made consistent by least squares (Hay et al.,
VLDB 2010). Bins are as fine as their distance from 0, so a generous bound costs no accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fastdp.errors import ParameterError, argument
from fastdp.kinds import Array, Floats, Integers
from fastdp.releases.intervals import DrawnNoise, wider_quantile
from fastdp_kernels.tables import window_sums

#: Nodes of the upper level, and bins in each; all bins.  Three levels had larger errors.
FAN_OUT, BINS = 32, 1024
#: Levels of counts: a row is in one node of each.
LEVELS = 2
#: Bins of all windows and keys together.
MAX_BINS = 2**26
#: The widest bin over the narrowest one, about.
SPREAD = 2.0**16
#: Bins whose quantiles are computed at a time, which bounds the memory.
CHUNK = 2**22


def check_bins(cells: int) -> None:
    """ParameterError if histograms of `cells` do not fit in memory."""
    if cells * BINS > MAX_BINS:
        raise ParameterError(
            f"quantiles of {cells:,} windows and keys: expected at most {MAX_BINS // BINS:,}, because each has a "
            f"histogram; use longer windows, fewer keys, or a shorter time ({argument('Time', start=..., stop=...)})"
        )


@dataclass(frozen=True)
class Bins:
    """Bins from `low` to `high`, wider away from 0; the ends hold values beyond."""

    low: float
    high: float

    @property
    def _sides(self) -> tuple[float, float, int]:
        middle = min(max(0.0, self.low), self.high)
        if middle == self.low:
            return middle, math.log(SPREAD), 0
        return middle, math.log(SPREAD), BINS if middle == self.high else BINS // 2

    @cached_property
    def borders(self) -> Floats:
        middle, growth, below = self._sides
        above = BINS - below
        down = (middle - self.low) * np.expm1(growth * np.arange(below, 0, -1) / max(1, below)) / (SPREAD - 1.0)
        up = (self.high - middle) * np.expm1(growth * np.arange(above + 1) / max(1, above)) / (SPREAD - 1.0)
        borders = np.concatenate([middle - down, middle + up])
        borders[0], borders[-1] = self.low, self.high
        return borders

    def of(self, values: Floats) -> Integers:
        # A value at a border belongs to the bin above it.
        found: Integers = np.searchsorted(self.borders[1:-1], values, side="right")
        return found

    def add(self, rows: tuple[Integers, Array, Floats], first: int, counts: Integers) -> None:
        windows, keys, values = rows
        bins = np.where(keys >= 0, keys.astype(np.int64) * BINS + self.of(values), -1)
        window_sums.add_ones(windows, bins, first, counts.reshape(len(counts), counts.shape[1] * BINS))

    def nodes(self, counts: Integers) -> Integers:
        upper = counts.reshape(*counts.shape[:2], FAN_OUT, BINS // FAN_OUT).sum(axis=3)
        return np.ascontiguousarray(np.concatenate([upper, counts], axis=2).transpose(2, 0, 1))


# Released counts to quantiles.


@dataclass(frozen=True, eq=False)
class Histogram:
    """Noisy counts of nodes, [nodes, W, K], each of so many ``draws``."""

    bins: Bins
    steps: Array
    noise: DrawnNoise
    draws: Integers

    def quantiles(self, rank: float, starts: Integers, stops: Integers, confidence: float) -> tuple[Floats, ...]:
        """The quantile `rank` of values in windows [start, stop) of each key, and its interval: float64[q, K] each.

        The interval holds with at least this probability; without information it is the bins' range.
        """
        keys = self.steps.shape[2]
        found = np.empty((3, starts.size, keys))
        step = max(1, CHUNK // max(1, keys * BINS))
        for begin in range(0, starts.size, step):
            part = slice(begin, begin + step)
            found[:, part] = self._some(rank, starts[part], stops[part], wider_quantile(confidence))
        return tuple(found)

    def _some(self, rank: float, starts: Integers, stops: Integers, width: float) -> Floats:
        nodes = np.stack(
            [self.steps[:, a:b].sum(axis=1) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
        )
        leaves = consistent_leaves(nodes.transpose(0, 2, 1).astype(np.float64))
        below = np.zeros((*leaves.shape[:2], BINS + 1))
        np.cumsum(leaves, axis=2, out=below[..., 1:])
        # Rows below each border less the share of all rows that the quantile has below it.
        excess = below - rank * below[..., -1:]
        error = width * np.sqrt(self.noise.variance * prefix_variances(rank))
        error = error * np.sqrt((stops - starts)[:, None] * self.draws)[..., None]
        # Cumulative counts rise: the middle of the two nearest rising functions.
        rising = np.maximum.accumulate(excess, axis=2)
        rising = 0.5 * (rising + np.minimum.accumulate(excess[..., ::-1], axis=2)[..., ::-1])
        borders = self.bins.borders
        at = np.clip((rising < 0.0).sum(axis=2), 1, BINS)
        left, right = (np.take_along_axis(rising, (at - side)[..., None], 2)[..., 0] for side in (1, 0))
        share = np.clip(np.divide(-left, right - left, out=np.full(at.shape, 0.5), where=right > left), 0.0, 1.0)
        estimate = borders[at - 1] + share * (borders[at] - borders[at - 1])
        # The borders at which the true cumulative count may cross the quantile's rank.
        low = np.argmax(rising + error >= 0.0, axis=2)
        high = BINS - np.argmax((rising - error <= 0.0)[..., ::-1], axis=2)
        return np.stack([estimate, borders[np.maximum(low - 1, 0)], borders[np.minimum(high + 1, BINS)]])


def consistent_leaves(nodes: Floats) -> Floats:
    """Least-squares counts of bins from nodes of equal variance: float64[..., BINS]."""
    shape = nodes.shape[:-1]
    upper, bins = nodes[..., :FAN_OUT], nodes[..., FAN_OUT:].reshape(*shape, FAN_OUT, BINS // FAN_OUT)
    # A node's own count and the sum of its bins, weighted by their variances; the difference is spread over the bins.
    children = bins.shape[-1]
    found: Floats = bins + ((upper - bins.sum(axis=-1)) / (children + 1.0))[..., None]
    return found.reshape(*shape, BINS)


def prefix_variances(rank: float) -> Floats:
    """Variance of (rows below each border) - `rank` * (all rows), in a node's.

    The covariance of consistent bins is I - P n / (n + 1), P averaging over the n bins of a node.
    """
    children = BINS // FAN_OUT
    borders = np.arange(BINS + 1)
    full, cut = np.divmod(borders, children)
    # Weights are 1 - rank below the border and -rank above it; one node is cut.
    weights = borders * (1.0 - rank) ** 2 + (BINS - borders) * rank**2
    means = full * (1.0 - rank) ** 2 + (FAN_OUT - full) * rank**2
    means += np.where(cut > 0, (cut / children - rank) ** 2 - rank**2, 0.0)
    found: Floats = weights - means * children**2 / (children + 1.0)
    return found
