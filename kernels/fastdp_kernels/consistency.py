"""Online consistency in integers (ToPS, Appendix C, Eq. 10 and 11; Theorem 3.1).

A forest of ``tops`` complete trees of fan-out b and ``levels`` levels lies in one flat array, the
leaves (height l = 1) first, then height 2, and so on.  In place:

- up: z(leaf) = N(leaf); at height l, S = sum of z(children), z = S + rint((N - S) weights[l]),
  weights[l] = (b^l - b^(l-1)) / (b^l - 1);
- down: d = u(node) - sum of z(children) = q b + rem; every child gets z + q, the first rem one more.

Only differences that no consistent integer tree T changes are ever rounded, and int64 sums wrap, so
f(T + N) = T + f(N) holds exactly, modulo 2^64, for every T.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel, minus, plus


@inline
def _sum(children: np.ndarray) -> np.int64:
    total = np.int64(0)
    for i in range(children.size):
        total = plus(total, children[i])
    return total


@kernel
def make_consistent(nodes: np.ndarray, tops: int, fan_out: int, levels: int, weights: np.ndarray) -> None:
    """Turn independent node noise into consistent noise, in place.

    Parameters
    ----------
    nodes : int64[tops * (b^levels - 1) / (b - 1)]
        Noise of every released node, the leaf level first; overwritten.
    tops : int
        Number of trees; their tops are not tied to each other (the single root is not released).
    fan_out : int
        b >= 2.
    levels : int
        Released levels, at least 1.
    weights : float64[levels + 1]
        weights[l] for heights l >= 2.
    """
    for top in range(tops):
        start = 0
        width = 1
        for _ in range(levels - 1):
            width *= fan_out
        # Up: children of height l - 1 are complete before their parents are read.
        below_start = 0
        below_width = width
        start = tops * width
        for height in range(2, levels + 1):
            level_width = below_width // fan_out
            for j in range(level_width):
                first = below_start + top * below_width + j * fan_out
                total = _sum(nodes[first : first + fan_out])
                own = start + top * level_width + j
                correction = np.rint(np.float64(minus(nodes[own], total)) * weights[height])
                nodes[own] = plus(total, np.int64(correction))
            below_start = start
            start += tops * level_width
            below_width = level_width
        # Down: each node hands its children what they lack, as evenly as integers allow.
        own_start = below_start
        own_width = 1
        for _ in range(2, levels + 1):
            child_width = own_width * fan_out
            child_start = own_start - tops * child_width
            for j in range(own_width):
                first = child_start + top * child_width + j * fan_out
                children = nodes[first : first + fan_out]
                lack = minus(nodes[own_start + top * own_width + j], _sum(children))
                share = lack // fan_out
                extra = minus(lack, np.int64(np.uint64(share) * np.uint64(fan_out)))
                for child in range(children.size):
                    children[child] = plus(children[child], plus(share, np.int64(child < extra)))
            own_start = child_start
            own_width = child_width


@kernel
def make_rows_consistent(nodes: np.ndarray, tops: int, fan_out: int, levels: int, weights: np.ndarray) -> None:
    """:func:`make_consistent` for each row of int64[n, nodes]."""
    for row in range(nodes.shape[0]):
        make_consistent(nodes[row], tops, fan_out, levels, weights)
