"""Noise bound to sums by AES, naively: whole numbers of 128 bits, one question at a time, the draw in 200 digits.

Source: ``docs/noise.md``, sections 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tests.oracles import exact_noise
from tests.oracles.persons import key_digest
from tests.oracles.words import within

WORD = 2**64
SUMS, STREAMS, WINDOWS = 2**24, 2**8, 2**12
#: The draw that a first word and further ones give.
Draw = Callable[[Callable[[int], int]], int]


def laplace(scale) -> Draw:
    """Discrete Laplace noise."""
    return lambda word: exact_noise.draw(word(0), word, scale, one_sided=False)


def answer(secret: bytes, asked: int) -> int:
    """F of one block."""
    cipher = Cipher(algorithms.AES(secret), modes.ECB()).encryptor()  # noqa: S305 - the bare cipher is the oracle
    return int.from_bytes(cipher.update(asked.to_bytes(16, "little")), "little")


def about_sum(secret: bytes, index: int, total: int) -> int:
    """The answer about one sum."""
    assert index < 2**62
    return answer(secret, index * WORD + total % WORD)


def word_of(secret: bytes, p: int, number: int) -> int:
    """One word of all that p has."""
    asked = (p | 2**127) ^ number // 2
    return answer(secret, asked) >> 64 * (number % 2) & (WORD - 1)


@dataclass
class PrefixNoise:
    """Noise of sums as they come, each drawn from all sums up to its own."""

    secret: bytes
    p: int
    draw: Draw
    index: int = 0
    member: int = 0

    def __call__(self, total: int) -> int:
        """The noise of the next sum."""
        number, place = divmod(self.index, SUMS)
        own = within(self.secret, "bulk", "prefix", self.member // STREAMS, number)
        self.p ^= about_sum(own, place, total)
        self.index += 1
        return self.draw(partial(word_of, own, self.p))


def row_digest(row) -> int:
    """128 bits of a key row."""
    return int.from_bytes(key_digest(row), "little")


def cell(secret: bytes, window: int, row, sums: list[int], draws: list[Draw], member: int = 0) -> list[int]:
    """The noise of one cell's sums; ``secret`` is that of the statistics."""
    number, place = divmod(window, WINDOWS)
    own = within(secret, "bulk", "cells", member, number)
    digest = row_digest(row)
    # The last two bits of the digest's upper half go, and 01 stands above it.
    p = answer(own, (digest // WORD // 4 + 2**62) * WORD + digest % WORD)
    for i, total in enumerate(sums):
        p ^= about_sum(own, i * WINDOWS + place, total)

    def word(i: int, j: int) -> int:
        return word_of(own, p, j * len(sums) + i)

    return [draw(partial(word, i)) for i, draw in enumerate(draws)]
