"""BLAKE2b (RFC 7693) of many texts, eight at a time."""

from __future__ import annotations

import struct

import numpy as np

from fastdp_kernels._ciphers import IV, LANES, compress
from fastdp_kernels._jit import inline, kernel

_BLOCK = 128
_NONE, _ALL = np.uint64(0), ~np.uint64(0)


@inline
def _put(m: np.ndarray, lane: int, at: int, data: np.ndarray, begin: np.int64, end: np.int64) -> None:
    for i in range(begin, end):
        m[at >> 3, lane] |= np.uint64(data[i]) << np.uint64(8 * (at & 7))
        at += 1


def digests(
    size: int, person: bytes, keys: np.ndarray, heads: np.ndarray, offsets: np.ndarray, data: np.ndarray
) -> np.ndarray:
    """Digests of `size` bytes for a purpose, uint64[n, size / 8], as :func:`_digest`."""
    begin = struct.pack("<BBBBIQBB14x16s16s", size, 32 if len(keys) else 0, 1, 1, 0, 0, 0, 0, b"", person)
    given = [each.view() for each in (np.frombuffer(begin, np.uint64), keys, heads, offsets, data)]
    for each in given:
        # Of one type with arrays that cannot be written.
        each.flags.writeable = False
    out = np.empty((offsets.size - 1, size // 8), np.uint64)
    block, keys, heads, offsets, data = given
    _digest(block, keys, heads, offsets, data, out)
    return out


@kernel
def _digest(
    start: np.ndarray, keys: np.ndarray, heads: np.ndarray, offsets: np.ndarray, data: np.ndarray, out: np.ndarray
) -> None:
    """Digests of ``data[offsets[i]:offsets[i + 1]]`` behind heads, uint8[n or 1, any].

    ``keys``, uint64[n or 1 or 0, 4], are of each text, of all, or none.
    """
    n, head, own = offsets.size - 1, heads.shape[1], np.int64(_BLOCK if len(keys) else 0)
    h, m, ends = np.empty((8, LANES), np.uint64), np.empty((16, LANES), np.uint64), np.empty((2, LANES), np.uint64)
    for first in range(0, n, LANES):
        for i in range(8):
            h[i] = IV[i] ^ start[i]
        ends[:] = 0
        begin, left = 0, min(LANES, n - first)
        while left:
            m[:] = 0
            for lane in range(min(LANES, n - first)):
                row = first + lane
                before = own + head
                length = before + offsets[row + 1] - offsets[row]
                if begin < own:
                    for i in range(4):
                        m[i, lane] = keys[min(row, len(keys) - 1), i]
                elif begin < before:
                    _put(
                        m,
                        lane,
                        0,
                        heads[min(row, len(heads) - 1)],
                        np.int64(begin) - own,
                        np.int64(min(head, begin - own + _BLOCK)),
                    )
                at = max(before - begin, 0)
                if at < _BLOCK:
                    text = offsets[row] + begin + at - before
                    _put(m, lane, at, data, text, min(text + _BLOCK - at, offsets[row + 1]))
                ends[0, lane] = min(begin + _BLOCK, length)
                # Behind its last block a text's lane goes on, unread.
                ends[1, lane] = _ALL if begin < max(length, 1) <= begin + _BLOCK else _NONE
            compress(h, m, ends)
            for lane in range(min(LANES, n - first)):
                if ends[1, lane]:
                    left -= 1
                    for i in range(out.shape[1]):
                        out[first + lane, i] = h[i, lane]
            begin += _BLOCK
