"""Random words: one AES-256-CTR key stream, cut by stream id.

Noise is a pure function of (key, stream id, position): the same whatever the chunking, the threads or
the scheduler, and the same again after a crash.  The 128-bit counter block is the stream id (64 bits)
followed by the stream's number among many (32 bits, 0 for a key without one) and the block number.  A stream ends
after 2^33 words, before its block number would run into the next stream's, so no two streams ever share a block.

Source: NIST SP 800-38A section 6.5 (CTR mode); ``docs/noise.md``.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from fastdp.noise.key import DrawnTwiceError, DrawnWords, Key
from fastdp_kernels._jit import processor_has
from fastdp_kernels.noise import binary_counter

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
    """What a stream of words is for; never renumber, saved streams depend on it."""

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
    """Names one independent stream of words under a key.

    Parameters
    ----------
    purpose : Purpose
        8 bits.
    level : int
        8 bits: the level of a tree.
    number : int
        40 bits: the number of the tree, task or counter.
    refinement : int
        8 bits: word i of refinement k holds the k-th further 64 bits of draw i.
    """

    purpose: Purpose
    level: int = 0
    number: int = 0
    refinement: int = 0

    def pack(self) -> int:
        """The 64-bit id."""
        if not (0 <= self.level < 1 << 8 and 0 <= self.refinement < 1 << 8 and 0 <= self.number < 1 << 40):
            raise OverflowError(f"stream id out of range: {self}")
        return self.purpose << 56 | self.refinement << 48 | self.level << 40 | self.number


class WordStream:
    """The words of one stream id, read in order.

    Parameters
    ----------
    key : Key
        The secret.
    stream : StreamId
        Which stream.
    start : int
        Position of the first word to read, up to 2^33.

    Raises
    ------
    OverflowError
        Before a word is read beyond the stream's 2^33, whatever the key.
    """

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

    def fill(self, out: NDArray[np.uint64]) -> None:
        """Overwrite ``out`` (uint64[n], little-endian words of the key stream) with the next n words."""
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
            part = raw[begin : begin + len(_ZEROS)]
            self._encryptor.update_into(_ZEROS[: len(part)], part)
        if self._drawn is not None and out.size:
            # This cipher counts by itself: its last word is compared with that of the counter that is noted.
            secret, member, name = self._where
            block, odd = divmod(MAX_WORDS - self._left - 1, 2)
            counter = (name << 64 | member << BLOCK_BITS | block).to_bytes(16, "big")
            check_block(secret, counter, raw[-8:], 8 * odd)
        if not np.little_endian:
            out.byteswap(inplace=True)


def block_cipher(secret: bytes, size: int) -> CipherContext:
    """AES of each block by itself, which of different counters is counter mode written out, for ``size`` bytes."""
    if WIDE and size >= MIN_XTS and xts_is_ecb():
        return _xts(secret)
    return Cipher(algorithms.AES(secret), modes.ECB()).encryptor()  # noqa: S305


def _xts(secret: bytes) -> CipherContext:
    return Cipher(algorithms.AES(secret + XTS_KEY), modes.XTS(XTS_TWEAK)).encryptor()


@cache
def xts_is_ecb() -> bool:
    """Whether this library has XTS, and encrypts a few blocks with it as the bare cipher does."""
    secret, blocks = bytes(range(32)), bytes(range(64))
    try:
        found = _xts(secret).update(blocks)
    except (UnsupportedAlgorithm, ValueError):
        return False
    return found == Cipher(algorithms.AES(secret), modes.ECB()).encryptor().update(blocks)  # noqa: S305


def encrypt_blocks(cipher: CipherContext, blocks: memoryview, out: memoryview) -> None:
    """Encrypt whole blocks by a :func:`block_cipher`, which asks for the room of one more in ``out``."""
    for begin in range(0, len(blocks), MAX_XTS):
        cipher.update_into(blocks[begin : begin + MAX_XTS], out[begin:])


def check_block(secret: bytes, counter: bytes | memoryview, words: memoryview, begin: int = 0) -> None:
    """DrawnTwiceError unless these bytes, from ``begin`` on, are the cipher's of this counter."""
    expected = Cipher(algorithms.AES(secret), modes.ECB()).encryptor().update(counter)  # noqa: S305
    if expected[begin : begin + len(words)] != words:
        raise DrawnTwiceError("words of the cipher are not those of the counters that were noted")


