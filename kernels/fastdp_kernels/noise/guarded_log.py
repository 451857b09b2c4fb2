"""Discrete Laplace and geometric draws in doubles, kept only where they are certain.

A word gives the sign (lowest bit) and U in [u, u + 1) / 2^63.  The draw is floor(Y), Y = scale * (offset - ln U),
offset = ln(2 / (1 + q)) for a two-sided magnitude, 0 for a geometric draw (q = exp(-1/scale)).  The floor is certain
unless [y - error, y + error] holds an integer (``docs/noise.md``, sections 3 and 4).
"""

from __future__ import annotations

import math

import numpy as np

from fastdp_kernels._jit import bits_of, double_of, inline, kernel, real_of
from fastdp_kernels._lanes import ROUNDER, ROUNDER_BITS

LN2 = math.log(2.0)
# 1 / (2j + 1): the Taylor series of atanh(f) / f in f^2.
C1, C2, C3, C4, C5, C6, C7, C8, C9, C10 = (1.0 / (2 * j + 1) for j in range(1, 11))
# The polynomial of degree 6 that is nearest to the same series for f^2 up to 0.02944, its coefficients rounded: 0.015
# units of 2^-53 from ln m, as near as draws need.
K1, K2, K3, K4 = 0.3333333333333335, 0.19999999999949253, 0.14285714313186185, 0.11111105538565973
K5, K6, K7 = 0.09091446454255986, 0.07665803626324169, 0.07308872684560062

MANTISSA = np.int64((1 << 52) - 1)
# x = 2^k m with m in [sqrt(1/2), sqrt(2)): add SHIFT to the bits of x, read k, put the rest on LOWEST.
LOWEST = np.int64(0x3FE6A09E00000000)
SHIFT = np.int64(0x3FF0000000000000 - 0x3FE6A09E00000000)
RECIPROCAL = np.int64(2046 << 52)
TWO_52_BITS = np.int64(0x4330000000000000)
#: 2^52 + k + 1023 for k = 63.
TOP_EXPONENT = 2.0**52 + 1023 + 63

# The constants of the error bound proved in docs/noise.md, section 4.
ERROR_SCALE = 4.0 * 2.0**-53
ERROR_VALUE = 8.0 * 2.0**-53
ERROR_WORD = 2.0

#: Marks a draw that is not certain; no certain draw takes this value.
DOUBTFUL = np.int64(-(2**63))
BLOCK = 512


@inline
def log_of_mantissa(m: float) -> float:
    """Logarithm of m in [sqrt(1/2), sqrt(2)), vectorisable."""
    # 2 atanh(f) by Taylor to f^21.
    f = (m - 1.0) / (m + 1.0)
    v = f * f
    p = ((((C10 * v + C9) * v + C8) * v + C7) * v + C6) * v + C5
    p = (((p * v + C4) * v + C3) * v + C2) * v + C1
    g = 2.0 * f
    return g + g * (v * p)


@inline
def nearly_log_of_mantissa(m: float) -> float:
    """:func:`log_of_mantissa` with fewer terms, for draws."""
    f = (m - 1.0) / (m + 1.0)
    v = f * f
    p = (((((K7 * v + K6) * v + K5) * v + K4) * v + K3) * v + K2) * v + K1
    g = 2.0 * f
    return g + g * (v * p)


@inline
def natural_log(x: float) -> float:
    """Logarithm of a normal number, to a few last places of ln x or ln 2."""
    shifted = bits_of(x) + SHIFT
    k = (shifted >> np.int64(52)) - np.int64(1023)
    return np.float64(k) * LN2 + log_of_mantissa(double_of((shifted & MANTISSA) + LOWEST))


@inline
def list_doubtful(out: np.ndarray, begin: int, doubtful: np.ndarray, found: int) -> int:
    """Add a block's doubtful positions to the ``found`` ones; returns their number."""
    for i in range(out.size):
        if out[i] == DOUBTFUL:
            doubtful[found] = begin + i
            found += 1
    return found


