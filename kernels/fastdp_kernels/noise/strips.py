"""Discrete Gaussian draws from integer strips; uncertain ones are left to the caller (``docs/noise.md``, section 6).

Strip j holds heights [y_j, y_j + h_j) / H of the integers k from -w_j to w_j.  A uniform integer names a strip, a k
and a cell of heights, which must lie below exp(-k^2 / (2 sigma^2)).

Source: Marsaglia and Tsang 2000 (the ziggurat), with integer strips; Canonne, Kamath and Steinke 2020.
"""

from __future__ import annotations

import math

import numpy as np

from fastdp_kernels._jit import inline, kernel

#: Rows of a table: first cell of each strip, h, y, w, and the |k| below which all of the strip lies below f.
FIRST, HEIGHT, BASE, REACH, SURE = 0, 1, 2, 3, 4
ROWS = 5
#: Relative error of f(k) in doubles, generously (docs/noise.md).
ERROR = 2.0**-40
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@inline
def scaled(uniform: np.uint64, cells: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Upper and lower 64 bits of the product."""
    a, b = uniform >> _HALF, uniform & _LOW
    c, d = cells >> _HALF, cells & _LOW
    low = b * d
    middle = a * d + (low >> _HALF)
    other = b * c + (middle & _LOW)
    return a * c + (middle >> _HALF) + (other >> _HALF), (other << _HALF) | (low & _LOW)


@kernel
def draw_strips(
    words: np.ndarray,
    where: np.ndarray,
    count: int,
    table: np.ndarray,
    inverses: np.ndarray,
    cells: np.uint64,
    covered: np.int64,
    unfair: np.uint64,
    sigma: float,
    heights: float,
    out: np.ndarray,
    doubtful: np.ndarray,
) -> tuple[int, int]:
    """Draw at the first ``count`` positions ``where``, from a word each.

    Returns the number of draws that need a further word, whose positions overwrite ``where``, and of ``doubtful``
    ones. ``table``, ``inverses``: int64[ROWS, strips], of fewer than 2^53 cells each, and 1 / h; ``cells``,
    ``covered``: of strips and tail, and of strips alone; ``unfair``: 2^64 mod ``cells``, below which lower halves of
    products are rejected; ``heights``: H.
    """
    again = undecided = 0
    strips = table.shape[1]
    guess = np.float64(strips) / np.float64(covered)
    for i in range(count):
        at = where[i]
        upper, lower = scaled(words[i], cells)
        if lower < unfair:
            where[again] = at
            again += 1
            continue
        cell = np.int64(upper)
        if cell >= covered:
            doubtful[undecided] = at
            undecided += 1
            continue
        # Strips have nearly as many cells each.
        j = min(np.int64(np.float64(cell) * guess), strips - 1)
        while cell < table[FIRST, j]:
            j -= 1
        while j + 1 < strips and cell >= table[FIRST, j + 1]:
            j += 1
        rest, height = cell - table[FIRST, j], table[HEIGHT, j]
        m = np.int64(np.float64(rest) * inverses[j])
        r = rest - m * height
        if r < 0:
            m -= 1
            r += height
        elif r >= height:
            m += 1
            r -= height
        k = m - table[REACH, j]
        if abs(k) >= table[SURE, j]:
            ratio = np.float64(k) / sigma
            curve = heights * math.exp(-0.5 * ratio * ratio)
            slack = curve * ERROR + ERROR
            y = np.float64(table[BASE, j] + r)
            if y >= curve + slack:
                where[again] = at
                again += 1
                continue
            if y + 1.0 > curve - slack:
                doubtful[undecided] = at
                undecided += 1
                continue
        out[at] = k
    return again, undecided
