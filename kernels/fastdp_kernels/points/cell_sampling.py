"""Uniform points in boxes, from uniform numbers made outside (PHDStream Eq. 5)."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel


@kernel
def round_counts(counts: np.ndarray, uniforms: np.ndarray, out: np.ndarray) -> np.int64:
    """Each count, float64[n] >= 0, rounded up with the probability of its fraction; out int64[n].

    Returns
    -------
    int64
        The sum.
    """
    total = np.int64(0)
    for i in range(counts.size):
        whole = np.floor(counts[i])
        out[i] = np.int64(whole) + (1 if uniforms[i] < counts[i] - whole else 0)
        total += out[i]
    return total


@kernel
def place_points(lower: np.ndarray, upper: np.ndarray, counts: np.ndarray, out: np.ndarray) -> None:
    """Turn uniform numbers on [0, 1) into points of the boxes, in place.

    Parameters
    ----------
    lower, upper : float64[n, d]
        The boxes.
    counts : int64[n]
        Points of each box.
    out : float64[sum, d]
        Uniform numbers, then points, box by box.
    """
    k = 0
    for i in range(counts.size):
        for _ in range(counts[i]):
            for axis in range(lower.shape[1]):
                low = lower[i, axis]
                high = upper[i, axis]
                place = low + (high - low) * out[k, axis]
                # Rounding must not put it on the border, which is the next cell's.
                out[k, axis] = place if place < high else max(low, np.nextafter(high, low))
            k += 1
