"""Noise bound to the prefix by AES in bulk: the naive rule, altered replays, and keys that follow each other."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from fastdp.randomness import bulk_prefix, gaussian, prefix
from fastdp.randomness.gaussian import GaussianLaw, discrete_gaussian_law
from fastdp.randomness.key import Key
from tests import stat

LAW = discrete_gaussian_law(Fraction(2**34))
#: Draws of which many are rejected or doubtful, and ask for further words.
SMALL = discrete_gaussian_law(Fraction(3, 4))
STEPS = 77


def fresh(number: int = 1) -> tuple[Key, np.ndarray]:
    key = Key.from_seed(stat.seed(number))
    return key, prefix.start_chain(key.within("start"))


def naive(sums: list[int], law: GaussianLaw, key: Key, chain: np.ndarray, first: int = 0) -> list[int]:
    """One sum after the other, on whole numbers."""
    found, p = [], int(chain[0]) | int(chain[1]) << 64
    for k, total in enumerate(sums, first):
        secret = key.derive("bulk prefix", STEPS, k // bulk_prefix.SUMS_OF_A_KEY).reveal()

        def answer(asked: int, secret: bytes = secret) -> int:
            cipher = Cipher(algorithms.AES(secret), modes.ECB()).encryptor()  # noqa: S305
            return int.from_bytes(cipher.update(asked.to_bytes(16, "little")), "little")

        p ^= answer(k | (total % 2**64) << 64)

        def word(i: int, p: int = p, answer=answer) -> int:
            return answer(p ^ (i // 2) << 64) >> 64 * (i % 2) & (2**64 - 1)

        found.append(gaussian.settle(law, word))
    return found


@pytest.mark.parametrize("law", [LAW, SMALL], ids=["large", "small"])
@pytest.mark.parametrize("cuts", [[], [1, 2, 100], [150]])
def test_the_naive_rule_however_sums_are_cut(law, cuts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_prefix, "SUMS_OF_A_KEY", 64)
    monkeypatch.setattr(bulk_prefix, "CHUNK", 32)
    sums = np.random.default_rng(3).integers(-(2**40), 2**40, 200)
    key, chain = fresh()
    expected = naive(sums.tolist(), law, key, chain)
    found = [
        bulk_prefix.draw(part, law, key, STEPS, chain, first)
        for part, first in zip(np.split(sums, cuts), [0, *cuts], strict=True)
    ]
    np.testing.assert_array_equal(np.concatenate(found), expected)


def asked_of(monkeypatch: pytest.MonkeyPatch, sums: np.ndarray) -> tuple[list[bytes], np.ndarray]:
    """The questions to AES, and the noise."""
    asked: list[bytes] = []
    answers = bulk_prefix._answers

    def noted(cipher, blocks):
        asked.extend(block.tobytes() for block in blocks)
        return answers(cipher, blocks)

    monkeypatch.setattr(bulk_prefix, "_answers", noted)
    monkeypatch.setattr(bulk_prefix, "CHUNK", 2**13)
    key, chain = fresh(2)
    noise = bulk_prefix.draw(sums, LAW, key, STEPS, chain, 0)
    monkeypatch.setattr(bulk_prefix, "_answers", answers)
    return asked, noise


@pytest.mark.parametrize("last", [False, True])
def test_an_altered_replay_meets_other_noise_from_there_on(monkeypatch: pytest.MonkeyPatch, last: bool) -> None:
    sums = np.random.default_rng(4).integers(0, 1000, 5000)
    at = 4999 if last else 1234
    altered = sums.copy()
    altered[at] += 1
    (one, noise), (other, again) = asked_of(monkeypatch, sums), asked_of(monkeypatch, altered)
    np.testing.assert_array_equal(noise[:at], again[:at])
    assert (noise[at:] != again[at:]).all()
    # The first 5,000 questions are about sums, the next ones about words.
    for each in (one, other):
        assert len(set(each[:10_000])) == 10_000
    assert not set(one[5000 + at : 10_000]) & set(other[:10_000])


@pytest.mark.statistical
def test_noises_of_an_altered_replay_are_independent() -> None:
    sums = np.zeros(200_001, np.int64)
    altered = sums.copy()
    altered[0] = 1
    (key, chain), (_, other) = fresh(5), fresh(5)
    one = bulk_prefix.draw(sums, LAW, key, STEPS, chain, 0) / 2.0**34
    two = bulk_prefix.draw(altered, LAW, key, STEPS, other, 0) / 2.0**34
    # Products of independent normal draws have mean 0 and variance 1.
    for products in (one * two, one[1:] * one[:-1], one[1:] * two[:-1]):
        stat.accept(2.0 * stats.norm.sf(abs(products.mean()) * np.sqrt(products.size)))


def test_another_threshold_or_key_has_other_noise() -> None:
    sums = np.zeros(100, np.int64)
    key, chain = fresh()
    first = bulk_prefix.draw(sums, LAW, key, STEPS, chain.copy(), 0)
    others = [
        bulk_prefix.draw(sums, LAW, key, STEPS + 1, chain.copy(), 0),
        bulk_prefix.draw(sums, LAW, key.of_stream(3), STEPS, chain.copy(), 0),
        bulk_prefix.draw(sums, LAW, key, STEPS, chain.copy(), 1),
    ]
    for other in others:
        assert (other != first).all()
