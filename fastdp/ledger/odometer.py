"""Exact sums of the costs of a stream's releases, in SQL tables, their composition, and the budget left.

A pure epsilon has the rho epsilon^2 / 2; a release with a delta and no rho has none.  With a rho, epsilon is the
least by sum, by rhos at the summed delta, and by Renyi divergences.

Source: ToPS section 2.4; Rogers et al. 2016 (filters for adaptive budgets); ``docs/privacy.md``, section 3.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, zcdp_epsilon, zcdp_order, zcdp_rho
from fastdp.ledger.entry import ELEMENTS, VALUE, Entry, Kind
from fastdp.units import FIRST, LAST, Period, Times, UnitRows, instant, shown_time

UNIT = 10**324
#: Above it, e^epsilon times any positive float exceeds 1, the largest delta.
MAX_EXPONENT = 1000
#: Costs that the odometer adds up.  DOUBLE_DELTA: delta where a release counts twice.  RHO: of all releases; OWN_RHO:
#: of those that state a rho.  SPAN_DELTA, SPAN_RHO: of releases for a person in any period, if the person's rows
#: change in all periods of the release's times, divided evenly among these.
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
        return _fits(self.epsilon, limit.epsilon) and _fits(self.delta, limit.delta)


def _fits(spent: Fraction | float, limit: float) -> bool:
    return spent <= (written(limit) if math.isfinite(limit) else limit)


def written(amount: float) -> Fraction:
    """Shortest decimal that reads back as this float, exactly."""
    return Fraction(repr(amount))


def multiple(kind: Kind, weaker: Kind) -> int | None:
    """Number of changes of unit `kind` that together make any change of unit `weaker`; None if no number does."""
    if kind == weaker or kind.rows is None or weaker.rows is None:
        return 1 if kind == weaker else 2 if kind in ELEMENTS and weaker == VALUE else None
    return kind.rows.times(weaker.rows)


def common_kind(kinds: Iterable[Kind], stream: str) -> Kind:
    """Weakest of these units; ParameterError if there is none."""
    units = sorted(set(kinds), key=str)
    for weakest in units:
        if all(multiple(kind, weakest) for kind in units):
            return weakest
    if not units:
        return VALUE
    raise ParameterError(
        f"guarantee on stream {stream!r} with the units {'; '.join(map(str, units))}: expected one that all others "
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
    """Delta after `changes` changes in turn, each of `epsilon` and `delta`; all in units of 1 / UNIT."""
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
    """Rational number just above e^`exponent`."""
    context = Context(prec=50, Emax=10**6, Emin=-(10**6))
    ratio = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(context.next_plus(context.exp(context.next_plus(min(ratio, Decimal(MAX_EXPONENT))))))


def rounded(loss: Loss) -> Budget:
    """Privacy loss as two floats that do not understate it."""
    return Budget(float_above(loss.epsilon), min(1.0, float_above(loss.delta)))


def budget_left(limit: Budget, spent: Loss, met: Loss, changes: int = 1) -> Budget:
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
    fractions = (epsilon, epsilon / 2.0, epsilon / 4.0)
    return tuple(zcdp_order(max(zcdp_rho(fraction, delta), 2.0**-1000), fraction) for fraction in fractions)


# Sums.

#: The sum of the pure epsilons of a class is measure PURE and the class, which lies above all others.
PURE = 10**5
#: Scope of a sum: all of the stream, positions of the stream (or instants), or (positions of) a labelled part.
WHOLE, RANGES, PARTS = range(3)

SCHEMA = """
CREATE TABLE stream_account (
  id INTEGER PRIMARY KEY, stream TEXT NOT NULL, kind TEXT NOT NULL, axis TEXT NOT NULL,
  releases INTEGER NOT NULL, without_epsilon INTEGER NOT NULL, their_delta BLOB NOT NULL,
  UNIQUE (stream, kind, axis));
CREATE TABLE level (
  account INTEGER NOT NULL, measure INTEGER NOT NULL, scope INTEGER NOT NULL, part TEXT NOT NULL,
  start INTEGER NOT NULL, sum BLOB NOT NULL,
  PRIMARY KEY (account, measure, scope, part, start)) WITHOUT ROWID;
