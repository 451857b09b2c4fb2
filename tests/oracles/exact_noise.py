"""Naive noise: the formula in 200 digits (``docs/noise.md``), and a sampler by digits that shares nothing with it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
from numpy.typing import NDArray


def magnitude(u: int, bits: int, scale: Fraction, one_sided: bool) -> tuple[int, int]:
    """Floors of scale (offset - ln U) at both ends of U in [u, u + 1) / 2^bits (u >= 1): (least, most)."""
    with mpmath.workdps(200):
        s = mpmath.mpf(scale.numerator) / scale.denominator
        offset = mpmath.mpf(0) if one_sided else mpmath.log(2 / (1 + mpmath.exp(-1 / s)))
        least = s * (offset + bits * mpmath.log(2) - mpmath.log(u + 1))
        most = s * (offset + bits * mpmath.log(2) - mpmath.log(u))
        # The lower end is open: a whole number there is not reached.
        return max(0, int(mpmath.floor(least))), max(0, int(mpmath.floor(most)))


def draw(word: int, further: Callable[[int], int], scale: Fraction, one_sided: bool) -> int:
    """One draw from a word and as many further words as it takes."""
    u, bits, k = word >> 1, 63, 0
    while True:
        if u:
            least, most = magnitude(u, bits, scale, one_sided)
            if least == most:
                return -least if not one_sided and word & 1 else least
        k += 1
        u, bits = u << 64 | further(k), bits + 64


def real_value(u: int, bits: int, scale: Fraction, one_sided: bool) -> mpmath.mpf:
    """The number scale (offset - ln(u / 2^bits)) whose floor is the draw's magnitude."""
    s = mpmath.mpf(scale.numerator) / scale.denominator
    offset = mpmath.mpf(0) if one_sided else mpmath.log(2 / (1 + mpmath.exp(-1 / s)))
    return s * (offset + bits * mpmath.log(2) - mpmath.log(u))


def geometric_by_digits(scale: float, size: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Geometric draws from independent binary digits: P[digit i = 1] = 1 / (1 + exp(2^i / scale)).

    Each digit compares 128 uniform bits with the probability's first 128 bits.
    """
    out = np.zeros(size, np.int64)
    digits = int(np.ceil(np.log2(max(scale, 1.0) * 100.0))) + 1
    for i in range(digits):
        with mpmath.workdps(60):
            exact = 1 / (1 + mpmath.exp(mpmath.mpf(2) ** i / mpmath.mpf(scale)))
            bits = int(mpmath.floor(mpmath.ldexp(exact, 128)))
        high, low = np.uint64(bits >> 64), np.uint64(bits & (2**64 - 1))
        first = generator.integers(0, 2**64, size=size, dtype=np.uint64)
        second = generator.integers(0, 2**64, size=size, dtype=np.uint64)
        one = (first < high) | ((first == high) & (second < low))
        out += one.astype(np.int64) << i
    return out


def laplace_by_digits(scale: float, size: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Discrete Laplace as the difference of two independent geometric variables."""
    return geometric_by_digits(scale, size, generator) - geometric_by_digits(scale, size, generator)
