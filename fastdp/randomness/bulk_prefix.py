"""Noise that is bound to the prefix of sums that it protects, made by AES in bulk: for sums known beforehand.

With F = AES-256 under a key of its own and p_0 from the chain key, sum s_k has p_k = p_(k-1) xor F(k, s_k) and the
words F(p_k), F(p_k xor 1), ...  Every sum has a question of its own to F, so that all of them are asked at once; the
next one's noise waits for none.  What :mod:`fastdp.randomness.prefix` promises holds here too, but for q^2 / 2^128 of
probability for q questions.  Proof: ``docs/privacy.md``, section 13.

Source: Bellare, Guerin and Rogaway 1995 (XOR MACs); Black and Rogaway 2002 (PMAC).
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from fastdp.arrays.kinds import Integers
from fastdp.randomness import gaussian
from fastdp.randomness.gaussian import GaussianLaw
from fastdp.randomness.key import Key
from fastdp.randomness.prefix import CHUNK, Chain, record

#: So many sums have one key: 2^33 questions, and few more for doubtful draws.
SUMS_OF_A_KEY = 2**32
#: Blocks of 16 bytes, whatever the machine's order of bytes.
Blocks = NDArray[np.uint64]
_BLOCK = np.dtype("<u8")


def draw(sums: Integers, law: GaussianLaw, key: Key, theta_steps: int, chain: Chain, first: int) -> Integers:
    """Noise of sums that are known beforehand: int64[n].

    Parameters
    ----------
    sums : int64[n], C-contiguous
        Exact sums, in order.
    law : GaussianLaw
        Of each.
    key : Key
        Of the composition.
    theta_steps : int
        The threshold that the law is for.
    chain : uint64[4]
        Begins with p; moved on in place.
    first : int
        Index of the first sum in its stream.
    """
    noise: Integers = np.empty(sums.size, np.int64)
    begin, before = 0, chain.copy()
    while begin < sums.size:
        number, place = divmod(first + begin, SUMS_OF_A_KEY)
        secret = key.derive("bulk prefix", theta_steps, number).reveal()
        # Every block is another question.
        cipher = Cipher(algorithms.AES(secret), modes.ECB()).encryptor()  # noqa: S305
        end = min(sums.size, begin + SUMS_OF_A_KEY - place)
        for start in range(begin, end, CHUNK):
            part = slice(start, min(start + CHUNK, end))
            _draw(sums[part], law, cipher, chain, first + start, noise[part])
        begin = end
    record(key, before, chain, sums.size)
    if key.given is not None:
        key.given.follow(before.tobytes(), chain, law, first, noise, sums)
    return noise


def _draw(sums: Integers, law: GaussianLaw, cipher: CipherContext, chain: Chain, first: int, noise: Integers) -> None:
    asked: Blocks = np.empty((sums.size, 2), _BLOCK)
    asked[:, 0] = np.arange(first, first + sums.size)
    asked[:, 1] = sums.view(np.uint64)
    prefixes = _answers(cipher, asked)
    prefixes[0] ^= chain[:2]
    np.bitwise_xor.accumulate(prefixes, axis=0, out=prefixes)

    def further(k: int, where: Integers) -> NDArray[np.uint64]:
        output, half = divmod(k, 2)
        others = prefixes[where]
        others[:, 1] ^= np.uint64(output)
        return _answers(cipher, others)[:, half].astype(np.uint64)

    gaussian.fill_from(noise, law, _answers(cipher, prefixes)[:, 0].astype(np.uint64), further)
    chain[:2] = prefixes[-1]


def _answers(cipher: CipherContext, asked: Blocks) -> Blocks:
    """F of each block."""
    # The library wants room for one block more.
    answers: Blocks = np.empty((len(asked) + 1, 2), _BLOCK)
    cipher.update_into(asked.data.cast("B"), answers.data.cast("B"))
    return answers[:-1]
