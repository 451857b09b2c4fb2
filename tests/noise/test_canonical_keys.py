"""Keys from compositions: every parameter of every mechanism is in the key of its noise, by one fixed encoding."""

from __future__ import annotations

import itertools
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp import noise
from fastdp.errors import ParameterError
from fastdp.noise.canonical import encode
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.streams.methods import Adaptive
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree, SmoothQuantile, SquareWave
from tests.noise.test_identities import MECHANISMS, SECRET, key_of, mechanisms
from tests.noise_values import bound_key

VALUES = np.arange(300.0) * 7.0 % 41.0


def test_events_and_paces_are_in_the_key() -> None:
    made = [
        Adaptive(1.0, sensitivity=1.0, key=SECRET),
        Adaptive(1.0, sensitivity=2.0, key=SECRET),
        Adaptive(1.0, sensitivity=1.0, contributions=2, key=SECRET),
        Adaptive(1.0, 1.0, threshold=1.0, key=SECRET),
        Adaptive(1.0, 1.0, expected_length=10**5, key=SECRET),
        Adaptive(1.0, 1.0, expected_length=10**6, key=SECRET),
        Adaptive(1.0, 1.0, threshold=1.0, perturber=Blocks(focus="longest"), key=SECRET),
        Adaptive(1.0, 1.0, threshold=1.0, perturber=Blocks(focus=100), key=SECRET),
    ]
    assert len({publisher._key.reveal() for publisher in made}) == len(made)


def test_deltas_are_in_the_key() -> None:
    parts: dict[str, Any] = {"threshold": Fixed(3.0), "perturber": Flat(noise="gaussian"), "epsilon": 1.0}
    made = [fastdp.StreamPublisher(**parts, bound=8.0, delta=delta, key=SECRET) for delta in (1e-6, 1e-9)]
    assert made[0]._key.reveal() != made[1]._key.reveal()


def test_mechanisms_streams_and_secrets_have_keys_of_their_own() -> None:
    secret = Key.from_bytes(SECRET)
    secrets = [secret, Key.from_bytes(bytes(32)), *(secret.of_stream(s) for s in ("a", "b", 0, 1, 2**32 - 2))]
    keys = [key_of(name, each) for name in MECHANISMS for each in secrets]
    assert len(set(keys)) == len(keys)


@mechanisms
def test_a_numbered_stream_keeps_its_number(name: str) -> None:
    """So that many streams share one cipher, and each is what a publisher of its own releases."""
    secret = Key.from_bytes(SECRET)
    assert key_of(name, secret.of_stream(7)) == key_of(name).of_stream(7)


def test_a_part_without_readable_parameters_needs_a_seed() -> None:
    class Opaque(Flat):
        """Its parameter is where nothing finds it."""

        def __init__(self, hidden: object) -> None:
            object.__setattr__(self, "hidden", hidden)

        def identity(self) -> dict[str, Any]:
            return {"hidden": self.hidden}

    def make(**secret: Any) -> fastdp.StreamPublisher:
        return fastdp.StreamPublisher(threshold=Fixed(3.0), perturber=Opaque(object()), epsilon=1, bound=8, **secret)

    with pytest.raises(ParameterError, match=r"^perturber is a Opaque whose parameters cannot be read"):
        make(key=SECRET)
    for secret in ({"seed": 1}, {}):
        assert make(**secret).publish(np.ones(3)).size == 3


# What is drawn.


def words(publisher: Any) -> set[tuple]:
    """Every stream of words that was drawn from, as the check of words has recorded it."""
    return set(publisher._key.drawn._runs)


def released(secret: Key | bytes, values: np.ndarray, **options: Any) -> tuple[fastdp.StreamPublisher, np.ndarray]:
    usual = {"epsilon": 1.0, "bound": 64.0, "max_range": 64, "resolution": 2.0**-10, "holdout": 0}
    publisher = fastdp.StreamPublisher(**{**usual, "threshold": Fixed(20.0), **options}, key=secret)
    return publisher, publisher.publish(values)


