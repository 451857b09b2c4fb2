"""Noise bound to the exact sums that it protects: by a chain, sum by sum; by AES in bulk; from a table in audits.

In bulk, F is AES-256 under a key of its own; a sum has a number p and words F(p), F(p xor 1), ... In a stream, p_k =
p_(k-1) xor F(k, s_k), p_0 from the chain key.  In a table, key row d and window w have p = F(d) xor F((w, 1), s_1)
xor ... (``docs/noise.md``, section 2).

Source: Bellare, Guerin and Rogaway 1995 (XOR MACs); Black and Rogaway 2002 (PMAC).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self, cast, runtime_checkable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from fastdp.kinds import Integers
from fastdp.noise import gaussian, sampler
from fastdp.noise.canonical import encode
from fastdp.noise.gaussian import GaussianDistribution
from fastdp.noise.key import KEY_BYTES, DrawnTwiceError, Key
from fastdp.noise.sampler import Distribution, fill_noise
from fastdp.noise.words import Purpose, RowWords, StreamId, Words, WordStream
from fastdp.record import put
from fastdp_kernels.noise import aes, blake2b, bound_sums, chacha

# Noise bound to the prefix of sums that it protects, drawn by a kernel sum by sum.
#
# A chain key starts from the publisher's key; each sum advances it and yields the words of its own noise
# (``chacha``).  One run has the distribution of independent noise.  The same sums again have the same
# noise. Other sums have independent noise from the first difference on.  Proof: ``docs/noise.md``, section 2.

Chain = Words
#: Words of a chain key.
CHAIN_WORDS = chacha.CHAIN
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
    """:func:`bound_distribution` by theta in grid steps, cached."""

    def __init__(self, perturber: object, epsilon: float) -> None:
        super().__init__()
        self._asked = perturber, epsilon

    def __missing__(self, theta_steps: int) -> Distribution | None:
        perturber, epsilon = self._asked
        found = self[theta_steps] = bound_distribution(perturber, theta_steps, epsilon)
        return found


def start_chain(key: Key) -> Chain:
    """Chain key before the first sum: uint64[4]."""
    chain: Chain = np.empty(CHAIN_WORDS, np.uint64)
    WordStream(key, _START).fill(chain)
    if key.given is not None:
        key.given.begin(chain, key, _START)
    return chain


def start_chains(words: RowWords, streams: Integers) -> Chain:
    """Chain keys of streams, uint64[n, 4], from the pieces :data:`CHAIN_PIECES`."""
    chains = np.ascontiguousarray(words.fill(streams, np.zeros(streams.size, np.int64)))
    if words.keys[0].given is not None:
        for row, stream in enumerate(streams.tolist()):
            words.keys[0].given.begin(chains[row], words.key_of(row, stream), _START)
    return chains


#: Pieces of the words that :func:`start_chains` reads.
CHAIN_PIECES = ((_START, CHAIN_WORDS),)

# Chains of many streams with names, in compiled code, where the processor has AES.


def named_secrets(secret: Key, names: list[str]) -> Words:
    """Secrets of ``secret.of_stream(name)``, uint64[n, 4]."""
    joined, head = "".join(names), np.frombuffer(encode(("stream", "")), np.uint8)
    texts: Sequence[str | bytes] = names if joined.isascii() else [each.encode() for each in names]
    sizes = np.fromiter(map(len, texts), np.int64, len(names))
    heads = np.tile(head, (sizes.size, 1))
    # The sizes of the list and of the name in it.
    for at, size in ((1, sizes + (head.size - 9)), (head.size - 8, sizes)):
        heads[:, at : at + 8] = size.astype(">i8").view(np.uint8).reshape(-1, 8)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return _digested(np.frombuffer(secret.reveal(), np.uint64)[None], heads, ends, joined.encode())


def later_secrets(secrets: Words, message: bytes) -> Words:
    """Secrets of ``Key._digest(message)`` under each."""
    return _digested(secrets, np.frombuffer(message, np.uint8)[None], np.zeros(len(secrets) + 1, np.int64), b"")


def _digested(keys: Words, heads: NDArray[np.uint8], ends: Integers, data: bytes) -> Words:
    texts = np.frombuffer(data or b"\0", np.uint8)
    found: Words = blake2b.digests(KEY_BYTES, b"fastdp bind 1", keys, heads, ends, texts)
    return found


def named_chains(key: Key, secrets: Words, theta_steps: int) -> Chain:
    """:func:`start_chain` under each secret and one threshold; `key` records the words."""
    own = later_secrets(secrets, encode(("theta", theta_steps)))
    name = _START.pack()
    blocks = np.array([[name, block] for block in range(CHAIN_WORDS // 2)], ">u8").view(np.uint64)
    chains: Chain = np.empty((len(own), CHAIN_WORDS // 2, 2), np.uint64)
    aes.encrypt_under(own, blocks, chains)
    if key.drawn is not None:
        for each in own:
            key.drawn.add((each.tobytes(), 0, name), 0, CHAIN_WORDS)
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
    """Word `k` of one sum's noise."""
    out: Chain = np.empty(2 * CHAIN_WORDS, np.uint64)
    output, place = divmod(k, CHAIN_WORDS)
    chacha.further_words(chain, index, np.int64(total), output, out)
    return int(out[CHAIN_WORDS + place])


