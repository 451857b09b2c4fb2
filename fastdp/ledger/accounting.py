"""Composition of releases on one stream, in exact fractions.

Source: ToPS section 2.4 (sequential, parallel); Rogers et al. 2016, "Privacy odometers and filters" (basic
composition is a valid filter for budgets that are chosen adaptively); proofs in ``docs/privacy.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import NamedTuple

from fastdp.errors import ParameterError
from fastdp.ledger.entry import ELEMENTS, VALUE, Entry, Kind
from fastdp.privacy import Guarantee, round_up

#: Beyond, e^epsilon times any float above 0 is above 1, and a delta of 1 is the most there is.
MOST_EXPONENT = 1000
#: Limits and epsilons are written in decimals and held as floats.  Decimals that add up to no more than the limit are
#: never refused for their rounding, u = 2^-53 each: (1 + u) / (1 - u) < 1 + 2^-51.
ROUNDING = 1 + Fraction(1, 2**51)


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
    """An exact amount: epsilon or delta may be infinite."""

    epsilon: Fraction | float
    delta: Fraction | float

    def within(self, limit: Budget) -> bool:
        """Whether a limit, as it was written, allows it."""
        return all(
            spent <= (ROUNDING * Fraction(most) if math.isfinite(most) else most)
            for spent, most in ((self.epsilon, limit.epsilon), (self.delta, limit.delta))
        )


@dataclass(frozen=True)
class Region:
    """The elements that a further release would look at; as in an entry."""

    part: str | None = None
    start: int | None = None
    stop: int | None = None


@dataclass(frozen=True)
class _Cost:
    entry: Entry
    epsilon: Fraction
    delta: Fraction


def common_kind(entries: Iterable[Entry], stream: str) -> Kind:
    """The unit and adjacency that the composition is stated for.

    Raises
    ------
    ParameterError
        If they differ and none can be counted as another.
    """
    kinds = sorted({entry.kind for entry in entries})
    if len(kinds) < 2:
        return kinds[0] if kinds else VALUE
    others = [kind for kind in kinds if kind != VALUE]
    if len(others) == 1 and len(kinds) == 2 and others[0] in ELEMENTS:
        return VALUE
    listed = "; ".join(f"{unit} ({adjacency})" for unit, adjacency in kinds)
    raise ParameterError(
        f"guarantee on stream {stream!r} with the units {listed}: expected one and the same, or {VALUE[0]!r} "
        f"({VALUE[1]}) with one of those that add or remove one element; name another stream for another unit"
    )


def total(entries: Sequence[Entry], stream: str, region: Region | None = None) -> Loss:
    """What the releases of one stream cost any one of its elements, or one of a region's, at most.

    Whole-stream releases add up.  Of those on ranges of positions, the most that cover one position; of labelled
    parts, the one with the largest sum, made up in the same way.  Ranges without a label may meet any part.  Where a
    replaced value is one element less and one more, those two may lie in other parts than the value: the releases for
    one element have a largest part of their own.  Units whose parts are not proved disjoint always add up.
    """
    counted = [entry for entry in entries if entry.counts]
    kind = common_kind(counted, stream)
    if any(math.isinf(entry.guarantee.epsilon) for entry in counted):
        # No delta makes up for it.
        return Loss(math.inf, sum((Fraction(entry.guarantee.delta) for entry in counted), Fraction(0)))
    costs = [_cost(entry, kind) for entry in counted]
    own = [cost for cost in costs if cost.entry.kind == kind]
    others = [cost for cost in costs if cost.entry.kind != kind]
    return Loss(*(_peak(own, name, region) + _peak(others, name, None) for name in ("epsilon", "delta")))


def _cost(entry: Entry, kind: Kind) -> _Cost:
    said = entry.guarantee
    epsilon, delta = Fraction(said.epsilon), Fraction(said.delta)
    # The sampled law P~ is that far from the P of the proof: P~1 <= P1 + d <= e^eps P2 + delta + d
    # <= e^eps P~2 + delta + (1 + e^eps) d.
    delta = min(Fraction(1), delta + _on_both_sides(Fraction(said.numeric_distance), epsilon))
    if entry.kind != kind:
        # Group privacy for two elements: P1 <= e^eps P2 + delta <= e^(2 eps) P3 + (e^eps + 1) delta.
        epsilon, delta = 2 * epsilon, min(Fraction(1), _on_both_sides(delta, epsilon))
    return _Cost(entry, epsilon, delta)


def _on_both_sides(amount: Fraction, epsilon: Fraction) -> Fraction:
    """(1 + e^epsilon) times it, or a little more."""
    return amount * (1 + _exp_above(epsilon)) if amount else amount


def _exp_above(exponent: Fraction) -> Fraction:
    """A rational number above e^exponent."""
    context = Context(prec=50, Emax=10**6, Emin=-(10**6))
    ratio = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(context.next_plus(context.exp(context.next_plus(min(ratio, Decimal(MOST_EXPONENT))))))


def _peak(costs: list[_Cost], name: str, region: Region | None) -> Fraction:
    """The largest sum of costs that meet in one element of the region (None: of the stream)."""
    by_part: dict[str | None, list[tuple[Entry, Fraction]]] = {None: []}
    for cost in costs:
        parted = cost.entry.kind == VALUE or cost.entry.kind in ELEMENTS
        by_part.setdefault(cost.entry.part if parted else None, []).append((cost.entry, getattr(cost, name)))
    plain = by_part.pop(None)
    window = None if region is None or region.start is None else (region.start, region.stop)
    labelled = region is not None and region.part is not None
    everywhere = _covering(plain, None if labelled else window)
    if labelled:
        assert region is not None  # noqa: S101 - it has a label
        return everywhere + _covering(by_part.get(region.part, []), window)
    return everywhere + max((_covering(part, None) for part in by_part.values()), default=Fraction(0))


def _covering(costs: list[tuple[Entry, Fraction]], window: tuple[int, int | None] | None) -> Fraction:
    """Costs without positions, and the largest sum of those that cover one position of the window: a sweep."""
    everywhere = Fraction(0)
    changes: dict[int, Fraction] = {}
    low, high = (0, None) if window is None else window
    for entry, cost in costs:
        if entry.start is None or entry.kind != VALUE:
            everywhere += cost
            continue
        begin = max(entry.start, low)
        ends = [end for end in (entry.stop, high) if end is not None]
        if ends and begin >= min(ends):
            continue
        changes[begin] = changes.get(begin, Fraction(0)) + cost
        if ends:
            changes[min(ends)] = changes.get(min(ends), Fraction(0)) - cost
    # What ends at a position does not cover it, and what begins there does: one number for both.
    most = level = Fraction(0)
    for position in sorted(changes):
        level += changes[position]
        most = max(most, level)
    return everywhere + most


def compose(entries: Sequence[Entry], stream: str = "") -> Guarantee:
    """What all these releases of one stream promise together.

    Parameters
    ----------
    entries : sequence of Entry
        Those that count are composed; simulations and cancelled ones are left out.
    stream : str
        For messages.

    Returns
    -------
    Guarantee
        Epsilon and delta are exact sums, rounded up; the distances of sampled noise from its law, each times
        1 + e^epsilon, are in delta and no longer apart.  The model is ``"local"`` only if all are: a central release
        of the same values is seen by the curator.

    Raises
    ------
    ParameterError
        If units or adjacencies do not fit together.
    """
    counted = [entry for entry in entries if entry.counts]
    loss = total(counted, stream)
    unit, adjacency = common_kind(counted, stream)
    each = [entry.guarantee for entry in counted]
    lines = [f"entry {entry.id}, {entry.extent}: {entry.guarantee}" for entry in counted]
    if any((g.unit, g.adjacency) != (unit, adjacency) for g in each):
        lines.append("a replaced value is one element less and one more: those for one element count 2 epsilon")
    if any(g.numeric_distance for g in each):
        lines.append("delta counts (1 + e^epsilon) times the distance of the sampled noise from its law")
    if len(counted) > 1:
        lines.append("the most that meets in one element: disjoint parts in parallel, everything else in sequence")
    return Guarantee(
        epsilon=_up(loss.epsilon),
        delta=min(1.0, _up(loss.delta)),
        unit=unit,
        adjacency=adjacency,
        model="local" if each and all(g.model == "local" for g in each) else "central",
        arithmetic="exact" if all(g.arithmetic == "exact" for g in each) else "real",
        derivation=tuple(lines),
    )


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


def _up(amount: Fraction | float) -> float:
    try:
        return amount if isinstance(amount, float) else round_up(amount)
    except OverflowError:
        return math.inf
