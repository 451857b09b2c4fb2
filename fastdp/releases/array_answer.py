"""One answer from all numbers released of an array; the model and its coverage: ``docs/streams_proofs.md``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fastdp.kinds import Floats, Indices
from fastdp.releases.intervals import checked_confidence, wider_quantile
from fastdp.releases.revised import find_waves
from fastdp_kernels.streams import array_rule as kernel
from fastdp_kernels.streams.block_lengths import CERTAIN, CUT_OFF

#: Half-widths in standard deviations of the noise at 95 %, and the part of the tail's posterior left out at each end;
#: both where all of the tail is taken to be in one place, which few streams do and which counts at one end alone.
WIDTH, TAIL_END = 2.3, 0.02
BURST_WIDTH, BURST_END = 1.65, 0.05
#: With fewer blocks a cut block may hold a step; with more the variance of a level within it is enough.
FEW_BLOCKS = 16
#: So may one whose level is so many deviations of the noise, and this part of itself, from a neighbour's.
CLEAR, STEEP = 4.0, 0.25
#: Any other may rise or fall by this part of its level on either side of its middle.
RAMP = 0.6


class _Solved(NamedTuple):
    """Levels between `edges`, sums before each edge, and the kernel's ``numbers``.

    ``plain``: levels and sums without the limit at 0 and its bias.
    """

    edges: Indices
    levels: Floats
    before: Floats
    plain: tuple[Floats, Floats]
    numbers: Floats


@dataclass(frozen=True, eq=False)
class ArrayAnswer:
    """Answer of :func:`fastdp.release`; sums are in units of `scale`."""

    #: `size`, `block`: number of values, and of those in a block (the last one may be shorter).
    size: int
    block: int
    #: `sums`, `groups`, `wide`: released sums below theta of blocks, and of each `wide` of them, or empty.
    sums: Floats
    groups: Floats
    wide: int
    #: Released sum of all values below the bound.
    total: float
    #: `threshold`, `bound`, `usual`: theta, the bound, and the sum that a chosen theta usually leaves above it.
    threshold: float
    bound: float
    usual: float
    #: Noise variances of a block's sum, a group's and the total.
    variances: Floats
    #: A power of two: the unit of sums, so that squares are ordinary floats.
    scale: float
    #: True if theta is public and below the bound: sums are of values clipped to it.
    clips: bool
    #: n epsilon, which says whether the number of blocks was chosen.
    amount: float
    #: `shares`: name and fraction of the budget of each step, in order.
    shares: tuple[tuple[str, float], ...]
    season: float | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({max(self.sums.size, 1)} blocks)"

    @cached_property
    def _solved(self) -> _Solved:
        numbers, edges = np.zeros(kernel.NUMBERS), self._edges
        if not self.sums.size:
            # One number.
            numbers[[kernel.CLIPPED, kernel.RAW]] = self.total
            numbers[[kernel.V_CLIPPED, kernel.V_SUM]] = self.variances[2]
            levels = np.zeros(1)
        else:
            sums = self.sums.copy()
            sizes = self.size, self.block, self.threshold, self.bound
            kernel.combine(sums, self.groups, self.wide, self.total, *sizes, self.variances, self.usual, numbers)
            edges, levels = self._smoothed(edges, sums)
        before, plain, plain_before = np.empty(edges.size), np.empty(levels.size), np.empty(edges.size)
        known = self.threshold, self.bound, float(self.variances[2])
        kernel.settle(levels, edges, *known, numbers, before, plain, plain_before)
        return _Solved(edges, levels, before, (plain, plain_before), numbers)

    @cached_property
    def _edges(self) -> Indices:
        edges: Indices = np.minimum(np.arange(0, self.size + self.block, self.block, dtype=np.int64), self.size)
        return edges

    def _smoothed(self, edges: Indices, sums: Floats) -> tuple[Indices, Floats]:
        """Levels of blocks, with waves of a public season, and their edges."""
        lengths, noise = np.diff(edges), float(self.variances[0])
        if self.season is not None:
            waves = find_waves(edges, sums, np.full(sums.size, noise), np.empty(0), self.size, self.season)
            if waves is not None:
                means = (sums - np.diff(waves.before(edges))) / lengths
                levels = kernel.smooth(means, noise / self.block**2)
                pieces = waves.split(edges)
                pattern = np.diff(waves.before(pieces)) / np.diff(pieces)
                return pieces, levels[np.searchsorted(edges, pieces[:-1], side="right") - 1] + pattern
        means = sums / lengths
        return edges, means if means.size == 1 else kernel.smooth(means, noise / self.block**2)

    @property
    def values(self) -> Floats:
        """Level of each value: float64[size]."""
        edges, levels = self._solved[:2]
        return np.repeat(levels * self.scale, edges[1:] - edges[:-1])

    def sums_over(self, first: Indices, last: Indices) -> Floats:
        """Sums over [first, last): float64[q]."""
        return self.sums_before(last) - self.sums_before(first)

    def sums_before(self, stops: Indices) -> Floats:
        """Sums over [0, stop): float64[q]."""
        return self._before(stops) * self.scale

    def _before(self, stops: Indices, *, plain: bool = False) -> Floats:
        edges, levels, before = self._solved[:3]
        levels, before = self._solved.plain if plain else (levels, before)
        piece = np.searchsorted(edges, stops, side="right") - 1
        piece = np.minimum(piece, levels.size - 1)
        sums: Floats = before[piece] + levels[piece] * (stops - edges[piece])
        return sums

    @property
    def cuts_off(self) -> bool:
        """True if clipped sums are certainly near a public theta."""
        missing = self.total - CUT_OFF * self.threshold * self.size
        return self.clips and missing > CERTAIN * float(np.sqrt(self.variances[2]))

    def interval(self, first: Indices, last: Indices, confidence: float) -> tuple[Floats, Floats]:
        """Ends (low, high) about the true sums over [first, last)."""
        level = checked_confidence(confidence)
        wide = WIDTH * wider_quantile(level) / wider_quantile(0.95)
        numbers = self._solved.numbers
        raw, whole = float(numbers[kernel.RAW]), max(float(self._solved.before[-1]), 1e-300)
        estimate = self._before(last) - self._before(first)
        mean, least, most = self._tail(TAIL_END * (1.0 - level) / 0.05, wide)
        _, *loud = self._tail(BURST_END * (1.0 - level) / 0.05, wide * BURST_WIDTH / WIDTH)
        noise = self._noise(last - first)
        down, up = self._cut(first, last, wide, (raw - mean) / whole)
        part = np.clip(estimate / whole, 0.0, 1.0)
        # A larger tail leaves less to the sums of all blocks.
        lengths = last - first
        taken = numbers[kernel.PULL] * lengths / self.size
        reach = max(self.bound - self.threshold, 0.0)
        spread = 2.0 * np.sqrt(part * (1.0 - part) * loud[1] * reach)
        ends = np.sort([(part - taken) * (tail - mean) for tail in (least, most)], axis=0)
        # A burst has all of the tail in one place, within the range or outside it, as much as fits.
        most_within, most_beside = lengths * reach, (self.size - lengths) * reach
        tail, other = (np.clip(room, loud[0], loud[1]) for room in (most_within, most_beside))
        inside = np.minimum(tail, most_within) - part * mean - taken * (tail - mean)
        outside = np.maximum(other - most_beside, 0.0) - part * mean - taken * (other - mean)
        plain = self._before(last, plain=True) - self._before(first, plain=True)
        middle = plain + (raw - float(self._solved.plain[1][-1])) * part
        low = middle + np.minimum(np.maximum(ends[0] - spread, -part * mean), outside)
        high = middle + np.maximum(ends[1] + spread, inside)
        low = low - np.hypot(wide * np.sqrt(noise), down)
        high = high + np.hypot(wide * np.sqrt(noise), up)
        low = np.maximum(np.minimum(low, estimate), 0.0)
        high = np.minimum(np.maximum(high, estimate), lengths * self.bound)
        return low * self.scale, np.maximum(high, estimate) * self.scale

    def std_error(self, first: Indices, last: Indices) -> Floats:
        """Half-widths of 95 % intervals, as standard deviations."""
        low, high = self.interval(first, last, 0.95)
        errors: Floats = (high - low) / (2.0 * WIDTH)
        return errors

    def _tail(self, end: float, wide: float) -> tuple[float, float, float]:
        """Mean of the sum above theta, and its ends."""
        if self.threshold >= self.bound:
            return 0.0, 0.0, 0.0
        numbers, v_total = self._solved.numbers, float(self.variances[2])
        v_sum = float(numbers[kernel.V_SUM])
        clipped = float(numbers[kernel.CLIPPED])
        # Before it was moved.
        missing = self.total - clipped
        pull = float(numbers[kernel.PULL])
        missing = (missing - pull * float(numbers[kernel.ABOVE])) / (1.0 - pull)
        clipped = self.total - missing
        sd, beyond = float(np.sqrt(v_sum + v_total)), self.size * (self.bound - self.threshold)
        grid, p = np.empty(kernel.POINTS + 1), np.empty(kernel.POINTS + 1)
        mean = kernel.tail(missing, sd, clipped, self.threshold, beyond, self.usual, grid, p)
        reached = np.cumsum(p)
        low, high = (float(grid[min(int(np.searchsorted(reached, at)), kernel.POINTS)]) for at in (end, 1.0 - end))
        return mean, min(low, mean), max(high, min(missing + wide * sd, beyond), mean)

    def _noise(self, lengths: Indices) -> Floats:
        numbers, count = self._solved.numbers, max(self.sums.size, 1)
        v_clipped, v_block = float(numbers[kernel.V_CLIPPED]), float(self.variances[0])
        used = lengths * (count / self.size)
        if count == 1:
            return used * used * v_clipped
        if self.groups.size:
            blocks = np.where(used < 1.0, used * used, np.minimum(used, self.wide / 2)) * v_block
            noise = blocks + used / self.wide * numbers[kernel.V_GROUP] * (used >= 1.0)
        else:
            noise = np.where(used >= 1.0, used, used * used) * v_block
        least: Floats = np.minimum(noise, v_clipped + np.maximum(count - used, 0.0) * v_block)
        return least

    def _cut(self, first: Indices, last: Indices, wide: float, body: float) -> tuple[Floats, Floats]:
        """Sums that may hide in cut blocks on either side."""
        edges, theta = self._edges, self.threshold
        lengths, count = np.diff(edges), max(self.sums.size, 1)
        levels = np.diff(self._before(edges)) / lengths
        spread = float(np.sqrt(self._solved.numbers[kernel.V_CLIPPED] if count == 1 else self.variances[0]))
        which = [np.clip(np.searchsorted(edges, at, side="right") - 1, 0, count - 1) for at in (first, last)]
        jumps = np.abs(np.diff(levels, prepend=levels[:1], append=levels[-1:]))
        jumps = np.maximum(jumps[:-1], jumps[1:])
        same, down, up = which[0] == which[1], np.zeros(first.size), np.zeros(first.size)
        for block, inside in zip(which, (edges[which[0] + 1] - first, last - edges[which[1]]), strict=True):
            length = lengths[block]
            # Values of the block that lie within the range.
            part = np.where(same, last - first, inside)
            mu = max(body, 0.0) * np.maximum(levels[block], 0.0) + spread / length
            low = np.minimum(mu, theta)
            # A step is not a ramp: among few blocks, and where levels of neighbours are far apart.
            apart = jumps[block]
            step = (apart * length > CLEAR * spread) & (apart > STEEP * mu) | (count < FEW_BLOCKS)
            free = part * (1.0 - part / length)
            ramp = RAMP * mu * free + wide * np.sqrt(free * low * (theta - low))
            less = np.where(step, np.minimum(low * part, (theta - low) * (length - part)), ramp)
            more = np.where(step, np.minimum(low * (length - part), (theta - low) * part), ramp)
            down = np.where(same, less, np.hypot(less, down))
            up = np.where(same, more, np.hypot(more, up))
        return down, up

    def scaled(self, shift: int) -> ArrayAnswer:
        return replace(self, scale=float(np.ldexp(self.scale, shift)))

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Names and texts of all choices, for prints."""
        count = max(self.sums.size, 1)
        chosen = "number of blocks" in dict(self.shares)
        few = f"n epsilon = {self.amount:.3g} buys the total alone"
        why = "distances within it show no change worth the noise of more" if chosen else few
        blocks = f"{count:,} of {self.block:,} values, chosen" if count > 1 else f"one number for all values: {why}"
        parts = ", ".join(f"{name} {fraction:.1%}" for name, fraction in self.shares)
        whole = np.array([self.size])
        low, high = (float(each[0]) for each in self.interval(0 * whole, whole, 0.95))
        total = f"{float(self.sums_before(whole)[0]):.6g}, 95 % interval from {low:.6g} to {high:.6g}"
        return [("total", total), ("blocks", blocks), ("shares", parts)]
