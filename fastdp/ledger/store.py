"""Sealed lines, and the tables derived from them.

A line is a JSON object; its seal is SHA-256 (HMAC-SHA-256 with a key) of the previous seal and its text.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import secrets
import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from fastdp import validation
from fastdp.errors import StateError
from fastdp.kinds import Json
from fastdp.ledger import odometer
from fastdp.ledger.entry import Entry
from fastdp.ledger.odometer import Budget, Mac
from fastdp.noise.key import Key
from fastdp.validation import refusal

FORMAT = 3
#: "fdpL" marks the file as a ledger.
APPLICATION = 0x6664704C
SCHEMA = (
    """
CREATE TABLE line (id INTEGER PRIMARY KEY, body TEXT NOT NULL, seal BLOB NOT NULL);
CREATE TABLE release (
  id INTEGER PRIMARY KEY, stream TEXT NOT NULL, state TEXT NOT NULL, stop INTEGER, fingerprint TEXT);
CREATE INDEX releases ON release (stream, id);
CREATE INDEX reserved ON release (id) WHERE state = 'reserved';
CREATE UNIQUE INDEX noise ON release (fingerprint) WHERE fingerprint IS NOT NULL AND state <> 'cancelled';
CREATE TABLE limits (
  stream TEXT NOT NULL, per TEXT NOT NULL, epsilon REAL, delta REAL, PRIMARY KEY (stream, per)) WITHOUT ROWID;
