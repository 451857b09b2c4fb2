"""Releases with a rho and pure ones together: Renyi divergences of one order add up.

A pure loss of epsilon has the divergence r(epsilon) at most, that of randomised response, which every mechanism of
this epsilon is a function of.  With a = order - 1/2:

    r(epsilon) = ln(cosh(a epsilon) / cosh(epsilon / 2)) / (order - 1),

below epsilon, and below order epsilon^2 / 2.  A rho costs order times it.  The proof is in ``docs/gaussian.md``.

Source: Kairouz, Oh and Viswanath 2015 (randomised response dominates); Mironov 2017 (divergences add up); Feldman and
Zrnic 2021 (also if releases are chosen adaptively, at one order); Canonne, Kamath and Steinke 2020, Proposition 12.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from fastdp.guarantee import zcdp_order, zcdp_rho

#: Pure losses are summed by size, in so many classes from one power of two to the next.
CLASSES = 16
#: Smaller losses count as so large.
SMALLEST = 2.0**-100
#: What is tried where no limit says which: neighbours differ by 2^(1/8) in order - 1, which costs .1 %.
ORDERS = tuple(1.0 + 2.0 ** (k / 8.0) for k in range(-40, 161))
#: Results are so far above what floats give, and rounding is far below.
_ABOVE = 1.0 + 2.0**-40


def size_class(epsilon: float) -> int:
    """Which class a loss is of, by exact arithmetic, so that all machines agree."""
    mantissa, exponent = math.frexp(max(epsilon, SMALLEST))
    return CLASSES * exponent + math.ceil(2 * CLASSES * mantissa) - CLASSES


def largest(index: int) -> float:
    """The largest loss of a class."""
    exponent, part = divmod(index, CLASSES)
    return math.ldexp((CLASSES + part) / (2 * CLASSES), exponent)


def pure_divergence(epsilon: float, order: float) -> float:
    """Of a pure loss, or a little more."""
    if not order * epsilon < 600.0:
        # ln cosh x = x + ln(1 + e^(-2 x)) - ln 2.
        lost = math.log1p(math.exp(-epsilon)) - math.log1p(math.exp(-(2.0 * order - 1.0) * epsilon))
        return epsilon - lost / (order - 1.0) * (1.0 - 2.0**-40)
    # cosh a = cosh b + 2 sinh((a + b) / 2) sinh((a - b) / 2).
    grown = math.sinh(order * epsilon / 2.0) * math.sinh((order - 1.0) * epsilon / 2.0) / math.cosh(epsilon / 2.0)
    return min(epsilon, math.log1p(2.0 * grown) / (order - 1.0) * _ABOVE)


def epsilon_at(order: float, pure: Sequence[tuple[float, float]], rho: float, delta: float) -> float:
    """An epsilon for which these releases together are (epsilon, delta)-DP, by their divergence of one order.

    Parameters
    ----------
    order : float
        Above 1.
    pure : sequence of (float, float)
        For each class its largest loss, and the sum of its losses: r(epsilon) / epsilon rises with epsilon.
    rho : float
        Sum of all others.
    delta : float
        In (0, 1).
    """
    spent = order * rho + sum(total * min(1.0, pure_divergence(top, order) / top) for top, total in pure)
    rest = -math.log(delta) + order * math.log1p(-1.0 / order) - math.log(order - 1.0)
    # A sum of terms of either sign: the margin is of their sizes.
    return max(0.0, spent + (rest + 2.0**-40 * (1.0 - math.log(delta) + abs(rest))) / (order - 1.0)) * _ABOVE


@lru_cache(maxsize=256)
def orders_of(epsilon: float, delta: float) -> tuple[float, ...]:
    """Public orders where the limit is (epsilon, delta): best for rhos that use up all, a half or a quarter of it."""
    parts = (epsilon, epsilon / 2.0, epsilon / 4.0)
    return tuple(zcdp_order(max(zcdp_rho(part, delta), 2.0**-1000), part) for part in parts)
