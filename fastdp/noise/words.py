"""Random words of an AES-256-CTR key stream, by (key, stream id, position); ``docs/noise.md``, section 1.

Source: NIST SP 800-38A section 6.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from fastdp.kinds import Indices, Integers
from fastdp.noise.key import DrawnTwiceError, DrawnWords, Key
from fastdp_kernels._caching import processor_has
from fastdp_kernels.noise import binary_counter

#: Random words of 64 bits.
Words = NDArray[np.uint64]
#: Words produced at a time: 256 KiB stay in the second-level cache.
CHUNK = 32_768
#: Bits of a block's number below the number of a stream among many.
BLOCK_BITS = 32
#: Words of one stream: two a block.
MAX_WORDS = 2 << BLOCK_BITS
_ZEROS = memoryview(bytes(8 * CHUNK))
#: OpenSSL makes 64 bytes at a time in GCM and XTS, where the processor has the instructions, but 16 bytes in CTR and
#: ECB, which takes more than twice as long.
WIDE = processor_has("vaes", "vpclmulqdq", "avx512f")
#: GCM's key stream is that of CTR, but that it keeps the first two blocks of a stream for itself.
GCM_BEGIN = 32
#: Bytes from which on another cipher pays.
MIN_GCM = 2**15
#: XTS is ECB with masks on each block, before and after: multiples of the tweak encrypted under the second key.  This
#: tweak encrypts to zero, so all masks are zero.
XTS_KEY = b"fastdp: the second key of no use"
XTS_TWEAK = Cipher(algorithms.AES(XTS_KEY), modes.ECB()).decryptor().update(bytes(16))  # noqa: S305
#: Bytes from which on XTS pays, and the most of one call.
MIN_XTS, MAX_XTS = 2**14, 2**24


class Purpose(IntEnum):
    """Purpose of a stream; numbers must stay, because saved streams depend on them."""

    THRESHOLD = 1
    TREE = 2
    COUNTER = 3
    LAG = 4
    LOCAL = 5
    SPLIT = 6
    CELL = 7
    CHAIN = 8
    DRAWS = 255


class StreamId(NamedTuple):
    """Names one of a key's independent streams of words."""

    purpose: Purpose
    #: Of a tree, 8 bits.
    level: int = 0
    #: Of a tree, task or counter, 40 bits.
    number: int = 0
    #: k: these are the further words k, 8 bits.
    refinement: int = 0

    def pack(self) -> int:
        if not (0 <= self.level < 1 << 8 and 0 <= self.refinement < 1 << 8 and 0 <= self.number < 1 << 40):
            raise OverflowError(f"stream id out of range: {self}")
        return self.purpose << 56 | self.refinement << 48 | self.level << 40 | self.number


class WordStream:
    """A stream's words in order; OverflowError beyond 2^33."""

    def __init__(self, key: Key, stream: StreamId, start: int = 0) -> None:
        self._left = MAX_WORDS - start
        if not 0 <= start <= MAX_WORDS:
            raise self._beyond(0)
        # Further words of a draw belong to that draw, which is recorded.
        self._drawn = None if stream.refinement else key.drawn
        secret = key.reveal()
        self._where = (secret, key.member, stream.pack())
        block, odd = divmod(start, 2)
        counter = (stream.pack() << 64 | key.member << BLOCK_BITS | block).to_bytes(16, "big")
        cipher = Cipher(algorithms.AES(secret), modes.CTR(counter))
        self._encryptor: CipherContext = cipher.encryptor()
        if odd:
            self._encryptor.update(bytes(8))

    def _beyond(self, count: int) -> OverflowError:
        return OverflowError(
            f"{count} words from position {MAX_WORDS - self._left} of a stream: beyond its {MAX_WORDS} words "
            "(those that follow are another stream's)"
        )

    def fill(self, out: Words) -> None:
        if out.size > self._left:
            raise self._beyond(out.size)
        if self._drawn is not None:
            start = MAX_WORDS - self._left
            self._drawn.add(self._where, start, start + out.size)
        self._left -= out.size
        raw = memoryview(out.data).cast("B")
        first = 0
        if WIDE and len(raw) >= MIN_GCM and self._left + out.size == MAX_WORDS:
            first = GCM_BEGIN
            self._encryptor.update_into(_ZEROS[:first], raw[:first])
            secret, member, name = self._where
            nonce = (name << BLOCK_BITS | member).to_bytes(12, "big")
            self._encryptor = Cipher(algorithms.AES(secret), modes.GCM(nonce)).encryptor()
        for begin in range(first, len(raw), len(_ZEROS)):
            chunk = raw[begin : begin + len(_ZEROS)]
            self._encryptor.update_into(_ZEROS[: len(chunk)], chunk)
        if self._drawn is not None and out.size:
            # This cipher counts by itself: its last word is compared with that of the counter that is noted.
            secret, member, name = self._where
            block, odd = divmod(MAX_WORDS - self._left - 1, 2)
            counter = (name << 64 | member << BLOCK_BITS | block).to_bytes(16, "big")
            check_block(secret, counter, raw[-8:], 8 * odd)
        if not np.little_endian:
            out.byteswap(inplace=True)


