"""Windows of every node of the key tree smoothed together along time ("revised"), adding up over the tree.

Source: blockwise James-Stein estimation (Efromovich and Pinsker 1984; Cavalier and Tsybakov 2001) of a node's
windows: their mean, patterns of the local day, of weekdays and weekends, of the week, and cosines (DCT-II) of the
rest.  A part of n coefficients with energy E in noise variances is multiplied by 1 - B, B = min(1, (n - 2) / E):
noise goes, and in no part the expected square error grows.  The mean stays.

A node's windows are shrunk towards its share of its parent's; then a node and the sum of its children are made equal,
from the leaves up by the model's variances (Morris 1983), then from the root down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import fft

from fastdp.kinds import Floats, Integers
from fastdp.tables.consistent import Consistent, grouped, range_sums
from fastdp.units import EPOCH, MICROSECOND, local_time, zone_of
from fastdp.validation import DAY

#: Blocks of frequencies: at least so many, and this share of the frequencies below them.
LEAST, GROWTH = 8, 0.5
#: Cells that are smoothed at a time, which bounds the memory.
CELLS = 2**21
#: A total is known if it is so many standard deviations: a node's share of it is then a prior.
KNOWN = 10.0
#: The square of this is finite.
HUGE = 1e150
#: Added where a variance may be 0.
TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Smoothed windows of some nodes: values and the model's variances without the mean's, float64[W, K].

    ``noise``, [K]: variance R of an estimate's deviation; ``kept``, [B, K]: share of R that stays in each block of
    frequencies (``block``, [W]); ``patterns``: phases, [W], and their shares.
    """

    values: Floats
    variances: Floats
    noise: Floats
    kept: Floats
    block: Integers
    patterns: tuple[tuple[Integers, Floats], ...]

    def sum_variances(self, starts: Integers, stops: Integers) -> Floats:
        """Variances of deviations over windows [start, stop): float64[q, K]."""
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
    """Smooth the released windows (float64[W, K]) of each node separately.

    `noise`, [K]: variance R of each coefficient; `patterns`: phases of each window, each refining the one before.
    """
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
    block = _blocks(windows)
    count, left = int(block.max()) + 1, 1.0 - (spent - 1) / max(1, windows - 1)
    kept, shares = np.zeros((count, keys)), np.zeros((count, keys))
    order = np.argsort(block, kind="stable")
    borders = np.searchsorted(block[order], np.arange(count + 1))
    for b in range(1, count):
        inside = order[borders[b] : borders[b + 1]]
        # Patterns have taken their share of the noise out of each block.
        shares[b], kept[b] = _shares(waves[inside], inside.size * left, noise)
    values += fft.idct(waves * shares[block], axis=0, norm="ortho")
    # Few blocks, many nodes: a block's contribution to a window's variance is computed once.
    members = (block[:, None] == np.arange(count)).astype(np.float64)
    variances += left * (_at_windows(members) @ kept)
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
    """Mean of `values` over windows of the same phase."""
    sizes = np.maximum(np.bincount(phases), 1)
    order = np.argsort(phases, kind="stable")
    starts = np.searchsorted(phases[order], np.arange(sizes.size))
    present = np.unique(phases)
    sums = np.zeros((sizes.size, *values.shape[1:]))
    sums[present] = np.add.reduceat(values[order], starts[present], axis=0)
    out: Floats = (sums / sizes.reshape(-1, *([1] * (values.ndim - 1))))[phases]
    return out


def _shares(part: Floats, size: float, noise: Floats) -> tuple[Floats, Floats]:
    """Factor that shrinks `size` coefficients, and the share of R left."""
    if size <= 2.0:
        return np.ones(noise.size), np.ones(noise.size)
    # Divided before they are squared: the estimates may be huge.
    scaled = np.divide(part, np.sqrt(noise), out=np.full(part.shape, HUGE), where=noise > 0.0)
    energy = np.sum(np.clip(scaled, -HUGE, HUGE) ** 2, axis=0)
    lost = (size - 2.0) / np.maximum(energy, size - 2.0)
    return 1.0 - lost, np.minimum(1.0, 1.0 - lost + 2.0 * lost / size)


def _blocks(windows: int) -> Integers:
    """Block of each cosine frequency: 0 alone, then growing blocks."""
    block = np.zeros(windows, np.int64)
    label, at = 1, 1
    while at < windows:
        size = max(LEAST, int(GROWTH * at))
        block[at : at + size] = label
        label, at = label + 1, at + size
    return block


def _at_windows(kept: Floats) -> Floats:
    """Diagonal of C' diag(kept) C, C the cosine transform without frequency 0."""
    windows = kept.shape[0]
    weights = kept / windows
    weights[0] = 0.0
    turned = weights * np.exp(1j * np.pi * np.arange(windows) / windows)[:, None]
    out: Floats = weights.sum(axis=0) + windows * fft.ifft(turned, axis=0).real
    return np.maximum(out, 0.0)


def local_patterns(edges: Integers, time_zone: str | None) -> list[Integers]:
    """Phases of windows by the local clock: of the day, of weekday or weekend, and of the week, int64[W] each.

    A pattern needs two of its periods and windows that divide a day; daily windows have a week's only, longer ones
    none.
    """
    lengths = np.diff(edges)
    usual = int(np.median(lengths))
    if usual > DAY * 1.05 or (DAY % usual and usual < DAY * 0.95):
        return []
    zone = zone_of(time_zone)
    local = np.array([(local_time(each, zone) - EPOCH) // MICROSECOND for each in edges[:-1].tolist()], np.int64)
    days = np.floor_divide(local, DAY)
    # 1970 began on a Thursday.
    weekday = (days + 3) % 7
    a_day = max(1, round(DAY / usual))
    phase = (local - days * DAY) // usual % a_day if a_day > 1 else np.zeros(local.size, np.int64)
    patterns = [(a_day, phase), (7 * a_day, phase + a_day * (weekday >= 5)), (7 * a_day, phase + a_day * weekday)]
    return [phases.astype(np.int64) for length, phases in patterns if length > 1 and local.size >= 2 * length]


class Branch(NamedTuple):
    """A node and its children made equal.

    ``own``: weight of its own windows beside the children's sum; ``shared``: part of its variance in this sum too;
    ``gains``: shares of a difference by child.
    """

    parents: Integers
    own: Floats
    shared: Floats
    gains: Floats

    def added(self, variances: Floats) -> Floats:
        """Sums over the children of each node."""
        return grouped(variances, self.parents, self.own.size)

    def combined(self, variances: Floats, children: Floats) -> Floats:
        """Largest variance of a node's weighted mean, under any dependence."""
        other = children + self.shared * variances
        out: Floats = (self.own * np.sqrt(variances) + (1.0 - self.own) * np.sqrt(other)) ** 2
        return out


@dataclass(frozen=True, eq=False)
class Revised:
    """Revised sums of every node and window, with their variances' sources."""

    values: tuple[Floats, ...]
    exact: Consistent
    smoothed: tuple[Smoothed, ...]
    branches: tuple[Branch, ...]

    def sums(self, depth: int, starts: Integers, stops: Integers) -> Floats:
        return range_sums(self.values[depth], starts, stops)

    def variances(self, depth: int, starts: Integers, stops: Integers) -> Floats:
        """The model's variances of these sums."""
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
    """Smooth the windows of every node, and make children add up."""
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
