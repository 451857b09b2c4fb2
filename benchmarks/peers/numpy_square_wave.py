"""Square-wave EM by a skilled hand: a dense matrix and two matrix products a step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastdp.local.laws import WindowLaw
from fastdp.local.transition import cell_edges

Floats = NDArray[np.float64]


def dense_matrix(law: WindowLaw, bins: int) -> Floats:
    """P[cell | bin] as float64[bins, bins], by the second integral of a step in doubles."""
    cells = cell_edges(law, bins).astype(np.float64)[:, None]
    inputs = np.linspace(0.0, law.steps, bins + 1)[None, :]
    corner = np.maximum(cells - inputs, 0.0) ** 2 - np.maximum(cells - inputs - law.near, 0.0) ** 2
    near = np.diff(-np.diff(corner, axis=0), axis=1) * bins / (2.0 * law.steps)
    flat = np.diff(cells, axis=0) * (law.far_weight + law.left_over / law.outputs)
    return (flat + (law.near_weight - law.far_weight) * near) / law.total


def estimate(matrix: Floats, counts: Floats, tolerance: float, most: int) -> tuple[Floats, int]:
    """EM from the uniform distribution until a step gains less than the tolerance."""
    transpose = np.ascontiguousarray(matrix.T)
    theta = np.full(matrix.shape[1], 1.0 / matrix.shape[1])
    p = matrix @ theta
    before = counts @ np.log(p)
    for step in range(1, most + 1):
        theta *= transpose @ (counts / p)
        theta /= theta.sum()
        p = matrix @ theta
        now = counts @ np.log(p)
        if now - before < tolerance:
            return theta, step
        before = now
    return theta, most
