"""Consistent noise of a hierarchy, or noisy sums of its nodes."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel, minus, plus
from fastdp_kernels._lanes import LANES, raise_row, sum_row
from fastdp_kernels.streams.online_pass import add_noise, round_values

# Online consistency in integers (ToPS, Appendix C, Eq. 10 and 11; Theorem 3.1).
#
# A forest of ``tops`` complete trees of fan-out b and ``levels`` levels lies in one flat array, the
# leaves (height l = 1) first, then height 2, and so on.  In place:
#
# - up: z(leaf) = N(leaf); at height l, S = sum of z(children), z = S + rint((N - S) weights[l]),
#   weights[l] = (b^l - b^(l-1)) / (b^l - 1);
# - down: d = u(node) - sum of z(children) = q b + rem; every child gets z + q, the first rem one more.
#
# Only differences that no consistent integer tree T changes are ever rounded, and int64 sums wrap, so
# f(T + N) = T + f(N) holds exactly, modulo 2^64, for every T.

#: Leaves of all trees that are drawn at once, so that they stay in the cache.
CACHED = 2**16


@inline
def _sum_children(children: np.ndarray, fan_out: int, sums: np.ndarray) -> None:
    for j in range(sums.size):
        total = np.int64(0)
        if fan_out == LANES:
            total = sum_row(children, j * LANES)
        else:
            for i in range(fan_out):
                total = plus(total, children[j * fan_out + i])
        sums[j] = total


@inline
def _weigh(nodes: np.ndarray, sums: np.ndarray, weight: float) -> None:
    for j in range(nodes.size):
        correction = np.rint(np.float64(minus(nodes[j], sums[j])) * weight)
        nodes[j] = plus(sums[j], np.int64(correction))


@inline
def _hand_down(nodes: np.ndarray, sums: np.ndarray, fan_out: int, children: np.ndarray) -> None:
    for j in range(nodes.size):
        lack = minus(nodes[j], sums[j])
        if fan_out == LANES:
            raise_row(children, j * LANES, lack // LANES, lack % LANES)
        else:
            share = lack // fan_out
            extra = minus(lack, np.int64(np.uint64(share) * np.uint64(fan_out)))
            for i in range(fan_out):
                child = j * fan_out + i
                children[child] = plus(children[child], plus(share, np.int64(i < extra)))


@kernel
def make_consistent(nodes: np.ndarray, tops: int, fan_out: int, levels: int, weights: np.ndarray) -> None:
    """Turn independent noise of n forests' nodes, int64[n, nodes] with leaves first, into consistent noise, in place.

    A forest has ``tops`` separate trees; ``weights``: by heights from 2.
    """
    leaves, inner = 1, 0
    for _ in range(levels - 1):
        inner += leaves
        leaves *= fan_out
    # Trees whose leaves stay in the second cache are made consistent together.
    each = CACHED // leaves if leaves < CACHED else 1
    each = each if each < tops else tops
    sums = np.empty(each * inner, np.int64)
    for row in range(nodes.shape[0]):
        forest = nodes[row]
        for first in range(0, tops, each):
            count = each if each < tops - first else tops - first
            # Up: children of height l - 1 are complete before their parents are read.
            below, start, width, summed = 0, tops * leaves, leaves, 0
            for height in range(2, levels + 1):
                children = forest[below + first * width : below + (first + count) * width]
                below, width = start, width // fan_out
                own = forest[start + first * width : start + (first + count) * width]
                totals = sums[summed : summed + own.size]
                _sum_children(children, fan_out, totals)
                _weigh(own, totals, weights[height])
                start += tops * width
                summed += own.size
            # Down.
            for _ in range(2, levels + 1):
                own = forest[below + first * width : below + (first + count) * width]
                summed -= own.size
                totals = sums[summed : summed + own.size]
                width *= fan_out
                below -= tops * width
                _hand_down(own, totals, fan_out, forest[below + first * width : below + (first + count) * width])


# Noisy sums of all nodes of a tree that is not made consistent, in one pass over its values.
#
# A piece of the leaves that fits in the first cache is rounded, summed up level by level and released before the next
# one is looked at: memory sees each value and each node once.

#: Leaves of a piece at most, unless a node has more children.
PIECE = 1024


@kernel
def release_tree(
    values: np.ndarray,
    steps_per_unit: float,
    top: float,
    noise: np.ndarray,
    fan_out: int,
    levels: int,
    leaves: int,
    resolution: float,
    scratch: np.ndarray,
    out: np.ndarray,
) -> None:
    """Noisy sums of all nodes of a tree, in units of the input; NaN for incomplete nodes.

    ``values``: float64[<= leaves], finite; ``noise``, int64[nodes], leaves first, may lie in the memory of ``out``;
    ``scratch``: int64[2 * max(PIECE, fan_out) + leaves].
    """
    size = 1
    height = 0
    while height < levels - 1 and (height == 0 or size * fan_out <= PIECE):
        size *= fan_out
        height += 1
    room = scratch.size - leaves
    sums = scratch[:size]
    parents = scratch[room // 2 : room // 2 + size]
    roots = scratch[room : room + leaves // size]
    for piece in range(leaves // size):
        begin = piece * size
        have = min(max(values.size - begin, 0), size)
        # Older entries after them in the scratch enter no node that stays.
        round_values(values[begin : begin + have], steps_per_unit, top, sums[:have])
        here, above = sums, parents
        first = 0
        width = size
        for level in range(height + 1):
            at = first + piece * width
            add_noise(here[:width], noise[at : at + width], resolution, out[at : at + width])
            if level < height:
                first += leaves // (size // width)
                width //= fan_out
                _sum_children(here, fan_out, above[:width])
                here, above = above, here
        roots[piece] = here[0]
    first = 0
    width = leaves
    complete = values.size
    for level in range(levels):
        if level > height:
            _sum_children(roots, fan_out, roots[:width])
            add_noise(roots[:width], noise[first : first + width], resolution, out[first : first + width])
        out[first + complete : first + width] = np.nan
        first += width
        width //= fan_out
        complete //= fan_out
