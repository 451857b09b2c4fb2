"""State as bytes: compressed, and encrypted and authenticated where a key is given.

State holds secrets: noise and outputs together give the data back.  With a key it is sealed by AES-256-GCM; without
one only damage is detected.  Source: ``docs/state.md``; NIST SP 800-38D; RFC 7914 (scrypt); RFC 5869
(HKDF).

Layout: a header, then frames.  The first frame is a state; the others, in a kept file, are the records of a journal.
A frame is length, CRC of the length, nonce, and the sealed payload, whose authentication covers header and position.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import secrets
import struct
import unicodedata
import zlib
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from fastdp.errors import ParameterError, StateError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"fastdp\x00s"
#: The format that is written and read.
VERSION = 1
#: Magic, version, protection, generation, salt, nonce; all authenticated.
HEADER = struct.Struct(">8sHBQ16s12s")
_FRAME = struct.Struct(">QI12s")
_LENGTH = struct.Struct(">I")
_PURPOSE = b"fastdp state file 1"
_CHECKSUM_BYTES, _TAG_BYTES = 32, 16
#: Sealed bytes have a power of two as their size, this one at least: it would reveal how values compress.
MIN_BYTES = 512
#: In files, which many may see, as it would reveal how many events wait.
MIN_FILE_BYTES = 8192
#: More writes than any disk takes; the header has room for twice as many.
MAX_GENERATIONS = 2**63
#: A payload inflates to at most this many bytes, or so many times its own: a small file must not fill the memory.
MAX_PAYLOAD, MAX_INFLATION = 2**28, 64
#: What most states contain; part of the format.
_DICTIONARY = (
    b'"perturber":{"name":"Hierarchy","fan_out":16,"consistent":true,"prune":"optimal"},"threshold":{"name":"NoisyMax",'
    b'"c":60,"noise":"exponential","step":null},"smoother":{"name":"Recent"},"renewal":null,"epsilon":1.0,"bound":'
    b'100.0,"holdout":65536,"max_range":1048576,"resolution":null,"nonfinite":"raise","contributions":1,"sensitivity":'
    b'null,"delta":0.0,"budget":null},"total_share":0.0,"counter":{"name":"Simple"},"whole":null,"drawn":0,'
    b'"state":{"shape":[0],"data":"eJwDAAAAAAE="},"n_seen":0,"cycle":1,"held":0,"released":0,"theta_steps":0,"blocks":0,'
    b'"filled":0,"open_sum":0,"prediction":0.0,"smoother":"eJwDAAAAAAE=","chain":"eJwDAAAAAAE=","holdout":"eJwDAAAAAAE="'
    b'},"before":null,"chunk":null,"digest":"","noise":2,"simulated":false,"home":null,"now":{"n_seen":0,"secret":"",'
    b'"member":0,"fastdp":"0.1.0","composition":{"class":"ToPS","Adaptive","PAK","PHDStream"'
)


class Protection(IntEnum):
    """How the payload is guarded."""

    CHECKSUM = 0
    KEY = 1
    PASSPHRASE = 2


class Header(NamedTuple):
    """What the first bytes say."""

    protection: Protection
    generation: int
    salt: bytes


class Opened(NamedTuple):
    """What a file or a byte string holds.

    Attributes
    ----------
    frames : list of bytes
        Payloads.
    header : bytes
        As it was written.
    whole : bool
        Whether it ends with a frame; a crash leaves an unfinished one, which had no effect yet.
    """

    frames: list[bytes]
    header: bytes
    whole: bool


@dataclass(frozen=True)
class Seal:
    """What guards a state: 32 bytes, a passphrase or None.

    A passphrase is used as it is given; for reading, its composed and decomposed spellings (Unicode NFC and NFD) are
    tried too.
    """

    key: bytes | str | None = None
    _salt: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the key."""
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
        return "Seal()"

    def pack(self, payload: bytes, generation: int = 1, least: int = MIN_BYTES) -> tuple[bytes, bytes]:
        """Header, and all bytes, of a state; sealed, so many bytes at least."""
        salt = _salt_for(self.key) if isinstance(self.key, str) else self._salt
        header = HEADER.pack(MAGIC, VERSION, self._protection(), generation, salt, secrets.token_bytes(12))
        return header, header + self.frame(header, 0, payload, least)

    def frame(
        self, header: bytes, index: int, payload: bytes, least: int = MIN_FILE_BYTES, *, compress: bool = True
    ) -> bytes:
        """One more frame of what has this header; without compression for arrays, which gain little and cost time."""
        packer = zlib.compressobj(int(compress), zlib.DEFLATED, -15, zdict=_DICTIONARY)
        deflated = packer.compress(payload) + packer.flush()
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
            sealed = self._cipher(self._parse(header, "state").salt, self.key).encrypt(nonce, body, position)
        length = len(sealed).to_bytes(8, "big")
        return _FRAME.pack(len(sealed), zlib.crc32(length), nonce) + sealed

    def open(self, raw: bytes, name: str) -> Opened:
        """What :meth:`pack` gave, with the frames that followed; StateError names what is wrong with it."""
        header, at = raw[: HEADER.size], HEADER.size
        parsed = self._parse(header, name)
        self.demand(header, name)
        if parsed.generation >= MAX_GENERATIONS:
            raise StateError(f"{name} is damaged: written {parsed.generation} times")
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
                raise StateError(f"{name} is no fastdp state file, or was cut short")
            if not sealed or len(sealed) < length or not any(sealed[-_TAG_BYTES:]):
                return Opened(frames, header, whole=False)
            frames.append(self._opened(header, len(frames), nonce, sealed, name))
            at = begin + length
        if not frames:
            raise StateError(f"{name} is no fastdp state file, or was cut short")
        return Opened(frames, header, whole=True)

    def _opened(self, header: bytes, index: int, nonce: bytes, sealed: bytes, name: str) -> bytes:
        position = header + index.to_bytes(8, "big")
        if self.key is None:
            body, checksum = sealed[:-_CHECKSUM_BYTES], sealed[-_CHECKSUM_BYTES:]
            if not secrets.compare_digest(checksum, _checksum(position + nonce + body)):
                raise StateError(f"{name} is damaged: its checksum does not match (the file was altered)")
        else:
            body = self._decrypted(header, nonce, sealed, position, name)
        (size,) = _LENGTH.unpack(body[: _LENGTH.size])
        unpacker = zlib.decompressobj(-15, zdict=_DICTIONARY)
        most = max(MAX_PAYLOAD, MAX_INFLATION * size)
        try:
            payload = unpacker.decompress(body[_LENGTH.size : _LENGTH.size + size], most)
        except zlib.error:
            raise StateError(f"{name} is damaged: what is compressed cannot be read") from None
        if not unpacker.eof:
            raise StateError(f"{name} is damaged: it is cut short, or inflates to more than {most:,} bytes")
        return payload

    def _decrypted(self, header: bytes, nonce: bytes, sealed: bytes, position: bytes, name: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        salt = self._parse(header, name).salt
        for key in self._spellings():
            with contextlib.suppress(InvalidTag):
                return self._cipher(salt, key).decrypt(nonce, sealed, position)
        raise StateError(f"{name}: wrong key, or the file was altered (authentication failed)")

    def demand(self, header: bytes, name: str) -> None:
        """A state keeps its kind of protection: one written without a key would reveal an encrypted one."""
        protection = self._parse(header, name).protection
        if protection is not self._protection():
            wants = {Protection.CHECKSUM: "None", Protection.KEY: "32 bytes", Protection.PASSPHRASE: "a passphrase"}
            raise StateError(f"{name}: expected key = {wants[protection]}")

    def generation(self, header: bytes, name: str) -> int:
        """How often what has this header was written."""
        return self._parse(header, name).generation

    def _parse(self, header: bytes, name: str) -> Header:
        if len(header) < HEADER.size or not header.startswith(MAGIC):
            raise StateError(f"{name} is no fastdp state file, or was cut short")
        _, version, protection, generation, salt, _ = HEADER.unpack(header)
        if version != VERSION:
            raise StateError(
                f"{name} has format {version}: this fastdp reads format {VERSION} (another fastdp wrote it, or it is "
                "damaged)"
            )
        if protection not in tuple(Protection):
            raise StateError(f"{name} is damaged: unknown protection {protection}")
        return Header(Protection(protection), generation, salt)

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

    def _cipher(self, salt: bytes, key: bytes | str) -> AESGCM:
        # Imported here: a user's device in the local model that needs no state file loads no cipher.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(_stretched(salt, key) if isinstance(key, str) else _subkey(salt, key))


@functools.lru_cache(maxsize=16)
def _salt_for(passphrase: str) -> bytes:
    """For all that this process seals under one passphrase, which is stretched once then, not once for every file.

    Other passphrases have other salts: under a common one, each guess would be tried on all of them at once.
    """
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
