"""Estimates with error bars of sums, counts and means over consecutive windows.

A sum over m windows carries m noise draws of known distribution.  A mean is a quotient of two independent noisy sums;
Fieller's interval inverts |D - mu C| <= z sd(D - mu C), where z is the largest of both sums' standardised quantiles
and
the normal one.  All of it is post-processing: no further privacy loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import fft
from scipy.stats import norm

from fastdp.kinds import Floats, Integers
from fastdp.tables.sums import ROWS, Quantity, Released, Statistic
from fastdp.units import zone_of

# Released windows smoothed together along time, with a pattern of the day and of the week ("revised").
#
# Source: blockwise James-Stein estimation (Efromovich and Pinsker 1984; Cavalier and Tsybakov 2001) in an
# orthogonal decomposition of the windows of a key: their mean, the pattern of the local day, of weekdays and
# weekends, of the week, and cosines (DCT-II) of the rest, in blocks of neighbouring frequencies.  The noise of
# every coefficient has the same known variance R.  A part of n coefficients with energy E is multiplied by 1 - B, B
# = min(1, (n - 2) R / E): a part that is noise goes, a part that stands out of the noise stays, and in no part is
# the expected square error above that of the estimates.  Where noise is negligible every B is, and the estimates
# are returned.  The standard error is model-based (Morris 1983, for the same shrinkage): it counts the possible cost
# of shrinking, as far as the released values show it.


#: Blocks of frequencies: at least so many, and this share of the frequencies below them.
LEAST, GROWTH = 8, 0.5
DAY = 86_400_000_000
#: Cells that are smoothed at a time, which bounds the memory.
CELLS = 2**21


@dataclass(frozen=True, eq=False)
class Revised:
    """Smoothed windows of some keys: values and the model's error variances, float64[W, K].

    ``noise_variance`` is R, of one estimate; ``kept``, float64[B, K], the share of R that stays in each block of
    frequencies, and ``block``, int64[W], each frequency's block.  ``patterns`` are pairs of phases, int64[W], and the
    share
    of R that stays, float64[K]; the first has all windows in one phase.
    """

    values: Floats
    variances: Floats
    noise_variance: float
    kept: Floats
    block: Integers
    patterns: tuple[tuple[Integers, Floats], ...]

    def sum_variance(self, start: int, stop: int) -> Floats:
        """The model's variance of sums over windows [start, stop), float64[K], in squared units of the estimates."""
        member = np.zeros(self.block.size)
        member[start:stop] = 1.0
        rest, total = member, np.zeros(self.kept.shape[1])
        for phases, kept in self.patterns:
            part = _project(phases, rest)
            total += kept * float(part @ part)
            rest = rest - part
        weights = np.bincount(self.block, fft.dct(rest, norm="ortho") ** 2, self.kept.shape[0])
        out: Floats = self.noise_variance * (total + weights @ self.kept)
        return out


