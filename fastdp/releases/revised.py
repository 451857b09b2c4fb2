"""Revised streams: all released sums, smoothed along time, with a repeating pattern (``docs/streams_proofs.md``)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fastdp.kinds import Floats, Indices, Integers, Records
from fastdp.releases.intervals import ErrorBars, SumNoise, hidden_beyond, hidden_of_ends
from fastdp_kernels.streams import block_lengths, revision, wave_filter

#: Revised sums of aligned groups of 32, 64, ... blocks stay within so many standard deviations of the noise of those
#: released: larger moves are a bias that adds up (``docs/streams_proofs.md``).
KEPT_BLOCKS = 32
MAX_MOVED = 1.0
#: Relative error of a pattern within a block, in standard deviations.
UNSURE = 0.5
#: Least variance rate of a block, over its length and the squared differences to its neighbours' means: where the
#: level stepped within it, once, 95 % intervals then hold the sum (1 / 14 would do without noise).
STEP = 1.0 / 8.0


class _Smoothed(NamedTuple):
    """Blocks given all released sums: means, levels without the pattern, sums before.

    `noises`: variances relative to the first theta's; `unit`: last theta over the first; `explained`: pattern's share
    of means; `waves`: the pattern.
    """

    means: Floats
    levels: Floats
    sums: Floats
    noises: Floats
    unit: float
    explained: Floats
    waves: Waves | None


class _Form(NamedTuple):
    """A step function with fast sums of ranges."""

    edges: Integers
    means: Floats
    levels: Floats
    sums: Floats
    shift: int
    table: Integers

    @classmethod
    def of(cls, edges: Integers, means: Floats, levels: Floats, sums: Floats) -> _Form:
        shift = int(np.diff(edges).min(initial=2**62)).bit_length() - 1
        table = np.empty(int(edges[-1]) >> shift, np.int64)
        revision.index_blocks(edges, shift, table)
        return cls(edges, means, levels, sums, shift, table)

    def before(self, stops: Integers) -> Floats:
        out = np.empty(stops.size)
        revision.sum_revised(*(self.edges, self.means, self.levels, self.sums), self.shift, self.table, stops, out)
        return out


@dataclass(frozen=True, eq=False)
class RevisedStream:
    """Answers from all released sums of blocks, smoothed along time."""

    #: `exponents`, `totals`: float64[J]. Lengths 2^k of blocks and their released sums, in thresholds.
    exponents: Floats
    totals: Floats
    #: `places`, `groups`: float64[J]. Place of a block in its group, from 1 on, or 0; at a group's last block the
    #: group's released sum, in thresholds, elsewhere NaN.
    places: Floats
    groups: Floats
    #: The first theta.
    threshold: float
    #: `memory`, `shape`: First state of the kernels, and their public parameters.
    memory: Records
    shape: Records
    #: The public period, in values; by default estimated.
    season: float | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.totals.size} blocks)"

    @cached_property
    def edges(self) -> Integers:
        lengths = np.left_shift(1, self.exponents.astype(np.int64))
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])

    @cached_property
    def _lengths(self) -> Floats | None:
        return block_lengths.lengths_of_events(self.shape)

    def _revise(self, explained: Floats, noises: Floats) -> tuple[Floats, Floats, Floats, Records]:
        """Smooth the released sums backwards, without `explained` waves."""
        count, memory = self.totals.size, self.memory.copy()
        means, levels, whites, drifts, surprises = np.empty((5, count))
        revision.revise_blocks(
            memory,
            self.shape,
            self._lengths,
            self.exponents,
            self.totals,
            self.places,
            explained,
            means,
            levels,
            noises,
            whites,
            drifts,
            surprises,
        )
        if not count:
            # No block has closed: only the initial level is known.
            levels = memory["level"].copy()
        return means, levels, surprises, memory

    @cached_property
    def _louder(self) -> Floats:
        return np.where(self.places > 0.0, block_lengths.LOUDER**2, 1.0)

    @cached_property
    def _grouped(self) -> list[tuple[int, int, float, float]]:
        """First block, end, addition and relative noise variance of groups."""
        groups = []
        for last in np.flatnonzero(~np.isnan(self.groups)).tolist():
            begin, end = last + 1 - int(self.places[last]), last + 1
            weight = (end - begin) * block_lengths.LOUDER**2
            both = weight + block_lengths.GROUP_SCALE**2
            missing = self.groups[last] - self.totals[begin:end].sum()
            groups.append((begin, end, missing * weight / both, both))
        return groups

    @cached_property
    def thetas(self) -> Floats:
        """Threshold of each block by its noise, the open one last."""
        return self.threshold * np.append(np.sqrt(self._smoothed.noises), self._smoothed.unit)

    @cached_property
    def _smoothed(self) -> _Smoothed:
        """Revised block means, with waves if sums show a season."""
        edges, noise = self.edges, float(self.shape["noise"][0])
        lengths, noises = np.diff(edges), np.empty(self.totals.size)
        means, levels, surprises, memory = self._revise(np.empty(0), noises)
        end = int(edges[-1]) + (1 << int(memory["exponent"][0]))
        drawn = noises * self._louder
        waves = find_waves(edges, self.totals, noise * drawn, surprises, end, self.season)
        explained = np.zeros(self.totals.size)
        if waves is not None:
            sums = np.diff(waves.before(edges))
            means, levels, _, _ = self._revise(sums, noises)
            explained = sums / lengths
        means += explained
        _keep_sums(means, self.totals, lengths, noise, drawn)
        for begin, end, moved, _ in self._grouped:
            members = slice(begin, end)
            missing = moved + (self.totals[members] - means[members] * lengths[members]).sum()
            means[members] += missing / lengths[members].sum()
        means *= self.threshold
        levels *= self.threshold
        explained *= self.threshold
        sums = np.concatenate([np.zeros(1), np.cumsum(means * lengths)])
        return _Smoothed(means, levels, sums, noises, float(memory["unit"][0]), explained, waves)

    @cached_property
    def _form(self) -> _Form:
        blocks = self._smoothed
        if blocks.waves is None:
            return _Form.of(self.edges, blocks.means, blocks.levels, blocks.sums)
        # The open block is predicted from the level and the pattern.
        level = blocks.levels[-1:]
        edges = np.append(self.edges, int(blocks.waves.points[-1]))
        means = np.append(blocks.means - blocks.explained, level)
        sums = np.concatenate([np.zeros(1), np.cumsum(means * np.diff(edges))])
        plain = _Form.of(edges, means, np.append(blocks.levels, level), sums)
        parts = blocks.waves.split(edges)
        lengths, first = np.diff(parts), np.searchsorted(parts, edges)
        # The pattern's addition to a piece beyond its mean over the block, never so much that values fall below 0.
        pattern = self.threshold * np.diff(blocks.waves.before(parts))
        pattern_mean = np.repeat(np.add.reduceat(pattern, first[:-1]) / np.diff(edges), np.diff(first))
        bends = pattern / lengths - pattern_mean
        deepest, room = -np.minimum.reduceat(bends, first[:-1]), np.maximum(means + pattern_mean[first[:-1]], 0.0)
        kept = np.repeat(np.divide(room, deepest, out=np.ones(room.size), where=deepest > room), np.diff(first))
        values = np.diff(plain.before(parts)) / lengths + pattern_mean + kept * bends
        middles, centres = parts[:-1] + lengths / 2.0, edges[:-1] + np.diff(edges) / 2.0
        levels = np.interp(middles, centres, plain.levels) + pattern_mean + kept * bends
        return _Form.of(parts, values, levels, np.concatenate([np.zeros(1), np.cumsum(values * lengths)]))

    @cached_property
    def _hidden(self) -> tuple[Floats, float, float]:
        """How far values vary within blocks, and the open one's growth."""
        rates = np.empty(self.totals.size + 1)
        levels = self._smoothed.levels.copy()
        levels[: self.totals.size] += self._smoothed.explained
        levels /= self.threshold
        shape, lengths, exponents, totals = self.shape, self._lengths, self.exponents, self.totals
        level = revision.hidden_rates(
            self.memory.copy(), shape, lengths, exponents, totals, self.places, levels, rates
        )
        differences = np.zeros(self.totals.size + 1)
        differences[1:-1] = np.diff(self._smoothed.means / self.threshold) ** 2
        rates[:-1] = np.maximum(rates[:-1], STEP * np.diff(self.edges) * (differences[:-1] + differences[1:]))
        waves = self._smoothed.waves
        if waves is not None:
            rates += UNSURE**2 * waves.hidden(np.append(self.edges, int(waves.points[-1])))
        return rates, *level

    @cached_property
    def _missing(self) -> Floats:
        totals = self.totals.copy()
        for begin, end, moved, _ in self._grouped:
            totals[begin:end] += moved / (end - begin)
        released = np.concatenate([np.zeros(1), np.cumsum(totals * self.threshold)])
        missing = released - self._smoothed.sums
        return np.append(missing, missing[-1])

    def error_bars(self, noise: SumNoise, starts: Integers, stops: Integers) -> ErrorBars:
        rates, variance, growth = self._hidden
        cut, inside, squares = hidden_of_ends(starts, stops, self.edges, rates)
        behind = (stops - np.maximum(starts, self.edges[-1])).clip(0).astype(np.float64)
        cut += behind**2 * (variance + growth * behind / 3.0)
        # Where theta rose or fell, noise counts as if the highest one had been in use in every block.
        noises = self._smoothed.noises * self._louder
        unit = math.sqrt(noises.max(initial=self._smoothed.unit**2))
        model = (cut + squares * self.shape["noise"][0] * unit**2) * self.threshold**2
        centre = self._released_before(stops) - self._released_before(starts)
        if not self._grouped:
            return ErrorBars(centre, noise.draw(self.threshold * unit), noise.resolution, inside, 1.0, model)
        first = np.searchsorted(self.edges, starts).clip(max=self.totals.size)
        last = np.maximum(np.searchsorted(self.edges, stops, side="right") - 1, first)
        before = np.concatenate([np.zeros(1), np.cumsum(noises)])
        variance = before[last] - before[first]
        for begin, end, _, both in self._grouped:
            common = before[last.clip(begin, end)] - before[first.clip(begin, end)]
            variance -= common**2 / (both * self._smoothed.noises[begin])
        variance /= unit**2
        # As many draws as groups' sums would make up for all of the variance: their tails are the heaviest.
        draws = (variance / block_lengths.GROUP_SCALE**2).astype(np.int64) + (variance > 0.0)
        weight = np.sqrt(variance / np.maximum(draws, 1))
        return ErrorBars(centre, noise.draw(self.threshold * unit), noise.resolution, draws, weight, model)

    def excess(self, noise: SumNoise, starts: Integers, stops: Integers) -> Floats:
        """Allowance for values beyond theta over [start, stop): float64[q]."""
        mean = self._smoothed.sums[-1] / max(int(self.edges[-1]), 1)
        rates = noise.excess(self.thetas, mean, self.threshold)
        levels, lengths, room = self.means / self.thetas[:-1], np.diff(self.edges), noise.bound - self.thetas[:-1]
        deviation = math.sqrt(self.shape["noise"][0])
        share = noise.above + noise.slope * self.threshold
        rates[:-1] = hidden_beyond(rates[:-1], levels, levels, lengths, room, deviation=deviation, share=share)
        rates[-1] = rates[-2:].max()
        sums = np.concatenate([np.zeros(1), np.cumsum(rates[:-1] * lengths)])

        def before(index: Integers) -> Floats:
            block = np.searchsorted(self.edges, index, side="right") - 1
            beyond: Floats = sums[block] + rates[block] * (index - self.edges[block])
            return beyond

        return before(stops) - before(starts)

    def _released_before(self, stops: Integers) -> Floats:
        block = np.searchsorted(self.edges, stops, side="right") - 1
        lengths = np.append(np.diff(self.edges), 1)
        fraction = (stops - self.edges[block]) / lengths[block] * (block < self.totals.size)
        missing = self._missing
        sums: Floats = self.sums_before(stops) + missing[block] + fraction * (missing[block + 1] - missing[block])
        return sums

    @property
    def means(self) -> Floats:
        return self._smoothed.means

    def sums_before(self, stops: Integers) -> Floats:
        """Sums over [0, stop): float64[q], each in constant time."""
        return self._form.before(stops)

    def values(self, count: int) -> Floats:
        return np.diff(self.sums_before(np.arange(count + 1)))


