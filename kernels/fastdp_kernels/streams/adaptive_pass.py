"""The online pass where released sums decide how long blocks are, and what is published in them.

Letters: n values; a block has 2^k of them.  Everything but the open sum is a function of released sums.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel, plus
from fastdp_kernels.noise.chacha import CHAIN, block_words, draw_words
from fastdp_kernels.noise.guarded_log import DOUBTFUL
from fastdp_kernels.streams.block_lengths import CATCH, EXPONENT, EXTRA, PREDICTION, UNIT, close_block
from fastdp_kernels.streams.online_pass import sum_part, sum_signed

#: Why the pass stopped early: a doubtful draw, or a threshold that rose.
UNSETTLED, ROSE = 1, 2
#: Numbers that a block leaves behind, see ``sum_bound``.
COLUMNS = 5


@inline
def _note(memory: np.ndarray, block: np.ndarray) -> None:
    """What the open block's values are published as; its sum is not there yet."""
    block[0] = memory[EXPONENT]
    block[2] = memory[PREDICTION]
    block[3] = memory[EXTRA]
    block[4] = memory[CATCH]


@kernel
def sum_bound(
    values: np.ndarray,
    steps_per_unit: float,
    top: float,
    theta_steps: float,
    shape: np.ndarray,
    lengths: np.ndarray | None,
    noise: np.ndarray,
    chain: np.ndarray,
    first: int,
    law: np.ndarray,
    settled: int,
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
        1 / resolution, and the largest step that a value counts as; with ``lengths`` it is negative: values of any
        sign count, up to so many steps in size.
    theta_steps : float
        The first threshold in steps, in which sums are measured.
    shape : float64[SHAPE]
        Public parameters, see ``block_lengths``.
    lengths : float64[5] or None
        What ``block_lengths.lengths_of_events`` says of ``shape``.
    noise : int64[any]
        Receives the noise of the blocks that close; the pass stops where there is no more room.
    chain : uint64[4]
        The chain key that the next block's noise comes from (``chacha``); moved on in place.
        uint64[0]: all of ``noise`` is given (a stream that began before noise was bound).
    first : int
        Index of the first block that this call may close.
    law : float64[4]
        The law of noise, as ``chacha.draw_words`` takes it.
    settled : int
        So many of the first entries of ``noise`` are given: the caller has settled a doubtful draw.
    counters : int64[4]
        Values in the open block, their sum in steps, blocks closed by this call; and UNSETTLED if the open block is
        full and its draw doubtful, ROSE if the last block let the threshold rise; changed in place.
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
    while True:
        room = (1 << int(memory[EXPONENT])) - counters[0]
        if room:
            if at == values.size or (room <= values.size - at and closed == noise.size):
                break
            part = room if room <= values.size - at else values.size - at
            if lengths is None:
                total, part_flags = sum_part(values[at : at + part], steps_per_unit, top)
            else:
                total, part_flags = sum_signed(values[at : at + part], steps_per_unit, -top)
            flags |= part_flags
            counters[1] = plus(counters[1], total)
            counters[0] += part
            at += part
            if part < room:
                break
        if chain.size:
            words = block_words(chain, first + closed, counters[1], 0)
            if closed >= settled:
                drawn = draw_words(words[CHAIN], words[CHAIN + 1], law)
                if drawn == DOUBTFUL:
                    counters[3] = UNSETTLED
                    break
                noise[closed] = drawn
            # Assigned as arrays, Numba would compile the text of an error about their sizes besides: two seconds.
            for i in range(CHAIN):
                chain[i] = words[i]
        released = np.float64(plus(counters[1], noise[closed])) / theta_steps
        _note(memory, blocks[closed])
        blocks[closed, 1] = released
        unit = memory[UNIT]
        close_block(memory, released, shape, lengths)
        closed += 1
        counters[0] = 0
        counters[1] = 0
        if memory[UNIT] != unit:
            # Another threshold: another law.
            counters[3] = ROSE
            break
    counters[2] = closed
    _note(memory, blocks[closed])
    return -1 if flags < 0 else at


@kernel
def emit_adaptive(
    blocks: np.ndarray, filled: int, theta: float, spikes: bool, singles: bool, out: np.ndarray
) -> None:
    """Publish predictions, block by block.

    Parameters
    ----------
    blocks : float64[any, COLUMNS]
        As :func:`sum_bound` wrote them, the block left open last.
    filled : int
        Values already published in the first block.
    theta : float
        The threshold in units of the input.
    spikes : bool
        Whether the last value of a block closes the account: the released sum less what the others published.
    singles : bool
        Whether a block of one value publishes its released sum, and what it makes up for besides.
    out : float64[n]
        One published value per value.
    """
    at = 0
    for j in range(blocks.shape[0]):
        block = blocks[j]
        length, extra = 1 << int(block[0]), block[3]
        usual = block[2] * theta
        first = usual + extra * theta
        end = at + length - filled
        end = end if end < out.size else out.size
        caught = at + int(block[4]) - filled
        caught = at if caught < at else caught
        caught = end if end < caught else caught
        out[at:caught] = first
        out[caught:end] = usual
        if j < blocks.shape[0] - 1:
            if spikes:
                out[end - 1] = block[1] * theta - usual * np.float64(length - 1)
            elif singles and length == 1:
                out[end - 1] = (block[1] + extra) * theta
        at = end
        filled = 0


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
    """Publish values that leave the open block open: :func:`sum_bound` and :func:`emit_adaptive` in one call.

    Parameters
    ----------
    values, steps_per_unit, top, memory
        As for :func:`sum_bound`; the memory stays as it is.
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
