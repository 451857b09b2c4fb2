"""Second stage of the guarded sampler: the same draw in double-double arithmetic, about 106 bits.

Formulas and error bounds: ``docs/noise.md``, section 4.  Source: Dekker 1971 (products), Knuth TAOCP 4.2.2 (sums).
"""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np

from fastdp_kernels._jit import bits_of, double_of, inline, kernel
from fastdp_kernels.noise.guarded_log import DOUBTFUL, SHIFT

TABLE_FIRST = 89
TABLE_LAST = 183
TWO_M64 = 2.0**-64
TWO_M90 = 2.0**-90
MARGIN = 2.0**-50
SPLITTER = 134217729.0  # 2^27 + 1
#: Below this the second word's rounding would matter; such draws (one in 2^23) go to the last stage.
SMALLEST = np.int64(1 << 40)


def _pair(value: Decimal, context: Context) -> tuple[float, float]:
    high = float(value)
    return high, float(context.subtract(value, Decimal(high)))


def _log_table() -> np.ndarray:
    # ln(j / 128), j = TABLE_FIRST .. TABLE_LAST.
    context = Context(prec=60)
    logs = (context.ln(context.divide(Decimal(j), Decimal(128))) for j in range(TABLE_FIRST, TABLE_LAST + 1))
    return np.array([_pair(value, context) for value in logs])


LOG_TABLE = _log_table()
_CONTEXT = Context(prec=60)
LN2_HIGH, LN2_LOW = _pair(_CONTEXT.ln(Decimal(2)), _CONTEXT)
THIRD_HIGH, THIRD_LOW = _pair(_CONTEXT.divide(Decimal(1), Decimal(3)), _CONTEXT)
FIFTH_HIGH, FIFTH_LOW = _pair(_CONTEXT.divide(Decimal(1), Decimal(5)), _CONTEXT)


