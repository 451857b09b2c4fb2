"""State files: atomic, owner-only, authenticated.

A state file holds secrets: noise and outputs together give the data back.  It is written to a new file
that only the owner can read, synced, and renamed over the old one, so a crash leaves the old state or
the new one, never a mixture.  With a key it is encrypted and authenticated (AES-256-GCM); without one
only damage is noticed.  Source: ``docs/state.md``; NIST SP 800-38D; RFC 7914 (scrypt); RFC 5869
(HKDF).
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import secrets
import struct
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from fastdp import validation
from fastdp.errors import ParameterError, StateError
from fastdp.files import durable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"fastdp\x00s"
#: Written, and read.  Format 2 used a key of 32 bytes as it is; one key now gives each file a cipher key of its own,
#: because random nonces under one cipher key may repeat behind 2^32 writes.
VERSION, READ = 3, (2, 3)
_PURPOSE = b"fastdp state file 3"
# Magic, version, protection, generation, salt, nonce; all authenticated.
_HEADER = struct.Struct(">8sHBQ16s12s")
_CHECKSUM_BYTES = 32
_TOKEN_BYTES = 6
#: More writes than any disk takes; the header has room for twice as many.
_MOST_GENERATIONS = 2**63


class Protection(IntEnum):
    """How the payload is guarded."""

    CHECKSUM = 0
    KEY = 1
    PASSPHRASE = 2


@dataclass(frozen=True)
class StateFile:
    """Where a state lives and the secret that guards it.

    Parameters
    ----------
    path : str or Path
        The file.
    key : 32 bytes, str (a passphrase) or None
        None writes in the clear, for simulations and for disks that are encrypted anyway.  A passphrase is used as
        it is given; for reading, its composed and decomposed spellings (Unicode NFC and NFD) are tried too.

    Attributes
    ----------
    real : str
        The path behind symbolic links, which stay links, as it was when this object was made: neither the current
        folder nor a link that leads elsewhere by now takes a publisher to another file.
    """

    path: str | os.PathLike[str]
    key: bytes | str | None = None
    real: str = field(init=False, repr=False, compare=False)
    _absolute: str = field(init=False, repr=False, compare=False)
    _salt: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False, compare=False)
    _derived: dict[tuple[bytes, str], bytes] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check path and key, and find the file."""
        object.__setattr__(self, "_absolute", _absolute(self.path))
        object.__setattr__(self, "real", os.path.realpath(self._absolute))
        if isinstance(self.key, bytes) and len(self.key) != 32:
            raise ParameterError(f"key: expected 32 bytes or a passphrase, got {len(self.key)} bytes")
        if self.key is not None and not isinstance(self.key, (bytes, str)):
            raise ParameterError(f"key: expected 32 bytes, a passphrase or None, got {type(self.key).__name__}")
        if self.key == "":
            raise ParameterError("key: expected 32 bytes, a passphrase or None, got an empty text")
        if isinstance(self.key, str):
            try:
                self.key.encode()
            except UnicodeEncodeError:
                raise ParameterError(
                    "key: expected a passphrase of Unicode characters, got a lone surrogate"
                ) from None

    def __repr__(self) -> str:
        return f"StateFile({os.fspath(self.path)!r})"

    @property
    def strays(self) -> bool:
        """Whether the path leads to another file than it did: links on it were changed."""
        return os.path.realpath(self._absolute) != self.real

    def header(self) -> bytes | None:
        """The file's header, which differs for every write; None if there is no file."""
        with self._reading():
            try:
                with Path(self.real).open("rb") as file:
                    header = file.read(_HEADER.size)
            except (FileNotFoundError, NotADirectoryError):
                return None
        self._parse(header)
        return header

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Between looking at the file and replacing it nobody else does (where the system has flock)."""
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
            # Whoever writes such a file holds the lock, so its writer was killed; it holds secrets.
            for leftover in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 2 * _TOKEN_BYTES}"):
                with contextlib.suppress(OSError):
                    leftover.unlink()
            yield
        finally:
            hold.release()

    def write(self, payload: bytes, previous: bytes | None) -> bytes:
        """Replace the file by this payload; returns the new header.  Follow with :meth:`sync_folder`."""
        generation = 1
        if previous is not None:
            self.demand(previous)
            generation = self._parse(previous)[1] + 1
        salt, nonce = self._salt, secrets.token_bytes(12)
        header = _HEADER.pack(MAGIC, VERSION, self._protection(), generation, salt, nonce)
        if self.key is None:
            sealed = payload + _checksum(header + payload)
        else:
            sealed = self._cipher(VERSION, salt, self.key).encrypt(nonce, payload, header)
        path = Path(self.real)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(_TOKEN_BYTES)}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(header + sealed)
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

    def sync_folder(self) -> None:
        """Make the rename itself durable, where folders can be synced."""
        try:
            durable.sync_folder(Path(self.real).parent)
        except OSError as error:
            raise StateError(f"the folder of {self.real!r} could not be synced: {error.strerror or error}") from error

    def read(self) -> tuple[bytes, bytes]:
        """Payload and header; StateError says what is wrong with the file otherwise."""
        with self._reading():
            raw = Path(self.real).read_bytes()
        header, sealed = raw[: _HEADER.size], raw[_HEADER.size :]
        payload, generation = self._opened(header, sealed), self._parse(header)[1]
        if generation >= _MOST_GENERATIONS:
            raise StateError(f"state file {os.fspath(self.path)!r} is damaged: written {generation} times")
        return payload, header

    def _opened(self, header: bytes, sealed: bytes) -> bytes:
        protection, _, salt, nonce, version = self._parse(header)
        self.demand(header)
        name = os.fspath(self.path)
        if protection is Protection.CHECKSUM:
            payload, checksum = sealed[:-_CHECKSUM_BYTES], sealed[-_CHECKSUM_BYTES:]
            if not secrets.compare_digest(checksum, _checksum(header + payload)):
                raise StateError(f"state file {name!r} is damaged: its checksum does not match")
            return payload
        from cryptography.exceptions import InvalidTag

        for key in self._spellings():
            with contextlib.suppress(InvalidTag):
                return self._cipher(version, salt, key).decrypt(nonce, sealed, header)
        raise StateError(f"state file {name!r}: wrong key, or the file was altered (authentication failed)")

    def demand(self, header: bytes) -> None:
        """A file keeps its kind of protection: one written without a key would lay an encrypted one open."""
        protection = self._parse(header)[0]
        if protection is not self._protection():
            wants = {Protection.CHECKSUM: "None", Protection.KEY: "32 bytes", Protection.PASSPHRASE: "a passphrase"}
            raise StateError(f"state file {os.fspath(self.path)!r}: expected key = {wants[protection]}")

    def _protection(self) -> Protection:
        if self.key is None:
            return Protection.CHECKSUM
        return Protection.KEY if isinstance(self.key, bytes) else Protection.PASSPHRASE

    def _spellings(self) -> list[bytes | str]:
        """The key; of a passphrase also what another keyboard or system may have made of the same characters."""
        if isinstance(self.key, str):
            forms = [unicodedata.normalize("NFC", self.key), unicodedata.normalize("NFD", self.key)]
            return list(dict.fromkeys([self.key, *forms]))
        return [] if self.key is None else [self.key]

    def _cipher(self, version: int, salt: bytes, key: bytes | str) -> AESGCM:
        # Imported here: a user's device in the local model that needs no state file loads no cipher.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if isinstance(key, str):
            return AESGCM(self._secret(salt, key))
        return AESGCM(key if version == 2 else _subkey(salt, key))

    def _secret(self, salt: bytes, passphrase: str) -> bytes:
        # Scrypt takes a tenth of a second on purpose; one derivation serves all writes with this salt.
        if (salt, passphrase) not in self._derived:
            from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

            derived = Scrypt(salt=salt, length=32, n=2**15, r=8, p=1).derive(passphrase.encode())
            self._derived[salt, passphrase] = derived
        return self._derived[salt, passphrase]

    def _parse(self, header: bytes) -> tuple[Protection, int, bytes, bytes, int]:
        name = os.fspath(self.path)
        if len(header) < _HEADER.size or not header.startswith(MAGIC):
            raise StateError(f"{name!r} is no fastdp state file, or was cut short")
        _, version, protection, generation, salt, nonce = _HEADER.unpack(header)
        if version not in READ:
            age = "a newer fastdp wrote it" if version > VERSION else "an older fastdp wrote it"
            raise StateError(
                f"state file {name!r} has format {version}: this fastdp reads formats {READ[0]} to {READ[-1]} "
                f"({age}, or it is damaged)"
            )
        if protection not in tuple(Protection):
            raise StateError(f"state file {name!r} is damaged: unknown protection {protection}")
        return Protection(protection), generation, salt, nonce, version

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            name = os.fspath(self.path)
            raise StateError(f"state file {name!r} could not be read: {error.strerror or error}") from error


def _absolute(path: object) -> str:
    """The path from the root, with its links: the current folder may change."""
    text = validation.path("path", path)
    try:
        return text if Path(text).is_absolute() else str(Path.cwd() / text)
    except OSError as error:
        raise StateError(
            f"state file {text!r} in a current folder that is gone: {error.strerror or error}"
        ) from error


def _subkey(salt: bytes, key: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), 32, salt, _PURPOSE).derive(key)


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECKSUM_BYTES).digest()
