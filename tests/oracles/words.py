"""Random words and keys by hand: AES-256 and ChaCha20 one block at a time, keyed BLAKE2b, and what they are told.

Source: NIST SP 800-38A, section 6.5; RFC 8439; RFC 7693; ``docs/noise.md``, section 1.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes


def words(secret, purpose, count, *, level=0, number=0, refinement=0, member=0, start=0):
    """So many words of a stream id from a position on."""
    encryptor = Cipher(algorithms.AES(secret), modes.ECB()).encryptor()  # noqa: S305 - the bare cipher is the oracle
    high = (purpose * 2**8 + refinement) * 2**8 + level
    found = []
    for block in range(start // 2, (start + count + 1) // 2):
        counter = (((high * 2**40 + number) * 2**32 + member) * 2**32 + block).to_bytes(16, "big")
        raw = encryptor.update(counter)
        found += [int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")]
    return found[start % 2 :][:count]


def begun(secret, purpose, count, *, level=0, number=0, refinement=0, member=0):
    """So many words that a stream id of chains and steps begins with, by ChaCha20: eight a block."""
    name = ((purpose * 2**8 + refinement) * 2**8 + level) * 2**40 + number
    found = []
    for block in range(-(-count // 8)):
        begin = struct.pack("<QQ", member * 2**32 + block, name)
        raw = Cipher(algorithms.ChaCha20(secret, begin), None).encryptor().update(bytes(64))
        found += struct.unpack("<8Q", raw)
    return found[:count]


class Part(NamedTuple):
    """A mechanism or part: its class, the number of its rule, all its parameters."""

    name: str
    rule: int
    parameters: dict


def encoded(value):
    """A value as the noise design writes it: a letter, the length of what follows, and that."""
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if value is None:
        letter, content = b"n", b""
    elif isinstance(value, int):
        letter, content = b"i", str(value).encode()
    elif isinstance(value, float):
        letter, content = b"d", struct.pack(">d", value)
    elif isinstance(value, str):
        letter, content = b"s", value.encode()
    elif isinstance(value, bytes):
        letter, content = b"b", value
    elif isinstance(value, dict):
        letter, content = b"m", b"".join(encoded(name) + encoded(value[name]) for name in sorted(value))
    elif isinstance(value, Part):
        letter, content = b"p", b"".join(map(encoded, value))
    else:
        letter, content = b"l", b"".join(encoded(entry) for entry in value)
    return letter + len(content).to_bytes(8, "big") + content


def derived(secret, value):
    """Keyed BLAKE2b of a value."""
    return hashlib.blake2b(encoded(value), digest_size=32, key=secret, person=b"fastdp bind 1").digest()


def bound(secret, mechanism, rule, parameters):
    """The secret of one composition."""
    return derived(secret, [1, Part(mechanism, rule, parameters)])


def within(secret, *labels):
    """The secret for what a composition decides later, such as ("theta", 17)."""
    return derived(secret, labels)
