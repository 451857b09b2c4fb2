"""The ledger's file: one transaction a call, and a mark that detects a copy without its newest lines.

The mark (``docs/adr/0018-ledger-mark.md``) is the last line's number n, or -1 - n while lines may be in the -wal.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from urllib.parse import quote

from fastdp.errors import StateError
from fastdp.ledger.odometer import REPAIR, Mac
from fastdp.ledger.store import (
    APPLICATION,
    DERIVED,
    FORMAT,
    ROWS,
    START,
    LedgerState,
    header,
    in_wal,
    now,
    replayed,
    sealed,
    sealing,
    set_mark,
)
from fastdp.noise.key import Key
from fastdp.state.atomic_files import atomic_file, sync_folder

#: Python decodes SQLite's own messages, which quote damaged names.
_ERRORS = (sqlite3.Error, UnicodeDecodeError)
LOCK_SECONDS = 30.0
#: How long the end of a connection waits for others that are ending.
END_SECONDS = 0.1
_LOCKED = f"it stayed locked by another process for {LOCK_SECONDS:g} seconds"
_PAUSE = 0.005
#: Writes of a connection in the rollback journal, five syncs each: a command's release leaves one file at any time.
FIRST_WRITES = 2
#: Bytes of a -wal file's header, of a frame (24 and a page) and of the mark in a frame with the first page.
_WAL_HEADER, _FRAME, _MARK = 32, 24 + 4096, slice(24 + 60, 24 + 64)


def _uri(path: Path, options: str) -> str:
    # Never opened in another way: closing any descriptor of the file would drop SQLite's locks on it.
    return f"file:{quote(os.fsencode(path))}?{options}"


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _inode(path: Path) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_ino
    return None


def _lines_of(wal: Path) -> list[int]:
    """Numbers of the last line at each transaction in a -wal file."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError), wal.open("rb") as file:
        # Frames of one writing have the header's salts, or the first frame's if a kill left that of a next writing.
        salts = {file.read(_WAL_HEADER)[16:24]}
        while len(frame := file.read(_FRAME)) == _FRAME and (frame[8:16] in salts or not found):
            salts.add(frame[8:16])
            # Each transaction begins with the first page.
            if int.from_bytes(frame[:4]) == 1:
                found.append(_number(int.from_bytes(frame[_MARK], signed=True)))
            elif not found:
                break
    return found


def _number(mark: int) -> int:
    return mark if mark >= 0 else -1 - mark


