"""A ledger's file while it is locked: what is read of it, and the line that is added, synced.

Nobody can tell from a file why its last line is cut off, so nothing is appended behind one before somebody says so
(:meth:`Session.recover`).
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from fastdp.errors import StateError
from fastdp.files import durable
from fastdp.ledger import chain
from fastdp.ledger.chain import Line, Prefix
from fastdp.randomness.key import Key

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
#: Of a last line that was cut off, so much is kept in the line that takes its place.
KEPT = 4096
BLOCK, NONCE_BYTES, TOKEN_BYTES = 2**18, 8, 6


class Session:
    """A ledger's file while its lock is held: :meth:`read` comes first.

    Parameters
    ----------
    path : Path
        Its name.
    descriptor : int
        The open file, locked.
    key : Key or None
        What seals its lines.

    Attributes
    ----------
    name : str
        The file, for messages.
    count : int
        Whole lines.
    head : bytes
        The last one's seal.
    torn : bytes
        What is behind it: the beginning of another.
    prefix : Prefix or None
        What need not be checked again; None if the last line has no line end, which the next one will bring.
    """

    def __init__(self, path: Path, descriptor: int, key: Key | None) -> None:
        self._path, self._descriptor, self._key = path, descriptor, key
        self.name = repr(str(path))
        self.torn = b""
        self.prefix: Prefix | None = None
        self._before: Prefix | None = None
        self._seals: list[bytes] = []
        self._running = hashlib.sha256()

    def begins_with(self, known: Prefix) -> bool:
        """Whether the file begins as it did when that was checked, byte for byte; if so, it is not read again."""
        running = hashlib.sha256()
        with self._reading() as file:
            block = memoryview(bytearray(min(BLOCK, known.size)))
            rest = known.size
            while rest:
                count = file.readinto(block[: min(rest, len(block))])
                if not count:
                    return False
                running.update(block[:count])
                rest -= count
        if running.digest() != known.digest:
            return False
        self._before, self._running = known, running
        return True

    def read(self, take: Callable[[int, Line], None] = lambda number, line: None) -> None:
        """Check the lines, or those behind a beginning that is known.

        Parameters
        ----------
        take : function of a number and a line
            Gets each, once it is checked, but for line 0.

        Raises
        ------
        StateError
            If they are not as they were written; the message says which is wrong.
        """
        with self._reading() as file:
            file.seek(0 if self._before is None else self._before.size)
            raw = file.readall()
        found = chain.read(raw, self.name, self._key, self._before, take)
        self._mac, self._seals = found.mac, found.seals
        self._end, self._ended, self.torn = found.end, found.ended, found.torn
        if found.ended:
            self._running.update(memoryview(raw)[: len(raw) - len(found.torn)])
            self.prefix = Prefix(found.end, self._running.digest(), self.count, self.head, found.name)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[FileIO]:
        with _complaining(self._path, "read"), FileIO(self._descriptor, "rb", closefd=False) as file:
            yield file

    @property
    def count(self) -> int:  # noqa: D102 - an attribute
        return (0 if self._before is None else self._before.lines) + len(self._seals)

    @property
    def head(self) -> bytes:  # noqa: D102 - an attribute
        return self._seals[-1] if self._seals or self._before is None else self._before.head

    def holds(self, count: int, head: bytes) -> bool:
        """Whether there are so many lines, no fewer than were known, and the last of these has that seal."""
        known, last = (0, chain.START) if self._before is None else (self._before.lines, self._before.head)
        index = count - known
        return 0 <= index <= len(self._seals) and head == (self._seals[index - 1] if index else last)

    def has_seal(self, beginning: str) -> bool:
        """Whether a line that was read here has a seal that begins so, in hexadecimal digits."""
        return any(seal.hex().startswith(beginning) for seal in self._seals)

    def recover(self) -> None:
        """Put a line that tells of it in the place of a last line that was cut off; nothing where none was."""
        if self.torn:
            kept = self.torn[:KEPT].decode(errors="backslashreplace")
            self._write_line({"kind": "recover", "bytes": len(self.torn), "torn": kept})

    def append(self, body: Line) -> Line:
        """Write one line and make it last.

        Raises
        ------
        StateError
            If it cannot be written, or the last line is cut off; then it is not there.
        """
        if self.torn:
            raise StateError(
                f"ledger {self.name} ends in a line that was cut off ({len(self.torn)} bytes): if a crash did this, "
                "nothing was released under it, and otherwise a release may be missing; nothing is recorded before "
                "somebody has looked (Ledger(..., recover=True), or fastdp ledger recover)"
            )
        return self._write_line(body)

    def _write_line(self, body: Line) -> Line:
        line = {"id": self.count, "time": datetime.now(UTC).isoformat(timespec="seconds"), **body}
        # Lines that say the same are different ones: whoever has seen one tells it from its like in an older copy.
        line["nonce"] = secrets.token_hex(NONCE_BYTES)
        raw, seal = chain.sealed(line, self.head, self._mac)
        if not self._ended:
            raw = b"\n" + raw
        try:
            # Over what was cut off: until the line is there, something still tells that another one was not.
            self._write(raw)
            os.fsync(self._descriptor)
            if len(self.torn) > len(raw):
                os.ftruncate(self._descriptor, self._end + len(raw))
                os.fsync(self._descriptor)
            # Whoever takes the file's name away does not ask for its lock.
            if not _has_name(self._descriptor, self._path):
                raise StateError(f"ledger {self.name} was replaced by another file meanwhile: nothing was recorded")
        except BaseException as error:
            # Nobody acts on a line before it is synced: half of one, or an unsynced one, is taken back, and what was
            # in its place put there again.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._end + len(self.torn))
            with contextlib.suppress(OSError):
                self._write(self.torn)
                os.fsync(self._descriptor)
            if isinstance(error, OSError):
                raise StateError(f"ledger {self.name} could not be written: {error.strerror or error}") from error
            raise
        self._end, self._ended, self.torn = self._end + len(raw), True, b""
        self._seals.append(seal)
        return line

    def _write(self, raw: bytes) -> None:
        at = self._end
        while raw:
            count = os.pwrite(self._descriptor, raw, at)
            at, raw = at + count, raw[count:]


def create(path: Path, key: Key | None) -> None:
    """Make a ledger without entries, owner-only, unless there is one."""
    name = secrets.token_hex(16)
    header = {
        "id": 0,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "fastdp_ledger": chain.FORMAT,
        "name": name,
        "seal": "sha256" if key is None else "hmac-sha256",
    }
    raw, _ = chain.sealed(header, chain.START, chain.sealing(key, name))
    _demand_locks(path)
    with _complaining(path, "created"):
        hold = durable.Hold(os.open(path.parent, os.O_RDONLY))
        try:
            _lock(hold, f"the folder of ledger {str(path)!r}")
            _remove_leftovers(path)
            _put(raw, path)
        finally:
            hold.release()


def _put(raw: bytes, path: Path) -> None:
    """Make a file of that name, whole and synced, unless there is one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(TOKEN_BYTES)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        # Never over a ledger that somebody else made meanwhile; and there never is an empty one.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
        durable.sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _remove_leftovers(path: Path) -> None:
    """Whoever makes a ledger holds its folder's lock, so who left these was killed.

    One with entries is a ledger that was made and has lost its other name since: it stays.
    """
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 2 * TOKEN_BYTES}"):
        with contextlib.suppress(OSError):
            if leftover.read_bytes().count(b"\n") < 2:
                leftover.unlink()