"""
    + odometer.SCHEMA
)
#: Tables that follow from the lines.
DERIVED = ("release", "limits", "account", "level")
#: States of a release: how a line begins it, and how a line ends a reservation.
ENTERS = {"spend": "spent", "reserve": "reserved"}
ENDS = {"commit": "spent", "cancel": "cancelled"}
NONCE_BYTES = 8
START = bytes(32)
ROWS = "SELECT id, coalesce(CAST(body AS BLOB), x''), coalesce(CAST(seal AS BLOB), x'') FROM line"

#: Number, text and seal of a line.
Row = tuple[int, bytes, bytes]


def in_wal(db: sqlite3.Connection) -> bool:
    """True if a database is in WAL mode."""
    return bool(db.execute("PRAGMA journal_mode").fetchone() == ("wal",))


def set_mark(db: sqlite3.Connection, number: int, *, is_open: bool) -> None:
    """Mark line `number` as the last; `is_open`: newer lines may be in the -wal."""
    db.execute(f"PRAGMA user_version = {-1 - number if is_open else number}")


class LedgerState:
    """An open ledger's tables, in a transaction."""

    def __init__(self, db: sqlite3.Connection, mac: Mac, *, is_open: bool = False) -> None:
        self.db, self.mac, self._is_open = db, mac, is_open
        self.odometer = odometer.Odometer(db, mac)
        # In a damaged file a seal may be another value, or missing.
        asked = "SELECT id, coalesce(CAST(seal AS BLOB), x'') FROM line ORDER BY id DESC LIMIT 1"
        #: Number and seal of the last line.
        self.last: tuple[int, bytes] = db.execute(asked).fetchone() or (-1, b"")

    def append(self, body: Json, entry: Entry | None = None) -> Entry | None:
        """Add a line; return the release that it enters or ends."""
        number, before = self.last
        line = {**body, "id": number + 1, "time": now()}
        # Random digits tell a line from an equal one in another copy of the ledger.
        line["nonce"] = secrets.token_hex(NONCE_BYTES)
        text = json.dumps(line, ensure_ascii=False, allow_nan=False)
        self.insert(number + 1, text, sealed(before, text.encode(), self.mac))
        if entry is not None and line["kind"] in ENTERS:
            entry = replace(entry, **{name: line[name] for name in ("id", "time", "nonce")})
        return self.take(line, entry)

    def insert(self, number: int, text: str, seal: bytes) -> None:
        self.db.execute("INSERT INTO line VALUES (?, ?, ?)", (number, text, seal))
        set_mark(self.db, number, is_open=self._is_open)
        self.last = self.odometer.line = number, seal

    def take(self, line: Json, entry: Entry | None = None) -> Entry | None:
        """Update the tables by a line; ArithmeticError, LookupError, TypeError or ValueError if wrong.

        `entry`: its release before the line, if known.
        """
        kind = line["kind"]
        if kind in ENTERS:
            entry = entry or Entry.from_line(line, ENTERS[kind])
            row = (entry.id, entry.stream, entry.state, entry.stop, entry.fingerprint)
            self.odometer.add(entry)
            self.db.execute("INSERT INTO release VALUES (?, ?, ?, ?, ?)", row)
            return entry
        if kind in ENDS:
            return self._end(line["of"], ENDS[kind], line.get("stop"), entry or self.reserved(line["of"]))
        if kind == "limit":
            named = budget(epsilon=line.get("epsilon"), delta=line.get("delta"))
            # Amounts that a line does not name stay unchanged; null is "no limit".
            amounts = [amount if name in line else None for name, amount in named._asdict().items()]
            self.db.execute(
                "INSERT INTO limits VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "epsilon = coalesce(excluded.epsilon, epsilon), delta = coalesce(excluded.delta, delta)",
                (line["stream"] or "", line["per"] or "", *amounts),
            )
            return None
        raise ValueError(f"a line of kind {kind!r}")

    def _end(self, number: int, state: str, stop: object, before: Entry | None) -> Entry:
        if before is None:
            raise ValueError(f"it ends entry {number}, which is {self.state(number)}")
        ended = replace(before, state=state, stop=ending(before, stop))
        self.db.execute("UPDATE release SET state = ?, stop = ? WHERE id = ?", (state, ended.stop, number))
        if (ended.counts, ended.stop) != (before.counts, before.stop):
            self.odometer.add(before, -1)
            self.odometer.add(ended)
        return ended

    def state(self, number: int) -> str:
        row = self.db.execute("SELECT state FROM release WHERE id = ?", (number,)).fetchone()
        return str(row[0]) if row else "not there"

    def reserved(self, number: int) -> Entry | None:
        entries = self._entries("id = ? AND state = 'reserved'", number)
        return entries[0] if entries else None

    def entries(self, stream: str | None) -> list[Entry]:
        return self._entries("1") if stream is None else self._entries("stream = ?", stream)

    def _entries(self, which: str, *values: object) -> list[Entry]:
        asked = f"SELECT id, body, state, stop FROM release JOIN line USING (id) WHERE {which} ORDER BY id"
        return [_read(*row) for row in self.db.execute(asked, values).fetchall()]

    def noise(self, fingerprint: str) -> tuple[int, str] | None:
        """Number and stream of a release with this noise, or None; a fleet's ends with a star."""
        machine, _, stream = fingerprint.partition(":")
        # A search of the index: GLOB would be compiled again for each pattern.
        which = "BETWEEN ? || ':' AND ? || ';'" if stream == "*" else "IN (?, ? || ':*')"
        asked = f"SELECT id, stream FROM release WHERE fingerprint {which} AND state <> 'cancelled'"
        row = self.db.execute(asked, (machine if stream == "*" else fingerprint, machine)).fetchone()
        return row and (int(row[0]), str(row[1]))

    def streams(self) -> list[str]:
        rows = self.db.execute("SELECT DISTINCT stream FROM account").fetchall()
        return sorted(stream for (stream,) in rows)

    def limit(self, stream: str | None, per: str | None = None) -> Budget:
        """Limit of a stream: its own amounts, else the general ones."""
        asked = "SELECT stream, epsilon, delta FROM limits WHERE stream IN (?, '') AND per = ?"
        rows = self.db.execute(asked, (stream or "", per or "")).fetchall()
        by_stream = {name: amounts for name, *amounts in rows}
        said = [by_stream[name] for name in (stream or "", "") if name in by_stream]
        return Budget(*(next((pair[i] for pair in said if pair[i] is not None), math.inf) for i in range(2)))

    def limits(self, per: str | None = None) -> dict[str | None, Budget]:
        named = self.db.execute("SELECT stream FROM limits WHERE per = ?", (per or "",)).fetchall()
        return {name or None: self.limit(name, per) for (name,) in named}

    def lengths(self) -> list[str]:
        rows = self.db.execute("SELECT DISTINCT per FROM limits WHERE per <> '' ORDER BY per").fetchall()
        return [per for (per,) in rows]


