"""The ChaCha20 block function as a keyed pseudorandom function, for noise that is bound to what it protects.

A block of a stream gets the words F(chain, index, total): 64 bytes of ChaCha20 under a 256-bit chain key, with the
block's index and its exact sum as counter and nonce.  Half of the output is the next chain key, the other half random
words for this block's noise.  So noise is a function of all sums so far, and a chain key shows no noise before it.

Source: RFC 8439 section 2.3 (the block function); Bernstein 2008 (64-bit counter and nonce); Bellare, Canetti and
Krawczyk 1996 (cascades of pseudorandom functions).  The proof is in ``docs/privacy.md``.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import chacha_rounds, inline, kernel
from fastdp_kernels.double_double import draw_refined
from fastdp_kernels.guarded_log import DOUBTFUL, draw_one

#: Words of a chain key, and of the random words that come with the next one.
CHAIN = 4
#: Low bits of the counter: which of several outputs for one block; its index is above them.
OUTPUT_BITS = 8


@inline
def block_words(chain: np.ndarray, index: int, total: np.int64, output: int) -> tuple[np.uint64, ...]:
    """F(chain, index, total): the next chain key and four random words.  ``output`` > 0 gives further words."""
    counter = (np.uint64(index) << np.uint64(OUTPUT_BITS)) | np.uint64(output)
    return chacha_rounds(chain[0], chain[1], chain[2], chain[3], counter, np.uint64(total))


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
    words = block_words(chain, index, total, output)
    for i in range(2 * CHAIN):
        out[i] = words[i]


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
        words = block_words(outputs[i], first + i, sums[i], 0)
        for k in range(2 * CHAIN):
            outputs[i + 1, k] = words[k]


@inline
def draw_words(word: np.uint64, further: np.uint64, law: np.ndarray) -> np.int64:
    """The draw of a block's first two words, from doubles, else from double-doubles and the second; or ``DOUBTFUL``.

    ``law`` is as :func:`draw_bound` takes it, or empty where the caller draws.
    """
    if not law.size:
        return DOUBTFUL
    drawn = draw_one(word, law[0], law[2])
    if drawn != DOUBTFUL:
        return drawn
    return draw_refined(word, further, True, law[0], law[1], law[2], law[3], np.uint64(1))


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
    for i in range(sums.size):
        words = block_words(chain, first + i, sums[i], 0)
        if i >= settled:
            drawn = draw_words(words[CHAIN], words[CHAIN + 1], law)
            if drawn == DOUBTFUL:
                return i
            noise[i] = drawn
        for k in range(CHAIN):
            chain[k] = words[k]
    return sums.size