def revise(estimates: Floats, noise_variance: float, patterns: Sequence[Integers] = ()) -> Revised:
    """Smooth the released windows of each key separately.

    Parameters
    ----------
    estimates : float64[W, K]
        Consecutive windows of K keys, any W >= 1.
    noise_variance : float
        R: variance of the independent noise of each, in squared units of the estimates.
    patterns : sequence of int64[W]
        Phases of each window (hour of the day, hour of the week), each a refinement of the one before it.
    """
    windows, keys = estimates.shape
    step = max(1, CELLS // windows)
    if keys > step:
        parts = [revise(estimates[:, k : k + step], noise_variance, patterns) for k in range(0, keys, step)]
        return _joined(parts)
    whole = np.zeros(windows, np.int64)
    values, variances = np.zeros(estimates.shape), np.zeros(estimates.shape)
    rest, spent, seen = estimates, 0, np.zeros(windows)
    listed = []
    for phases in (whole, *patterns):
        sizes = np.bincount(phases).astype(np.float64)
        part = _project(phases, rest)
        size = int(np.count_nonzero(sizes)) - spent
        # The mean of all windows is no pattern: it stays as it is.
        share, kept = (np.ones(keys), np.ones(keys)) if not spent else _shares(part, size, noise_variance)
        leverage = 1.0 / sizes[phases]
        values += share * part
        variances += kept * (leverage - seen)[:, None]
        listed.append((phases, kept))
        rest, spent, seen = rest - part, spent + size, leverage
    waves = fft.dct(rest, axis=0, norm="ortho")
    block = _blocks(windows)
    count, left = int(block.max()) + 1, 1.0 - (spent - 1) / max(1, windows - 1)
    kept, shares = np.zeros((count, keys)), np.zeros((count, keys))
    order = np.argsort(block, kind="stable")
    borders = np.searchsorted(block[order], np.arange(count + 1))
    for b in range(1, count):
        inside = order[borders[b] : borders[b + 1]]
        # Patterns have taken their share of the noise out of each block.
        shares[b], kept[b] = _shares(waves[inside], inside.size * left, noise_variance)
    values += fft.idct(waves * shares[block], axis=0, norm="ortho")
    # Few blocks, many keys: a block's contribution to a window's variance is computed once.
    members = (block[:, None] == np.arange(count)).astype(np.float64)
    variances += left * (_at_windows(members) @ kept)
    return Revised(values, noise_variance * variances, noise_variance, left * kept, block, tuple(listed))


def _joined(parts: list[Revised]) -> Revised:
    values, variances, kept = (
        np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("values", "variances", "kept")
    )
    first = parts[0]
    patterns = tuple(
        (phases, np.concatenate([part.patterns[i][1] for part in parts]))
        for i, (phases, _) in enumerate(first.patterns)
    )
    return Revised(values, variances, first.noise_variance, kept, first.block, patterns)


def _project(phases: Integers, values: Floats) -> Floats:
    """Mean of `values` over the windows of the same phase: float64[W] or float64[W, K]."""
    sizes = np.maximum(np.bincount(phases), 1)
    order = np.argsort(phases, kind="stable")
    starts = np.searchsorted(phases[order], np.arange(sizes.size))
    present = np.unique(phases)
    sums = np.zeros((sizes.size, *values.shape[1:]))
    sums[present] = np.add.reduceat(values[order], starts[present], axis=0)
    out: Floats = (sums / sizes.reshape(-1, *([1] * (values.ndim - 1))))[phases]
    return out


def _shares(part: Floats, size: float, noise_variance: float) -> tuple[Floats, Floats]:
    """Factor that shrinks `size` coefficients, and the share of R left in their errors: float64[K] each."""
    keys = part.shape[1]
    if size <= 2.0 or noise_variance == 0.0:
        return np.ones(keys), np.ones(keys)
    # Divided before they are squared: the estimates may be huge.
    energy = np.sum((part / np.sqrt(noise_variance)) ** 2, axis=0)
    lost = (size - 2.0) / np.maximum(energy, size - 2.0)
    return 1.0 - lost, np.minimum(1.0, 1.0 - lost + 2.0 * lost / size)


def _blocks(windows: int) -> Integers:
    """Block of each cosine frequency, int64[W]: frequency 0 alone, then blocks that grow with the frequency."""
    block = np.zeros(windows, np.int64)
    label, at = 1, 1
    while at < windows:
        size = max(LEAST, int(GROWTH * at))
        block[at : at + size] = label
        label, at = label + 1, at + size
    return block


def _at_windows(kept: Floats) -> Floats:
    """Diagonal of C' diag(kept) C for the cosine transform C without frequency 0: float64[W, K]."""
    windows = kept.shape[0]
    weights = kept / windows
    weights[0] = 0.0
    turned = weights * np.exp(1j * np.pi * np.arange(windows) / windows)[:, None]
    out: Floats = weights.sum(axis=0) + windows * fft.ifft(turned, axis=0).real
    return np.maximum(out, 0.0)


def local_patterns(edges: Integers, time_zone: str | None) -> list[Integers]:
    """Phases of windows by the local clock, int64[W] each: of the day, of weekday or weekend, and of the week.

    Each refines the one before it; daylight saving shifts none.  A pattern needs at least two of its periods and
    windows
    that divide a day; daily windows have a pattern of the week only, longer ones none.
    """
    lengths = np.diff(edges)
    usual = int(np.median(lengths))
    if usual > DAY * 1.05 or (DAY % usual and usual < DAY * 0.95):
        return []
    local = edges[:-1] + _offsets(edges[:-1], time_zone)
    days = np.floor_divide(local, DAY)
    # 1970 began on a Thursday.
    weekday = (days + 3) % 7
    a_day = max(1, round(DAY / usual))
    phase = (local - days * DAY) // usual % a_day if a_day > 1 else np.zeros(local.size, np.int64)
    patterns = [(a_day, phase), (7 * a_day, phase + a_day * (weekday >= 5)), (7 * a_day, phase + a_day * weekday)]
    return [phases.astype(np.int64) for length, phases in patterns if length > 1 and local.size >= 2 * length]


def _offsets(instants: Integers, time_zone: str | None) -> Integers:
    """Offset of the local clock from UTC at each instant, int64[n], in microseconds."""
    if time_zone is None:
        return np.zeros(instants.size, np.int64)
    zone, epoch = zone_of(time_zone), datetime(1970, 1, 1, tzinfo=UTC)
    microsecond = timedelta(microseconds=1)
    moments = ((epoch + timedelta(microseconds=instant)).astimezone(zone) for instant in instants.tolist())
    return np.array([(moment.utcoffset() or timedelta()) // microsecond for moment in moments], np.int64)


@dataclass(frozen=True, eq=False)
class Answer:
    """Estimates, standard errors and interval ends in units of the input: float64[q, K] each."""

    estimate: Floats
    std_error: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class _Part:
    """Sums over ranges: values, variances, and interval ends; float64[q, K] each."""

    value: Floats
    variance: Floats
    low: Floats
    high: Floats

    @property
    def quantile(self) -> Floats:
        """Half the interval's width in standard deviations, float64[q, K]; 0 without noise."""
        half, deviation = (self.high - self.low) / 2.0, np.sqrt(self.variance)
        out: Floats = np.divide(half, deviation, out=np.zeros_like(half), where=deviation > 0.0)
        return out


class Answers:
    """Answers about ranges of released windows, with intervals of one confidence."""

    def __init__(self, released: Released, confidence: float) -> None:
        self._released = released
        self._confidence = confidence
        self._normal = float(norm.ppf(0.5 + confidence / 2.0))

    def about(
        self, statistic: Statistic, starts: Integers, stops: Integers, *, revised: bool = False, pooled: bool = False
    ) -> Answer:
        """Answers about windows [start, stop): from these alone, or ``revised``; ``pooled`` adds up the keys."""
        column, index = statistic.column, self._released.index
        of = self._smooth if revised and len(self._released.edges) > 1 else self._exact

        def part(name: str, of_column: str = column) -> _Part:
            return of(int(index(name, of_column) or 0), starts, stops, pooled)

        if statistic.kind in ("count", "sum"):
            total = part("count" if statistic.kind == "count" else "total")
            return Answer(total.value, np.sqrt(total.variance), total.low, total.high)
        name = "total" if index("total", column) is not None else "deviation"
        quantity, first, count = self._quantity(name, column), part(name), part("count", ROWS)
        clip = self._released.tails[column].clip
        if statistic.kind == "mean":
            return self._mean(first, count, quantity.centre * quantity.grid, clip)
        square = self._quantity("square", column)
        found = self._variance(part("square"), first, count, (square.centre - quantity.centre) * square.grid, clip)
        return found if statistic.kind == "var" else _root(found)

    def _quantity(self, name: str, column: str) -> Quantity:
        return self._released.quantities[self._released.index(name, column) or 0]

    def _exact(self, i: int, starts: Integers, stops: Integers, pooled: bool) -> _Part:
        cells, resolution = self._released.measured[0], self._released.quantities[i].resolution
        noise, steps = cells.noise[i], cells.steps[i]
        keys = steps.shape[1]
        steps = steps.sum(axis=1, keepdims=True) if pooled else steps
        if np.array_equal(stops, starts + 1):
            sums = steps[starts]
        else:
            prefix = np.zeros((steps.shape[0] + 1, steps.shape[1]), np.int64)
            np.cumsum(steps, axis=0, out=prefix[1:])
            sums = prefix[stops] - prefix[starts]
        draws = (stops - starts) * (keys if pooled else 1)
        value: Floats = sums * np.float64(resolution)
        variance = draws * noise.variance * resolution**2
        half = _column(noise.quantiles(draws, self._confidence))
        # In integer steps: the ends belong to the interval, and rounding must not move them inwards.
        low, high = ((sums.astype(np.float64) + side * half) * resolution for side in (-1, 1))
        return _Part(value, np.broadcast_to(_column(variance), value.shape), low, high)

    def _smooth(self, i: int, starts: Integers, stops: Integers, pooled: bool) -> _Part:
        revised = self._revised(i)
        if np.array_equal(stops, starts + 1):
            value, variance = revised.values[starts], revised.variances[starts]
        else:
            prefix = np.zeros((revised.values.shape[0] + 1, revised.values.shape[1]))
            np.cumsum(revised.values, axis=0, out=prefix[1:])
            value = prefix[stops] - prefix[starts]
            listed = [revised.sum_variance(*pair) for pair in zip(starts.tolist(), stops.tolist(), strict=True)]
            variance = np.array(listed).reshape(value.shape)
        if pooled:
            value, variance = value.sum(axis=1, keepdims=True), variance.sum(axis=1, keepdims=True)
        # Where windows say little about each other the error is their noise, whose tails are longer than normal ones.
        noise = self._exact(i, starts, stops, pooled)
        half = np.sqrt(variance) * np.maximum(noise.quantile, self._normal)
        return _Part(value, variance, value - half, value + half)

    def _revised(self, i: int) -> Revised:
        if i not in self._revisions:
            cells, resolution = self._released.measured[0], self._released.quantities[i].resolution
            edges, zone = self._released.edges, self._released.time_zone
            patterns = local_patterns(edges, zone) if self._released.every is not None else []
            variance = cells.noise[i].variance * resolution**2
            self._revisions[i] = revise(cells.steps[i] * np.float64(resolution), variance, patterns)
        return self._revisions[i]

    @cached_property
    def _revisions(self) -> dict[int, Revised]:
        return {}

    def _mean(self, deviation: _Part, count: _Part, centre: float, clip: tuple[float, float]) -> Answer:
        """Centre + deviation / count; if the count is not clearly above 0, the interval is the full clip."""
        low, high = clip
        quantile = np.maximum(np.maximum(deviation.quantile, count.quantile), self._normal)
        size = np.maximum(count.value, 1.0)
        mean = np.clip(deviation.value / size, low - centre, high - centre)
        error = np.sqrt(deviation.variance + mean**2 * count.variance) / size
        clear = count.value**2 - quantile**2 * count.variance
        known = (clear > 0.0) & (count.value > 0.0)
        clear = np.where(known, clear, 1.0)
        inside = count.variance * deviation.value**2 + deviation.variance * clear
        middle, half = deviation.value * count.value / clear, quantile * np.sqrt(np.maximum(inside, 0.0)) / clear
        lower = np.clip(np.where(known, middle - half, low - centre), low - centre, mean)
        upper = np.clip(np.where(known, middle + half, high - centre), mean, high - centre)
        return Answer(centre + mean, np.minimum(error, high - low), centre + lower, centre + upper)

    def _variance(
        self, square: _Part, first: _Part, count: _Part, centre: float, clip: tuple[float, float]
    ) -> Answer:
        """Square / count less the squared mean deviation from ``centre``, by the delta method; within the clip."""
        most, size = ((clip[1] - clip[0]) / 2.0) ** 2, np.maximum(count.value, 1.0)
        mean = first.value / size - centre
        raw = square.value / size - mean**2
        slope = mean**2 + 2.0 * mean * centre - raw
        error = np.sqrt(square.variance + 4.0 * mean**2 * first.variance + slope**2 * count.variance) / size
        quantile = np.maximum(np.maximum(square.quantile, count.quantile), self._normal)
        low, high = (np.clip(raw + side * quantile * error, 0.0, most) for side in (-1, 1))
        return Answer(np.clip(raw, 0.0, most), np.minimum(error, most), low, high)


def _root(answer: Answer) -> Answer:
    """Standard deviations of variances."""
    estimate, low, high = (np.sqrt(each) for each in (answer.estimate, answer.low, answer.high))
    error = np.minimum(answer.std_error / np.maximum(2.0 * estimate, np.sqrt(answer.std_error)), high - low)
    return Answer(estimate, error, low, high)


def _column(row: ArrayLike) -> Floats:
    return np.asarray(row, np.float64).reshape(-1, 1)