def now() -> str:
    """UTC time in whole seconds, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _read(number: int, body: str, state: str, stop: int | None) -> Entry:
    try:
        return Entry.from_line({**json.loads(body), "stop": stop}, state)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise StateError(f"the ledger is damaged at line {number}: {error}; Ledger.verify looks for more") from error


def ending(reserved: Entry, stop: object) -> int | None:
    """End of a finished release: `stop`, or the reserved end for None."""
    if stop is None:
        return reserved.stop
    if reserved.start is None:
        raise refusal("stop", stop, "None, because the reservation has no start")
    return validation.integer("stop", stop, reserved.start + 1, reserved.stop)


def budget(**named: float | None) -> Budget:
    """Limit of epsilon and delta; None is no limit."""
    amounts = []
    for name, value in named.items():
        amount = math.inf if value is None else validation.real(name, value)
        if amount < 0.0:
            raise refusal(name, value, "at least 0, or None for no limit")
        amounts.append(amount)
    return Budget(*amounts)


# Seals, checked line by line.


def sealed(before: bytes, text: bytes, mac: Mac) -> bytes:
    """Seal of a line after the seal `before`."""
    return mac(before + text[:-1])


def sealing(key: Key | None, name: str) -> Mac:
    """Function that seals lines: SHA-256, or HMAC-SHA-256 under this ledger's key."""
    if key is None:
        return lambda message: hashlib.sha256(message).digest()
    secret = key.derive("ledger", name).reveal()
    return lambda message: hmac.digest(secret, message, "sha256")


def replayed(rows: Iterable[Row], key: Key | None, name: str) -> sqlite3.Connection:
    """Rebuild a ledger from its lines; StateError names a changed line."""
    db = sqlite3.connect("", isolation_level=None)
    db.executescript(f"PRAGMA application_id = {APPLICATION};{SCHEMA}BEGIN;")
    state: LedgerState | None = None
    before = START
    for expected, (number, text, seal) in enumerate(rows):
        if state is None:
            state = LedgerState(db, header((number, text, seal), key, name))
        line, where = _parsed(text, name, expected), f"{name} is damaged at line {expected}"
        if not hmac.compare_digest(sealed(before, text, state.mac), seal):
            reason = "its lines were altered, reordered or cut out" + (", or the key is wrong" if key else "")
            raise StateError(f"{where}: {reason} (the seal does not match)")
        if not number == line.get("id") == expected:
            raise StateError(f"{where}: it says to be line {line.get('id')!r}")
        try:
            state.insert(number, text.decode(), seal)
            if number:
                state.take(line)
        except (ArithmeticError, LookupError, TypeError, ValueError, sqlite3.Error) as error:
            raise StateError(f"{where}: {error}") from error
        before = seal
    if state is None:
        raise StateError(f"{name} is no fastdp ledger, or was cut short")
    db.execute("COMMIT")
    return db


def header(row: Row, key: Key | None, name: str) -> Mac:
    """Sealing function of a ledger with this first line; else StateError."""
    _, text, seal = row
    said = _parsed(text, name, 0)
    if said.get("fastdp_ledger") != FORMAT:
        version = validation.shown(said.get("fastdp_ledger"))
        raise StateError(f"{name} has lines of format {version}: this fastdp reads format {FORMAT}")
    if said.get("seal") != ("sha256" if key is None else "hmac-sha256"):
        kind = "None: it was made without a key" if key is not None else "the key it was made with"
        raise StateError(f"{name}: expected key = {kind}")
    mac = sealing(key, str(said.get("name")))
    if not hmac.compare_digest(sealed(START, text, mac), seal):
        reason = "it was altered" + (", or the key is wrong" if key else "")
        raise StateError(f"{name} is damaged at line 0: {reason} (the seal does not match)")
    return mac


def _parsed(text: bytes, name: str, number: int) -> Json:
    try:
        line = json.loads(text.decode())
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        fault = "is no fastdp ledger, or was cut short" if number == 0 else f"is damaged at line {number}: no entry"
        raise StateError(f"{name} {fault}")
    return line
