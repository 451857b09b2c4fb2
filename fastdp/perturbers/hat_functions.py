"""Hat functions in place of boxes: shape and tables of a hierarchy of hats, and its noise made consistent.

The sums times b^j, integers, are released (``docs/streams.md``, "ToPS: trees").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastdp.kinds import Floats, Integers
from fastdp.perturbers.base import HierarchyShape
from fastdp_kernels.noise import hats

#: Size, less one, of the patch of knots whose ends and middle give a level's covariances.
PATCH = 6
#: Number of ranges that are averaged over for K.
RANGES = 32
#: The plane's most even sequence: steps by powers of the real root of x^3 = x + 1 (Roberts 2018).
_STEPS = np.array([1.0 / 1.3247179572447460, 1.0 / 1.3247179572447460**2])


@dataclass(frozen=True)
class HatsShape(HierarchyShape):
    """Shape of a hierarchy of hats: one more sum on each level above the leaves."""

    @property
    def widths(self) -> list[int]:
        return [self.leaves, *(self.leaves // self.fan_out**level + 1 for level in range(1, self.levels))]


def hats_reach(fan_out: int, levels: int) -> int:
    """Largest difference, in leaf noise scales s, of numbers that :func:`make_hats_consistent` subtracts.

    On the highest level, n = b^j: Z is within 64 n s, and C z0, of squared weights n (2 n^2 + 1) / 3, within 23 roots
    of it or 146 n, except with probability e^-63 (``docs/streams.md``).
    """
    if levels == 1:
        return 0
    n: int = fan_out ** (levels - 1)
    return 64 * n + max(146 * n, math.isqrt(23**2 * n * (2 * n**2 + 1) // 3) + 1)


class HatTables(NamedTuple):
    """Covariances that least squares needs on the levels above the leaves."""

    #: int64[levels]. Each level's first knot below, then their number.
    starts: Integers
    #: `diagonal`, `beside`: float64[knots]. Variance of a knot's sum as estimated by the level below, and covariance
    #: with the next knot's, for noise of variance 1; more distant covariances, below 0.001, are omitted.
    diagonal: Floats
    beside: Floats


@lru_cache(maxsize=8)
def hat_tables(plan: HierarchyShape) -> HatTables:
    """Read-only cached tables of a shape with several levels."""
    b, widths = plan.fan_out, plan.widths[1:]
    starts: Integers = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
    diagonal, beside = np.zeros(starts[-1]), np.zeros(starts[-1])
    below = np.zeros(1), np.zeros(1)
    found = np.empty((PATCH + 1, PATCH + 1))
    for level, begin in enumerate(starts[:-1].tolist()):
        hats.gram(*below, b, level == 0, found)
        end = begin + widths[level]
        _spread_patch(found, diagonal[begin:end], beside[begin:end])
        below = np.empty(PATCH * b + 1), np.zeros(PATCH * b + 1)
        _spread_patch(found, *below)
    for array in (starts, diagonal, beside):
        array.flags.writeable = False
    return HatTables(starts, diagonal, beside)


def _spread_patch(found: Floats, diagonal: Floats, beside: Floats) -> None:
    """Fill `diagonal` and `beside` from a patch: its ends at the ends, its middle elsewhere."""
    middle = PATCH // 2
    diagonal[:] = found[middle, middle]
    diagonal[0], diagonal[-1] = found[0, 0], found[-1, -1]
    beside[:-1] = found[middle, middle + 1]
    beside[0], beside[diagonal.size - 2] = found[0, 1], found[-2, -1]


def make_hats_consistent(nodes: Integers, plan: HierarchyShape) -> Integers:
    """Consistent noise of the leaves, int64[leaves], from that of all `nodes`, which is overwritten.

    N = z0 + f(Z - C z0), so x + N is a function of the noisy sums, however f rounds.
    """
    leaves = nodes[: plan.leaves]
    corrections = _corrections(leaves, nodes[plan.leaves :], plan)
    hats.add_rounded(corrections, leaves)
    return leaves


def _corrections(leaves: Integers, above: Integers, plan: HierarchyShape) -> Floats:
    """Least-squares correction f of each leaf; overwrites `above`."""
    found = hat_tables(plan)
    residuals, below = np.empty(above.size), leaves
    for level in range(1, plan.levels):
        at = slice(int(found.starts[level - 1]), int(found.starts[level]))
        sums: Integers = np.empty(at.stop - at.start, np.int64)
        hats.restrict_whole(below, plan.fan_out, sums)
        # Integers modulo 2^64: still a function of the noisy sums.
        residuals[at] = (above[at] - sums) / float(plan.fan_out**level)
        below = sums
    corrections = np.empty(plan.leaves)
    memory = np.empty(above.size), np.empty(above.size)
    hats.spread(plan.fan_out, *found, residuals, *memory, corrections)
    return corrections


@lru_cache(maxsize=256)
def hats_constant(plan: HierarchyShape, max_range: int) -> float:
    """K of a hierarchy of hats, within about 3 %, by 32 ranges."""
    total = 0.0
    for number in range(1, RANGES + 1):
        first, last = np.floor(np.sort((0.5 + number * _STEPS) % 1.0) * max_range).astype(np.int64).tolist()
        start, stop = first // plan.block, (last + 1) // plan.block
        total += hats_variance(plan, start, stop)
    return 2.0 * plan.levels**2 * total / RANGES


def hats_variance(plan: HierarchyShape, start: int, stop: int) -> float:
    """Variance of the sum of leaves [`start`, `stop`), noise of variance 1: within 0.4 % (b >= 3), 6 % (b = 2)."""
    inside: Integers = np.zeros(plan.leaves, np.int64)
    inside[start:stop] = 1
    if plan.levels == 1:
        return float(stop - start)
    # (I + C' C)^-1 1 = 1 - C' S^-1 C 1, and f(d) = C' S^-1 d.
    nothing: Integers = np.zeros(plan.nodes - plan.leaves, np.int64)
    return float(stop - start) + float(_corrections(inside, nothing, plan)[start:stop].sum())
