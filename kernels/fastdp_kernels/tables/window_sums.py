"""Integer sums of rows by window and key, and counts by size."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import bits_of, kernel, minus, plus
from fastdp_kernels.streams.online_pass import ROUNDER, ROUNDER_BITS, finite_flag


@kernel
def add_values(
    windows: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    first: int,
    steps_per_unit: float,
    low: float,
    high: float,
    centre: int,
    factor: float,
    sums: np.ndarray,
) -> bool:
    """Add each row's value, clipped, rounded and less ``centre`` steps, to its cell; False if one is not finite.

    Parameters
    ----------
    windows, keys : int64[n], int[n]
        Numbers of window and key; rows with negative keys, or outside the windows from ``first`` on, do not count.
    low, high : float
        Clip in steps, integers in [-2^50, 2^50].
    factor : float
        A power of 2: squares are added, times it, half to even.  0: values.
    sums : int64[W, K]
        Receives the sums, modulo 2^64; of no use after a value that is not finite.
    """
    finite = True
    shift = np.int64(plus(ROUNDER_BITS, np.int64(centre)))
    for i in range(windows.size):
        w = windows[i] - first
        k = np.int64(keys[i])
        if w < 0 or w >= sums.shape[0] or k < 0:
            continue
        v = values[i]
        if finite_flag(v) < 0:
            finite = False
            continue
        x = v * steps_per_unit
        x = x if x > low else low
        x = x if x < high else high
        step = minus(bits_of(x + ROUNDER), shift)
        if factor > 0.0:
            step = minus(bits_of(np.float64(step) * np.float64(step) * factor + ROUNDER), ROUNDER_BITS)
        sums[w, k] = plus(sums[w, k], step)
    return finite


@kernel
def sum_beyond(
    windows: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    first: int,
    last: int,
    steps_per_unit: float,
    clips: np.ndarray,
) -> np.int64:
    """Sum of the rows' values in the outer clip less those in the inner one, in steps, modulo 2^64.

    Rows are those of :func:`add_values`, finite, of windows [first, last); ``clips``: ends of both clips in steps.
    """
    total, (low, high), (near_low, near_high) = np.int64(0), clips[0], clips[1]
    for i in range(windows.size):
        if windows[i] < first or windows[i] >= last or keys[i] < 0:
            continue
        x = values[i] * steps_per_unit
        outer = x if x > low else low
        outer = outer if outer < high else high
        inner = x if x > near_low else near_low
        inner = inner if inner < near_high else near_high
        total = plus(total, minus(bits_of(outer + ROUNDER), bits_of(inner + ROUNDER)))
    return total


@kernel
def count_sizes(
    windows: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    first: int,
    last: int,
    ends: np.ndarray,
    edges: np.ndarray,
    weight: int,
    rows: np.ndarray,
    counts: np.ndarray,
) -> bool:
    """Count rows, as for :func:`sum_beyond`, by size; False if a value is not finite.

    Parameters
    ----------
    ends : float64[2]
        Values outside are counted separately, those of 0 too.
    edges : float64[2, B + 1]
        Upper ends of the bins of positive values, and of negative ones' sizes, each 1.5 times the next; last -1.
    weight, rows : int, int64[n] or int64[0]
        A row adds ``weight``, divided by its entry in ``rows``.
    counts : int64[bins + 3]
        Of positive bins, negative bins, zeros, and values below and above the ends.
    """
    finite, zeros, lowest = True, counts.size - 3, edges.shape[1] - 2
    (low, high), second = ends, zeros - lowest - 1
    inverse, other = 1.0 / edges[0, 0], 1.0 / edges[1, 0]
    for i in range(windows.size):
        if windows[i] < first or windows[i] >= last or keys[i] < 0:
            continue
        v = values[i]
        if finite_flag(v) < 0:
            finite = False
            continue
        if v < low:
            place = zeros + 1
        elif v > high:
            place = zeros + 2
        elif v == 0.0:
            place = zeros
        else:
            side = np.int64(v < 0.0)
            size = abs(v)
            # An octave has 1.7095 edges: the first that a size of so many octaves below the bound may be under.
            octaves = 1022 - (bits_of(size * (other if side else inverse)) >> 52)
            place = max(0, min((octaves * 1750) >> 10, lowest))
            place += size <= edges[side, place + 1]
            place += size <= edges[side, place + 1]
            while size <= edges[side, place + 1]:
                place += 1
            place += side * second
        counts[place] += weight // rows[i] if rows.size else weight
    return finite


@kernel
def add_ones(windows: np.ndarray, keys: np.ndarray, first: int, sums: np.ndarray) -> None:
    """Count the rows of each cell of :func:`add_values`."""
    for i in range(windows.size):
        w = windows[i] - first
        k = np.int64(keys[i])
        if 0 <= w < sums.shape[0] and k >= 0:
            sums[w, k] += 1
