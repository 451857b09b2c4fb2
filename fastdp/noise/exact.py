"""The last stage of the guarded sampler: exact arithmetic with as many further bits as it takes.

``decimal`` computes ln correctly rounded, so intervals with a proven width follow from plain calls.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction

#: Digits by which the slack exceeds the rounding errors of the six operations in :func:`settle`.
GUARD = 6


def offset(scale: Fraction, one_sided: bool, context: Context) -> Decimal:
    """ln(2 / (1 + exp(-1/scale))) for the magnitude of a two-sided draw, 0 for a one-sided one."""
    if one_sided:
        return Decimal(0)
    inverse = context.divide(Decimal(scale.denominator), Decimal(scale.numerator))
    q = context.exp(context.minus(inverse))
    return context.ln(context.divide(Decimal(2), context.add(Decimal(1), q)))


def draw_exactly(u: int, bits: int, scale: Fraction, one_sided: bool, further: Callable[[int], int]) -> int:
    """Floor of scale * (offset - ln U) for U in [u, u + 1) / 2^bits, by narrowing U until it is certain.

    Parameters
    ----------
    u, bits : int
        The leading bits of U.
    scale : Fraction
        The exact scale.
    one_sided : bool
        Geometric noise (no offset) instead of the magnitude of discrete Laplace noise.
    further : callable
        ``further(k)`` gives the k-th further 64 bits of U, k = 1, 2, ...

    Returns
    -------
    int
        The magnitude of the draw; unbounded.
    """
    k = 0
    while True:
        if u > 0:
            # Enough digits for U itself and for the whole part of the result.
            precision = 30 + bits // 3 + scale.numerator.bit_length() // 3
            low, high = _bounds(u, bits, scale, one_sided, precision)
            if low == high:
                return low
        k += 1
        u = u << 64 | further(k)
        bits += 64


def _bounds(u: int, bits: int, scale: Fraction, one_sided: bool, precision: int) -> tuple[int, int]:
    """Floors of a lower and an upper bound of scale * (offset - ln U)."""
    context = Context(prec=precision)
    shift = context.multiply(Decimal(bits), context.ln(Decimal(2)))
    base = context.add(offset(scale, one_sided, context), shift)
    factor = context.divide(Decimal(scale.numerator), Decimal(scale.denominator))
    # Every operation errs by at most half a unit of the last digit of a number below base + 1.
    slack = context.multiply(context.multiply(factor, base), Decimal(10) ** (GUARD - precision))
    ends = []
    for end, sign in ((u + 1, -1), (u, 1)):
        value = context.multiply(factor, context.subtract(base, context.ln(Decimal(end))))
        bounded = context.add(value, context.multiply(slack, Decimal(sign)))
        ends.append(max(0, int(bounded.to_integral_value(rounding=ROUND_FLOOR))))
    return ends[0], ends[1]
