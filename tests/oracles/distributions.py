"""Closed forms of the distributions of integer noise."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray


def laplace_cells(edges: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Probabilities of (-inf, e_0), [e_0, e_1), ..., [e_last, inf); accurate in both tails."""
    q = np.exp(-1.0 / scale)
    cells = []
    bounds = [-np.inf, *edges.tolist(), np.inf]
    for low, high in itertools.pairwise(bounds):
        # The distribution is symmetric: [low, high) below zero mirrors (-high, -low] = [1 - high, 1 - low).
        total = 0.0
        for a, b in ((max(low, 1.0), high), (max(1.0 - high, 1.0), 1.0 - low)):
            if b > a:
                tail = 1.0 if np.isinf(b) else -np.expm1(-(b - a) / scale)
                total += float(np.exp(-a / scale)) * tail / (1.0 + q)
        if low <= 0.0 < high:
            total += float(-np.expm1(-1.0 / scale)) / (1.0 + q)
        cells.append(total)
    return np.array(cells)


def geometric_cells(edges: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Probabilities of [0, e_0), [e_0, e_1), ..., [e_last, inf) of the geometric distribution."""
    bounds = np.concatenate([[0.0], edges])
    tails = np.exp(-bounds / scale)
    inner = tails[:-1] * -np.expm1(-np.diff(bounds) / scale)
    return np.append(inner, tails[-1])
