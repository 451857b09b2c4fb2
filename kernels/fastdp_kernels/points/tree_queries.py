"""Counts of boxes from a released tree: whole cells inside a box, and the part of each leaf that it cuts.

Arrays of the visited tree as in ``privtree``; its cells are boxes in d dimensions.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel


@kernel
def count_boxes(
    fan_out: int,
    first: np.ndarray,
    counts: np.ndarray,
    cell_lower: np.ndarray,
    cell_upper: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    by_volume: bool,
    stack: np.ndarray,
    cut_query: np.ndarray,
    cut_leaf: np.ndarray,
    out: np.ndarray,
) -> int:
    """Answer box queries by descent from the root; a subtree inside or outside the box is not entered.

    Parameters
    ----------
    fan_out : int
        Children of a node.
    first : int64[v]
        First child, -1 for a leaf.
    counts : float64[v]
        Consistent counts: children sum to their parent.
    cell_lower, cell_upper : float64[v, d]
        The cells.
    lower, upper : float64[q, d]
        The boxes.
    by_volume : bool
        A cut leaf counts by the part of its volume in the box; otherwise it is only listed.
    stack : int64[v]
        Scratch.
    cut_query, cut_leaf : int64[capacity]
        If not ``by_volume``: query and leaf of each cut leaf, as far as there is room.
    out : float64[q]
        The answers, without the listed leaves.

    Returns
    -------
    int
        Leaves listed, or that would have been with more room.
    """
    listed = 0
    for k in range(out.size):
        total = 0.0
        stack[0] = 0
        depth = 1
        while depth > 0:
            depth -= 1
            node = stack[depth]
            part = 1.0
            for axis in range(lower.shape[1]):
                low = cell_lower[node, axis]
                high = cell_upper[node, axis]
                inside = min(high, upper[k, axis]) - max(low, lower[k, axis])
                if not inside > 0.0:
                    part = 0.0
                    break
                if inside < high - low:
                    part *= inside / (high - low)
            if part == 0.0 or counts[node] == 0.0:
                continue
            if part == 1.0:
                total += counts[node]
            elif first[node] >= 0:
                for j in range(fan_out):
                    stack[depth] = first[node] + j
                    depth += 1
            elif by_volume:
                total += counts[node] * part
            else:
                if listed < cut_query.size:
                    cut_query[listed] = k
                    cut_leaf[listed] = node
                listed += 1
        out[k] = total
    return listed
