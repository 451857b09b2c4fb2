"""Keys of compositions that publishers share: those of their parameters, made again each time or not."""

from __future__ import annotations

from typing import Any

import pytest

from fastdp.noise.key import Binding, Key
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.smoothers import MovingAverage, Recent
from fastdp.streams.parameters import StreamParameters, composed
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree

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
