"""The online pass: values to integer block sums, released totals to published values.

ToPS Algorithm 1, lines 11 to 28, in the reading of ``docs/tops.md``: a value is clipped to the threshold
and rounded to the grid, added to its block, and then something is published at once: the prediction, or,
for the last value of a block, the released block total less what the block has published so far.

Letters: n values, g = block length, ``filled`` = values already in the open block.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import bits_of, kernel

# Adding 1.5 * 2^52 rounds a double in [0, 2^51] to the nearest integer (ties to even) and leaves that
# integer in the low bits: a conversion that every vector unit has.
ROUNDER = 1.5 * 2.0**52
ROUNDER_BITS = np.int64(0x4338000000000000)
LARGEST = 1.7976931348623157e308


@kernel
def sum_blocks(
    values: np.ndarray, steps_per_unit: float, top: float, block: int, filled: int, sums: np.ndarray
) -> int:
    """Clip to [0, top] steps, round to the grid and sum by block.

    Parameters
    ----------
    values : float64[n]
        In units of the input.
    steps_per_unit : float
        1 / resolution, a power of two.
    top : float
        The threshold in steps, a whole number up to 2^51.
    block : int
        g >= 1.
    filled : int
        Values that the first block already holds, in [0, g).
    sums : int64[ceil((filled + n) / g)]
        What these values add to each block, in steps (the first and last block may be partial).

    Returns
    -------
    int
        How many values are NaN or infinite; these count as 0.
    """
    n = values.size
    bad = 0
    begin = 0
    for j in range(sums.size):
        end = min(n, (j + 1) * block - filled)
        # A slice, so that the compiler sees indices from zero and vectorises.
        part = values[begin:end]
        total = np.int64(0)
        wrong = 0
        for i in range(part.size):
            v = part[i]
            finite = abs(v) <= LARGEST
            x = v * steps_per_unit
            x = x if x > 0.0 else 0.0
            x = x if x < top else top
            x = x if finite else 0.0
            total += bits_of(x + ROUNDER) - ROUNDER_BITS
            wrong += not finite
        sums[j] = total
        bad += wrong
        begin = end
    return bad


@kernel
def round_values(values: np.ndarray, steps_per_unit: float, top: float, steps: np.ndarray) -> int:
    """Clip to [0, top] steps and round to the grid: :func:`sum_blocks` for blocks of one value."""
    bad = 0
    for i in range(values.size):
        v = values[i]
        finite = abs(v) <= LARGEST
        x = v * steps_per_unit
        x = x if x > 0.0 else 0.0
        x = x if x < top else top
        x = x if finite else 0.0
        steps[i] = bits_of(x + ROUNDER) - ROUNDER_BITS
        bad += not finite
    return bad


@kernel
def add_noise(steps: np.ndarray, noise: np.ndarray, resolution: float, out: np.ndarray) -> None:
    """Publish noisy integers in units of the input: out = (steps + noise) * resolution."""
    for i in range(out.size):
        out[i] = np.float64(steps[i] + noise[i]) * resolution


@kernel
def emit_blocks(totals: np.ndarray, predictions: np.ndarray, block: int, filled: int, out: np.ndarray) -> None:
    """Publish predictions, and close the account with the last value of each block.

    Parameters
    ----------
    totals : float64[k]
        Released totals of the k blocks that close within this chunk, in units of the input.
    predictions : float64[k + 1]
        What each value of a block is predicted to be; the last entry is for the block left open.
    block : int
        g >= 2.
    filled : int
        Values already published in the first block.
    out : float64[n]
        One published value per value.
    """
    begin = 0
    for j in range(totals.size):
        end = (j + 1) * block - filled
        prediction = predictions[j]
        out[begin : end - 1] = prediction
        out[end - 1] = totals[j] - prediction * np.float64(block - 1)
        begin = end
    prediction = predictions[totals.size]
    out[begin:] = prediction
