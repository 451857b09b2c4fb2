"""Draw noise bound to exact sums of a stream or table, with AES (``docs/noise.md``, sections 1 and 2).

Source: Bellare, Guerin and Rogaway 1995 (XOR MACs); Black and Rogaway 2002 (PMAC).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from fastdp.kinds import Integers
from fastdp.noise.chain_keys import Chain, record
from fastdp.noise.key import DrawnTwiceError, Key
from fastdp.noise.sampler import Distribution, fill_noise
from fastdp.noise.words import Purpose, Words
from fastdp_kernels.noise import bound_sums

#: One key serves so many sums of a stream, of so many numbered streams; and so many windows of a table.
SUMS_OF_A_KEY, STREAMS_OF_A_KEY, WINDOWS_OF_A_KEY = 2**24, 2**8, 2**12
#: A draw that wants more has a probability below 2^-1000.
WORDS_OF_A_DRAW = 256
#: Sums whose noise is made at a time, and those that are few, for which memory is kept.
CHUNK, KEPT = 2**12, 2**6
#: The highest bits of a question about a key row: 01.  Of one about a sum: 00, of one about words: 1.
_ROW, _ROW_BITS = np.uint64(1 << 62), np.uint64(2)
#: Two words each, the lower one first.
Blocks = Words


class _Buffers:
    """Holds questions to the cipher and its answers."""

    def __init__(self, count: int) -> None:
        # The library requires a buffer of one block more.
        self.asked: Blocks = np.empty((count, 2), np.uint64)
        prefixes, words = np.empty((count + 1, 2), np.uint64), np.empty((count + 1, 2), np.uint64)
        self.prefixes: Blocks = prefixes[:-1]
        self.words: Blocks = words[:-1]
        source, middle, target = (array.data.cast("B") for array in (self.asked, prefixes, words))
        #: Arguments of a cipher's update_into.
        self.about_sums, self.about_words = (source, middle), (middle[: 16 * count], target)


class PrefixNoise:
    """Draws noise for a stream's sums, bound to all sums so far."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._serves = -1, -1
        self._cipher: CipherContext
        self._buffers = _Buffers(1)

    def draw(
        self, sums: Integers, distribution: Distribution, chain: Chain, first: int, member: int | None = None
    ) -> Integers:
        """Draw noise, int64[n], for sums from number `first` on of stream `member`; advance `chain`."""
        key, noise, begin = self._key, np.empty(sums.size, np.int64), 0
        stream_range = (key.member if member is None else member) // STREAMS_OF_A_KEY
        checked = key.drawn is not None or key.given is not None
        before = chain.copy() if checked else chain
        while begin < sums.size:
            number, offset = divmod(first + begin, SUMS_OF_A_KEY)
            if (stream_range, number) != self._serves:
                self._cipher, self._serves = _cipher(key, "prefix", stream_range, number), (stream_range, number)
            end = begin + CHUNK - offset % CHUNK
            chunk = sums[begin:end, None]
            buffers = self._buffers if len(chunk) == len(self._buffers.asked) else _Buffers(len(chunk))
            if len(chunk) <= KEPT:
                self._buffers = buffers
            bound_sums.ask(chunk, offset, buffers.asked)
            _ask(self._cipher, buffers.about_sums)
            bound_sums.follow(buffers.prefixes, chain)
            if checked:
                _check(buffers.prefixes)
            _ask(self._cipher, buffers.about_words)
            out = noise[begin:end]
            # The general way costs more than a few draws do.
            if len(chunk) > KEPT or not bound_sums.draw_few(buffers.words, distribution.constants, out):
                _draw(self._cipher, buffers, (distribution,), (out,))
            begin = end
        if checked:
            record(key, before, chain, sums.size)
            if key.given is not None:
                key.given.follow(before.tobytes(), chain, distribution, first, noise, sums)
        return noise


