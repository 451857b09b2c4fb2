"""Predictions that know a public season: a level and waves that wander, followed block by block in released sums.

The state is x = (level, coefficients of the waves of a period and of seven): a block's sum is  row @ x  plus its
noise, the row being the integrals of 1 and of the waves over the block.  One update of a Kalman filter a block,
whatever its length.  The signal about the waves is estimated as ``block_lengths`` does, from sums
less what the waves foresaw; how much the waves may explain is a public share of the squared level.  Whether they are
used follows from how much better than the plain level they foresaw the sums so far.  Lengths of blocks stay as they
are.

Memory: that of ``block_lengths``, then another one, of which the differences and the signal are
used, for what the waves leave; then single numbers, the state, and the lower triangle of its covariance row by row.
"""

from __future__ import annotations

import math

import numpy as np

from fastdp_kernels._jit import inline, kernel
from fastdp_kernels.streams.adaptive_pass import ROSE, sum_bound
from fastdp_kernels.streams.block_lengths import (
    BEFORE,
    DECIDED,
    DRIFT,
    EVENTS,
    EXPONENT,
    LAST,
    LENGTHS,
    LEVEL,
    MEMORY,
    NOISE,
    POSITION,
    PREDICTION,
    UNIT,
    VARIANCE,
    WHITE,
    fit_signal,
    record_difference,
)

#: Waves: so many harmonics of the period, and of the one that is so many times as long.
HARMONICS, WEEK = 6, 7
STATES = 1 + 4 * HARMONICS
#: What the waves leave: differences and signal.
LEFT = MEMORY
#: The period in values; 1 once it was seen, when the filter begins; and how much better it foresaw sums.
PERIOD = LEFT + MEMORY
BEGUN = PERIOD + 1
GAINED = PERIOD + 2
STATE = PERIOD + 3
COVARIANCE = STATE + STATES
SEASON_MEMORY = COVARIANCE + STATES * (STATES + 1) // 2

#: Variance of a wave's coefficients in squared levels: of a first harmonic (later ones have less, by their number),
#: and what part of it one of the long period has.  They move by as much again in so many periods.
AMPLITUDE, LONG_SHARE, WANDER = 0.1, 0.3, 100.0
#: The log-likelihood that waves must gain, and how fast what they gained is forgotten, by block.
CERTAIN, FORGET_GAINED = 6.0, 0.99
#: Blocks of more periods are not bent: a sum hardly shows waves that are so much shorter.
REACH = 2.0
#: No sum is known better than this part of what is not known of it.
EXACT = 1e-9
#: Parts of a block on which predictions are constant have at most 1 / FINE of a period.
FINE = 32.0


@inline
def fill_row(begin: float, length: float, period: float, row: np.ndarray) -> None:
    """What each entry of the state adds to the sum of ``length`` values."""
    row[0] = length
    at, long = 1, period
    for _ in range(2):
        start = begin - math.floor(begin / long) * long
        for harmonic in range(1, HARMONICS + 1):
            frequency = 2.0 * math.pi * harmonic / long
            # As products, so that nothing cancels in short parts of long periods.
            half = 0.5 * frequency * length
            middle, size = frequency * start + half, 2.0 * math.sin(half) / frequency
            row[at], row[at + 1] = math.cos(middle) * size, math.sin(middle) * size
            at += 2
        long *= WEEK


@inline
def prior_variance(entry: int, level: float) -> float:
    """Of a wave's coefficient, where values have this level."""
    harmonic = (entry - 1) % (2 * HARMONICS) // 2 + 1
    return AMPLITUDE * level * level / harmonic * (LONG_SHARE if entry > 2 * HARMONICS else 1.0)


@kernel
def start_season(period: float, memory: np.ndarray) -> None:
    """Before the first block: ``memory`` (float64[SEASON_MEMORY]) has its first part already."""
    memory[LEFT:] = 0.0
    memory[PERIOD] = period


@inline
def _parts(memory: np.ndarray, shape: np.ndarray) -> int:
    """On how many parts of the open block predictions differ: 0 if they do not know the season."""
    length = LENGTHS[int(memory[EXPONENT])]
    single = shape[EVENTS] != 0.0 and length == 1.0
    if memory[BEGUN] == 0.0 or memory[GAINED] <= 0.0 or length > REACH * memory[PERIOD] or single:
        return 0
    parts, most = 1, max(memory[PERIOD] / FINE, 1.0)
    while length > parts * most:
        parts *= 2
    return parts


@inline
def _predicted(memory: np.ndarray, shape: np.ndarray, part: int, size: float, row: np.ndarray) -> float:
    """What a value of a part of the open block is published as, besides what makes up for the block before."""
    fill_row(memory[POSITION] + part * size, size, memory[PERIOD], row)
    expected = 0.0
    for a in range(STATES):
        expected += row[a] * memory[STATE + a]
    share = 1.0 / (1.0 + math.exp(CERTAIN - memory[GAINED]))
    value = memory[LEVEL] + share * (expected / size - memory[LEVEL])
    return float(value if shape[EVENTS] != 0.0 else min(max(value, 0.0), memory[UNIT]))


@kernel
def bend(memory: np.ndarray, shape: np.ndarray, filled: int, bends: np.ndarray) -> None:
    """How far predictions of the open block's values, from the one after ``filled``, are from their mean.

    ``bends`` (float64[any]) receives that of the next values, all of which are in the block.
    """
    parts = _parts(memory, shape)
    if parts == 0:
        bends[:] = 0.0
        return
    size, row = (1 << int(memory[EXPONENT])) // parts, np.empty(STATES)
    at = 0
    while at < bends.size:
        part = (filled + at) // size
        end = min((part + 1) * size - filled, bends.size)
        bends[at:end] = _predicted(memory, shape, part, np.float64(size), row) - memory[PREDICTION]
        at = end