def resolve(distribution: Distribution, key: Key, chain: Chain, index: int, total: int) -> int:
    """Draw for one sum in exact arithmetic; `chain` stays."""
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
    # Numbers and lengths first, so that no two lists of inputs are one message; the chain is empty at step 0 alone.
    sizes = [part.nbytes for part in inputs]
    header = struct.pack(f">{2 + len(sizes)}Q", step, len(sizes), *sizes)
    digest = hashlib.blake2b(header + bytes.fromhex(chain), key=key.reveal(), person=b"fastdp step 1")
    for part in inputs:
        digest.update(np.ascontiguousarray(part).data)
    words = digest.digest()
    return key._derived(words[:KEY_BYTES]), words[KEY_BYTES:].hex()


def check_chain(chain: str) -> None:
    """ValueError unless `chain` is a chain of :func:`step_key`."""
    if len(bytes.fromhex(chain)) not in (0, 32):
        raise ValueError("a chain of another length")


#: One key serves so many sums of a stream, of so many numbered streams; and so many windows of a table.
SUMS_OF_A_KEY, STREAMS_OF_A_KEY, WINDOWS_OF_A_KEY = 2**24, 2**8, 2**12
#: A draw that wants more has a probability below 2^-1000.
WORDS_OF_A_DRAW = 256
#: Sums whose noise is made at a time, and those that are few, for which memory is kept.
CHUNK, KEPT = 2**12, 2**6
#: The highest bits of a question about a key row: 01.  Of one about a sum: 00, of one about words: 1.
_ROW, _ROW_BITS = np.uint64(1 << 62), np.uint64(2)
#: Two words each, the lower one first.
Blocks = Words


class _Buffers:
    def __init__(self, count: int) -> None:
        # The library requires a buffer of one block more.
        self.asked: Blocks = np.empty((count, 2), np.uint64)
        prefixes, words = np.empty((count + 1, 2), np.uint64), np.empty((count + 1, 2), np.uint64)
        self.prefixes: Blocks = prefixes[:-1]
        self.words: Blocks = words[:-1]
        source, middle, target = (each.data.cast("B") for each in (self.asked, prefixes, words))
        #: Arguments of a cipher's update_into.
        self.about_sums, self.about_words = (source, middle), (middle[: 16 * count], target)


