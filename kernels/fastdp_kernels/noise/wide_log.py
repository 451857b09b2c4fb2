"""The guarded sampler with two words a draw, certain but for some millionths.

As in ``guarded_log``, with U in [u + v / 2^63, u + (v + 1) / 2^63) / 2^63, v from the second word, and the logarithm
of 1 + f = m r, r a multiple of 2^-9 near 1 / m (``docs/noise.md``, section 4).
"""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np

from fastdp_kernels._jit import bits_of, double_of, inline, kernel
from fastdp_kernels.noise.double_double import MARGIN, SMALLEST, TABLE_FIRST, TABLE_LAST, two_sum
from fastdp_kernels.noise.guarded_log import BLOCK, DOUBTFUL, LOWEST, MANTISSA, RECIPROCAL, SHIFT, list_doubtful

#: Bounds of the logarithm's error, and of the product's relative one.
ERROR_LOG = 2.0**-71
ERROR_PRODUCT = 2.0**-100
TWO_M63 = 2.0**-63
#: The upper 26 bits of a double's 53.
UPPER = ~np.int64((1 << 27) - 1)
C3, C4, C5, C6, C7, C8, C9, C10 = (1.0 / j for j in range(3, 11))


def _tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """1 / m for m near j / 128, to 2^-9, and logarithms as pairs."""
    context = Context(prec=60)
    steps = [round(65536 / j) for j in range(TABLE_FIRST, TABLE_LAST + 1)]
    logs = [context.ln(context.divide(Decimal(step), Decimal(512))) for step in steps]
    high = np.array([float(log) for log in logs])
    low = np.array([float(context.subtract(log, Decimal(float(log)))) for log in logs])
    return np.array(steps) / 512.0, high, low


INVERSES, LOG_HIGH, LOG_LOW = _tables()
#: ln 2 in 40 bits, so that its products with whole numbers below 64 are exact, and the rest.
_LN2 = Context(prec=60).ln(Decimal(2))
LN2_UPPER = float(round(_LN2 * 2**40)) / 2.0**40
LN2_REST = float(_LN2 - Decimal(LN2_UPPER))


@inline
def upper_half(x: float) -> float:
    """The upper 26 bits of x; the rest is exact."""
    return double_of(bits_of(x) & UPPER)


@inline
def log_one_plus(f: float, low: float) -> tuple[float, float]:
    """ln(1 + f + low) - f as a pair, for |f| < 2^-7, |low| < 2^-51."""
    g = upper_half(f)
    # f^2 is g^2, which is exact, and the rest.
    square = g * g
    v = f * f
    series = ((((((C9 - f * C10) * f - C8) * f + C7) * f - C6) * f + C5) * f - C4) * f + C3
    tiny = low * (1.0 - f * (1.0 - f * (1.0 - f))) - 0.5 * ((f - g) * (f + g))
    return -0.5 * square, tiny + series * (v * f)


@kernel
def draw_wide(
    words: np.ndarray,
    further: np.ndarray,
    scale_high: float,
    scale_low: float,
    offset_high: float,
    offset_low: float,
    sign_bit: np.uint64,
    out: np.ndarray,
    doubtful: np.ndarray,
) -> int:
    """:func:`guarded_log.draw_double` with words ``further`` and constants as double-doubles."""
    scale_upper = upper_half(scale_high)
    scale_rest = scale_high - scale_upper
    error_scale = scale_high * ERROR_LOG
    found = 0
    for begin in range(0, words.size, BLOCK):
        block_words = words[begin : begin + BLOCK]
        block_further = further[begin : begin + BLOCK]
        block_out = out[begin : begin + BLOCK]
        open_ones = 0
        for i in range(block_words.size):
            word = block_words[i]
            u = np.int64(word >> np.uint64(1))
            sign = -np.int64(word & sign_bit)
            large = max(u, SMALLEST)
            nearest = np.float64(large)
            # It can be 2^63, which is no int64: split before the difference.
            top = np.float64(large >> np.int64(32)) * 4294967296.0
            beyond = (top - nearest) + np.float64(large & np.int64(0xFFFFFFFF))
            beyond += np.float64(np.int64(block_further[i] >> np.uint64(1))) * TWO_M63
            x, rest_of_x = two_sum(nearest, beyond)
            bits = bits_of(x)
            shifted = bits + SHIFT
            k = (shifted >> np.int64(52)) - np.int64(1023)
            n = np.float64(np.int64(63) - k)
            m = double_of((shifted & MANTISSA) + LOWEST)
            rest_of_m = rest_of_x * double_of((np.int64(1023) - k) << np.int64(52))
            # f + low = (m + rest_of_m) r - 1, the two upper products exactly.
            place = np.int64(m * 128.0 + 0.5) - TABLE_FIRST
            r = INVERSES[place]
            upper = upper_half(m)
            f, low = two_sum(upper * r - 1.0, (m - upper) * r)
            squared, small = log_one_plus(f, low + rest_of_m * r)
            t, e1 = two_sum(n * LN2_UPPER, offset_high)
            t, e2 = two_sum(t, LOG_HIGH[place])
            t, e3 = two_sum(t, -f)
            t, e4 = two_sum(t, -squared)
            tiny = ((e1 + e2) + (e3 + e4)) + ((n * LN2_REST + offset_low) + LOG_LOW[place])
            t, tiny = two_sum(t, tiny - small)
            # The product with the scale, its rounding error included.
            t_upper = upper_half(t)
            t_rest = t - t_upper
            y = t * scale_high
            y_low = (t_upper * scale_upper - y) + t_upper * scale_rest + t_rest * scale_upper
            y_low += t_rest * scale_rest + (t * scale_low + tiny * scale_high)
            whole_high = np.floor(y)
            whole_low = np.floor(y_low)
            rest = (y - whole_high) + (y_low - whole_low)
            carry = np.floor(rest)
            rest -= carry
            value = np.int64(whole_high) + np.int64(whole_low) + np.int64(carry)
            # Y lies in (y - below, y + error); rest is right to 2^-51, which MARGIN covers.
            error = error_scale + y * ERROR_PRODUCT
            width = double_of(RECIPROCAL - (bits & ~MANTISSA)) * TWO_M63
            below = 2.0 * scale_high * width + error
            unsure = (u < SMALLEST) | (rest - below <= MARGIN) | (rest + error >= 1.0 - MARGIN)
            block_out[i] = DOUBTFUL if unsure else (value ^ sign) - sign
            open_ones += unsure
        if open_ones:
            found = list_doubtful(block_out, begin, doubtful, found)
    return found
