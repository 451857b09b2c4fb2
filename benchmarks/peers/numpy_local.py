"""The hybrid mechanism in careful, vectorised NumPy with float randomness: not safe to release.

The right mixture of ToPL Appendix E.2 on [-1, 1]; the published code's is none, and its piecewise part is biased.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastdp.kinds import Floats
from fastdp.local.distribution import cell_edges
from fastdp.local.reports import WindowDistribution


def piecewise(values: Floats, epsilon: float, generator: np.random.Generator) -> Floats:
    """Unbiased reports in [-s, s]."""
    root = np.exp(epsilon / 2)
    s = (root + 1) / (root - 1)
    left = (root * values - 1) / (root - 1)
    length = 2 / (root - 1)
    near = generator.random(values.size) < root / (root + 1)
    # Uniform on the window, or on the rest: the interval of length 2 s - length with the window cut out.
    place = generator.random(values.size)
    far = -s + place * (2 * s - length)
    far += length * (far >= left)
    return np.where(near, left + place * length, far)


def rounding(values: Floats, epsilon: float, generator: np.random.Generator) -> Floats:
    """Unbiased reports, one of two numbers."""
    power = np.exp(epsilon)
    size = (power + 1) / (power - 1)
    return np.where(generator.random(values.size) < 0.5 + values / (2 * size), size, -size)


def hybrid(values: Floats, epsilon: float, generator: np.random.Generator) -> Floats:
    """Piecewise with probability 1 - e^(-epsilon / 2), else rounding (epsilon > 0.61)."""
    windowed = generator.random(values.size) < 1 - np.exp(-epsilon / 2)
    out = np.empty(values.size)
    out[windowed] = piecewise(values[windowed], epsilon, generator)
    out[~windowed] = rounding(values[~windowed], epsilon, generator)
    return out


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
