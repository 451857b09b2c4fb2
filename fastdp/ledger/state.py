"""What the lines of a ledger amount to: releases and their states, limits, and the totals of each stream."""

from __future__ import annotations

import json
import math
import secrets
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from fastdp import validation
from fastdp.errors import ParameterError, StateError
from fastdp.ledger import odometer
from fastdp.ledger.composition import Budget
from fastdp.ledger.entry import Entry, from_line

#: A line says what happened, and is never changed.  All other tables follow from the lines.
SCHEMA = (
    """
CREATE TABLE line (id INTEGER PRIMARY KEY, body TEXT NOT NULL, seal BLOB NOT NULL);
CREATE TABLE release (
  id INTEGER PRIMARY KEY, stream TEXT NOT NULL, state TEXT NOT NULL, stop INTEGER, fingerprint TEXT);
CREATE INDEX releases ON release (stream, id);
CREATE INDEX reserved ON release (id) WHERE state = 'reserved';
CREATE UNIQUE INDEX noise ON release (fingerprint) WHERE fingerprint IS NOT NULL AND state <> 'cancelled';
CREATE TABLE limits (stream TEXT PRIMARY KEY, epsilon REAL, delta REAL) WITHOUT ROWID;
"""
    + odometer.SCHEMA
)
DERIVED = ("release", "limits", "stream_account", "level")
#: States of a release: how a line begins it, and how a line ends a reservation.
ENTERS = {"spend": "spent", "reserve": "reserved"}
ENDS = {"commit": "spent", "cancel": "cancelled"}
NONCE_BYTES = 8

Line = dict[str, Any]
Mac = Callable[[bytes], bytes]


