"""Consistent sums over a tree of keys and over time from noisy ones, and the budget of each level.

Consistent sums are least squares over key prefixes; revised sums smooth each node's windows and add up again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import fft, sparse

from fastdp.kinds import Floats, Integers
from fastdp.units import EPOCH, MICROSECOND, local_time, zone_of
from fastdp.validation import DAY

#: Values of the nodes of one depth, float64[n, K], and the variance of each node's values, float64[K].
Fitted = tuple[Floats, Floats]
#: Variance of each node's values, or of all nodes' values.
Variance = float | Floats


class Level(NamedTuple):
    """Prefixes of ``depth`` key columns, in each window or over all."""

    depth: int
    each: bool


@dataclass(frozen=True, eq=False)
class Consistent:
    """Sums of every node and window that add up: by depth values, float64[W, K], and variances, float64[K].

    ``spread``: variance of an orthonormal coefficient of a node's deviations; ``total``: of its sum.
    """

    values: tuple[Floats, ...]
    spread: tuple[Floats, ...]
    total: tuple[Floats, ...]

    @property
    def windows(self) -> int:
        return int(self.values[0].shape[0])

    def sums(self, depth: int, starts: Integers, stops: Integers) -> Floats:
        return range_sums(self.values[depth], starts, stops)

    def variances(self, depth: int, starts: Integers, stops: Integers) -> Floats:
        lengths = (stops - starts)[:, None]
        share = lengths / max(1, self.windows)
        out: Floats = lengths * (1.0 - share) * self.spread[depth] + share**2 * self.total[depth]
        return out


def range_sums(values: Floats, starts: Integers, stops: Integers) -> Floats:
    """Sums of rows [start, stop): float64[q, K]."""
    if np.array_equal(stops, starts + 1):
        return values[starts]
    prefix = np.zeros((values.shape[0] + 1, values.shape[1]))
    np.cumsum(values, axis=0, out=prefix[1:])
    out: Floats = prefix[stops] - prefix[starts]
    return out


def consistent(measured: Sequence[tuple[Level, Floats, Variance]], parents: Sequence[Integers]) -> Consistent:
    """Least squares of noisy sums; leaves measured alone stay unchanged.

    `measured`: (Level, float64[W or 1, K], variance), with leaves in each window; `parents`: of nodes, from depth 1
    on.
    """
    leaves = len(parents)
    each = {level.depth: (values, variance) for level, values, variance in measured if level.each}
    whole = {level.depth: (values, variance) for level, values, variance in measured if not level.each}
    windows = each[leaves][0].shape[0]
    values, spread = zip(*_fitted(each, parents), strict=True)
    if not whole:
        return Consistent(values, spread, tuple(windows * variances for variances in spread))
    totals = {depth: (cells.sum(axis=0)[None], windows * variance) for depth, (cells, variance) in each.items()}
    for depth, (sums, variance) in whole.items():
        added, other = totals.get(depth, (sums, math.inf))
        gain = 1.0 if other in (0.0, math.inf) else other / (other + variance)
        totals[depth] = added + gain * (sums - added), gain * variance
    fitted = _fitted(totals, parents)
    moved = [x + (total - x.sum(axis=0)) / max(1, windows) for x, (total, _) in zip(values, fitted, strict=True)]
    return Consistent(tuple(moved), spread, tuple(variances for _, variances in fitted))


def _fitted(own: Mapping[int, tuple[Floats, Variance]], parents: Sequence[Integers]) -> list[Fitted]:
    leaves = len(parents)
    values, variance = own[leaves]
    below = [(values, np.full(values.shape[1], variance))]
    added: list[Fitted] = []
    for depth in range(leaves - 1, -1, -1):
        count = parents[depth - 1].size if depth else 1
        values, variances = (grouped(each, parents[depth], count) for each in below[0])
        added.insert(0, (values, variances))
        if depth in own:
            noisy, variance = own[depth]
            gain = variances / (variances + variance)
            values, variances = values + gain * (noisy - values), gain * variance
        below.insert(0, (values, variances))
    # A difference to the parent goes to its children by their variances.
    found = [below[0]]
    for up, (values, variances), (sums, spread) in zip(parents, below[1:], added, strict=True):
        gain = variances / np.maximum(spread, np.finfo(float).tiny)[up]
        above, error = found[-1]
        values = values + gain * (above - sums)[:, up]
        found.append((values, variances + gain**2 * (error - spread)[up]))
    return found


def grouped(values: Floats, parents: Integers, count: int) -> Floats:
    """Sums over each node's children, on the last axis."""
    entries = np.ones(parents.size), (np.arange(parents.size), parents)
    return np.asarray(values @ sparse.csr_array(entries, shape=(parents.size, count)))


