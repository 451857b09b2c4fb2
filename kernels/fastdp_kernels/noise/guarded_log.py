"""Discrete Laplace and geometric draws in doubles, kept only where they are certain.

A word w gives the sign (lowest bit) and U in [u, u + 1) / 2^63 (the other bits).  The draw is
floor(Y), Y = scale * (offset - ln U), with offset = ln(2 / (1 + q)) for the magnitude of a discrete
Laplace variable and 0 for a geometric one (q = exp(-1/scale)); Y in [0, 1) gives 0 either way.
``docs/noise.md`` proves that |y - Y| < error for the y and error computed here, for every U the word
leaves open; unless [y - error, y + error] holds an integer the floor is therefore certain.

Source: inversion of P[|X| >= k] = 2 q^k / (1 + q); ln by 2 atanh((m - 1) / (m + 1)), of draws by the
nearest polynomial up to f^15 (Remez), else by Taylor to f^21.
"""

from __future__ import annotations

import math

import numpy as np

from fastdp_kernels._jit import bits_of, double_of, inline, kernel

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

# The constants of the error bound proved in docs/noise.md, section 3.
ERROR_SCALE = 4.0 * 2.0**-53
ERROR_VALUE = 8.0 * 2.0**-53
ERROR_WORD = 2.0

#: Marks a draw that is not certain; no certain draw takes this value.
DOUBTFUL = np.int64(-(2**63))
BLOCK = 512


@inline
def log_of_mantissa(m: float) -> float:
    """Natural logarithm of m in [sqrt(1/2), sqrt(2)), for loops that are to be vectorised."""
    f = (m - 1.0) / (m + 1.0)
    v = f * f
    p = ((((C10 * v + C9) * v + C8) * v + C7) * v + C6) * v + C5
    p = (((p * v + C4) * v + C3) * v + C2) * v + C1
    g = 2.0 * f
    return g + g * (v * p)


@inline
def nearly_log_of_mantissa(m: float) -> float:
    """:func:`log_of_mantissa` with fewer terms, for draws, whose error bound has room for it."""
    f = (m - 1.0) / (m + 1.0)
    v = f * f
    p = (((((K7 * v + K6) * v + K5) * v + K4) * v + K3) * v + K2) * v + K1
    g = 2.0 * f
    return g + g * (v * p)


@inline
def natural_log(x: float) -> float:
    """Natural logarithm of a normal positive number, to a few units in the last place of ln x or of ln 2."""
    shifted = bits_of(x) + SHIFT
    k = (shifted >> np.int64(52)) - np.int64(1023)
    return np.float64(k) * LN2 + log_of_mantissa(double_of((shifted & MANTISSA) + LOWEST))


@inline
def list_doubtful(out: np.ndarray, begin: int, doubtful: np.ndarray, found: int) -> int:
    """Add the doubtful places of a block that begins there to the ``found`` ones; how many there are now."""
    for i in range(out.size):
        if out[i] == DOUBTFUL:
            doubtful[found] = begin + i
            found += 1
    return found


@kernel
def draw_double(
    words: np.ndarray, scale: float, offset: float, sign_bit: np.uint64, out: np.ndarray, doubtful: np.ndarray
) -> int:
    """Fill ``out`` with the certain draws and list the positions of the others.

    Parameters
    ----------
    words : uint64[n]
        Random words, one a draw.
    scale : float
        The scale rounded to a double, in (0, 2^56].
    offset : float
        ln(2 / (1 + q)) rounded to a double, or 0.
    sign_bit : uint64
        1 if the lowest bit of a word is the sign, 0 for one-sided noise.
    out : int64[n]
        The draws; ``DOUBTFUL`` where not certain.
    doubtful : int64[n]
        Its first ``return value`` entries become the positions of the doubtful draws, ascending.

    Returns
    -------
    int
        How many draws are doubtful.
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
            x = np.float64(u | np.int64(1))
            bits = bits_of(x)
            shifted = bits + SHIFT
            k = (shifted >> np.int64(52)) - np.int64(1023)
            m = double_of((shifted & MANTISSA) + LOWEST)
            y = scale * ((np.float64(np.int64(63) - k) * LN2 + offset) - nearly_log_of_mantissa(m))
            # 2^-floor(log2 x): the relative width of the interval that 63 bits leave open.
            width = double_of(RECIPROCAL - (bits & ~MANTISSA))
            error = error_scale + y * ERROR_VALUE + error_word * width
            low = np.int64(y - error)
            high = np.int64(y + error)
            unsure = (low != high) | (u < np.int64(2))
            block_out[i] = DOUBTFUL if unsure else (low ^ sign) - sign
            open_ones += unsure
        if open_ones:
            found = list_doubtful(block_out, begin, doubtful, found)
    return found


@inline
def draw_one(word: np.uint64, scale: float, offset: float) -> np.int64:
    """One two-sided draw, as :func:`draw_double` makes it, or ``DOUBTFUL``."""
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
    """First stage of the sampler with a law for each row.

    Parameters
    ----------
    words : uint64[n, w]
        One word a draw.
    scales, offsets : float64[n]
        Constants of each row's law, as :func:`draw_double` takes them.
    sign_bit : uint64
        1 if the lowest bit of a word is the sign, 0 for one-sided noise.
    out : int64[n, w]
        The draws; ``DOUBTFUL`` where not certain.
    doubtful : int64[n * w]
        Its first ``return value`` entries become the doubtful positions in the flat array, ascending.
    """
    found = 0
    width = words.shape[1]
    for row in range(words.shape[0]):
        more = draw_double(words[row], scales[row], offsets[row], sign_bit, out[row], doubtful[found:])
        for k in range(found, found + more):
            doubtful[k] += row * width
        found += more
    return found
