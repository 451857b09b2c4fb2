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
) -> bool:
    """Add each row's value, clipped, rounded and less the centre, to its cell; False if one is not finite.

    Parameters
    ----------
    windows, keys : int64[n], int[n]
        Numbers of each row's window and key; negative keys do not count.
    values : float64[n]
        In units of the input.
    first : int
        First window; rows outside the windows do not count.
    steps_per_unit : float
        1 / resolution.
    low, high : float
        Clip in steps, integers in [-2^50, 2^50].
    centre : int
        Subtracted from each value, in steps.
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
        sums[w, k] = plus(sums[w, k], minus(bits_of(x + ROUNDER), shift))
    return finite


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
) -> bool:
    """Add the squares of :func:`add_values`, times ``factor``, a power of 2, half to even."""
    finite = True
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
        step = np.float64(minus(bits_of(x + ROUNDER), ROUNDER_BITS) - centre)
        sums[w, k] = plus(sums[w, k], minus(bits_of(step * step * factor + ROUNDER), ROUNDER_BITS))
    return finite


@kernel
def add_ones(windows: np.ndarray, keys: np.ndarray, first: int, sums: np.ndarray) -> None:
    """Count the rows of each cell, as :func:`add_values`."""
    for i in range(windows.size):
        w = windows[i] - first
        k = np.int64(keys[i])
        if 0 <= w < sums.shape[0] and k >= 0:
            sums[w, k] += 1