CREATE INDEX highest ON level (account, measure, scope, sum);
"""
_LEVELS = "account = ? AND measure = ? AND scope = ?"


#: So many periods of the calendar are looked at for the one with the most shorter periods.
_LOOKED_AT = 400


class Region(NamedTuple):
    """Elements that a release reads: positions, or instants of a column and zone."""

    part: str | None = None
    start: int | None = None
    stop: int | None = None
    axis: str = ""

    @classmethod
    def of(cls, entry: Entry) -> Region:
        if entry.kind == VALUE:
            return cls(entry.part, entry.start, entry.stop)
        rows, times = entry.kind.rows, entry.guarantee.times
        if rows is not None and times is not None and rows.keeps(times):
            return cls.at(times)
        return cls(entry.part if entry.kind in ELEMENTS else None)

    @classmethod
    def at(cls, times: Times) -> Region:
        return cls(None, times.start, times.stop, json.dumps(times[:2]))

    @property
    def scope(self) -> int:
        """WHOLE stream, RANGES of positions, or labelled PARTS."""
        return PARTS if self.part is not None else WHOLE if self.start is None else RANGES


EVERYWHERE = Region()


#: Sums by instant, each from its instant on.
Levels = list[tuple[int, int]]


class Account(NamedTuple):
    """Sums of releases for one unit, without times or by one column and zone."""

    id: int
    kind: Kind
    axis: str
    without_epsilon: int
    their_delta: int


def _pack(number: int) -> bytes:
    count = (number.bit_length() + 7) // 8
    return count.to_bytes(2) + number.to_bytes(count).rstrip(b"\0")


def _unpack(raw: bytes) -> int:
    return int.from_bytes(raw[2:].ljust(int.from_bytes(raw[:2]), b"\0"))


ZERO = _pack(0)


class Temporary(sqlite3.Connection):
    """A database without a file, closed with its last reference, in any thread: Python 3.13 warns of open ones."""

    def __init__(self) -> None:
        super().__init__("", isolation_level=None, check_same_thread=False)

    def __del__(self) -> None:
        self.close()


class Odometer:
    """The largest cost of each stream's releases to any one of its elements, or of a region's.

    Releases on the full stream add up; of ranges, parts, times the largest sum counts; ranges without a label may
    meet any part.  A replaced value is one element less and one more.  Other units, columns and zones add up in the
    weakest unit (:func:`multiple`).
    """

    def __init__(self, db: sqlite3.Connection | None = None) -> None:
        if db is None:
            db = Temporary()
            db.executescript(SCHEMA)
        self._db = db

    def add(self, entry: Entry, times: int = 1) -> None:
        """Add a release to the sums, or with `times` = -1 remove it."""
        said, region = entry.guarantee, Region.of(entry)
        kind = entry.stream, json.dumps(entry.kind), region.axis
        self._db.execute(
            "INSERT INTO stream_account (stream, kind, axis, releases, without_epsilon, their_delta) "
            "VALUES (?, ?, ?, 0, 0, ?) ON CONFLICT DO NOTHING",
            (*kind, ZERO),
        )
        if not entry.counts:
            return
        query = "SELECT id, their_delta FROM stream_account WHERE stream = ? AND kind = ? AND axis = ?"
        account, their_delta = self._db.execute(query, kind).fetchone()
        endless = math.isinf(said.epsilon)
        stated = _unpack(their_delta) + (times * int(written(said.delta) * UNIT) if endless else 0)
        self._db.execute(
            "UPDATE stream_account SET releases = releases + ?, without_epsilon = without_epsilon + ?, "
            "their_delta = ? WHERE id = ?",
            (times, times * endless, _pack(stated), account),
        )
        if endless:
            # Counted apart from the sums: after a cancellation the sum must be exactly as before.
            return
        amounts = dict(enumerate(cost(said.epsilon, said.delta, said.numeric_distance)))
        if entry.kind not in ELEMENTS and (said.rows is None or said.rows.who is None):
            amounts[DOUBLE_DELTA] = 0
        amounts[RHO] = rho_of(said)
        if math.isfinite(said.rho):
            amounts[OWN_RHO] = amounts[RHO]
        elif said.epsilon and amounts[RHO] < NO_RHO:
            amounts[PURE + size_class(said.epsilon)] = amounts[EPSILON]
        if region.axis and said.rows is not None and said.rows.period is not None:
            spans = said.rows.period.between(region.start or 0, region.stop or 0) or 1
            per_span = -(-of_changes(spans, amounts[EPSILON], amounts[DELTA]) // spans)
            amounts |= {SPAN_DELTA: min(UNIT, per_span), SPAN_RHO: spans * amounts[RHO]}
        for measure, amount in amounts.items():
            if amount:
                self._raise(account, measure, region, times * amount)

    def _raise(self, account: int, measure: int, region: Region, amount: int) -> None:
        key = account, measure, region.scope, region.part or ""
        start, stop = region.start or 0, region.stop
        for edge in (start, stop):
            if edge is not None:
                self._db.execute(
                    "INSERT OR IGNORE INTO level SELECT ?, ?, ?, ?, ?, coalesce((SELECT sum FROM level WHERE "
                    f"{_LEVELS} AND part = ? AND start < ? ORDER BY start DESC LIMIT 1), ?)",
                    (*key, edge, *key, edge, ZERO),
                )
        covered = f"{_LEVELS} AND part = ? AND start >= ?"
        values: tuple[object, ...] = (*key, start)
        if stop is not None:
            covered, values = f"{covered} AND start < ?", (*values, stop)
        rows = self._db.execute(f"SELECT start, sum FROM level WHERE {covered}", values).fetchall()
        # Not by a function of SQLite's: an interrupt within one would become another error.
        self._db.executemany(
            f"UPDATE level SET sum = ? WHERE {_LEVELS} AND part = ? AND start = ?",
            [(_pack(_unpack(level) + amount), *key, edge) for edge, level in rows],
        )

    def total(self, stream: str, region: Region = EVERYWHERE, limit: Budget | None = None) -> Loss:
        """Cost of a stream's releases; ParameterError if units do not compose.

        A limit fixes the orders of divergences: the best ones could depend on outputs.
        """
        accounts = self._accounts(stream)
        kinds = {account.kind for account in accounts}
        common = common_kind(kinds, stream)
        epsilon = delta = endless = 0
        for account in accounts:
            endless += account.without_epsilon
            delta += account.their_delta
            if multiple(account.kind, common) == 1:
                epsilon += self._most(account, EPSILON, region)
                delta += self._most(account, DELTA, region)
            else:
                # Two parts may meet in one element, but not two times.
                among = region if account.axis else EVERYWHERE
                epsilon += 2 * self._most(account, EPSILON, among)
                delta += self._most(account, DOUBLE_DELTA, among)
        # No delta makes up for a release without an epsilon.
        if endless:
            return Loss(math.inf, Fraction(delta, UNIT))
        loss = Loss(Fraction(epsilon, UNIT), Fraction(delta, UNIT))
        return self._concentrated(accounts, region, loss, limit) if len(kinds) == 1 and delta else loss

    def _concentrated(self, accounts: list[Account], region: Region, loss: Loss, limit: Budget | None) -> Loss:
        def most(measure: int) -> int:
            return sum(self._most(account, measure, region) for account in accounts)

        loss, delta = _by_rho(loss, most(RHO))
        classes = sorted({measure for account in accounts for measure in self._classes(account.id)})
        if not (classes and 0.0 < delta < 1.0 and math.isfinite(loss.rho)):
            return loss
        pure = [(largest(measure - PURE), float_above(Fraction(most(measure), UNIT))) for measure in classes]
        stated_rho = float_above(Fraction(most(OWN_RHO), UNIT))
        orders: Sequence[float] = ORDERS
        if limit is not None and 0.0 < limit.delta < 1.0:
            # Any public orders are valid: beyond the range of floats, those of the nearest limit.
            orders = orders_of(min(max(limit.epsilon, 2.0**-60), 2.0**60), limit.delta)
        least = min(epsilon_at(order, pure, stated_rho, delta) for order in orders)
        return replace(loss, epsilon=min(loss.epsilon, written(least)))

    # Calendar periods of the data's time, and the whole person.

    def renewal(self, stream: str, length: str) -> Period | None:
        """Periods of this length, if a unit has none longer; else None."""
        for account in self._accounts(stream):
            unit = _unit(account)
            if unit is not None and unit.size <= (per := Period.of(length, unit.time_zone)).size:
                return per
        return None

    def released(self, stream: str, per: Period) -> set[int]:
        numbers = set()
        for account in self._renewed(stream, per):
            for measure in (EPSILON, DELTA):
                for (start, level), (stop, _) in pairwise(self._levels(account, measure)):
                    if level:
                        numbers |= _numbers(per, start, stop)
        return numbers

    def met(self, stream: str, per: Period, region: Region) -> set[int]:
        """Numbers of the periods that overlap a region; of a region without times, the costliest periods of all."""
        if region.axis:
            return _numbers(per, region.start or 0, region.stop or 0)
        return self.released(stream, per) | self.fullest(stream, per)

    def fullest(self, stream: str, per: Period) -> set[int]:
        return {_fullest(unit, per) for account in self._renewed(stream, per) if (unit := _unit(account))}

    def changes(self, stream: str, per: Period, number: int, region: Region) -> int:
        """Number of a unit's periods that a region has in this period."""
        start, stop = per.edge(number), per.edge(number + 1)
        if region.axis:
            start, stop = max(start, region.start or 0), min(stop, region.stop or 0)
        units = (_unit(account) for account in self._renewed(stream, per))
        return max((unit.between(start, stop) or 1 for unit in units if unit is not None), default=1)

    def _renewed(self, stream: str, per: Period) -> list[Account]:
        return [account for account in self._accounts(stream) if (unit := _unit(account)) and unit.size <= per.size]

    def of_person(self, stream: str, per: Period, number: int) -> Loss:
        """Cost to a person, all of whose rows in one period change; releases for one row are left out.

        ParameterError for a unit whose periods cross this one's ends.
        """
        start, stop = per.edge(number), per.edge(number + 1)
        epsilon = delta = rho = endless = 0
        for account in self._accounts(stream):
            rows, unit, region = account.kind.rows, _unit(account), EVERYWHERE
            if rows is None or rows == UnitRows():
                continue
            endless += account.without_epsilon
            delta += account.their_delta
            if unit is not None and unit.size <= per.size:
                inside = unit.between(start, stop)
                if inside is None:
                    ends = " to ".join(shown_time(moment, per.time_zone) for moment in (start, stop))
                    raise ParameterError(
                        f"stream {stream!r} has the unit {account.kind}, whose periods cross the ends of the limit's "
                        f"({ends}): expected periods that consist of the unit's, as months do of days"
                    )
                if account.axis:
                    sums = [
                        self._over(account, unit, sum_of, start, stop) for sum_of in (EPSILON, SPAN_DELTA, SPAN_RHO)
                    ]
                    epsilon, delta, rho = epsilon + sums[0], delta + sums[1], rho + sums[2]
                    continue
                changes = inside
            else:
                # A person's rows go, and those of other periods come back.
                overlapped = 1
                if unit is not None:
                    first, last = unit.number(start), unit.number(stop - 1) + 1
                    overlapped, region = last - first, Region(None, unit.edge(first), unit.edge(last), account.axis)
                changes = overlapped * (1 if rows.who is None else 2)
            most = [self._most(account, measure, region) for measure in (EPSILON, DELTA, RHO)]
            epsilon += changes * most[0]
            delta += of_changes(changes, most[0], most[1])
            rho += changes**2 * most[2]
        if endless:
            return Loss(math.inf, Fraction(delta, UNIT))
        loss = Loss(Fraction(epsilon, UNIT), Fraction(delta, UNIT))
        return _by_rho(loss, rho)[0] if delta else loss

    def _over(self, account: Account, unit: Period, measure: int, start: int, stop: int) -> int:
        rows = [*self._levels(account, measure, start, stop), (stop, 0)]
        spans = ((unit.between(max(begin, start), end) or 0, level) for (begin, level), (end, _) in pairwise(rows))
        return sum(count * level for count, level in spans)

    def _levels(self, account: Account, measure: int, start: int = FIRST, stop: int = 2 * LAST) -> Levels:
        key = f"{_LEVELS} AND part = ''"
        asked = (
            f"SELECT start, sum FROM level WHERE {key} AND start < ? AND start >= "
            f"coalesce((SELECT max(start) FROM level WHERE {key} AND start <= ?), ?) ORDER BY start"
        )
        scope = account.id, measure, RANGES
        rows = self._db.execute(asked, (*scope, stop, *scope, start, start)).fetchall()
        return [(begin, _unpack(level)) for begin, level in rows]

    def _accounts(self, stream: str) -> list[Account]:
        asked = "SELECT id, kind, axis, without_epsilon, their_delta FROM stream_account"
        rows = self._db.execute(f"{asked} WHERE stream = ? AND releases > 0", (stream,)).fetchall()
        return [
            Account(number, _kind(text), axis, count, _unpack(delta)) for number, text, axis, count, delta in rows
        ]

    def _classes(self, account: int) -> Iterator[int]:
        measure: int | None = SPAN_RHO
        asked = "SELECT min(measure) FROM level WHERE account = ? AND measure > ?"
        while (measure := self._db.execute(asked, (account, measure)).fetchone()[0]) is not None:
            yield measure

    def _most(self, account: Account, measure: int, region: Region) -> int:
        most = 0
        # Positions in a labelled part are not positions in the stream, nor instants of another column.
        asked = RANGES if region.part is None else PARTS
        for scope in (WHOLE, RANGES, PARTS):
            values = account.id, measure, scope
            if scope == asked and region != EVERYWHERE and region.axis == account.axis:
                most += self._highest_in(region, values)
            else:
                most += self._highest(_LEVELS, values)
        return most

    def _highest_in(self, region: Region, values: tuple[object, ...]) -> int:
        among, values = f"{_LEVELS} AND part = ?", (*values, region.part or "")
        before = f"SELECT max(start) FROM level WHERE {among} AND start <= ?"
        start = self._db.execute(before, (*values, region.start or 0)).fetchone()[0]
        among, values = f"{among} AND start >= ?", (*values, region.start or 0 if start is None else start)
        if region.stop is not None:
            among, values = f"{among} AND start < ?", (*values, region.stop)
        # By position: the plus keeps SQLite from walking down the index of sums until a row lies in the region.
        return self._highest(among, values, "+sum")

    def _highest(self, among: str, values: tuple[object, ...], of: str = "sum") -> int:
        highest = self._db.execute(f"SELECT max({of}) FROM level WHERE {among}", values).fetchone()[0]
        return 0 if highest is None else _unpack(highest)


