"""Chain keys, each derived from the sums or inputs before it, from which noise is drawn sum by sum or step by step.

A chain key starts from the publisher's key; each sum advances it and yields the words of its own noise.  The same
sums again have the same noise, others independent noise from the first difference on (``docs/noise.md``, section 2).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Annotated, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastdp.kinds import Indices, Integers
from fastdp.noise import gaussian, sampler
from fastdp.noise.canonical import encode, tagged
from fastdp.noise.gaussian import GaussianDistribution
from fastdp.noise.key import KEY_BYTES, DrawnTwiceError, Key, bound_digest
from fastdp.noise.sampler import Distribution
from fastdp.noise.words import BLOCK_BITS, Purpose, RowWords, StreamId, Words, WordStream
from fastdp.record import Checked
from fastdp_kernels._ciphers import HAS_AES
from fastdp_kernels.noise import aes, chacha

Chain = Words
#: Words of a chain key.
CHAIN_WORDS = chacha.CHAIN
#: From so many streams on their words are made together.
FEW = 8
_START = StreamId(Purpose.CHAIN)


def theta_key(key: Key, theta_steps: int) -> Key:
    """Key of the noise under one threshold."""
    return key.within("theta", theta_steps)


@runtime_checkable
class BoundPerturber(Protocol):
    """Perturber of independent sums, each released once, with noise bound to the sums so far."""

    def leaf_distribution(self, theta_steps: int, epsilon: float) -> Distribution | None: ...


def bound_distribution(perturber: object, theta_steps: int, epsilon: float) -> Distribution | None:
    """Distribution of bound noise; None for noise drawn in trees."""
    # By name: isinstance with a protocol costs more than a short chunk.
    if not hasattr(perturber, "leaf_distribution"):
        return None
    return cast("BoundPerturber", perturber).leaf_distribution(theta_steps, epsilon)


class BoundDistributions(dict[int, Distribution | None]):
    """Cache of :func:`bound_distribution`; the key is theta in grid steps."""

    def __init__(self, perturber: object, epsilon: float) -> None:
        super().__init__()
        self._asked = perturber, epsilon

    def __missing__(self, theta_steps: int) -> Distribution | None:
        perturber, epsilon = self._asked
        distribution = self[theta_steps] = bound_distribution(perturber, theta_steps, epsilon)
        return distribution


def start_chain(key: Key) -> Chain:
    """Chain key before the first sum: uint64[4]."""
    chain: Chain = np.empty(CHAIN_WORDS, np.uint64)
    WordStream(key, _START).fill(chain)
    if key.given is not None:
        key.given.begin(chain, key, _START)
    return chain


def start_chains(words: RowWords, streams: Integers) -> Chain:
    """Chain keys of numbered streams before their first sums, uint64[n, 4]; `words` has :data:`CHAIN_PIECES`."""
    chains = np.ascontiguousarray(words.fill(streams, np.zeros(streams.size, np.int64)))
    if words.keys[0].given is not None:
        for row, stream in enumerate(streams.tolist()):
            words.keys[0].given.begin(chains[row], words.key_of(row, stream), _START)
    return chains


#: Pieces of the words that :func:`start_chains` reads.
CHAIN_PIECES = ((_START, CHAIN_WORDS),)

# Chains of many streams with names, by the processor's AES: a cipher of the library takes 5 us for each.


def named_secrets(key: Key, names: list[str], composition: bytes | None) -> Words:
    """Secret of ``key.of_stream(name)``, bound to any composition, for each name: uint64[n, 4]."""
    secret, label = key.reveal(), encode("stream")
    secrets = [bound_digest(secret, tagged(b"l", label + encode(name))) for name in names]
    if composition is not None:
        secrets = [bound_digest(each, composition) for each in secrets]
    return np.frombuffer(b"".join(secrets), np.uint64).reshape(-1, CHAIN_WORDS)


def key_of(key: Key, secret: Words, member: int) -> Key:
    """Key with one of these secrets, in the place of `key`."""
    return key._derived(secret.tobytes(), member=member)


def named_chains(key: Key, secrets: Words, theta_steps: int) -> Chain:
    """:func:`start_chain` under each secret and one threshold; `key` records the words."""
    message = encode(("theta", theta_steps))
    derived = b"".join([bound_digest(secret.tobytes(), message) for secret in secrets])
    theta_secrets = np.frombuffer(derived, np.uint64).reshape(-1, CHAIN_WORDS)
    name = _START.pack()
    blocks = np.array([[name, block] for block in range(CHAIN_WORDS // 2)], ">u8").view(np.uint64)
    chains: Chain = np.empty((len(theta_secrets), CHAIN_WORDS // 2, 2), np.uint64)
    aes.encrypt_under(theta_secrets, np.zeros(len(theta_secrets), np.uint64), blocks, chains)
    if key.drawn is not None:
        for secret in theta_secrets:
            key.drawn.add((secret.tobytes(), 0, name), 0, CHAIN_WORDS)
    return chains.reshape(-1, CHAIN_WORDS)


def record(key: Key, before: Chain, after: Chain, count: int) -> None:
    """Record that `count` sums drew between two chain keys; DrawnTwiceError if equal."""
    if key.drawn is not None and count:
        if np.array_equal(before, after):
            raise DrawnTwiceError(f"the chain key is the same behind {count} sums")
        # The chain key is secret, and errors show where words were drawn.
        name = hashlib.blake2b(before.tobytes(), digest_size=8, key=key.reveal()).hexdigest()
        key.drawn.add((key.reveal(), key.member, Purpose.CHAIN, name), 0, 1)


def word_of(chain: Chain, index: int, total: int, k: int) -> int:
    """Random word `k` of the noise of sum number `index`, whose exact value is `total`."""
    out: Chain = np.empty(2 * CHAIN_WORDS, np.uint64)
    output, offset = divmod(k, CHAIN_WORDS)
    chacha.further_words(chain, index, np.int64(total), output, out)
    return int(out[CHAIN_WORDS + offset])


def resolve(distribution: Distribution, key: Key, chain: Chain, index: int, total: int) -> int:
    """Draw the noise of one sum, in grid steps, in exact arithmetic; `chain` does not advance."""
    if key.given is not None:
        return key.given.bound(total, distribution, chain, index)

    def word(k: int) -> int:
        return word_of(chain, index, total, k)

    return (
        gaussian.resolve(distribution, word)
        if isinstance(distribution, GaussianDistribution)
        else sampler.resolve(word(0), distribution, word)
    )


def step_key(key: Key, chain: str, step: int, *inputs: NDArray[np.generic]) -> tuple[Key, str]:
    """Key of a step's noise, bound to all inputs so far by BLAKE2b, and the next chain (hexadecimal)."""
    words = _step_digest(key.reveal(), bytes.fromhex(chain), step, *inputs)
    return key._derived(words[:KEY_BYTES]), words[KEY_BYTES:].hex()