def _demand_locks(path: Path) -> None:
    if not durable.has_locks():
        raise StateError(
            f"ledger {str(path)!r}: expected a system with file locks, without which a budget can be spent twice"
        )


def _lock(hold: durable.Hold, shown: str) -> None:
    if not durable.lock(hold.descriptor):
        raise StateError(f"{shown} stayed locked for {durable.LOCK_SECONDS:g} seconds")


@contextlib.contextmanager
def locked(path: Path, key: Key | None) -> Iterator[Session]:
    """The file of a ledger, locked until the block ends.

    Raises
    ------
    StateError
        If it is missing, readable by others or locked for long.
    """
    _demand_locks(path)
    hold = _locked(path, repr(str(path)))
    try:
        yield Session(path, hold.descriptor, key)
    finally:
        hold.release()


def _locked(path: Path, shown: str) -> durable.Hold:
    """The open file, locked; the one that has the name once the lock is held."""
    while True:
        with _complaining(path, "opened"):
            hold = durable.Hold(os.open(path, os.O_RDWR))
        try:
            with _complaining(path, "locked"):
                _lock(hold, f"ledger {shown}")
                mine = os.fstat(hold.descriptor)
                if not stat.S_ISREG(mine.st_mode):
                    raise StateError(f"ledger {shown}: expected a file")
                if mine.st_mode & _OTHERS:
                    raise StateError(
                        f"ledger {shown}: group or others have access (mode {stat.S_IMODE(mine.st_mode):04o}); "
                        "expected an owner-only file (chmod 600)"
                    )
                if _has_name(hold.descriptor, path):
                    return hold
        except BaseException:
            hold.release()
            raise
        hold.release()


def _has_name(descriptor: int, path: Path) -> bool:
    """Whether this open file is the one of that name."""
    return os.path.samestat(os.fstat(descriptor), path.stat())


@contextlib.contextmanager
def _complaining(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(f"ledger {str(path)!r} could not be {done}: {error.strerror or error}") from error
