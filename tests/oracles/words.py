"""Random words and keys by hand: AES-256 one block at a time, keyed BLAKE2b, and what both are told.

Source: NIST SP 800-38A, section 6.5; RFC 7693; ``docs/noise.md``, section 1.
"""

from __future__ import annotations

import hashlib

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


def within(secret, *labels):
    """The secret for what a composition decides later, such as ("theta", 17)."""
    parts = b""
    for label in labels:
        kinds = {str: (b"s", str.encode), bytes: (b"b", bytes), int: (b"i", lambda n: str(n).encode())}
        letter, content = kinds[type(label)]
        parts += letter + len(content(label)).to_bytes(8, "big") + content(label)
    message = b"l" + len(parts).to_bytes(8, "big") + parts
    return hashlib.blake2b(message, digest_size=32, key=secret, person=b"fastdp bind 2").digest()