@pytest.mark.parametrize(
    "perturber", [Flat(), Hierarchy(4, prune=0), Hierarchy(2, False, 0), Blocks("none")], ids=str
)
def test_no_word_is_shared_under_two_thetas_or_two_compositions(perturber: Any) -> None:
    runs = [released(bound_key(1), VALUES, perturber=perturber, threshold=Fixed(theta)) for theta in (20.0, 21.0)]
    runs += [released(SECRET, VALUES, perturber=perturber, epsilon=epsilon) for epsilon in (1.0, 2.0)]
    runs += [released(SECRET, VALUES, perturber=perturber, nonfinite="zero")]
    for (one, first), (two, second) in itertools.combinations(runs, 2):
        assert words(one)
        assert not words(one) & words(two)
        assert not np.array_equal(first, second)


@pytest.mark.parametrize("threshold", [NoisyMax(), ScaleFree(), SmoothQuantile(delta=0.1), SquareWave()], ids=str)
@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_no_word_is_shared_by_two_hold_outs(threshold: Any) -> None:
    """Nor by renewals of the threshold on the same values."""
    drawn = []
    for first in (3.0, 30.0):
        held = VALUES[:50].copy()
        held[0] = first
        publisher, _ = released(bound_key(1), held, perturber=Flat(), threshold=threshold, holdout=50)
        drawn.append({where for where in words(publisher) if not isinstance(where[-1], bytes)})
    purposes = [{where[-1] >> 56 for where in places} for places in drawn]
    assert purposes[0] == purposes[1]
    same = {where for where in drawn[0] & drawn[1] if where[-1] >> 56 != Purpose.CHAIN}
    assert not same


def test_release_takes_the_name_of_the_stream() -> None:
    names = (None, "a", "b")
    outs = [
        fastdp.release(VALUES, 1.0, 64.0, threshold=30.0, key=SECRET, stream=name).values for name in (*names, "a")
    ]
    assert np.array_equal(outs[1], outs[3])
    for one, two in itertools.combinations(outs[:3], 2):
        assert not np.array_equal(one, two)


def test_draws_belong_to_their_law_and_number() -> None:
    scales = (2.5, 2.0, Fraction(5, 2) + Fraction(1, 2**60), 5.0)
    draws = [
        draw(scale, 200, key=SECRET, stream=stream)
        for draw, scale, stream in itertools.product((noise.discrete_laplace, noise.geometric), scales, (0, 1))
    ]
    for one, two in itertools.combinations(draws, 2):
        # Under one word draws of nearly one scale would be the same, and of twice the scale about twice.
        assert abs(np.corrcoef(one, two)[0, 1]) < 0.4
    assert np.array_equal(
        noise.discrete_laplace(2.5, 9, key=SECRET), noise.discrete_laplace(Fraction(5, 2), 9, key=SECRET)
    )


# The encoding.

plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.binary(max_size=5)
)
nested = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
)


def decode(raw: bytes) -> tuple[Any, bytes]:
    """A value and the bytes behind it."""
    tag, raw = raw[:1], raw[1:]
    if tag in (b"t", b"f"):
        return tag == b"t", raw
    size = int.from_bytes(raw[:8], "big")
    content, rest = raw[8 : 8 + size], raw[8 + size :]
    assert len(content) == size
    if tag in (b"l", b"m"):
        entries = []
        while content:
            entry, content = decode(content)
            entries.append(entry)
        if tag == b"l":
            return entries, rest
        assert entries[::2] == sorted(set(entries[::2]))
        return dict(zip(entries[::2], entries[1::2], strict=True)), rest
    kinds = {
        b"n": lambda c: None,
        b"i": int,
        b"d": lambda c: struct.unpack(">d", c)[0],
        b"s": lambda c: c.decode("utf-8", "surrogatepass"),
        b"b": bytes,
    }
    return kinds[tag](content), rest


def typed(value: Any) -> Any:
    """Tells 1, 1.0 and True apart, not 0.0 and -0.0."""
    if isinstance(value, (list, tuple)):
        return "list", [typed(entry) for entry in value]
    if isinstance(value, dict):
        return "dict", sorted((name, typed(entry)) for name, entry in value.items())
    return type(value).__name__, value


@given(nested)
def test_the_encoding_can_be_read_back(value: Any) -> None:
    """So that it is injective."""
    found, rest = decode(encode(value))
    assert rest == b""
    assert typed(found) == typed(value)