def _keep_sums(means: Floats, totals: Floats, lengths: Integers, noise: float, noises: Floats) -> None:
    """Keep sums of many blocks near the released ones."""
    size = KEPT_BLOCKS
    while size <= totals.size:
        complete = totals.size // size * size
        moved = (totals - means * lengths)[:complete].reshape(-1, size).sum(1)
        most = MAX_MOVED * np.sqrt(noise * noises[:complete].reshape(-1, size).sum(1))
        beyond = moved - np.clip(moved, -most, most)
        means[:complete] += np.repeat(beyond / lengths[:complete].reshape(-1, size).sum(1), size)
        size *= 2


# Days and weeks: a period in released sums, and the waves of that period.

#: Below so many blocks nothing is looked for; and at least so many periods must have been seen.
MIN_BLOCKS, MIN_PERIODS = 48, 6
#: The spectrum is taken of at most so many cells, at PADDING points for each frequency of its own.
MAX_CELLS, PADDING = 2**14, 4
#: Its background is the median of so many frequencies.
BACKGROUND = 32
#: The log-likelihood that waves must gain; where their period was looked for, more by the logarithm of the number of
#: periods.
CERTAIN = 6.0
#: Waves of a period: its first harmonics.
HARMONICS = 6
#: And of the period that is so many times as long, where sums show it as well.
WEEK = 7
#: A period that is looked for has at least so many blocks of the usual length.
MIN_CELLS = 4
#: Sums whose noise is so much less than their differences need no pattern.
CLEAR = 10.0
#: Sums of at least 1 / FINE of a period are compared; the variances are chosen by at most so many of them.
FINE, MAX_COMPARED = 32, 2**10
#: Integrals of waves are taken for so many sums at a time.
AT_ONCE = 2**14
#: Factors of the search for the likeliest variances, and the least gain of a step.
FACTORS, LEAST_GAIN = (16.0, 4.0, 2.0), 0.1
#: A variance that is 0 has no factors.
TINY = 1e-300