def block_cipher(secret: bytes, size: int) -> CipherContext:
    """Encryptor of independent AES blocks, for `size` bytes."""
    if WIDE and size >= MIN_XTS and xts_is_ecb():
        return _xts(secret)
    return Cipher(algorithms.AES(secret), modes.ECB()).encryptor()  # noqa: S305


def _xts(secret: bytes) -> CipherContext:
    return Cipher(algorithms.AES(secret + XTS_KEY), modes.XTS(XTS_TWEAK)).encryptor()


@cache
def xts_is_ecb() -> bool:
    """True if XTS encrypts blocks as the bare cipher."""
    secret, blocks = bytes(range(32)), bytes(range(64))
    try:
        encrypted = _xts(secret).update(blocks)
    except (UnsupportedAlgorithm, ValueError):
        return False
    return encrypted == Cipher(algorithms.AES(secret), modes.ECB()).encryptor().update(blocks)  # noqa: S305


def encrypt_blocks(cipher: CipherContext, blocks: memoryview, out: memoryview) -> None:
    """Encrypt blocks into `out`, one block longer."""
    for begin in range(0, len(blocks), MAX_XTS):
        cipher.update_into(blocks[begin : begin + MAX_XTS], out[begin:])


def check_block(secret: bytes, counter: bytes | memoryview, words: memoryview, begin: int = 0) -> None:
    """DrawnTwiceError unless `words` are the cipher's bytes of `counter`."""
    expected = Cipher(algorithms.AES(secret), modes.ECB()).encryptor().update(counter)  # noqa: S305
    if expected[begin : begin + len(words)] != words:
        raise DrawnTwiceError("words of the cipher are not those of the counters that were noted")


