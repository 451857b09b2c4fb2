"""BLAKE2b (RFC 7693) of many texts: 128 bits of each."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel

_IV = np.array(
    [
        *(0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1),
        *(0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179),
    ],
    np.uint64,
)
_SIGMA = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    ]
)
_ROUNDS, _BLOCK = 12, 128


@inline
def _right(x: np.uint64, bits: int) -> np.uint64:
    return (x >> np.uint64(bits)) | (x << np.uint64(64 - bits))


@inline
def _mix(v: np.ndarray, a: int, b: int, c: int, d: int, x: np.uint64, y: np.uint64) -> None:
    v[a] += v[b] + x
    v[d] = _right(v[d] ^ v[a], 32)
    v[c] += v[d]
    v[b] = _right(v[b] ^ v[c], 24)
    v[a] += v[b] + y
    v[d] = _right(v[d] ^ v[a], 16)
    v[c] += v[d]
    v[b] = _right(v[b] ^ v[c], 63)


@kernel
def digest_texts(start: np.ndarray, offsets: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    """128 bits of each text ``data[offsets[i]:offsets[i + 1]]`` into int64[n, 2].

    ``start``, uint64[8]: the parameter block for 16 bytes without a key.
    """
    h, v, m = np.empty(8, np.uint64), np.empty(16, np.uint64), np.empty(16, np.uint64)
    for n in range(offsets.size - 1):
        begin, length = offsets[n], offsets[n + 1] - offsets[n]
        h[:] = _IV ^ start
        done = 0
        while True:
            size = min(_BLOCK, length - done)
            m[:] = 0
            for i in range(size):
                m[i >> 3] |= np.uint64(data[begin + done + i]) << np.uint64(8 * (i & 7))
            done += size
            last = done == length
            v[:8], v[8:] = h, _IV
            v[12] ^= np.uint64(done)
            if last:
                v[14] = ~v[14]
            for r in range(_ROUNDS):
                s = _SIGMA[r % 10]
                for i in range(4):
                    _mix(v, i, i + 4, i + 8, i + 12, m[s[2 * i]], m[s[2 * i + 1]])
                for i in range(4):
                    _mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[s[8 + 2 * i]], m[s[9 + 2 * i]])
            for i in range(8):
                h[i] ^= v[i] ^ v[i + 8]
            if last:
                break
        out[n, 0], out[n, 1] = np.int64(h[0]), np.int64(h[1])
