"""Averages of a stream from its published running sums: post-processing, so they cost no privacy.

Source: PAK (NDSS 2019) section II-A (the mean of all values so far, which the paper calls the moving average), and
section I (the average over a sliding window).
"""

from __future__ import annotations

import numpy as np

from fastdp.arrays.kinds import Floats, Integers


def averages(
    sums: Integers, recent: Integers, position: int, window: int | None, resolution: float
) -> tuple[Floats, Integers]:
    """The average that goes with each running sum, and the sums that the next call needs.

    With S_t the running sum after t values: (S_t - S_{t-w}) / w where S_{t-w} was published, S_t / t where not, and
    everywhere without a window.

    Parameters
    ----------
    sums : int64[k]
        The next running sums, in grid steps (modulo 2^64).
    recent : int64[min(w, published before)]
        The last of those before; empty without a window.
    position : int
        t of the last of ``sums``.
    window : int or None
        w >= 1, or None for the mean of all values.
    resolution : float
        One grid step, in units of the input.

    Returns
    -------
    float64[k]
        Averages, in units of the input; independent of how the stream is cut into chunks.
    int64[at most w]
        ``recent`` for the next call.
    """
    counts = np.arange(position - sums.size + 1, position + 1, dtype=np.float64)
    out: Floats = np.multiply(sums, resolution, dtype=np.float64) / counts
    if window is None:
        return out, recent
    known = np.concatenate([recent, sums])
    whole = min(sums.size, max(0, known.size - window))
    if whole:
        # Differences of integers: exact, so the part of the noise that both sums share is gone without a trace.
        rise = known[known.size - whole :] - known[known.size - whole - window : known.size - window]
        out[sums.size - whole :] = np.multiply(rise, resolution, dtype=np.float64) / window
    return out, known[max(0, known.size - window) :].copy()
