"""PrivTree's descent, level by level over flat arrays (PHDStream Algorithms 5 and 7).

The *kept* tree lasts between steps, children side by side after their parent; the *step* tree is breadth first, with
depth k from ``starts[k]`` on.  beta = fan_out; D = greatest depth; K = unit; -1 is no node.  ``released`` sums all
increments at a node and below, the paper's Cn + Cd.  ``added`` and ``removed`` are ascending codes of depth D;
``ends``, int64[v, 4], their ranges in the node.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel
from fastdp_kernels.points.tree_maps import share_levels

#: Public scores are cut off here, so that K times a score fits an int64 (2^40 points, K <= 2^20).
MOST = 2.0**40


@inline
def before(codes: np.ndarray, begin: int, end: int, bound: int) -> int:
    """Position in codes[begin:end] of the first code from ``bound`` on."""
    while begin < end:
        middle = (begin + end) // 2
        if codes[middle] < bound:
            begin = middle + 1
        else:
            end = middle
    return begin


@inline
def append_parts(
    node: int,
    following: int,
    fan_out: int,
    width: np.int64,
    added: np.ndarray,
    removed: np.ndarray,
    parent: np.ndarray,
    code: np.ndarray,
    ends: np.ndarray,
) -> None:
    """Write parent, code and event ranges of a node's children, each of ``width`` codes."""
    a = ends[node, 0]
    r = ends[node, 2]
    for j in range(fan_out):
        c = following + j
        last = j == fan_out - 1
        parent[c] = node
        code[c] = code[node] * fan_out + j
        ends[c, 0] = a
        a = ends[node, 1] if last else before(added, a, ends[node, 1], (code[c] + 1) * width)
        ends[c, 1] = a
        ends[c, 2] = r
        r = ends[node, 3] if last else before(removed, r, ends[node, 3], (code[c] + 1) * width)
        ends[c, 3] = r


@kernel
def descend(
    level: int,
    stop: int,
    rule: tuple[int, int, int, int, int, bool, bool],
    since: int,
    events: tuple[np.ndarray, np.ndarray],
    noise: np.ndarray,
    kept: np.ndarray,
    starts: np.ndarray,
    tree: tuple[np.ndarray, ...],
) -> int:
    """Decide which nodes of levels [level, stop), stop <= D + 1, are split, and append their children.

    Returns the number of nodes, or -1 if the arrays are too short.

    Parameters
    ----------
    rule : tuple
        beta; D; K; Delta >= K delta; K theta; True for the score K A(v) + rint(K s+(v)) - depth Delta of the
        additions A, False for the paper's, of G and the net count; True for children of equal measures, filled in
        here.
    since : int
        Kept nodes last split before this step have lost their children.
    noise : int64[capacity]
        Discrete Laplace noise of scale K lambda, by node.
    kept : record[r]
        First child, released count, last step that split the node (-1: none), measure.
    tree : tuple
        int64[capacity] kept node, parent, first child, code; int64[capacity, 4] ranges; int64[capacity] released
        count; float64[capacity] measure, G, s+ before the step; int64[capacity] score in 1 / K before the floor.
    """
    fan_out, depth, unit, bias, threshold, repaired, equal = rule
    added, removed = events
    origin, parent, first, code, ends, released, measure, held, projected, score = tree
    floor = threshold - bias
    following: int = starts[level + 1]
    scale = np.float64(unit)
    for k in range(level, stop):
        begin = starts[k]
        end = starts[k + 1]
        if k == 0:
            held[0] = np.float64(released[0])
            projected[0] = max(held[0], 0.0)
        else:
            share_levels(begin, end, fan_out, (parent, released, measure, held, projected))
        if k == depth:
            first[begin:end] = -1
            score[begin:end] = floor
            break
        born = following
        # Which nodes are split is random, so no branch depends on it; ``first`` says it in between.
        count = 0
        for i in range(begin, end):
            own = ends[i, 1] - ends[i, 0]
            public = projected[i]
            if not repaired:
                own -= ends[i, 3] - ends[i, 2]
                public = held[i]
            public = min(max(public, -MOST), MOST)
            there = np.int64(measure[i] > 0.0)
            above = (unit * own + np.int64(np.rint(scale * public)) - k * bias - floor) * there
            score[i] = floor + above
            above &= ~(above >> 63)
            first[i] = np.int64(floor + above + noise[i] > threshold) & there
            count += first[i]
        if following + fan_out * count > origin.size:
            return -1
        # Every node writes itself as the next family's parent; the next one overwrites that unless it is split.
        roomy = following + fan_out * (end - begin) <= origin.size
        for i in range(begin, end):
            split = first[i]
            first[i] = (following + 1) * split - 1
            if roomy or split:
                parent[following] = i
            following += fan_out * split
        width = np.int64(1)
        for _ in range(depth - k - 1):
            width *= fan_out
        for c in range(born, following, fan_out):
            node = parent[c]
            o = origin[node]
            known = kept[o].first if o >= 0 and kept[o].split >= since else -1
            append_parts(node, c, fan_out, width, added, removed, parent, code, ends)
            for j in range(fan_out):
                origin[c + j] = known + j if known >= 0 else -1
                released[c + j] = kept[known + j].released if known >= 0 else 0
                if known >= 0:
                    measure[c + j] = kept[known + j].measure
                elif equal:
                    measure[c + j] = measure[node] / fan_out
        starts[k + 2] = following
    return following


@kernel
def collect_leaves(
    first: np.ndarray, measure: np.ndarray, ends: np.ndarray, leaves: np.ndarray, net: np.ndarray
) -> int:
    """List leaves with a measure above 0, and their additions less removals; returns their number."""
    count = 0
    # Which nodes are leaves is random: written for each, kept for leaves.
    for i in range(first.size):
        leaves[count] = i
        net[count] = (ends[i, 1] - ends[i, 0]) - (ends[i, 3] - ends[i, 2])
        count += int(first[i] < 0) & int(measure[i] > 0.0)
    return count
