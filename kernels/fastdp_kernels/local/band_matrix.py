"""Band matrices between two partitions of a line, applied in time O(rows + columns).

An entry is the share of pairs (y, t), uniform in a row's and a column's interval, with low <= y - t < high: up to a
constant, the probability of a square-wave report (Li et al. 2020; ToPS Appendix E.1).  It is 1 on a row's core, which
prefix sums add up.  The transpose has the band [-high, -low).

Entries are right to a few 2^-53, a core's sum to a relative 2^-52 plus 2^-100 of the full sum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastdp_kernels._jit import inline, kernel
from fastdp_kernels.noise.double_double import two_sum

#: Rows of ``Band.places``.
LEFT, CORE, RIGHT, STOP = 0, 1, 2, 3


class Band(NamedTuple):
    """Band matrix of n rows.

    Attributes
    ----------
    places : int64[4, n]
        First column of the left flank, first and end of the core, first of the right flank.
    left, right : float64[width, n]
        Entries of the flanks, column by column.
    """

    places: np.ndarray
    left: np.ndarray
    right: np.ndarray


@inline
def apply_band(band: Band, x: np.ndarray, sums: np.ndarray, out: np.ndarray) -> None:
    """Multiply the band with x >= 0; ``sums``, float64[2, c + 1], is scratch."""
    left, right = band.left, band.right
    # Of as many bins as cells, flanks are two or three columns wide: they need no loops.
    usual = 2 <= left.shape[0] <= 3 and 2 <= right.shape[0] <= 3
    lefts, cores, ends, rights = band.places[LEFT], band.places[CORE], band.places[RIGHT], band.places[STOP]
    highs, losses = sums[0], sums[1]
    high, lost = 0.0, 0.0
    highs[0], losses[0] = 0.0, 0.0
    # Unsigned places: Numba would test signed ones for being negative, every time.
    done, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    for k in range(out.size):
        end, begin = np.uint64(ends[k]), np.uint64(cores[k])
        while done < end:
            high, error = two_sum(high, x[done])
            lost += error
            done += one
            highs[done], losses[done] = high, lost
        total = (high - highs[begin]) + (lost - losses[begin])
        if usual:
            i, j = np.uint64(lefts[k]), np.uint64(rights[k])
            total += left[0, k] * x[i]
            total += left[1, k] * x[i + one]
            if left.shape[0] > 2:
                total += left[2, k] * x[i + two]
            total += right[0, k] * x[j]
            total += right[1, k] * x[j + one]
            if right.shape[0] > 2:
                total += right[2, k] * x[j + two]
        out[k] = total
    if not usual:
        _add_flank(left, lefts, x, out)
        _add_flank(right, rights, x, out)


@inline
def _add_flank(entries: np.ndarray, windows: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    for j in range(entries.shape[0]):
        for k in range(out.size):
            out[k] += entries[j, k] * x[np.uint64(windows[k] + j)]


@kernel
def multiply_band(band: Band, x: np.ndarray, out: np.ndarray) -> None:
    """:func:`apply_band` with memory of its own."""
    apply_band(band, x, np.empty((2, x.size + 1)), out)
