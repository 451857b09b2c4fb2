"""The hybrid mechanism in careful, vectorised NumPy with float randomness: not safe to release.

The right mixture of ToPL Appendix E.2 on [-1, 1]; the published code's is none, and its piecewise part is biased.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


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
