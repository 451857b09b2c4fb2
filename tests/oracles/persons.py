"""Rows of a person that count, naively: SipHash by the letter, dictionaries, sorted lists.

Sources: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012); ``docs/tables_proofs.md``.
"""

from __future__ import annotations

import hashlib
import struct
from collections import defaultdict

MASK = 2**64 - 1


def sip(key, words, c_rounds=1, d_rounds=3):
    """SipHash-c-d of 64-bit words, as little-endian bytes."""
    return _sip(key, [*(w & MASK for w in words), (8 * len(words) % 256) << 56], c_rounds, d_rounds, (0xFF,))[0]


def sip_of_text(key, text, c_rounds=1, d_rounds=3):
    """SipHash-c-d-128 of bytes, as two words."""
    padded = text + bytes(7 - len(text) % 8) + bytes([len(text) % 256])
    return _sip((key[0], key[1]), struct.unpack(f"<{len(padded) // 8}Q", padded), c_rounds, d_rounds, (0xEE, 0xDD))


def _sip(key, words, c_rounds, d_rounds, ends):
    def left(x, bits):
        return (x << bits | x >> (64 - bits)) & MASK

    def round_of(a, b, c, d):
        a, c = (a + b) & MASK, (c + d) & MASK
        b, d = left(b, 13) ^ a, left(d, 16) ^ c
        a = (left(a, 32) + d) & MASK
        c = (c + b) & MASK
        b, d = left(b, 17) ^ c, left(d, 21) ^ a
        return a, b, left(c, 32), d

    first, second = key
    constants = struct.unpack(">4Q", b"somepseudorandomlygeneratedbytes")
    a, b, c, d = (k ^ constant for k, constant in zip((first, second, first, second), constants, strict=True))
    v = (a, b ^ (0xEE if len(ends) == 2 else 0), c, d)
    for word in words:
        v = (*v[:3], v[3] ^ word)
        for _ in range(c_rounds):
            v = round_of(*v)
        v = (v[0] ^ word, *v[1:])
    found = []
    for end in ends:
        v = (v[0], v[1] ^ end, *v[2:]) if found else (*v[:2], v[2] ^ end, v[3])
        for _ in range(d_rounds):
            v = round_of(*v)
        found.append(v[0] ^ v[1] ^ v[2] ^ v[3])
    return found


def bits(value):
    """Of a float; there is one zero."""
    return struct.unpack("<Q", struct.pack("<d", value + 0.0))[0]


def digest(text):
    """Of a person, as two words."""
    return struct.unpack("<2q", hashlib.blake2b(text.encode(), digest_size=16, person=b"fastdp person").digest())


def key_digest(key):
    """Of a key, a tuple of texts, whole numbers and None: the digest of its entries' digests, 16 bytes."""

    def of_entry(entry):
        person = b"fastdp missing" if entry is None else b"fastdp person"
        text = "" if entry is None else str(entry)
        return hashlib.blake2b(text.encode(), digest_size=16, person=person).digest()

    joined = b"".join(map(of_entry, key))
    return hashlib.blake2b(joined, digest_size=16, person=b"fastdp person").digest()


def word(key):
    """A key's input of the hash."""
    return int.from_bytes(key_digest(key)[:8], "little")


def sip_key(composition, purpose=b"rows"):
    """The key of the hashes of rows, or of persons' keys, from the secret of a composition (32 bytes)."""
    message = len(purpose).to_bytes(8, "big") + purpose
    derived = hashlib.blake2b(message, digest_size=32, key=composition, person=b"fastdp derive 1").digest()
    return struct.unpack("<2Q", derived[:16])


def row_hash(key, person, time, word, values, repeat):
    """The hash of a row: person (two words), instant, word of its key, values, number of the repeat."""
    found = sip(key, [*person, time, word, *map(bits, values)])
    return sip(key, [found, repeat]) if repeat else found


def kept(rows, most, per_window):
    """Places of the rows that count: of (group, window, what is equal of equal rows, hash of a repeat's number)."""
    groups = defaultdict(list)
    seen = defaultdict(int)
    for place, (group, window, equal, hash_of) in enumerate(rows):
        number = seen[group, equal]
        seen[group, equal] += 1
        groups[group].append((hash_of(number), place, window))
    found = set()
    for listed in groups.values():
        windows = defaultdict(list)
        for entry in sorted(listed):
            windows[entry[2]].append(entry)
        left = [entry for each in windows.values() for entry in each[:per_window]]
        found |= {place for _, place, _ in sorted(left)[:most]}
    return found