def _unit(account: Account) -> Period | None:
    return None if account.kind.rows is None else account.kind.rows.period


def _numbers(per: Period, start: int, stop: int) -> set[int]:
    return set(range(per.number(start), per.number(stop - 1) + 1))


@lru_cache(maxsize=256)
def _fullest(unit: Period, per: Period) -> int:
    first = per.number(instant(datetime(2000, 1, 1), None))
    return max(range(first, first + _LOOKED_AT), key=lambda n: unit.between(per.edge(n), per.edge(n + 1)) or 0)


def _by_rho(loss: Loss, rho: int) -> tuple[Loss, float]:
    delta = math.nextafter(float(loss.delta), 0.0)
    if not 0 < rho < NO_RHO:
        return loss, 0.0
    exact = Fraction(rho, UNIT)
    if not 0.0 < delta < 1.0:
        return replace(loss, epsilon=Fraction(0) if delta else loss.epsilon, rho=exact), delta
    return replace(
        loss, epsilon=min(loss.epsilon, written(zcdp_epsilon(float_above(exact), delta))), rho=exact
    ), delta


def _kind(text: str) -> Kind:
    unit, adjacency, rows = json.loads(text)
    return Kind(unit, adjacency, UnitRows.read(rows))


def compose(entries: Sequence[Entry], stream: str = "") -> Guarantee:
    """The guarantee of these releases of one stream together, rounded up; ``"local"`` only if all are.

    Simulations and cancelled releases are left out.  Delta includes (1 + e^epsilon) times the distance of sampled
    noise.  ParameterError if units or adjacencies do not compose.
    """
    counted = [entry for entry in entries if entry.counts]
    common = common_kind((entry.kind for entry in counted), stream)
    odometer = Odometer()
    for entry in counted:
        odometer.add(replace(entry, stream="one"))
    total = odometer.total("one")
    loss = rounded(total)
    guarantees = [entry.guarantee for entry in counted]
    lines = [f"entry {entry.id}, {entry.extent}: {entry.guarantee}" for entry in counted]
    for kind in sorted({entry.kind for entry in counted} - {common}, key=str):
        count = "2 epsilon and (1 + e^epsilon) delta" if multiple(kind, common) == 2 else "epsilon and delta"
        lines.append(f"{kind}: each counts {count} for {common}")
    if any(g.numeric_distance for g in guarantees):
        lines.append("delta counts (1 + e^epsilon) times the distance of the sampled noise from its distribution")
    if math.isfinite(total.rho):
        lines.append(
            "rhos add up, a pure epsilon counts as epsilon^2 / 2, and Renyi divergences do: epsilon is what they "
            "give, if that is less"
        )
    if len(counted) > 1:
        lines.append("the most that meets in one element: disjoint parts in parallel, everything else in sequence")
    return Guarantee(
        epsilon=loss.epsilon,
        delta=loss.delta,
        **common._asdict(),
        model="local" if guarantees and all(g.model == "local" for g in guarantees) else "central",
        arithmetic="exact" if all(g.arithmetic == "exact" for g in guarantees) else "real",
        derivation=tuple(lines),
        rho=float_above(total.rho),
    )
