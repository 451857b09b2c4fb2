"""Predictions with a public season: a level and waves that wander, followed in released sums.

A block's sum is row @ x plus noise, for x = (level, coefficients of the waves of a period and of seven); waves count
by how much better they foresaw sums so far.
"""

from __future__ import annotations

import math

import numpy as np

from fastdp_kernels._jit import Record, inline, records
from fastdp_kernels.streams.block_lengths import LENGTHS, MEMORY, fit_signal, record_difference

#: Waves: so many harmonics of the period, and of the one that is so many times as long.
HARMONICS, WEEK = 6, 7
STATES = 1 + 4 * HARMONICS
#: Memory of a publisher with a season.
SEASON = records(
    [
        ("plain", MEMORY),  # that of ``block_lengths``
        ("left", MEMORY),  # the rest beside the waves: its differences and signal are used
        ("period", np.float64),  # in values
        ("begun", np.float64),  # 1 once the period was seen, when the filter begins
        ("gained", np.float64),  # how much better the waves foresaw sums than the plain level
        ("state", np.float64, STATES),
        ("covariance", np.float64, STATES * (STATES + 1) // 2),  # its lower triangle, row by row
    ]
)

#: Variance of a wave's coefficients in squared levels: of a first harmonic (later ones have less, by their number),
#: and the part of it that one of the long period has.  They move by as much again in so many periods.
AMPLITUDE, LONG_SHARE, WANDER = 0.1, 0.3, 100.0
#: The log-likelihood that waves must gain, and how fast gains are forgotten, by block.
CERTAIN, FORGET_GAINED = 6.0, 0.99
#: Blocks of more periods are not bent: a sum hardly shows waves that are so much shorter.
REACH = 2.0
#: No sum is known better than this part of what is not known of it.
EXACT = 1e-9
#: Parts of a block on which predictions are constant have at most 1 / FINE of a period.
FINE = 32.0


@inline
def fill_row(begin: float, length: float, period: float, row: np.ndarray) -> None:
    """Fill the contribution of each entry of the state to the sum of ``length`` values."""
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
    """Variance of a wave's coefficient at this level."""
    harmonic = (entry - 1) % (2 * HARMONICS) // 2 + 1
    return AMPLITUDE * level * level / harmonic * (LONG_SHARE if entry > 2 * HARMONICS else 1.0)


@inline
def _parts(memory: Record, shape: Record) -> int:
    length = LENGTHS[int(memory.plain.exponent)]
    single = shape.events != 0.0 and length == 1.0
    if memory.begun == 0.0 or memory.gained <= 0.0 or length > REACH * memory.period or single:
        return 0
    parts, most = 1, max(memory.period / FINE, 1.0)
    while length > parts * most:
        parts *= 2
    return parts


@inline
def _predicted(memory: Record, shape: Record, part: int, size: float, row: np.ndarray) -> float:
    fill_row(memory.plain.position + part * size, size, memory.period, row)
    expected = 0.0
    for a in range(STATES):
        expected += row[a] * memory.state[a]
    share = 1.0 / (1.0 + math.exp(CERTAIN - memory.gained))
    value = memory.plain.level + share * (expected / size - memory.plain.level)
    return float(value if shape.events != 0.0 else min(max(value, 0.0), memory.plain.unit))


@inline
def bend(memory: Record, shape: Record, filled: int, bends: np.ndarray) -> None:
    """Fill differences of the open block's predictions, after ``filled`` values, from their mean."""
    parts = _parts(memory, shape)
    if parts == 0:
        bends[:] = 0.0
        return
    size, row = (1 << int(memory.plain.exponent)) // parts, np.empty(STATES)
    at = 0
    while at < bends.size:
        part = (filled + at) // size
        end = min((part + 1) * size - filled, bends.size)
        bends[at:end] = _predicted(memory, shape, part, np.float64(size), row) - memory.plain.prediction
        at = end


@inline
def follow_season(
    memory: Record, total: float, exponent: int, level: float, unit: float, last: float, shape: Record
) -> None:
    """Take in a block's released sum after :func:`block_lengths.close_block`, and predict the next."""
    length = LENGTHS[exponent]
    if memory.begun != 0.0:
        _observe(memory, total, exponent, level, unit, (length + LENGTHS[int(last)]) / 2.0, shape)
    elif memory.plain.position >= memory.period:
        # Till now waves explained nothing.
        memory.left = memory.plain
        memory.begun, level = 1.0, memory.plain.level
        memory.state[0] = level
        memory.covariance[0] = memory.plain.variance + AMPLITUDE * level * level
        for a in range(1, STATES):
            memory.covariance[a * (a + 3) // 2] = prior_variance(a, level)
    parts = _parts(memory, shape)
    if parts:
        size, row, mean = LENGTHS[int(memory.plain.exponent)] / parts, np.empty(STATES), 0.0
        for part in range(parts):
            mean += _predicted(memory, shape, part, size, row) / parts
        memory.plain.prediction = mean


@inline
def _observe(
    memory: Record, total: float, exponent: int, level: float, unit: float, gap: float, shape: Record
) -> None:
    length, noise, period = LENGTHS[exponent], shape.noise * unit * unit, memory.period
    left, state, covariance = memory.left, memory.state, memory.covariance
    row, gain = np.empty(STATES), np.zeros(STATES)
    fill_row(left.position, length, period, row)
    covariance[0] += left.drift * gap
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
    variance += max(left.white * length + noise, EXACT * variance)
    error, missed = total - expected, total - length * level
    if length <= REACH * period:
        # In variances of the plain prediction: waves gain by good forecasts, not by expecting less of themselves.
        own = length * length * memory.plain.before + memory.plain.white * length + noise
        memory.gained = FORGET_GAINED * memory.gained + 0.5 * (missed * missed - error * error) / own
    explained = expected - length * state[0]
    at = 0
    for a in range(STATES):
        state[a] += gain[a] * error / variance
        for c in range(a + 1):
            covariance[at] -= gain[a] * gain[c] / variance
            at += 1
        covariance[at - 1] = max(covariance[at - 1], 0.0)
    record_difference(left, total - explained, exponent, shape.noise, unit * unit)
    left.position = memory.plain.position
    if memory.plain.decided == memory.plain.position:
        left.white, left.drift = fit_signal(left, shape)
