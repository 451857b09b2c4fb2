"""Rows beyond a clip, counted in public bins, and the sum that they add, with its error."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator

from fastdp.kinds import Floats, Integers
from fastdp.tables.consistent import grouped

#: A released number is known if it is so many standard deviations.
KNOWN = 3.0
#: Neighbouring edges differ by this factor; the first bin is at least so many of its powers wide, if there are more:
#: a narrower one, of a clip just below an edge, has no exponent.
FACTOR, NARROW = 1.5, 0.25
#: Rows above an edge are known if they are so many standard deviations, those above the clip if they are fewer; above
#: others they may be so many more.
STANDS, SEEN, LIKELY = 6.0, 4.5, 1.0
#: Edges that the exponent of the tail is taken from, its usual value, and its limits.
REACH, USUAL, LEAST, MOST = 3, 1.5, 1.5, 20.0
#: Standard errors of the interpolation and of the tail, as shares of what they add.
BETWEEN, AFTER = 0.03, 0.5
#: Standard errors of a key's and of a range's share in the excess, beside its share in the rest.
OF_KEYS, OF_TIME = 1.25, 1.0
#: Standard deviations of noise that may hide rows beyond a clip, and of hidden rows in a part of the table.
HIDES, ONE_SIDED = 1.65, 1.28
#: Points of the integral between two edges.
POINTS = 16


def tail_edges(clip: tuple[float, float], bound: tuple[float, float] | None) -> tuple[Floats, Floats]:
    """Public edges from either end of the clip to the bound's, as distances from 0; one bin without end beyond 0."""
    found = []
    for side in (-1, 1):
        near = side * clip[side > 0]
        far = math.inf if bound is None else side * bound[side > 0]
        if near >= far:
            found.append(np.array([near]))
        elif near <= 0.0 or math.isinf(far):
            found.append(np.array([near, math.inf]))
        else:
            bins = max(1, math.ceil(math.log(far / near) / math.log(FACTOR) - NARROW))
            found.append(np.concatenate([[near], far * FACTOR ** -np.arange(bins - 1.0, -1.0, -1.0)]))
    return found[0], found[1]


def count_tail(values: Floats, edges: tuple[Floats, Floats]) -> Integers:
    """Numbers of rows, int64[J + 3]: in J bins beyond the clip, below and above the bound, inside but not 0."""
    found, past, inside = [], [], values != 0.0
    for side, each in zip((-1.0, 1.0), edges, strict=True):
        distances = side * values
        beyond, outside = distances > each[0], distances > each[-1]
        bins = np.searchsorted(each, distances[beyond & ~outside], "left") - 1
        found.append(np.bincount(bins, minlength=each.size - 1))
        past.append(np.count_nonzero(outside))
        inside &= ~beyond
    return np.concatenate([*found, [*past, np.count_nonzero(inside)]]).astype(np.int64)


@dataclass(frozen=True)
class Beyond:
    """The sum beyond one end of a clip, in distance from it."""

    #: `excess`, `variance`: Sum of (x - clip)+, and its variance by noise and model.
    excess: float = 0.0
    variance: float = 0.0
    #: Sum of ((x - clip)+)^2.
    squares: float = 0.0
    #: False if the rows do not stand out of the noise; the excess is then 0.
    known: bool = True
    #: Part of the excess beyond the last edge that stands out.
    after: float = 0.0
    #: `hidden`: Sum that noise may hide where it is not known; `span`: most that one row adds to it.
    hidden: float = math.inf
    span: float = 0.0

    def variances(self, part: Floats, node: Floats) -> Floats:
        """Variances of the excess of ranges of windows.

        `part`, [q, K]: their shares in the excess; `node`, [K]: their nodes'.
        """
        within = np.divide(part, node, out=np.zeros_like(part), where=node > 0.0)
        uneven = (OF_KEYS * (1.0 - node)) ** 2 + (OF_TIME * (1.0 - within)) ** 2
        out: Floats = part**2 * (self.variance + self.excess**2 * uneven) + part * (1.0 - part) * self.squares
        return out

    def unseen(self, part: Floats) -> Floats:
        """Most that noise hides in ranges with these shares."""
        if self.known or not self.hidden:
            return np.zeros_like(part)
        rows = part * self.hidden / self.span
        whole = np.rint(rows + ONE_SIDED * np.sqrt(rows * np.maximum(1.0 - part, 0.0))) * self.span
        out: Floats = np.maximum(part * self.hidden, np.minimum(whole, self.hidden))
        return out


