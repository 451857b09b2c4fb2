"""Noise of a random range in closed form: what a threshold is weighed against.

A random range [a, b) is one of the r (r + 1) / 2 ranges within the first r published values, each as likely.  Every
result is K: the variance is K theta^2 / epsilon^2.  Sums over nodes are exact whole numbers, so nothing is sampled.

Source: ToPS Appendix C (consistency is least squares); (A^T A)^-1 = sum over j of (P_j - P_(j+1)) / lambda_j, where
P_j averages over blocks of b^j leaves, P_h = 0 because tops are not tied, and lambda_j = 1 + b + ... + b^j.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from fastdp.perturbers.base import HierarchyShape


@lru_cache(maxsize=256)
def consistent_constant(plan: HierarchyShape, max_range: int) -> float:
    """K of a consistent hierarchy: a range holds the noise of the blocks that close within it.

    Parameters
    ----------
    plan : HierarchyShape
        The shape.
    max_range : int
        r.
    """
    b, variance = plan.fan_out, Fraction(0)
    squares = [_mean_square(plan.block, b**j, max_range) for j in range(plan.levels)] + [Fraction(0)]
    for j in range(plan.levels):
        variance += Fraction(b - 1, b ** (j + 1) - 1) * (squares[j] - squares[j + 1])
    return float(2 * plan.levels**2 * variance)


@lru_cache(maxsize=256)
def tiling_constant(plan: HierarchyShape, max_range: int) -> float:
    """K of an inconsistent hierarchy: twice the squared number of levels for each of the fewest nodes that tile."""
    b = plan.fan_out
    inside = [_mean_inside(b**j, max_range) for j in range(plan.levels)] + [Fraction(0)]
    nodes = sum((inside[j] - b * inside[j + 1] for j in range(plan.levels)), Fraction(0))
    return float(2 * plan.levels**2 * nodes)


def independent_constant(max_range: int) -> float:
    """K of independent noise on every value: twice the mean length of a range."""
    return float(Fraction(2 * (max_range + 2), 3))


def _ranges(max_range: int) -> int:
    return max_range * (max_range + 1) // 2


def _mean_inside(width: int, max_range: int) -> Fraction:
    """Mean number of blocks of ``width`` values that lie within a random range."""
    # Block c begins at one of c width + 1 starts before it and ends at one of r - (c + 1) width + 1 stops behind.
    blocks = max_range // width
    total = _sum_over(blocks, lambda c: (c * width + 1) * (max_range - (c + 1) * width + 1))
    return Fraction(total, _ranges(max_range))


def _mean_square(block: int, width: int, max_range: int) -> Fraction:
    """Mean over random ranges of the sum over nodes of (closed leaves in the range)^2 / width.

    Leaf k closes in [a, b) if a < (k + 1) block <= b, so leaves x <= y both do in (x + 1) block (r + 1 - (y + 1)
    block) ranges.
    """
    leaves = max_range // block
    whole, rest = divmod(leaves, width)

    def node(first: int, size: int) -> int:
        """Ranges that close two leaves of a node, over all ordered pairs of its first ``size`` leaves."""
        u, v = (first + 1) * block, max_range + 1 - (first + 1) * block
        # Leaf i has weight (u + i block) as the left one and (v - i block) as the right one.
        ones, twos = size * (size - 1) // 2, (size - 1) * size * (2 * size - 1) // 6
        alone = size * u * v + ones * block * (v - u) - twos * block**2
        lefts = ones * (size - 1) - twos  # sum over i < j of i
        both = ones**2 - twos  # twice the sum over i < j of i j
        return alone + 2 * ones * u * v + 2 * block * (v * lefts - u * twos) - block**2 * both

    total = _sum_over(whole, lambda c: node(c * width, width)) + node(whole * width, rest)
    return Fraction(total, width * _ranges(max_range))


def _sum_over(count: int, quadratic: Callable[[int], int]) -> int:
    """Sum of a polynomial of degree 2 over 0, ..., count - 1, by Newton's forward differences."""
    zero, one, two = quadratic(0), quadratic(1), quadratic(2)
    pairs, triples = count * (count - 1) // 2, count * (count - 1) * (count - 2) // 6
    return count * zero + pairs * (one - zero) + triples * (two - 2 * one + zero)
