"""The ledger's file: an SQLite database of sealed lines, and one transaction for each call.

A line is a JSON object.  Its seal is SHA-256 (HMAC-SHA-256 with a key) of the seal before it and of its own text; the
first line follows 32 zero bytes.  The journal is a rollback journal, so that the file alone holds every line between
two calls (``docs/adr/0013-ledger-rollback-journal.md``).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
import stat
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from urllib.parse import quote

from fastdp import validation
from fastdp.data.durable import sync_folder
from fastdp.errors import StateError
from fastdp.ledger.state import DERIVED, SCHEMA, LedgerState, Line, Mac, sealed
from fastdp.noise.key import Key

# Databases of sealed lines: checked line by line, and made new.

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


LOCK_SECONDS = 30.0
_ROWS = "SELECT id, coalesce(CAST(body AS BLOB), x''), coalesce(CAST(seal AS BLOB), x'') FROM line"
_REPAIR = "restore a backup, and record what was released since"

#: Held during every call.  A fork waits for it and closes all files, because SQLite's locks do not pass to a child.
_LOCK = threading.RLock()
_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _close(db: sqlite3.Connection) -> None:
    """Close a file, of an object that is collected in any thread too, while no fork can happen."""
    with _LOCK:
        db.close()


def _before_fork() -> None:
    _LOCK.acquire()
    for store in list(_stores):
        store.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@dataclass(frozen=True)
class Verification:
    """What :meth:`Ledger.verify` found.

    Attributes
    ----------
    lines : int
        Lines with the right seal.
    head : str
        The last one's seal: keep it elsewhere, and a ledger that lost its last lines no longer has it.
    reserved : list of int
        Reservations that were never ended; they count as spent.
    """

    lines: int
    head: str
    reserved: list[int]


class Store:
    """The file of one ledger.

    Parameters
    ----------
    path : Path
        Its name, without links.
    key : Key or None
        Seals the lines.
    create : bool
        Whether a missing file is made.
    """

    _db: sqlite3.Connection | None = None
    _opened_file: tuple[int, int]

    def __init__(self, path: Path, key: Key | None, *, create: bool) -> None:
        self._path, self._key = path, key
        self.name = f"ledger {str(path)!r}"
        #: Number and seal of the last line that this object has seen.
        self._seen: tuple[int, bytes] | None = None
        _stores.add(self)
        if create and not path.exists():
            with self._readable_errors("created"):
                make_ledger(path, key)
        try:
            with self.transaction(write=False):
                pass
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; the next call opens it again.  A transaction that is under way is undone."""
        with _LOCK:
            if self._db is not None:
                self._db = None
                self._close()

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[LedgerState]:
        """The ledger's tables; what the block writes is on disk when it ends, or undone if it raises.

        Raises
        ------
        StateError
            If the file is missing, readable by others, no ledger, damaged, locked for long, or cannot be written.
        """
        with _LOCK, self._readable_errors("opened"):
            db = self._opened()
            try:
                db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                state = LedgerState(db, self._mac)
                if state.is_torn():
                    raise StateError(
                        f"{self.name} is damaged: its last line is not the one that its first page names (a copy "
                        f"made during a call, or without its -journal); {_REPAIR}"
                    )
                if self._seen is not None and not state.has(*self._seen):
                    raise StateError(
                        f"{self.name} lacks lines that this object has seen: expected the same file, grown (was an "
                        "older copy put back?)"
                    )
                yield state
                seen = state.last()
                db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    db.rollback()
                raise
            if self._identity() != self._opened_file:
                raise StateError(f"{self.name} was replaced by another file during the call: do not release")
            self._seen = seen

    def verify(self, head: str | None) -> Verification:
        """Check every line, every seal and every total; see :meth:`Ledger.verify`."""
        found: list[int] = []
        # A copy is checked: a ledger of a million lines takes half a minute, in which no process could write.
        with contextlib.closing(sqlite3.connect("")) as db, self._readable_errors("read"):
            with self.transaction(write=False) as held:
                held.copy_to(db)
            state = LedgerState(db, self._mac)
            if db.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                raise StateError(f"{self.name} is damaged: {_REPAIR}")
            rows = db.execute(f"{_ROWS} ORDER BY id")
            copy = replayed(_noting(rows, found, head), self._key, self.name)
            for table in ("sqlite_schema", *DERIVED):
                columns = "type, name, sql" if table == "sqlite_schema" else "*"
                pairs = zip_longest(*(each.execute(f"SELECT {columns} FROM {table}") for each in (db, copy)))
                if any(one != two for one, two in pairs):
                    raise StateError(f"{self.name} is damaged: its table {table!r} does not follow from its lines")
            copy.close()
            if head is not None and not found:
                raise StateError(
                    f"{self.name}: no line has the seal {head}; expected the ledger that had it, grown (its last "
                    "lines are missing, or it is another one)"
                )
            number, seal = state.last()
            return Verification(number + 1, seal.hex(), state.all_reserved())

    def _opened(self) -> sqlite3.Connection:
        """The open database: the one that has the name now, with no transaction."""
        identity = self._identity()
        # A transaction is one that an interrupt left behind, or that a signal handler's call interrupts.
        if self._db is not None and (identity != self._opened_file or self._db.in_transaction):
            self.close()
        if self._db is None:
            db = self._connected()
            try:
                self._mac = self._checked(db)
            except BaseException:
                db.close()
                raise
            self._opened_file, self._db = identity, db
            self._close = weakref.finalize(self, _close, db)
        return self._db

    def _identity(self) -> tuple[int, int]:
        """Device and number of the file that has the name."""
        found = self._path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise StateError(f"{self.name}: expected a file")
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise StateError(
                f"{self.name}: group or others have access (mode {stat.S_IMODE(found.st_mode):04o}); expected an "
                "owner-only file (chmod 600)"
            )
        return found.st_dev, found.st_ino

    def _connected(self) -> sqlite3.Connection:
        # Never opened in another way: closing any descriptor of the file would drop SQLite's locks on it.
        return sqlite3.connect(
            f"file:{quote(os.fsencode(self._path))}?mode=rw",
            uri=True,
            timeout=LOCK_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )

    def _checked(self, db: sqlite3.Connection) -> Mac:
        """What seals the lines, if the file is a ledger and the key is its own."""
        # EXTRA: the folder too is synced once the journal is gone, or it could come back and undo the call.
        db.execute("PRAGMA synchronous = EXTRA")
        if db.execute("PRAGMA application_id").fetchone() != (APPLICATION,):
            raise StateError(f"{self.name} is no fastdp ledger, or was cut short")
        if db.execute("PRAGMA journal_mode").fetchone() != ("delete",):
            raise StateError(
                f"{self.name}: expected a rollback journal (sqlite3 FILE 'PRAGMA journal_mode = DELETE')"
            )
        row = db.execute(f"{_ROWS} WHERE id = 0").fetchone()
        return header(row or (0, b"", b""), self._key, self.name)

    @contextmanager
    def _readable_errors(self, done: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateError(f"{self.name} could not be {done}: {error.strerror or error}") from error
        # Python decodes SQLite's own messages, which quote damaged names.
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise StateError(f"{self.name}: {_reason(error)}. Nothing was recorded") from error


def _reason(error: sqlite3.Error | UnicodeDecodeError) -> str:
    # The low byte is the kind of error.
    unreadable = isinstance(error, UnicodeDecodeError)
    code = sqlite3.SQLITE_CORRUPT if unreadable else getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_BUSY:
        return f"it stayed locked by another process for {LOCK_SECONDS:g} seconds"
    if code == sqlite3.SQLITE_NOTADB:
        return "it is no fastdp ledger, or was cut short"
    if code == sqlite3.SQLITE_CORRUPT:
        return f"it is damaged ({error}); {_REPAIR}"
    return f"it could not be read or written ({error})"


def _noting(rows: Iterable[Row], found: list[int], head: str | None) -> Iterator[Row]:
    """The same rows; the numbers of those whose seal begins with ``head`` are noted."""
    for number, text, seal in rows:
        if head is not None and seal.hex().startswith(head):
            found.append(number)
        yield number, text, seal
