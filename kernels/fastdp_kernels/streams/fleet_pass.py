"""One value each of many streams whose blocks follow what was released, in any order, in one pass.

Rows carry what ``adaptive_pass`` carries for one stream, without the scales that no block has
reached: a stream's first values need a twentieth of the memory.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel, plus
from fastdp_kernels.noise.chacha import CHAIN, block_words, draw_words
from fastdp_kernels.noise.guarded_log import DOUBTFUL
from fastdp_kernels.streams.block_lengths import (
    CATCH,
    EXPONENT,
    EXTRA,
    LENGTHS,
    MEMORY,
    POSITION,
    PREDICTION,
    REFERENCE,
    SCALES,
    UNIT,
    close_block,
)
from fastdp_kernels.streams.online_pass import sum_part, sum_signed

#: Single numbers of a memory (but those of a threshold that rises: a fleet's is public), and entries that there is
#: one a scale of.
SINGLES = UNIT - POSITION
BY_SCALE = POSITION // SCALES
#: Values in the open block, their exact sum, and closed blocks.
FILLED, OPEN_SUM, BLOCKS = 0, 1, 2
COUNTERS = 3


@kernel
def in_steps(value: np.ndarray, public: np.ndarray) -> np.int64:
    """One value (float64[1]) clipped and rounded to the grid; ``public`` as for :func:`publish_rows`."""
    if public[1] < 0.0:
        total, _ = sum_signed(value, public[0], -public[1])
    else:
        total, _ = sum_part(value, public[0], public[1])
    return total


@kernel
def furthest(slots: np.ndarray, times: np.ndarray, counters: np.ndarray, singles: np.ndarray) -> np.int64:
    """Up to where the blocks that close reach, in values of their streams; 0 if none closes.

    ``slots`` (int64[m]) are distinct streams and ``times`` (int64[m]) how many values each gets; the others as for
    :func:`publish_rows`.
    """
    reached = np.int64(0)
    for row in range(slots.size):
        slot = slots[row]
        filled = counters[slot, FILLED] + times[row]
        if filled >= np.int64(LENGTHS[int(singles[slot, EXPONENT - POSITION])]):
            reached = max(reached, np.int64(singles[slot, 0]) + filled)
    return reached


@kernel
def publish_rows(
    slots: np.ndarray,
    values: np.ndarray,
    begin: int,
    public: np.ndarray,
    spikes: bool,
    events: bool,
    shape: np.ndarray,
    lengths: np.ndarray | None,
    law: np.ndarray,
    settled: np.ndarray,
    counters: np.ndarray,
    chains: np.ndarray,
    singles: np.ndarray,
    scales: np.ndarray,
    out: np.ndarray,
) -> int:
    """Consume a value a row, and publish one for it.

    Parameters
    ----------
    slots : int64[m]
        Whose value each row is; a stream may have several rows.
    values : float64[m]
        Finite, in units of the input.
    begin : int
        The first row to work on.
    public : float64[4]
        1 / resolution, the largest step that a value counts as (negative: in size), theta in steps and in units of
        the input.
    spikes, events : bool
        As ``spikes`` and ``singles`` of ``adaptive_pass.emit_adaptive``.
    shape, lengths, law : float64[SHAPE], float64[5] or None, float64[4]
        As for ``adaptive_pass.sum_bound``.
    settled : int64[0 or 1]
        The noise of the block that row ``begin`` closes, if the caller has settled it.
    counters : int64[n, COUNTERS]
        Of each stream; changed in place, as the others are.
    chains : uint64[n, CHAIN]
        Chain keys.
    singles : float64[n, SINGLES]
        The single numbers of each stream's memory.
    scales : float64[n, BY_SCALE, s]
        Its entries by scale, of the first s scales: more than any block of these rows reaches.
    out : float64[m]
        Receives the published values.

    Returns
    -------
    int
        How many rows are done; fewer than m if the draw of the next one's block is doubtful: that row is as it was.
    """
    memory = np.zeros(MEMORY)
    memory[UNIT], memory[REFERENCE] = 1.0, -1.0
    kept = scales.shape[2]
    theta_steps, theta = public[2], public[3]
    for row in range(begin, slots.size):
        slot = slots[row]
        mine, single = counters[slot], singles[slot]
        open_sum = plus(mine[OPEN_SUM], in_steps(values[row : row + 1], public))
        filled = mine[FILLED] + 1
        usual = single[PREDICTION - POSITION] * theta
        published = usual
        if filled <= np.int64(single[CATCH - POSITION]):
            published = usual + single[EXTRA - POSITION] * theta
        length = LENGTHS[int(single[EXPONENT - POSITION])]
        if filled < np.int64(length):
            mine[FILLED], mine[OPEN_SUM] = filled, open_sum
            out[row] = published
            continue
        extra = single[EXTRA - POSITION]
        words = block_words(chains[slot], mine[BLOCKS], open_sum, 0)
        if settled.size and row == begin:
            drawn = settled[0]
        else:
            drawn = draw_words(words[CHAIN], words[CHAIN + 1], law)
            if drawn == DOUBTFUL:
                return row
        for k in range(CHAIN):
            chains[slot, k] = words[k]
        released = np.float64(plus(open_sum, drawn)) / theta_steps
        for field in range(BY_SCALE):
            for k in range(kept):
                memory[field * SCALES + k] = scales[slot, field, k]
        for k in range(SINGLES):
            memory[POSITION + k] = single[k]
        close_block(memory, released, shape, lengths)
        for field in range(BY_SCALE):
            for k in range(kept):
                scales[slot, field, k] = memory[field * SCALES + k]
        for k in range(SINGLES):
            single[k] = memory[POSITION + k]
        mine[FILLED], mine[OPEN_SUM], mine[BLOCKS] = 0, 0, mine[BLOCKS] + 1
        if spikes:
            published = released * theta - usual * (length - 1.0)
        elif events and length == 1.0:
            published = (released + extra) * theta
        out[row] = published
    return slots.size
