"""State files: compressed, sealed by AES-256-GCM with a key, synced, owner-only (``docs/state.md``).

Source: NIST SP 800-38D; RFC 7914 (scrypt); RFC 5869 (HKDF).
"""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import os
import secrets
import struct
import unicodedata
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fastdp import validation
from fastdp.errors import ParameterError, StateError
from fastdp.record import put
from fastdp.state import atomic_files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"fastdp\x00s"
VERSION = 4
#: Magic, version, protection, salt, nonce; all authenticated.
HEADER = struct.Struct(">8sHB16s12s")
#: Length, its CRC, nonce; the payload follows, authenticated with header and position.
_FRAME = struct.Struct(">QI12s")
_LENGTH = struct.Struct(">I")
_PURPOSE = b"fastdp state file 1"
_CHECKSUM_BYTES, _TAG_BYTES = 32, 16
#: Bytes that storing adds to at most MIN_FILE_BYTES, and their length.
_STORED = 16
#: Sealed bytes have a power of two as their size, this one at least: it would reveal how values compress.
MIN_BYTES = 512
#: In files, which many may see, as it would reveal how many events wait.
MIN_FILE_BYTES = 8192
#: A payload inflates to at most this many bytes, or so many times its own: a small file must not fill the memory.
MAX_PAYLOAD, MAX_INFLATION = 2**28, 64
_CUT_SHORT = "is no fastdp state file, or was cut short"


#: Accepted keys of each kind of protection, whose number is in state files.
_WANTED = ("None", "32 bytes", "a passphrase")


def protection_of(header: bytes, name: str) -> int:
    """Kind of protection of a state; StateError for another header."""
    if len(header) < HEADER.size or not header.startswith(MAGIC):
        raise StateError(f"{name} {_CUT_SHORT}")
    _, version, protection, *_ = HEADER.unpack(header)
    if version != VERSION:
        raise StateError(
            f"{name} has format {version}: this fastdp reads format {VERSION} (another fastdp wrote it, or it is "
            "damaged); go on with that version, or begin another stream with a new key, which spends epsilon again"
        )
    if protection >= len(_WANTED):
        raise StateError(f"{name} is damaged: unknown protection {protection}")
    return int(protection)


class Opened(NamedTuple):
    """Payloads of a state's frames, without an incomplete last one."""

    frames: list[bytes]
    complete: bool


