"""Smoothers: moving mean, and running median."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel

# Mean of the last w values: O(1) a value on average, without rounding errors that pile up.
#
# Values fill a ring of w places, turn after turn.  While a turn goes on, the places it has passed hold its values,
# the
# others the sums of the turn before from that place to its end; a window is one such sum plus the running sum of
# the turn.  (ToPS Appendix D, item 4.)


@inline
def follow_window(ring: np.ndarray, count: int, running: float, means: np.ndarray, out: np.ndarray) -> float:
    """Mean of the last w values, or of all if fewer, after each of ``means``; returns the sum of the turn so far.

    ``ring``: float64[w], as above; ``count``: values before; ``running``: sum of the turn.
    """
    w = ring.size
    place = count % w
    for i in range(means.size):
        running += means[i]
        ring[place] = means[i]
        place += 1
        older = ring[place] if place < w else 0.0
        out[i] = (running + older) / min(count + i + 1, w)
        if place == w:
            for j in range(w - 2, -1, -1):
                ring[j] += ring[j + 1]
            place = 0
            running = 0.0
    return running


@kernel
def follow_windows(memory: np.ndarray, means: np.ndarray, counts: np.ndarray, out: np.ndarray) -> None:
    """:func:`follow_window` of ``counts[i]`` entries of each row; ``memory``: count, running sum and ring."""
    for row in range(counts.size):
        own, size = memory[row], counts[row]
        own[1] = follow_window(own[2:], int(own[0]), own[1], means[row, :size], out[row, :size])
        own[0] += size


# Running median over a histogram: constant memory on an endless stream.
#
# Values fall into equal bins; the position of the lower middle value moves by a few bins for each new value,
# so a step costs O(1) on average.


@inline
def _bin_of_rank(counts: np.ndarray, rank: float, at: int, below: float) -> tuple[int, float]:
    while below > rank and at > 0:
        at -= 1
        below -= counts[at]
    while at < counts.size - 1 and below + counts[at] <= rank:
        below += counts[at]
        at += 1
    return at, below


@inline
def follow_median(counts: np.ndarray, low: float, width: float, means: np.ndarray, out: np.ndarray) -> None:
    """Median after each of ``means``: mean of the middles of the bins of the middle values.

    ``counts``: float64[bins]; bin j holds [low + j width, low + (j + 1) width), the ends all beyond.
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
def follow_medians(memory: np.ndarray, means: np.ndarray, counts: np.ndarray, out: np.ndarray) -> None:
    """:func:`follow_median` by row; ``memory``: lower end, width and counts."""
    for row in range(counts.size):
        own, size = memory[row], counts[row]
        follow_median(own[2:], own[0], own[1], means[row, :size], out[row, :size])