def check_blocks(secret: bytes, counters: memoryview, words: memoryview) -> None:
    """:func:`check_block` for a block in the middle, and the last one."""
    for begin in (len(counters) // 32 * 16, len(counters) - 16):
        check_block(secret, counters[begin : begin + 16], words[begin : begin + 16])


def note_counters(
    drawn: DrawnWords, secret: bytes, counters: NDArray[np.uint64], used: NDArray[np.int64] | None = None
) -> None:
    """Note the words that the cipher makes of counters, whatever they were meant to be.

    Parameters
    ----------
    drawn : DrawnWords
        The record.
    secret : bytes
        Of the cipher.
    counters : uint64[n, 2 k], C-contiguous
        Blocks of each row, their bytes as the cipher reads them.
    used : int64, optional
        Which of a row's 2 k words are handed out; by default all.
    """
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


def node_words(
    key: Key, stream: StreamId, seen: int, after: int, levels: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """One word for each node that values ``seen`` to ``after`` of a binary counter complete, by one cipher.

    A cipher of its own for each height costs more than a few hundred words.

    Parameters
    ----------
    key : Key
        The secret.
    stream : StreamId
        The stream of height 0; height j has level j.  Without refinement.
    seen, after : int
        Values counted before and after, at most 2^33.
    levels : int
        Heights of the tree.

    Returns
    -------
    words : uint64[any]
        Words of nodes, and a few between them that nothing may use.
    offsets : int64[levels]
        ``words[offsets[j] + k]`` is word k of height j, for ``seen >> j <= k < after >> j``.
    """
    if not 0 <= seen <= after <= MAX_WORDS:
        raise OverflowError(f"{after - seen} words from position {seen} of a stream: beyond its {MAX_WORDS} words")
    secret = key.reveal()
    counters: NDArray[np.uint64] = np.empty((after - seen + 2 * levels, 2), np.uint64)
    offsets: NDArray[np.int64] = np.empty(levels, np.int64)
    blocks = binary_counter.node_counters(seen, after, levels, stream.pack(), key.member, counters, offsets)
    # One block more: the cipher asks for room.
    words: NDArray[np.uint64] = np.empty(2 * blocks + 2, np.uint64)
    if not np.little_endian:
        counters.byteswap(inplace=True)
    source, target = counters.data.cast("B")[: 16 * blocks], words.data.cast("B")
    if key.drawn is not None and blocks:
        heights = enumerate(offsets.tolist())
        used = [np.arange(seen >> height, after >> height) + offset for height, offset in heights]
        note_counters(key.drawn, secret, counters[:blocks].reshape(1, -1), np.concatenate(used))
    encrypt_blocks(block_cipher(secret, 16 * blocks), source, target)
    if key.drawn is not None and blocks:
        check_blocks(secret, source, target)
    if not np.little_endian:
        words.byteswap(inplace=True)
    return words[: 2 * blocks], offsets


def word_at(key: Key, stream: StreamId, position: int) -> int:
    """One word of a stream, by position."""
    word = np.empty(1, np.uint64)
    WordStream(key, stream, position).fill(word)
    return int(word[0])


def words_at(key: Key, stream: StreamId, positions: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Some words of a stream, by position, in one call of the cipher."""
    if positions.size and int(positions[-1]) >= MAX_WORDS:
        raise OverflowError(f"position {positions[-1]} of a stream: beyond its {MAX_WORDS} words")
    counters: NDArray[np.uint64] = np.empty((positions.size, 2), ">u8")
    counters[:, 0] = stream.pack()
    counters[:, 1] = np.uint64(key.member << BLOCK_BITS) | (positions >> 1).astype(np.uint64)
    # Few: by the bare cipher, on every machine.
    cipher = Cipher(algorithms.AES(key.reveal()), modes.ECB())  # noqa: S305
    blocks = np.frombuffer(cipher.encryptor().update(counters.tobytes()), "<u8").reshape(-1, 2)
    words: NDArray[np.uint64] = blocks[np.arange(positions.size), positions & 1].astype(np.uint64)
    return words
