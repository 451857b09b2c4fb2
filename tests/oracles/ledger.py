"""Cost of releases to the worst element, one element after the other."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from itertools import product

#: epsilon, part, start, stop: as a release is recorded (None: all parts; all positions; no end).
Release = tuple[Fraction, str | None, int | None, int | None]
Where = tuple[str | None, int | None, int | None]


def written(amount: float) -> Fraction:
    """The decimal that was written."""
    return Fraction(Decimal(str(amount)))


def worst(releases: list[Release], positions: int, among: Where = (None, None, None)) -> Fraction:
    """The largest sum of epsilons that meet in one element, of all or of those that a further release looks at.

    An element has a part, a place in the stream and a place in its part; nothing is known of how the two go together.
    """
    labels = {part for _, part, _, _ in releases} | {among[0], "elsewhere"}
    sums = [Fraction(0)]
    for label, place, inner in product(labels - {None}, range(positions), range(positions)):
        if _touches((Fraction(0), *among), label, place, inner):
            sums.append(sum((r[0] for r in releases if _touches(r, label, place, inner)), Fraction(0)))
    return max(sums)


def worst_of_both(
    of_values: list[Release], of_elements: list[Release], positions: int, among: Where = (None, None, None)
) -> Fraction:
    """The same for a value that is replaced, where some releases look at elements that are added or removed.

    The value stays in its part, by public facts.  The element that it was leaves a part and the one that it becomes
    enters a part, which follow from the elements, so any two may meet.
    """
    labels = {part for _, part, _, _ in of_elements} | {"elsewhere"}
    moved = max(
        sum((r[0] for r in of_elements if r[1] in (None, left)), Fraction(0))
        + sum((r[0] for r in of_elements if r[1] in (None, entered)), Fraction(0))
        for left, entered in product(labels - {None}, repeat=2)
    )
    return worst(of_values, positions, among) + moved


def _touches(release: Release, label: str | None, place: int, inner: int) -> bool:
    _, part, start, stop = release
    if part is not None and part != label:
        return False
    at = place if part is None else inner
    return start is None or (start <= at and (stop is None or at < stop))


def in_weakest(
    releases: list[tuple[str, float, float, float]], implied: dict[tuple[str, str], int]
) -> tuple[str, Fraction, Fraction] | None:
    """The unit that all others imply, with the sums of epsilon and delta for it; None where there is none.

    A release is (unit, epsilon, delta, distance of its noise from the exact one); ``implied`` says how often a unit
    counts for a weaker one.  Two changes: P1 <= e^eps P2 + delta <= e^(2 eps) P3 + (1 + e^eps) delta.
    """
    units = {unit for unit, _, _, _ in releases}
    for weakest in units:
        if all(unit == weakest or (unit, weakest) in implied for unit in units):
            break
    else:
        return None
    epsilons, deltas = Fraction(0), Fraction(0)
    for unit, epsilon, delta, distance in releases:
        times = 1 if unit == weakest else implied[unit, weakest]
        grown = Fraction(Context(prec=60).exp(Decimal(epsilon)))
        epsilons += times * written(epsilon)
        deltas += (written(delta) + (1 + grown) * written(distance)) * (1 if times == 1 else 1 + grown)
    return weakest, epsilons, deltas


#: epsilon, first and last day (None: no public times), days of the unit's periods, and how often it counts.
Dated = tuple[Fraction, tuple[int, int] | None, int, int]


def worst_day(releases: list[Dated], days: range, among: range | None = None) -> Fraction:
    """The largest sum of epsilons that meet in the rows of one day, of those in `among`.

    Releases of one group (the days of their units' periods) meet in their worst day, and the groups' sums add up.
    """
    groups = {(length, times, span is None) for _, span, length, times in releases}
    total = Fraction(0)
    for length, times, everywhere in groups:
        mine = [r for r in releases if (r[2], r[3], r[1] is None) == (length, times, everywhere)]
        total += times * max(
            sum((r[0] for r in mine if r[1] is None or r[1][0] <= day < r[1][1]), Fraction(0))
            for day in (among or days)
        )
    return total


def person(releases: list[Dated], month: range) -> Fraction:
    """Loss of a person by the rows of one month: one change for each period of each release's unit."""
    total = Fraction(0)
    for epsilon, span, length, _ in releases:
        for first in range(month.start, month.stop, length):
            total += epsilon if span is None or span[0] <= first < span[1] else 0
    return total
