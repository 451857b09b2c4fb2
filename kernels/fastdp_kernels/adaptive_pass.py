"""The online pass where released sums decide how long blocks are, and what is published in them.

Letters: n values; a block has 2^k of them.  Everything but the open sum is a function of released sums.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel, plus
from fastdp_kernels.block_lengths import CATCH, EXPONENT, EXTRA, PREDICTION, close_block
from fastdp_kernels.online_pass import sum_part

#: Numbers that a block leaves behind, see ``sum_adaptive``.
COLUMNS = 5


@kernel
def sum_adaptive(
    values: np.ndarray,
    steps_per_unit: float,
    top: float,
    theta_steps: float,
    shape: np.ndarray,
    noise: np.ndarray,
    counters: np.ndarray,
    memory: np.ndarray,
    blocks: np.ndarray,
) -> int:
    """Clip, round and sum values; release each block's sum with its noise, and let it choose the next block.

    Parameters
    ----------
    values : float64[n]
        In units of the input.
    steps_per_unit, top : float
        1 / resolution, and the largest step that a value counts as.
    theta_steps : float
        The threshold in steps, in which sums are measured.
    shape : float64[SHAPE]
        Public parameters, see :mod:`fastdp_kernels.block_lengths`.
    noise : int64[any]
        Noise of the blocks to come; when it is used up the pass stops.
    counters : int64[3]
        Values in the open block, their sum in steps, and blocks closed by this call; changed in place.
    memory : float64[MEMORY]
        What released sums have taught; changed in place.
    blocks : float64[noise.size + 1, COLUMNS]
        Receives exponent, released sum in thresholds, and what the block's values were published as (prediction,
        extra, and how many values the extra is for) of each closed block, and the same of the block left open (its
        sum is not written).

    Returns
    -------
    int
        How many values were consumed; -1 if one of them is NaN or infinite.
    """
    at, closed = 0, counters[2]
    flags = np.int64(0)
    while at < values.size:
        room = (1 << int(memory[EXPONENT])) - counters[0]
        if room <= values.size - at and closed == noise.size:
            break
        part = min(room, values.size - at)
        total, part_flags = sum_part(values[at : at + part], steps_per_unit, top)
        flags |= part_flags
        counters[1] = plus(counters[1], total)
        counters[0] += part
        at += part
        blocks[closed, 0] = memory[EXPONENT]
        blocks[closed, 2] = memory[PREDICTION]
        blocks[closed, 3] = memory[EXTRA]
        blocks[closed, 4] = memory[CATCH]
        if part == room:
            released = np.float64(plus(counters[1], noise[closed])) / theta_steps
            blocks[closed, 1] = released
            close_block(memory, released, shape)
            closed += 1
            counters[0] = 0
            counters[1] = 0
    counters[2] = closed
    blocks[closed, 0] = memory[EXPONENT]
    blocks[closed, 2] = memory[PREDICTION]
    blocks[closed, 3] = memory[EXTRA]
    blocks[closed, 4] = memory[CATCH]
    return -1 if flags < 0 else at


@kernel
def emit_adaptive(blocks: np.ndarray, filled: int, theta: float, spikes: bool, out: np.ndarray) -> None:
    """Publish predictions, block by block.

    Parameters
    ----------
    blocks : float64[any, COLUMNS]
        As :func:`sum_adaptive` wrote them, the block left open last.
    filled : int
        Values already published in the first block.
    theta : float
        The threshold in units of the input.
    spikes : bool
        Whether the last value of a block closes the account: the released sum less what the others published.
    out : float64[n]
        One published value per value.
    """
    at = 0
    for j in range(blocks.shape[0]):
        exponent = int(blocks[j, 0])
        length = 1 << exponent
        usual = blocks[j, 2] * theta
        first = usual + blocks[j, 3] * theta
        catch = min(max(int(blocks[j, 4]) - filled, 0), out.size - at)
        out[at : at + catch] = first
        end = min(at + length - filled, out.size)
        out[at + catch : end] = usual
        if spikes and j < blocks.shape[0] - 1:
            out[end - 1] = blocks[j, 1] * theta - usual * np.float64(length - 1)
        at = end
        filled = 0
