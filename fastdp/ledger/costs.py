"""The cost of one release and the budget left, in exact decimals; ``odometer`` adds releases up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, zcdp_order, zcdp_rho
from fastdp.ledger.entry import ELEMENTS, VALUE, Kind

UNIT = 10**324
#: Above it, e^epsilon times any positive float exceeds 1, the largest delta.
MAX_EXPONENT = 1000
#: Costs that the odometer adds up.  DOUBLE_DELTA: delta where a release counts twice.  RHO: of all releases; OWN_RHO:
#: of those that state a rho.  SPAN_DELTA, SPAN_RHO: of releases for a person in any period, if the person's rows
#: change in all periods of the release's times, as a share for each period.
EPSILON, DELTA, DOUBLE_DELTA, RHO, OWN_RHO, SPAN_DELTA, SPAN_RHO = range(7)
#: Stands for a missing rho.
NO_RHO = UNIT << 1000


class Budget(NamedTuple):
    """Privacy loss, ``epsilon`` and ``delta``; ``inf`` for no limit."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Loss:
    """An exact privacy loss; epsilon and rho may be infinite."""

    epsilon: Fraction | float
    delta: Fraction
    rho: Fraction | float = math.inf

    def within(self, limit: Budget) -> bool:
        """Return whether `limit`, as its decimals say, allows this loss."""
        return _fits(self.epsilon, limit.epsilon) and _fits(self.delta, limit.delta)


def _fits(spent: Fraction | float, limit: float) -> bool:
    return spent <= (written(limit) if math.isfinite(limit) else limit)


def written(amount: float) -> Fraction:
    """Shortest decimal that reads back as this float, exactly."""
    return Fraction(repr(amount))


def times(kind: Kind, weaker: Kind) -> int | None:
    """How many changes of unit `kind` make any one of `weaker`; None if they do not."""
    if kind == weaker or kind.rows is None or weaker.rows is None:
        return 1 if kind == weaker else 2 if kind in ELEMENTS and weaker == VALUE else None
    return kind.rows.times(weaker.rows)


def common_kind(kinds: Iterable[Kind], stream: str) -> Kind:
    """Weakest of these units; ParameterError if there is none."""
    found = sorted(set(kinds), key=str)
    for weakest in found:
        if all(times(kind, weakest) for kind in found):
            return weakest
    if not found:
        return VALUE
    raise ParameterError(
        f"guarantee on stream {stream!r} with the units {'; '.join(map(str, found))}: expected one that all others "
        'imply (docs/ledger.md, "Units"); name another stream for another unit'
    )


@lru_cache(maxsize=1024)
def cost(epsilon: float, delta: float, distance: float) -> tuple[int, int, int]:
    """EPSILON, DELTA and DOUBLE_DELTA of a release, in units of 1 / UNIT."""
    # The sampled distribution P~ is at most d from the P of the proof: P~1 <= P1 + d <= e^eps P2 + delta + d
    # <= e^eps P~2 + delta + (1 + e^eps) d.
    one = min(Fraction(1), written(delta) + _on_both_sides(written(distance), epsilon))
    # Group privacy for two units: P1 <= e^eps P2 + delta <= e^(2 eps) P3 + (e^eps + 1) delta.
    two = min(Fraction(1), _on_both_sides(one, epsilon))
    return math.ceil(written(epsilon) * UNIT), math.ceil(one * UNIT), math.ceil(two * UNIT)


def of_changes(changes: int, epsilon: int, delta: int) -> int:
    """Delta of so many changes in turn, in units of 1 / UNIT."""
    # delta (1 + e^eps + ... + e^((m - 1) eps)), of which the last term is the largest.
    if changes == 1 or not delta:
        return delta
    return math.ceil(changes * delta * exp_above(Fraction((changes - 1) * epsilon, UNIT)))


def alone(guarantee: Guarantee) -> Loss:
    """Privacy loss of one release by itself, exactly."""
    if math.isinf(guarantee.epsilon):
        return Loss(math.inf, Fraction(guarantee.delta))
    epsilon, delta, _ = cost(guarantee.epsilon, guarantee.delta, guarantee.numeric_distance)
    return Loss(Fraction(epsilon, UNIT), Fraction(delta, UNIT))


def rho_of(guarantee: Guarantee) -> int:
    """Rho of a release, in units of 1 / UNIT; NO_RHO if none."""
    claimed = math.isfinite(guarantee.rho)
    if guarantee.numeric_distance or (not claimed and (guarantee.delta or guarantee.epsilon > MAX_EXPONENT)):
        return NO_RHO
    # Of pure epsilon exactly, so that sums of it are.
    exact = written(guarantee.rho) if claimed else written(guarantee.epsilon) ** 2 / 2
    return math.ceil(exact * UNIT)


def _on_both_sides(amount: Fraction, epsilon: float) -> Fraction:
    return amount * (1 + exp_above(Fraction(epsilon))) if amount else amount


def exp_above(exponent: Fraction) -> Fraction:
    """Rational number above e^`exponent`."""
    context = Context(prec=50, Emax=10**6, Emin=-(10**6))
    ratio = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(context.next_plus(context.exp(context.next_plus(min(ratio, Decimal(MAX_EXPONENT))))))


