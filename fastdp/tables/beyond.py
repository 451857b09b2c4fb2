"""Sums beyond a clip, from released numbers of rows between values beyond it, and their shares of windows and keys.

The sum of (x - c)+ is the integral of the number of rows above y, from the clip c on.  Where that stands out of the
noise, at edges that grow by a factor, it is interpolated in logarithms; then it falls as a Pareto tail of the same
exponent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.interpolate import PchipInterpolator

from fastdp.kinds import Floats, Integers
from fastdp.tables.consistent import grouped

#: Neighbouring edges differ by this factor; the first bin is at least so many of its powers wide, if there are more:
#: a narrower one, of a clip just below an edge, has no exponent.
FACTOR, NARROW = 1.5, 0.25
#: Rows above an edge are known if they are so many standard deviations, those above the clip if they are fewer; above
#: others they may be so many more.
KNOWN, SEEN, LIKELY = 6.0, 4.5, 1.0
#: Edges that the exponent of the tail is taken from, its usual value, and its limits.
REACH, USUAL, LEAST, MOST = 3, 1.5, 1.5, 20.0
#: Standard errors of the interpolation and of the tail, as shares of what they add.
BETWEEN, AFTER = 0.03, 0.5
#: Standard errors of a key's and of a range's share in the excess, beside its share in the rest.
OF_KEYS, OF_TIME = 1.25, 1.0
#: Points of the integral between two edges.
POINTS = 16


def tail_edges(clip: tuple[float, float], bound: tuple[float, float] | None) -> tuple[Floats, Floats]:
    """Public edges from either end of the clip to the bound's, as distances from 0.

    No bins where the clip is the bound; one bin without an end where the bound is unknown or beyond 0.
    """
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
    """Rows in each bin beyond the clip, the low end's first: int64[J]; one row is in one bin at most."""
    found = []
    for side, each in zip((-1.0, 1.0), edges, strict=True):
        distances = side * values
        bins = np.searchsorted(each, distances[distances > each[0]], "left") - 1
        last = each.size - 2
        found.append(np.bincount(np.minimum(bins, last), minlength=last + 1) if last >= 0 else bins[:0])
    return np.concatenate(found).astype(np.int64)


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

    def variances(self, part: Floats, node: Floats) -> Floats:
        """Variances of the excess of ranges of windows.

        `part`, [q, K]: their shares in the excess; `node`, [K]: their nodes'.  Few rows, in cells by chance, hold
        much of it, and tails of keys and times may differ.
        """
        within = np.divide(part, node, out=np.zeros_like(part), where=node > 0.0)
        uneven = (OF_KEYS * (1.0 - node)) ** 2 + (OF_TIME * (1.0 - within)) ** 2
        out: Floats = part**2 * (self.variance + self.excess**2 * uneven) + part * (1.0 - part) * self.squares
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
    last = int(np.flatnonzero(above > KNOWN * error).max(initial=0))
    if above[last] <= SEEN * error[last]:
        return Beyond(known=False)
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

    @classmethod
    def unknown(cls, clip: tuple[float, float], bound: tuple[float, float] | None) -> Tail:
        """The tail of which nothing is released."""
        return cls(clip, tail_edges(clip, bound), np.empty(0, np.int64), 0.0)

    @cached_property
    def ends(self) -> tuple[Beyond, Beyond]:
        """Sums beyond the low and high end."""
        if not self.counts.size:
            found = [Beyond(known=each.size == 1) for each in self.edges]
            return found[0], found[1]
        low, high = np.split(self.counts, [self.edges[0].size - 1])
        return sum_beyond(self.edges[0], low, self.variance), sum_beyond(self.edges[1], high, self.variance)


def shares(values: Sequence[Floats], parents: Sequence[Integers]) -> list[Floats]:
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
