"""ChaCha20's block function as a keyed function, for noise bound to the sums that it protects.

F(chain, index, total) is 64 bytes under a 256-bit chain key, with a block's index as counter and its exact sum as
nonce: the next chain key, and random words (``docs/noise.md``, section 2).  Source: RFC 8439 section 2.3; Bernstein
2008; Bellare, Canetti and Krawczyk 1996.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._ciphers import chacha_rounds
from fastdp_kernels._jit import inline, kernel
from fastdp_kernels.noise.double_double import draw_refined
from fastdp_kernels.noise.guarded_log import DOUBTFUL, draw_one

#: Words of a chain key, and of the random words that come with the next one.
CHAIN = 4
#: Low bits of the counter: which of several outputs for one block; its index is above them.
OUTPUT_BITS = 8
#: Of a counter of :func:`begin_words`: a stream's number from this bit on, the block's below.
MEMBER_BIT = 32


@inline
def block_words(chain: np.ndarray, index: int, total: np.int64, output: int) -> tuple[np.uint64, ...]:
    """F(chain, index, total): next chain key and four words; ``output`` > 0 gives further words."""
    counter = (np.uint64(index) << np.uint64(OUTPUT_BITS)) | np.uint64(output)
    return chacha_rounds(chain[0], chain[1], chain[2], chain[3], counter, np.uint64(total))


@kernel
def further_words(chain: np.ndarray, index: int, total: np.int64, output: int, out: np.ndarray) -> None:
    """:func:`block_words` for a doubtful draw, into uint64[8]; index below 2^56, output below 256."""
    words = block_words(chain, index, total, output)
    for i in range(2 * CHAIN):
        out[i] = words[i]


@kernel
def begin_words(secrets: np.ndarray, members: np.ndarray, name: np.uint64, out: np.ndarray) -> None:
    """First words, uint64[n, k], of stream ``name`` under secrets, uint64[n, 4], and stream numbers."""
    for i in range(out.shape[0]):
        own, first = secrets[i], np.uint64(members[i]) << np.uint64(MEMBER_BIT)
        for begin in range(0, out.shape[1], 2 * CHAIN):
            counter = first | np.uint64(begin // (2 * CHAIN))
            words = chacha_rounds(own[0], own[1], own[2], own[3], counter, name)
            part = out[i, begin : begin + 2 * CHAIN]
            for k in range(part.size):
                part[k] = words[k]


@inline
def draw_words(word: np.uint64, further: np.uint64, distribution: np.ndarray) -> np.int64:
    """Draw from two words by doubles, else double-doubles, else ``DOUBTFUL`` (as ``bound_sums.draw_few``)."""
    if not distribution.size:
        return DOUBTFUL
    drawn = draw_one(word, distribution[0], distribution[2])
    if drawn != DOUBTFUL:
        return drawn
    return draw_refined(
        word, further, True, distribution[0], distribution[1], distribution[2], distribution[3], np.uint64(1)
    )
