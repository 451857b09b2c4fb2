"""Noise trees for the consistency benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastdp.perturbers import Hierarchy
from fastdp.perturbers.hierarchy import HierarchyShape, consistency_weights
from fastdp_kernels import consistency


@dataclass(frozen=True)
class Tree:
    """Independent node noise of an unpruned tree, the leaf level first."""

    plan: HierarchyShape
    nodes: NDArray[np.int64]
    weights: NDArray[np.float64]

    def copy(self) -> Tree:
        return Tree(self.plan, self.nodes.copy(), self.weights)

    def make_consistent(self) -> None:
        """In place.  A second call costs the same as the first, though it finds nothing to mend."""
        plan = self.plan
        consistency.make_consistent(self.nodes, plan.tops, plan.fan_out, plan.levels, self.weights)

    def float_levels(self) -> list[NDArray[np.float64]]:
        """The levels as separate float arrays, for the NumPy peer."""
        widths = [self.plan.leaves // self.plan.fan_out**level for level in range(self.plan.levels)]
        return [part.astype(np.float64) for part in np.split(self.nodes, np.cumsum(widths)[:-1])]

    def breadth_first(self) -> NDArray[np.int64]:
        """A root of 0, then the levels from the top: OpenDP's order."""
        widths = [self.plan.leaves // self.plan.fan_out**level for level in range(self.plan.levels)]
        levels = np.split(self.nodes, np.cumsum(widths)[:-1])
        return np.concatenate([np.zeros(1, np.int64), *levels[::-1]])


def make_tree(fan_out: int, leaves: int) -> Tree:
    """A tree of ``leaves`` leaves with noise of about 2^26 steps a node."""
    plan = Hierarchy(fan_out=fan_out, prune=0).plan(1.0, leaves)
    noise = np.random.default_rng(1).integers(-(2**26), 2**26, plan.nodes)
    return Tree(plan, noise, consistency_weights(plan))