def _mark(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _mark_of(path: Path) -> int:
    # During a checkpoint it can be shorter than it says.
    with contextlib.closing(sqlite3.connect(_uri(path, "mode=ro&immutable=1"), uri=True)) as alone:
        alone.execute("PRAGMA writable_schema = ON")
        return _mark(alone)


class Connection(sqlite3.Connection):
    """An open ledger; only :class:`Ending` removes the -wal."""

    def __init__(self, path: Path) -> None:
        uri = _uri(path, "mode=rw")
        super().__init__(uri, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
        self.path, self.wal, self.writes, self.is_open = path, _wal(path), 0, True
        #: Whether the main file is known to be marked; it stays so while this is open, because `Ending` is alone.
        self.marked = False

    def begin(self, *, write: bool, synced: bool) -> None:
        """Begin a transaction, on disk after its commit if `synced`."""
        if not write:
            self.execute("BEGIN")
            return
        # EXTRA: the folder too is synced once a rollback journal is gone, or it could come back and undo the call.
        self.execute(f"PRAGMA synchronous = {'EXTRA' if synced or not self.marked else 'NORMAL'}")
        self.execute("BEGIN IMMEDIATE")
        if not self.marked and (in_wal(self) or self.writes >= FIRST_WRITES):
            self.execute("ROLLBACK")
            self._set_mark()
            self.execute("BEGIN IMMEDIATE")
        self.writes += 1

    def _set_mark(self) -> None:
        # The -wal is on disk before the mark, and the mark before the first line.
        if self.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            # A disk without shared memory keeps the rollback journal.
            return
        self.execute("BEGIN IMMEDIATE")
        set_mark(self, _number(_mark(self)), is_open=True)
        self.execute("COMMIT")
        # SQLite waits for readers, and not for another's checkpoint.
        until = time.monotonic() + LOCK_SECONDS
        while self.execute("PRAGMA wal_checkpoint(FULL)").fetchone()[0]:
            if time.monotonic() > until:
                raise StateError(f"ledger {str(self.path)!r}: {_LOCKED}. Nothing was recorded")
            time.sleep(_PAUSE)
        self._wal, self.marked = _inode(self.wal), True

    def has_wal(self) -> bool:
        """False if another process removed the -wal."""
        return not self.marked or _inode(self.wal) == self._wal

    def close(self) -> None:
        """Close without SQLite's checkpoint, which would leave the mark."""
        self.is_open = False
        with contextlib.suppress(*_ERRORS):
            if in_wal(self):
                # The lock of another connection, which cannot write, stands in the way of that checkpoint.
                uri = _uri(self.path, "mode=ro")
                with contextlib.closing(sqlite3.connect(uri, timeout=END_SECONDS, uri=True)) as other:
                    other.execute("BEGIN")
                    _mark(other)
                    super().close()
        super().close()

    def __del__(self) -> None:
        with contextlib.suppress(*_ERRORS):
            self.close()


class Ending(sqlite3.Connection):
    """The only connection to a ledger; its closing moves all lines to the main file."""

    def __init__(self, path: Path) -> None:
        super().__init__(_uri(path, "mode=rw"), timeout=END_SECONDS, isolation_level=None, uri=True)
        self.path = path

    def close(self) -> None:
        wal, kept = _wal(self.path), _wal(self.path).with_name(f"{self.path.name}-wal-{secrets.token_hex(8)}")
        with contextlib.suppress(OSError, *_ERRORS):
            self.execute("PRAGMA locking_mode = EXCLUSIVE")
            number = _number(_mark(self))
            if in_wal(self) and is_newest(self, self.path, number):
                # The mark goes last, so that a copy made meanwhile is refused; one call, which no signal interrupts.
                try:
                    self.executescript(
                        f"PRAGMA wal_checkpoint; PRAGMA user_version = {number}; PRAGMA journal_mode = DELETE;"
                    )
                except sqlite3.Error:
                    # A disk's error: SQLite would remove the -wal, and the mark stays.
                    os.link(wal, kept)
                    raise
                self.path.with_name(f"{self.path.name}-shm").unlink(missing_ok=True)
        super().close()
        if kept.exists():
            if not wal.exists() and _mark_of(self.path) < 0:
                os.link(kept, wal)
            kept.unlink()

    def __del__(self) -> None:
        with contextlib.suppress(*_ERRORS):
            self.close()


def can_end(path: Path) -> bool:
    """True if a complete ledger's lines can be moved from the -wal without loss."""
    with contextlib.closing(sqlite3.connect(_uri(path, "mode=ro"), timeout=END_SECONDS, uri=True)) as db:
        db.execute("BEGIN")
        if db.execute("PRAGMA application_id").fetchone() != (APPLICATION,) or not in_wal(db):
            return False
        number = _number(_mark(db))
        whole = db.execute("SELECT max(id) FROM line").fetchone() == (number,) and is_newest(db, path, number)
        # Lines that cannot be read stay for `Store.verify` to find; the last may be of a process that was killed.
        return whole and number >= max(_lines_of(_wal(path)), default=0) - 1


def is_newest(db: sqlite3.Connection, path: Path, number: int) -> bool:
    """True if line `number`, the last in a transaction, is the file's: not if a marked file lacks its -wal."""
    mark = _mark_of(path)
    if mark >= 0:
        return mark == number
    lines = _lines_of(_wal(path))
    # All lines before the -wal's first must be in the main file, and no later ones than the -wal's.
    return bool(lines) and lines[0] - 1 <= _number(mark) <= number


def make_ledger(path: Path, key: Key | None) -> None:
    """Create an empty, owner-only ledger unless one exists."""
    name, seal = secrets.token_hex(16), "sha256" if key is None else "hmac-sha256"
    text = json.dumps({"id": 0, "time": now(), "fastdp_ledger": FORMAT, "name": name, "seal": seal}).encode()
    lines = [(0, text, sealed(START, text, sealing(key, name)))]
    # Never over a ledger that another process made meanwhile; and there never is an empty one.
    with (
        contextlib.closing(replayed(lines, key, str(path))) as made,
        contextlib.suppress(FileExistsError),
        atomic_file(path, overwrite=False, alone=True) as file,
    ):
        file.write(made.serialize())
    sync_folder(path.parent)


# Objects of a process.

#: Held during every call.  A fork waits for it and closes all files, because SQLite's locks do not pass to a child.
_LOCK = threading.RLock()
_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _close(db: Connection) -> None:
    with _LOCK:
        db.close()
        _end(db.path)


def _end(path: Path) -> None:
    """Move all lines to the main file, unless it is open elsewhere."""
    with _LOCK, contextlib.suppress(OSError, *_ERRORS):
        # Another object of this process ends it; at the end of the program a finalizer closed it.
        opened = [store.db for store in list(_stores) if store.db is not None]
        if not any(db.is_open and db.path == path for db in opened) and can_end(path):
            Ending(path).close()


def _before_fork() -> None:
    _LOCK.acquire()
    for store in list(_stores):
        store.drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@dataclass(frozen=True)
class Verification:
    """Result of :meth:`Ledger.verify`."""

    #: Lines with the right seal.
    lines: int
    #: Last seal: keep it elsewhere to detect missing last lines.
    head: str
    #: Reservations never ended, which count as spent.
    reserved: list[int]


class Store:
    """A ledger's file with the key of its seals."""

    db: Connection | None = None
    _opened_file: tuple[int, int]

    def __init__(self, path: Path, key: Key | None, *, create: bool) -> None:
        self._path, self._key = path, key
        self.name = f"ledger {str(path)!r}"
        #: Number and seal of the last line that this object has seen.
        self._seen: tuple[int, bytes] | None = None
        #: Closes what is open and ends the -wal: by `close`, with this object, or with the program.
        self._ending: weakref.finalize[..., Store] | None = None
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
        with _LOCK:
            self.drop()
            if self._ending is not None:
                self._ending()

    def drop(self) -> None:
        if self.db is not None:
            self.db.close()
            self.db = None
            self._end_by(_end, self._path)

    def _end_by(self, call: Callable[..., None], *arguments: object) -> None:
        if self._ending is not None:
            self._ending.detach()
        self._ending = weakref.finalize(self, call, *arguments)

    @contextmanager
    def transaction(self, *, write: bool, synced: bool = True) -> Iterator[LedgerState]:
        """Yield the tables; changes are on disk at the end, or undone by an error.

        StateError if the file is missing, readable by others, no ledger, damaged, locked or not writable.
        """
        with _LOCK, self._readable_errors("opened"):
            db = self._opened()
            try:
                db.begin(write=write, synced=synced)
                state = LedgerState(db, self._mac, is_open=db.marked)
                if _number(_mark(db)) != state.last[0]:
                    raise StateError(
                        f"{self.name} is damaged: its last line is not the one that its first page names (a copy "
                        f"made during a call, or without its -journal); {REPAIR}"
                    )
                seen = "SELECT 1 FROM line WHERE id = ? AND seal = ?"
                if self._seen is not None and not db.execute(seen, self._seen).fetchone():
                    raise StateError(
                        f"{self.name} lacks lines that this object has seen: expected the same file, grown (was an "
                        "older copy put back?)"
                    )
                yield state
                db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(*_ERRORS):
                    db.rollback()
                raise
            if self._identity() != self._opened_file or not db.has_wal():
                raise StateError(f"{self.name} was replaced by another file during the call: do not release")
            self._seen = state.last

    def verify(self, head: str | None) -> Verification:
        # A copy is checked: a ledger of a million lines takes half a minute, in which no process could write.
        with contextlib.closing(sqlite3.connect("")) as db, self._readable_errors("read"):
            written = max(_lines_of(_wal(self._path)), default=0)
            with self.transaction(write=False) as held:
                held.db.backup(db)
            state = LedgerState(db, self._mac)
            if db.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                raise StateError(f"{self.name} is damaged: {REPAIR}")
            with contextlib.closing(replayed(db.execute(f"{ROWS} ORDER BY id"), self._key, self.name)) as copy:
                for table in ("sqlite_schema", *DERIVED):
                    columns = "type, name, sql" if table == "sqlite_schema" else "*"
                    pairs = zip_longest(*(source.execute(f"SELECT {columns} FROM {table}") for source in (db, copy)))
                    if any(one != two for one, two in pairs):
                        raise StateError(
                            f"{self.name} is damaged: its table {table!r} does not follow from its lines"
                        )
            begins = "SELECT 1 FROM line WHERE substr(lower(hex(seal)), 1, length(?)) = ?"
            if head is not None and not db.execute(begins, (head, head)).fetchone():
                raise StateError(
                    f"{self.name}: no line has the seal {head}; expected the ledger that had it, grown (its last "
                    "lines are missing, or it is another one)"
                )
            number, seal = state.last
            # The last one may be of a process that was killed.
            if number < written - 1:
                raise StateError(
                    f"{self.name} is damaged: lines from {number + 1} on in {_wal(self._path).name} cannot be read "
                    f"(after a power cut, when a release had just ended: until the next call); {REPAIR}"
                )
            reserved = db.execute("SELECT id FROM release WHERE state = 'reserved' ORDER BY id").fetchall()
            return Verification(number + 1, seal.hex(), [number for (number,) in reserved])

    def _opened(self) -> Connection:
        identity = self._identity()
        # A transaction is one that an interrupt left behind, or that a signal handler's call interrupts.
        opened = self.db
        if opened and (identity != self._opened_file or opened.in_transaction or not opened.has_wal()):
            self.drop()
        if self.db is None:
            db = Connection(self._path)
            try:
                self._mac = self._checked(db)
            except BaseException:
                db.close()
                raise
            self._opened_file, self.db = identity, db
            self._end_by(_close, db)
        return self.db

    def _identity(self) -> tuple[int, int]:
        status = self._path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise StateError(f"{self.name}: expected a file")
        if os.name == "posix" and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise StateError(
                f"{self.name}: group or others have access (mode {stat.S_IMODE(status.st_mode):04o}); expected an "
                "owner-only file (chmod 600)"
            )
        return status.st_dev, status.st_ino

    def _checked(self, db: Connection) -> Mac:
        db.execute("BEGIN")
        if db.execute("PRAGMA application_id").fetchone() != (APPLICATION,):
            raise StateError(f"{self.name} is no fastdp ledger, or was cut short")
        row = db.execute(f"{ROWS} WHERE id = 0").fetchone()
        mac = header(row or (0, b"", b""), self._key, self.name)
        if not is_newest(db, self._path, _number(_mark(db))):
            raise StateError(
                f"{self.name} is not complete: its newest lines are in {_wal(self._path).name}, which is missing, or "
                f"from another time. Expected both files of one time, or a copy made after Ledger.close(); {REPAIR}"
            )
        db.execute("COMMIT")
        return mac

    @contextmanager
    def _readable_errors(self, done: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateError(f"{self.name} could not be {done}: {error.strerror or error}") from error
        except _ERRORS as error:
            raise StateError(f"{self.name}: {_reason(error)}. Nothing was recorded") from error


def _reason(error: sqlite3.Error | UnicodeDecodeError) -> str:
    # The low byte is the kind of error.
    unreadable = isinstance(error, UnicodeDecodeError)
    code = sqlite3.SQLITE_CORRUPT if unreadable else getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_BUSY:
        return _LOCKED
    if code == sqlite3.SQLITE_NOTADB:
        return "it is no fastdp ledger, or was cut short"
    if code == sqlite3.SQLITE_CORRUPT:
        return f"it is damaged ({error}); {REPAIR}"
    return f"it could not be read or written ({error})"
