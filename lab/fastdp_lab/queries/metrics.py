"""Errors of range answers, as the papers measure them.

Source: ToPS Eq. 9 (MSE) and Appendix F (MAE, MMSE, MMAE).  These compare with the truth: for evaluation,
never for release.  Arrays may have any one shape, say float64[repetitions, queries].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fastdp import validation
from fastdp.data.column import NOT_FINITE, as_array, entry_at, kind_of
from fastdp.errors import ParameterError
from fastdp.kinds import Floats


def _reals(name: str, values: ArrayLike) -> Floats:
    """Finite real numbers as float64, of any shape but not empty."""
    array = as_array(values)
    if array is None:
        raise ParameterError(f"{name} is a {type(values).__name__}: expected an array of numbers")
    if array.dtype.kind not in "biuf" or array.size == 0:
        raise ParameterError(
            f"{name} has shape {array.shape} and dtype {kind_of(array.dtype)}: expected real numbers, at least one"
        )
    with np.errstate(over="ignore"):
        numbers = np.asarray(array, dtype=np.float64)
    if not np.isfinite(numbers).all():
        wrong = ~np.isfinite(numbers).ravel()
        raise ParameterError(f"{entry_at(name, wrong, NOT_FINITE)}; expected finite numbers")
    return numbers


def _difference(truth: ArrayLike, answers: ArrayLike) -> Floats:
    exact, private = _reals("truth", truth), _reals("answers", answers)
    if exact.shape != private.shape:
        raise ParameterError(f"answers has shape {private.shape}: expected that of truth, {exact.shape}")
    return private - exact


def _mean_difference(truth: ArrayLike, answers: ArrayLike, lengths: ArrayLike) -> Floats:
    difference, length = _difference(truth, answers), _reals("lengths", lengths)
    if np.any(length <= 0):
        place = entry_at("lengths", (length <= 0).ravel(), "not above 0")
        raise ParameterError(f"{place}; expected numbers above 0 (an empty range has no mean)")
    try:
        spread: Floats = np.broadcast_to(length, difference.shape)
    except ValueError:
        raise ParameterError(
            f"lengths has shape {length.shape}: expected that of truth, {difference.shape}"
        ) from None
    return difference / spread


def mse(truth: ArrayLike, answers: ArrayLike) -> float:
    """Mean squared error of range answers (Eq. 9)."""
    return float(np.mean(_difference(truth, answers) ** 2))


def mae(truth: ArrayLike, answers: ArrayLike) -> float:
    """Mean absolute error of range answers (Appendix F)."""
    return float(np.mean(np.abs(_difference(truth, answers))))


def mmse(truth: ArrayLike, answers: ArrayLike, lengths: ArrayLike) -> float:
    """Mean squared error of range means: answers divided by the ranges' lengths (Appendix F)."""
    return float(np.mean(_mean_difference(truth, answers, lengths) ** 2))


def mmae(truth: ArrayLike, answers: ArrayLike, lengths: ArrayLike) -> float:
    """Mean absolute error of range means (Appendix F)."""
    return float(np.mean(np.abs(_mean_difference(truth, answers, lengths))))


def relative_error(truth: ArrayLike, answers: ArrayLike, floor: float = 0.0) -> float:
    """Mean of abs(answer - truth) / max(abs(truth), floor)."""
    difference = _difference(truth, answers)
    least = validation.real("floor", floor)
    scale = np.maximum(np.abs(_reals("truth", truth)), least)
    if least < 0.0 or np.any(scale == 0.0):
        why = "at least 0" if least < 0.0 else "above 0, because some true answers are 0"
        raise ParameterError(f"floor = {floor!r}: expected a number {why}")
    return float(np.mean(np.abs(difference) / scale))
