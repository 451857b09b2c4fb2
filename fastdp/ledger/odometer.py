"""Exact sums of a stream's costs, their composition, and the budget left (``docs/privacy.md``, section 3).

Source: ToPS section 2.4; Rogers et al. 2016 (adaptive budgets).
"""

from __future__ import annotations

import itertools
import json
import math
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache, lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from fastdp.errors import ParameterError, StateError
from fastdp.guarantee import Guarantee, zcdp_epsilon, zcdp_order, zcdp_rho
from fastdp.ledger.entry import ELEMENTS, VALUE, Entry, Kind
from fastdp.ledger.entry import LAST as END
from fastdp.record import values_of
from fastdp.units import FIRST, LAST, Period, Times, UnitRows, instant, shown_time

REPAIR = "restore a backup, and record what was released since"
#: The function that seals a line or an account.
Mac = Callable[[bytes], bytes]
UNIT = 10**324
#: Above it, e^epsilon times any positive float exceeds 1, the largest delta.
MAX_EXPONENT = 1000
#: Costs that the odometer adds up.  DOUBLE_DELTA: delta where a release counts twice.  RHO: of all releases; OWN_RHO:
#: of those that state a rho.  SPAN_DELTA, SPAN_RHO: of releases for a person in any period, if the person's rows
#: change in all periods of the release's times, divided evenly among these.
EPSILON, DELTA, DOUBLE_DELTA, RHO, OWN_RHO, SPAN_DELTA, SPAN_RHO = range(7)
#: Stands for a missing rho.  A pure epsilon has the rho epsilon^2 / 2; a release with a delta and no rho has none.
#: With a rho, epsilon is the least by sum, by rhos at the summed delta, and by Renyi divergences.
NO_RHO = UNIT << 1000


class Budget(NamedTuple):
    """Holds a privacy loss, ``epsilon`` and ``delta``; ``inf`` for no limit.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.ledger.Budget(1.0, 1e-6)
    Budget(epsilon=1.0, delta=1e-06)
    """

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
    """Shortest decimal that reads back as this float."""
    return Fraction(repr(amount))


def multiple(kind: Kind, weaker: Kind) -> int | None:
    """Number of changes of unit `kind` that make one of unit `weaker`, or None."""
    if kind == weaker or kind.rows is None or weaker.rows is None:
        return 1 if kind == weaker else 2 if kind in ELEMENTS and weaker == VALUE else None
    return kind.rows.times(weaker.rows)


def common_kind(kinds: Iterable[Kind], stream: str) -> Kind:
    """Weakest of these units; else ParameterError."""
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
    """Delta after `changes` changes of `epsilon` and `delta`, in units of 1 / UNIT."""
    # delta (1 + e^eps + ... + e^((m - 1) eps)), of which the last term is the largest.
    if changes == 1 or not delta:
        return delta
    return math.ceil(changes * delta * exp_above(Fraction((changes - 1) * epsilon, UNIT)))


def alone(guarantee: Guarantee) -> Loss:
    """Exact privacy loss of one release."""
    if math.isinf(guarantee.epsilon):
        return Loss(math.inf, Fraction(guarantee.delta))
    epsilon, delta, _ = cost(guarantee.epsilon, guarantee.delta, guarantee.numeric_distance)
    return Loss(Fraction(epsilon, UNIT), Fraction(delta, UNIT))


def rho_of(guarantee: Guarantee) -> int:
    """Rho of a release, in units of 1 / UNIT, or NO_RHO."""
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
    """Privacy loss as floats that do not understate it."""
    return Budget(float_above(loss.epsilon), min(1.0, float_above(loss.delta)))


def budget_left(limit: Budget, spent: Loss, met: Loss, changes: int = 1) -> Budget:
    """Cost allowed to a release that counts `changes` times, rounded down.

    `spent`, `met`: costs of the stream's worst element, and of the release's.
    """
    if not spent.within(limit):
        return Budget(0.0, 0.0)
    return Budget(_rest(limit.epsilon, met.epsilon, changes), _rest(limit.delta, met.delta, changes))


def _rest(limit: float, met: Fraction | float, changes: int) -> float:
    """Largest loss that fits `changes` times into `limit` less `met`."""
    if math.isinf(limit) or met >= limit:
        return limit if math.isinf(limit) else 0.0
    exact = (written(limit) - Fraction(met)) / changes
    nearest = float(exact)
    return nearest if written(nearest) <= exact else math.nextafter(nearest, 0.0)


