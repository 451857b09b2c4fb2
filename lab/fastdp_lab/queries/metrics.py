"""Errors of range answers, as the papers measure them.

Source: ToPS Eq. 9 (MSE) and Appendix F (MAE, MMSE, MMAE).  These compare with the truth: for evaluation,
never for release.  Arrays may have any one shape, say float64[repetitions, queries].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fastdp.data.column import as_reals
from fastdp.errors import ParameterError
from fastdp.kinds import Floats


def _difference(truth: ArrayLike, answers: ArrayLike) -> Floats:
    exact, private = as_reals(truth, "truth"), as_reals(answers, "answers")
    if exact.shape != private.shape:
        raise ParameterError(f"answers has shape {private.shape}: expected that of truth, {exact.shape}")
    return private - exact


def _mean_difference(truth: ArrayLike, answers: ArrayLike, lengths: ArrayLike) -> Floats:
    return _difference(truth, answers) / as_reals(lengths, "lengths")


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
    scale = np.maximum(np.abs(as_reals(truth, "truth")), floor)
    if np.any(scale == 0.0):
        raise ParameterError(f"floor = {floor!r}: expected a number above 0, because some true answers are 0")
    return float(np.mean(np.abs(_difference(truth, answers)) / scale))
