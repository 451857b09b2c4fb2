"""Running median over a histogram: constant memory on an endless stream.

Values fall into equal bins; the position of the lower middle value moves by a few bins for each new value,
so a step costs O(1) on average.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel


@inline
def _bin_of_rank(counts: np.ndarray, rank: float, at: int, below: float) -> tuple[int, float]:
    """Bin of the value with ``rank`` values before it, walking from bin ``at`` with ``below`` values under it.

    It never leaves the bins, whatever they hold.
    """
    while below > rank and at > 0:
        at -= 1
        below -= counts[at]
    while at < counts.size - 1 and below + counts[at] <= rank:
        below += counts[at]
        at += 1
    return at, below


@kernel
def follow_median(counts: np.ndarray, low: float, width: float, means: np.ndarray, out: np.ndarray) -> None:
    """Add values one by one and write the median after each.

    Parameters
    ----------
    counts : float64[bins]
        How many values each bin holds (whole numbers); changed in place.
    low, width : float
        Bin j holds [low + j width, low + (j + 1) width); the first and last also what lies beyond.
    means : float64[k]
        The values.
    out : float64[k]
        Mean of the middles of the bins that hold the one or two middle values.
    """
    bins = counts.size
    total = 0.0
    for j in range(bins):
        total += counts[j]
    at = 0
    below = 0.0
    for i in range(means.size):
        place = (means[i] - low) / width
        j = 0
        if place >= bins:
            j = bins - 1
        elif place > 0.0:
            j = int(place)
        counts[j] += 1.0
        total += 1.0
        if j < at:
            below += 1.0
        at, below = _bin_of_rank(counts, np.floor((total - 1.0) / 2.0), at, below)
        upper, _ = _bin_of_rank(counts, np.floor(total / 2.0), at, below)
        out[i] = low + 0.5 * width * (np.float64(at) + np.float64(upper) + 1.0)


@kernel
def follow_medians(
    lows: np.ndarray, widths: np.ndarray, means: np.ndarray, counts: np.ndarray, scratch: np.ndarray, out: np.ndarray
) -> None:
    """Running medians of each row of ``means`` (float64[n, k]); bins as ``follow_median`` has them, for each row."""
    for row in range(lows.size):
        counts[:] = 0.0
        for k in range(scratch.size):
            scratch[k] = means[row, k]
        follow_median(counts, lows[row], widths[row], scratch, out[row])
