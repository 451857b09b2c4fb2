"""Checks that only the analysis needs: shares, and samples of real values."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdp import validation
from fastdp.arrays.column import as_array, entry_at, kind_of
from fastdp.errors import ParameterError


def share(name: str, value: object, high: float = 1.0) -> float:
    """A real number above 0 and below ``high``."""
    number = validation.real(name, value)
    if not 0.0 < number < high:
        raise ParameterError(f"{name} = {validation.shown(value)}: expected a number above 0 and below {high:g}")
    return number


def at_least(name: str, value: object, low: float) -> float:
    """A finite real number, ``low`` or more."""
    number = validation.real(name, value)
    if number < low:
        raise ParameterError(f"{name} = {validation.shown(value)}: expected a number of at least {low:g}")
    return number


def sorted_sample(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """A copy of the sample, ascending: one row of finite numbers from 0, at least one."""
    array = as_array(values)
    if array is None:
        raise ParameterError(f"{name} is a {type(values).__name__}: expected an array of numbers")
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "biuf":
        raise ParameterError(
            f"{name} has shape {array.shape} and dtype {kind_of(array.dtype)}: expected one row of real numbers, at "
            "least one"
        )
    numbers = array.astype(np.float64)
    bad = ~np.isfinite(numbers) | (numbers < 0.0)
    if bad.any():
        raise ParameterError(f"{entry_at(name, bad, 'not a finite number from 0')}; expected finite numbers from 0")
    numbers.sort()
    return numbers
