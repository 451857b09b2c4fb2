"""Quantiles of cells in three steps, each placed by the numbers before (``docs/tables_proofs.md``).

Noisy counts of the table give bins of about equal rows; each cell has noisy counts of these; and, at its estimated
quantile, the noisy excess: rows below less the quantile's share of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fastdp.errors import ParameterError, argument
from fastdp.kinds import Array, Flags, Floats, Integers
from fastdp.releases.intervals import DrawnNoise, wider_quantile
from fastdp_kernels.tables import window_sums

#: Fine bins, and groups of them, in which the whole table's rows are counted: a row is in one node of each level.
BINS, FAN_OUT, LEVELS = 1024, 32, 2
#: Bins of all windows and keys together.
MAX_BINS = 2**26
#: The widest fine bin over the narrowest one, about.
SPREAD = 2.0**16
#: Bins of cells: where nothing is known of the table; else so many times the root of a cell's rows over the noise, at
#: least and at most so many.
PUBLIC, PER_ROOT, LEAST, MOST = 64, 2.5, 16, 128
#: Where the noise of a count has less variance, up to so many cells have all fine bins: their bins together still err
#: by less than a row.
EXACT, EXACT_CELLS = 1e-4, 2048
#: Steps of one row in an excess.
UNIT = 2**20
#: A window's excess at the table's quantile is about this share of its rows; in a bin cells differ by so much of it.
SIMILAR, INSIDE = 0.25, 0.15
#: Part of the bins' shape that is even, so that borders rise.
EVEN = 1e-6
#: Rising means have about this part of the variance of the sums.
RISING = 0.6
#: A fine bin with more than this share of a bin's rows is one.
HEAVY = 0.5
#: Variances in rows are above 0.
TINY = 1e-9
#: Between a row and an interpolated quantile lie fewer rows.
BETWEEN = 2.0


def check_bins(cells: int) -> None:
    """Refuse histograms that do not fit in memory (ParameterError)."""
    if cells * BINS > MAX_BINS:
        raise ParameterError(
            f"quantiles of {cells:,} windows and keys: expected at most {MAX_BINS // BINS:,}, because each has a "
            f"histogram; use longer windows, fewer keys, or a shorter time ({argument('Time', start=..., stop=...)})"
        )


@dataclass(frozen=True)
class Bins:
    """Fine bins from `low` to `high`, wider away from 0."""

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


def nodes_of(counts: Integers) -> Integers:
    """Groups, then bins, of the table, from int64[BINS, W, K]."""
    whole = counts.sum(axis=(1, 2))
    return np.concatenate([whole.reshape(FAN_OUT, -1).sum(axis=1), whole])


def consistent_leaves(nodes: Floats) -> Floats:
    """Least-squares counts of bins from nodes: float64[BINS]."""
    upper, bins = nodes[:FAN_OUT], nodes[FAN_OUT:].reshape(FAN_OUT, -1)
    # A node's own count and the sum of its bins, weighted by their variances; the difference is spread over the bins.
    found: Floats = bins + ((upper - bins.sum(axis=1)) / (bins.shape[1] + 1.0))[:, None]
    return found.ravel()


def rising(values: Floats) -> Floats:
    """The middle of the nearest rising functions, on the last axis."""
    up = np.maximum.accumulate(values, axis=-1)
    out: Floats = 0.5 * (up + np.minimum.accumulate(values[..., ::-1], axis=-1)[..., ::-1])
    return out


@dataclass(frozen=True, eq=False)
class Parts:
    """Borders of cells' bins among fine ones, and the table's shares below."""

    cut: Integers
    below: Floats

    @classmethod
    def of_table(cls, nodes: Array | None, cells: int, noise: DrawnNoise) -> Parts:
        """Bins of about equal rows by the table's noisy nodes, else of as many fine bins.

        `noise`: that of a cell's counts.
        """
        even = np.arange(BINS + 1) / BINS
        exact = noise.variance < EXACT and cells <= EXACT_CELLS
        if nodes is None or exact:
            return cls(np.arange(0, BINS + 1, 1 if exact else BINS // PUBLIC), even)
        below = rising(np.append(0.0, np.cumsum(consistent_leaves(nodes.astype(np.float64)))))
        below -= below[0]
        rows = float(below[-1])
        share = below / rows if rows > 0.0 else even
        share = (1.0 - EVEN) * share + EVEN * even
        signal = max(rows, 0.0) / max(1, cells) / math.sqrt(max(noise.variance, 1.0))
        parts = int(min(max(PER_ROOT * math.sqrt(signal), LEAST), MOST))
        inner = np.clip(np.searchsorted(share, np.arange(1, parts) / parts), 1, BINS - 1)
        # One value that many rows have is a bin of its own.
        heavy = np.flatnonzero(np.diff(share) > HEAVY / parts)
        return cls(np.unique(np.concatenate([[0], inner, heavy, heavy + 1, [BINS]])), share)

    def counts(self, fine: Integers) -> Integers:
        return np.ascontiguousarray(np.add.reduceat(fine, self.cut[:-1], axis=0))

    def place(self, excess: Floats, known: tuple[Integers, Floats] | None = None) -> Floats:
        """Fine border at which an excess at the borders, float64[..., bins + 1], is 0.

        `known`: a further border of each cell, and its excess.
        """
        at = np.clip((excess < 0.0).sum(axis=-1), 1, self.cut.size - 1)
        left, right = (np.take_along_axis(excess, (at - side)[..., None], -1)[..., 0] for side in (1, 0))
        first, last = self.cut[at - 1], self.cut[at]
        if known is not None:
            inside = (first < known[0]) & (known[0] < last) & (left < 0.0) & (right >= 0.0)
            there = np.clip(known[1], left, right)
            above, under = inside & (there >= 0.0), inside & (there < 0.0)
            right, last = np.where(above, there, right), np.where(above, known[0], last)
            left, first = np.where(under, there, left), np.where(under, known[0], first)
        # Noise may take all of it to one side: then the middle of the last bin, not the far end of all values.
        part = np.divide(-left, right - left, out=np.full(at.shape, 0.5), where=(left < 0.0) & (right > 0.0))
        ends = self.below[first], self.below[last]
        found: Floats = np.interp(ends[0] + part * (ends[1] - ends[0]), self.below, np.arange(BINS + 1.0))
        return np.clip(found, first, last)

    def value(self, excess: Floats, places: Array) -> tuple[Floats, Floats]:
        """Excess at fine borders, and its variance by shapes within bins."""
        at = np.clip(np.searchsorted(self.cut, places, side="right"), 1, self.cut.size - 1)
        left, right = (np.take_along_axis(excess, (at - side)[..., None], -1)[..., 0] for side in (1, 0))
        ends, own = self.below[self.cut], np.interp(places, np.arange(BINS + 1.0), self.below)
        part = (own - ends[at - 1]) / (ends[at] - ends[at - 1])
        # A border is known; in the middle of a bin its rows may all be on one side.
        return left + part * (right - left), 4.0 * part * (1.0 - part) * (INSIDE * (right - left)) ** 2


def weights_of(ranks: Sequence[float]) -> Integers:
    """Steps that a row above a quantile takes off its excess."""
    found: Integers = np.rint(np.asarray(ranks) * UNIT).astype(np.int64)
    return found


def excess_sensitivity(ranks: Sequence[float]) -> int:
    """Steps by which a row moves the excesses of all quantiles together.

    A row is above the first borders and below the others.
    """
    weights = weights_of(ranks)
    return int(max(weights.sum(), (UNIT - weights).sum()))


@dataclass(frozen=True, eq=False)
class Curve:
    """A quantile's rising excess at borders, and its variance near 0."""

    excess: Floats
    variance: Floats

    @classmethod
    def of(cls, parts: Parts, counts: Floats, rank: float, noise: DrawnNoise) -> Curve:
        """From counts, float64[..., bins]; where noise hides a shape, the table's."""
        below = rows_below(counts)
        whole = below[..., -1:]
        excess = below - rank * whole
        rows, shape = np.maximum(whole, 0.0), parts.below[parts.cut] - rank
        spread = np.interp(rank, parts.below[parts.cut], border_variances(parts.cut.size - 1, rank))
        own = RISING * noise.variance * spread + TINY
        expected = (SIMILAR * rows) ** 2
        share = expected / (expected + own)
        found = share * rising(excess) + (1.0 - share) * np.maximum(rows, 1.0) * shape
        return cls(found, (share * own)[..., 0])


