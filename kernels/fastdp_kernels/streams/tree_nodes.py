"""Noisy sums of all nodes of a tree that is not made consistent, in one pass over its values.

A piece of the leaves that fits in the first cache is rounded, summed up level by level and released before the next
one is looked at: memory sees each value and each node once.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel
from fastdp_kernels.streams.online_pass import add_noise, round_values
from fastdp_kernels.streams.ranges import sum_children

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
    """Release a tree.

    Parameters
    ----------
    values : float64[<= leaves]
        Of the tree's first leaves, finite.
    steps_per_unit, top
        As for ``online_pass.sum_blocks``.
    noise : int64[nodes]
        Of every node, the leaf level first; ``out`` may lie in its memory.
    fan_out, levels, leaves : int
        Shape of the tree.
    resolution : float
        Grid step.
    scratch : int64[2 * max(PIECE, fan_out) + leaves]
        For sums.
    out : float64[nodes]
        Noisy sums in units of the input; of nodes that are not complete NaN.
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
        # What lies behind them in the scratch enters no node that stays.
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
                sum_children(here, fan_out, above[:width])
                here, above = above, here
        roots[piece] = here[0]
    first = 0
    width = leaves
    complete = values.size
    for level in range(levels):
        if level > height:
            sum_children(roots, fan_out, roots[:width])
            add_noise(roots[:width], noise[first : first + width], resolution, out[first : first + width])
        out[first + complete : first + width] = np.nan
        first += width
        width //= fan_out
        complete //= fan_out
