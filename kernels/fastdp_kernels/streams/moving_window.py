"""Mean of the last w values: O(1) a value on average, without rounding errors that pile up.

Values fill a ring of w places, turn after turn.  While a turn goes on, the places it has passed hold its values, the
others the sums of the turn before from that place to its end; a window is one such sum plus the running sum of
the turn.  (ToPS Appendix D, item 4.)
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel


@kernel
def follow_window(ring: np.ndarray, count: int, running: float, means: np.ndarray, out: np.ndarray) -> float:
    """Add values one by one and write the mean of the last w, or of all while there are fewer.

    Parameters
    ----------
    ring : float64[w]
        As described above; changed in place.
    count : int
        Values before these.
    running : float
        Sum of the turn so far; 0 where a turn begins.
    means : float64[k]
        The values.
    out : float64[k]
        Mean of the last w values after each.

    Returns
    -------
    float
        Sum of the turn so far.
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
def follow_windows(
    firsts: np.ndarray, means: np.ndarray, ring: np.ndarray, scratch: np.ndarray, out: np.ndarray
) -> None:
    """Moving averages of each row of ``means`` (float64[n, k]), after its own first guess (float64[n])."""
    for row in range(firsts.size):
        ring[:] = 0.0
        # Not the constants, for which Numba would compile it again.
        running = follow_window(ring, int(np.int64(0)), 0.0, firsts[row : row + 1], scratch[:1])
        for k in range(scratch.size):
            scratch[k] = means[row, k]
        follow_window(ring, int(np.int64(1)), running, scratch, out[row])