def float_above(amount: Fraction | float) -> float:
    """Float whose shortest decimal is at least `amount`."""
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
    """Number of a pure loss's size class, equal on all machines."""
    mantissa, exponent = math.frexp(max(epsilon, SMALLEST))
    return CLASSES * exponent + math.ceil(2 * CLASSES * mantissa) - CLASSES


def largest(index: int) -> float:
    """Largest loss in a size class."""
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
    """Epsilon at `delta` by divergences of one order.

    `pure`: largest loss and sum of each class; `rho`: sum of the others.
    """
    spent = order * rho + sum(total * min(1.0, pure_divergence(top, order) / top) for top, total in pure)
    # ln(1 - 1 / order), in a form that keeps its digits near order 1, where a delta near 1 leads.
    rest = -math.log(delta) - order * math.log1p(1.0 / (order - 1.0)) - math.log(order - 1.0)
    # A sum of terms of either sign: the margin is of their sizes.
    return max(0.0, spent + (rest + 2.0**-40 * (1.0 - math.log(delta) + abs(rest))) / (order - 1.0)) * _ABOVE


@lru_cache(maxsize=256)
def orders_of(epsilon: float, delta: float) -> tuple[float, ...]:
    """Public orders for a limit, for rhos of all, half and a quarter of it."""
    fractions = (epsilon, epsilon / 2.0, epsilon / 4.0)
    return tuple(zcdp_order(max(zcdp_rho(fraction, delta), 2.0**-1000), fraction) for fraction in fractions)


# Sums.

#: The sum of the pure epsilons of a class is measure PURE and the class, which lies above all others.
PURE = 10**5
#: Scope of a sum: all of the stream, positions of the stream (or instants), or (positions of) a labelled part.
WHOLE, RANGES, PARTS = range(3)

SCHEMA = """
CREATE TABLE account (
  id INTEGER PRIMARY KEY, stream TEXT NOT NULL, kind TEXT NOT NULL, axis TEXT NOT NULL, line INTEGER NOT NULL,
  sums TEXT NOT NULL, mac BLOB NOT NULL, UNIQUE (stream, kind, axis));
CREATE TABLE level (
  account INTEGER NOT NULL, measure INTEGER NOT NULL, scope INTEGER NOT NULL, part TEXT NOT NULL,
  start INTEGER NOT NULL, sum BLOB NOT NULL,
  PRIMARY KEY (account, measure, scope, part, start)) WITHOUT ROWID;
CREATE INDEX highest ON level (account, measure, scope, sum);
"""
_KEY = "account = ?1 AND measure = ?2 AND scope = ?3 AND part = ?4"
#: Levels that hold somewhere between two edges, ?5 and ?6.
_BETWEEN = (
    f"FROM level WHERE {_KEY} AND start < ?6 "
    f"AND start >= coalesce((SELECT max(start) FROM level WHERE {_KEY} AND start <= ?5), ?5)"
)


#: So many periods of the calendar are looked at for the one with the most shorter periods.
_LOOKED_AT = 400


class Region(NamedTuple):
    """Elements that a release reads, by position or time."""

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
        return PARTS if self.part is not None else WHOLE if self.start is None else RANGES


EVERYWHERE = Region()


@dataclass
class Account:
    """Exact sums of releases for one unit, without times or by one column and zone."""

    id: int
    kind: Kind
    axis: str
    #: Numbers of releases; of these with an infinite epsilon, of the local model, exact, with a numeric distance.
    releases: int = 0
    endless: int = 0
    local: int = 0
    exact: int = 0
    distant: int = 0
    #: Sum of the deltas of releases with an infinite epsilon, which are in no other sum.
    their_delta: int = 0
    #: By measure: sum of releases of the full stream, largest sum on ranges, largest sum in labelled parts.
    sums: dict[int, list[int]] = field(default_factory=dict)

    @property
    def period(self) -> Period | None:
        return None if self.kind.rows is None else self.kind.rows.period

    def encoded(self) -> str:
        return json.dumps(values_of(self, *_ENCODED))

    @classmethod
    def decoded(cls, number: int, kind: Kind, axis: str, text: str) -> Account:
        fields = json.loads(text)
        sums = {int(measure): sums for measure, sums in fields.pop("sums").items()}
        return cls(number, kind, axis, sums=sums, **fields)


_ENCODED = ("releases", "endless", "local", "exact", "distant", "their_delta", "sums")


def _pack(number: int) -> bytes:
    count = (number.bit_length() + 7) // 8
    return count.to_bytes(2) + number.to_bytes(count).rstrip(b"\0")