@kernel
def follow_season(
    memory: np.ndarray, total: float, exponent: int, level: float, unit: float, last: float, shape: np.ndarray
) -> None:
    """Take in a block's released sum, once :func:`block_lengths.close_block` has, and predict the next block.

    Parameters
    ----------
    memory : float64[SEASON_MEMORY]
        Changed in place; of its first part PREDICTION alone.
    total : float
        The released sum, in thresholds.
    exponent, level, unit, last
        EXPONENT, LEVEL, UNIT and LAST before the block was closed.
    shape : float64[SHAPE]
        Public parameters.
    """
    length = LENGTHS[exponent]
    if memory[BEGUN] != 0.0:
        _observe(memory, total, exponent, level, unit, (length + LENGTHS[int(last)]) / 2.0, shape)
    elif memory[POSITION] >= memory[PERIOD]:
        # Till now waves explained nothing.
        memory[LEFT : LEFT + MEMORY] = memory[:MEMORY]
        memory[BEGUN], level = 1.0, memory[LEVEL]
        memory[STATE] = level
        memory[COVARIANCE] = memory[VARIANCE] + AMPLITUDE * level * level
        for a in range(1, STATES):
            memory[COVARIANCE + a * (a + 3) // 2] = prior_variance(a, level)
    parts = _parts(memory, shape)
    if parts:
        size, row, mean = LENGTHS[int(memory[EXPONENT])] / parts, np.empty(STATES), 0.0
        for part in range(parts):
            mean += _predicted(memory, shape, part, size, row) / parts
        memory[PREDICTION] = mean


@inline
def _observe(
    memory: np.ndarray, total: float, exponent: int, level: float, unit: float, gap: float, shape: np.ndarray
) -> None:
    """One step of the filter, and what it foresaw better than the plain level."""
    length, noise, period = LENGTHS[exponent], shape[NOISE] * unit * unit, memory[PERIOD]
    left, state, covariance = memory[LEFT : LEFT + MEMORY], memory[STATE:COVARIANCE], memory[COVARIANCE:]
    row, gain = np.empty(STATES), np.zeros(STATES)
    fill_row(left[POSITION], length, period, row)
    covariance[0] += left[DRIFT] * gap
    for a in range(1, STATES):
        long = WEEK if a > 2 * HARMONICS else 1
        covariance[a * (a + 3) // 2] += prior_variance(a, level) * gap / (WANDER * period * long)
    at = 0
    for a in range(STATES):
        for c in range(a):
            gain[a] += covariance[at] * row[c]
            gain[c] += covariance[at] * row[a]
            at += 1
        gain[a] += covariance[at] * row[a]
        at += 1
    expected = variance = 0.0
    for a in range(STATES):
        expected += row[a] * state[a]
        variance += row[a] * gain[a]
    # So that rounding never makes it negative where there is next to no noise.
    variance = max(variance, 0.0)
    variance += max(left[WHITE] * length + noise, EXACT * variance)
    error, missed = total - expected, total - length * level
    if length <= REACH * period:
        # In variances of the plain prediction: waves gain by what they foresee, not by expecting less of themselves.
        own = length * length * memory[BEFORE] + memory[WHITE] * length + noise
        memory[GAINED] = FORGET_GAINED * memory[GAINED] + 0.5 * (missed * missed - error * error) / own
    explained = expected - length * state[0]
    at = 0
    for a in range(STATES):
        state[a] += gain[a] * error / variance
        for c in range(a + 1):
            covariance[at] -= gain[a] * gain[c] / variance
            at += 1
        covariance[at - 1] = max(covariance[at - 1], 0.0)
    record_difference(left, total - explained, exponent, shape[NOISE], unit * unit)
    left[POSITION] = memory[POSITION]
    if memory[DECIDED] == memory[POSITION]:
        left[WHITE], left[DRIFT] = fit_signal(left, shape)


@kernel
def sum_in_season(
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
    bends: np.ndarray,
) -> int:
    """:func:`sum_bound`, block by block, each of which the filter follows.

    Parameters
    ----------
    values, steps_per_unit, top, theta_steps, shape, lengths, noise, chain, first, law, settled, counters, blocks
        As for :func:`sum_bound`; with an empty ``chain`` all noise is given.
    memory : float64[SEASON_MEMORY]
        Changed in place.
    bends : float64[n]
        Receives how far the prediction of each value is from the mean of its block's.

    Returns
    -------
    int
        As :func:`sum_bound`.
    """
    at = 0
    while True:
        closed, exponent = counters[2], int(memory[EXPONENT])
        level, unit, last = memory[LEVEL], memory[UNIT], memory[LAST]
        part = min((1 << exponent) - counters[0], values.size - at)
        bend(memory, shape, counters[0], bends[at : at + part])
        room = min(closed + 1, noise.size)
        consumed = sum_bound(
            values[at : at + part],
            steps_per_unit,
            top,
            theta_steps,
            shape,
            lengths,
            noise[:room],
            chain,
            first,
            law,
            settled,
            counters,
            memory,
            blocks[: room + 1],
        )
        if consumed < 0:
            return consumed
        at += consumed
        if counters[2] == closed:
            return at
        follow_season(memory, blocks[closed, 1], exponent, level, unit, last, shape)
        blocks[counters[2], 2] = memory[PREDICTION]
        if counters[3] == ROSE:
            return at
