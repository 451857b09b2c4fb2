"""A file of lines that only grows: each line seals itself and the one before, under a lock, synced.

A line is a JSON object whose last member, ``chain``, is SHA-256 (or HMAC-SHA-256 with a key) of the seal of the line
before and of the line's own bytes up to there; the first line follows 32 zero bytes.  A last line with the right seal
counts, whether or not its line end is there: an editor may have dropped that, and a crash between write and sync
costs budget rather than promises.  A last line that is cut off is another matter: if a crash did it, its writer never
went on; if anything else did, a release may be missing.  Nobody can tell from the file, so nothing is appended behind
one before somebody says so (:meth:`Session.recover`).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastdp import validation
from fastdp.errors import StateError
from fastdp.files import durable
from fastdp.randomness.key import Key

FORMAT = 1
_START = bytes(32)
_SEAL = b', "chain": "'
_SEALED = len(_SEAL) + 64 + len(b'"}')
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
#: Of a last line that was cut off, so much is kept in the line that takes its place.
KEPT = 4096

Line = dict[str, Any]


@dataclass
class Session:
    """A ledger's lines while its lock is held.

    Attributes
    ----------
    lines : list of dict
        All whole lines, checked; line k has ``id`` k, and line 0 tells the format.
    seals : list of str
        The seal of each.
    ended : bool
        Whether the last whole line has its line end; the next one brings it along otherwise.
    torn : bytes
        What is behind the last whole line: the beginning of another.
    """

    name: str
    descriptor: int
    end: int
    mac: Callable[[bytes], bytes]
    lines: list[Line] = field(default_factory=list)
    seals: list[str] = field(default_factory=list)
    ended: bool = True
    torn: bytes = b""

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
        line = {"id": len(self.lines), "time": datetime.now(UTC).isoformat(timespec="seconds"), **body}
        raw, seal = sealed(line, bytes.fromhex(self.seals[-1]), self.mac)
        if not self.ended:
            raw = b"\n" + raw
        try:
            if self.torn:
                os.ftruncate(self.descriptor, self.end)
            self._write(raw)
            os.fsync(self.descriptor)
        except BaseException as error:
            # Nobody acts on a line before it is synced: half of one, or an unsynced one, is taken back.
            with contextlib.suppress(OSError):
                os.ftruncate(self.descriptor, self.end)
                os.fsync(self.descriptor)
            if isinstance(error, OSError):
                raise StateError(f"ledger {self.name} could not be written: {error.strerror or error}") from error
            raise
        self.end, self.ended, self.torn = self.end + len(raw), True, b""
        self.lines.append(line)
        self.seals.append(seal)
        return line

    def _write(self, raw: bytes) -> None:
        at = self.end
        while raw:
            count = os.pwrite(self.descriptor, raw, at)
            at, raw = at + count, raw[count:]


def sealed(line: Line, before: bytes, mac: Callable[[bytes], bytes]) -> tuple[bytes, str]:
    """A line's bytes and its seal."""
    body = json.dumps(line, ensure_ascii=False, allow_nan=False).encode()[:-1]
    seal = mac(before + body).hex()
    return body + _SEAL + seal.encode() + b'"}\n', seal


def sealing(key: Key | None, name: str) -> Callable[[bytes], bytes]:
    """SHA-256, or HMAC-SHA-256 with a key of the ledger's own."""
    if key is None:
        return lambda message: hashlib.sha256(message).digest()
    secret = key.derive("ledger", name).reveal()
    return lambda message: hmac.digest(secret, message, "sha256")


def create(path: Path, key: Key | None) -> None:
    """Make a ledger without entries, owner-only, unless there is one."""
    name = secrets.token_hex(16)
    header = {
        "id": 0,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "fastdp_ledger": FORMAT,
        "name": name,
        "seal": "sha256" if key is None else "hmac-sha256",
    }
    raw, _ = sealed(header, _START, sealing(key, name))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    with _complaining(path, "created"):
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


