"""Counts in many boxes at once, of cells by the part of their volume that a box holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fastdp.arrays.column import as_reals
from fastdp.arrays.kinds import Floats
from fastdp.errors import ParameterError
from fastdp.spatial.checks import as_boxes
from fastdp_kernels import box_queries

#: Items in a leaf of the k-d tree: fewer cost more nodes, more cost longer scans.
LEAF = 16


class BoxTree:
    """Items in the order of a k-d tree, with the box around each node."""

    def __init__(self, lower: Floats, upper: Floats) -> None:
        n = lower.shape[0]
        self.levels = max(0, (n // LEAF).bit_length() - 1)
        self.order = np.arange(n)
        # Centres of cells; half of each first, because a sum could overflow.
        keys = lower.copy() if upper is lower else 0.5 * lower + 0.5 * upper
        box_queries.sort_into_tree(keys, self.levels, self.order)
        self.lower = keys if upper is lower else lower[self.order]
        self.upper = keys if upper is lower else upper[self.order]
        self.node_lower = np.empty((2 << self.levels, lower.shape[1]))
        self.node_upper = np.empty_like(self.node_lower)
        box_queries.enclose_items(self.lower, self.upper, self.levels, self.node_lower, self.node_upper)


class CellIndex:
    """Cells with counts, arranged for counts in many boxes: what a released tree says without sampling.

    Parameters
    ----------
    lower, upper : array-like[n, d]
        Corners of the cells, finite; copies are kept.  Cells without extent along an axis are allowed.
    counts : array-like[n]
        Their contents, finite; negative ones are allowed.

    Notes
    -----
    A count is taken to be spread evenly over its cell, so an answer is the expected number of points in the box
    when points are sampled evenly from the cells.
    """

    def __init__(self, lower: ArrayLike, upper: ArrayLike, counts: ArrayLike) -> None:
        shape = as_reals(lower, "lower").shape
        low, high = as_boxes(lower, upper, shape[1] if len(shape) == 2 else 1, finite=True)
        contents = as_reals(counts, "counts")
        if contents.shape != low.shape[:1] or not np.isfinite(contents).all():
            raise ParameterError(f"counts: expected one finite number for each of {low.shape[0]} cells")
        self._tree = BoxTree(low, high)
        self._counts = contents[self._tree.order]
        self._sums = np.empty(2 << self._tree.levels)
        box_queries.sum_items(self._counts, self._tree.levels, self._sums)

    @property
    def total(self) -> float:
        """Sum of all counts."""
        return float(self._sums[1])

    def count(self, lower: ArrayLike, upper: ArrayLike) -> Floats:
        """Content of each box: the sum over the cells of count times the part of the cell's volume in the box.

        Parameters
        ----------
        lower, upper : array-like[q, d]
            The boxes; infinite bounds are allowed.

        Returns
        -------
        float64[q]
        """
        tree = self._tree
        low, high = as_boxes(lower, upper, tree.lower.shape[1])
        out = np.empty(low.shape[0])
        box_queries.count_cells(
            tree.lower,
            tree.upper,
            self._counts,
            tree.node_lower,
            tree.node_upper,
            self._sums,
            tree.levels,
            low,
            high,
            out,
        )
        return out
