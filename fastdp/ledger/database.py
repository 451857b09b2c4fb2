"""Databases of sealed lines: checked line by line, and made new."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from fastdp import validation
from fastdp.data.durable import sync_folder
from fastdp.errors import StateError
from fastdp.ledger.state import SCHEMA, LedgerState, Line, Mac, sealed
from fastdp.noise.key import Key

FORMAT = 1
START = bytes(32)
#: "fdpL" marks the file as a ledger.
APPLICATION = 0x6664704C
#: Number, text and seal of a line.
Row = tuple[int, bytes, bytes]


def replayed(rows: Iterable[Row], key: Key | None, name: str) -> sqlite3.Connection:
    """A new database of these lines, in a temporary file, and of what follows from them.

    Raises
    ------
    StateError
        If lines were altered, reordered or cut out, or say what makes no sense; it names the line.
    """
    db = sqlite3.connect("", isolation_level=None)
    db.executescript(f"PRAGMA application_id = {APPLICATION};{SCHEMA}BEGIN;")
    state: LedgerState | None = None
    before = START
    for expected, (number, text, seal) in enumerate(rows):
        if state is None:
            state = LedgerState(db, header((number, text, seal), key, name))
        line = _parsed(text, name, expected)
        if not hmac.compare_digest(sealed(before, text, state.mac), seal):
            reason = "its lines were altered, reordered or cut out" + (", or the key is wrong" if key else "")
            raise StateError(f"{name} is damaged at line {expected}: {reason} (the seal does not match)")
        if not number == line.get("id") == expected:
            raise StateError(f"{name} is damaged at line {expected}: it says to be line {line.get('id')!r}")
        try:
            state.insert(number, text.decode(), seal)
            if number:
                state.take(line)
        except (ArithmeticError, LookupError, TypeError, ValueError, sqlite3.Error) as error:
            raise StateError(f"{name} is damaged at line {expected}: {error}") from error
        before = seal
    if state is None:
        raise StateError(f"{name} is no fastdp ledger, or was cut short")
    db.execute("COMMIT")
    return db


def header(row: Row, key: Key | None, name: str) -> Mac:
    """What seals the lines that follow this first one; StateError if it is none, or the key is another one."""
    _, text, seal = row
    said = _parsed(text, name, 0)
    if said.get("fastdp_ledger") != FORMAT:
        found = validation.shown(said.get("fastdp_ledger"))
        raise StateError(f"{name} has lines of format {found}: this fastdp reads format {FORMAT}")
    if said.get("seal") != ("sha256" if key is None else "hmac-sha256"):
        kind = "None: it was made without a key" if key is not None else "the key it was made with"
        raise StateError(f"{name}: expected key = {kind}")
    mac = sealing(key, str(said.get("name")))
    if not hmac.compare_digest(sealed(START, text, mac), seal):
        reason = "it was altered" + (", or the key is wrong" if key else "")
        raise StateError(f"{name} is damaged at line 0: {reason} (the seal does not match)")
    return mac


def sealing(key: Key | None, name: str) -> Mac:
    """SHA-256, or HMAC-SHA-256 with a key of the ledger's own."""
    if key is None:
        return lambda message: hashlib.sha256(message).digest()
    secret = key.derive("ledger", name).reveal()
    return lambda message: hmac.digest(secret, message, "sha256")


def _parsed(text: bytes, name: str, number: int) -> Line:
    try:
        line = json.loads(text.decode())
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        what = "is no fastdp ledger, or was cut short" if number == 0 else f"is damaged at line {number}: no entry"
        raise StateError(f"{name} {what}")
    return line


def make_ledger(path: Path, key: Key | None) -> None:
    """Make a ledger without entries, owner-only, unless there is one."""
    name = secrets.token_hex(16)
    header = {
        "id": 0,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "fastdp_ledger": FORMAT,
        "name": name,
        "seal": "sha256" if key is None else "hmac-sha256",
    }
    text = json.dumps(header).encode()
    made = replayed([(0, text, sealed(START, text, sealing(key, name)))], key, str(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(made.serialize())
            file.flush()
            os.fsync(file.fileno())
        # Never over a ledger that another process made meanwhile; and there never is an empty one.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
