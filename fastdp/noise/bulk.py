"""Noise that is bound to the exact sums that it protects, made by AES in bulk: for sums known beforehand.

F = AES-256 under a key of its own.  The number p of a sum, the xor of answers of F, stands for all that its noise is
bound to; its words are F(p), F(p xor 1), ...  Every sum has a question of its own to F, so that all of them are asked
at once: the next one's noise waits for none.

In a stream, sum k has p_k = p_(k-1) xor F(k, s_k), with p_0 from the chain key (:mod:`fastdp.noise.prefix`).  In
a table, the cell of key row d and window w has p = F(d) xor F((w, 1), s_1) xor ... xor F((w, n), s_n) with the sums
of its n statistics, whatever other cells there are.  Proof: ``docs/privacy.md``, section 13.

Source: Bellare, Guerin and Rogaway 1995 (XOR MACs); Black and Rogaway 2002 (PMAC).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from fastdp.data.kinds import Integers
from fastdp.noise.drawn_once import DrawnTwiceError
from fastdp.noise.key import Key
from fastdp.noise.noise import AnyLaw, fill_from
from fastdp.noise.prefix import Chain, record
from fastdp.noise.words import Purpose
from fastdp_kernels import bound_sums

#: One key serves so many sums of a stream, of so many numbered streams; and so many windows of a table.
SUMS_OF_A_KEY, STREAMS_OF_A_KEY, WINDOWS_OF_A_KEY = 2**24, 2**8, 2**12
#: A draw that wants more has a probability below 2^-1000.
WORDS_OF_A_DRAW = 256
#: Sums whose noise is made at a time, and those that are few, for which memory is kept.
CHUNK, KEPT = 2**12, 2**6
#: The highest bits of a question about a key row: 01.  Of one about a sum: 00, of one about words: 1.
_ROW, _ROW_BITS = np.uint64(1 << 62), np.uint64(2)
#: Two words each, the higher one behind.
Blocks = NDArray[np.uint64]


class _Room:
    """Memory for questions about sums, their answers, which become questions about words, and the words."""

    def __init__(self, count: int) -> None:
        # The library wants room for one block more.
        self.asked: Blocks = np.empty((count, 2), np.uint64)
        prefixes, words = np.empty((count + 1, 2), np.uint64), np.empty((count + 1, 2), np.uint64)
        self.prefixes: Blocks = prefixes[:-1]
        self.words: Blocks = words[:-1]
        source, middle, target = (each.data.cast("B") for each in (self.asked, prefixes, words))
        #: What a cipher's update_into takes.
        self.about_sums, self.about_words = (source, middle), (middle[: 16 * count], target)


class PrefixNoise:
    """Noise of a stream's sums, each bound to all up to its own, under the key of a composition."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._serves = -1, -1
        self._cipher: CipherContext
        self._room = _Room(1)

    def draw(self, sums: Integers, law: AnyLaw, chain: Chain, first: int, member: int | None = None) -> Integers:
        """Noise of sums that are known beforehand: int64[n].

        Parameters
        ----------
        sums : int64[n], C-contiguous
            Exact sums, in order.
        law : Law or GaussianLaw
            Of each; two-sided.
        chain : uint64[4]
            Begins with p; moved on in place.
        first : int
            Index of the first sum in its stream.
        member : int, optional
            Number of the stream, where it is not the key's.
        """
        key, noise, begin = self._key, np.empty(sums.size, np.int64), 0
        group = (key.member if member is None else member) // STREAMS_OF_A_KEY
        checked = key.drawn is not None or key.given is not None
        before = chain.copy() if checked else chain
        while begin < sums.size:
            number, place = divmod(first + begin, SUMS_OF_A_KEY)
            if (group, number) != self._serves:
                self._cipher, self._serves = _cipher(key, "prefix", group, number), (group, number)
            end = begin + CHUNK - place % CHUNK
            part = sums[begin:end, None]
            room = self._room if len(part) == len(self._room.asked) else _Room(len(part))
            if len(part) <= KEPT:
                self._room = room
            bound_sums.ask(part, place, room.asked)
            _ask(self._cipher, room.about_sums)
            bound_sums.follow(room.prefixes, chain)
            if checked:
                _check(room.prefixes)
            _ask(self._cipher, room.about_words)
            out = noise[begin:end]
            # The general way costs more than a few draws do.
            if len(part) > KEPT or not bound_sums.draw_few(room.words, law.constants, out):
                _draw(self._cipher, room, (law,), (out,))
            begin = end
        if checked:
            record(key, before, chain, sums.size)
            if key.given is not None:
                key.given.follow(before.tobytes(), chain, law, first, noise, sums)
        return noise


