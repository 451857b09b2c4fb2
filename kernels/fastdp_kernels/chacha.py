"""The ChaCha20 block function as a keyed pseudorandom function, for noise that is bound to what it protects.

A block of a stream gets the words F(chain, index, total): 64 bytes of ChaCha20 under a 256-bit chain key, with the
block's index and its exact sum as counter and nonce.  Half of the output is the next chain key, the other half random
words for this block's noise.  So noise is a function of all sums so far, and a chain key shows no noise before it.

Source: RFC 8439 section 2.3 (the block function); Bernstein 2008 (64-bit counter and nonce); Bellare, Canetti and
Krawczyk 1996 (cascades of pseudorandom functions).  The proof is in ``docs/privacy.md``.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel
from fastdp_kernels.double_double import draw_double_double
from fastdp_kernels.guarded_log import DOUBTFUL, draw_one

#: "expand 32-byte k", little-endian.
C0, C1, C2, C3 = (np.uint32(int.from_bytes(b"expand 32-byte k"[i : i + 4], "little")) for i in (0, 4, 8, 12))
ROUNDS = 20
#: Words of a chain key, and of the random words that come with the next one.
CHAIN = 4
#: Low bits of the counter: which of several outputs for one block; its index is above them.
OUTPUT_BITS = 8
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@inline
def rotate(x: np.uint32, left: int) -> np.uint32:
    """The bits of x rotated to the left."""
    return np.uint32(x << np.uint32(left)) | np.uint32(x >> np.uint32(32 - left))


@inline
def quarter(a: np.uint32, b: np.uint32, c: np.uint32, d: np.uint32) -> tuple[np.uint32, ...]:
    """The quarter round."""
    a = np.uint32(a + b)
    d = rotate(np.uint32(d ^ a), 16)
    c = np.uint32(c + d)
    b = rotate(np.uint32(b ^ c), 12)
    a = np.uint32(a + b)
    d = rotate(np.uint32(d ^ a), 8)
    c = np.uint32(c + d)
    b = rotate(np.uint32(b ^ c), 7)
    return a, b, c, d


@inline
def low(word: np.uint64) -> np.uint32:
    """The lower half of a word."""
    return np.uint32(word & _LOW)


@inline
def high(word: np.uint64) -> np.uint32:
    """The upper half of a word."""
    return np.uint32(word >> _HALF)


@inline
def joined(lower: np.uint32, upper: np.uint32) -> np.uint64:
    """Two halves as a word."""
    return np.uint64(lower) | (np.uint64(upper) << _HALF)


@kernel
def chacha_block(key: np.ndarray, counter: np.uint64, nonce: np.uint64, out: np.ndarray) -> None:
    """64 bytes of ChaCha20.

    Parameters
    ----------
    key : uint64[4]
        256 bits, little-endian.
    counter, nonce : uint64
        The last four words of the state, little-endian.
    out : uint64[8]
        Receives the block.
    """
    k0, k1, k2, k3 = low(key[0]), high(key[0]), low(key[1]), high(key[1])
    k4, k5, k6, k7 = low(key[2]), high(key[2]), low(key[3]), high(key[3])
    n0, n1, n2, n3 = low(counter), high(counter), low(nonce), high(nonce)
    x0, x1, x2, x3 = C0, C1, C2, C3
    x4, x5, x6, x7, x8, x9, x10, x11 = k0, k1, k2, k3, k4, k5, k6, k7
    x12, x13, x14, x15 = n0, n1, n2, n3
    for _ in range(ROUNDS // 2):
        x0, x4, x8, x12 = quarter(x0, x4, x8, x12)
        x1, x5, x9, x13 = quarter(x1, x5, x9, x13)
        x2, x6, x10, x14 = quarter(x2, x6, x10, x14)
        x3, x7, x11, x15 = quarter(x3, x7, x11, x15)
        x0, x5, x10, x15 = quarter(x0, x5, x10, x15)
        x1, x6, x11, x12 = quarter(x1, x6, x11, x12)
        x2, x7, x8, x13 = quarter(x2, x7, x8, x13)
        x3, x4, x9, x14 = quarter(x3, x4, x9, x14)
    out[0] = joined(np.uint32(x0 + C0), np.uint32(x1 + C1))
    out[1] = joined(np.uint32(x2 + C2), np.uint32(x3 + C3))
    out[2] = joined(np.uint32(x4 + k0), np.uint32(x5 + k1))
    out[3] = joined(np.uint32(x6 + k2), np.uint32(x7 + k3))
    out[4] = joined(np.uint32(x8 + k4), np.uint32(x9 + k5))
    out[5] = joined(np.uint32(x10 + k6), np.uint32(x11 + k7))
    out[6] = joined(np.uint32(x12 + n0), np.uint32(x13 + n1))
    out[7] = joined(np.uint32(x14 + n2), np.uint32(x15 + n3))


@inline
def block_words(chain: np.ndarray, index: int, total: np.int64, output: int, out: np.ndarray) -> None:
    """F(chain, index, total): the next chain key and four random words.  ``output`` > 0 gives further words."""
    counter = (np.uint64(index) << np.uint64(OUTPUT_BITS)) | np.uint64(output)
    chacha_block(chain, counter, np.uint64(total), out)


@kernel
def further_words(chain: np.ndarray, index: int, total: np.int64, output: int, out: np.ndarray) -> None:
    """:func:`block_words` for callers that settle a doubtful draw.

    Parameters
    ----------
    chain : uint64[4]
        The chain key before the block.
    index, output : int
        Number of the block, below 2^56, and which of its outputs, below 256.
    total : int64
        The block's exact sum.
    out : uint64[8]
        Receives the output.
    """
    block_words(chain, index, total, output, out)


@kernel
def bound_words(sums: np.ndarray, first: int, outputs: np.ndarray) -> None:
    """The chain keys and words of sums that are known beforehand.

    Parameters
    ----------
    sums : int64[n]
        Exact sums.
    first : int
        Index of the first sum.
    outputs : uint64[n + 1, 8]
        Its first row begins with the chain key; row i + 1 receives the chain key behind sum i, and the sum's words.
    """
    for i in range(sums.size):
        block_words(outputs[i, :CHAIN], first + i, sums[i], 0, outputs[i + 1])


@inline
def draw_words(words: np.ndarray, law: np.ndarray, position: np.ndarray, drawn: np.ndarray) -> np.int64:
    """The draw that a block's words begin, from doubles, else from double-doubles and a second word; or ``DOUBTFUL``.

    ``law`` is as :func:`draw_bound` takes it, or empty where the caller draws; ``position`` and ``drawn`` are memory
    for one integer each.
    """
    if not law.size:
        return DOUBTFUL
    drawn[0] = draw_one(words[CHAIN], law[0], law[2])
    if drawn[0] != DOUBTFUL:
        return np.int64(drawn[0])
    position[0] = 0
    draw_double_double(
        words[CHAIN : CHAIN + 1],
        words[CHAIN + 1 : CHAIN + 2],
        law[0],
        law[1],
        law[2],
        law[3],
        np.uint64(1),
        position,
        position.size,
        drawn,
    )
    return np.int64(drawn[0])


@kernel
def draw_bound(
    sums: np.ndarray, chain: np.ndarray, first: int, law: np.ndarray, settled: int, noise: np.ndarray
) -> int:
    """Discrete Laplace noise of sums that are known beforehand, each bound to all up to its own.

    Parameters
    ----------
    sums : int64[n]
        Exact sums.
    chain : uint64[4]
        The chain key; moved on in place.
    first : int
        Index of the first sum.
    law : float64[4]
        Scale and offset of the law, each as a double-double.
    settled : int
        So many of the first entries of ``noise`` were settled by the caller.
    noise : int64[n]
        Receives the draws.

    Returns
    -------
    int
        How many draws are certain; the next one is doubtful, and the chain stands before it.
    """
    out = np.empty(2 * CHAIN, np.uint64)
    position, one = np.empty(1, np.int64), np.empty(1, np.int64)
    for i in range(sums.size):
        block_words(chain, first + i, sums[i], 0, out)
        if i >= settled:
            drawn = draw_words(out, law, position, one)
            if drawn == DOUBTFUL:
                return i
            noise[i] = drawn
        chain[:] = out[:CHAIN]
    return sums.size
