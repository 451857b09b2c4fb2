"""The online pass: values to block sums, released totals to published values (ToPS Algorithm 1, lines 11 to 28).

A value is clipped, rounded to the grid and added to its block; published is the prediction, or, for a block's last
value, the released total less the block's published values.  g = block length, ``filled`` = values in the open block.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels import _lanes
from fastdp_kernels._jit import bits_if_real, bits_of, inline, kernel, minus, plus, real_of
from fastdp_kernels._lanes import ROWS, fill_row, sum_step_rows, sum_steps_and_fill

LANES = _lanes.LANES
ROUNDER = _lanes.ROUNDER
ROUNDER_BITS = np.int64(_lanes.ROUNDER_BITS)
WITHOUT_SIGN = np.int64(_lanes.WITHOUT_SIGN)
EXPONENT_ONE = np.int64(_lanes.EXPONENT_ONE)
#: Values whose neighbours are added while they are in the first cache; blocks longer than this do not gain by it.
PIECE, LONGEST_PAIRED = 2048, 32
#: Blocks of LANES values that are summed before any of them is published, in the first cache.
BLOCKS = 64


@inline
def step_bits(v: float, steps_per_unit: float, top: float) -> np.int64:
    """A value in steps, clipped to [0, top] and rounded, plus ROUNDER_BITS."""
    x = real_of(v) * steps_per_unit
    x = x if x > 0.0 else 0.0
    x = x if x < top else top
    return bits_of(x + ROUNDER)


@inline
def finite_flag(v: float) -> np.int64:
    """Negative for NaN and infinity."""
    return plus(bits_if_real(v) & WITHOUT_SIGN, EXPONENT_ONE)


@inline
def sum_part(values: np.ndarray, steps_per_unit: float, top: float) -> tuple[np.int64, np.int64]:
    """Sum clipped, rounded values; negative flag if one is not finite."""
    total = np.int64(0)
    flags = np.int64(0)
    for i in range(values.size):
        flags |= finite_flag(values[i])
        total = plus(total, step_bits(values[i], steps_per_unit, top))
    return minus(total, np.int64(np.uint64(ROUNDER_BITS) * np.uint64(values.size))), flags


@inline
def sum_signed(values: np.ndarray, steps_per_unit: float, limit: float) -> tuple[np.int64, np.int64]:
    """:func:`sum_part` for values of any sign, up to ``limit`` steps in size; halves round up."""
    total = np.int64(0)
    flags = np.int64(0)
    for i in range(values.size):
        flags |= finite_flag(values[i])
        x = values[i] * steps_per_unit
        x = x if x > -limit else -limit
        x = x if x < limit else limit
        low = np.floor(x)
        # The difference is exact, or rounded on its side of one half.
        total = plus(total, np.int64(low) + (1 if x - low >= 0.5 else 0))
    return total, flags


@inline
def _sum_pairs(
    values: np.ndarray, steps_per_unit: float, top: float, block: int, pairs: np.ndarray, sums: np.ndarray
) -> np.int64:
    """Sum blocks of 2, 4, 8 or 32 values in vectors."""
    flags = np.int64(0)
    excess = np.int64(np.uint64(ROUNDER_BITS) * np.uint64(block))
    each = PIECE // block
    for piece in range(values.size // PIECE):
        part = values[piece * PIECE : (piece + 1) * PIECE]
        own = sums[piece * each : (piece + 1) * each]
        for j in range(PIECE // 2):
            flags |= finite_flag(part[2 * j]) | finite_flag(part[2 * j + 1])
            first = step_bits(part[2 * j], steps_per_unit, top)
            pairs[j] = plus(first, step_bits(part[2 * j + 1], steps_per_unit, top))
        width = PIECE // 2
        while width > each:
            width //= 2
            for j in range(width):
                pairs[j] = plus(pairs[2 * j], pairs[2 * j + 1])
        for j in range(each):
            own[j] = minus(pairs[j], excess)
    return flags


@kernel
def sum_blocks(
    values: np.ndarray, steps_per_unit: float, top: float, block: int, filled: int, sums: np.ndarray
) -> bool:
    """Clip to [0, top] steps, round to the grid and sum by block; True if a value is NaN or infinite.

    ``steps_per_unit``: 1 / resolution; ``top``: the threshold in steps, an integer up to 2^51; ``sums``,
    int64[ceil((filled + n) / g)], of these values, in steps.
    """
    n = values.size
    if n == 0:
        return False
    begin = min(n, block - filled)
    sums[0], flags = sum_part(values[:begin], steps_per_unit, top)
    whole = (n - begin) // block
    end = begin + whole * block
    done = 0
    pieces = (end - begin) // PIECE
    if block == LANES:
        done = whole // ROWS * ROWS
        for j in range(0, done, ROWS):
            flags |= sum_step_rows(values, begin + j * LANES, steps_per_unit, top, sums, 1 + j)
    elif pieces and 1 < block <= LONGEST_PAIRED and block & (block - 1) == 0:
        done = pieces * (PIECE // block)
        pairs = np.empty(PIECE // 2, np.int64)
        paired = values[begin : begin + pieces * PIECE]
        flags |= _sum_pairs(paired, steps_per_unit, top, block, pairs, sums[1 : 1 + done])
    # Rows, so that the compiler sees a fixed stride and vectorises blocks of any length.
    rows = values[begin:end].reshape(whole, block)
    excess = np.int64(np.uint64(ROUNDER_BITS) * np.uint64(block))
    for j in range(done, whole):
        total = np.int64(0)
        for i in range(block):
            flags |= finite_flag(rows[j, i])
            total = plus(total, step_bits(rows[j, i], steps_per_unit, top))
        sums[1 + j] = minus(total, excess)
    if end < n:
        sums[1 + whole], last_flags = sum_part(values[end:], steps_per_unit, top)
        flags |= last_flags
    return bool(flags < 0)


@kernel
def round_values(values: np.ndarray, steps_per_unit: float, top: float, steps: np.ndarray) -> bool:
    """:func:`sum_blocks` for blocks of one value."""
    flags = np.int64(0)
    for i in range(values.size):
        flags |= finite_flag(values[i])
        steps[i] = step_bits(values[i], steps_per_unit, top) - ROUNDER_BITS
    return bool(flags < 0)


@kernel
def round_half_up(values: np.ndarray, steps_per_unit: float, most: float, steps: np.ndarray) -> bool:
    """Round exactly to steps, int64[n], halves up, and saturate at ``most`` <= 2^62; True if a value is not finite.

    ``steps_per_unit`` is a power of two, so that values at most k steps apart stay so.
    """
    flags = np.int64(0)
    for i in range(values.size):
        flags |= finite_flag(values[i])
        x = values[i] * steps_per_unit
        x = x if x < most else most
        x = x if x > -most else -most
        low = np.floor(x)
        # The difference is exact, or rounded on the same side of a half.
        steps[i] = np.int64(low) + np.int64(x - low >= 0.5)
    return bool(flags < 0)


@kernel
def to_floats(numbers: np.ndarray, floats: np.ndarray) -> None:
    """Write int64[n] into float64[n], to nearest, ties to even."""
    for i in range(numbers.size):
        floats[i] = real_of(numbers[i])


@kernel
def add_noise(steps: np.ndarray, noise: np.ndarray, resolution: float, out: np.ndarray) -> None:
    """out = (steps + noise) * resolution, possibly in the memory of ``steps``."""
    for i in range(out.size):
        out[i] = real_of(plus(steps[i], noise[i])) * resolution


@kernel
def emit_blocks(totals: np.ndarray, predictions: np.ndarray, block: int, filled: int, out: np.ndarray) -> None:
    """Publish predictions, and each block's released total with its last value, into float64[n], g >= 2.

    ``totals``, float64[k], of the blocks that close; ``predictions``, float64[k + 1], of a value, the open block
    last.
    """
    if totals.size == 0:
        out[:] = predictions[0]
        return
    others = np.float64(block - 1)
    begin = block - filled
    out[: begin - 1] = predictions[0]
    out[begin - 1] = totals[0] - predictions[0] * others
    whole = totals.size - 1
    end = begin + whole * block
    rows = out[begin:end].reshape(whole, block)
    for j in range(whole):
        prediction = predictions[1 + j]
        last = totals[1 + j] - prediction * others
        if block == LANES:
            fill_row(out, begin + j * LANES, prediction, last)
        else:
            for i in range(block - 1):
                rows[j, i] = prediction
            rows[j, block - 1] = last
    out[end:] = predictions[totals.size]


@inline
def publish(
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
    """Make the online pass in one call, where a block's mean predicts the next; bit for bit the kernels by array.

    Returns the open block's sum, and its prediction: NaN if a value is NaN or infinite.  ``public``: steps per unit,
    top, resolution and g, in one array for speed; ``noise``, int64[any], a tree's, used for ``closing`` blocks from
    ``leaf`` on; ``filled``, ``open_sum``, ``prediction``: of the first block; ``out`` may be ``values``, float64[n]
    or int64[n].
    """
    steps_per_unit, top, resolution, block = public[0], public[1], public[2], int(public[3])
    others, length = np.float64(block - 1), np.float64(block)
    excess, sums = np.int64(np.uint64(ROUNDER_BITS) * np.uint64(block)), np.empty(BLOCKS, np.int64)
    flags, at, total, stop = np.int64(0), 0, np.int64(open_sum), leaf + closing
    if block == 1:
        drawn = noise[leaf:stop]
        for i in range(out.size):
            flags |= finite_flag(values[i])
            step = minus(step_bits(values[i], steps_per_unit, top), ROUNDER_BITS)
            out[i] = real_of(plus(step, drawn[i])) * resolution
        return 0, prediction if flags >= 0 else np.nan
    while True:
        if filled == 0 and block % LANES == 0 and leaf < stop:
            if block == LANES:
                for _ in range((stop - leaf) // BLOCKS):
                    for k in range(0, BLOCKS, ROWS):
                        flags |= sum_step_rows(values, at + k * LANES, steps_per_unit, top, sums, k)
                    for k in range(BLOCKS):
                        released = real_of(plus(sums[k], noise[leaf + k])) * resolution
                        fill_row(out, at + k * LANES, prediction, released - prediction * others)
                        prediction = released / length
                    at, leaf = at + BLOCKS * LANES, leaf + BLOCKS
            for j in range(leaf, stop):
                # The prediction of these values is known before they are read.
                flags |= sum_steps_and_fill(values, at, block // LANES, steps_per_unit, top, out, prediction, sums)
                released = real_of(plus(minus(sums[0], excess), noise[j])) * resolution
                out[at + block - 1] = released - prediction * others
                prediction, at = released / length, at + block
            leaf = stop
        end = at + block - filled if leaf < stop else values.size
        summed, flags_met = sum_part(values[at:end], steps_per_unit, top)
        flags |= flags_met
        total = plus(total, summed)
        out[at:end] = prediction
        if leaf == stop:
            return int(total), prediction if flags >= 0 else np.nan
        released = real_of(plus(total, noise[leaf])) * resolution
        out[end - 1] = released - prediction * others
        prediction = released / length
        at, leaf, filled, total = end, leaf + 1, 0, np.int64(0)
