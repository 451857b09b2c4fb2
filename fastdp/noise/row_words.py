"""Random words of many numbered streams in one call of the cipher.

Counter mode encrypts counters; here the counters of many streams are written out and encrypted at once, so that a
stream costs no cipher of its own where several share a key.  The words are those of
:class:`~fastdp.noise.words.WordStream`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from cryptography.hazmat.primitives.ciphers import CipherContext
from numpy.typing import NDArray

from fastdp.kinds import Indices
from fastdp.noise.key import Key
from fastdp.noise.words import (
    BLOCK_BITS,
    MAX_WORDS,
    StreamId,
    block_cipher,
    check_blocks,
    encrypt_blocks,
    note_counters,
)
from fastdp_kernels.noise import row_counters

#: The cipher wants this much room behind its output, though it fills whole blocks only.
_TAIL_WORDS = 2


class RowWords:
    """The leading words of the same few stream ids, for many streams: a row each.

    Parameters
    ----------
    keys : Key or sequence of Key
        The secrets of the streams, without a stream number: one for all, or several.
    pieces : sequence of (StreamId, int)
        Each id, its number 0, and how many of its words a row has; a row is one piece after another.
    owners : int64[n], optional
        Which key each row has, where there are several.  Rows of one key cost least side by side.
    """

    def __init__(
        self, keys: Key | Sequence[Key], pieces: Sequence[tuple[StreamId, int]], owners: Indices | None = None
    ) -> None:
        self.keys = (keys,) if isinstance(keys, Key) else tuple(keys)
        self.owners = owners
        self.pieces = tuple(pieces)
        self.width = sum(count for _, count in pieces)
        if max((count for _, count in pieces), default=0) > MAX_WORDS:
            raise OverflowError(f"pieces of up to {self.width} words: beyond the {MAX_WORDS} words of a stream")

    def fill(self, streams: Indices, numbers: Indices) -> NDArray[np.uint64]:
        """The words: uint64[n, width].

        Parameters
        ----------
        streams : int64[n]
            Numbers of the streams, as :meth:`Key.of_stream` takes them.
        numbers : int64[n]
            The number in each row's stream ids.
        """
        if not streams.size:
            return np.empty((0, self.width), np.uint64)
        ((_, words),) = self.parts(streams, numbers, streams.size)
        return words

    def parts(self, streams: Indices, numbers: Indices, size: int) -> Iterator[tuple[int, NDArray[np.uint64]]]:
        """What :meth:`fill` gives, ``size`` rows at a time: the first row, and words that the next ones overwrite."""
        n, size = streams.size, max(1, min(size, streams.size))
        common, columns = _layout(self.pieces)
        # Bytes are joined, so the machine's own order of bytes does not matter.
        names = _big_endian(numbers.astype(np.uint64))
        members = _big_endian((streams.astype(np.uint64) + np.uint64(1)) << np.uint64(BLOCK_BITS))
        counters: NDArray[np.uint64] = np.empty((size, common.size), np.uint64)
        words: NDArray[np.uint64] = np.empty(counters.size + _TAIL_WORDS, np.uint64)
        source, target = memoryview(counters.data).cast("B"), memoryview(words.data).cast("B")
        row_bytes, tail_bytes = common.nbytes, _TAIL_WORDS * words.itemsize
        encryptor: CipherContext | None = None
        before = -1
        for first in range(0, n, size):
            last = min(first + size, n)
            row_counters.write_counters(common, names[first:last], members[first:last], counters)
            for owner, begin, end in self._runs(first, last):
                key = self.keys[owner]
                left, right = (begin - first) * row_bytes, (end - first) * row_bytes
                if encryptor is None or owner != before:
                    encryptor, before = block_cipher(key.reveal(), right - left), owner
                if key.drawn is not None and left < right:
                    note_counters(key.drawn, key.reveal(), counters[begin - first : end - first], columns)
                encrypt_blocks(encryptor, source[left:right], target[left : right + tail_bytes])
                if key.drawn is not None and left < right:
                    check_blocks(key.reveal(), source[left:right], target[left:right])
            rows = words[: (last - first) * common.size].reshape(last - first, common.size)
            if not np.little_endian:
                rows.byteswap(inplace=True)
            # Not by an index: its result would lie column by column, where kernels go row by row.
            yield first, rows if columns is None else rows.take(columns, axis=1)

    def key_of(self, row: int, stream: int) -> Key:
        """The key of a row, with its stream's number."""
        return self.keys[0 if self.owners is None else int(self.owners[row])].of_stream(stream)

    def _runs(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Neighbouring rows of one key, in order: a run may write behind its end, where the next one begins."""
        if self.owners is None or len(self.keys) == 1:
            yield 0, first, last
            return
        owners = self.owners[first:last]
        borders = [first, *(np.flatnonzero(np.diff(owners)) + (first + 1)).tolist(), last]
        for begin, end in pairwise(borders):
            yield int(self.owners[begin]), begin, end

    def locate(self, column: int) -> tuple[StreamId, int]:
        """The stream id, its number 0, and the position in it that a column holds."""
        return located(self.pieces, column)


def located(pieces: tuple[tuple[StreamId, int], ...], column: int) -> tuple[StreamId, int]:
    """Which piece, and the position in it, one column of all holds."""
    for stream, count in pieces:
        if column < count:
            return stream, column
        column -= count
    raise IndexError(column)


def joined_words(key: Key, pieces: tuple[tuple[StreamId, int], ...], number: int) -> NDArray[np.uint64]:
    """The leading words of a few streams of one key, by one cipher, which costs more than some hundred words.

    Parameters
    ----------
    key : Key
        The secret, with its stream's number if it has one.
    pieces : tuple of (StreamId, int)
        As :class:`RowWords` takes them.
    number : int
        The number in the ids.
    """
    counters, columns = _layout(pieces)
    if number or key.member:
        first = pieces[0][0]
        name = first._replace(number=number).pack() ^ first.pack()
        own = _big_endian(np.array([name, key.member << BLOCK_BITS], np.uint64))
        counters = (counters.reshape(-1, 2) | own).reshape(-1)
    words: NDArray[np.uint64] = np.empty(counters.size + _TAIL_WORDS, np.uint64)
    cipher = block_cipher(key.reveal(), counters.nbytes)
    if key.drawn is not None:
        note_counters(key.drawn, key.reveal(), counters.reshape(1, -1), columns)
    encrypt_blocks(cipher, counters.data.cast("B"), words.data.cast("B"))
    if key.drawn is not None:
        check_blocks(key.reveal(), counters.data.cast("B"), words.data.cast("B")[: counters.nbytes])
    if not np.little_endian:
        words.byteswap(inplace=True)
    return words[: counters.size] if columns is None else words[columns]


def distinct_of(entries: Indices) -> tuple[Indices, Indices]:
    """The distinct entries, ascending, and which of them each entry is; mostly all are equal, which is fast."""
    if entries.size and (entries == entries[0]).all():
        return entries[:1], np.zeros(entries.size, np.int64)
    distinct, which = np.unique(entries, return_inverse=True)
    return distinct, which


@lru_cache(maxsize=8)
def _layout(pieces: tuple[tuple[StreamId, int], ...]) -> tuple[NDArray[np.uint64], Indices | None]:
    """Counters of a row, but for the stream's number: id and block number of each; and the words that are used."""
    blocks = [-(-count // 2) for _, count in pieces]
    counted = list(zip(pieces, blocks, strict=True))
    high = np.concatenate([np.full(size, stream.pack(), np.uint64) for (stream, _), size in counted])
    low = np.concatenate([np.arange(size, dtype=np.uint64) for size in blocks])
    # The second word of a piece's last block is not used where its count is odd.
    columns = np.flatnonzero(np.concatenate([np.arange(2 * size) < count for (_, count), size in counted]))
    common = _big_endian(np.stack([high, low], axis=1).reshape(-1))
    for array in (common, columns):
        array.flags.writeable = False
    return common, None if columns.size == common.size else columns


def _big_endian(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers whose bytes, in memory, are in the cipher's order."""
    return numbers.astype(">u8").view(np.uint64)
