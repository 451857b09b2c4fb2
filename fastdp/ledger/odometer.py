"""The odometer: exact sums of the costs of a stream's releases, in SQL tables, and their composition.

Rhos of concentrated DP are summed too: a pure epsilon counts as epsilon^2 / 2; a release with a delta and no rho has
none.  Once a stream has a rho, epsilon is the least of the sum of epsilons, the epsilon of the rhos at the summed
delta, and that of sums of Renyi divergences (:mod:`fastdp.ledger.composition`).

Source: ToPS section 2.4 (sequential, parallel); Rogers et al. 2016, "Privacy odometers and filters" (basic
composition is a valid filter for adaptive budgets); proofs in ``docs/privacy.md``, section 11.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from fastdp.guarantee import Guarantee, zcdp_epsilon
from fastdp.ledger import composition
from fastdp.ledger.composition import (
    DELTA,
    DOUBLE_DELTA,
    EPSILON,
    NO_RHO,
    ORDERS,
    OWN_RHO,
    RHO,
    UNIT,
    Budget,
    Loss,
    common_kind,
    epsilon_at,
    float_above,
    largest,
    rounded,
    size_class,
    written,
)
from fastdp.ledger.entry import ELEMENTS, VALUE, Entry, Kind
from fastdp.units import UnitRows

#: The sum of the pure epsilons of a class is measure PURE and the class, which lies above all others.
PURE = 10**5
#: Scope of a sum: all of the stream, positions of the stream, or (positions of) a labelled share.
WHOLE, RANGES, PARTS = range(3)

SCHEMA = """
CREATE TABLE stream_account (
  id INTEGER PRIMARY KEY, stream TEXT NOT NULL, kind TEXT NOT NULL,
  releases INTEGER NOT NULL, without_epsilon INTEGER NOT NULL, their_delta BLOB NOT NULL,
  UNIQUE (stream, kind));
CREATE TABLE level (
  account INTEGER NOT NULL, measure INTEGER NOT NULL, scope INTEGER NOT NULL, part TEXT NOT NULL,
  start INTEGER NOT NULL, sum BLOB NOT NULL,
  PRIMARY KEY (account, measure, scope, part, start)) WITHOUT ROWID;