def sum_beyond(edges: Floats, counts: Integers, variance: float) -> Beyond:
    """The sum beyond the clip, from `counts` between `edges` (the last is the bound) with noise of this variance."""
    if not counts.size:
        return Beyond()
    if math.isinf(edges[-1]):
        return Beyond(known=False)
    size, clip = counts.size, float(edges[0])
    above = np.cumsum(counts[::-1])[::-1].astype(np.float64)
    error = np.sqrt(variance * np.arange(size, 0, -1))
    last = int(np.flatnonzero(above > STANDS * error).max(initial=0))
    if above[last] <= SEEN * error[last]:
        each, deviation = edges[1:] - clip, math.sqrt(variance)
        worst = float(((np.maximum(counts, 0) + HIDES * deviation) * each).max())
        together = float(counts @ each) + HIDES * deviation * float(np.linalg.norm(each))
        return Beyond(known=False, hidden=max(worst, together), span=float(each[-1]))
    rows = np.maximum.accumulate(above[last::-1])[::-1]
    first = max(0, last - REACH)
    falls = math.log(rows[first] / rows[last]) / math.log(edges[last] / edges[first]) if last else USUAL
    # Further edges have no more rows than their noise allows.
    most = np.maximum(np.maximum(above[last + 1 :], 0.0) + LIKELY * error[last + 1 :], 1.0)
    least = np.log(rows[last] / most) / np.log(edges[last + 1 : -1] / edges[last])
    exponent = min(max(falls, LEAST, least.max(initial=0.0)), MOST)
    # Logarithms of values and of rows above them.
    at = np.log([*edges[: last + 1], edges[-1]])
    heights = [*np.log(rows), math.log(rows[last]) - exponent * (at[-1] - at[-2])]
    points = np.unique(np.concatenate([np.linspace(a, b, POINTS + 1) for a, b in itertools.pairwise(at)]))
    falling = PchipInterpolator(at, heights) if last else lambda x: np.interp(x, at, heights)
    values = np.exp(points)
    number = np.exp(falling(points)) * values
    steps = np.diff(points)

    def integral(heights: Floats) -> Floats:
        return steps * (heights[1:] + heights[:-1]) / 2.0

    pieces = integral(number)
    after = float(pieces[points[1:] > at[-2] + 1e-12].sum())
    excess = float(pieces.sum())
    # A row more between two edges adds about its distance; above the last known one, that edge's and a usual tail.
    each = np.sqrt(edges[:last] * edges[1 : last + 1]) - clip
    rest = float(edges[last]) - clip + after / rows[last]
    noise = variance * (float(each @ each) + (size - last) * rest**2)
    model = (BETWEEN * (excess - after)) ** 2 + (AFTER * after) ** 2
    return Beyond(excess, noise + model, float(2.0 * integral(number * (values - clip)).sum()), True, after)


@dataclass(frozen=True, eq=False)
class Tail:
    """Released facts about the values of one column beyond its clip, in all released cells together."""

    #: Its ends.
    clip: tuple[float, float]
    #: (float64[], float64[]). Of :func:`tail_edges`.
    edges: tuple[Floats, Floats]
    #: int64[J]. Released numbers of rows in bins, if known.
    counts: Integers
    #: Of the noise of each.
    variance: float
    #: Estimated share of rows beyond the clip, if known.
    share: float | None = None
    #: Released numbers of rows below and above the bound, of the same variance.
    outside: tuple[int, int] = (0, 0)
    #: False if the released numbers do not show that a chosen clip holds most rows.
    resolved: bool = True

    @classmethod
    def unknown(cls, clip: tuple[float, float], bound: tuple[float, float] | None) -> Tail:
        return cls(clip, tail_edges(clip, bound), np.empty(0, np.int64), 0.0)

    @cached_property
    def ends(self) -> tuple[Beyond, Beyond]:
        if self.counts.size:
            parts = np.split(self.counts, [self.edges[0].size - 1])
            found = [sum_beyond(each, part, self.variance) for each, part in zip(self.edges, parts, strict=True)]
        else:
            found = [Beyond(known=each.size == 1) for each in self.edges]
        # Nothing is known of the size of values past the bound.
        low, high = (Beyond(known=False) if end in self.past else each for end, each in enumerate(found))
        return low, high

    @cached_property
    def past(self) -> dict[int, int]:
        """Released rows past the bound's lower (0) or upper (1) end, if they stand out."""
        numbers = dict(enumerate(self.outside))
        if self.counts.size and math.isinf(self.edges[0][-1]) and not self.clip[0]:
            # A clip without a bound: negative values count as 0.
            numbers[0] = int(self.counts[0])
        return {end: number for end, number in numbers.items() if number > SEEN * math.sqrt(self.variance)}

    def at(self, bound: tuple[float, float]) -> Tail:
        return replace(self, clip=bound, edges=tail_edges(bound, bound), counts=self.counts[:0], share=None)


def parts_of(values: Sequence[Floats], parents: Sequence[Integers]) -> list[Floats]:
    """Shares of nodes and windows in all, by positive parts: windows, then keys in each."""
    root = np.maximum(values[0], 0.0)
    found: list[Floats] = [root / root.sum() if root.sum() > 0.0 else np.full(root.shape, 1.0 / max(1, root.size))]
    for up, each in zip(parents, values[1:], strict=True):
        positive = np.maximum(each, 0.0)
        totals = grouped(positive, up, found[-1].shape[1])
        empty = totals <= 0.0
        positive = np.where(empty[:, up], 1.0, positive)
        totals = np.where(empty, np.bincount(up, minlength=totals.shape[1]), totals)
        part: Floats = found[-1][:, up] * positive / totals[:, up]
        found.append(part)
    return found


class Number(NamedTuple):
    """A released number and its noise variance."""

    value: float
    variance: float

    @property
    def known(self) -> bool:
        return self.value > KNOWN * math.sqrt(self.variance)
