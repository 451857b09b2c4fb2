"""A stream smoothed along time from both sides after its release, and sums over it.

A block's level is that of a Kalman smoother (Rauch, Tung and Striebel); its mean lies between released mean and
level.  J blocks; block j covers [edges[j], edges[j + 1]), in units of the first threshold.
"""

from __future__ import annotations

import math

import numpy as np

from fastdp_kernels._jit import Record, inline, kernel
from fastdp_kernels.streams.block_lengths import LENGTHS, LOUDER, close_block

#: The signal at a block is that known so many blocks later, about half of the differences of which lie behind it.
AHEAD = 32


@inline
def _noise_of(place: float, shape: Record) -> float:
    return float(shape.noise * LOUDER * LOUDER if place else shape.noise)


@kernel
def revise_blocks(
    memory: Record,
    shape: Record,
    lengths: np.ndarray | None,
    exponents: np.ndarray,
    totals: np.ndarray,
    places: np.ndarray,
    pattern: np.ndarray,
    means: np.ndarray,
    levels: np.ndarray,
    noises: np.ndarray,
    whites: np.ndarray,
    drifts: np.ndarray,
    surprises: np.ndarray,
) -> None:
    """Mean and level of every block, given all released sums.

    Parameters
    ----------
    memory, shape, lengths
        As for ``adaptive_pass.sum_bound``: before the first block, afterwards after the last.
    exponents, totals, places : float64[J]
        Lengths 2^k, released sums, and places in a group, or 0.
    pattern : float64[J] or float64[0]
        Sums that a pattern explains, to be left out; ``noises`` are then given.
    noises : float64[J]
        Receives each noise variance outside groups, in that under the first threshold.
    means, levels, whites, drifts, surprises : float64[J]
        Receive a value's mean, the level, the signal, and distances from forecasts in standard deviations.
    """
    memory, shape, count = memory[0], shape[0], totals.size
    after = np.empty(count)
    before = np.empty(count)
    level, variance = memory.level, memory.variance
    first_block, last = memory.position == 0.0, LENGTHS[int(memory.last)]
    if pattern.size:
        # Sums less a pattern do not show how the threshold rose.
        memory.reference = -1.0
    for j in range(count):
        memory.exponent, memory.group = exponents[j], places[j]
        total = totals[j]
        if pattern.size:
            memory.unit = np.sqrt(noises[j])
            total -= pattern[j]
        else:
            noises[j] = memory.unit * memory.unit
        close_block(memory, total, shape, lengths)
        means[j] = total / LENGTHS[int(exponents[j])]
        whites[j], drifts[j] = memory.white, memory.drift
    for j in range(count):
        # A stream may change: the signal is not that of the end.
        known = min(j + AHEAD, count - 1)
        whites[j], drifts[j] = whites[known], drifts[known]
        length = LENGTHS[int(exponents[j])]
        if j > 0 or not first_block:
            variance += drifts[j] * (length + last) / 2.0
        own = _noise_of(places[j], shape) * noises[j] / length
        spread = variance + (whites[j] + own) / length
        surprises[j] = (means[j] - level) / np.sqrt(spread)
        gain = variance / spread
        before[j] = variance
        level += gain * (means[j] - level)
        variance *= 1.0 - gain
        levels[j], after[j], last = level, variance, length
    for j in range(count - 2, -1, -1):
        if before[j + 1] > 0.0:
            levels[j] += after[j] / before[j + 1] * (levels[j + 1] - levels[j])
    for j in range(count):
        white, own = whites[j], _noise_of(places[j], shape) * noises[j] / LENGTHS[int(exponents[j])]
        means[j] = levels[j] + (white / (white + own) * (means[j] - levels[j]) if white > 0.0 else 0.0)


@inline
def _edge_level(edges: np.ndarray, levels: np.ndarray, left: int) -> float:
    if left < 0:
        return float(levels[0])
    if left >= levels.size - 1:
        return float(levels[levels.size - 1])
    a = np.float64(edges[left + 1] - edges[left])
    b = np.float64(edges[left + 2] - edges[left + 1])
    return float((levels[left] * b + levels[left + 1] * a) / (a + b))


@kernel
def index_blocks(edges: np.ndarray, shift: int, table: np.ndarray) -> None:
    """Fill the block of every 2^shift-th value, int64[ceil(edges[J] / 2^shift)]; no block is shorter."""
    for j in range(edges.size - 1):
        for i in range(edges[j] >> shift, edges[j + 1] >> shift):
            table[i] = j