# Shares of the budget.

#: Shares are multiples of one of so many points: equal on every machine.
POINTS = 200
#: The variance of a cell grows at most by these factors for levels that are measured unasked, or asked for.
GROWTH, ASKED = 1.1, 2.0


def level_shares(windows: int, nodes: Sequence[int], levels: bool | None, *, gaussian: bool) -> dict[Level, Fraction]:
    """Measured levels, cells first, with shares of epsilon, or of rho with Gaussian noise.

    They minimise the geometric mean of all levels' standard errors while a cell's variance grows by at most ASKED
    (`levels` True) or GROWTH (None).  `nodes`: of each depth.
    """
    leaves = len(nodes) - 1
    spans = (True, False) if windows > 1 else (True,)
    listed = [Level(depth, each) for depth in range(leaves, -1, -1) for each in spans]
    # A key column with one value has the nodes of the column before it.
    listed = [level for level in listed if level.depth == leaves or nodes[level.depth] < nodes[level.depth + 1]]
    if levels is False or not nodes[-1] or not windows:
        return {listed[0]: Fraction(1)}
    growth = ASKED if levels else GROWTH
    most = growth * _variances([POINTS], listed[:1], windows, nodes, gaussian)[0]

    def score(points: Sequence[int]) -> float:
        variances = _variances(points, listed, windows, nodes, gaussian)
        return sum(map(math.log, variances)) if variances[0] <= most else math.inf

    # The score has several minima: some levels are better left to least squares.
    spare = 1.0 - growth ** (-1.0 if gaussian else -0.5)
    starts = []
    for chosen in itertools.product((False, True), repeat=len(listed) - 1):
        size = int(spare * POINTS) // max(1, sum(chosen))
        starts.append([POINTS - size * sum(chosen), *(size * one for one in chosen)])
    points = min(starts, key=lambda each: round(score(each), 9))
    best, step = score(points), POINTS // 8
    while step:
        moves = [
            [each + step * ((i == take) - (i == give)) for i, each in enumerate(points)]
            for give, take in itertools.permutations(range(len(points)), 2)
            if points[give] >= step + (give == 0)
        ]
        nearest = min(moves, key=lambda each: round(score(each), 9), default=points)
        # By more than rounding, so that machines agree.
        if score(nearest) < best - 1e-7:
            points, best = nearest, score(nearest)
        else:
            step //= 2
    return {level: Fraction(each, POINTS) for level, each in zip(listed, points, strict=True) if each}


def _variances(
    points: Sequence[int], listed: Sequence[Level], windows: int, nodes: Sequence[int], gaussian: bool
) -> list[float]:
    """Variance of each level's numbers after least squares."""
    own: dict[tuple[int, bool], float] = {
        level: (POINTS / point) ** (1 if gaussian else 2)
        for level, point in zip(listed, points, strict=True)
        if point
    }
    found = []
    for total in (False, True):
        below: list[tuple[float, float]] = []
        for depth in range(len(nodes) - 1, -1, -1):
            added = below[0][0] * nodes[depth + 1] / nodes[depth] if below else math.inf
            known = 1.0 / added
            if (depth, True) in own:
                known += 1.0 / (own[depth, True] * (windows if total else 1))
            if total and (depth, False) in own:
                known += 1.0 / own[depth, False]
            below.insert(0, (1.0 / known, added))
        component = [below[0][0]]
        for (_, added), (variance, _) in itertools.pairwise(below):
            component.append(variance + (variance / added) ** 2 * (component[-1] - added))
        found.append(component)
    spread, whole = found
    return [
        (1.0 - 1.0 / windows) * spread[level.depth] + whole[level.depth] / windows**2
        if level.each
        else whole[level.depth]
        for level in listed
    ]


