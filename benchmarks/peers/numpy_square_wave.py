"""Square-wave EM by a skilled hand: products by prefix sums, or with a dense matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.local.distribution import cell_edges
from fastdp.local.reports import WindowDistribution

Floats = NDArray[np.float64]
Product = Callable[[Floats], Floats]


def dense_matrix(law: WindowDistribution, bins: int) -> Floats:
    """P[cell | bin] as float64[bins, bins], by the second integral of a step in doubles."""
    cells = cell_edges(law, bins).astype(np.float64)[:, None]
    inputs = np.linspace(0.0, law.steps, bins + 1)[None, :]
    corner = np.maximum(cells - inputs, 0.0) ** 2 - np.maximum(cells - inputs - law.near, 0.0) ** 2
    near = np.diff(-np.diff(corner, axis=0), axis=1) * bins / (2.0 * law.steps)
    flat = np.diff(cells, axis=0) * (law.far_weight + law.left_over / law.outputs)
    return (flat + (law.near_weight - law.far_weight) * near) / law.total


class SecondIntegral:
    """Of a density that is constant between edges, at fixed points: two prefix sums and one look-up of each."""

    def __init__(self, edges: Floats, points: Floats) -> None:
        self.lengths = np.diff(edges)
        self.place = np.clip(np.searchsorted(edges, points, "right") - 1, 0, self.lengths.size)
        self.further = np.maximum(points - edges[self.place], 0.0)
        self.half = self.further / 2.0
        self.table = np.zeros((3, edges.size))

    def __call__(self, shares: Floats) -> Floats:
        twice, once, density = self.table
        np.cumsum(shares, out=once[1:])
        np.divide(shares, self.lengths, out=density[:-1])
        np.cumsum((once[:-1] + 0.5 * shares) * self.lengths, out=twice[1:])
        integral, slope, bend = self.table.take(self.place, axis=1)
        bend *= self.half
        bend += slope
        bend *= self.further
        bend += integral
        return bend


def products(law: WindowDistribution, bins: int) -> tuple[Product, Product]:
    """The matrix of :func:`dense_matrix` and its transpose, in time O(bins)."""
    cells, inputs = cell_edges(law, bins).astype(np.float64), np.linspace(0.0, law.steps, bins + 1)
    into = SecondIntegral(inputs, np.concatenate([cells, cells - law.near]))
    back = SecondIntegral(cells, np.concatenate([inputs + law.near, inputs]))
    lengths, width = np.diff(cells), law.steps / bins
    flat = lengths * ((law.far_weight + law.left_over / law.outputs) / law.total)
    peak = (law.near_weight - law.far_weight) / law.total

    def forward(theta: Floats) -> Floats:
        steps = np.diff(into(theta))
        return flat * theta.sum() + (steps[:bins] - steps[bins + 1 :]) * peak

    def backward(ratios: Floats) -> Floats:
        steps = np.diff(back(ratios * lengths))
        return flat @ ratios + (steps[:bins] - steps[bins + 1 :]) * (peak / width)

    return forward, backward


def dense_products(matrix: Floats) -> tuple[Product, Product]:
    transpose: Any = np.ascontiguousarray(matrix.T)
    return matrix.__matmul__, transpose.__matmul__


def estimate(forward: Product, backward: Product, counts: Floats, tolerance: float, most: int) -> tuple[Floats, int]:
    """EM from the uniform distribution until a step gains less than the tolerance."""
    theta = np.full(counts.size, 1.0 / counts.size)
    p = forward(theta)
    before = counts @ np.log(p)
    for step in range(1, most + 1):
        theta *= backward(counts / p)
        theta /= theta.sum()
        p = forward(theta)
        now = counts @ np.log(p)
        if now - before < tolerance:
            return theta, step
        before = now
    return theta, most
