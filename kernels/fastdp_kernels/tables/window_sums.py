"""Integer sums of rows by window and key."""

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
    sums: np.ndarray,
) -> int:
    """Add each row's value, clipped, rounded to the grid and less the centre, to its cell.

    Parameters
    ----------
    windows : int64[n]
        Number of each row's window.
    keys : int[n]
        Number of its key; negative for rows that do not count.
    values : float64[n]
        In units of the input.
    first : int
        Number of the first window; rows of windows before it, or behind the last, do not count.
    steps_per_unit : float
        1 / resolution.
    low, high : float
        What values are clipped to, in steps: whole numbers between -2^50 and 2^50.
    centre : int
        Subtracted from each value, in steps.
    sums : int64[W, K]
        Receives the sums, modulo 2^64.

    Returns
    -------
    int
        The first row that counts and whose value is NaN or infinite, or -1.  The sums are then of no use.
    """
    wrong = -1
    shift = np.int64(plus(ROUNDER_BITS, np.int64(centre)))
    for i in range(windows.size):
        w = windows[i] - first
        k = np.int64(keys[i])
        if w < 0 or w >= sums.shape[0] or k < 0:
            continue
        v = values[i]
        if finite_flag(v) < 0:
            if wrong < 0:
                wrong = i
            continue
        x = v * steps_per_unit
        x = x if x > low else low
        x = x if x < high else high
        sums[w, k] = plus(sums[w, k], minus(bits_of(x + ROUNDER), shift))
    return wrong


@kernel
def add_squares(
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
) -> int:
    """Add the square of what :func:`add_values` adds, times ``factor``, a power of 2, rounded half to even."""
    wrong = -1
    for i in range(windows.size):
        w = windows[i] - first
        k = np.int64(keys[i])
        if w < 0 or w >= sums.shape[0] or k < 0:
            continue
        v = values[i]
        if finite_flag(v) < 0:
            if wrong < 0:
                wrong = i
            continue
        x = v * steps_per_unit
        x = x if x > low else low
        x = x if x < high else high
        step = np.float64(minus(bits_of(x + ROUNDER), ROUNDER_BITS) - centre)
        sums[w, k] = plus(sums[w, k], minus(bits_of(step * step * factor + ROUNDER), ROUNDER_BITS))
    return wrong


@kernel
def add_ones(windows: np.ndarray, keys: np.ndarray, first: int, sums: np.ndarray) -> None:
    """Count the rows of each cell; parameters as of :func:`add_values`."""
    for i in range(windows.size):
        w = windows[i] - first
        k = np.int64(keys[i])
        if 0 <= w < sums.shape[0] and k >= 0:
            sums[w, k] += 1
