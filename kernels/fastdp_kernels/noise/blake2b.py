"""BLAKE2b (RFC 7693) of many texts, eight at a time."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastdp_kernels._jit import inline, kernel

_IV = np.array(
    [
        *(0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1),
        *(0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179),
    ],
    np.uint64,
)
_SIGMA = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    (14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3),
    (11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4),
    (7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8),
    (9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13),
    (2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9),
    (12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11),
    (13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10),
    (6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5),
    (10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0),
)
_LANES, _BLOCK = 8, 128
_NONE, _ALL = np.uint64(0), ~np.uint64(0)

if TYPE_CHECKING:

    def compress(h: np.ndarray, m: np.ndarray, ends: np.ndarray) -> None:
        """Compress a block of each text: uint64[8, 8], [16, 8]; [2, 8]: bytes so far, and all ones at the last."""

else:
    from fastdp_kernels._jit import QUARTERS, rotated

    @intrinsic
    def compress(_typing: Any, _h: Any, _m: Any, _ends: Any) -> Any:
        """In LLVM's instructions."""
        rows = types.Array(types.uint64, 2, "C")

        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            row = ir.VectorType(ir.IntType(64), _LANES)

            def place(array: int, index: int) -> Any:
                data = context.make_array(rows)(context, builder, arguments[array]).data
                return builder.gep(builder.bitcast(data, row.as_pointer()), [ir.IntType(64)(index)])

            def load(array: int, index: int) -> Any:
                return builder.load(place(array, index), align=8)

            h = [load(0, i) for i in range(8)]
            m = [load(1, i) for i in range(16)]
            v = h + [ir.Constant(row, [word] * _LANES) for word in _IV.tolist()]
            for i in range(2):
                v[12 + 2 * i] = builder.xor(v[12 + 2 * i], load(2, i))
            for order in (*_SIGMA, *_SIGMA[:2]):
                words = iter(order)
                for a, b, c, d in QUARTERS:
                    for first, second in ((32, 24), (16, 63)):
                        v[a] = builder.add(builder.add(v[a], v[b]), m[next(words)])
                        v[d] = rotated(builder, builder.xor(v[d], v[a]), 64 - first)
                        v[c] = builder.add(v[c], v[d])
                        v[b] = rotated(builder, builder.xor(v[b], v[c]), 64 - second)
            for i in range(8):
                builder.store(builder.xor(h[i], builder.xor(v[i], v[i + 8])), place(0, i), align=8)
            return context.get_dummy_value()

        return types.none(rows, rows, rows), generate


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
    """First words of the digest of each head and text ``data[offsets[i]:offsets[i + 1]]``, uint64[n, words].

    Parameters
    ----------
    start : uint64[8]
        The parameter block.
    keys : uint64[n or 1 or 0, 4]
        Keys of 32 bytes: of each text, of all of them, or none.
    heads : uint8[n or 1, any]
        Bytes before each text, or before all.
    offsets, data : int64[n + 1], uint8[any]
        The texts.
    out : uint64[n, up to 8]
        Filled.
    """
    n, head, own = offsets.size - 1, heads.shape[1], np.int64(_BLOCK if len(keys) else 0)
    h, m, ends = np.empty((8, _LANES), np.uint64), np.empty((16, _LANES), np.uint64), np.empty((2, _LANES), np.uint64)
    for first in range(0, n, _LANES):
        for i in range(8):
            h[i] = _IV[i] ^ start[i]
        ends[:] = 0
        begin, left = 0, min(_LANES, n - first)
        while left:
            m[:] = 0
            for lane in range(min(_LANES, n - first)):
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
            for lane in range(min(_LANES, n - first)):
                if ends[1, lane]:
                    left -= 1
                    for i in range(out.shape[1]):
                        out[first + lane, i] = h[i, lane]
            begin += _BLOCK