class PrefixNoise:
    """Noise of a stream's sums, each bound to all up to its own."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._serves = -1, -1
        self._cipher: CipherContext
        self._buffers = _Buffers(1)

    def draw(
        self, sums: Integers, distribution: Distribution, chain: Chain, first: int, member: int | None = None
    ) -> Integers:
        """Noise of sums known beforehand (int64[n]), from the `first` in the stream; advances `chain`.

        `member` overrides the key's stream number.
        """
        key, noise, begin = self._key, np.empty(sums.size, np.int64), 0
        group = (key.member if member is None else member) // STREAMS_OF_A_KEY
        checked = key.drawn is not None or key.given is not None
        before = chain.copy() if checked else chain
        while begin < sums.size:
            number, place = divmod(first + begin, SUMS_OF_A_KEY)
            if (group, number) != self._serves:
                self._cipher, self._serves = _cipher(key, "prefix", group, number), (group, number)
            end = begin + CHUNK - place % CHUNK
            part = sums[begin:end, None]
            buffers = self._buffers if len(part) == len(self._buffers.asked) else _Buffers(len(part))
            if len(part) <= KEPT:
                self._buffers = buffers
            bound_sums.ask(part, place, buffers.asked)
            _ask(self._cipher, buffers.about_sums)
            bound_sums.follow(buffers.prefixes, chain)
            if checked:
                _check(buffers.prefixes)
            _ask(self._cipher, buffers.about_words)
            out = noise[begin:end]
            # The general way costs more than a few draws do.
            if len(part) > KEPT or not bound_sums.draw_few(buffers.words, distribution.constants, out):
                _draw(self._cipher, buffers, (distribution,), (out,))
            begin = end
        if checked:
            record(key, before, chain, sums.size)
            if key.given is not None:
                key.given.follow(before.tobytes(), chain, distribution, first, noise, sums)
        return noise


def draw_cells(sums: Integers, distributions: Sequence[Distribution], key: Key, first: int, rows: Blocks) -> Integers:
    """Noise of a table's cells, int64[n, W, K], each bound to its key row, window and sums.

    `sums`: int64[n, W, K]; one distribution per statistic; `first`: first window; `rows`: digests, uint64[K, 2].
    """
    noise: Integers = np.empty_like(sums)
    _, windows, width = sums.shape
    if key.drawn is not None:
        for row in rows:
            name = hashlib.blake2b(row.tobytes(), digest_size=8, key=key.reveal()).hexdigest()
            key.drawn.add((key.reveal(), key.member, Purpose.CELL, name), first, first + windows)
    begin, served = 0, None
    while width and begin < windows:
        number, place = divmod(first + begin, WINDOWS_OF_A_KEY)
        if number != served:
            cipher, served, named = _cipher(key, "cells", key.member, number), number, _Buffers(width)
            named.asked[:] = rows
            named.asked[:, 1] = rows[:, 1] >> _ROW_BITS | _ROW
            _ask(cipher, named.about_sums)
        end = min(windows, begin + max(1, CHUNK // width), begin + WINDOWS_OF_A_KEY - place)
        for left in range(0, width, CHUNK):
            part = np.s_[:, begin:end, left : left + CHUNK]
            exact = np.ascontiguousarray(sums[part])
            prefixes = np.tile(named.prefixes[left : left + CHUNK], (end - begin, 1))
            buffers = _Buffers(len(prefixes))
            for i, each in enumerate(exact):
                bound_sums.ask(each, i * WINDOWS_OF_A_KEY + place, buffers.asked)
                _ask(cipher, buffers.about_sums)
                prefixes ^= buffers.prefixes
            bound_sums.tag(prefixes, buffers.prefixes)
            if key.drawn is not None:
                _check(prefixes)
            _ask(cipher, buffers.about_words)
            drawn: Integers = np.empty((len(exact), len(prefixes)), np.int64)
            _draw(cipher, buffers, distributions, drawn)
            noise[part] = drawn.reshape(exact.shape)
        begin = end
    if key.given is not None:
        key.given.cells(noise, distributions, key, first, sums)
    return noise


def _draw(
    cipher: CipherContext,
    buffers: _Buffers,
    distributions: Sequence[Distribution],
    noise: Sequence[Integers] | Integers,
) -> None:
    prefixes, answers = buffers.prefixes, buffers.words
    for i, distribution in enumerate(distributions):
        if i and not i % 2:
            answers = _outputs(cipher, prefixes, i // 2)

        def further(k: int, where: Integers, i: int = i) -> Words:
            if k >= WORDS_OF_A_DRAW:
                raise OverflowError(f"a draw wants more than {WORDS_OF_A_DRAW} words")
            output, half = divmod(k * len(distributions) + i, 2)
            return np.ascontiguousarray(_outputs(cipher, prefixes[where], output)[:, half])

        fill_noise(noise[i], distribution, np.ascontiguousarray(answers[:, i % 2]), further)


def _check(prefixes: Blocks) -> None:
    if len(np.unique(prefixes, axis=0)) < len(prefixes):
        raise DrawnTwiceError("two sums have the same words")


def _outputs(cipher: CipherContext, prefixes: Blocks, output: int) -> Blocks:
    buffers = _Buffers(len(prefixes))
    np.bitwise_xor(prefixes, np.array([output, 0], np.uint64), out=buffers.asked)
    _ask(cipher, buffers.about_sums)
    return buffers.prefixes


def _cipher(key: Key, *labels: str | int) -> CipherContext:
    # Every block is another question.
    return Cipher(algorithms.AES(key.within("bulk", *labels).reveal()), modes.ECB()).encryptor()  # noqa: S305


def _ask(cipher: CipherContext, blocks: tuple[memoryview, memoryview]) -> None:
    if np.little_endian:
        cipher.update_into(*blocks)
        return
    asked, answers = (np.frombuffer(each, np.uint64) for each in blocks)
    asked.byteswap(inplace=True)
    cipher.update_into(*blocks)
    for each in (asked, answers):
        each.byteswap(inplace=True)


# Noise from a table in place of draws, for proofs by instances (couplings).
#
# A key carries the table to all code that draws, so keys and chains of keys are as in a release.  Each draw has
# a name that adjacent inputs share: the labels of its key without digests of data, the number of the
# stream, the id of its words, and its position.  Noise that is bound to a chain of sums is "sum i of the chain that
# began here": the id is that of the chain's beginning, and the position the index of the sum.  Noise of a table's
# cell has the statistic's id, and the cell's position from the first window on.


class Name(NamedTuple):
    """Name of draws: labels of their key without digests of data, stream number, id of words or chain."""

    labels: tuple[object, ...]
    member: int
    stream: StreamId


class NoiseTable(Protocol):
    """Overwrites an array with the noise of a given name."""

    def __call__(
        self, name: Name, distribution: Distribution, start: int, out: Integers, sums: Integers | None
    ) -> None:
        """Overwrite `out` with draws `start`, ... of `name`, bound to `sums`."""


class GivenNoise:
    """A noise table, and names of the chains under it."""

    def __init__(self, table: NoiseTable) -> None:
        self._table = table
        self._chains: dict[bytes, Name] = {}
        #: First window of each name, from which positions count.
        self._windows: dict[Name, int] = {}

    def fill(self, out: Integers, distribution: Distribution, key: Key, stream: StreamId, start: int) -> None:
        self._table(name_of(key, stream), distribution, start, out, None)

    def begin(self, chain: Words, key: Key, stream: StreamId) -> None:
        self._chains[chain.tobytes()] = name_of(key, stream)

    def bound(self, total: int, distribution: Distribution, chain: Words, index: int) -> int:
        words, noise = np.empty(2 * chacha.CHAIN, np.uint64), np.empty(1, np.int64)
        chacha.further_words(chain, index, np.int64(total), 0, words)
        self.follow(chain.tobytes(), words[: chacha.CHAIN], distribution, index, noise, np.array([total]))
        return int(noise[0])

    def follow(
        self, before: bytes, after: Words, distribution: Distribution, first: int, noise: Integers, sums: Integers
    ) -> None:
        name = self._chains[after.tobytes()] = self._chains[before]
        self._table(name, distribution, first, noise, sums)

    def cells(
        self, noise: Integers, distributions: Sequence[Distribution], key: Key, first: int, sums: Integers
    ) -> None:
        for i, (distribution, out, exact) in enumerate(zip(distributions, noise, sums, strict=True)):
            name = name_of(key, StreamId(Purpose.CELL, i))
            # Positions count from the first window of a name on.
            place = (first - self._windows.setdefault(name, first)) * out.shape[1]
            self._table(name, distribution, place, out.reshape(-1), exact.reshape(-1))


class GivenKey(Key):
    """A key whose noise comes from a table."""

    __slots__ = ("given", "labels")
    given: GivenNoise  # type: ignore[misc]
    labels: tuple[object, ...]

    @classmethod
    def of(cls, key: Key, noise: GivenNoise, labels: tuple[object, ...]) -> Self:
        own = cls(key.reveal(), simulated=key.simulated, member=key.member, binding=key.binding, drawn=key.drawn)
        put(own, given=noise, labels=labels)
        return own

    def _derived(self, secret: bytes, labels: tuple[object, ...] = (), **changes: Any) -> Key:
        key = super()._derived(secret, labels, **changes)
        more = labels if "member" not in changes or not self.member else (self.member, *labels)
        more = tuple(label for label in more if not isinstance(label, bytes))
        return self.of(key, self.given, (*self.labels, *more))


def given(table: NoiseTable) -> Key:
    """Key for audits: draws come from `table`, except reports, synthetic points and smooth sensitivity."""
    return GivenKey.of(Key(bytes(KEY_BYTES), simulated=True), GivenNoise(table), ())


def name_of(key: Key, stream: StreamId) -> Name:
    """Name of a stream of draws under a key of :func:`given`."""
    if not isinstance(key, GivenKey):
        raise TypeError("a key without a table of noise: expected one of given()")
    return Name(key.labels, key.member, stream)
