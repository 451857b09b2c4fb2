"""PrivTree's descent, one level after the other over flat arrays (PHDStream Algorithms 5 and 7).

Two trees.  The *resident* tree is what lives between two steps; node 0 is the root and children, ``fan_out`` of them
side by side, come after their parent.  The *visited* tree is T(t) of one step, in breadth-first order; ``starts[k]``
is the first visited node of depth k.  In both -1 stands for none.

beta = fan_out; D = the greatest depth; K = unit, the integers that stand for one point.  ``released`` is the sum of
all counter increments at a node and below it, which is the paper's Cn + Cd; what is missing to G is Ca, the node's
share of what was counted above it.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel
from fastdp_kernels.tree_maps import share_out

#: Public scores are cut off here, so that K times a score fits an int64 (2^40 points, K <= 2^20).
MOST = 2.0**40


@inline
def before(codes: np.ndarray, begin: int, end: int, bound: int) -> int:
    """Position in codes[begin:end], ascending, of the first code of at least ``bound``."""
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
    """Parent, code and ranges of events of all children of a node, from ``following`` on, of ``width`` codes each."""
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
    fan_out: int,
    depth: int,
    unit: int,
    bias: int,
    threshold: int,
    repaired: bool,
    equal: bool,
    added: np.ndarray,
    removed: np.ndarray,
    noise: np.ndarray,
    old_first: np.ndarray,
    old_released: np.ndarray,
    old_measure: np.ndarray,
    starts: np.ndarray,
    old: np.ndarray,
    parent: np.ndarray,
    first: np.ndarray,
    code: np.ndarray,
    ends: np.ndarray,
    released: np.ndarray,
    measure: np.ndarray,
    held: np.ndarray,
    projected: np.ndarray,
    score: np.ndarray,
) -> int:
    """Decide which nodes of the levels [level, stop) are split, and append their children.

    Parameters
    ----------
    level, stop : int
        Levels whose nodes are already in the visited arrays, and the level to stop before (at most D + 1).
    fan_out, depth, unit : int
        beta, D, K.
    bias, threshold : int
        Delta >= K delta and K theta.
    repaired : bool
        Score K A(v) + rint(K s+(v)) - depth Delta, A the additions; otherwise the paper's, with G and the net count.
    equal : bool
        Children have equal measures, filled in here; otherwise the caller fills ``measure`` before the next level.
    added, removed : int64[n], int64[m]
        Codes of depth D of the batch, ascending.
    noise : int64[capacity]
        Discrete Laplace noise of scale K lambda, one draw for each visited node.
    old_first, old_released, old_measure : int64[r], int64[r], float64[r]
        The resident tree.
    starts : int64[D + 2]
        Filled for the levels that are appended.
    old, parent, first, code, released, score : int64[capacity]
        Resident node, parent, first child, path code, released count, score in units of 1 / K before the floor.
    ends : int64[capacity, 4]
        The ranges of ``added`` and ``removed`` that lie in the node.
    measure, held, projected : float64[capacity]
        Measure of the cell, G and s+ before the step.

    Returns
    -------
    int
        Visited nodes so far, or -1 if the arrays are too short.
    """
    floor = threshold - bias
    following: int = starts[level + 1]
    scale = np.float64(unit)
    for k in range(level, stop):
        begin = starts[k]
        end = starts[k + 1]
        if k == 0:
            held[0] = np.float64(released[0])
            projected[0] = max(held[0], 0.0)
        for c in range(begin, end if k > 0 else begin, fan_out):
            share_out(parent[c], c, fan_out, released, measure, held, projected)
        width = np.int64(1)
        for _ in range(depth - k - 1):
            width *= fan_out
        for i in range(begin, end):
            first[i] = -1
            score[i] = floor
            if k == depth or measure[i] <= 0.0:
                continue
            own = ends[i, 1] - ends[i, 0]
            public = projected[i]
            if not repaired:
                own -= ends[i, 3] - ends[i, 2]
                public = held[i]
            public = min(max(public, -MOST), MOST)
            score[i] = unit * own + np.int64(np.rint(scale * public)) - k * bias
            if max(score[i], floor) + noise[i] <= threshold:
                continue
            if following + fan_out > old.size:
                return -1
            first[i] = following
            kept = old_first[old[i]] if old[i] >= 0 else -1
            append_parts(i, following, fan_out, width, added, removed, parent, code, ends)
            for j in range(fan_out):
                c = following + j
                old[c] = kept + j if kept >= 0 else -1
                released[c] = old_released[old[c]] if kept >= 0 else 0
                if kept >= 0:
                    measure[c] = old_measure[old[c]]
                elif equal:
                    measure[c] = measure[i] / fan_out
            following += fan_out
        if k < depth:
            starts[k + 2] = following
    return following


@kernel
def collect_leaves(
    first: np.ndarray, measure: np.ndarray, ends: np.ndarray, leaves: np.ndarray, net: np.ndarray
) -> int:
    """List the leaves with a measure above 0, in order, and the batch's additions less removals in each.

    Parameters
    ----------
    first, measure, ends
        As :func:`descend` left them, cut to the visited nodes.
    leaves, net : int64[visited]
        Filled from the front.

    Returns
    -------
    int
        How many leaves.
    """
    count = 0
    for i in range(first.size):
        if first[i] < 0 and measure[i] > 0.0:
            leaves[count] = i
            net[count] = (ends[i, 1] - ends[i, 0]) - (ends[i, 3] - ends[i, 2])
            count += 1
    return count