def _unpack(raw: bytes) -> int:
    return int.from_bytes(raw[2:].ljust(int.from_bytes(raw[:2]), b"\0"))


ZERO = _pack(0)


# Releases of the full stream add up; of ranges, parts and times the largest sum counts; ranges without a label may
# meet any part.  A replaced value is one element less and one more.  Other units, columns and zones add up in the
# weakest unit.


class Odometer:
    """Sums the cost of releases to any one element of a stream or region."""

    def __init__(self, db: sqlite3.Connection, mac: Mac) -> None:
        self._db, self._mac = db, mac
        #: Accounts of streams that were read in this transaction.
        self._known: dict[str, list[Account]] = {}
        #: Number and seal of the line that is being recorded.
        self.line = 0, b""

    def add(self, entry: Entry, times: int = 1) -> None:
        """Add a release, or remove it by `times` = -1."""
        said, region = entry.guarantee, Region.of(entry)
        key = entry.stream, json.dumps(entry.kind), region.axis
        same = (each for each in self._read(entry.stream) if (each.kind, each.axis) == (entry.kind, region.axis))
        account = next(same, None)
        if account is None:
            made = "INSERT INTO account (stream, kind, axis, line, sums, mac) VALUES (?, ?, ?, 0, '', x'')"
            account = Account(self._db.execute(made, key).lastrowid or 0, _kind(key[1]), key[2])
            self._known[entry.stream].append(account)
        if entry.counts:
            self._count(account, said, times)
            # Infinite ones are counted apart from the sums: after a cancellation the sums must be exactly as before.
            for measure, amount in ({} if math.isinf(said.epsilon) else _amounts(said, entry.kind, region)).items():
                sums = account.sums.setdefault(measure, [0, 0, 0])
                if region.scope == WHOLE:
                    sums[WHOLE] += times * amount
                else:
                    sums[region.scope] = self._raise(account.id, measure, region, times * amount)
                if not any(sums):
                    del account.sums[measure]
        number, seal = self.line
        text = account.encoded()
        mac = self._mac(_sealed_text(seal, key, number, text))
        self._db.execute(
            "UPDATE account SET line = ?, sums = ?, mac = ? WHERE id = ?", (number, text, mac, account.id)
        )

    def _count(self, account: Account, said: Guarantee, times: int) -> None:
        account.releases += times
        account.local += times * (said.model == "local")
        account.exact += times * (said.arithmetic == "exact")
        account.distant += times * (said.numeric_distance > 0.0)
        if math.isinf(said.epsilon):
            account.endless += times
            account.their_delta += times * int(written(said.delta) * UNIT)

    def _raise(self, account: int, measure: int, region: Region, amount: int) -> int:
        key = account, measure, region.scope, region.part or ""
        start, stop = region.start or 0, END if region.stop is None else region.stop
        before = f"SELECT sum FROM level WHERE {_KEY} AND start < ?5 ORDER BY start DESC LIMIT 1"
        inserted = f"INSERT OR IGNORE INTO level SELECT ?1, ?2, ?3, ?4, ?5, coalesce(({before}), ?6)"
        for edge in (start, stop):
            self._db.execute(inserted, (*key, edge, ZERO))
        # Not by a function of SQLite's: an interrupt within one would become another error.
        self._db.executemany(
            f"UPDATE level SET sum = ?6 WHERE {_KEY} AND start = ?5",
            [(*key, edge, _pack(_unpack(level) + amount)) for edge, level in self._packed(key, start, stop)],
        )
        highest = "SELECT max(sum) FROM level WHERE account = ? AND measure = ? AND scope = ?"
        return _unpack(self._db.execute(highest, key[:3]).fetchone()[0])

    def total(self, stream: str, region: Region = EVERYWHERE, limit: Budget | None = None) -> Loss:
        """Cost of a stream's releases; ParameterError if units do not compose.

        A limit fixes the orders of divergences, because the best ones could depend on outputs.
        """
        accounts = self._accounts(stream)
        kinds = {account.kind for account in accounts}
        common = common_kind(kinds, stream)
        epsilon = delta = endless = 0
        for account in accounts:
            endless += account.endless
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
        classes = sorted({measure for account in accounts for measure in account.sums if measure > SPAN_RHO})
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
        """Periods of this length if a unit's are not longer, else None."""
        for account in self._accounts(stream):
            unit = account.period
            if unit is not None and unit.size <= (per := Period.of(length, unit.time_zone)).size:
                return per
        return None

    def released(self, stream: str, per: Period) -> set[int]:
        numbers: set[int] = set()
        for account in self._renewed(stream, per):
            for measure in (EPSILON, DELTA):
                key, reached = (account.id, measure, RANGES, ""), FIRST
                for (start, level), (stop, _) in pairwise(self._steps(key, FIRST, 2 * LAST)):
                    if level and stop > reached:
                        found = _numbers(per, max(start, reached), stop)
                        numbers, reached = numbers | found, per.edge(max(found) + 1)
        return numbers

    def met(self, stream: str, per: Period, region: Region) -> set[int]:
        """Numbers of periods that a region overlaps; without times, those that may cost most."""
        if region.axis:
            return _numbers(per, region.start or 0, region.stop or 0)
        return self.released(stream, per) | self.fullest(stream, per)

    def fullest(self, stream: str, per: Period) -> set[int]:
        return {_fullest(account.period, per) for account in self._renewed(stream, per) if account.period}

    def changes(self, stream: str, per: Period, number: int, region: Region) -> int:
        """Largest number of a unit's periods inside a region and this period."""
        start, stop = per.edge(number), per.edge(number + 1)
        if region.axis:
            start, stop = max(start, region.start or 0), min(stop, region.stop or 0)
        units = (account.period for account in self._renewed(stream, per))
        return max((unit.between(start, stop) or 1 for unit in units if unit is not None), default=1)

    def _renewed(self, stream: str, per: Period) -> list[Account]:
        return [a for a in self._accounts(stream) if a.period is not None and a.period.size <= per.size]

    def of_person(self, stream: str, per: Period, number: int) -> Loss:
        """Cost to a person, all of whose rows in one period change; releases for one row are left out."""
        return self.of_person_by_period(stream, per, [number])[number]

    def of_person_by_period(self, stream: str, per: Period, numbers: Collection[int]) -> dict[int, Loss]:
        accounts = self._accounts(stream)
        timed = [a for a in accounts if a.axis and a.period is not None and a.period.size <= per.size]
        over = {account.id: self._over(account, per, sorted(numbers)) for account in timed}
        return {number: self._of_person(stream, accounts, over, per, number) for number in numbers}

    def _of_person(
        self, stream: str, accounts: list[Account], over: dict[int, dict[int, list[int]]], per: Period, number: int
    ) -> Loss:
        start, stop = per.edge(number), per.edge(number + 1)
        epsilon = delta = rho = endless = 0
        for account in accounts:
            rows, unit, region = account.kind.rows, account.period, EVERYWHERE
            if rows is None or rows == UnitRows():
                continue
            endless += account.endless
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
                    sums = over[account.id][number]
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

    def _over(self, account: Account, per: Period, numbers: list[int]) -> dict[int, list[int]]:
        """Sums of EPSILON, SPAN_DELTA and SPAN_RHO over the unit's periods in each of these."""
        assert account.period is not None  # noqa: S101 - the caller has looked
        unit_of, found = cache(account.period.number), {number: [0, 0, 0] for number in numbers}
        ends = [(number, per.edge(number), per.edge(number + 1)) for number in numbers]
        for place, measure in enumerate((EPSILON, SPAN_DELTA, SPAN_RHO) if ends else ()):
            rows = self._steps((account.id, measure, RANGES, ""), ends[0][1], ends[-1][2])
            spans, at = list(pairwise([*rows, (ends[-1][2], 0)])), 0
            for number, start, stop in ends:
                while at < len(spans) and spans[at][1][0] <= start:
                    at += 1
                for (begin, level), (end, _) in itertools.islice(spans, at, None):
                    if begin >= stop:
                        break
                    count = unit_of(min(end, stop)) - unit_of(max(begin, start))
                    found[number][place] += count * level
        return found

    def _steps(self, key: tuple[int, int, int, str], start: int, stop: int) -> list[tuple[int, int]]:
        runs = itertools.groupby(self._packed(key, start, stop), itemgetter(1))
        return [(next(run)[0], _unpack(level)) for level, run in runs]

    def _packed(self, key: tuple[int, int, int, str], start: int, stop: int) -> list[tuple[int, bytes]]:
        return self._db.execute(f"SELECT start, sum {_BETWEEN} ORDER BY start", (*key, start, stop)).fetchall()

    def _accounts(self, stream: str) -> list[Account]:
        return [account for account in self._read(stream) if account.releases]

    def _read(self, stream: str) -> list[Account]:
        """Accounts of a stream; StateError if altered or too old."""
        if stream in self._known:
            return self._known[stream]
        asked = "SELECT account.id, kind, axis, line, sums, mac, coalesce(seal, x'') FROM account LEFT JOIN line "
        asked += "ON line = line.id WHERE stream = ? ORDER BY account.id"
        accounts, newest = [], 0
        for number, kind, axis, line, text, mac, seal in self._db.execute(asked, (stream,)).fetchall():
            if self._mac(_sealed_text(seal, (stream, kind, axis), line, text)) != mac:
                raise StateError(f"the ledger is damaged: sums of stream {stream!r} were altered; {REPAIR}")
            accounts.append(Account.decoded(number, _kind(kind), axis, text))
            newest = max(newest, line)
        last = self._db.execute("SELECT max(id) FROM release WHERE stream = ?", (stream,)).fetchone()[0]
        if last is not None and last > newest:
            raise StateError(f"the ledger is damaged: sums of stream {stream!r} lack entry {last}; {REPAIR}")
        self._known[stream] = accounts
        return accounts

    def _most(self, account: Account, measure: int, region: Region) -> int:
        sums = account.sums.get(measure)
        if sums is None or region == EVERYWHERE or region.axis != account.axis:
            return sum(sums or ())
        # Positions in a labelled part are not positions in the stream, nor instants of another column.
        asked = RANGES if region.part is None else PARTS
        key = account.id, measure, asked, region.part or "", region.start or 0
        # By position: the plus keeps SQLite from walking down the index of sums until a row lies in the region.
        highest = f"SELECT max(+sum) {_BETWEEN}"
        found = self._db.execute(highest, (*key, END if region.stop is None else region.stop)).fetchone()[0]
        return sum(sums) - sums[asked] + (_unpack(found) if found else 0)

    def guarantee(self, stream: str) -> Guarantee:
        accounts = self._accounts(stream)
        common = common_kind((account.kind for account in accounts), stream)
        total = self.total(stream)
        loss = rounded(total)
        lines = []
        for kind in sorted({account.kind for account in accounts}, key=str):
            count = sum(account.releases for account in accounts if account.kind == kind)
            twice = multiple(kind, common) == 2
            counts = f", each 2 epsilon and (1 + e^epsilon) delta for {common}" if twice else ""
            lines.append(f"{count:,} release{'s' * (count > 1)} for {kind}{counts}")
        if any(account.distant for account in accounts):
            lines.append("delta counts (1 + e^epsilon) times the distance of the sampled noise from its distribution")
        if math.isfinite(total.rho):
            lines.append(
                "rhos add up, a pure epsilon counts as epsilon^2 / 2, and Renyi divergences do: epsilon is what they "
                "give, if that is less"
            )
        lines.append("the most that meets in one element: disjoint parts in parallel, everything else in sequence")
        return Guarantee(
            epsilon=loss.epsilon,
            delta=loss.delta,
            **common._asdict(),
            model="local" if accounts and all(a.local == a.releases for a in accounts) else "central",
            arithmetic="exact" if all(a.exact == a.releases for a in accounts) else "real",
            derivation=tuple(lines) if accounts else (),
            rho=float_above(total.rho),
        )