CREATE INDEX highest ON level (account, measure, scope, sum);
"""
_LEVELS = "account = ? AND measure = ? AND scope = ?"


class Region(NamedTuple):
    """The elements that a release reads, as in an entry."""

    part: str | None = None
    start: int | None = None
    stop: int | None = None

    @classmethod
    def of(cls, entry: Entry) -> Region:
        """Region of an entry, reduced to the bounds proved disjoint for its unit (``docs/privacy.md``)."""
        if entry.kind == VALUE:
            return cls(entry.part, entry.start, entry.stop)
        return cls(entry.part if entry.kind in ELEMENTS else None)

    @property
    def scope(self) -> int:
        """Kind of region: WHOLE stream, RANGES of positions, or labelled PARTS."""
        return PARTS if self.part is not None else WHOLE if self.start is None else RANGES


EVERYWHERE = Region()


def _pack(number: int) -> bytes:
    """Return bytes that sort as the numbers do: length, then digits without zeros at the end."""
    count = (number.bit_length() + 7) // 8
    return count.to_bytes(2) + number.to_bytes(count).rstrip(b"\0")


def _unpack(raw: bytes) -> int:
    return int.from_bytes(raw[2:].ljust(int.from_bytes(raw[:2]), b"\0"))


ZERO = _pack(0)


class Odometer:
    """The largest cost of each stream's releases to any one of its elements, or of a region's.

    Releases on the full stream add up; of ranges, the largest sum at one position counts; of labelled shares, the
    largest sum.  A range without a label may meet any share.  A replaced value is one element less and one more,
    perhaps in other shares, so releases for one element have a largest share of their own.  Other units and shares
    add up; several units add up in the weakest, each as often as :func:`composition.times` says.
    """

    def __init__(self, db: sqlite3.Connection | None = None) -> None:
        if db is None:
            db = sqlite3.connect(":memory:", isolation_level=None)
            db.executescript(SCHEMA)
        self._db = db

    def add(self, entry: Entry, times: int = 1) -> None:
        """Add a release to the sums, or with `times` = -1 remove it; an entry that does not count changes nothing."""
        said, kind = entry.guarantee, (entry.stream, json.dumps(entry.kind))
        self._db.execute(
            "INSERT INTO stream_account (stream, kind, releases, without_epsilon, their_delta) "
            "VALUES (?, ?, 0, 0, ?) ON CONFLICT DO NOTHING",
            (*kind, ZERO),
        )
        if not entry.counts:
            return
        found = "SELECT id, their_delta FROM stream_account WHERE stream = ? AND kind = ?"
        account, their_delta = self._db.execute(found, kind).fetchone()
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
        amounts = dict(enumerate(composition.cost(said.epsilon, said.delta, said.numeric_distance)))
        if entry.kind not in ELEMENTS and (said.rows is None or said.rows.who is None):
            amounts[DOUBLE_DELTA] = 0
        amounts[RHO] = composition.rho_of(said)
        if math.isfinite(said.rho):
            amounts[OWN_RHO] = amounts[RHO]
        elif said.epsilon and amounts[RHO] < NO_RHO:
            amounts[PURE + size_class(said.epsilon)] = amounts[EPSILON]
        for measure, amount in amounts.items():
            if amount:
                self._raise(account, measure, Region.of(entry), times * amount)

    def _raise(self, account: int, measure: int, region: Region, amount: int) -> None:
        """Change the sums of a region's positions; a row's sum holds from its start to the next row's."""
        key = account, measure, region.scope, region.part or ""
        start, stop = region.start or 0, region.stop
        for edge in (start, stop):
            if edge is not None:
                self._db.execute(
                    "INSERT OR IGNORE INTO level SELECT ?1, ?2, ?3, ?4, ?5, coalesce((SELECT sum FROM level WHERE "
                    "account = ?1 AND measure = ?2 AND scope = ?3 AND part = ?4 AND start < ?5 "
                    "ORDER BY start DESC LIMIT 1), ?6)",
                    (*key, edge, ZERO),
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
        """Cost of a stream's releases together; ParameterError if units do not compose.

        A limit fixes the orders of divergences: the best order of a history could depend on outputs.
        """
        asked = "SELECT id, kind, without_epsilon, their_delta FROM stream_account WHERE stream = ? AND releases > 0"
        rows = self._db.execute(asked, (stream,)).fetchall()
        kinds = [_kind(text) for _, text, _, _ in rows]
        common = common_kind(kinds, stream)
        epsilon = delta = endless = 0
        for kind, (account, _, without, their_delta) in zip(kinds, rows, strict=True):
            endless += without
            delta += _unpack(their_delta)
            if composition.times(kind, common) == 1:
                epsilon += self._most(account, EPSILON, region)
                delta += self._most(account, DELTA, region)
            else:
                epsilon += 2 * self._most(account, EPSILON, EVERYWHERE)
                delta += self._most(account, DOUBLE_DELTA, EVERYWHERE)
        # No delta makes up for a release without an epsilon.
        if endless:
            return Loss(math.inf, Fraction(delta, UNIT))
        loss = Loss(Fraction(epsilon, UNIT), Fraction(delta, UNIT))
        return self._concentrated(rows[0][0], region, loss, limit) if len(rows) == 1 and delta else loss

    def _concentrated(self, account: int, region: Region, loss: Loss, limit: Budget | None) -> Loss:
        """Loss with the least epsilon by rho and divergences, if all releases have a rho."""
        rho = self._most(account, RHO, region)
        if not 0 < rho < NO_RHO:
            return loss
        exact, delta = Fraction(rho, UNIT), math.nextafter(float(loss.delta), 0.0)
        if not 0.0 < delta < 1.0:
            return replace(loss, epsilon=Fraction(0) if delta else loss.epsilon, rho=exact)
        found = [zcdp_epsilon(float_above(exact), delta)]
        pure = []
        for measure in self._classes(account):
            pure.append((largest(measure - PURE), float_above(Fraction(self._most(account, measure, region), UNIT))))
        if pure:
            own = float_above(Fraction(self._most(account, OWN_RHO, region), UNIT))
            orders: Sequence[float] = ORDERS
            if limit is not None and 0.0 < limit.delta < 1.0:
                # Any public orders are valid: beyond the range of floats, those of the nearest limit.
                orders = composition.orders_of(min(max(limit.epsilon, 2.0**-60), 2.0**60), limit.delta)
            found.append(min(epsilon_at(order, pure, own, delta) for order in orders))
        return replace(loss, epsilon=min(loss.epsilon, *map(written, found)), rho=exact)

    def _classes(self, account: int) -> Iterator[int]:
        """Yield the measures of the classes of pure releases, one index step each."""
        measure: int | None = OWN_RHO
        asked = "SELECT min(measure) FROM level WHERE account = ? AND measure > ?"
        while (measure := self._db.execute(asked, (account, measure)).fetchone()[0]) is not None:
            yield measure

    def _most(self, account: int, measure: int, region: Region) -> int:
        """Largest sum of one measure at an element of a region."""
        most = 0
        # Positions in a labelled share are not positions in the stream.
        asked = RANGES if region.part is None else PARTS
        for scope in (WHOLE, RANGES, PARTS):
            values = account, measure, scope
            if scope == asked and region != EVERYWHERE:
                most += self._highest_in(region, values)
            else:
                most += self._highest(_LEVELS, values)
        return most

    def _highest_in(self, region: Region, values: tuple[object, ...]) -> int:
        """Largest sum of one measure at a position of a region."""
        among, values = f"{_LEVELS} AND part = ?", (*values, region.part or "")
        before = f"SELECT max(start) FROM level WHERE {among} AND start <= ?"
        start = self._db.execute(before, (*values, region.start or 0)).fetchone()[0]
        among, values = f"{among} AND start >= ?", (*values, start or 0)
        if region.stop is not None:
            among, values = f"{among} AND start < ?", (*values, region.stop)
        # By position: the plus keeps SQLite from walking down the index of sums until a row lies in the region.
        return self._highest(among, values, "+sum")

    def _highest(self, among: str, values: tuple[object, ...], of: str = "sum") -> int:
        """Largest sum among the rows of a condition; 0 without rows."""
        found = self._db.execute(f"SELECT max({of}) FROM level WHERE {among}", values).fetchone()[0]
        return 0 if found is None else _unpack(found)


def _kind(text: str) -> Kind:
    unit, adjacency, rows = json.loads(text)
    return Kind(unit, adjacency, UnitRows.read(rows))


def compose(entries: Sequence[Entry], stream: str = "") -> Guarantee:
    """The guarantee of all these releases of one stream together.

    Parameters
    ----------
    entries : sequence of Entry
        Simulations and cancelled ones are left out.
    stream : str
        For messages.

    Returns
    -------
    Guarantee
        Epsilon and delta are exact sums, rounded up; delta includes distances of sampled noise from its distribution,
        each times 1 + e^epsilon.  The model is ``"local"`` only if all are: the curator sees the values of a central
        release.

    Raises
    ------
    ParameterError
        If units or adjacencies do not compose.
    """
    counted = [entry for entry in entries if entry.counts]
    common = common_kind((entry.kind for entry in counted), stream)
    odometer = Odometer()
    for entry in counted:
        odometer.add(replace(entry, stream="one"))
    total = odometer.total("one")
    loss = rounded(total)
    each = [entry.guarantee for entry in counted]
    lines = [f"entry {entry.id}, {entry.extent}: {entry.guarantee}" for entry in counted]
    for kind in sorted({entry.kind for entry in counted} - {common}, key=str):
        count = "2 epsilon and (1 + e^epsilon) delta" if composition.times(kind, common) == 2 else "epsilon and delta"
        lines.append(f"{kind}: each counts {count} for {common}")
    if any(g.numeric_distance for g in each):
        lines.append("delta counts (1 + e^epsilon) times the distance of the sampled noise from its law")
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
        model="local" if each and all(g.model == "local" for g in each) else "central",
        arithmetic="exact" if all(g.arithmetic == "exact" for g in each) else "real",
        derivation=tuple(lines),
        rho=float_above(total.rho),
    )
