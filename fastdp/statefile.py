"""State files: atomic, owner-only, authenticated.

A state file holds secrets: noise and outputs together give the data back.  It is written to a new file
that only the owner can read, synced, and renamed over the old one, so a crash leaves the old state or
the new one, never a mixture.  With a key it is encrypted and authenticated (AES-256-GCM); without one
only damage is noticed.  Source: the project's noise design, section 8; NIST SP 800-38D; RFC 7914 (scrypt).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from fastdp.errors import ParameterError, StateError

MAGIC = b"fastdp\x00s"
VERSION = 1
# Magic, version, protection, generation, salt, nonce; all authenticated.
_HEADER = struct.Struct(">8sHBQ16s12s")
_CHECKSUM_BYTES = 32


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
        None writes in the clear, for simulations and for disks that are encrypted anyway.
    """

    path: str | os.PathLike[str]
    key: bytes | str | None = None

    def __post_init__(self) -> None:
        """Check the key's form."""
        if isinstance(self.key, bytes) and len(self.key) != 32:
            raise ParameterError(f"key: expected 32 bytes or a passphrase, got {len(self.key)} bytes")
        if self.key is not None and not isinstance(self.key, (bytes, str)):
            raise ParameterError(f"key: expected 32 bytes, a passphrase or None, got {type(self.key).__name__}")
        if self.key == "":
            raise ParameterError("key: expected 32 bytes, a passphrase or None, got an empty text")

    def __repr__(self) -> str:
        return f"StateFile({os.fspath(self.path)!r})"

    def exists(self) -> bool:
        """Whether there is a file."""
        return Path(self.path).exists()

    def generation(self) -> int:
        """The counter in the file's header: how often this state was written."""
        with self._reading(), Path(self.path).open("rb") as file:
            return self._parse(file.read(_HEADER.size))[1]

    def write(self, payload: bytes, generation: int) -> None:
        """Replace the file by this payload, durably."""
        salt, nonce = secrets.token_bytes(16), secrets.token_bytes(12)
        protection = self._protection()
        header = _HEADER.pack(MAGIC, VERSION, protection, generation, salt, nonce)
        if protection is Protection.CHECKSUM:
            sealed = payload + _checksum(header + payload)
        else:
            sealed = AESGCM(self._secret(salt)).encrypt(nonce, payload, header)
        path = Path(self.path)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(header + sealed)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            _sync_folder(path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise StateError(f"state file {str(path)!r} could not be written: {error.strerror or error}") from error

    def read(self) -> tuple[bytes, int]:
        """Payload and generation; StateError says what is wrong with the file otherwise."""
        with self._reading():
            raw = Path(self.path).read_bytes()
        header, sealed = raw[: _HEADER.size], raw[_HEADER.size :]
        protection, generation, salt, nonce = self._parse(header)
        if protection is not self._protection():
            wants = {
                Protection.CHECKSUM: "no key",
                Protection.KEY: "32 bytes",
                Protection.PASSPHRASE: "a passphrase",
            }
            raise StateError(f"state file {os.fspath(self.path)!r}: expected key = {wants[protection]}")
        if protection is Protection.CHECKSUM:
            payload, checksum = sealed[:-_CHECKSUM_BYTES], sealed[-_CHECKSUM_BYTES:]
            if not secrets.compare_digest(checksum, _checksum(header + payload)):
                raise StateError(f"state file {os.fspath(self.path)!r} is damaged: its checksum does not match")
            return payload, generation
        try:
            return AESGCM(self._secret(salt)).decrypt(nonce, sealed, header), generation
        except InvalidTag:
            raise StateError(
                f"state file {os.fspath(self.path)!r}: wrong key, or the file was altered (authentication failed)"
            ) from None

    def _protection(self) -> Protection:
        if self.key is None:
            return Protection.CHECKSUM
        return Protection.KEY if isinstance(self.key, bytes) else Protection.PASSPHRASE

    def _secret(self, salt: bytes) -> bytes:
        if isinstance(self.key, str):
            return Scrypt(salt=salt, length=32, n=2**15, r=8, p=1).derive(self.key.encode())
        assert self.key is not None  # noqa: S101 - only called for guarded files
        return self.key

    def _parse(self, header: bytes) -> tuple[Protection, int, bytes, bytes]:
        name = os.fspath(self.path)
        if len(header) < _HEADER.size or not header.startswith(MAGIC):
            raise StateError(f"{name!r} is no fastdp state file, or was cut short")
        _, version, protection, generation, salt, nonce = _HEADER.unpack(header)
        if version != VERSION:
            raise StateError(f"state file {name!r} has format {version}: this fastdp reads format {VERSION}")
        if protection not in tuple(Protection):
            raise StateError(f"state file {name!r} is damaged: unknown protection {protection}")
        return Protection(protection), generation, salt, nonce

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            name = os.fspath(self.path)
            raise StateError(f"state file {name!r} could not be read: {error.strerror or error}") from error


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECKSUM_BYTES).digest()


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where folders can be synced."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
