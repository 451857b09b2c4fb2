"""A sealed state in a file: atomic, owner-only, synced.

The file is written to a new one that only the owner can read, synced, and renamed over the old one, so a crash leaves
the old state or the new one, never a mixture.  Records are appended and synced; a crash leaves the last one whole or
not there.  Source: ``docs/state.md``.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fastdp import validation
from fastdp.errors import StateError
from fastdp.state import durable
from fastdp.state.seal import HEADER, MIN_FILE_BYTES, Opened, Seal

_TOKEN_BYTES = 6
#: The last bytes of a frame, which depend on its nonce: a tag or a checksum.
TAIL_BYTES = 16


def stamp_of(header: bytes, size: int, tail: bytes) -> bytes:
    """What :meth:`StateFile.stamp` gives for a file that ends with these bytes."""
    return header + size.to_bytes(8, "big") + tail[-TAIL_BYTES:]


@dataclass(frozen=True)
class StateFile:
    """Where a state lives and the secret that guards it.

    Parameters
    ----------
    path : str or Path
        The file.
    key : 32 bytes, str (a passphrase) or None
        None writes in the clear, for simulations and for disks that are encrypted anyway (:class:`Seal`).

    Attributes
    ----------
    real : str
        The path behind symbolic links, which stay links, as it was when this object was made: neither the current
        folder nor a link that is changed later takes a publisher to another file.
    """

    path: str | os.PathLike[str]
    key: bytes | str | None = None
    real: str = field(init=False, repr=False, compare=False)
    seal: Seal = field(init=False, repr=False, compare=False)
    _absolute: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check path and key, and find the file."""
        object.__setattr__(self, "_absolute", _absolute(self.path))
        object.__setattr__(self, "real", os.path.realpath(self._absolute))
        object.__setattr__(self, "seal", Seal(self.key))

    def __repr__(self) -> str:
        return f"StateFile({os.fspath(self.path)!r})"

    @property
    def name(self) -> str:
        """For messages."""
        return f"state file {os.fspath(self.path)!r}"

    @property
    def redirected(self) -> bool:
        """Whether the path leads to another file than it did: links on it were changed."""
        return os.path.realpath(self._absolute) != self.real

    def header(self) -> bytes | None:
        """The file's header, which differs for every write of the whole file; None if there is no file."""
        ends = self._ends()
        if ends is None:
            return None
        self.seal.generation(ends[0], self.name)
        return ends[0]

    def stamp(self) -> bytes | None:
        """Header, size and last bytes, which differ for every write and every record; None if there is no file."""
        ends = self._ends()
        return None if ends is None else stamp_of(*ends)

    def _ends(self) -> tuple[bytes, int, bytes] | None:
        """The first bytes, the size and the last bytes; None if there is no file."""
        with self._reading():
            try:
                with Path(self.real).open("rb") as file:
                    header, size = file.read(HEADER.size), file.seek(0, os.SEEK_END)
                    file.seek(max(0, size - TAIL_BYTES))
                    return header, size, file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock while the file is looked at and changed (where the system has flock)."""
        if not durable.has_locks():
            yield
            return
        path = Path(self.real)
        try:
            hold = durable.Hold(os.open(path.parent, os.O_RDONLY))
        except OSError as error:
            raise StateError(f"state file {str(path)!r} could not be written: {error.strerror or error}") from error
        try:
            try:
                locked = durable.lock(hold.descriptor)
            except OSError as error:
                raise StateError(
                    f"state file {str(path)!r}: its folder could not be locked: {error.strerror or error}; "
                    "expected a file system with locks (flock)"
                ) from error
            if not locked:
                raise StateError(
                    f"state file {str(path)!r}: its folder stayed locked for {durable.LOCK_SECONDS:g} seconds"
                )
            yield
        finally:
            hold.release()

    def write(self, payload: bytes, previous: bytes | None) -> bytes:
        """Replace the file by this payload; returns the new header.  Follow with :meth:`sync_folder`."""
        generation = 1
        if previous is not None:
            self.seal.demand(previous, self.name)
            generation = self.seal.generation(previous, self.name) + 1
        header, sealed = self.seal.pack(payload, generation, MIN_FILE_BYTES)
        path = Path(self.real)
        # The writer of such a file holds the lock, so one that is there was killed; it holds secrets.
        for leftover in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 2 * _TOKEN_BYTES}"):
            with contextlib.suppress(OSError):
                leftover.unlink()
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(_TOKEN_BYTES)}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(sealed)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            if isinstance(error, OSError):
                raise StateError(
                    f"state file {str(path)!r} could not be written: {error.strerror or error}"
                ) from error
            raise
        return header

    def append(self, frame: bytes, end: int) -> None:
        """Write one more frame behind ``end``, the file's size so far; if that fails, the file is cut there again."""
        try:
            descriptor = os.open(self.real, os.O_WRONLY)
            try:
                os.lseek(descriptor, end, os.SEEK_SET)
                try:
                    written = 0
                    while written < len(frame):
                        written += os.write(descriptor, frame[written:])
                    os.fsync(descriptor)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.ftruncate(descriptor, end)
                        os.fsync(descriptor)
                    raise
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StateError(f"state file {self.real!r} could not be written: {error.strerror or error}") from error

    def sync_folder(self) -> None:
        """Make the rename itself durable, where folders can be synced."""
        try:
            durable.sync_folder(Path(self.real).parent)
        except OSError as error:
            raise StateError(f"the folder of {self.real!r} could not be synced: {error.strerror or error}") from error

    def open(self) -> tuple[Opened, bytes]:
        """What the file holds, and its stamp; StateError names what is wrong with it otherwise."""
        with self._reading():
            raw = Path(self.real).read_bytes()
        return self.seal.open(raw, self.name), stamp_of(raw[: HEADER.size], len(raw), raw)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateError(f"{self.name} could not be read: {error.strerror or error}") from error


def _absolute(path: object) -> str:
    """The path from the root, with its links: the current folder may change."""
    text = validation.path("path", path)
    try:
        return text if Path(text).is_absolute() else str(Path.cwd() / text)
    except OSError as error:
        raise StateError(
            f"state file {text!r} in a current folder that is gone: {error.strerror or error}"
        ) from error
