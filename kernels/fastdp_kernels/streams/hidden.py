"""How much a block of values hides: a cautious bound from released sums of blocks, for intervals of cut blocks.

The sum of the first L of g values, given the sum of all g, is taken to have the variance  rate L (1 - L / g)  about
its share of the sum: exact for independent values of variance ``rate``, and cautious for values that move together,
when the rate is what the energy seen at the scale of the blocks says (a white stream of that energy).

The largest of three rates counts: the signal as it was known at the block, as it is known at the end, and half of
mu (1 - mu), which bounds the variance of values of [0, 1] with mean mu.  What energies may miss because noise hides
it is added.  ``docs/intervals.md`` has the measured coverage.
"""

from __future__ import annotations

import math

import numpy as np

from fastdp_kernels._jit import inline, kernel
from fastdp_kernels.streams.block_lengths import DRIFT, EXPONENT, LENGTHS, NOISE, UNIT, VARIANCE, WHITE, close_block

#: Share of mu (1 - mu) that a rate has at least.
MIN_SHARE = 0.5
#: Energies unseen, in noise variances of a block, a value, over the root of the number of pairs seen (or MAX_PAIRS).
UNSEEN = 6.0
MAX_PAIRS = 50.0


@inline
def cautious_rate(energy_rate: float, level: float, noise: float, length: float, pairs: float) -> float:
    """Variance a value, in squared thresholds.

    Parameters
    ----------
    energy_rate : float
        What energies say.
    level : float
        Mean of a value, in thresholds.
    noise : float
        Variance of a block's noise.
    length, pairs : float
        Values of the block, and how many pairs of blocks the energies are from.
    """
    mean = min(max(level, 0.0), 1.0)
    unseen = UNSEEN * noise / length / math.sqrt(min(pairs, MAX_PAIRS))
    return float(max(energy_rate, MIN_SHARE * mean * (1.0 - mean)) + unseen)


@kernel
def hidden_rates(
    memory: np.ndarray,
    shape: np.ndarray,
    lengths: np.ndarray | None,
    exponents: np.ndarray,
    totals: np.ndarray,
    levels: np.ndarray,
    rates: np.ndarray,
) -> tuple[float, float]:
    """The rate of every block, and of the values behind the last one.

    Parameters
    ----------
    memory : float64[MEMORY]
        As it was before the first of the blocks; left as it is after the last.
    shape : float64[SHAPE]
        Public parameters.
    lengths : float64[5] or None
        What ``block_lengths.lengths_of_events`` says of ``shape``.
    exponents, totals : float64[J]
        Lengths 2^k and released sums.
    levels : float64[max(J, 1)]
        Mean of a value in each block, in thresholds.
    rates : float64[J + 1]
        Receives the rates; the last is that of the block left open.

    Returns
    -------
    (float, float)
        For the values behind the last block: the level's variance, and by which it grows with each value.
    """
    count = totals.size
    units = np.ones(count + 1)
    for j in range(count):
        units[j] = memory[UNIT]
        memory[EXPONENT] = exponents[j]
        close_block(memory, totals[j], shape, lengths)
        length = LENGTHS[int(exponents[j])]
        rates[j] = memory[WHITE] + memory[DRIFT] * length * length / 3.0
    units[count] = memory[UNIT]
    for j in range(count + 1):
        exponent = exponents[j] if j < count else memory[EXPONENT]
        length = LENGTHS[int(exponent)]
        rate = memory[WHITE] + memory[DRIFT] * length * length / 3.0
        rate = max(rate, rates[j]) if j < count else rate
        # In units of the threshold that the block had.
        unit = units[j]
        level = levels[min(j, levels.size - 1)] / unit
        rates[j] = unit * unit * cautious_rate(rate / unit / unit, level, shape[NOISE], length, 0.5 * (j + 1) + 1.0)
    return float(memory[VARIANCE]), float(memory[DRIFT])
