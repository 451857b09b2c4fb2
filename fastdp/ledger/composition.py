"""Composition of releases on one stream: what one release costs, in exact amounts, and what a limit leaves.

Costs are whole multiples of 2^-1100 (every float is one), so sums are exact.
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
from fastdp.guarantee import Guarantee, round_up
from fastdp.ledger.entry import ELEMENTS, VALUE, Kind

UNIT = 2**1100
#: Above it, e^epsilon times any positive float exceeds 1, the largest delta.
MAX_EXPONENT = 1000
#: Limits and epsilons are written in decimals and stored as floats.  Decimals whose sum is at most the limit are
#: never refused for their rounding, u = 2^-53 each: (1 + u) / (1 - u) < 1 + 2^-51.
ROUNDING = 1 + Fraction(1, 2**51)
#: Which cost a sum is of: epsilon, delta, the delta of a release for one element beside replaced values, or rho, of
#: all releases or of those that are not pure.
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
    return spent <= (ROUNDING * Fraction(limit) if math.isfinite(limit) else limit)


@dataclass(frozen=True)
class Region:
    """The elements that a release looks at, as in an entry."""

    part: str | None = None
    start: int | None = None
    stop: int | None = None


EVERYWHERE = Region()


def common_kind(kinds: Iterable[Kind], stream: str) -> Kind:
    """The unit and adjacency that the composition of releases of these kinds is stated for.

    Raises
    ------
    ParameterError
        If they differ and none can be counted as another.
    """
    found = sorted(set(kinds))
    if len(found) < 2:
        return found[0] if found else VALUE
    if len(found) == 2 and VALUE in found and set(found) & set(ELEMENTS):
        return VALUE
    listed = "; ".join(f"{unit} ({adjacency})" for unit, adjacency in found)
    raise ParameterError(
        f"guarantee on stream {stream!r} with the units {listed}: expected one and the same, or {VALUE[0]!r} "
        f"({VALUE[1]}) with one of those that add or remove one element; name another stream for another unit"
    )


def cost(guarantee: Guarantee) -> tuple[int, int, int]:
    """EPSILON, DELTA and DOUBLE_DELTA of a release with a finite epsilon, in units of 1 / UNIT."""
    return _cost(guarantee.epsilon, guarantee.delta, guarantee.numeric_distance)


@lru_cache(maxsize=1024)
def _cost(epsilon: float, delta: float, distance: float) -> tuple[int, int, int]:
    # The sampled law P~ is at most d from the P of the proof: P~1 <= P1 + d <= e^eps P2 + delta + d
    # <= e^eps P~2 + delta + (1 + e^eps) d.
    one = min(Fraction(1), Fraction(delta) + _on_both_sides(Fraction(distance), epsilon))
    # Group privacy for two elements: P1 <= e^eps P2 + delta <= e^(2 eps) P3 + (e^eps + 1) delta.
    two = min(Fraction(1), _on_both_sides(one, epsilon))
    return math.ceil(Fraction(epsilon) * UNIT), math.ceil(one * UNIT), math.ceil(two * UNIT)


def rho_of(guarantee: Guarantee) -> int:
    """What a release adds to a sum of rhos, in units of 1 / UNIT."""
    claimed = math.isfinite(guarantee.rho)
    if guarantee.numeric_distance or (not claimed and (guarantee.delta or guarantee.epsilon > MAX_EXPONENT)):
        return NO_RHO
    # Of pure epsilon exactly, so that sums of it are.
    exact = Fraction(guarantee.rho) if claimed else Fraction(guarantee.epsilon) ** 2 / 2
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
    """An exact amount in floats that do not understate it."""
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
    return -round_up(Fraction(met) - Fraction(limit))


def float_above(amount: Fraction | float) -> float:
    """An amount as a float that does not understate it."""
    try:
        return amount if isinstance(amount, float) else round_up(amount)
    except OverflowError:
        return math.inf