def rows_below(counts: Floats) -> Floats:
    """Rows below each border of bins, the last axis."""
    out: Floats = np.concatenate([np.zeros_like(counts[..., :1]), np.cumsum(counts, axis=-1)], axis=-1)
    return out


def border_variances(bins: int, rank: float) -> Floats:
    """Variance of rows below each border less `rank` times all rows."""
    before = np.arange(bins + 1.0)
    return before * (1.0 - rank) ** 2 + (bins - before) * rank**2


def places_of(parts: Parts, counts: Array, ranks: Sequence[float], noise: DrawnNoise) -> Integers:
    """Fine borders at which excesses are measured: int64[ranks, W, K]."""
    cells = np.moveaxis(counts.astype(np.float64), 0, -1)
    found = [parts.place(Curve.of(parts, cells, rank, noise).excess) for rank in ranks]
    places = np.clip(np.rint(np.stack(found)), 1, BINS - 1).astype(np.int64)
    return np.maximum.accumulate(places, axis=0)


def excess_at(fine: Integers, places: Integers, ranks: Sequence[float]) -> Integers:
    """Exact excesses in steps: int64[ranks, W, K]."""
    below = np.cumsum(fine, axis=0)
    own = np.take_along_axis(below, places - 1, axis=0) * UNIT
    out: Integers = own - weights_of(ranks)[:, None, None] * below[-1]
    return out


