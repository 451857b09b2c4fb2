"""The noisy sums of a hierarchy that is not made consistent, and answers from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastdp.arrays.kinds import Floats, Integers
from fastdp_kernels import ranges


@dataclass(frozen=True, eq=False)
class ReleasedNodes:
    """Noisy sums of all nodes of an inconsistent hierarchy.

    Attributes
    ----------
    sums : float64[trees, nodes]
        In units of the input, the leaf level first.  Nodes that were not complete when the stream ended are NaN;
        no range needs them.
    leaves, fan_out, levels, tree_values : int
        Shape of a tree, and how many values each serves.
    """

    sums: Floats
    leaves: int
    fan_out: int
    levels: int
    tree_values: int

    @classmethod
    def of(cls, sums: Floats, plan: Any) -> ReleasedNodes:
        """Sums of trees of this :class:`fastdp.perturbers.HierarchyShape`, each of whose leaves is one value."""
        return cls(sums, plan.leaves, plan.fan_out, plan.levels, plan.tree_blocks)

    def range_sum(self, starts: Integers, stops: Integers) -> Floats:
        """Answers from the fewest nodes that tile each range (ToPS section 3, the hierarchy approach)."""
        out = np.empty(starts.size)
        ranges.sum_nodes(self.sums, self.leaves, self.fan_out, self.levels, self.tree_values, starts, stops, out)
        return out

    def draws(self, starts: Integers, stops: Integers) -> Integers:
        """How many nodes each answer adds up."""
        ones = replace(self, sums=np.broadcast_to(np.float64(1.0), self.sums.shape))
        return ones.range_sum(starts, stops).astype(np.int64)