@dataclass(frozen=True)
class Seal:
    """Protects by 32 bytes or a passphrase; with None by a checksum."""

    key: bytes | str | None = None
    _salt: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False, compare=False)
    #: The last salt's cipher: deriving its key takes as long as all else of a record.
    _ciphers: dict[bytes, AESGCM] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        given: object = self.key
        if isinstance(given, str) and given and validation.encodes(given):
            put(self, key=unicodedata.normalize("NFC", given))
            return
        if given is None:
            return
        if isinstance(given, str):
            found = "a text with a lone surrogate" if given else "an empty text"
        else:
            found = f"{len(given)} bytes" if isinstance(given, bytes) else type(given).__name__
        if found != "32 bytes":
            raise ParameterError(f"key: expected 32 bytes, a passphrase or None, got {found}")

    def __repr__(self) -> str:
        return "Seal()"

    def pack(self, payload: bytes, least: int = MIN_BYTES) -> tuple[bytes, bytes]:
        """Header and all bytes of a state, sealed with at least `least` bytes."""
        salt = _salt_for(self.key) if isinstance(self.key, str) else self._salt
        header = HEADER.pack(MAGIC, VERSION, self._protection(), salt, secrets.token_bytes(12))
        return header, header + self.frame(header, 0, payload, least)

    def frame(
        self, header: bytes, index: int, payload: bytes, least: int = MIN_FILE_BYTES, *, compress: bool = True
    ) -> bytes:
        # A payload that padding fills up anyway is stored uncompressed.
        fits = self.key is not None and len(payload) + HEADER.size + _FRAME.size + _TAG_BYTES + _STORED <= least
        deflated = zlib.compress(payload, int(compress and not fits), -15)
        most = max(MAX_PAYLOAD, MAX_INFLATION * len(deflated))
        if len(payload) > most:
            raise StateError(f"a state of {len(payload):,} bytes: expected at most {most:,}; use a smaller hold-out")
        body = _LENGTH.pack(len(deflated)) + deflated
        nonce, position = secrets.token_bytes(12), header + index.to_bytes(8, "big")
        if self.key is None:
            sealed = body + _checksum(position + nonce + body)
        else:
            around = _FRAME.size + _TAG_BYTES + (HEADER.size if index == 0 else 0)
            size = max(least, 1 << (len(body) + around - 1).bit_length())
            body = body.ljust(size - around, b"\0")
            sealed = self._cipher(header).encrypt(nonce, body, position)
        length = len(sealed).to_bytes(8, "big")
        return _FRAME.pack(len(sealed), zlib.crc32(length), nonce) + sealed

    def open(self, raw: bytes, name: str) -> Opened:
        """Frames of a state; StateError names the damage."""
        header, at = raw[: HEADER.size], HEADER.size
        self.require_protection(header, name)
        frames: list[bytes] = []
        while at < len(raw):
            begin, sealed = at + _FRAME.size, b""
            # Pages that never reached the disk read as zeros.
            if any(raw[at:begin]) and (any(raw[begin:]) or begin == len(raw)):
                length, check, nonce = _FRAME.unpack(raw[at:begin])
                if zlib.crc32(length.to_bytes(8, "big")) != check:
                    raise StateError(f"{name} is damaged: the file was altered (the size of a record)")
                sealed = raw[begin : begin + length]
            if not frames and (not sealed or len(sealed) < length):
                raise StateError(f"{name} {_CUT_SHORT}")
            if not sealed or len(sealed) < length or not any(sealed[-_TAG_BYTES:]):
                return Opened(frames, complete=False)
            frames.append(self._opened(header, len(frames), nonce, sealed, name))
            at = begin + length
        if not frames:
            raise StateError(f"{name} {_CUT_SHORT}")
        return Opened(frames, complete=True)

    def _opened(self, header: bytes, index: int, nonce: bytes, sealed: bytes, name: str) -> bytes:
        position = header + index.to_bytes(8, "big")
        if self.key is None:
            body, checksum = sealed[:-_CHECKSUM_BYTES], sealed[-_CHECKSUM_BYTES:]
            if not secrets.compare_digest(checksum, _checksum(position + nonce + body)):
                raise StateError(f"{name} is damaged: its checksum does not match (the file was altered)")
        else:
            from cryptography.exceptions import InvalidTag

            try:
                body = self._cipher(header).decrypt(nonce, sealed, position)
            except InvalidTag:
                said = "wrong key, or the file was altered (authentication failed)"
                raise StateError(f"{name}: {said}") from None
        (size,) = _LENGTH.unpack(body[: _LENGTH.size])
        unpacker = zlib.decompressobj(-15)
        most = max(MAX_PAYLOAD, MAX_INFLATION * size)
        try:
            payload = unpacker.decompress(body[_LENGTH.size : _LENGTH.size + size], most)
        except zlib.error:
            raise StateError(f"{name} is damaged: what is compressed cannot be read") from None
        if not unpacker.eof:
            raise StateError(f"{name} is damaged: it is cut short, or inflates to more than {most:,} bytes")
        return payload

    def require_protection(self, header: bytes, name: str) -> None:
        """StateError for another kind of protection."""
        protection = protection_of(header, name)
        if protection != self._protection():
            raise StateError(f"{name}: expected key = {_WANTED[protection]}")

    def _protection(self) -> int:
        return 0 if self.key is None else 1 if isinstance(self.key, bytes) else 2

    def _cipher(self, header: bytes) -> AESGCM:
        # Imported here: a user's device in the local model that needs no state file loads no cipher.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        salt, key = HEADER.unpack(header)[3], self.key
        if salt not in self._ciphers:
            self._ciphers.clear()
            self._ciphers[salt] = AESGCM(_stretched(salt, key) if isinstance(key, str) else _subkey(salt, key or b""))
        return self._ciphers[salt]


@functools.lru_cache(maxsize=16)
def _salt_for(passphrase: str) -> bytes:
    return secrets.token_bytes(16)


@functools.lru_cache(maxsize=16)
def _stretched(salt: bytes, passphrase: str) -> bytes:
    # Scrypt takes a tenth of a second on purpose.
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=32, n=2**15, r=8, p=1).derive(passphrase.encode())


def _subkey(salt: bytes, key: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), 32, salt, _PURPOSE).derive(key)


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECKSUM_BYTES).digest()


# The file.