def encrypt_noted(
    key: Key, cipher: CipherContext, counters: memoryview, out: memoryview, rows: int, used: Integers | None
) -> None:
    """Encrypt counters of `rows` equal rows; record the words if checked."""
    if key.drawn is not None and len(counters):
        noted = np.frombuffer(counters, np.uint64).reshape(rows, -1)
        note_counters(key.drawn, key.reveal(), noted, used)
    encrypt_blocks(cipher, counters, out)
    if key.drawn is not None and len(counters):
        # The middle block and the last one.
        for begin in (len(counters) // 32 * 16, len(counters) - 16):
            check_block(key.reveal(), counters[begin : begin + 16], out[begin : begin + 16])


def note_counters(drawn: DrawnWords, secret: bytes, counters: Words, used: Integers | None = None) -> None:
    """Record the words of counters, uint64[n, 2 k] in the cipher's byte order; `used`: those used of a row."""
    rows, width = counters.shape
    columns = np.arange(width) if used is None else used
    halves = counters.view(">u8").astype(np.uint64).reshape(rows, -1, 2)[:, columns >> 1].reshape(-1, 2)
    names, members = halves[:, 0], halves[:, 1] >> np.uint64(BLOCK_BITS)
    blocks = (halves[:, 1] & np.uint64(2**BLOCK_BITS - 1)).astype(np.int64)
    positions = 2 * blocks + np.tile(columns & 1, rows)
    breaks = (names[1:] != names[:-1]) | (members[1:] != members[:-1]) | (np.diff(positions) != 1)
    borders = [0, *(np.flatnonzero(breaks) + 1).tolist(), positions.size]
    for begin, end in pairwise(borders):
        if begin < end:
            where = secret, int(members[begin]), int(names[begin])
            drawn.add(where, int(positions[begin]), int(positions[end - 1]) + 1)


def node_words(key: Key, stream: StreamId, seen: int, after: int, levels: int) -> tuple[Words, Integers]:
    """First word of each node that values `seen` to `after` of a binary counter complete, and offsets."""
    if not 0 <= seen <= after <= MAX_WORDS:
        raise OverflowError(f"{after - seen} words from position {seen} of a stream: beyond its {MAX_WORDS} words")
    secret = key.reveal()
    counters: Words = np.empty((after - seen + 2 * levels, 2), np.uint64)
    offsets: Integers = np.empty(levels, np.int64)
    blocks = binary_counter.node_counters(seen, after, levels, stream.pack(), key.member, counters, offsets)
    # One block more: the cipher requires the space.
    words: Words = np.empty(2 * blocks + 2, np.uint64)
    if not np.little_endian:
        counters.byteswap(inplace=True)
    used = None
    if key.drawn is not None:
        heights = enumerate(offsets.tolist())
        used = np.concatenate([np.arange(seen >> height, after >> height) + offset for height, offset in heights])
    source, size = counters.data.cast("B")[: 16 * blocks], 16 * blocks
    encrypt_noted(key, block_cipher(secret, size), source, words.data.cast("B"), 1, used)
    if not np.little_endian:
        words.byteswap(inplace=True)
    return words[: 2 * blocks], offsets


def word_at(key: Key, stream: StreamId, position: int) -> int:
    """Return the word at `position` of a stream."""
    word = np.empty(1, np.uint64)
    WordStream(key, stream, position).fill(word)
    return int(word[0])


def words_at(key: Key, stream: StreamId, positions: Integers) -> Words:
    """Words at ascending `positions` of a stream."""
    if positions.size and int(positions[-1]) >= MAX_WORDS:
        raise OverflowError(f"position {positions[-1]} of a stream: beyond its {MAX_WORDS} words")
    counters: Words = np.empty((positions.size, 2), ">u8")
    counters[:, 0] = stream.pack()
    counters[:, 1] = np.uint64(key.member << BLOCK_BITS) | (positions >> 1).astype(np.uint64)
    # Few: by the bare cipher, on every machine.
    cipher = Cipher(algorithms.AES(key.reveal()), modes.ECB())  # noqa: S305
    blocks = np.frombuffer(cipher.encryptor().update(counters.tobytes()), "<u8").reshape(-1, 2)
    words: Words = blocks[np.arange(positions.size), positions & 1].astype(np.uint64)
    return words


# Words of many numbered streams in one call of the cipher.
#
# Counter mode encrypts counters; here the counters of many streams are written out and encrypted at once, so that a
# stream costs no cipher of its own where several share a key.  The words are those of :class:`WordStream`.

#: The cipher requires so many words of space after its output, though it fills complete blocks only.
_TAIL_WORDS = 2


class RowWords:
    """First words of a few stream ids for many streams: a row per stream, piece after piece.

    A piece is a stream id with number 0 and a count; `owners` are indices of the rows' keys.
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

    def fill(self, streams: Indices, numbers: Indices) -> Words:
        """Words of streams, uint64[n, width]; `numbers` enter the stream ids."""
        if not streams.size:
            return np.empty((0, self.width), np.uint64)
        ((_, words),) = self.parts(streams, numbers, streams.size)
        return words

    def parts(self, streams: Indices, numbers: Indices, size: int) -> Iterator[tuple[int, Words]]:
        n, size = streams.size, max(1, min(size, streams.size))
        common, columns = _layout(self.pieces)
        # Bytes are joined, so the machine's own order of bytes does not matter.
        names = _big_endian(numbers.astype(np.uint64))
        members = _big_endian((streams.astype(np.uint64) + np.uint64(1)) << np.uint64(BLOCK_BITS))
        counters: Words = np.empty((size, common.size), np.uint64)
        words: Words = np.empty(counters.size + _TAIL_WORDS, np.uint64)
        source, target = memoryview(counters.data).cast("B"), memoryview(words.data).cast("B")
        row_bytes, tail_bytes = common.nbytes, _TAIL_WORDS * words.itemsize
        encryptor: CipherContext | None = None
        before = -1
        for first in range(0, n, size):
            last = min(first + size, n)
            binary_counter.write_counters(common, names[first:last], members[first:last], counters)
            for owner, begin, end in self._runs(first, last):
                key = self.keys[owner]
                left, right = (begin - first) * row_bytes, (end - first) * row_bytes
                if encryptor is None or owner != before:
                    encryptor, before = block_cipher(key.reveal(), right - left), owner
                buffers = source[left:right], target[left : right + tail_bytes]
                encrypt_noted(key, encryptor, *buffers, end - begin, columns)
            rows = words[: (last - first) * common.size].reshape(last - first, common.size)
            if not np.little_endian:
                rows.byteswap(inplace=True)
            # Not by an index: its result would lie column by column, where kernels go row by row.
            yield first, rows if columns is None else rows.take(columns, axis=1)

    def key_of(self, row: int, stream: int) -> Key:
        return self.keys[0 if self.owners is None else int(self.owners[row])].of_stream(stream)

    def _runs(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Yield runs of rows with one key: its index, first row, end."""
        if self.owners is None or len(self.keys) == 1:
            yield 0, first, last
            return
        owners = self.owners[first:last]
        borders = [first, *(np.flatnonzero(np.diff(owners)) + (first + 1)).tolist(), last]
        for begin, end in pairwise(borders):
            yield int(self.owners[begin]), begin, end

    def locate(self, column: int) -> tuple[StreamId, int]:
        return located(self.pieces, column)


def located(pieces: tuple[tuple[StreamId, int], ...], column: int) -> tuple[StreamId, int]:
    """Stream id of word `column` of a row, and position in its piece."""
    for stream, count in pieces:
        if column < count:
            return stream, column
        column -= count
    raise IndexError(column)


def joined_words(key: Key, pieces: tuple[tuple[StreamId, int], ...], number: int) -> Words:
    """First words of a few streams of one key, by one cipher."""
    counters, columns = _layout(pieces)
    if number or key.member:
        first = pieces[0][0]
        name = first._replace(number=number).pack() ^ first.pack()
        stream_bits = _big_endian(np.array([name, key.member << BLOCK_BITS], np.uint64))
        counters = (counters.reshape(-1, 2) | stream_bits).reshape(-1)
    words: Words = np.empty(counters.size + _TAIL_WORDS, np.uint64)
    cipher = block_cipher(key.reveal(), counters.nbytes)
    encrypt_noted(key, cipher, counters.data.cast("B"), words.data.cast("B"), 1, columns)
    if not np.little_endian:
        words.byteswap(inplace=True)
    return words[: counters.size] if columns is None else words[columns]


def distinct_of(entries: Indices) -> tuple[Indices, Indices]:
    """Distinct entries, ascending, and each entry's index among them."""
    if entries.size and (entries == entries[0]).all():
        return entries[:1], np.zeros(entries.size, np.int64)
    distinct, which = np.unique(entries, return_inverse=True)
    return distinct, which


@lru_cache(maxsize=8)
def _layout(pieces: tuple[tuple[StreamId, int], ...]) -> tuple[Words, Indices | None]:
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


def _big_endian(numbers: Words) -> Words:
    return numbers.astype(">u8").view(np.uint64)
