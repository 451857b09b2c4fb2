"""Toeplitz factors, naively: coefficient by coefficient, in extended precision and dense matrices.

Source: Dvijotham et al. 2024; Henzinger, Upadhyay and Upadhyay 2023 (the square root, its coefficients and errors).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def coefficients(rates: list[float], shares: list[float], count: int) -> NDArray[np.longdouble]:
    """c_0 = 1, c_j = sum of theta_i (1 - mu_i)^(j - 1)."""
    keeps, terms = 1 - np.array(rates, np.longdouble), np.array(shares, np.longdouble)
    found = np.ones(count, np.longdouble)
    for j in range(1, count):
        found[j] = terms.sum()
        terms = terms * keeps
    return found


def draws(noise: list[int], factor: NDArray[np.longdouble]) -> NDArray[np.longdouble]:
    """z = C y, not rounded: y is the noise of the values."""
    y = np.array(noise, np.longdouble)
    return np.array([(factor[: t + 1][::-1] * y[: t + 1]).sum() for t in range(y.size)], np.longdouble)


def lower(first: Floats) -> Floats:
    """The lower triangular Toeplitz matrix with this first column."""
    count = first.size
    places = np.arange(count)[:, None] - np.arange(count)[None]
    return np.where(places >= 0, first[places], 0.0)


def sum_variances(factor: Floats) -> Floats:
    """Variance of the sum of the first 1, ..., n values of C^-1 z, z of variance 1."""
    sums = np.cumsum(np.linalg.inv(lower(factor)), axis=0)
    variances: Floats = (sums**2).sum(axis=1)
    return variances


def window_variance(factor: Floats, window: int) -> float:
    """Variance of the sum of the last ``window`` values of all."""
    rows = np.linalg.inv(lower(factor))[-window:]
    return float((rows.sum(axis=0) ** 2).sum())
