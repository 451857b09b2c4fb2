"""Cells of a fixed decomposition, by their codes, and the trees of them that a private step begins with and makes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastdp.arrays.kinds import Floats, Integers
from fastdp.errors import ParameterError
from fastdp.spatial.cell_parameters import CellParameters
from fastdp_kernels import cell_codes


@dataclass(frozen=True)
class KeptTree:
    """The tree that lives between two steps: released numbers only, but for the counters' noise.

    Attributes
    ----------
    first : int64[r]
        First child, -1 for none; node 0 is the root.
    released : int64[r]
        Sum of all counter increments at the node and below it.
    split_at : int64[r]
        Last step that split the node, -1 if none did.
    measure : float64[r]
        Measure of the domain inside the cell.
    state : int64[r, width]
        The nodes' counters.
    """

    first: Integers
    released: Integers
    split_at: Integers
    measure: Floats
    state: Integers


@dataclass(frozen=True)
class StepTree:
    """The tree T(t) of one step, breadth first; arrays as in ``fastdp_kernels.privtree``.

    Attributes
    ----------
    starts : int64[max_depth + 2]
        First node of each depth.
    parent, first, code, origin : int64[v]
        Parent, first child (-1 for a leaf), path code, node of the resident tree before the step (-1 if new).
    released, measure, held, projected : v entries
        After the step: released counts, measures, G and s+.
    leaves : int64[l]
        The leaves with a measure above 0.
    """

    starts: Integers
    parent: Integers
    first: Integers
    code: Integers
    origin: Integers
    released: Integers
    measure: Floats
    held: Floats
    projected: Floats
    leaves: Integers

    @property
    def depth(self) -> Integers:
        """Depth of each node: int64[v]."""
        return np.repeat(np.arange(self.starts.size - 1), np.diff(self.starts))


@dataclass(frozen=True)
class SplitScores:
    """What the decisions of a step were made from.  Secret: for the analysis of privacy losses, never kept.

    Attributes
    ----------
    score : int64[v]
        The score of each visited node, in units of 1 / K, before the floor.
    ends : int64[v, 4]
        Ranges of the sorted additions and removals that lie in the node.
    """

    score: Integers
    ends: Integers


def cells(plan: CellParameters, codes: Integers, depths: Integers) -> tuple[Floats, Floats]:
    """Bounds of cells, lower and upper float64[n, d]."""
    lower = np.empty((codes.size, plan.domain.dim))
    upper = np.empty_like(lower)
    corners = plan.domain.lower, plan.domain.upper
    cell_codes.decode_cells(codes, depths, *corners, plan.fan_out, lower, upper)
    return lower, upper


def tree_cells(plan: CellParameters, visit: StepTree) -> tuple[Floats, Floats]:
    """Bounds of all visited nodes, lower and upper float64[v, d]."""
    size, dim = visit.first.size, plan.domain.dim
    lower, upper = np.empty((size, dim)), np.empty((size, dim))
    index: Integers = np.empty((size, dim), np.int64)
    corners = plan.domain.lower, plan.domain.upper
    cell_codes.decode_tree(visit.starts, visit.parent, visit.first, *corners, plan.fan_out, index, lower, upper)
    return lower, upper


def measures(plan: CellParameters, codes: Integers, depth: int) -> Floats:
    """Measures of the domain inside cells of one depth: float64[n]."""
    found = np.ascontiguousarray(plan.domain.measure(*cells(plan, codes, np.full(codes.size, depth))), np.float64)
    if not (np.isfinite(found).all() and (found >= 0.0).all()):
        raise ParameterError(f"domain = {plan.domain!r}: expected finite measures of at least 0 for its cells")
    return found


def encode(plan: CellParameters, points: Floats) -> Integers:
    """Codes of the greatest depth, ascending: int64[n]."""
    codes: Integers = np.empty(points.shape[0], np.int64)
    cell_codes.encode_points(points, plan.domain.lower, plan.domain.upper, plan.fan_out, plan.max_depth, codes)
    codes.sort()
    return codes
