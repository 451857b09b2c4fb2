"""Loops of the single-stream kernels over many short streams, in one call.

Row i of n lies in one flat array, ``counts[i]`` values from ``starts[i]`` on; arrays by block are as wide as the
longest row needs.  Rows get the single kernel's results.  A row has T trees of noise, W >= ``tree_blocks`` integers
each, leaves first.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel
from fastdp_kernels.streams.hierarchy_nodes import release_tree
from fastdp_kernels.streams.online_pass import (
    add_noise,
    emit_blocks,
    emit_sums,
    finite_flag,
    publish,
    round_values,
    sum_blocks,
)


@kernel
def first_nonfinite(values: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> int:
    """First row with a NaN or infinite value, or -1."""
    for row in range(starts.size):
        part = values[starts[row] : starts[row] + counts[row]]
        flags = np.int64(0)
        for i in range(part.size):
            flags |= finite_flag(part[i])
        if flags < 0:
            return row
    return -1


@kernel
def close_rows(
    values: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    resolution: float,
    tops: np.ndarray,
    block: int,
    noise: np.ndarray,
    tree_blocks: int,
    totals: np.ndarray,
    means: np.ndarray,
) -> int:
    """Released totals of each row's closed blocks, and means; returns :func:`first_nonfinite`.

    Parameters
    ----------
    resolution : float
        One step in units of the input.
    tops : float64[n]
        Thresholds in steps.
    block : int
        g >= 2.
    noise : int64[n, T, W]
        Noise of the leaves.
    tree_blocks : int
        Blocks that a tree serves.
    totals, means : float64[n, k]
        Receive (sum + noise) * resolution, 0 beyond a row's own, and totals / g.
    """
    size, sums = np.float64(block), np.empty(totals.shape[1] + 1, np.int64)
    for row in range(starts.size):
        count = counts[row]
        closed, part = count // block, values[starts[row] : starts[row] + count]
        touched = (count + block - 1) // block
        if sum_blocks(part, 1.0 / resolution, tops[row], block, int(np.int64(0)), sums[:touched]):
            return row
        for tree, begin in enumerate(range(0, closed, tree_blocks)):
            end = min(closed, begin + tree_blocks)
            add_noise(sums[begin:end], noise[row, tree], resolution, totals[row, begin:end])
        totals[row, closed:] = 0.0
        for j in range(totals.shape[1]):
            means[row, j] = totals[row, j] / size
    return -1


@kernel
def emit_rows(
    totals: np.ndarray,
    predictions: np.ndarray,
    closed: np.ndarray,
    block: int,
    out: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Publish each row: totals float64[n, k], predictions float64[n, k + 1]."""
    for row in range(starts.size):
        k = closed[row]
        target = out[starts[row] : starts[row] + counts[row]]
        emit_blocks(totals[row, :k], predictions[row, : k + 1], block, int(np.int64(0)), target)


@inline
def _sum_row(values: np.ndarray, public: np.ndarray, sums: np.ndarray) -> bool:
    block = int(public[3])
    if block == 1:
        return round_values(values, public[0], public[1], sums)
    return sum_blocks(values, public[0], public[1], block, int(np.int64(0)), sums)


@inline
def _emit_row(
    sums: np.ndarray, public: np.ndarray, noise: np.ndarray, tree_blocks: int, prediction: float, out: np.ndarray
) -> None:
    resolution, block = public[2], int(public[3])
    closed = out.size // block
    for tree, begin in enumerate(range(0, max(closed, 1), tree_blocks)):
        closing, drawn = min(closed - begin, tree_blocks), noise[tree]
        end = out.size if begin + closing == closed else (begin + closing) * block
        own, target = sums[begin : begin + closing], out[begin * block : end]
        if block == 1:
            add_noise(own, drawn, resolution, target)
        else:
            zero = int(np.int64(0))
            prediction = emit_sums(own, drawn[:closing], resolution, prediction, block, zero, target)


@kernel
def publish_rows(
    values: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    publics: np.ndarray,
    noise: np.ndarray,
    tree_blocks: int,
    predictions: np.ndarray,
    out: np.ndarray,
    out_starts: np.ndarray,
) -> int:
    """Publish each row in one pass (``online_pass.publish``); returns :func:`first_nonfinite`.

    ``publics``, float64[n, 4], as ``public`` there; ``noise``, ``tree_blocks`` as for :func:`close_rows`;
    ``predictions``, float64[n], of first blocks; ``out``: row i from ``out_starts[i]`` on.
    """
    sums, summed = np.empty(0, np.int64), False
    for row in range(starts.size):
        after, first = row + 1, starts[row]
        shared = after < starts.size and starts[after] == first and counts[after] == counts[row]
        shared = shared and publics[after, 1] == publics[row, 1]
        if shared or summed:
            if not summed:
                sums = np.empty(-(-counts[row] // int(publics[row, 3])), np.int64)
                if _sum_row(values[first : first + counts[row]], publics[row], sums):
                    return row
            target = out[out_starts[row] : out_starts[row] + counts[row]]
            _emit_row(sums, publics[row], noise[row], tree_blocks, predictions[row], target)
            summed = shared
            continue
        count, block, prediction = counts[row], int(publics[row, 3]), predictions[row]
        closed = count // block
        for tree, begin in enumerate(range(0, max(closed, 1), tree_blocks)):
            closing, at = min(closed - begin, tree_blocks), begin * block
            end = count if begin + closing == closed else at + closing * block
            to = out_starts[row]
            part, target = values[first + at : first + end], out[to + at : to + end]
            zero = int(np.int64(0))
            _, prediction = publish(
                part, publics[row], noise[row, tree], zero, closing, zero, zero, prediction, target
            )
            if np.isnan(prediction):
                return row
    return -1


@kernel
def release_nodes(
    values: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    steps_per_unit: float,
    tops: np.ndarray,
    noise: np.ndarray,
    tree_blocks: int,
    fan_out: int,
    levels: int,
    leaves: int,
    resolution: float,
    scratch: np.ndarray,
    out: np.ndarray,
    out_trees: np.ndarray,
) -> None:
    """Noisy sums of all nodes of each row's trees, for inconsistent hierarchies.

    As :func:`close_rows` and ``hierarchy_nodes.release_tree``; ``noise``: int64[n, T, nodes]; ``out``: float64[trees,
    nodes], row i from ``out_trees[i]`` on.
    """
    for row in range(starts.size):
        for tree, begin in enumerate(range(0, counts[row], tree_blocks)):
            first = starts[row] + begin
            release_tree(
                values[first : first + min(counts[row] - begin, tree_blocks)],
                steps_per_unit,
                tops[row],
                noise[row, tree],
                fan_out,
                levels,
                leaves,
                resolution,
                scratch,
                out[out_trees[row] + tree],
            )
