"""Noise that is bound to the prefix of sums, drawn by the test itself: every bit of a stream's noise is checked."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import fastdp
from fastdp.perturbers import Flat
from fastdp.randomness import prefix, sampler
from fastdp.randomness.key import Key
from fastdp.thresholds import Fixed
from fastdp_kernels import chacha
from tests.oracles import exact_noise
from tests.oracles.chacha import Bound, block
from tests.oracles.words import within, words

CHAIN = 8


def own_noise(publisher: fastdp.StreamPublisher, epsilon: float) -> Bound:
    """Noise of the sums under the publisher's first threshold, from its key on."""
    theta_steps = publisher._progress.theta_steps
    scale = Fraction(theta_steps) / Fraction(epsilon)
    secret = within(publisher._key.reveal(), "theta", theta_steps)
    return Bound(
        words(secret, CHAIN, 4, member=publisher._key.member),
        lambda word, further: exact_noise.draw(word, further, scale, False),
    )


def test_the_block_function_is_that_of_the_rfc() -> None:
    """RFC 8439, section 2.3.2: key 00 01 .. 1f, counter 1, nonce 00 00 00 09 00 00 00 4a 00 00 00 00."""
    raw = bytes(range(32))
    key = [int.from_bytes(raw[i : i + 8], "little") for i in range(0, 32, 8)]
    counter, nonce = 1 | 0x09000000 << 32, 0x4A000000
    expected = bytes.fromhex(
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    out = np.empty(8, np.uint64)
    chacha.chacha_block(np.array(key, np.uint64), np.uint64(counter), np.uint64(nonce), out)
    assert out.astype("<u8").tobytes() == expected
    assert block(key, counter, nonce) == out.tolist()


@pytest.mark.parametrize("index", [0, 1, 255, 256, 2**16, 2**31, 2**32, 2**55])
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1000, 7), Fraction(2**39), Fraction(2**55)])
def test_draws_are_those_of_the_chain(index: int, scale: Fraction) -> None:
    sums = [0, 5, 5, -1, 2**31, 2**62, -(2**63), 7, 7, 7]
    chain = np.array([2**64 - 1, 3, 2**63, 11], np.uint64)
    own = Bound(chain.tolist(), lambda word, further: exact_noise.draw(word, further, scale, False), index)
    drawn = prefix.draw(np.array(sums, np.int64), sampler.discrete_laplace_law(scale), chain, index)
    assert drawn.tolist() == [own(total) for total in sums]
    assert chain.tolist() == own.chain


def test_a_doubtful_draw_is_settled_with_its_own_further_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draw left to the last stage, at a scale where one in many needs a second word."""
    scale, sums = Fraction(2**56), np.arange(300) * 3 - 100
    law, chain = sampler.discrete_laplace_law(scale), np.arange(4, dtype=np.uint64)
    needed = []

    def draw(word, further):
        return exact_noise.draw(word, lambda k: needed.append(k) or further(k), scale, False)

    own = Bound(chain.tolist(), draw, 2**32 - 150)
    assert prefix.draw(sums, law, chain, 2**32 - 150).tolist() == [own(int(total)) for total in sums]
    assert needed


@pytest.mark.parametrize("member", [None, 0, 2**32 - 2])
def test_flat_noise_value_by_value(member: int | None) -> None:
    key = Key.from_seed(3) if member is None else Key.from_seed(3).of_stream(member)
    options = {"epsilon": 0.5, "bound": 64, "holdout": 0, "max_range": 64, "resolution": 0.25}
    publisher = fastdp.StreamPublisher(threshold=Fixed(8.0), perturber=Flat(), key=key, **options)
    values = np.random.default_rng(1).gamma(2.0, 3.0, 300)
    out = np.concatenate([publisher.publish(part) for part in np.split(values, [1, 2, 100, 259])])
    noise = own_noise(publisher, 0.5)
    steps = np.rint(np.clip(values * 4.0, 0.0, 32.0)).astype(np.int64).tolist()
    assert out.tolist() == [(step + noise(step)) * 0.25 for step in steps]


def test_far_out_the_index_of_a_sum_goes_on() -> None:
    options = {"epsilon": 0.5, "bound": 64, "holdout": 0, "max_range": 64, "resolution": 0.25, "seed": 3}
    for far in (254, 1022, 2**16 - 2, 2**32 - 2, 2**40):
        publisher = fastdp.StreamPublisher(threshold=Fixed(8.0), perturber=Flat(), **options)
        object.__setattr__(publisher._progress, "blocks", far)
        object.__setattr__(publisher._progress, "n_seen", far)
        noise = own_noise(publisher, 0.5)
        noise.index = far
        assert publisher.publish(np.zeros(6)).tolist() == [noise(0) * 0.25 for _ in range(6)]
