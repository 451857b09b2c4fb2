"""Protocols of perturbers, their public shape, and the noise of random ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Protocol, cast, runtime_checkable

from fastdp.guarantee import Guarantee
from fastdp.kinds import Floats, Integers
from fastdp.noise import gaussian, sampler
from fastdp.noise.chain_keys import BoundPerturber, theta_key
from fastdp.noise.gaussian import GaussianDistribution
from fastdp.noise.key import Key
from fastdp.noise.sampler import Distribution, NoiseName
from fastdp.noise.words import RowWords, StreamId, distinct_of


@dataclass(frozen=True)
class HierarchyShape:
    """Public shape of a hierarchy.

    Attributes
    ----------
    fan_out, height : int
        b, and h = ceil(log_b max_range): levels before pruning, without the root.
    pruned, levels : int
        s, lowest levels without noise, and h - s released ones, each with epsilon / levels.
    block : int
        g = b^s values under one released leaf.
    tops, leaves, tree_blocks : int
        Nodes on the highest released level; leaves of a tree, tops * b^(levels - 1); those used, ceil(max_range / g).
    """

    fan_out: int = 2
    height: int = 1
    pruned: int = 0
    levels: int = 1
    block: int = 1
    tops: int = 1
    leaves: int = 1
    tree_blocks: int = 1

    @property
    def widths(self) -> list[int]:
        return [self.leaves // self.fan_out**level for level in range(self.levels)]

    @property
    def nodes(self) -> int:
        return sum(self.widths)


class Perturber(Protocol):
    """Noise of block sums, tree by tree."""

    @property
    def released_nodes(self) -> bool:
        """True if inner nodes have noise, and answer ranges."""

    def plan(self, epsilon: float, max_range: int) -> HierarchyShape:
        """Public shape for `epsilon` and queries of up to `max_range` values."""

    def guarantee(self, plan: HierarchyShape, epsilon: float) -> Guarantee:
        """Guarantee of the endless stream."""

    def noise_constant(self, plan: HierarchyShape, max_range: int) -> float:
        """K: a random range of up to r values has noise variance K theta^2 / epsilon^2."""

    def leaf_noise(self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int) -> Integers:
        """Draw the noise of one tree's released leaves, in grid steps: int64[leaves].

        ``theta_steps``: sensitivity of every node; ``epsilon``: total budget, with Gaussian noise rho = epsilon^2 /
        2; ``key``: secret of this threshold; ``tree``: number in the stream.
        """

    def node_noise(self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int) -> Integers:
        """Draw independent noise of every node: a new int64[nodes], leaves first."""


@runtime_checkable
class CorrelatedPerturber(BoundPerturber, Protocol):
    """Perturber whose noise depends on earlier noise."""

    @property
    def memory(self) -> int:
        """Number of floats kept between values."""

    def correlate(self, noise: Integers, memory: Floats, position: int) -> Floats:
        """Turn draws from `position` on into noise, in place; return the next memory."""


def correlation(perturber: Perturber) -> CorrelatedPerturber | None:
    """`perturber`, if its noise is correlated."""
    # By name: isinstance with a protocol costs more than a short chunk.
    return cast("CorrelatedPerturber", perturber) if hasattr(perturber, "correlate") else None


# Optional methods of perturbers.


@runtime_checkable
class NamedNoise(Protocol):
    """Perturber that names its noise."""

    @property
    def noise(self) -> NoiseName: ...


@runtime_checkable
class Tree(Protocol):
    """Perturber whose nodes have `fan_out` children each."""

    @property
    def fan_out(self) -> int: ...


@runtime_checkable
class GroupPerturber(Protocol):
    """Perturber that knows the squared L2 sensitivity of consecutive values."""

    def group_square(self, plan: HierarchyShape, size: int) -> int | Fraction: ...


@runtime_checkable
class NormalPerturber(Protocol):
    """Perturber that counts draws moved by consecutive values."""

    def moved_draws(self, plan: HierarchyShape, size: int) -> int: ...


@dataclass(frozen=True)
class TreeRows:
    """One tree for each of many streams."""

    #: `plan`, `epsilon`, `key`: as for :meth:`Perturber.leaf_noise`, of all streams.
    plan: HierarchyShape
    epsilon: float
    key: Key
    #: Sensitivity, stream and tree number of each row, int64[n].
    theta_steps: Integers
    streams: Integers
    trees: Integers
    #: Number of leaves used.
    needed: int
    #: True for the noise of all nodes.
    nodes: bool = False

    def words(self, pieces: Sequence[tuple[StreamId, int]]) -> RowWords:
        distinct, owners = distinct_of(self.theta_steps)
        return RowWords([theta_key(self.key, steps) for steps in distinct.tolist()], pieces, owners)


@runtime_checkable
class RowPerturber(Protocol):
    """Perturber that draws the trees of many numbered streams in one call."""

    def noise_rows(self, rows: TreeRows) -> Integers | None:
        """``leaf_noise`` of each row, int64[n, w], under its stream's key; None: ask tree by tree.

        Leaves come first; unless `nodes`, entries after `needed` are unspecified.
        """


# Noise of a random range in closed form, for the choice of a threshold.
#
# A random range [a, b) is one of the r (r + 1) / 2 ranges within the first r published values, each as likely.
# Every result is K: the variance is K theta^2 / epsilon^2.  Sums over nodes are exact integers; nothing is sampled.
#
# Source: ToPS Appendix C (consistency is least squares); (A^T A)^-1 = sum over j of (P_j - P_(j+1)) / lambda_j,
# where P_j averages over blocks of b^j leaves, P_h = 0 because tops are not tied, and lambda_j = 1 + b + ... + b^j.


@lru_cache(maxsize=256)
def consistent_constant(plan: HierarchyShape, max_range: int) -> float:
    """K of a consistent hierarchy, of blocks that close in a range."""
    b, variance = plan.fan_out, Fraction(0)
    squares = [_mean_square(plan.block, b**j, max_range) for j in range(plan.levels)] + [Fraction(0)]
    for j in range(plan.levels):
        variance += Fraction(b - 1, b ** (j + 1) - 1) * (squares[j] - squares[j + 1])
    return float(2 * plan.levels**2 * variance)


@lru_cache(maxsize=256)
def tiling_constant(plan: HierarchyShape, max_range: int) -> float:
    """K of an inconsistent hierarchy: 2 levels^2 for each of the fewest tiling nodes."""
    b = plan.fan_out
    inside = [_mean_inside(b**j, max_range) for j in range(plan.levels)] + [Fraction(0)]
    nodes = sum((inside[j] - b * inside[j + 1] for j in range(plan.levels)), Fraction(0))
    return float(2 * plan.levels**2 * nodes)


def independent_constant(max_range: int) -> float:
    """K of independent noise: twice the mean length of a range."""
    return float(Fraction(2 * (max_range + 2), 3))


def _mean_inside(width: int, max_range: int) -> Fraction:
    # Block c begins at one of c width + 1 starts before it and ends at one of r - (c + 1) width + 1 stops after it.
    blocks, ranges = max_range // width, max_range * (max_range + 1) // 2
    total = _sum_over(blocks, lambda c: (c * width + 1) * (max_range - (c + 1) * width + 1))
    return Fraction(total, ranges)


def _mean_square(block: int, width: int, max_range: int) -> Fraction:
    leaves = max_range // block
    full, rest = divmod(leaves, width)

    def node(first: int, size: int) -> int:
        u, v = (first + 1) * block, max_range + 1 - (first + 1) * block
        # Leaf i has weight (u + i block) as the left one and (v - i block) as the right one.
        ones, twos = size * (size - 1) // 2, (size - 1) * size * (2 * size - 1) // 6
        alone = size * u * v + ones * block * (v - u) - twos * block**2
        lefts = ones * (size - 1) - twos  # sum over i < j of i
        both = ones**2 - twos  # twice the sum over i < j of i j
        return alone + 2 * ones * u * v + 2 * block * (v * lefts - u * twos) - block**2 * both

    total = _sum_over(full, lambda c: node(c * width, width)) + node(full * width, rest)
    return Fraction(2 * total, width * max_range * (max_range + 1))


def _sum_over(count: int, quadratic: Callable[[int], int]) -> int:
    zero, one, two = quadratic(0), quadratic(1), quadratic(2)
    pairs, triples = count * (count - 1) // 2, count * (count - 1) * (count - 2) // 6
    return count * zero + pairs * (one - zero) + triples * (two - 2 * one + zero)


def fill(out: Integers, distribution: Distribution, key: Key, stream: StreamId) -> None:
    """Overwrite `out` with draws, discrete Gaussian or Laplace."""
    if isinstance(distribution, GaussianDistribution):
        gaussian.fill(out, distribution, key, stream)
    else:
        sampler.fill(out, distribution, key, stream)