def draw_cell_noise(
    sums: Integers, distributions: Sequence[Distribution], key: Key, first: int, groups: Blocks
) -> Integers:
    """Draw noise, int64[n, W, K] in grid steps, for a table's exact sums of n statistics, W windows and K groups.

    It is bound to window (from number `first` on), group (a digest, uint64[2]) and the cell's n sums.
    """
    noise: Integers = np.empty_like(sums)
    _, windows, width = sums.shape
    if key.drawn is not None:
        for group in groups:
            name = hashlib.blake2b(group.tobytes(), digest_size=8, key=key.reveal()).hexdigest()
            key.drawn.add((key.reveal(), key.member, Purpose.CELL, name), first, first + windows)
    begin, served = 0, None
    while width and begin < windows:
        number, offset = divmod(first + begin, WINDOWS_OF_A_KEY)
        if number != served:
            cipher, served, named = _cipher(key, "cells", key.member, number), number, _Buffers(width)
            named.asked[:] = groups
            named.asked[:, 1] = groups[:, 1] >> _ROW_BITS | _ROW
            _ask(cipher, named.about_sums)
        end = min(windows, begin + max(1, CHUNK // width), begin + WINDOWS_OF_A_KEY - offset)
        for left in range(0, width, CHUNK):
            selection = np.s_[:, begin:end, left : left + CHUNK]
            exact = np.ascontiguousarray(sums[selection])
            prefixes = np.tile(named.prefixes[left : left + CHUNK], (end - begin, 1))
            buffers = _Buffers(len(prefixes))
            for i, statistic in enumerate(exact):
                bound_sums.ask(statistic, i * WINDOWS_OF_A_KEY + offset, buffers.asked)
                _ask(cipher, buffers.about_sums)
                prefixes ^= buffers.prefixes
            bound_sums.tag(prefixes, buffers.prefixes)
            if key.drawn is not None:
                _check(prefixes)
            _ask(cipher, buffers.about_words)
            drawn: Integers = np.empty((len(exact), len(prefixes)), np.int64)
            _draw(cipher, buffers, distributions, drawn)
            noise[selection] = drawn.reshape(exact.shape)
        begin = end
    if key.given is not None:
        key.given.cells(noise, distributions, key, first, sums)
    return noise


def _draw(
    cipher: CipherContext,
    buffers: _Buffers,
    distributions: Sequence[Distribution],
    noise: Sequence[Integers] | Integers,
) -> None:
    prefixes, answers = buffers.prefixes, buffers.words
    for i, distribution in enumerate(distributions):
        if i and not i % 2:
            answers = _outputs(cipher, prefixes, i // 2)

        def further(k: int, where: Integers, i: int = i) -> Words:
            if k >= WORDS_OF_A_DRAW:
                raise OverflowError(f"a draw wants more than {WORDS_OF_A_DRAW} words")
            output, half = divmod(k * len(distributions) + i, 2)
            return np.ascontiguousarray(_outputs(cipher, prefixes[where], output)[:, half])

        fill_noise(noise[i], distribution, np.ascontiguousarray(answers[:, i % 2]), further)


def _check(prefixes: Blocks) -> None:
    if len(np.unique(prefixes, axis=0)) < len(prefixes):
        raise DrawnTwiceError("two sums have the same words")


def _outputs(cipher: CipherContext, prefixes: Blocks, output: int) -> Blocks:
    """Words F(p xor output)."""
    buffers = _Buffers(len(prefixes))
    np.bitwise_xor(prefixes, np.array([output, 0], np.uint64), out=buffers.asked)
    _ask(cipher, buffers.about_sums)
    return buffers.prefixes


def _cipher(key: Key, *labels: str | int) -> CipherContext:
    # Every block is another question.
    return Cipher(algorithms.AES(key.within("bulk", *labels).reveal()), modes.ECB()).encryptor()  # noqa: S305


def _ask(cipher: CipherContext, blocks: tuple[memoryview, memoryview]) -> None:
    if np.little_endian:
        cipher.update_into(*blocks)
        return
    asked, answers = (np.frombuffer(block, np.uint64) for block in blocks)
    asked.byteswap(inplace=True)
    cipher.update_into(*blocks)
    for block in (asked, answers):
        block.byteswap(inplace=True)
