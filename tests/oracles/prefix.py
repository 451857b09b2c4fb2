"""Noise that is bound to the prefix of sums, naively: ChaCha20 on Python integers and the draw in 200 digits.

Sources: RFC 8439, sections 2.1 to 2.3; ``docs/noise.md`` for what counter and nonce are.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction

from tests.oracles import exact_noise

COLUMNS = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
DIAGONALS = [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]


def quarter_round(state: list[int], a: int, b: int, c: int, d: int) -> None:
    """Section 2.1, on four entries of the state."""
    for into, other, moved, left in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        state[into] = (state[into] + state[other]) % 2**32
        mixed = state[moved] ^ state[into]
        state[moved] = (mixed << left | mixed >> (32 - left)) % 2**32


def block(key: bytes, last: bytes) -> bytes:
    """Section 2.3: 64 bytes of a 32-byte key and 16 bytes of counter and nonce."""
    begin = list(struct.unpack("<16I", b"expand 32-byte k" + key + last))
    state = begin.copy()
    for _ in range(10):
        for entries in (*COLUMNS, *DIAGONALS):
            quarter_round(state, *entries)
    return struct.pack("<16I", *((x + y) % 2**32 for x, y in zip(state, begin, strict=True)))


def outputs(chain: bytes, index: int, total: int, output: int) -> tuple[bytes, tuple[int, ...]]:
    """The next chain key and four words, of the block with this index and exact sum."""
    raw = block(chain, struct.pack("<QQ", index << 8 | output, total % 2**64))
    return raw[:32], struct.unpack("<4Q", raw[32:])


@dataclass
class BoundNoise:
    """Discrete Laplace noise of sums as they come, each drawn from all sums up to its own."""

    chain: bytes
    scale: Fraction
    index: int = 0

    def __call__(self, total: int) -> int:
        """The noise of the next sum."""

        def word(k: int) -> int:
            return outputs(self.chain, self.index, total, k // 4)[1][k % 4]

        drawn = exact_noise.draw(word(0), word, self.scale, one_sided=False)
        self.chain, _ = outputs(self.chain, self.index, total, 0)
        self.index += 1
        return drawn
