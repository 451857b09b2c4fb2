"""The ChaCha20 block function and the noise that is bound by it, against the naive cascade."""

from __future__ import annotations

import hashlib
import itertools
import random
import struct
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

import fastdp
from fastdp.noise import chain_keys, gaussian, sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp_kernels.noise import bound_sums, chacha
from fastdp_kernels.noise.guarded_log import DOUBTFUL, draw_one
from fastdp_kernels.streams import adaptive_pass
from tests.oracles import bulk
from tests.oracles import prefix as oracle
from tests.oracles.words import begun

#: RFC 8439, section 2.3.2.
KEY = bytes(range(32))
LAST = bytes.fromhex("01000000 00000009 0000004a 00000000")
BLOCK = bytes.fromhex(
    "10f1e7e4d13b5915500fdd1fa32071c4 c7d1f4c733c068030422aa9ac3d46c4e"
    "d2826446079faa0914c2d705d98b02a2 b5129cd1de164eb9cbd083e8a2503c4e"
)
#: Of no composition: words come from the chain key.
SECRET = Key.from_seed(1)
SCALES = [Fraction(1, 3), Fraction(1), Fraction(73, 10), Fraction(1000), *(Fraction(2**k) for k in (36, 44, 56))]
SUMS = [0, 1, -1, 41, -(2**40), 2**62, -(2**63), 2**63 - 1, 41]


def words_of(raw: bytes) -> np.ndarray:
    return np.frombuffer(raw, "<u8").astype(np.uint64)


def kernel_block(key: bytes, last: bytes) -> bytes:
    out = np.empty(8, np.uint64)
    counter, nonce = words_of(last)
    chacha.further_words(words_of(key), counter >> 8, nonce.astype(np.int64), int(counter & 255), out)
    return out.astype("<u8").tobytes()