#: Blocks of frequencies: at least so many, and this share of the frequencies below them.
LEAST, WIDER = 8, 0.5
#: Cells that are smoothed at a time, which bounds the memory.
CELLS = 2**21
#: Windows whose parts in blocks of frequencies are computed at a time.
CHUNK = 2**13
#: A total is known if it is so many standard deviations: a node's share of it is then a prior.
KNOWN = 10.0
#: The square of this is finite.
HUGE = 1e150
#: Added where a variance may be 0.
TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Smoothed windows of nodes, and the model's variances without the mean's: float64[W, K].

    ``noise``, [K]: variance R of an estimate's deviation; ``kept``, [B, K]: share of R left in blocks of frequencies
    (``block``, [W]); ``patterns``: phases, [W], and their shares.
    """

    values: Floats
    variances: Floats
    noise: Floats
    kept: Floats
    block: Integers
    patterns: tuple[tuple[Integers, Floats], ...]

    def sum_variances(self, starts: Integers, stops: Integers) -> Floats:
        if np.array_equal(stops, starts + 1):
            return self.variances[starts]
        found = [self._variance(start, stop) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        return np.array(found).reshape(starts.size, self.noise.size)

    def _variance(self, start: int, stop: int) -> Floats:
        rest = np.full(self.block.size, -(stop - start) / self.block.size)
        rest[start:stop] += 1.0
        total = np.zeros(self.noise.size)
        for phases, kept in self.patterns:
            part = _project(phases, rest)
            total += kept * float(np.square(part).sum())
            rest = rest - part
        weights = np.bincount(self.block, fft.dct(rest, norm="ortho") ** 2, self.kept.shape[0])
        out: Floats = self.noise * (total + weights @ self.kept)
        return out


def smooth(estimates: Floats, noise: Floats, patterns: Sequence[Integers] = ()) -> Smoothed:
    """Smooth windows, float64[W, K]; `noise`, [K]: each coefficient's variance."""
    windows, keys = estimates.shape
    step = max(1, CELLS // windows)
    if keys > step:
        parts = [smooth(estimates[:, k : k + step], noise[k : k + step], patterns) for k in range(0, keys, step)]
        return _joined(parts)
    mean = estimates.mean(axis=0)
    values, variances = np.tile(mean, (windows, 1)), np.zeros(estimates.shape)
    # Of the coefficients the mean is the first, and each window has an equal share of it.
    rest, spent, seen = estimates - mean, 1, np.full(windows, 1.0 / windows)
    listed = []
    for phases in patterns:
        sizes = np.bincount(phases).astype(np.float64)
        part = _project(phases, rest)
        size = int(np.count_nonzero(sizes)) - spent
        share, kept = _shares(part, size, noise)
        leverage = 1.0 / sizes[phases]
        values += share * part
        variances += kept * (leverage - seen)[:, None]
        listed.append((phases, kept))
        rest, spent, seen = rest - part, spent + size, leverage
    waves = fft.dct(rest, axis=0, norm="ortho")
    block, borders = _blocks(windows)
    count, left = borders.size - 1, 1.0 - (spent - 1) / max(1, windows - 1)
    kept, shares = np.zeros((count, keys)), np.zeros((count, keys))
    for b in range(1, count):
        begin, end = borders[b : b + 2]
        # Patterns have taken their share of the noise out of each block.
        shares[b], kept[b] = _shares(waves[begin:end], (end - begin) * left, noise)
    values += fft.idct(waves * shares[block], axis=0, norm="ortho")
    # Few blocks, many nodes: a block's contribution to a window's variance is computed once.
    for begin in range(0, windows - windows // 2, CHUNK):
        end = min(begin + CHUNK, windows - windows // 2)
        more = left * (block_parts(windows, begin, end) @ kept[1:])
        variances[begin:end] += more
        # Windows w and W - 1 - w have equal parts.
        both = min(end, windows // 2)
        variances[windows - both : windows - begin] += more[: both - begin][::-1]
    return Smoothed(values, noise * variances, noise, left * kept, block, tuple(listed))


def _joined(parts: list[Smoothed]) -> Smoothed:
    values, variances, noise, kept = (
        np.concatenate([getattr(part, name) for part in parts], axis=-1)
        for name in ("values", "variances", "noise", "kept")
    )
    patterns = tuple(
        (phases, np.concatenate([part.patterns[i][1] for part in parts]))
        for i, (phases, _) in enumerate(parts[0].patterns)
    )
    return Smoothed(values, variances, noise, kept, parts[0].block, patterns)


def _project(phases: Integers, values: Floats) -> Floats:
    counts = np.bincount(phases)
    order = np.argsort(phases, kind="stable")
    starts, present, sizes = np.cumsum(counts) - counts, np.flatnonzero(counts), np.maximum(counts, 1)
    sums = np.zeros((sizes.size, *values.shape[1:]))
    sums[present] = np.add.reduceat(values[order], starts[present], axis=0)
    out: Floats = (sums / sizes.reshape(-1, *([1] * (values.ndim - 1))))[phases]
    return out


def _shares(part: Floats, size: float, noise: Floats) -> tuple[Floats, Floats]:
    if size <= 2.0:
        return np.ones(noise.size), np.ones(noise.size)
    # Divided before they are squared: the estimates may be huge.
    scaled = np.divide(part, np.sqrt(noise), out=np.full(part.shape, HUGE), where=noise > 0.0)
    energy = np.sum(np.clip(scaled, -HUGE, HUGE) ** 2, axis=0)
    lost = (size - 2.0) / np.maximum(energy, size - 2.0)
    return 1.0 - lost, np.minimum(1.0, 1.0 - lost + 2.0 * lost / size)


def _blocks(windows: int) -> tuple[Integers, Integers]:
    """Block of each frequency, and the blocks' borders."""
    block: Integers = np.zeros(windows, np.uint8)
    label, at = 1, 1
    while at < windows:
        size = max(LEAST, int(WIDER * at))
        block[at : at + size] = label
        label, at = label + 1, at + size
    return block, np.searchsorted(block, np.arange(int(block.max()) + 2))


@lru_cache(maxsize=8)
def block_parts(windows: int, begin: int, end: int) -> Floats:
    """Part of each window in each block of frequencies: diagonals of C' C, float64[end - begin, B].

    Sums of cos^2 over frequencies [a, b) are differences of Dirichlet's kernel.
    """
    borders, which = _blocks(windows)[1][1:], np.arange(begin, end)
    half = np.pi * (which + 0.5) / windows
    kernel = np.sin((2.0 * borders - 1.0) * half[:, None]) / np.sin(half)[:, None]
    return np.maximum((np.diff(borders) + 0.5 * np.diff(kernel, axis=1)) / windows, 0.0)


def local_times(instants: Integers, zone: tzinfo | None) -> Integers:
    """Clock times of rising instants, int64[n]."""
    if zone is None or not instants.size:
        return instants
    firsts = np.flatnonzero(np.diff(instants // DAY, prepend=instants[0] // DAY - 1))
    lasts = np.append(firsts[1:], instants.size) - 1

    def offsets(which: Integers) -> Integers:
        times = instants[which]
        clock = [(local_time(each, zone) - EPOCH) // MICROSECOND for each in times.tolist()]
        return np.array(clock, np.int64) - times

    begin, end = offsets(firsts), offsets(lasts)
    found = np.repeat(begin, lasts - firsts + 1)
    for day in np.flatnonzero(begin != end).tolist():
        each = np.arange(firsts[day], lasts[day] + 1)
        found[each] = offsets(each)
    return instants + found


def local_patterns(edges: Integers, time_zone: str | None) -> list[Integers]:
    """Phases of windows by the local clock, [W] each: of the day, of weekday or weekend, of the week.

    A pattern needs two of its periods, and windows that divide a day; daily windows have a week's only.
    """
    lengths = np.diff(edges)
    usual = int(np.median(lengths))
    if usual > DAY * 1.05 or (DAY % usual and usual < DAY * 0.95):
        return []
    zone = zone_of(time_zone)
    local = local_times(edges[:-1], zone)
    days = np.floor_divide(local, DAY)
    # 1970 began on a Thursday.
    weekday = (days + 3) % 7
    a_day = max(1, round(DAY / usual))
    phase = (local - days * DAY) // usual % a_day if a_day > 1 else np.zeros(local.size, np.int64)
    patterns = [(a_day, phase), (7 * a_day, phase + a_day * (weekday >= 5)), (7 * a_day, phase + a_day * weekday)]
    # NumPy sorts short integers in one pass, and a result keeps them.
    return [
        phases.astype(np.min_scalar_type(length))
        for length, phases in patterns
        if length > 1 and local.size >= 2 * length
    ]


class Branch(NamedTuple):
    """A node and its children made equal.

    ``own``: weight of its windows beside the children's sum; ``shared``: part of its variance in this sum; ``gains``:
    children's shares of a difference.
    """

    parents: Integers
    own: Floats
    shared: Floats
    gains: Floats

    def added(self, variances: Floats) -> Floats:
        return grouped(variances, self.parents, self.own.size)

    def combined(self, variances: Floats, children: Floats) -> Floats:
        other = children + self.shared * variances
        out: Floats = (self.own * np.sqrt(variances) + (1.0 - self.own) * np.sqrt(other)) ** 2
        return out


@dataclass(frozen=True, eq=False)
class Revised:
    """Revised sums of every node and window, with variances."""

    values: tuple[Floats, ...]
    exact: Consistent
    smoothed: tuple[Smoothed, ...]
    branches: tuple[Branch, ...]

    def sums(self, depth: int, starts: Integers, stops: Integers) -> Floats:
        return range_sums(self.values[depth], starts, stops)

    def variances(self, depth: int, starts: Integers, stops: Integers) -> Floats:
        found = [each.sum_variances(starts, stops) for each in self.smoothed]
        added: list[Floats] = []
        for at, branch in reversed(list(enumerate(self.branches))):
            added.insert(0, branch.added(found[at + 1]))
            found[at] = branch.combined(found[at], added[0])
        error = found[0]
        for branch, below, children in zip(self.branches[:depth], found[1:], added, strict=False):
            gain = branch.gains
            error = np.maximum(below * (1.0 - 2.0 * gain) + gain**2 * (error + children)[:, branch.parents], 0.0)
        share = (stops - starts)[:, None] / self.exact.windows
        out: Floats = error + share**2 * self.exact.total[depth]
        return out


def revise(exact: Consistent, parents: Sequence[Integers], patterns: Sequence[Integers] = ()) -> Revised:
    """Smooth every node's windows, and make children add up."""
    smoothed = [smooth(exact.values[0], exact.spread[0], patterns)]
    follows: list[Floats] = []
    for depth, up in enumerate(parents, 1):
        above, estimates, spread = smoothed[-1].values, exact.values[depth], exact.spread[depth]
        total = above.sum(axis=0)
        known = (total > KNOWN * np.sqrt(exact.total[depth - 1]))[up]
        share = np.clip(estimates.sum(axis=0) / np.where(known, total[up], np.inf), 0.0, 1.0)
        prior = share * (above - above.mean(axis=0))[:, up]
        found = smooth(estimates - prior, spread, patterns)
        smoothed.append(replace(found, values=found.values + prior))
        # Unknown shares: children that follow nothing may err alike.
        weight = np.where(known, share, 1.0 / np.maximum(np.bincount(up, minlength=total.size), 1)[up])
        kept = found.variances.mean(axis=0) / np.maximum(spread, TINY)
        follows.append(grouped(weight * np.maximum(1.0 - kept, 0.0), up, total.size))
    values, errors = [each.values for each in smoothed], [each.variances.mean(axis=0) for each in smoothed]
    branches: list[Branch] = []
    for depth in range(len(parents) - 1, -1, -1):
        up, size, shared = parents[depth], errors[depth].size, np.minimum(follows[depth], 1.0) ** 2
        below, variance = grouped(values[depth + 1], up, size), grouped(errors[depth + 1], up, size)
        other = variance + shared * errors[depth]
        own = other / np.maximum(other + errors[depth], TINY)
        branches.insert(0, Branch(up, own, shared, errors[depth + 1] / np.maximum(variance, TINY)[up]))
        values[depth] = below + own * (values[depth] - below)
        errors[depth] = branches[0].combined(errors[depth], variance)
    for depth, branch in enumerate(branches):
        more = values[depth] - grouped(values[depth + 1], branch.parents, branch.own.size)
        values[depth + 1] = values[depth + 1] + branch.gains * more[:, branch.parents]
    return Revised(tuple(values), exact, tuple(smoothed), tuple(branches))
