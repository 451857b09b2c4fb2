"""Keys of compositions: the derivation by hand, and no two of anything with one key."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from fastdp.noise.canonical import encode
from fastdp.noise.key import Binding, Key
from fastdp.spatial import Box
from tests.oracles import words as oracle

SECRET = bytes(range(32))
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 12, 2**70, 0.0, 1.0, -1.5, 0.1, 0.1 + 2.0**-56, float("inf"), "", "1", "12", "i",
    "ä", b"", b"1", b"12", [], [[]], [None], [1], ["1"], [1, 2], [12], [[1], 2], [1, [2]], ["a", 1], {}, {"a": 1},
    {"a": 1.0}, {"a": "1"}, {"a": {"b": 1}}, {"a": 1, "b": 2}, {"a": 2, "b": 1}, ["a", "b"], ["ab", ""],
]  # fmt: skip


@dataclass(frozen=True)
class Mine:
    """A part of one's own."""

    size: Any = 1


@dataclass(frozen=True)
class Other:
    """Another one, with the same parameters."""

    size: Any = 1


@dataclass(frozen=True)
class Mechanism:
    """A mechanism of one's own."""

    epsilon: float
    inner: Any
    rule: ClassVar[int] = 7


def root(secret: bytes = SECRET) -> Key:
    return Key(secret, simulated=False)


def test_encodings_are_those_of_the_design_and_all_different() -> None:
    encodings = [encode(value) for value in VALUES]
    assert encodings == [oracle.encoded(value) for value in VALUES]
    assert len(set(encodings)) == len(VALUES)
    for one, two in itertools.permutations(encodings, 2):
        assert not one.startswith(two), "none begins another"
    assert encode(-0.0) == encode(0.0)
    assert encode((1, "a")) == encode([1, "a"])
    assert encode({"b": 1, "a": 2}) == encode({"a": 2, "b": 1})
    assert encode(np.int64(7)) == encode(7)
    assert encode(np.float32(0.5)) == encode(0.5)
    with pytest.raises(TypeError):
        encode(object())


def test_keys_are_those_of_the_design() -> None:
    name, part = f"{__name__}.Mechanism", oracle.Part(f"{__name__}.Mine", 1, {"size": 3})
    mechanism = Mechanism(0.5, Mine(3))
    bound = root().bind(mechanism)
    assert bound.reveal() == oracle.bound(SECRET, name, 7, {"epsilon": 0.5, "inner": part})
    assert bound.binding is Binding.COMPOSITION
    assert bound.bind(Mine()) is bound, "a composition's key is bound already"
    inner = bound.within("theta", 17)
    assert inner.reveal() == oracle.within(bound.reveal(), "theta", 17)
    assert inner.binding is Binding.COMPOSITION
    assert root().of_stream("meters").reveal() == oracle.within(SECRET, "stream", "meters")
    numbered = root().of_stream(5)
    assert (numbered.reveal(), numbered.member) == (SECRET, 6)
    assert numbered.within("theta", 17).member == numbered.bind(mechanism).member == 6


def test_whatever_differs_has_a_key_of_its_own() -> None:
    key = root()
    others = [
        key, key.of_stream("a"), key.of_stream("b"), key.bind(Mine()), key.bind(Other()), key.bind(Mine(2)),
        key.bind(Mine(1.0)), key.bind(Mine({"x": 1})), key.bind(Mine({"y": 1})), key.bind(Mine(Mine())),
        key.bind(Mine(Mine(2))), key.bind(Mine(Other())), key.bind(Mine(Box([0.0], [1.0]))),
        key.bind(Mine(Box([0.0], [2.0]))), key.within("a"), key.within("b"), key.within("a", "b"), key.within("ab"),
        key.derive("a"), key.derive("a", "b"), key.derive("ab"), key.derive("a", 1), key.derive("a1"),
        key.of_stream(0).derive("a"), key.of_stream(1).derive("a"), key.bind(Mine()).within("a"),
        key.bind(Mine()).derive("a"),
    ]  # fmt: skip
    assert len({other.reveal() for other in others}) == len(others)
    prints = [key.of_stream(number).fingerprint() for number in (0, 1, 255, 256, 2**16, 2**32 - 2)]
    prints += [other.fingerprint() for other in others]
    assert len(set(prints)) == len(prints)
    assert all(len(part) == 32 for digits in prints for part in digits.split(":"))
    assert all(part not in key.reveal().hex() for digits in prints for part in digits.split(":"))
    assert Key.from_seed(1).reveal() != Key.from_seed("1").reveal()
    real, simulated = Key(SECRET, simulated=False), Key(SECRET, simulated=True)
    assert real != simulated
    assert real.of_stream(0) != real
    assert SECRET.hex() not in repr(real) + repr(simulated) + repr(real.of_stream(0))
    for made in (simulated.bind(Mine()), simulated.within("a"), simulated.derive("a"), simulated.of_stream(3)):
        assert made.simulated


@pytest.mark.parametrize("name", ["_secret", "binding", "drawn", "member", "simulated", "another"])
def test_a_key_never_changes(name: str) -> None:
    """Publishers share keys: one that changed would take the noise of all of them along."""
    key = Key.from_seed(1)
    with pytest.raises(AttributeError, match="a Key does not change"):
        setattr(key, name, None)
    with pytest.raises(AttributeError, match="a Key does not change"):
        delattr(key, name)
    assert key == Key.from_seed(1)
