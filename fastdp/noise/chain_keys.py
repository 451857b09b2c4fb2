"""Chain keys bind noise to all sums or inputs so far.

Equal sums have equal noise, others independent noise from the first difference on (``docs/noise.md``, section 2).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Annotated, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastdp.kinds import Indices, Integers
from fastdp.noise import gaussian, sampler
from fastdp.noise.canonical import encode, tagged
from fastdp.noise.gaussian import GaussianDistribution
from fastdp.noise.key import KEY_BYTES, DrawnTwiceError, DrawnWords, Key, bound_digest
from fastdp.noise.sampler import Distribution
from fastdp.noise.words import Purpose, StreamId, Words
from fastdp.record import Checked
from fastdp_kernels.noise import chacha

Chain = Words
#: Words of a chain key.
CHAIN_WORDS = chacha.CHAIN
_START = StreamId(Purpose.CHAIN)


def theta_key(key: Key, theta_steps: int) -> Key:
    """Key of the noise under one threshold."""
    return key.within("theta", theta_steps)


@runtime_checkable
class BoundPerturber(Protocol):
    """Perturber of sums whose noise is bound to the sums so far."""

    def leaf_distribution(self, theta_steps: int, epsilon: float) -> Distribution | None: ...


def bound_distribution(perturber: object, theta_steps: int, epsilon: float) -> Distribution | None:
    """Distribution of bound noise; None for trees."""
    # By name: isinstance with a protocol costs more than a short chunk.
    if not hasattr(perturber, "leaf_distribution"):
        return None
    return cast("BoundPerturber", perturber).leaf_distribution(theta_steps, epsilon)


class BoundDistributions(dict[int, Distribution | None]):
    """Cache of :func:`bound_distribution` by theta in grid steps."""

    def __init__(self, perturber: object, epsilon: float) -> None:
        super().__init__()
        self._asked = perturber, epsilon

    def __missing__(self, theta_steps: int) -> Distribution | None:
        perturber, epsilon = self._asked
        distribution = self[theta_steps] = bound_distribution(perturber, theta_steps, epsilon)
        return distribution


def start_chain(key: Key) -> Chain:
    """Chain key before the first sum: uint64[4]."""
    chain: Chain = start_chains(key, words_of([key.reveal()]), np.array([key.member]))[0]
    if key.given is not None:
        key.given.begin(chain, key, _START)
    return chain


def start_chains(key: Key, secrets: Words, members: Integers) -> Chain:
    """Chain keys before the first sums, uint64[n, 4], by secret and stream number."""
    return _first_words(repeat(key.drawn) if key.drawn else (), secrets, members, _START, CHAIN_WORDS)


def _first_words(
    drawn: Iterable[DrawnWords | None], secrets: Words, members: Integers, stream: StreamId, count: int
) -> Words:
    """First words of `stream` by ChaCha20 for each secret and stream number: uint64[n, count]."""
    # No secret is a key of AES too (WordStream).
    name, words = stream.pack(), np.empty((len(secrets), count), np.uint64)
    for noted, secret, member in zip(drawn, secrets, members.tolist(), strict=False):
        if noted is not None:
            noted.add((secret.tobytes(), member, name), 0, count)
    chacha.begin_words(secrets, members, np.uint64(name), words)
    return words


def words_of(secrets: Sequence[bytes]) -> Words:
    """Secrets as words: uint64[n, 4]."""
    return np.frombuffer(b"".join(secrets), "<u8").astype(np.uint64).reshape(-1, CHAIN_WORDS)


# Streams with names, many at a time, without a Key each.


def named_secrets(key: Key, names: list[str], composition: bytes | None) -> Words:
    """Secrets of ``key.of_stream(name)``, bound to any composition: uint64[n, 4]."""
    secret, label = key.reveal(), encode("stream")
    secrets = [bound_digest(secret, tagged(b"l", label + encode(name))) for name in names]
    if composition is not None:
        secrets = [bound_digest(each, composition) for each in secrets]
    return words_of(secrets)


def key_of(key: Key, secret: Words, member: int) -> Key:
    """Key with one of these secrets."""
    return key._derived(secret.astype("<u8").tobytes(), member=member)


def theta_secrets(secrets: Words, theta_steps: Integers) -> Words:
    """Secrets of :func:`theta_key`: uint64[n, 4]."""
    messages = {steps: encode(("theta", steps)) for steps in set(theta_steps.tolist())}
    pairs = zip(secrets.astype("<u8"), theta_steps.tolist(), strict=True)
    return words_of([bound_digest(secret.tobytes(), messages[steps]) for secret, steps in pairs])


def record(key: Key, before: Chain, after: Chain, count: int) -> None:
    """Record that `count` sums drew between two chain keys; DrawnTwiceError if equal."""
    if key.drawn is not None and count:
        if np.array_equal(before, after):
            raise DrawnTwiceError(f"the chain key is the same behind {count} sums")
        # The chain key is secret, and errors show where words were drawn.
        name = hashlib.blake2b(before.tobytes(), digest_size=8, key=key.reveal()).hexdigest()
        key.drawn.add((key.reveal(), key.member, Purpose.CHAIN, name), 0, 1)


def word_of(chain: Chain, index: int, total: int, k: int) -> int:
    """Random word `k` for sum number `index`, whose value is `total`."""
    out: Chain = np.empty(2 * CHAIN_WORDS, np.uint64)
    output, offset = divmod(k, CHAIN_WORDS)
    chacha.further_words(chain, index, np.int64(total), output, out)
    return int(out[CHAIN_WORDS + offset])


def resolve(distribution: Distribution, key: Key, chain: Chain, index: int, total: int) -> int:
    """Draw one sum's noise in exact arithmetic."""
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
    """Key of a step's noise, bound to all inputs so far, and the next chain (hexadecimal)."""
    words = _step_digest(key.reveal(), bytes.fromhex(chain), step, *inputs)
    return key._derived(words[:KEY_BYTES]), words[KEY_BYTES:].hex()


