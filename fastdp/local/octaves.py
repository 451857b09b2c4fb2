"""A logarithmic scale that every machine computes alike: octaves, each divided evenly.

Position p of a ratio x >= 1 is e + (x / 2^e - 1), 2^e <= x < 2^(e + 1): within 9 % of an octave of log2 x, rising,
continuous, and made of operations that IEEE 754 rounds correctly, so that one value and an array of values, on any
machine, give the same position.  (Library logarithms differ in their last digits.)
"""

from __future__ import annotations

import math

import numpy as np

from fastdp.arrays.kinds import Floats


def position(ratio: float) -> float:
    """Octaves above 1 of one finite ratio; 0 for what is below."""
    mantissa, exponent = math.frexp(max(ratio, 1.0))
    return (exponent - 1) + (2.0 * mantissa - 1.0)


def positions(ratios: Floats) -> Floats:
    """The same of an array; NaN stays NaN."""
    mantissas, exponents = np.frexp(np.maximum(ratios, 1.0))
    return (exponents - 1) + (2.0 * mantissas - 1.0)


def ratios(at: Floats) -> Floats:
    """The inverse, for positions of at least 0."""
    whole = np.floor(at)
    return np.ldexp(1.0 + (at - whole), whole.astype(np.int64))