@lru_cache(maxsize=256)
def _amounts(said: Guarantee, kind: Kind, region: Region) -> Mapping[int, int]:
    rows = said.rows
    amounts = dict(enumerate(cost(said.epsilon, said.delta, said.numeric_distance)))
    if kind not in ELEMENTS and (rows is None or rows.who is None):
        amounts[DOUBLE_DELTA] = 0
    amounts[RHO] = rho_of(said)
    if math.isfinite(said.rho):
        amounts[OWN_RHO] = amounts[RHO]
    elif said.epsilon and amounts[RHO] < NO_RHO:
        amounts[PURE + size_class(said.epsilon)] = amounts[EPSILON]
    if region.axis and rows is not None and rows.period is not None:
        spans = rows.period.between(region.start or 0, region.stop or 0) or 1
        per_span = -(-of_changes(spans, amounts[EPSILON], amounts[DELTA]) // spans)
        amounts |= {SPAN_DELTA: min(UNIT, per_span), SPAN_RHO: spans * amounts[RHO]}
    return {measure: amount for measure, amount in amounts.items() if amount}


def _sealed_text(seal: bytes, key: tuple[str, str, str], line: int, text: str) -> bytes:
    # An account's fields after the seal of the last line that changed it.  A line, which follows a seal too, is a
    # JSON object.
    return seal + json.dumps([*key, line, text]).encode()


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


@lru_cache(maxsize=256)
def _kind(text: str) -> Kind:
    unit, adjacency, rows = json.loads(text)
    return Kind(unit, adjacency, UnitRows.read(rows))