@dataclass(frozen=True)
class Sums:
    """Neighbouring sums between `edges`, with noise variances."""

    edges: Indices
    totals: Floats
    noises: Floats

    def pooled(self, least: float) -> Sums:
        at = np.arange(0.0, self.edges[-1], max(least, 1.0))
        kept = np.unique(np.append(np.searchsorted(self.edges, at), self.edges.size - 1))
        if kept.size == self.edges.size:
            return self
        return Sums(
            self.edges[kept], np.add.reduceat(self.totals, kept[:-1]), np.add.reduceat(self.noises, kept[:-1])
        )

    def first(self, count: int) -> Sums:
        return Sums(self.edges[: count + 1], self.totals[:count], self.noises[:count])


@dataclass(frozen=True)
class Waves:
    """Sums of a periodic pattern over [0, point), linear between `points`."""

    periods: tuple[float, ...]
    points: Floats
    sums: Floats

    def before(self, stops: Indices) -> Floats:
        return np.interp(stops, self.points, self.sums)

    def split(self, edges: Indices) -> Indices:
        lengths = np.diff(edges)
        most = 1 << max(int(math.log2(max(self.periods[0] / FINE, 1.0))), 0)
        parts = np.maximum(lengths // most, 1)
        block, index = _pieces(parts)
        return np.append(edges[block] + index * (lengths // parts)[block], edges[-1])

    def hidden(self, edges: Indices) -> Floats:
        """Variance per value of the pattern within each block: float64[J]."""
        parts = self.split(edges)
        block = np.searchsorted(edges, parts[:-1], side="right") - 1
        before, block_sums, lengths = self.before(edges), np.diff(self.before(edges)), np.diff(edges)
        along = parts[:-1] - edges[block]
        fraction = along / lengths[block]
        distance = self.before(parts[:-1]) - before[block] - fraction * block_sums[block]
        return np.maximum.reduceat(
            np.divide(distance**2, along * (1.0 - fraction), out=np.zeros(along.size), where=along > 0),
            np.searchsorted(parts, edges[:-1]),
        )


def find_waves(
    edges: Indices, totals: Floats, noises: Floats, surprises: Floats, end: int, season: float | None
) -> Waves | None:
    """Pattern that released sums show, or None.

    `surprises`: deviations from a wandering level, standardised; `end`: of the open block; `season`: public period.
    """
    if totals.size < MIN_BLOCKS:
        return None
    period, demanded = (season, CERTAIN) if season is not None else _peak(edges, surprises)
    if not period or edges[-1] < MIN_PERIODS * period or _clear(edges, totals, noises, period):
        return None
    sums = Sums(edges, totals, noises).pooled(period / FINE)
    compared = sums.first(MAX_COMPARED)
    plain = _Model(compared, ()).likeliest(None)
    chosen = _Model(compared, (period,)).likeliest(plain)
    model = _Model(sums, (period,))
    reached = model.likelihood(chosen)
    if reached < _Model(sums, ()).likelihood(plain) + demanded:
        return None
    if WEEK * MIN_PERIODS * period <= compared.edges[-1]:
        periods = (period, WEEK * period)
        with_week, longer = _Model(compared, periods).likeliest(chosen), _Model(sums, periods)
        if longer.likelihood(with_week) > reached + CERTAIN:
            model, chosen = longer, with_week
    return model.waves(chosen, end)


def _clear(edges: Indices, totals: Floats, noises: Floats, period: float) -> bool:
    differ = 0.5 * float(np.square(np.diff(totals)).mean())
    return bool(np.diff(edges).max() * FINE <= 2.0 * period and CLEAR * noises.mean() < differ)


def _peak(edges: Indices, surprises: Floats) -> tuple[float, float]:
    """Period of the strongest wave (0: none), and the required power."""
    lengths = np.diff(edges).astype(np.float64)
    # The block of the middle one of all values, by length: longer blocks would show a short period as another one.
    ordered = np.sort(lengths)
    usual = float(ordered[np.searchsorted(np.cumsum(ordered), edges[-1] / 2.0)])
    cell = max(usual, 2.0 ** math.ceil(math.log2(edges[-1] / MAX_CELLS)))
    cells = int(edges[-1] / cell)
    most = cells // MIN_CELLS
    if most <= MIN_PERIODS:
        return 0.0, 0.0
    running = np.concatenate([np.zeros(1), np.cumsum(surprises * np.sqrt(lengths))])
    series = np.diff(np.interp(np.arange(cells + 1) * cell, edges, running))
    width = PADDING * (1 << (cells - 1).bit_length())
    spectrum = np.abs(np.fft.rfft(series, width)) ** 2
    # Points of the spectrum for each frequency of its own.
    step = width / cells
    least = math.ceil(MIN_PERIODS * step)
    spectrum[:least] = 0.0
    spectrum[least:] /= _background(spectrum[least:])
    demanded = CERTAIN + math.log(most)
    top = int(np.argmax(spectrum[: math.floor(most * step)]))
    if spectrum[top] < demanded:
        return 0.0, demanded
    return width * cell / _fundamental(spectrum, top, step), demanded


def _background(spectrum: Floats) -> Floats:
    size = min(PADDING * BACKGROUND, spectrum.size)
    rows = spectrum[: spectrum.size // size * size].reshape(-1, size)
    medians = np.median(rows, axis=1) / math.log(2.0)
    middles = size * (np.arange(medians.size) + 0.5)
    return np.maximum(np.interp(np.arange(spectrum.size), middles, medians), TINY)


def _fundamental(spectrum: Floats, top: int, step: float) -> float:
    """Frequency whose harmonics hold most of the power."""
    near = np.linspace(-0.5, 0.5, 4 * HARMONICS + 1) * step
    numbers = np.arange(1, HARMONICS + 1)
    candidates = (top / numbers[:, None] + near).ravel()
    candidates = candidates[candidates >= MIN_PERIODS * step]
    at = np.rint(np.outer(candidates, numbers)).astype(np.int64)
    power = np.where(at < spectrum.size, spectrum[np.minimum(at, spectrum.size - 1)], 0.0)
    # Powers that noise alone may have do not count.
    return float(candidates[np.argmax(np.maximum(power - CERTAIN, 0.0).sum(axis=1))])


def _pieces(parts: Indices) -> tuple[Indices, Indices]:
    block = np.repeat(np.arange(parts.size), parts)
    return block, np.arange(block.size) - np.repeat(np.cumsum(parts) - parts, parts)


def _integrals(points: Floats, periods: tuple[float, ...]) -> Floats:
    harmonics = [2.0 * math.pi / period * np.arange(1, HARMONICS + 1) for period in periods]
    frequencies = np.concatenate([np.empty(0), *harmonics])
    angles = np.outer(points, frequencies)
    return np.hstack([np.sin(angles) / frequencies, -np.cos(angles) / frequencies])


def _rows(edges: Floats, periods: tuple[float, ...]) -> Iterator[tuple[slice, Floats]]:
    for k in range(0, edges.size - 1, AT_ONCE):
        yield slice(k, k + AT_ONCE), np.diff(_integrals(edges[k : k + AT_ONCE + 1], periods), axis=0)


class _Model:
    """A wandering level and waves, observed through sums.

    Variances are of a value, the level's steps, and a first harmonic's coefficients.
    """

    def __init__(self, sums: Sums, periods: tuple[float, ...]) -> None:
        self._sums, self._periods = sums, periods
        edges = sums.edges.astype(np.float64)
        self._lengths = np.diff(edges)
        self._rows = np.empty((self._lengths.size, 1 + 2 * HARMONICS * len(periods)))
        self._rows[:, 0] = self._lengths
        for selection, rows in _rows(edges, periods):
            self._rows[selection, 1:] = rows
        self._gaps = np.zeros(self._lengths.size)
        self._gaps[1:] = (self._lengths[1:] + self._lengths[:-1]) / 2.0
        self._shares = 1.0 / np.tile(np.arange(1.0, HARMONICS + 1.0), 2 * len(periods))
        self._start = np.zeros(self._rows.shape[1])
        self._start[0] = sums.totals.sum() / edges[-1]
        #: By which sums of a value differ.  The first level is as far from the mean as that: a wider one would lose
        #: the digits of clear sums.
        self._moved = max(float(np.var(sums.totals / self._lengths)), TINY)
        self._errors = np.empty(self._lengths.size)

    def likelihood(self, variances: Floats, gains: Floats | None = None) -> float:
        rates, start, spreads = self._state_spreads(variances)
        return wave_filter.filter_waves(
            self._sums.totals,
            self._rows,
            self._sums.noises + variances[0] * self._lengths,
            self._gaps,
            rates,
            start,
            spreads,
            self._errors,
            np.empty((0, self._rows.shape[1])) if gains is None else gains,
        )

    def _state_spreads(self, variances: Floats) -> tuple[Floats, Floats, Floats]:
        waves = variances[2] * self._shares
        rates = np.concatenate([[variances[1]], waves / self._sums.edges[-1]])
        return rates, self._start, np.concatenate([[4.0 * self._moved], waves])

    def likeliest(self, start: Floats | None) -> Floats:
        """Search variances of greatest likelihood, one factor at a time."""
        if start is None:
            white = float(np.mean(self._sums.noises / self._lengths))
            start = np.array([white, self._moved / self._sums.edges[-1], 0.0])
        variances = start.copy()
        if self._periods and not variances[2]:
            variances[2] = self._moved
        best = self.likelihood(variances)
        for factor in FACTORS:
            for k in range(3 if self._periods else 2):
                for way in (factor, 1.0 / factor):
                    gained = True
                    while gained:
                        trial = variances.copy()
                        trial[k] *= way
                        reached = self.likelihood(trial)
                        gained = reached > best + LEAST_GAIN
                        if gained:
                            best, variances = reached, trial
        return variances

    def waves(self, variances: Floats, end: int) -> Waves:
        gains, states = np.empty_like(self._rows), np.empty_like(self._rows)
        self.likelihood(variances, gains)
        wave_filter.smooth_waves(self._rows, self._errors, gains, self._gaps, *self._state_spreads(variances), states)
        # Coefficients are constant within a sum, and after the last one.
        edges = np.append(self._sums.edges, end).astype(np.float64)
        states = np.vstack([states, states[-1:]])[:, 1:]
        parts = np.ceil(np.diff(edges) * min(2.0 * FINE / self._periods[0], 1.0)).astype(np.int64)
        block, index = _pieces(parts)
        points = np.append(edges[block] + index * (np.diff(edges) / parts)[block], edges[-1])
        added = np.empty(block.size)
        for selection, rows in _rows(points, self._periods):
            added[selection] = np.einsum("ij,ij->i", rows, states[block[selection]])
        return Waves(self._periods, points, np.concatenate([np.zeros(1), np.cumsum(added)]))
