"""A short chunk in one call: what a publisher does for it costs less than several calls of kernels would."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel, plus
from fastdp_kernels.streams.block_lengths import CATCH, EXPONENT, EXTRA, PREDICTION
from fastdp_kernels.streams.online_pass import ROUNDER_BITS, finite_flag, step_bits, sum_part, sum_signed


@kernel
def publish_short(
    values: np.ndarray,
    public: np.ndarray,
    noise: np.ndarray,
    leaf: int,
    closing: int,
    filled: int,
    open_sum: int,
    prediction: float,
    out: np.ndarray,
) -> tuple[int, float]:
    """The online pass for any number of values, where a block's mean predicts the next block.

    What ``online_pass.sum_blocks``, ``add_noise`` and ``emit_blocks`` do array by array.

    Parameters
    ----------
    values : float64[n]
        In units of the input.
    public : float64[4]
        Steps per unit, top and resolution, as ``online_pass.publish_blocks`` takes them, and g,
        the length of a block.  One array: each argument costs as much as a dozen values.
    noise : int64[any]
        A tree's, in steps.
    leaf, closing : int
        The first entry that is used, and how many blocks close: (filled + n) // g.
    filled, open_sum : int
        Values that the first block already holds, and their sum in steps.
    prediction : float
        What each value of the first block is predicted to be.
    out : float64[n]
        The published values; of no use if a value is NaN or infinite.

    Returns
    -------
    (int, float)
        The sum of the block left open, and its prediction; NaN if a value is NaN or infinite.
    """
    steps_per_unit, top, resolution, block = public[0], public[1], public[2], int(public[3])
    flags, drawn = np.int64(0), noise[leaf : leaf + closing]
    if block == 1:
        for i in range(values.size):
            flags |= finite_flag(values[i])
            total = step_bits(values[i], steps_per_unit, top) - ROUNDER_BITS
            out[i] = np.float64(plus(total, drawn[i])) * resolution
        return 0, prediction if flags >= 0 else np.nan
    others, length = np.float64(block - 1), np.float64(block)
    at, begun = 0, np.int64(open_sum)
    for j in range(closing):
        end = at + block - filled
        total, part_flags = sum_part(values[at:end], steps_per_unit, top)
        flags |= part_flags
        released = np.float64(plus(plus(total, begun), drawn[j])) * resolution
        out[at : end - 1] = prediction
        out[end - 1] = released - prediction * others
        prediction = released / length
        at, filled, begun = end, 0, np.int64(0)
    total, part_flags = sum_part(values[at:], steps_per_unit, top)
    flags |= part_flags
    out[at:] = prediction
    return int(plus(total, begun)), prediction if flags >= 0 else np.nan


@kernel
def publish_open(
    values: np.ndarray,
    steps_per_unit: float,
    top: float,
    filled: int,
    open_sum: int,
    memory: np.ndarray,
    theta: float,
    out: np.ndarray,
) -> tuple[int, float]:
    """What ``adaptive_pass.sum_bound`` and ``emit_adaptive`` do where no block closes.

    Parameters
    ----------
    values, steps_per_unit, top, memory
        As for ``adaptive_pass.sum_bound``; the memory stays as it is.
    filled, open_sum : int
        Values that the open block already holds, and their sum in steps.
    theta : float
        The first threshold, in units of the input.
    out : float64[n]
        The published values.

    Returns
    -------
    (int, float)
        The sum of the block, and its prediction; NaN if the values fill it, or one of them is NaN or infinite.
    """
    if filled + values.size >= 1 << int(memory[EXPONENT]):
        return 0, np.nan
    if top < 0.0:
        total, flags = sum_signed(values, steps_per_unit, -top)
    else:
        total, flags = sum_part(values, steps_per_unit, top)
    usual = memory[PREDICTION] * theta
    catch = min(max(int(memory[CATCH]) - filled, 0), out.size)
    out[:catch] = usual + memory[EXTRA] * theta
    out[catch:] = usual
    return int(plus(total, np.int64(open_sum))), usual if flags >= 0 else np.nan
