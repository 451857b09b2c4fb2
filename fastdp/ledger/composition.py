"""Composition of releases on one stream: what one release costs, in exact amounts, and what a limit leaves.

Amounts are the decimals that were written, 0.1 a tenth; costs are whole multiples of 10^-324 (the shortest decimal of
every float is one), so sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.ledger.entry import ELEMENTS, VALUE, Kind

UNIT = 10**324
#: Above it, e^epsilon times any positive float exceeds 1, the largest delta.
MAX_EXPONENT = 1000
#: Which cost a sum is of: epsilon, delta, the delta of a release whose unit counts twice, or rho, of all releases or
#: of those that are not pure.
EPSILON, DELTA, DOUBLE_DELTA, RHO, OWN_RHO = range(5)
#: In place of a rho that there is not.
NO_RHO = UNIT << 1000


class Budget(NamedTuple):
    """An amount of privacy loss.

    Attributes
    ----------
    epsilon, delta : float
        ``inf`` where there is no limit.
    """

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Loss:
    """An exact amount; epsilon and rho may be infinite."""

    epsilon: Fraction | float
    delta: Fraction
    rho: Fraction | float = math.inf

    def within(self, limit: Budget) -> bool:
        """Whether a limit, as it was written, allows it."""
        return _fits(self.epsilon, limit.epsilon) and _fits(self.delta, limit.delta)


def _fits(spent: Fraction | float, limit: float) -> bool:
    return spent <= (written(limit) if math.isfinite(limit) else limit)


def written(amount: float) -> Fraction:
    """The decimal that a float stands for: the shortest one that reads back as it."""
    return Fraction(repr(amount))


@dataclass(frozen=True)
class Region:
    """The elements that a release looks at, as in an entry."""

    part: str | None = None
    start: int | None = None
    stop: int | None = None


EVERYWHERE = Region()


def times(kind: Kind, weaker: Kind) -> int | None:
    """The number of changes of one unit that make any one change of another; None where none do."""
    if kind == weaker or kind.rows is None or weaker.rows is None:
        return 1 if kind == weaker else 2 if kind in ELEMENTS and weaker == VALUE else None
    return kind.rows.times(weaker.rows)


def common_kind(kinds: Iterable[Kind], stream: str) -> Kind:
    """The unit and adjacency that the composition of releases of these kinds is stated for: the weakest of them.

    Raises
    ------
    ParameterError
        If none of them follows from all others.
    """
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


def cost(guarantee: Guarantee) -> tuple[int, int, int]:
    """EPSILON, DELTA and DOUBLE_DELTA of a release with a finite epsilon, in units of 1 / UNIT."""
    return _cost(guarantee.epsilon, guarantee.delta, guarantee.numeric_distance)


@lru_cache(maxsize=1024)
def _cost(epsilon: float, delta: float, distance: float) -> tuple[int, int, int]:
    # The sampled law P~ is at most d from the P of the proof: P~1 <= P1 + d <= e^eps P2 + delta + d
    # <= e^eps P~2 + delta + (1 + e^eps) d.
    one = min(Fraction(1), written(delta) + _on_both_sides(written(distance), epsilon))
    # Group privacy for two units: P1 <= e^eps P2 + delta <= e^(2 eps) P3 + (e^eps + 1) delta.
    two = min(Fraction(1), _on_both_sides(one, epsilon))
    return math.ceil(written(epsilon) * UNIT), math.ceil(one * UNIT), math.ceil(two * UNIT)


def rho_of(guarantee: Guarantee) -> int:
    """What a release adds to a sum of rhos, in units of 1 / UNIT."""
    claimed = math.isfinite(guarantee.rho)
    if guarantee.numeric_distance or (not claimed and (guarantee.delta or guarantee.epsilon > MAX_EXPONENT)):
        return NO_RHO
    # Of pure epsilon exactly, so that sums of it are.
    exact = written(guarantee.rho) if claimed else written(guarantee.epsilon) ** 2 / 2
    return math.ceil(exact * UNIT)


def _on_both_sides(amount: Fraction, epsilon: float) -> Fraction:
    """(1 + e^epsilon) times it, or a little more."""
    return amount * (1 + _exp_above(Fraction(epsilon))) if amount else amount


def _exp_above(exponent: Fraction) -> Fraction:
    """A rational number above e^exponent."""
    context = Context(prec=50, Emax=10**6, Emin=-(10**6))
    ratio = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(context.next_plus(context.exp(context.next_plus(min(ratio, Decimal(MAX_EXPONENT))))))


def rounded(loss: Loss) -> Budget:
    """An exact amount in floats whose decimals do not understate it."""
    return Budget(float_above(loss.epsilon), min(1.0, float_above(loss.delta)))


def left(limit: Budget, spent: Loss, met: Loss) -> Budget:
    """What a further release may cost: rounded down, 0 where the limit is passed already.

    Parameters
    ----------
    limit : Budget
        The limit.
    spent, met : Loss
        What the stream's worst element has cost so far, and the worst of those that the release would look at.
    """
    if not spent.within(limit):
        return Budget(0.0, 0.0)
    return Budget(_rest(limit.epsilon, met.epsilon), _rest(limit.delta, met.delta))


def _rest(limit: float, met: Fraction | float) -> float:
    if math.isinf(limit):
        return limit
    if met >= limit:
        return 0.0
    exact = written(limit) - Fraction(met)
    nearest = float(exact)
    return nearest if written(nearest) <= exact else math.nextafter(nearest, 0.0)


def float_above(amount: Fraction | float) -> float:
    """An amount as a float whose decimal does not understate it."""
    try:
        nearest = float(amount)
    except OverflowError:
        return math.inf
    return nearest if math.isinf(nearest) or written(nearest) >= amount else math.nextafter(nearest, math.inf)