class LedgerState:
    """The tables of an open ledger, within a transaction of the caller's.

    Each question is answered at once, by ``fetchall``: an open cursor in a traceback that is kept would hold a lock.

    Parameters
    ----------
    db : sqlite3.Connection
        Holds the tables of SCHEMA.
    mac : function of bytes
        Seals a line.
    """

    def __init__(self, db: sqlite3.Connection, mac: Mac) -> None:
        self._db, self.mac = db, mac
        self.odometer = odometer.Odometer(db)

    def last(self) -> tuple[int, bytes]:
        """Number and seal of the last line."""
        # In a damaged file there may be another value in the place of a seal, or none.
        asked = "SELECT id, coalesce(CAST(seal AS BLOB), x'') FROM line ORDER BY id DESC LIMIT 1"
        found: tuple[int, bytes] = self._db.execute(asked).fetchone() or (-1, b"")
        return found

    def is_torn(self) -> bool:
        """True if the last line is not the one that the file's first page names."""
        named: tuple[int] = self._db.execute("PRAGMA user_version").fetchone()
        return named != self.last()[:1]

    def copy_to(self, db: sqlite3.Connection) -> None:
        """Copy all tables."""
        self._db.backup(db)

    def has(self, number: int, seal: bytes) -> bool:
        """Whether that line has that seal."""
        return bool(self._db.execute("SELECT 1 FROM line WHERE id = ? AND seal = ?", (number, seal)).fetchone())

    def append(self, body: Line) -> Line:
        """Add a line, sealed, and what follows from it."""
        number, before = self.last()
        line = {"id": number + 1, "time": datetime.now(UTC).isoformat(timespec="seconds"), **body}
        # Random digits tell a line from an equal one in another copy of the ledger.
        line["nonce"] = secrets.token_hex(NONCE_BYTES)
        text = json.dumps(line, ensure_ascii=False, allow_nan=False)
        self.insert(number + 1, text, sealed(before, text.encode(), self.mac))
        self.take(line)
        return line

    def insert(self, number: int, text: str, seal: bytes) -> None:
        """Add a line as it is, and its number to the file's first page."""
        self._db.execute("INSERT INTO line VALUES (?, ?, ?)", (number, text, seal))
        self._db.execute(f"PRAGMA user_version = {number}")

    def take(self, line: Line) -> None:
        """Bring all tables up to date; ArithmeticError, LookupError, TypeError or ValueError for a senseless line."""
        kind = line["kind"]
        if kind in ENTERS:
            entry = from_line(line, ENTERS[kind])
            self._db.execute(
                "INSERT INTO release VALUES (?, ?, ?, ?, ?)",
                (entry.id, entry.stream, entry.state, entry.stop, entry.fingerprint),
            )
            self.odometer.add(entry)
        elif kind in ENDS:
            self._end(line["of"], ENDS[kind], line.get("stop"))
        elif kind == "limit":
            named = budget("epsilon", line.get("epsilon"), "delta", line.get("delta"))
            # What a line does not name stays as it was; null is "no limit".
            amounts = [getattr(named, name) if name in line else None for name in Budget._fields]
            self._db.execute(
                "INSERT INTO limits VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET "
                "epsilon = coalesce(excluded.epsilon, epsilon), delta = coalesce(excluded.delta, delta)",
                (line["stream"] or "", *amounts),
            )
        else:
            raise ValueError(f"a line of kind {kind!r}")

    def _end(self, number: int, state: str, stop: object) -> None:
        before = self.reserved(number)
        if before is None:
            raise ValueError(f"it ends entry {number}, which is {self.state(number)}")
        ended = replace(before, state=state, stop=ending(before, stop))
        self._db.execute("UPDATE release SET state = ?, stop = ? WHERE id = ?", (state, ended.stop, number))
        if (ended.counts, ended.stop) != (before.counts, before.stop):
            self.odometer.add(before, -1)
            self.odometer.add(ended)

    def state(self, number: int) -> str:
        """What became of a release, in words."""
        found = self._db.execute("SELECT state FROM release WHERE id = ?", (number,)).fetchone()
        return str(found[0]) if found else "not there"

    def reserved(self, number: int) -> Entry | None:
        """A release that is reserved; None if it is in another state, or none."""
        found = self._entries("id = ? AND state = 'reserved'", number)
        return found[0] if found else None

    def all_reserved(self) -> list[int]:
        """Numbers of the reservations that were never ended."""
        asked = "SELECT id FROM release WHERE state = 'reserved' ORDER BY id"
        return [number for (number,) in self._db.execute(asked).fetchall()]

    def entries(self, stream: str | None) -> list[Entry]:
        """The releases of a stream, or all, in the order in which they were recorded."""
        return self._entries("1") if stream is None else self._entries("stream = ?", stream)

    def _entries(self, which: str, *values: object) -> list[Entry]:
        rows = self._db.execute(
            f"SELECT id, body, state, stop FROM release JOIN line USING (id) WHERE {which} ORDER BY id", values
        ).fetchall()
        return [_read(*row) for row in rows]

    def noise(self, fingerprint: str) -> tuple[int, str] | None:
        """Number and stream of a release that has this noise, or some of it.

        A fleet's fingerprint is that of its streams with a star in the place of a stream's own part.
        """
        fleet = fingerprint.partition(":")[0] + ":*"
        # Two searches of the index; with OR it would be one of all entries.
        which = "SELECT id, stream FROM release WHERE fingerprint {} ? AND state <> 'cancelled'"
        both = f"{which.format('GLOB')} UNION ALL {which.format('=')}"
        found = self._db.execute(both, (fingerprint, fleet)).fetchone()
        return found and (int(found[0]), str(found[1]))

    def streams(self) -> list[str]:
        """Names of the streams with entries, sorted."""
        found = self._db.execute("SELECT DISTINCT stream FROM stream_account").fetchall()
        return sorted(stream for (stream,) in found)

    def limit(self, stream: str | None) -> Budget:
        """What the ledger allows a stream: its own limit, and the general one for what that does not name."""
        rows = self._db.execute("SELECT * FROM limits WHERE stream IN (?, '')", (stream or "",)).fetchall()
        found = {name: amounts for name, *amounts in rows}
        said = [found[name] for name in (stream or "", "") if name in found]
        return Budget(*(next((each[part] for each in said if each[part] is not None), math.inf) for part in range(2)))

    def limits(self) -> dict[str | None, Budget]:
        """The limits of the streams that have one of their own; under None the general one."""
        named = [name or None for (name,) in self._db.execute("SELECT stream FROM limits").fetchall()]
        return {name: self.limit(name) for name in named}


def _read(number: int, body: str, state: str, stop: int | None) -> Entry:
    try:
        return replace(from_line(json.loads(body), state), stop=stop)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise StateError(f"the ledger is damaged at line {number}: {error}; Ledger.verify looks for more") from error


def sealed(before: bytes, text: bytes, mac: Mac) -> bytes:
    """The seal of a line that follows one with that seal: of its text without the last bracket."""
    return mac(before + text[:-1])


def ending(reserved: Entry, stop: object) -> int | None:
    """Where a reserved release ended, within what was reserved; None leaves that as it was."""
    if stop is None:
        return reserved.stop
    if reserved.start is None:
        raise ParameterError(f"stop = {stop!r}: expected None, because the reservation has no start")
    return validation.integer("stop", stop, reserved.start + 1, reserved.stop)


def budget(epsilon_name: str, epsilon: float | None, delta_name: str, delta: float | None) -> Budget:
    """A limit of which either part may be None."""
    amounts = []
    for name, value in ((epsilon_name, epsilon), (delta_name, delta)):
        amount = math.inf if value is None else validation.real(name, value)
        if amount < 0.0:
            raise ParameterError(f"{name} = {value!r}: expected at least 0, or None for no limit")
        amounts.append(amount)
    return Budget(*amounts)