@kernel
def sum_revised(
    edges: np.ndarray,
    means: np.ndarray,
    levels: np.ndarray,
    sums: np.ndarray,
    shift: int,
    table: np.ndarray,
    stops: np.ndarray,
    out: np.ndarray,
) -> None:
    """Sum the revised stream over [0, stop), float64[q], in constant time each.

    Values after the last edge stay at the last level; ``sums``, float64[J + 1]: before each block; ``shift``,
    ``table``: of :func:`index_blocks`.
    """
    count = means.size
    for i in range(stops.size):
        if stops[i] >= edges[count]:
            out[i] = sums[count] + levels[count - 1] * np.float64(stops[i] - edges[count])
            continue
        j = table[stops[i] >> shift]
        length = np.float64(edges[j + 1] - edges[j])
        x = np.float64(stops[i] - edges[j]) / length
        left, middle, right = _edge_level(edges, levels, j - 1), levels[j], _edge_level(edges, levels, j)
        half = (left + middle) / 4.0
        whole = half + (middle + right) / 4.0
        if x < 0.5:
            part = left * x + (middle - left) * x * x
        else:
            part = half + middle * (x - 0.5) + (right - middle) * (x - 0.5) * (x - 0.5)
        out[i] = sums[j] + length * (part + (means[j] - whole) * x)


# How much a block of values hides: a cautious bound from released sums of blocks, for intervals of cut blocks.
#
# The sum of the first L of g values, given the sum of all g, is taken to have the variance  rate L (1 - L / g)  about
# its share of the sum: exact for independent values of variance ``rate``, and cautious for values that move together,
# when the rate is that of a white stream with the energy seen at the scale of the blocks.
#
# The largest of three rates counts: the signal as it was known at the block, as it is known at the end, and half of
# mu (1 - mu), which bounds the variance of values of [0, 1] with mean mu.  Energy that noise may hide is
# added.  ``docs/streams_proofs.md`` has the measured coverage.

#: Share of mu (1 - mu) that a rate has at least.
MIN_SHARE = 0.5
#: Energies unseen, in noise variances of a block, a value, over the root of the number of pairs seen (or MAX_PAIRS).
UNSEEN = 6.0
MAX_PAIRS = 50.0


@inline
def cautious_rate(energy_rate: float, level: float, noise: float, length: float, pairs: float) -> float:
    """Variance a value, in squared thresholds.

    ``energy_rate``: by energies of ``pairs`` of blocks; ``level``: mean of a value.
    """
    mean = min(max(level, 0.0), 1.0)
    unseen = UNSEEN * noise / length / math.sqrt(min(pairs, MAX_PAIRS))
    return float(max(energy_rate, MIN_SHARE * mean * (1.0 - mean)) + unseen)


@kernel
def hidden_rates(
    memory: Record,
    shape: Record,
    lengths: np.ndarray | None,
    exponents: np.ndarray,
    totals: np.ndarray,
    places: np.ndarray,
    levels: np.ndarray,
    rates: np.ndarray,
) -> tuple[float, float]:
    """Fill the variance a value hidden in every block (``rates``, float64[J + 1], the open one last).

    Returns, for later values, the level's variance and its growth a value.  ``memory`` to ``places`` as for
    :func:`revise_blocks`; ``levels``: float64[max(J, 1)].
    """
    memory, shape, count = memory[0], shape[0], totals.size
    units = np.ones(count + 1)
    for j in range(count):
        units[j] = memory.unit
        memory.exponent, memory.group = exponents[j], places[j]
        close_block(memory, totals[j], shape, lengths)
        length = LENGTHS[int(exponents[j])]
        rates[j] = memory.white + memory.drift * length * length / 3.0
    units[count] = memory.unit
    for j in range(count + 1):
        exponent = exponents[j] if j < count else memory.exponent
        length = LENGTHS[int(exponent)]
        rate = memory.white + memory.drift * length * length / 3.0
        rate = max(rate, rates[j]) if j < count else rate
        # In units of the threshold that the block had.
        unit = units[j]
        level = levels[min(j, levels.size - 1)] / unit
        noise = _noise_of(places[j] if j < count else memory.group, shape)
        rates[j] = unit * unit * cautious_rate(rate / unit / unit, level, noise, length, 0.5 * (j + 1) + 1.0)
    return float(memory.variance), float(memory.drift)