def _step_digest(secret: bytes, chain: bytes, step: int, *inputs: NDArray[np.generic]) -> bytes:
    # Numbers and lengths first, so that no two lists of inputs are one message; the chain is empty at step 0 alone.
    sizes = [array.nbytes for array in inputs]
    header = struct.pack(f">{2 + len(sizes)}Q", step, len(sizes), *sizes)
    digest = hashlib.blake2b(header + chain, key=secret, person=b"fastdp step 1")
    for array in inputs:
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


class StepNoise:
    """Draws noise for steps of several streams by :func:`step_key`."""

    def __init__(self, keys: Sequence[Key]) -> None:
        #: Secret and chain of each stream's step; before the first, the key's own secret and no chain.
        self.keys, self._digests = keys, [key.reveal() for key in keys]

    def step(self, rows: Indices, step: int, *inputs: Integers) -> None:
        """Begin a step of the streams `rows`, each with a row of every input, int64[n, k]."""
        for i, *own in zip(rows.tolist(), *inputs, strict=True):
            self._digests[i] = _step_digest(self.keys[i].reveal(), self._digests[i][KEY_BYTES:], step, *own)

    def draws(self, rows: Indices, count: int, distribution: Distribution, stream: StreamId) -> Integers:
        """First draws of the streams `rows`: int64[n, count]."""
        out: Integers = np.empty((rows.size, count), np.int64)
        keys = [self.keys[i] for i in rows.tolist()]
        digests = [self._digests[i][:KEY_BYTES] for i in rows.tolist()]
        if keys and keys[0].given is not None:
            for own, key, digest in zip(out, keys, digests, strict=True):
                keys[0].given.fill(own, distribution, key._derived(digest), stream, 0)
            return out
        secrets, members = words_of(digests), np.array([key.member for key in keys], np.int64)

        def further(k: int, where: Integers) -> Words:
            of_row, place = np.divmod(where, count)
            few, own = np.unique(of_row, return_inverse=True)
            name = stream._replace(refinement=k)
            return _first_words((), secrets[few], members[few], name, int(place.max()) + 1)[own, place]

        words = _first_words([key.drawn for key in keys], secrets, members, stream, count)
        sampler.fill_noise(out.reshape(-1), distribution, words.reshape(-1), further)
        return out


def _check_chain(name: str, chain: object) -> object:
    if not isinstance(chain, str) or len(bytes.fromhex(chain)) not in (0, 32):
        raise ValueError(f"{name} out of range: a chain of another length")
    return chain


#: A chain of :func:`step_key`, as a field of a state.
StepChain = Annotated[str, Checked(_check_chain)]
