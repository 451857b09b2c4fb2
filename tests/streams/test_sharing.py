"""Publishers alike share a composition and the encoding of its noise key; others share nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.noise.key import Binding, Key
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.record import shared
from fastdp.smoothers import MovingAverage, Recent
from fastdp.streams.parameters import StreamParameters, composed
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree

SECRET = Key.from_bytes(bytes(range(32)))
SIZES: dict[str, Any] = {"epsilon": 0.5, "bound": 64.0, "holdout": 50}
MAKE = {
    "ToPS": lambda **own: fastdp.ToPS(**{**SIZES, "max_range": 64, **own}),
    "Adaptive": lambda **own: fastdp.Adaptive(**{**SIZES, "max_range": 64, **own}),
    "PAK": lambda **own: fastdp.PAK(**{**SIZES, "delta": 1e-6, "length": 200, **own}),
}


def composition_of(publisher: Any) -> Any:
    return publisher._machine.plan if isinstance(publisher, fastdp.PAK) else publisher.composition


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("name", MAKE)
def test_a_kept_encoding_gives_the_same_key(name: str) -> None:
    changes: list[dict[str, Any]] = [{}, {"epsilon": 0.25}, {"bound": 65.0}, {"holdout": 51}, {"resolution": 0.25}]
    for change in changes:
        first, second = (MAKE[name](**change, key=SECRET) for _ in range(2))
        plan = composition_of(first)
        assert composition_of(second) is plan
        expected = SECRET.bind(plan)
        assert first._key == second._key == expected
        numbered = SECRET.of_stream(3)
        assert MAKE[name](**change, key=numbered)._key == expected.of_stream(3)
    keys = {MAKE[name](**change, key=SECRET)._key for change in changes}
    assert len(keys) == len(changes)


def test_equal_numbers_of_other_types_share_no_key() -> None:
    forty, strange = Fixed(40.0), Fixed(40.0)
    object.__setattr__(strange, "theta", 40)
    rest = (Hierarchy(prune=0), None, 0.5, 64.0, 0, 64, None, "raise", None)
    keys = [composed(rule, *rest).noise_key(SECRET) for rule in (forty, strange, forty, strange)]
    assert keys[0] == keys[2] != keys[1] == keys[3]
    made: list[tuple[Any, ...]] = []

    def make(*fields: Any) -> Any:
        made.append(fields)
        return Recent()

    for value in (1, 1.0, True, 1, 1.0, True):
        shared(make, value)
    assert [type(each) for (each,) in made] == [int, float, bool]


def test_parts_that_may_change_are_encoded_each_time() -> None:
    class Own(Recent):
        """With an attribute that anyone may set."""

        def __init__(self) -> None:
            vars(self)["weight"] = 1.0

        def identity(self) -> dict[str, Any]:
            return dict(vars(self))

    own = Own()
    made = composed(Fixed(40.0), Hierarchy(prune=1), own, 0.5, 64.0, 0, 64, None, "raise", None)
    before = made.noise_key(SECRET)
    assert made.noise_key(SECRET) == before
    vars(own)["weight"] = 2.0
    assert made.noise_key(SECRET) != before
    # Neither is a part plain that holds a tuple.
    spread = [
        composed(Fixed(40.0), Blocks(focus=(8, 16)), None, 0.5, 64.0, 0, 64, None, "raise", None) for _ in range(2)
    ]
    assert spread[0] is not spread[1]
    # Nor are NumPy's numbers plain numbers.
    epsilons = [fastdp.ToPS(np.float64(0.5), 64.0, holdout=50, max_range=64) for _ in range(2)]
    assert epsilons[0].epsilon == 0.5


SECRETS = {
    "seed": Key.from_seed(1),
    "secret": Key.from_bytes(bytes(range(32))),
    "stream": Key.from_seed(1).of_stream(7),
    "bound": Key(bytes(32), simulated=False, binding=Binding.COMPOSITION),
}
PARTS: dict[str, tuple[Any, Any, Any]] = {
    "tops": (NoisyMax(c=60.0), Hierarchy(prune=1), Recent()),
    "whole c": (NoisyMax(c=60), Hierarchy(prune=1), Recent()),
    "moving": (Fixed(20.0), Hierarchy(prune=1), MovingAverage(3)),
    "flat": (Fixed(20.0), Flat(), None),
    "blocks": (ScaleFree(), Blocks(), None),
}


def fields(parts: tuple[Any, Any, Any], epsilon: float = 0.5, delta: float = 0.0) -> tuple[Any, ...]:
    return (*parts, epsilon, 100.0, 200, 4096, None, "raise", None, 1, None, delta)


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_a_shared_composition_has_the_keys_of_one_alone(secret: Key) -> None:
    """In any order, and again."""
    for parts in [*PARTS.values(), *reversed(PARTS.values())]:
        for epsilon in (0.5, 1, 1.0):
            shared, alone = composed(*fields(parts, epsilon)), StreamParameters(*fields(parts, epsilon))
            assert shared is composed(*fields(parts, epsilon))
            assert shared.noise_key(secret) == secret.bind(alone) == alone.noise_key(secret)
            assert shared.noise_keys([secret, secret]) == [alone.noise_key(secret)] * 2
