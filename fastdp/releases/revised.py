"""A stream seen again once it was released: what all its noisy sums together say of every value.

Source: ``docs/adaptive.md``.  Post-processing: no further privacy loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fastdp.kinds import Floats, Integers
from fastdp.releases import patterns
from fastdp.releases.intervals import ErrorBars, SumNoise, hidden_of_ends
from fastdp_kernels.streams import block_lengths, hidden, revision

#: Revised sums of aligned groups of 32, 64, ... blocks stay within so many standard deviations of the noise of those
#: released: what smoothing moves by more is a bias that adds up (``docs/adaptive.md``, "Looking back").
KEPT_BLOCKS = 32
MAX_MOVED = 1.0
#: The share of a pattern that may be wrong within a block, in standard deviations.
UNSURE = 0.5


class _Smoothed(NamedTuple):
    """Blocks given all released sums, in units of the input.

    Attributes
    ----------
    means, explained : float64[J]
        A value's mean in each block, and what of it the pattern explains.
    levels : float64[max(J, 1)]
        The level in each block, without the pattern.
    sums : float64[J + 1]
        Sums before each block.
    noises : float64[J]
        Variance of each block's noise, in that of a block under the first theta.
    unit : float
        Theta at the end, in the first.
    waves : Waves or None
        The pattern, in thresholds.
    """

    means: Floats
    levels: Floats
    sums: Floats
    noises: Floats
    unit: float
    explained: Floats
    waves: patterns.Waves | None


class _Form(NamedTuple):
    """A stream of blocks as ``revision.sum_revised`` takes it."""

    edges: Integers
    means: Floats
    levels: Floats
    sums: Floats
    shift: int
    table: Integers

    @classmethod
    def of(cls, edges: Integers, means: Floats, levels: Floats, sums: Floats) -> _Form:
        """With the block of every 2^shift-th value."""
        shift = int(np.diff(edges).min(initial=2**62)).bit_length() - 1
        table = np.empty(int(edges[-1]) >> shift, np.int64)
        revision.index_blocks(edges, shift, table)
        return cls(edges, means, levels, sums, shift, table)

    def before(self, stops: Integers) -> Floats:
        """Sums over [0, stop)."""
        out = np.empty(stops.size)
        revision.sum_revised(*(self.edges, self.means, self.levels, self.sums), self.shift, self.table, stops, out)
        return out


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
    season : float, optional
        The period in which the stream repeats, in values, if it is public; else it is looked for.
    """

    exponents: Floats
    totals: Floats
    threshold: float
    memory: Floats
    shape: Floats
    season: float | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.totals.size} blocks)"

    @cached_property
    def edges(self) -> Integers:
        """Where blocks begin, and where the last one ends: int64[J + 1]."""
        lengths = np.left_shift(1, self.exponents.astype(np.int64))
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])

    @cached_property
    def _lengths(self) -> Floats | None:
        return block_lengths.lengths_of_events(self.shape)

    def _revise(self, explained: Floats, noises: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Means, levels and surprises of what a pattern leaves, in thresholds, and the memory at the end."""
        count, memory = self.totals.size, self.memory.copy()
        means, levels, whites, drifts, surprises = np.empty((5, count))
        revision.revise_blocks(
            *(memory, self.shape, self._lengths, self.exponents, self.totals, explained),
            *(means, levels, noises, whites, drifts, surprises),
        )
        if not count:
            # No block has closed: all there is, is the level it began with.
            levels = memory[block_lengths.LEVEL : block_lengths.LEVEL + 1].copy()
        return means, levels, surprises, memory

    @cached_property
    def thetas(self) -> Floats:
        """What values of each block and those behind them are clipped to, in units of the input: float64[J + 1]."""
        return self.threshold * np.append(np.sqrt(self._smoothed.noises), self._smoothed.unit)

    @cached_property
    def _smoothed(self) -> _Smoothed:
        """The blocks, given all released sums."""
        edges, noise = self.edges, float(self.shape[block_lengths.NOISE])
        lengths, noises = np.diff(edges), np.empty(self.totals.size)
        means, levels, surprises, memory = self._revise(np.empty(0), noises)
        end = int(edges[-1]) + (1 << int(memory[block_lengths.EXPONENT]))
        waves = patterns.find_waves(edges, self.totals, noise * noises, surprises, end, self.season)
        explained = np.zeros(self.totals.size)
        if waves is not None:
            sums = np.diff(waves.before(edges))
            means, levels, _, _ = self._revise(sums, noises)
            explained = sums / lengths
        means += explained
        _keep_sums(means, self.totals, lengths, noise, noises)
        means *= self.threshold
        levels *= self.threshold
        explained *= self.threshold
        sums = np.concatenate([np.zeros(1), np.cumsum(means * lengths)])
        return _Smoothed(means, levels, sums, noises, float(memory[block_lengths.UNIT]), explained, waves)

    @cached_property
    def _form(self) -> _Form:
        """Of the revised stream: as it is within blocks, or within parts of them that show the pattern."""
        blocks = self._smoothed
        if blocks.waves is None:
            return _Form.of(self.edges, blocks.means, blocks.levels, blocks.sums)
        # The block left open is as the level and the pattern let expect.
        level = blocks.levels[-1:]
        edges = np.append(self.edges, int(blocks.waves.points[-1]))
        means = np.append(blocks.means - blocks.explained, level)
        sums = np.concatenate([np.zeros(1), np.cumsum(means * np.diff(edges))])
        plain = _Form.of(edges, means, np.append(blocks.levels, level), sums)
        parts = blocks.waves.split(edges)
        lengths, first = np.diff(parts), np.searchsorted(parts, edges)
        # What the pattern adds to a part's share of its block, and never so much that values fall below 0.
        pattern = self.threshold * np.diff(blocks.waves.before(parts))
        share = np.repeat(np.add.reduceat(pattern, first[:-1]) / np.diff(edges), np.diff(first))
        bends = pattern / lengths - share
        deepest, room = -np.minimum.reduceat(bends, first[:-1]), np.maximum(means + share[first[:-1]], 0.0)
        kept = np.repeat(np.divide(room, deepest, out=np.ones(room.size), where=deepest > room), np.diff(first))
        values = np.diff(plain.before(parts)) / lengths + share + kept * bends
        middles, centres = parts[:-1] + lengths / 2.0, edges[:-1] + np.diff(edges) / 2.0
        levels = np.interp(middles, centres, plain.levels) + share + kept * bends
        return _Form.of(parts, values, levels, np.concatenate([np.zeros(1), np.cumsum(values * lengths)]))

    @cached_property
    def _hidden(self) -> tuple[Floats, float, float]:
        """What each block hides a value; of the values behind them the level's variance, and its growth by value."""
        rates = np.empty(self.totals.size + 1)
        levels = self._smoothed.levels.copy()
        levels[: self.totals.size] += self._smoothed.explained
        levels /= self.threshold
        level = hidden.hidden_rates(
            *(self.memory.copy(), self.shape, self._lengths, self.exponents, self.totals, levels, rates)
        )
        waves = self._smoothed.waves
        if waves is not None:
            rates += UNSURE**2 * waves.hidden(np.append(self.edges, int(waves.points[-1])))
        return rates, *level

    @cached_property
    def _missing(self) -> Floats:
        """Released sums less the revised sums of the blocks before each, in units of the input: float64[J + 2]."""
        released = np.concatenate([np.zeros(1), np.cumsum(self.totals * self.threshold)])
        missing = released - self._smoothed.sums
        return np.append(missing, missing[-1])

    def error_bars(self, noise: SumNoise, starts: Integers, stops: Integers) -> ErrorBars:
        """Errors of sums over [start, stop), counted from the released sums of blocks."""
        rates, variance, growth = self._hidden
        cut, whole, shares = hidden_of_ends(starts, stops, self.edges, rates)
        behind = (stops - np.maximum(starts, self.edges[-1])).clip(0).astype(np.float64)
        cut += behind**2 * (variance + growth * behind / 3.0)
        # Where theta rose or fell, noise counts as if the highest one had been in use in every block.
        unit = math.sqrt(self._smoothed.noises.max(initial=self._smoothed.unit**2))
        model = (cut + shares * self.shape[block_lengths.NOISE] * unit**2) * self.threshold**2
        centre = self._released_before(stops) - self._released_before(starts)
        draw, ones = noise.draw(self.threshold * unit), np.ones(whole.size)
        return ErrorBars(centre, draw, noise.resolution, whole, ones, model)

    def _released_before(self, stops: Integers) -> Floats:
        """Sums over [0, stop) of the stream whose blocks have their released sums, and the revised stream's form."""
        block = np.searchsorted(self.edges, stops, side="right") - 1
        lengths = np.append(np.diff(self.edges), 1)
        share = (stops - self.edges[block]) / lengths[block] * (block < self.totals.size)
        missing = self._missing
        sums: Floats = self.sums_before(stops) + missing[block] + share * (missing[block + 1] - missing[block])
        return sums

    @property
    def means(self) -> Floats:
        """A value's mean in each block, in units of the input: float64[J]."""
        return self._smoothed.means

    def sums_before(self, stops: Integers) -> Floats:
        """Sums over [0, stop) in units of the input: float64[q], each in constant time."""
        return self._form.before(stops)

    def values(self, count: int) -> Floats:
        """The first ``count`` values of the revised stream, in units of the input: float64[count]."""
        return np.diff(self.sums_before(np.arange(count + 1)))


def _keep_sums(means: Floats, totals: Floats, lengths: Integers, noise: float, noises: Floats) -> None:
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