@inline
def two_sum(a: float, b: float) -> tuple[float, float]:
    """a + b as rounded sum and error."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@inline
def two_product(a: float, b: float) -> tuple[float, float]:
    """a * b as rounded product and error (|a|, |b| < 2^990)."""
    p = a * b
    t = SPLITTER * a
    ah = t - (t - a)
    al = a - ah
    t = SPLITTER * b
    bh = t - (t - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


@inline
def add(ah: float, al: float, bh: float, bl: float) -> tuple[float, float]:
    """Sum of double-doubles, relative error below 2^-104 without full cancellation."""
    s, e = two_sum(ah, bh)
    t, f = two_sum(al, bl)
    s, e = two_sum(s, e + t)
    return two_sum(s, e + f)


@inline
def multiply(ah: float, al: float, bh: float, bl: float) -> tuple[float, float]:
    """Product of double-doubles, relative error below 2^-102."""
    p, e = two_product(ah, bh)
    return two_sum(p, e + (ah * bl + al * bh))


@inline
def divide(ah: float, al: float, bh: float, bl: float) -> tuple[float, float]:
    """Quotient of double-doubles, relative error below 2^-101."""
    q1 = ah / bh
    ph, pl = multiply(q1, 0.0, bh, bl)
    rh, rl = add(ah, al, -ph, -pl)
    q2 = rh / bh
    ph, pl = multiply(q2, 0.0, bh, bl)
    rh, rl = add(rh, rl, -ph, -pl)
    q3 = rh / bh
    s, e = two_sum(q1, q2)
    return two_sum(s, e + q3)


@inline
def log_mantissa(mh: float, ml: float) -> tuple[float, float]:
    """Logarithm of a double-double in [0.70, 1.42]."""
    # ln c + 2 atanh(f), f = (m - c) / (m + c), c = j / 128, by Taylor to f^13.
    j = np.int64(np.rint(mh * 128.0))
    c = np.float64(j) / 128.0
    nh, nl = add(mh, ml, -c, 0.0)
    dh, dl = add(mh, ml, c, 0.0)
    fh, fl = divide(nh, nl, dh, dl)
    vh, vl = multiply(fh, fl, fh, fl)
    tail = ((vh * (1.0 / 13.0) + 1.0 / 11.0) * vh + 1.0 / 9.0) * vh + 1.0 / 7.0
    # 1/3 + v/5 + v^2 tail: the last product is 2^-34 of the sum, doubles suffice.
    sh, sl = multiply(vh, vl, FIFTH_HIGH, FIFTH_LOW)
    sh, sl = add(sh, sl, THIRD_HIGH, THIRD_LOW)
    sh, sl = add(sh, sl, vh * vh * tail, 0.0)
    sh, sl = multiply(sh, sl, vh, vl)
    sh, sl = multiply(sh, sl, fh, fl)
    sh, sl = add(sh, sl, fh, fl)
    return add(LOG_TABLE[j - TABLE_FIRST, 0], LOG_TABLE[j - TABLE_FIRST, 1], 2.0 * sh, 2.0 * sl)


@inline
def draw_refined(
    word: np.uint64,
    further: np.uint64,
    has_further: bool,
    scale_high: float,
    scale_low: float,
    offset_high: float,
    offset_low: float,
    sign_bit: np.uint64,
) -> np.int64:
    """One draw of :func:`draw_double_double`, or ``DOUBTFUL``."""
    u = np.int64(word >> np.uint64(1))
    if u < SMALLEST:
        return DOUBTFUL
    uh = np.float64(u)
    # uh can be 2^63, which is no int64: split before the difference.
    top = np.float64(u >> np.int64(32)) * 4294967296.0
    ul = (top - uh) + np.float64(u & np.int64(0xFFFFFFFF))
    width = 1.0 / uh
    if has_further:
        ul += np.float64(further) * TWO_M64
        width *= TWO_M64
    shifted = bits_of(uh) + SHIFT
    k = (shifted >> np.int64(52)) - np.int64(1023)
    power = double_of((np.int64(1023) - k) << np.int64(52))
    lh, ll = log_mantissa(uh * power, ul * power)
    n = np.float64(np.int64(63) - k)
    th, tl = multiply(n, 0.0, LN2_HIGH, LN2_LOW)
    th, tl = add(th, tl, offset_high, offset_low)
    th, tl = add(th, tl, -lh, -ll)
    yh, yl = multiply(th, tl, scale_high, scale_low)
    error = (yh + scale_high) * TWO_M90
    whole_high = np.floor(yh)
    whole_low = np.floor(yl)
    rest = (yh - whole_high) + (yl - whole_low)
    carry = np.floor(rest)
    rest -= carry
    value = np.int64(whole_high) + np.int64(whole_low) + np.int64(carry)
    # Y lies in (y - below, y + error); rest is right to 2^-51, which MARGIN covers.
    below = 2.0 * scale_high * width + error
    if rest - below > MARGIN and rest + error < 1.0 - MARGIN:
        sign = -np.int64(word & sign_bit)
        return (value ^ sign) - sign
    return DOUBTFUL


@kernel
def draw_double_double(
    words: np.ndarray,
    further: np.ndarray,
    scale_high: float,
    scale_low: float,
    offset_high: float,
    offset_low: float,
    sign_bit: np.uint64,
    positions: np.ndarray,
    count: int,
    out: np.ndarray,
) -> int:
    """Draw the first ``count`` listed ``positions`` to 106 bits; returns the number still open, listed again.

    ``further``: 64 more bits of every U, or empty; constants: as of :func:`guarded_log.draw_double`, double-doubles.
    """
    has_further = further.size > 0
    found = 0
    for slot in range(count):
        i = positions[slot]
        second = further[i] if has_further else np.uint64(0)
        out[i] = draw_refined(words[i], second, has_further, scale_high, scale_low, offset_high, offset_low, sign_bit)
        if out[i] == DOUBTFUL:
            positions[found] = i
            found += 1
    return found