def random_sums(count: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.concatenate([SUMS, generator.integers(-(2**63), 2**63, count), generator.integers(-50, 50, count)])


def draw(sums: list[int], distribution: sampler.LaplaceDistribution, chain: np.ndarray, first: int = 0) -> list[int]:
    """Noise as kernels draw it, one sum after the other; the chain is moved on."""
    found = []
    for index, total in enumerate(sums, first):
        words = np.empty(8, np.uint64)
        chacha.further_words(chain, index, np.int64(total), 0, words)
        drawn = chacha.draw_words(words[4], words[5], distribution.constants)
        found.append(
            chain_keys.resolve(distribution, SECRET, chain, index, total) if drawn == chacha.DOUBTFUL else drawn
        )
        chain[:] = words[:4]
    return found


@pytest.mark.parametrize("block", [kernel_block, oracle.block])
def test_known_answer(block) -> None:
    assert block(KEY, LAST) == BLOCK


def test_random_blocks_are_those_of_another_library() -> None:
    source = random.Random(1)
    for _ in range(200):
        key, last = source.randbytes(32), source.randbytes(16)
        expected = Cipher(algorithms.ChaCha20(key, last), None).encryptor().update(bytes(64))
        assert kernel_block(key, last) == oracle.block(key, last) == expected


def test_words_of_a_block_by_index_sum_and_output() -> None:
    for index, output in itertools.product(
        (0, 1, 255, 256, 2**24 - 1, 2**24, 2**32, 2**40 + 5, 2**56 - 1), (0, 1, 255)
    ):
        for total in SUMS:
            out = np.empty(8, np.uint64)
            chacha.further_words(words_of(KEY), index, np.int64(total), output, out)
            chain, words = oracle.outputs(KEY, index, total, output)
            assert out.astype("<u8").tobytes() == chain + struct.pack("<4Q", *words)
            further = [chain_keys.word_of(words_of(KEY), index, total, 4 * output + k) for k in range(4)]
            assert further == list(words)


def test_bound_draws_equal_the_oracle() -> None:
    for scale in SCALES:
        sums = random_sums(120, 2).tolist()
        chain, noise = words_of(KEY), oracle.BoundNoise(KEY, scale)
        assert draw(sums, sampler.laplace_distribution(scale), chain) == [noise(total) for total in sums]
        assert chain.astype("<u8").tobytes() == noise.chain


@pytest.fixture
def some_doubtful(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """All draws, of which every third is settled: double-doubles leave one in 2^23 doubtful."""
    certain, calls = chacha.draw_words, []

    def draw_words(word, further, distribution):
        calls.append(certain(np.uint64(word), np.uint64(further), distribution))
        return chacha.DOUBTFUL if len(calls) % 3 == 0 else calls[-1]

    # Outside a kernel there is no wrapping sum; these sums are small.
    monkeypatch.setattr(adaptive_pass, "plus", lambda a, b: a + b)
    monkeypatch.setattr(adaptive_pass, "few_zeros", np.zeros)
    for name in ("advance_rows", "sum_bound", "draw_bound"):
        monkeypatch.setattr(adaptive_pass, name, getattr(adaptive_pass, name).py_func)
    monkeypatch.setattr(adaptive_pass, "draw_words", draw_words)
    return calls


def test_a_publisher_goes_on_behind_doubtful_draws(request: pytest.FixtureRequest) -> None:
    values = np.random.default_rng(4).gamma(2.0, 9.0, 3000)

    def publish(size: int) -> np.ndarray:
        threshold = fastdp.thresholds.Fixed(64.0)
        publisher = fastdp.Adaptive(epsilon=16.0, bound=64, max_range=4096, holdout=64, threshold=threshold, seed=1)
        return np.concatenate([publisher.publish(values[i : i + size]) for i in range(0, values.size, size)])

    whole = publish(values.size)
    drawn = request.getfixturevalue("some_doubtful")
    for size in (values.size, 64, 7):
        drawn.clear()
        assert np.array_equal(publish(size), whole)
        assert len(drawn) > 15


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_settling_gives_what_doubles_give(scale: Fraction) -> None:
    """Of every draw, certain or doubtful; exact arithmetic takes further words at the largest scale."""
    distribution, chain = sampler.laplace_distribution(scale), words_of(KEY)
    for index, total in enumerate(random_sums(40, 3).tolist()):
        before = chain.copy()
        assert [chain_keys.resolve(distribution, SECRET, before, index, total)] == draw(
            [total], distribution, chain, index
        )


@pytest.mark.parametrize("first", [0, 255, 2**24 - 3, 2**32 - 3, 2**55])
def test_indices_carry(first: int) -> None:
    """The index is not the position in the call; its upper half counts too."""
    sums, noise, chain = random_sums(5, 4).tolist(), oracle.BoundNoise(KEY, Fraction(2**44), first), words_of(KEY)
    assert draw(sums, sampler.laplace_distribution(2**44), chain, first) == [noise(total) for total in sums]
    assert chain.astype("<u8").tobytes() == noise.chain


def test_a_word_whose_further_bits_would_change_the_draw_is_doubtful() -> None:
    """The uniform number lies in [u, u + 1) / 2^63: for small u the draws of both ends are far apart."""
    distribution, noise = sampler.laplace_distribution(Fraction(2**20)).constants, np.empty(1, np.int64)
    for u in range(2, 600):
        assert not bound_sums.draw_few(np.array([[2 * u, 0]], np.uint64), distribution, noise), u
    assert bound_sums.draw_few(np.array([[2**63 + 2**62 + 2, 0]], np.uint64), distribution, noise)


def test_the_smallest_words_are_no_certain_draws() -> None:
    """Two words a sign share ln(1): their interval has no end, however small the scale."""
    assert [draw_one(np.uint64(word), 1e-3, 0.0) == DOUBTFUL for word in range(6)] == [True] * 4 + [False] * 2


@pytest.mark.parametrize("name", ["laplace", "small", "wide"])
def test_steps_of_many_streams_draw_by_the_naive_rule(name: str) -> None:
    """Each from its own secret, number and inputs, doubtful and rejected draws too."""
    distribution, scale = {
        "laplace": (sampler.laplace_distribution(Fraction(2**36)), Fraction(2**36)),
        "small": (gaussian.gaussian_distribution(Fraction(3, 4)), None),
        "wide": (sampler.laplace_distribution(Fraction(2**50)), Fraction(2**50)),
    }[name]
    keys = [Key.from_seed(1), Key.from_seed(1).of_stream(6), Key.from_seed(2).of_stream("a")]
    inputs, rows, stream = np.arange(6).reshape(3, 2), np.array([2, 0, 1]), StreamId(Purpose.THRESHOLD, 2)
    noise = chain_keys.StepNoise(keys)
    noise.step(np.arange(3), 4, inputs)
    found = noise.draws(rows, 30, distribution, stream)
    for own, i in zip(found.tolist(), rows.tolist(), strict=True):
        message = struct.pack(">3Q", 4, 1, 16) + inputs[i].tobytes()
        secret = hashlib.blake2b(message, key=keys[i].reveal(), person=b"fastdp step 1").digest()[:32]

        def word(k: int, at: int, secret: bytes = secret, member: int = keys[i].member) -> int:
            return begun(secret, Purpose.THRESHOLD, at + 1, level=2, refinement=k, member=member)[at]

        for at, drawn in enumerate(own):
            further = partial(word, at=at)
            wanted = gaussian.resolve(distribution, further) if scale is None else bulk.laplace(scale)(further)
            assert drawn == wanted
