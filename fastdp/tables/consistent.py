"""Consistent sums over a tree of keys and over time, by least squares, and the budget of each level.

Nodes are prefixes of the key columns.  A level has one noisy sum for each window, or one over all.  Each node's
windows split into their total and their deviations from its mean; in both the noise of a level is uncorrelated and of
one variance, so two passes over the tree give the least squares (Hay et al., VLDB 2010).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy import sparse

from fastdp.kinds import Floats, Integers

#: Values of the nodes of one depth, float64[n, K], and the variance of each node's values, float64[K].
Fitted = tuple[Floats, Floats]
#: Variance of each node's values, or of all nodes' values.
Variance = float | Floats


class Level(NamedTuple):
    """Prefixes of ``depth`` key columns, with one number in each window or over all."""

    depth: int
    each: bool


@dataclass(frozen=True, eq=False)
class Consistent:
    """Sums of every node and window that add up: by depth values, float64[W, K], and variances, float64[K].

    ``spread``: variance of one orthonormal coefficient of a node's deviations; ``total``: of its sum over all
    windows.
    """

    values: tuple[Floats, ...]
    spread: tuple[Floats, ...]
    total: tuple[Floats, ...]

    @property
    def windows(self) -> int:
        """Number of windows."""
        return int(self.values[0].shape[0])

    def sums(self, depth: int, starts: Integers, stops: Integers) -> Floats:
        """Sums over windows [start, stop) of every node of a depth: float64[q, K]."""
        return range_sums(self.values[depth], starts, stops)

    def variances(self, depth: int, lengths: Integers) -> Floats:
        """Exact variances of sums over so many windows: float64[q, K]."""
        share = lengths[:, None] / max(1, self.windows)
        out: Floats = lengths[:, None] * (1.0 - share) * self.spread[depth] + share**2 * self.total[depth]
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

    `measured`: (Level, float64[W or 1, K], variance) of each level, leaves with each window among them; `parents`: of
    nodes of depths 1, 2, ...
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
        gain = 1.0 if other == math.inf else other / (other + variance)
        totals[depth] = added + gain * (sums - added), gain * variance
    fitted = _fitted(totals, parents)
    moved = [x + (total - x.sum(axis=0)) / max(1, windows) for x, (total, _) in zip(values, fitted, strict=True)]
    return Consistent(tuple(moved), spread, tuple(variances for _, variances in fitted))


def _fitted(own: Mapping[int, tuple[Floats, Variance]], parents: Sequence[Integers]) -> list[Fitted]:
    """Least squares by depth: from the leaves up, then down."""
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
    """Sums over each node's children, along the last axis."""
    entries = np.ones(parents.size), (np.arange(parents.size), parents)
    return np.asarray(values @ sparse.csr_array(entries, shape=(parents.size, count)))


# Shares of the budget.

#: Shares are multiples of one of so many points: equal on every machine.
POINTS = 200
#: Levels besides the cells are measured unasked where the variance of a cell grows at most by this factor.
GROWTH = 1.1


def level_shares(windows: int, nodes: Sequence[int], levels: bool | None, *, gaussian: bool) -> dict[Level, Fraction]:
    """Levels that are measured, cells first, with shares of epsilon, or of rho with Gaussian noise.

    They minimise the geometric mean of all levels' standard errors, each level with each window or over all. `levels`
    True: all have a share; None: a cell's variance grows by at most GROWTH; False: cells alone.  `nodes`: of each
    depth.
    """
    leaves = len(nodes) - 1
    spans = (True, False) if windows > 1 else (True,)
    listed = [Level(depth, each) for depth in range(leaves, -1, -1) for each in spans]
    # A key column with one value has the nodes of the column before it.
    listed = [level for level in listed if level.depth == leaves or nodes[level.depth] < nodes[level.depth + 1]]
    if levels is False or not nodes[-1] or not windows:
        return {listed[0]: Fraction(1)}
    most = math.inf if levels else GROWTH * _variances([POINTS], listed[:1], windows, nodes, gaussian)[0]

    def score(points: Sequence[int]) -> float:
        """Mean log variance of all levels; infinite above a cell's limit."""
        variances = _variances(points, listed, windows, nodes, gaussian)
        return sum(map(math.log, variances)) if variances[0] <= most else math.inf

    # The score has several minima: some levels are better left to least squares.
    spare = 1.0 if levels else 1.0 - GROWTH ** (-1.0 if gaussian else -0.5)
    starts = []
    for chosen in itertools.product((False, True), repeat=len(listed) - 1):
        size = POINTS // (sum(chosen) + 1) if levels else int(spare * POINTS) // max(1, sum(chosen))
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
    """Variance of a number of each level after least squares, in units of the budget's."""
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
