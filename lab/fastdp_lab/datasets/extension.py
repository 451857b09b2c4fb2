"""Streams made longer than they are, as the papers' experiments do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.arrays.column import as_column
from fastdp.errors import DataError

Floats = NDArray[np.float64]


@validation.plain
def extend_by_reflection(values: Floats, n: int) -> Floats:
    """The first n of: values forward, backward, forward, ...

    Parameters
    ----------
    values : float64[k]
        At least one.
    n : int
        Length of the result; less than k cuts the values off.
    """
    values = as_column(values, "values")
    if values.size == 0:
        raise DataError("values is empty: expected at least one to extend")
    n = validation.integer("n", n, 0)
    return np.resize(np.concatenate([values, values[::-1]]), n)


@validation.plain
def hold_out_and_extend(values: Floats, holdout: int, published: int) -> Floats:
    """The hold-out, then the rest extended: no value of the hold-out reappears in the published part.

    Parameters
    ----------
    values : float64[k]
        Longer than the hold-out.
    holdout, published : int
        Lengths of the two parts of the result.
    """
    values, holdout = as_column(values, "values"), validation.integer("holdout", holdout, 0)
    return np.concatenate([values[:holdout], extend_by_reflection(values[holdout:], published)])
