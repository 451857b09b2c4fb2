"""Errors of range answers, as the papers measure them.

Source: ToPS Eq. 9 (MSE) and Appendix F (MAE, MMSE, MMAE).  These compare with the truth: for evaluation,
never for release.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastdp.errors import ParameterError


def _difference(truth: ArrayLike, answers: ArrayLike, lengths: ArrayLike = 1.0) -> Any:
    exact, private, length = (np.asarray(x, dtype=np.float64) for x in (truth, answers, lengths))
    if exact.shape != private.shape or exact.size == 0:
        raise ParameterError(f"answers has shape {private.shape}: expected that of truth, {exact.shape}, not empty")
    if np.any(length <= 0):
        raise ParameterError("lengths: expected numbers above 0 (an empty range has no mean)")
    return (private - exact) / length


def mse(truth: ArrayLike, answers: ArrayLike) -> float:
    """Mean squared error of range answers (Eq. 9)."""
    return float(np.mean(_difference(truth, answers) ** 2))


def mae(truth: ArrayLike, answers: ArrayLike) -> float:
    """Mean absolute error of range answers (Appendix F)."""
    return float(np.mean(np.abs(_difference(truth, answers))))


def mmse(truth: ArrayLike, answers: ArrayLike, lengths: ArrayLike) -> float:
    """Mean squared error of range means: answers divided by the ranges' lengths (Appendix F)."""
    return float(np.mean(_difference(truth, answers, lengths) ** 2))


def mmae(truth: ArrayLike, answers: ArrayLike, lengths: ArrayLike) -> float:
    """Mean absolute error of range means (Appendix F)."""
    return float(np.mean(np.abs(_difference(truth, answers, lengths))))


def relative_error(truth: ArrayLike, answers: ArrayLike, floor: float = 0.0) -> float:
    """Mean of abs(answer - truth) / max(abs(truth), floor)."""
    scale = np.maximum(np.abs(np.asarray(truth, dtype=np.float64)), floor)
    if np.any(scale == 0.0):
        raise ParameterError(f"floor = {floor!r}: expected a number above 0, because some true answers are 0")
    return float(np.mean(np.abs(_difference(truth, answers)) / scale))
