"""A stream seen again once it was released: what all its noisy sums together say of every value.

Source: ``docs/adaptive.md``.  Post-processing: no further privacy loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastdp.releases.error_bars import ErrorBars, SumNoise, hidden_of_ends
from fastdp_kernels import block_lengths, hidden, revision

Floats = NDArray[np.float64]
#: Revised sums of aligned groups of 8, 16, ... blocks stay within so many standard deviations of the noise of those
#: released: what smoothing moves by more is a bias that adds up (``docs/adaptive.md``, "Looking back").
KEPT_BLOCKS = 8
MAX_MOVED = 3.0


@dataclass(frozen=True, eq=False)
class RevisedStream:
    """Answers from all released sums of blocks, smoothed along time.

    Attributes
    ----------
    exponents, totals : float64[J]
        Lengths 2^k of the blocks and their released sums, in thresholds.
    threshold : float
        The first theta, in units of the input.
    memory, shape : float64
        What the kernels knew before the first block, and their public parameters.
    """

    exponents: Floats
    totals: Floats
    threshold: float
    memory: Floats
    shape: Floats

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.totals.size} blocks)"

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """Where blocks begin, and where the last one ends: int64[J + 1]."""
        lengths = np.left_shift(1, self.exponents.astype(np.int64))
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])

    @cached_property
    def _smoothed(self) -> tuple[Floats, Floats, Floats, float]:
        """Means, levels and running sums of the blocks, in units of the input; and theta at the end, in the first."""
        count, memory = self.totals.size, self.memory.copy()
        means, levels, noises = np.empty(count), np.empty(count), np.empty(count)
        revision.revise_blocks(memory, self.shape, self.exponents, self.totals, means, levels, noises)
        if not levels.size:
            # No block has closed: all there is, is the level it began with.
            levels = memory[block_lengths.LEVEL : block_lengths.LEVEL + 1].copy()
        _keep_sums(means, self.totals, np.diff(self.edges), float(self.shape[block_lengths.NOISE]), noises)
        means *= self.threshold
        levels *= self.threshold
        sums = np.concatenate([np.zeros(1), np.cumsum(means * np.diff(self.edges))])
        return means, levels, sums, float(memory[block_lengths.UNIT])

    @cached_property
    def _hidden(self) -> tuple[Floats, float, float]:
        """What each block hides a value; of the values behind them the level's variance, and its growth by value."""
        rates = np.empty(self.totals.size + 1)
        levels = self._smoothed[1] / self.threshold
        level = hidden.hidden_rates(self.memory.copy(), self.shape, self.exponents, self.totals, levels, rates)
        return rates, *level

    @cached_property
    def _missing(self) -> Floats:
        """Released sums less the revised sums of the blocks before each, in units of the input: float64[J + 2]."""
        released = np.concatenate([np.zeros(1), np.cumsum(self.totals * self.threshold)])
        missing = released - self._smoothed[2]
        return np.append(missing, missing[-1])

    def error_bars(self, noise: SumNoise, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> ErrorBars:
        """Errors of sums over [start, stop), counted from the released sums of blocks."""
        rates, variance, growth = self._hidden
        cut, whole, shares = hidden_of_ends(starts, stops, self.edges, rates)
        behind = (stops - np.maximum(starts, self.edges[-1])).clip(0).astype(np.float64)
        cut += behind**2 * (variance + growth * behind / 3.0)
        # Where theta rose, noise counts as if the last one had been in use from the first block on.
        unit = self._smoothed[3]
        model = (cut + shares * self.shape[block_lengths.NOISE] * unit**2) * self.threshold**2
        centre = self._released_before(stops) - self._released_before(starts)
        draw, ones = noise.draw(self.threshold * unit), np.ones(whole.size)
        return ErrorBars(centre, draw, noise.resolution, whole, ones, model)

    def _released_before(self, stops: NDArray[np.int64]) -> Floats:
        """Sums over [0, stop) of the stream whose blocks have their released sums, and the revised stream's form."""
        block = np.searchsorted(self.edges, stops, side="right") - 1
        lengths = np.append(np.diff(self.edges), 1)
        share = (stops - self.edges[block]) / lengths[block] * (block < self.totals.size)
        missing = self._missing
        sums: Floats = self.sums_before(stops) + missing[block] + share * (missing[block + 1] - missing[block])
        return sums

    @cached_property
    def _index(self) -> tuple[int, NDArray[np.int64]]:
        """Every 2^shift-th value's block."""
        shift = int(self.exponents.min(initial=62.0))
        table = np.empty(int(self.edges[-1]) >> shift, np.int64)
        revision.index_blocks(self.edges, shift, table)
        return shift, table

    @property
    def means(self) -> Floats:
        """A value's mean in each block, in units of the input: float64[J]."""
        return self._smoothed[0]

    def sums_before(self, stops: NDArray[np.int64]) -> Floats:
        """Sums over [0, stop) in units of the input: float64[q], each in constant time."""
        means, levels, sums, _ = self._smoothed
        out = np.empty(stops.size)
        revision.sum_revised(self.edges, means, levels, sums, *self._index, stops, out)
        return out

    def values(self, count: int) -> Floats:
        """The first ``count`` values of the revised stream, in units of the input: float64[count]."""
        return np.diff(self.sums_before(np.arange(count + 1)))


def _keep_sums(means: Floats, totals: Floats, lengths: NDArray[np.int64], noise: float, noises: Floats) -> None:
    """Move means, in place, where the sums of aligned groups of blocks lie too far from those that were released.

    A block's sum has ``noises`` times the variance ``noise``.
    """
    size = KEPT_BLOCKS
    while size <= totals.size:
        whole = totals.size // size * size
        moved = (totals - means * lengths)[:whole].reshape(-1, size).sum(1)
        most = MAX_MOVED * np.sqrt(noise * noises[:whole].reshape(-1, size).sum(1))
        beyond = moved - np.clip(moved, -most, most)
        means[:whole] += np.repeat(beyond / lengths[:whole].reshape(-1, size).sum(1), size)
        size *= 2