def rounded(loss: Loss) -> Budget:
    """Privacy loss as two floats that do not understate it."""
    return Budget(float_above(loss.epsilon), min(1.0, float_above(loss.delta)))


def left(limit: Budget, spent: Loss, met: Loss, changes: int = 1) -> Budget:
    """Cost allowed to a further release, rounded down; 0 beyond the limit.

    `spent`, `met`: cost of the stream's worst element, and of the new release's; `changes`: how often it counts.
    """
    if not spent.within(limit):
        return Budget(0.0, 0.0)
    return Budget(_rest(limit.epsilon, met.epsilon, changes), _rest(limit.delta, met.delta, changes))


def _rest(limit: float, met: Fraction | float, changes: int) -> float:
    if math.isinf(limit) or met >= limit:
        return limit if math.isinf(limit) else 0.0
    exact = (written(limit) - Fraction(met)) / changes
    nearest = float(exact)
    return nearest if written(nearest) <= exact else math.nextafter(nearest, 0.0)


def float_above(amount: Fraction | float) -> float:
    """Least float found whose shortest decimal is at least `amount`."""
    try:
        nearest = float(amount)
    except OverflowError:
        return math.inf
    return nearest if math.isinf(nearest) or written(nearest) >= amount else math.nextafter(nearest, math.inf)


# Releases with a rho and pure ones together: Renyi divergences of one order add up.
#
# A pure loss of epsilon has the divergence r(epsilon) at most, that of randomised response, which every mechanism
# of this epsilon is a function of.  With a = order - 1/2:
#
# r(epsilon) = ln(cosh(a epsilon) / cosh(epsilon / 2)) / (order - 1),
#
# below epsilon, and below order epsilon^2 / 2.  A rho costs order times it.  The proof is in ``docs/noise.md``.
#
# Source: Kairouz, Oh and Viswanath 2015 (randomised response dominates); Mironov 2017 (divergences add up); Feldman
# and Zrnic 2021 (also if releases are chosen adaptively, at one order); Canonne, Kamath and Steinke 2020,
# Proposition 12.

#: Pure losses are summed by size class, the range in which epsilon lies: so many from one power of two to the next.
CLASSES = 16
#: Smaller losses count as so large.
SMALLEST = 2.0**-100
#: Tried where no limit says which: neighbours differ by 2^(1/8) in order - 1, which costs .1 %.
ORDERS = tuple(1.0 + 2.0 ** (k / 8.0) for k in range(-40, 161))
#: Factor on results; rounding errors are far smaller.
_ABOVE = 1.0 + 2.0**-40


def size_class(epsilon: float) -> int:
    """Number of the size class of a pure loss, the same on all machines."""
    mantissa, exponent = math.frexp(max(epsilon, SMALLEST))
    return CLASSES * exponent + math.ceil(2 * CLASSES * mantissa) - CLASSES


def largest(index: int) -> float:
    """Largest loss in a size class, which stands for all in it."""
    exponent, rest = divmod(index, CLASSES)
    return math.ldexp((CLASSES + rest) / (2 * CLASSES), exponent)


def pure_divergence(epsilon: float, order: float) -> float:
    """Upper bound of a pure loss's Renyi divergence."""
    if not order * epsilon < 600.0:
        # ln cosh x = x + ln(1 + e^(-2 x)) - ln 2.
        lost = math.log1p(math.exp(-epsilon)) - math.log1p(math.exp(-(2.0 * order - 1.0) * epsilon))
        return epsilon - lost / (order - 1.0) * (1.0 - 2.0**-40)
    # cosh a = cosh b + 2 sinh((a + b) / 2) sinh((a - b) / 2).
    ratio = math.sinh(order * epsilon / 2.0) * math.sinh((order - 1.0) * epsilon / 2.0) / math.cosh(epsilon / 2.0)
    return min(epsilon, math.log1p(2.0 * ratio) / (order - 1.0) * _ABOVE)


def epsilon_at(order: float, pure: Sequence[tuple[float, float]], rho: float, delta: float) -> float:
    """Epsilon of these releases together at `delta`, by divergences of one order.

    `pure`: largest loss and sum of each class; `rho`: sum of the others.
    """
    spent = order * rho + sum(total * min(1.0, pure_divergence(top, order) / top) for top, total in pure)
    # ln(1 - 1 / order), in a form that keeps its digits near order 1, where a delta near 1 leads.
    rest = -math.log(delta) - order * math.log1p(1.0 / (order - 1.0)) - math.log(order - 1.0)
    # A sum of terms of either sign: the margin is of their sizes.
    return max(0.0, spent + (rest + 2.0**-40 * (1.0 - math.log(delta) + abs(rest))) / (order - 1.0)) * _ABOVE


@lru_cache(maxsize=256)
def orders_of(epsilon: float, delta: float) -> tuple[float, ...]:
    """Public orders for a limit: best for rhos that use all, a half or a quarter of it."""
    shares = (epsilon, epsilon / 2.0, epsilon / 4.0)
    return tuple(zcdp_order(max(zcdp_rho(share, delta), 2.0**-1000), share) for share in shares)