# Released numbers to quantiles.


@dataclass(frozen=True, eq=False)
class Histogram:
    """Noisy counts of bins, [bins, W, K], and excesses in steps at ``places``, [ranks, W, K].

    ``added`` sums keys to those of the answers, of ``draws`` keys each.
    """

    bins: Bins
    parts: Parts
    counts: Array
    noise: DrawnNoise
    ranks: tuple[float, ...]
    places: Integers
    excess: Array
    excess_noise: DrawnNoise
    draws: Integers
    added: Callable[[Floats], Floats]

    def quantiles(self, rank: float, starts: Integers, stops: Integers, confidence: float) -> tuple[Floats, ...]:
        """Quantile of windows [start, stop) of each key, and its interval: float64[q, K] each.

        Without information the interval is the bins' range.
        """
        cells = np.moveaxis(self.counts.astype(np.float64), 0, -1)
        at, curve = self.ranks.index(rank), Curve.of(self.parts, cells, rank, self.noise)
        known, places = self.excess[at] / UNIT, self.places[at]
        number = self.excess_noise.variance / UNIT**2 + TINY
        there, inside = self.parts.value(curve.excess, places)
        # Noise of the bins moves all borders; rows that lie elsewhere in one bin move no border.
        parts = (known - there) / (curve.variance + inside + number)
        moved = curve.excess + (curve.variance * parts)[..., None]
        there = there + (curve.variance + inside) * parts
        # Of two tests for an end, or of the borders that noise may take over it, each has half of the chance.
        width = wider_quantile(0.5 * (1.0 + confidence))
        lengths = (stops - starts)[:, None] * self.draws
        if self.draws.max(initial=1) == 1 and np.array_equal(stops, starts + 1):
            estimate = self._value(self.parts.place(moved[starts], (places[starts], there[starts])))
            low, high = self._single(known[starts], places[starts], cells[starts], rank, width, number)
        else:
            whole = self._ranges(moved, starts, stops)
            estimate = self._value(self.parts.place(whole))
            low, high = self._common(self._ranges(cells, starts, stops), lengths, rank, width)
        return np.clip(estimate, low, high), low, high

    def _value(self, places: Floats) -> Floats:
        out: Floats = np.interp(places, np.arange(BINS + 1.0), self.bins.borders)
        return out

    def _ranges(self, values: Floats, starts: Integers, stops: Integers) -> Floats:
        keys = np.moveaxis(self.added(np.moveaxis(values, 1, -1)), -1, 1)
        prefix = np.concatenate([np.zeros_like(keys[:1]), np.cumsum(keys, axis=0)])
        out: Floats = prefix[stops] - prefix[starts]
        return out

    def _single(
        self, known: Floats, places: Integers, counts: Floats, rank: float, width: float, number: float
    ) -> tuple[Floats, Floats]:
        """Borders about the quantile, by two tests of `width` for each end.

        One test takes the excess at its place and bins between, the other the bins alone.
        """
        cut = self.parts.cut
        below = rows_below(counts)
        # The nearest borders at or above the place, and at or below it.
        borders, first = np.arange(cut.size), np.searchsorted(cut, places, side="left")[..., None]
        last = np.searchsorted(cut, places, side="right")[..., None] - 1
        # Rows can only be added between the place and a border: those of whole bins are counted.
        right = np.clip(borders - first, 0, None)
        more = known[..., None] + below - np.take_along_axis(below, first, -1)
        high = (borders >= first) & (more - width * np.sqrt(number + right * self.noise.variance) > BETWEEN)
        left = np.clip(last - borders, 0, None)
        less = known[..., None] + below - np.take_along_axis(below, last, -1)
        low = (borders <= last) & (less + width * np.sqrt(number + left * self.noise.variance) < -BETWEEN)
        ends = self.bins.borders[cut]
        lowest, highest = _ends(low, high, ends)
        # The place itself says as much as the next border, if anything.
        there, error = self.bins.borders[places], width * math.sqrt(number)
        lowest = np.where(known + error < -BETWEEN, np.maximum(lowest, there), lowest)
        highest = np.where(known - error > BETWEEN, np.minimum(highest, there), highest)
        excess, errors = self._by_bins(counts, 1, rank, width)
        low = np.take_along_axis(excess + errors, last, -1)[..., 0] < -BETWEEN
        high = np.take_along_axis(excess - errors, first, -1)[..., 0] > BETWEEN
        lowest = np.where(low, np.maximum(lowest, ends[last[..., 0]]), lowest)
        return lowest, np.where(high, np.minimum(highest, ends[first[..., 0]]), highest)

    def _common(self, counts: Floats, lengths: Integers, rank: float, width: float) -> tuple[Floats, Floats]:
        excess, error = self._by_bins(counts, lengths[..., None], rank, width)
        return _ends(excess + error < -BETWEEN, excess - error > BETWEEN, self.bins.borders[self.parts.cut])

    def _by_bins(self, counts: Floats, lengths: Array | int, rank: float, width: float) -> tuple[Floats, Floats]:
        """Excess at the borders by bins alone, and its error."""
        below = rows_below(counts)
        variances = border_variances(self.parts.cut.size - 1, rank) * self.noise.variance
        # As it is: borders of little noise would take on the greatest noise of others if it were made to rise.
        return below - rank * below[..., -1:], width * np.sqrt(variances * lengths)


def _ends(low: Flags, high: Flags, ends: Floats) -> tuple[Floats, Floats]:
    """Highest border of `low` and lowest of `high`, else the outermost."""
    size = ends.size
    below = size - 1 - np.argmax(low[..., ::-1], axis=-1)
    above = np.argmax(high, axis=-1)
    return ends[np.where(low.any(axis=-1), below, 0)], ends[np.where(high.any(axis=-1), above, size - 1)]
