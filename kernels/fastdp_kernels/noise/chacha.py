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
from fastdp_kernels.noise.double_double import draw_refined
from fastdp_kernels.noise.guarded_log import DOUBTFUL, draw_one

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


@inline
def draw_words(word: np.uint64, further: np.uint64, law: np.ndarray) -> np.int64:
    """The draw of a block's first two words, from doubles, else from double-doubles and the second; or ``DOUBTFUL``.

    ``law`` is scale and offset, each as a double-double (float64[4]), or empty where the caller draws.
    """
    if not law.size:
        return DOUBTFUL
    drawn = draw_one(word, law[0], law[2])
    if drawn != DOUBTFUL:
        return drawn
    return draw_refined(word, further, True, law[0], law[1], law[2], law[3], np.uint64(1))