#: The last bytes of a frame, which depend on its nonce: a tag or a checksum.
TAIL_BYTES = 16


def stamp_of(header: bytes, size: int, tail: bytes) -> bytes:
    """Header, size and last bytes of a file."""
    return header + size.to_bytes(8, "big") + tail[-TAIL_BYTES:]


@dataclass(frozen=True)
class StateFile:
    """Path and key of a state; without a key it is not encrypted."""

    path: str | os.PathLike[str]
    key: bytes | str | None = None
    real: str = field(init=False, repr=False, compare=False)
    seal: Seal = field(init=False, repr=False, compare=False)
    _absolute: str = field(init=False, repr=False, compare=False)
    _folder: Path = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        absolute = _absolute(self.path)
        real = os.path.realpath(absolute)
        put(self, _absolute=absolute, real=real, _folder=Path(real).parent, seal=Seal(self.key))

    def __repr__(self) -> str:
        return f"StateFile({os.fspath(self.path)!r})"

    @property
    def name(self) -> str:
        return f"state file {os.fspath(self.path)!r}"

    @property
    def _written(self) -> str:
        return f"state file {self.real!r}"

    @property
    def redirected(self) -> bool:
        return os.path.realpath(self._absolute) != self.real

    def header(self) -> bytes | None:
        """Header, which differs for every write, or None."""
        ends = self._ends()
        if ends is None:
            return None
        protection_of(ends[0], self.name)
        return ends[0]

    def stamp(self) -> bytes | None:
        """Header, size and last bytes, which differ for every record, or None."""
        ends = self._ends()
        return None if ends is None else stamp_of(*ends)

    def _ends(self) -> tuple[bytes, int, bytes] | None:
        with _errors(f"{self.name} could not be read"):
            try:
                # Path.open would take as long as the reading.
                descriptor = atomic_files.open_owned(self.real, os.O_RDONLY)
            except (FileNotFoundError, NotADirectoryError):
                return None
            try:
                header, size = os.read(descriptor, HEADER.size), os.lseek(descriptor, 0, os.SEEK_END)
                os.lseek(descriptor, max(0, size - TAIL_BYTES), os.SEEK_SET)
                return header, size, os.read(descriptor, TAIL_BYTES)
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        with _errors(f"{self._written} could not be written"):
            hold = atomic_files.Hold(self._folder)
        try:
            try:
                locked = atomic_files.lock(hold.descriptor)
            except OSError as error:
                raise StateError(
                    f"{self._written}: its folder could not be locked: {error.strerror or error}; "
                    "expected a file system with locks (flock)"
                ) from error
            if not locked:
                raise StateError(
                    f"{self._written}: its folder stayed locked for {atomic_files.LOCK_SECONDS:g} seconds"
                )
            yield
        finally:
            hold.release()

    def write(self, payload: bytes, previous: bytes | None) -> bytes:
        """Replace the file and return its header; :meth:`sync_folder` must follow."""
        if previous is not None:
            self.seal.require_protection(previous, self.name)
        header, sealed = self.seal.pack(payload, MIN_FILE_BYTES)
        path = Path(self.real)
        with _errors(f"{self._written} could not be written"):
            # The writer of such a file holds the lock, so one that is there was killed; it holds secrets.
            atomic_files.remove_parts(path.parent, glob.escape(path.name))
            with atomic_files.atomic_file(path, overwrite=True, alone=True) as file:
                file.write(sealed)
        return header

    def append(self, frame: bytes, end: int) -> None:
        """Write one more frame at `end`; on failure, truncate there."""
        with _errors(f"{self._written} could not be written"):
            descriptor = atomic_files.open_owned(self.real, os.O_WRONLY)
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

    def sync_folder(self) -> None:
        with _errors(f"the folder of {self.real!r} could not be synced"):
            atomic_files.sync_folder(self._folder)

    def open(self) -> tuple[list[bytes], bytes]:
        with _errors(f"{self.name} could not be read"):
            raw = Path(self.real).read_bytes()
        return self.seal.open(raw, self.name).frames, stamp_of(raw[: HEADER.size], len(raw), raw)


@contextlib.contextmanager
def _errors(failed: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(f"{failed}: {error.strerror or error}") from error


def _absolute(path: object) -> str:
    text = validation.path("path", path)
    with _errors(f"state file {text!r} in a current folder that is gone"):
        return text if Path(text).is_absolute() else str(Path.cwd() / text)