def _step_digest(secret: bytes, chain: bytes, step: int, *inputs: NDArray[np.generic]) -> bytes:
    """Secret of a step's noise, and the next chain."""
    # Numbers and lengths first, so that no two lists of inputs are one message; the chain is empty at step 0 alone.
    sizes = [array.nbytes for array in inputs]
    header = struct.pack(f">{2 + len(sizes)}Q", step, len(sizes), *sizes)
    digest = hashlib.blake2b(header + chain, key=secret, person=b"fastdp step 1")
    for array in inputs:
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


class StepNoise:
    """Noise of the steps of several streams, under keys of :func:`step_key`, each bound to its stream's inputs."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self.keys, self._digests = keys, [b""] * len(keys)

    def step(self, rows: Indices, step: int, *inputs: Integers) -> None:
        """Go on to a step of the streams `rows`, with a row of each of the inputs, int64[n, k], for each."""
        for i, *own in zip(rows.tolist(), *inputs, strict=True):
            self._digests[i] = _step_digest(self.keys[i].reveal(), self._digests[i][KEY_BYTES:], step, *own)

    def draws(self, rows: Indices, count: int, distribution: Distribution, stream: StreamId) -> Integers:
        """First draws of each of the streams `rows` in its step: int64[n, count]."""
        out: Integers = np.empty((rows.size, count), np.int64)
        which: list[int] = rows.tolist()

        def key_of(row: int) -> Key:
            i = which[row]
            return self.keys[i]._derived(self._digests[i][:KEY_BYTES])

        if isinstance(distribution, GaussianDistribution):
            for row, own in enumerate(out):
                gaussian.fill(own, distribution, key_of(row), stream)
        elif len(which) < FEW or not HAS_AES or distribution.two_words or self.keys[which[0]].given is not None:
            for row, own in enumerate(out):
                sampler.fill(own, distribution, key_of(row), stream)
        else:
            sampler.fill_under(out, distribution, self._first_words(which, count, stream), key_of, stream)
        return out

    def _first_words(self, which: Sequence[int], count: int, stream: StreamId) -> Words:
        """Words that a stream id begins with under each step's key, uint64[n, count], by the processor's AES."""
        keys, name = [self.keys[i] for i in which], stream.pack()
        step_secrets = [self._digests[i][:KEY_BYTES] for i in which]
        for key, secret in zip(keys, step_secrets, strict=True):
            if key.drawn is not None:
                key.drawn.add((secret, key.member, name), 0, count)
        secrets = np.frombuffer(b"".join(step_secrets), np.uint64).reshape(-1, CHAIN_WORDS)
        members = np.array([key.member << BLOCK_BITS for key in keys], ">u8").view(np.uint64)
        blocks = np.array([[name, j] for j in range(-(-count // 2))], ">u8").view(np.uint64)
        words: Words = np.empty((len(keys), len(blocks), 2), np.uint64)
        aes.encrypt_under(secrets, members, blocks, words)
        return np.ascontiguousarray(words.reshape(len(keys), -1)[:, :count])


def _check_chain(name: str, chain: object) -> object:
    if not isinstance(chain, str) or len(bytes.fromhex(chain)) not in (0, 32):
        raise ValueError(f"{name} out of range: a chain of another length")
    return chain


#: A chain of :func:`step_key`, as a field of a state.
StepChain = Annotated[str, Checked(_check_chain)]