@contextlib.contextmanager
def opened(path: Path, key: Key | None) -> Iterator[Session]:
    """A ledger with all its lines checked, locked until the block ends.

    Raises
    ------
    StateError
        If it is missing, readable by others, locked for long, altered, reordered, cut in the middle or sealed in
        another way; the message says which line is wrong.
    """
    shown = repr(str(path))
    if not durable.has_locks():
        raise StateError(
            f"ledger {shown}: expected a system with file locks, without which a budget can be spent twice"
        )
    descriptor = _locked(path, shown)
    try:
        with _complaining(path, "read"), os.fdopen(os.dup(descriptor), "rb") as file:
            raw = file.read()
        yield _read(descriptor, raw, shown, key)
    finally:
        os.close(descriptor)


def _locked(path: Path, shown: str) -> int:
    """The open file, locked; the one that has the name once the lock is held."""
    while True:
        with _complaining(path, "opened"):
            descriptor = os.open(path, os.O_RDWR)
        try:
            with _complaining(path, "locked"):
                if not durable.lock(descriptor):
                    raise StateError(f"ledger {shown} stayed locked for {durable.LOCK_SECONDS:g} seconds")
                mine = os.fstat(descriptor)
                if not stat.S_ISREG(mine.st_mode):
                    raise StateError(f"ledger {shown}: expected a file")
                if mine.st_mode & _OTHERS:
                    raise StateError(
                        f"ledger {shown}: group or others have access (mode {stat.S_IMODE(mine.st_mode):04o}); "
                        "expected an owner-only file (chmod 600)"
                    )
                present = path.stat()
            if (mine.st_dev, mine.st_ino) == (present.st_dev, present.st_ino):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _read(descriptor: int, raw: bytes, shown: str, key: Key | None) -> Session:
    rows = raw.split(b"\n")
    last = rows.pop() if len(rows) > 1 else b""
    # Whatever stands behind a seal, which may be the right one, is another line's beginning.
    whole = last.rfind(_SEAL) + _SEALED if _SEAL in last else len(last)
    last, behind = last[:whole], last[whole:]
    header = _parsed(rows[0], shown, 0)
    if header.get("fastdp_ledger") != FORMAT:
        found = validation.shown(header.get("fastdp_ledger"))
        raise StateError(f"ledger {shown} has format {found}: this fastdp reads format {FORMAT}")
    wanted = "sha256" if key is None else "hmac-sha256"
    if header.get("seal") != wanted:
        kind = "None: it was made without a key" if key is not None else "the key it was made with"
        raise StateError(f"ledger {shown}: expected key = {kind}")
    session = Session(shown, descriptor, len(raw), sealing(key, str(header.get("name"))), ended=raw.endswith(b"\n"))
    before = _START
    for number, row in enumerate([*rows, last] if last else rows):
        seal = session.mac(before + row[:-_SEALED])
        if not hmac.compare_digest(row[-_SEALED:], _SEAL + seal.hex().encode() + b'"}'):
            if number == len(rows):
                session.end, session.ended, session.torn = len(raw) - len(last + behind), True, last + behind
                break
            reason = "its lines were altered, reordered or cut out" + ("" if key is None else ", or the key is wrong")
            raise StateError(f"ledger {shown} is damaged at line {number}: {reason} (the seal does not match)")
        line = header if number == 0 else _parsed(row, shown, number)
        if line.get("id") != number:
            raise StateError(f"ledger {shown} is damaged at line {number}: it says to be line {line.get('id')!r}")
        session.lines.append(line)
        session.seals.append(seal.hex())
        before = seal
    else:
        session.end, session.torn = len(raw) - len(behind), behind
    return session


def _parsed(row: bytes, shown: str, number: int) -> Line:
    try:
        line = json.loads(row)
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        what = "is no fastdp ledger, or was cut short" if number == 0 else f"is damaged at line {number}: no entry"
        raise StateError(f"ledger {shown} {what}")
    return line


@contextlib.contextmanager
def _complaining(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(f"ledger {str(path)!r} could not be {done}: {error.strerror or error}") from error
