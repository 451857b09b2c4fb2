"""The matrix from input bins to output cells of a window law, for the server's estimate.

An input is uniform in its bin; the window of input t, in grid steps, is [t, t + N), and integer output j stands for
the interval [j, j + 1).  Users' rounding of t to the grid moves the window by at most half a step.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from fastdp.arrays.kinds import Integers
from fastdp.local.laws import WindowLaw

if TYPE_CHECKING:
    from fastdp_kernels.band_matrix import Band
    from fastdp_kernels.square_wave_em import Reports


def cell_edges(law: WindowLaw, cells: int) -> Integers:
    """First outputs of the cells, and M: cell k holds the outputs j with floor(j cells / M) = k.

    Parameters
    ----------
    law : WindowLaw
        Its M below 2^31.
    cells : int
        From 1 to M, so that no cell is empty.

    Returns
    -------
    int64[cells + 1]
        ceil(k M / cells).
    """
    return -(-np.arange(cells + 1, dtype=np.int64) * law.outputs // cells)


def in_cells(law: WindowLaw, counts: Integers, cells: int) -> Integers:
    """Counts of all outputs added up to those of so many cells; others are counts of cells already."""
    return np.add.reduceat(counts, cell_edges(law, cells)[:-1]) if counts.size == law.outputs else counts


def transition(law: WindowLaw, bins: int, counts: Integers) -> Reports:
    """Counts of output cells with the matrix that made them, as the kernels take it.

    Parameters
    ----------
    law : WindowLaw
        The clients' law.
    bins : int
        Input bins of equal width, from 1 to D.
    counts : int64[cells]
        Reports by output cell (see :func:`cell_edges`).

    Returns
    -------
    Reports
        Entry (k, i) of the matrix is flat_k + peak_k F_ki.  Columns add up to 1, up to the rounding of entries
        (a relative 2^-51).
    """
    from fastdp_kernels.square_wave_em import Reports

    outputs = cell_edges(law, counts.size)
    # In units of a step divided by bins, all edges are whole.
    rows = outputs * bins
    columns = np.arange(bins + 1, dtype=np.int64) * law.steps
    width = law.near * bins
    everywhere = (law.far_weight + Fraction(law.left_over, law.outputs)) / law.total
    on_top = Fraction(law.near_weight - law.far_weight, law.total)
    lengths = np.diff(outputs).astype(np.float64)
    return Reports(
        counts.astype(np.float64),
        lengths * float(everywhere),
        lengths * float(on_top),
        _band(rows, columns, 0, width),
        _band(columns, rows, -width, 0),
    )


def _band(rows: Integers, columns: Integers, low: int, high: int) -> Band:
    from fastdp_kernels import band_matrix

    places: Integers = np.empty((4, rows.size - 1), np.int64)
    left, right = band_matrix.lay_out_band(rows, columns, low, high, places)
    band = band_matrix.Band(places, np.empty((left, rows.size - 1)), np.empty((right, rows.size - 1)))
    band_matrix.fill_band(rows, columns, low, high, band)
    return band