@kernel
def draw_double(
    words: np.ndarray, scale: float, offset: float, sign_bit: np.uint64, out: np.ndarray, doubtful: np.ndarray
) -> int:
    """Fill certain draws, one a word, and ``DOUBTFUL`` elsewhere; returns the number of doubtful ones, listed.

    ``scale``, in (0, 2^56], and ``offset``, ln(2 / (1 + q)) or 0, are rounded; ``sign_bit``: 1 if a word's lowest bit
    is the sign, 0 for one-sided noise.
    """
    n = words.size
    error_scale = scale * ERROR_SCALE
    error_word = scale * ERROR_WORD
    found = 0
    for begin in range(0, n, BLOCK):
        # Slices, so that the compiler sees indices from zero and vectorises.
        block_words = words[begin : begin + BLOCK]
        block_out = out[begin : begin + BLOCK]
        open_ones = 0
        for i in range(block_words.size):
            word = block_words[i]
            u = np.int64(word >> np.uint64(1))
            sign = -np.int64(word & sign_bit)
            bits = bits_of(real_of(u | np.int64(1)))
            shifted = bits + SHIFT
            # AVX2 neither converts int64 nor shifts them with their sign.
            exponent = double_of(np.int64(np.uint64(shifted) >> np.uint64(52)) | TWO_52_BITS)
            m = double_of((shifted & MANTISSA) + LOWEST)
            y = scale * (((TOP_EXPONENT - exponent) * LN2 + offset) - nearly_log_of_mantissa(m))
            # 2^-floor(log2 x): the relative width of the interval that 63 bits leave open.
            width = double_of(RECIPROCAL - (bits & ~MANTISSA))
            error = error_scale + y * ERROR_VALUE + error_word * width
            low = np.trunc(y - error)
            unsure = (low != np.trunc(y + error)) | (u < np.int64(2))
            # A certain draw is below 2^49, as the error is below 1/2.
            whole = bits_of(low + ROUNDER) - ROUNDER_BITS
            block_out[i] = DOUBTFUL if unsure else (whole ^ sign) - sign
            open_ones += unsure
        if open_ones:
            found = list_doubtful(block_out, begin, doubtful, found)
    return found


@inline
def draw_one(word: np.uint64, scale: float, offset: float) -> np.int64:
    """One two-sided draw of :func:`draw_double`, or ``DOUBTFUL``."""
    u = np.int64(word >> np.uint64(1))
    sign = -np.int64(word & np.uint64(1))
    x = np.float64(u | np.int64(1))
    bits = bits_of(x)
    shifted = bits + SHIFT
    k = (shifted >> np.int64(52)) - np.int64(1023)
    m = double_of((shifted & MANTISSA) + LOWEST)
    y = scale * ((np.float64(np.int64(63) - k) * LN2 + offset) - nearly_log_of_mantissa(m))
    width = double_of(RECIPROCAL - (bits & ~MANTISSA))
    error = scale * ERROR_SCALE + y * ERROR_VALUE + scale * ERROR_WORD * width
    low = np.int64(y - error)
    high = np.int64(y + error)
    return DOUBTFUL if (low != high) | (u < np.int64(2)) else (low ^ sign) - sign


@kernel
def draw_rows(
    words: np.ndarray,
    scales: np.ndarray,
    offsets: np.ndarray,
    sign_bit: np.uint64,
    out: np.ndarray,
    doubtful: np.ndarray,
) -> int:
    """:func:`draw_double` with a distribution for each row: words [n, w]; positions in the flat array."""
    found = 0
    width = words.shape[1]
    for row in range(words.shape[0]):
        more = draw_double(words[row], scales[row], offsets[row], sign_bit, out[row], doubtful[found:])
        for k in range(found, found + more):
            doubtful[k] += row * width
        found += more
    return found