def draw_cells(sums: Integers, laws: Sequence[AnyLaw], key: Key, first: int, rows: Blocks) -> Integers:
    """Noise of a table's cells, each bound to its key row, its window and the sums of all its statistics.

    Parameters
    ----------
    sums : int64[n, W, K], C-contiguous
        Exact sums of each statistic.
    laws : sequence of Law or GaussianLaw
        Of each statistic.
    key : Key
        Of the composition, the statistics and their scales.
    first : int
        Number of the first window.
    rows : uint64[K, 2]
        Digests of the key rows.
    """
    noise: Integers = np.empty_like(sums)
    _, windows, width = sums.shape
    if key.drawn is not None:
        for row in rows:
            name = hashlib.blake2b(row.tobytes(), digest_size=8, key=key.reveal()).hexdigest()
            key.drawn.add((key.reveal(), key.member, Purpose.CELL, name), first, first + windows)
    begin, served = 0, None
    while width and begin < windows:
        number, place = divmod(first + begin, WINDOWS_OF_A_KEY)
        if number != served:
            cipher, served, named = _cipher(key, "cells", key.member, number), number, _Room(width)
            named.asked[:] = rows
            named.asked[:, 1] = rows[:, 1] >> _ROW_BITS | _ROW
            _ask(cipher, named.about_sums)
        end = min(windows, begin + max(1, CHUNK // width), begin + WINDOWS_OF_A_KEY - place)
        for left in range(0, width, CHUNK):
            part = np.s_[:, begin:end, left : left + CHUNK]
            exact = np.ascontiguousarray(sums[part])
            prefixes = np.tile(named.prefixes[left : left + CHUNK], (end - begin, 1))
            room = _Room(len(prefixes))
            for i, each in enumerate(exact):
                bound_sums.ask(each, i * WINDOWS_OF_A_KEY + place, room.asked)
                _ask(cipher, room.about_sums)
                prefixes ^= room.prefixes
            bound_sums.tag(prefixes, room.prefixes)
            if key.drawn is not None:
                _check(prefixes)
            _ask(cipher, room.about_words)
            drawn: Integers = np.empty((len(exact), len(prefixes)), np.int64)
            _draw(cipher, room, laws, drawn)
            noise[part] = drawn.reshape(exact.shape)
        begin = end
    if key.given is not None:
        key.given.cells(noise, laws, key, first, sums)
    return noise


def _draw(cipher: CipherContext, room: _Room, laws: Sequence[AnyLaw], noise: Sequence[Integers] | Integers) -> None:
    """Noise from the answers to each p; word j of statistic i is word j n + i of them."""
    prefixes, answers = room.prefixes, room.words
    for i, law in enumerate(laws):
        if i and not i % 2:
            answers = _outputs(cipher, prefixes, i // 2)

        def further(k: int, where: Integers, i: int = i) -> NDArray[np.uint64]:
            if k >= WORDS_OF_A_DRAW:
                raise OverflowError(f"a draw wants more than {WORDS_OF_A_DRAW} words")
            output, half = divmod(k * len(laws) + i, 2)
            return np.ascontiguousarray(_outputs(cipher, prefixes[where], output)[:, half])

        fill_from(noise[i], law, np.ascontiguousarray(answers[:, i % 2]), further)


def _check(prefixes: Blocks) -> None:
    if len(np.unique(prefixes, axis=0)) < len(prefixes):
        raise DrawnTwiceError("two sums have the same words")


def _outputs(cipher: CipherContext, prefixes: Blocks, output: int) -> Blocks:
    """F of each p xor a number."""
    room = _Room(len(prefixes))
    np.bitwise_xor(prefixes, np.array([output, 0], np.uint64), out=room.asked)
    _ask(cipher, room.about_sums)
    return room.prefixes


def _cipher(key: Key, *labels: str | int) -> CipherContext:
    # Every block is another question.
    return Cipher(algorithms.AES(key.within("bulk", *labels).reveal()), modes.ECB()).encryptor()  # noqa: S305


def _ask(cipher: CipherContext, blocks: tuple[memoryview, memoryview]) -> None:
    """F of each block, into other memory."""
    if np.little_endian:
        cipher.update_into(*blocks)
        return
    asked, answers = (np.frombuffer(each, np.uint64) for each in blocks)
    asked.byteswap(inplace=True)
    cipher.update_into(*blocks)
    for each in (asked, answers):
        each.byteswap(inplace=True)
