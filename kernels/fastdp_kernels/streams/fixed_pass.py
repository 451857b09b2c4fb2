"""The pass over n streams in blocks of one length; a publisher is the pass for one row.

Call i of m is about row ``which[i]``: its ``counts[i]`` values lie from ``starts[i]`` on, and are published from
``out_starts[i]`` on.  No row's bits depend on others or on chunks.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import Record, few_zeros, inline, kernel, records
from fastdp_kernels.noise.chacha import CHAIN
from fastdp_kernels.streams.hierarchy_nodes import release_tree
from fastdp_kernels.streams.online_pass import emit_blocks, finite_flag, publish, round_values, sum_blocks

#: Numbers of a stream between two calls, for one stream or a million.
STREAM_ROW = records(
    [
        ("n_seen", np.int64),  # values consumed, the hold-out included
        ("cycle", np.int64),  # thresholds chosen so far
        ("held", np.int64),  # values withheld for the next one
        ("theta_steps", np.int64),  # the threshold in grid steps; 0 in the first hold-out
        ("blocks", np.int64),  # closed blocks
        ("filled", np.int64),  # values in the open block
        ("open_sum", np.int64),  # their exact sum in grid steps; secret
        ("taken", np.int64),  # values of the present call that are consumed; 0 between calls
        ("released_high", np.int64),  # for renewals, of sums released under this threshold: high halves, added up,
        ("released_low", np.int64),  # and low ones, as the total may exceed 64 bits
        ("prediction", np.float64),  # published for a value of the open block
        ("chain", np.uint64, CHAIN),  # chain key of bound noise, 0 for trees; secret
    ]
)
#: Public numbers of a pass: 1 / resolution, the resolution, the bound in steps; g, and the blocks of a tree.
PASS = records(
    [
        ("per_unit", np.float64),
        ("resolution", np.float64),
        ("bound_steps", np.float64),
        ("block", np.int64),
        ("tree_blocks", np.int64),
    ]
)


@inline
def top_of(row: Record, public: Record) -> float:
    """Largest clipped value of a row, in steps."""
    top = np.float64(row.theta_steps)
    return float(top if top < public.bound_steps else public.bound_steps)


@kernel
def publish_rows(
    values: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    which: np.ndarray,
    public: Record,
    rows: Record,
    trees: np.ndarray,
    noise: np.ndarray,
    slots: np.ndarray,
    waiting: np.ndarray,
    out: np.ndarray,
    out_starts: np.ndarray,
) -> int:
    """Consume each row's values and publish one for each, where a block's mean predicts the next.

    Returns the number of calls that wait for another tree (the others are done); or, as -1 - i, the first with a
    value that is not finite.

    Parameters
    ----------
    values : float64[any] or int64[any]
    rows : STREAM_ROW[n]
        Changed in place; those that wait go on in another call with the same arguments.
    trees, noise, slots : int64[s], int64[s, T, W], int64[m]
        Call i may use ``noise[slots[i]]``: the leaves of the trees ``trees[slots[i]]`` and the T - 1 after it.
    waiting : int64[m]
        Receives the calls that wait.
    """
    p, waits = public[0], 0
    four = few_zeros(4)
    four[0], four[2], four[3] = p.per_unit, p.resolution, p.block
    block, tree_blocks = p.block, p.tree_blocks
    for i in range(counts.size):
        row, slot = rows[which[i]], slots[i]
        four[1] = np.float64(row.theta_steps) if row.theta_steps < p.bound_steps else p.bound_steps
        count, first, to = counts[i], starts[i], out_starts[i]
        stays = False
        while row.taken < count:
            at, part = row.taken, count - row.taken
            closing, drawn, leaf = (row.filled + part) // block, 0, 0
            if closing:
                tree = row.blocks // tree_blocks
                leaf, drawn = row.blocks - tree * tree_blocks, tree - trees[slot]
                if drawn < 0 or drawn >= noise.shape[1]:
                    stays = True
                    break
                if closing > tree_blocks - leaf:
                    closing = tree_blocks - leaf
                    part = closing * block - row.filled
            total, prediction = publish(
                values[first + at : first + at + part],
                four,
                noise[slot, drawn],
                leaf,
                closing,
                row.filled,
                row.open_sum,
                row.prediction,
                out[to + at : to + at + part],
            )
            if np.isnan(prediction):
                return -1 - i
            row.filled += part - closing * block
            row.blocks += closing
            row.open_sum, row.prediction = total, prediction
            row.taken += part
        if stays:
            waiting[waits] = i
            waits += 1
        else:
            row.n_seen += count
            row.taken = 0
    return waits


@kernel
def sum_rows(
    values: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    which: np.ndarray,
    public: Record,
    rows: Record,
    sums: np.ndarray,
) -> int:
    """Sum the blocks that each row's values close, then the open block, exactly; returns as :func:`first_nonfinite`.

    ``sums``: int64[m, k + 1], k that of the row with the most blocks; 0 beyond a row's own.
    """
    p = public[0]
    for i in range(counts.size):
        row, own = rows[which[i]], sums[i]
        part = values[starts[i] : starts[i] + counts[i]]
        own[:] = 0
        if p.block == 1:
            wrong = round_values(part, p.per_unit, top_of(row, p), own[: part.size])
        else:
            touched = (row.filled + part.size + p.block - 1) // p.block
            wrong = sum_blocks(part, p.per_unit, top_of(row, p), p.block, row.filled, own[:touched])
        if wrong:
            return i
        own[0] += row.open_sum
    return -1


@kernel
def emit_rows(
    sums: np.ndarray,
    totals: np.ndarray,
    predictions: np.ndarray,
    counts: np.ndarray,
    which: np.ndarray,
    public: Record,
    rows: Record,
    out: np.ndarray,
    out_starts: np.ndarray,
) -> None:
    """Publish the sums of :func:`sum_rows`, with released ``totals`` (float64[m, k]), and move the rows on.

    ``predictions``: float64[m, k + 1], of values of each block, if blocks have several.
    """
    block = public[0].block
    for i in range(counts.size):
        row, target = rows[which[i]], out[out_starts[i] : out_starts[i] + counts[i]]
        closing = (row.filled + counts[i]) // block
        if block == 1:
            target[:] = totals[i, :closing]
        else:
            emit_blocks(totals[i, :closing], predictions[i, : closing + 1], block, row.filled, target)
            row.prediction = predictions[i, closing]
            row.open_sum = sums[i, closing]
        row.filled += counts[i] - closing * block
        row.blocks += closing
        row.n_seen += counts[i]


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
    """Noisy sums of all nodes of each row's inconsistent trees (``hierarchy_nodes.release_tree``).

    ``tops``: float64[n], thresholds in steps; ``noise``: int64[n, T, nodes]; row i is from ``out_trees[i]`` on.
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
