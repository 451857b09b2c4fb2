"""Databases of sealed lines: checked line by line, made new, and brought over from the first format."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fastdp import validation
from fastdp.errors import StateError
from fastdp.files.durable import sync_folder
from fastdp.ledger.state import SCHEMA, LedgerState, Line, Mac, sealed
from fastdp.randomness.key import Key

FORMAT = 1
START = bytes(32)
#: "fdpL" marks the file as a ledger.
APPLICATION, VERSION = 0x6664704C, 3
#: How a line of the first format ends.
_SEAL = b', "chain": "'
_SEALED = len(_SEAL) + 64 + len(b'"}')
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
    db.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};{SCHEMA}BEGIN;")
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
    # Never over a ledger that another process made meanwhile; and there never is an empty one.
    with _beside(path, made) as whole, contextlib.suppress(FileExistsError):
        os.link(whole, path)


@contextmanager
def _beside(path: Path, db: sqlite3.Connection) -> Iterator[Path]:
    """The database as a synced file for its owner beside ``path``, which the block links or renames."""
    raw = bytearray(db.serialize())
    # Read and write version in the header (https://sqlite.org/fileformat.html): WAL mode from the first call on.
    raw[18:20] = b"\2\2"
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def import_lines(path: Path, identity: tuple[int, int], key: Key | None, name: str) -> None:
    """Replace a ledger of the first format, checked, by a database of the same lines; its heads stay valid."""
    import fcntl

    with path.open("rb") as file:
        # Of two processes the second waits, and then finds that the name belongs to the database.
        fcntl.flock(file, fcntl.LOCK_EX)
        if any((found.st_dev, found.st_ino) != identity for found in (os.fstat(file.fileno()), path.stat())):
            return
        rows = file.read().split(b"\n")
        if not rows[0].startswith(b'{"id": 0, '):
            raise StateError(f"{name} is no fastdp ledger, or was cut short")
        # A whole last line counts without its line end.
        last = b"" if _old_seal(rows[-1]) else rows.pop()
        if last:
            raise StateError(
                f"{name} is of the first format and ends in a line that was cut off ({len(last)} bytes). If a crash "
                "did this, nothing was released under that line: delete it, and open the ledger again. Otherwise "
                "find out what was released, and record that afterwards"
            )
        lines = ((number, row[:-_SEALED] + b"}", _old_seal(row)) for number, row in enumerate(rows))
        with _beside(path, replayed(lines, key, name)) as whole:
            whole.replace(path)


def _old_seal(row: bytes) -> bytes:
    """The seal at the end of a line of the first format; none if it has another form."""
    ending = row[-_SEALED:]
    try:
        return bytes.fromhex(ending[len(_SEAL) : -2].decode()) if ending.startswith(_SEAL) else b""
    except ValueError:
        return b""
