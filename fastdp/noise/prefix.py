"""Noise that is bound to the prefix of sums that it protects, where a kernel draws as it goes.

A chain key starts from the publisher's key; each sum moves it on and gives the words of its own noise
(:mod:`fastdp_kernels.chacha`).  One run has the law of independent noise.  The same sums again have the same noise.
Other sums have independent noise from the first one that differs on.  Proof: ``docs/privacy.md``.

Sums that are known beforehand have a faster rule (:mod:`fastdp.noise.bulk`).
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
from numpy.typing import NDArray

from fastdp.data.kinds import Integers
from fastdp.noise import gaussian, sampler
from fastdp.noise.drawn_once import DrawnTwiceError
from fastdp.noise.gaussian import GaussianLaw
from fastdp.noise.key import KEY_BYTES, Key
from fastdp.noise.noise import AnyLaw
from fastdp.noise.row_words import RowWords
from fastdp.noise.words import Purpose, StreamId, WordStream
from fastdp_kernels import chacha

Chain = NDArray[np.uint64]
#: Words of a chain key.
CHAIN_WORDS = chacha.CHAIN
_START = StreamId(Purpose.CHAIN)


def start_chain(key: Key) -> Chain:
    """The chain key before the first sum: uint64[4]."""
    chain: Chain = np.empty(CHAIN_WORDS, np.uint64)
    WordStream(key, _START).fill(chain)
    if key.given is not None:
        key.given.begin(chain, key, _START)
    return chain


def start_chains(words: RowWords, streams: Integers) -> Chain:
    """The chain keys of many streams: uint64[n, 4]; ``words`` has the pieces of :data:`CHAIN_PIECES`."""
    chains = np.ascontiguousarray(words.fill(streams, np.zeros(streams.size, np.int64)))
    if words.keys[0].given is not None:
        for row, stream in enumerate(streams.tolist()):
            words.keys[0].given.begin(chains[row], words.key_of(row, stream), _START)
    return chains


#: What :func:`start_chains` reads.
CHAIN_PIECES = ((_START, CHAIN_WORDS),)


def record(key: Key, before: Chain, after: Chain, count: int) -> None:
    """Tell the check of words that so many sums took their noise between two chain keys; without the check nothing.

    A chain key gives noise once, for each sum moves it on.
    """
    if key.drawn is not None and count:
        if np.array_equal(before, after):
            raise DrawnTwiceError(f"the chain key is the same behind {count} sums")
        # The chain key is secret, and errors show where words were drawn.
        name = hashlib.blake2b(before.tobytes(), digest_size=8, key=key.reveal()).hexdigest()
        key.drawn.add((key.reveal(), key.member, Purpose.CHAIN, name), 0, 1)


def word_of(chain: Chain, index: int, total: int, k: int) -> int:
    """The k-th word of one sum's noise; the chain is not moved on."""
    out: Chain = np.empty(2 * CHAIN_WORDS, np.uint64)
    output, place = divmod(k, CHAIN_WORDS)
    chacha.further_words(chain, index, np.int64(total), output, out)
    return int(out[CHAIN_WORDS + place])


def settle(law: AnyLaw, key: Key, chain: Chain, index: int, total: int) -> int:
    """The draw for one sum in exact arithmetic; the chain is not moved on."""
    if key.given is not None:
        return key.given.bound(total, law, chain, index)

    def word(k: int) -> int:
        return word_of(chain, index, total, k)

    return gaussian.settle(law, word) if isinstance(law, GaussianLaw) else sampler.settle(word(0), law, word)


def step_key(key: Key, chain: str, step: int, *inputs: NDArray[np.generic]) -> tuple[Key, str]:
    """The key of one step's noise, bound to all inputs so far, and the chain after it.

    For mechanisms that draw much noise a step: keyed BLAKE2b takes the place of the block function.

    Parameters
    ----------
    key : Key
        The publisher's.
    chain : str
        What :func:`step_key` gave at the step before, in hexadecimal; empty at first.
    step : int
        Number of the step.
    inputs : arrays
        What the step consumes.
    """
    # Numbers and lengths first, so that no two lists of inputs are one message; the chain is empty at step 0 alone.
    sizes = [part.nbytes for part in inputs]
    header = struct.pack(f">{2 + len(sizes)}Q", step, len(sizes), *sizes)
    digest = hashlib.blake2b(header + bytes.fromhex(chain), key=key.reveal(), person=b"fastdp step 1")
    for part in inputs:
        digest.update(np.ascontiguousarray(part).data)
    words = digest.digest()
    return key._derived(words[:KEY_BYTES]), words[KEY_BYTES:].hex()


def check_chain(chain: str) -> None:
    """ValueError for what is no chain of :func:`step_key`."""
    if len(bytes.fromhex(chain)) not in (0, 32):
        raise ValueError("a chain of another length")
