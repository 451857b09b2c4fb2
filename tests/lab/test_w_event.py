"""Baselines for w-event privacy: against the oracle, budgets of every window, chunks and states."""

from __future__ import annotations

import struct
from collections.abc import Callable
from fractions import Fraction
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest

from fastdp.errors import DataError
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId, WordStream
from fastdp_lab.baselines import WEvent
from fastdp_lab.baselines.w_event import SCHEMES, WEventMachine
from tests.oracles import exact_noise, w_event


def values_of(n: int = 150) -> np.ndarray:
    """Levels that change now and then, some beyond the bound."""
    return np.repeat(np.array([3.0, 90.0, -5.0, 40.5, 250.0, 41.0]), 25)[:n] + np.arange(n) % 3


def noise_of(publisher: WEvent) -> Callable[[Fraction, int, list[int]], int]:
    """Draws of a step by the rule of ``docs/noise.md``: its key is bound to all values so far."""
    key = publisher._key.again()

    def noise(scale: Fraction, draw: int, seen: list[int]) -> int:
        chain, words = b"", b""
        for step, value in enumerate(seen):
            message = struct.pack(">3Q", step, 1, 8) + chain + struct.pack("<q", value)
            words = blake2b(message, digest_size=64, key=key.reveal(), person=b"fastdp step 1").digest()
            chain = words[32:]
        own = Key(words[:32], simulated=True, member=key.member, binding=key.binding)

        def word(k: int) -> int:
            out = np.empty(1, np.uint64)
            WordStream(own, StreamId(Purpose.TREE, draw, len(seen) - 1, k)).fill(out)
            return int(out[0])

        return exact_noise.draw(word(0), word, scale, one_sided=False)

    return noise


@pytest.mark.parametrize("w", [1, 2, 7])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_release_equals_the_oracle(scheme: Any, w: int) -> None:
    values, epsilon = values_of(), 20.0
    publisher = WEvent(scheme, epsilon, 100.0, w, resolution=0.5, seed=1)
    release = publisher.release(values)
    steps = np.rint(np.clip(values / 0.5, 0.0, 200.0)).astype(int).tolist()
    expected, budgets = w_event.release(
        scheme, steps, epsilon, 200, w, noise_of(WEvent(scheme, epsilon, 100.0, w, resolution=0.5, seed=1))
    )
    assert np.array_equal(release.values, 0.5 * np.array(expected))
    for i in range(len(steps)):
        assert sum(sum(pair) for pair in budgets[i : i + w]) <= Fraction(epsilon)
    shown = sum(second > 0 for _, second in budgets)
    assert shown >= 10
    assert (shown == 150) == (scheme == "uniform" or (scheme, w) == ("sample", 1))
    assert release.offset == 0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_windows_never_spend_more_than_epsilon(scheme: Any) -> None:
    """Whatever is released: budgets by random decisions, straight from the machine."""
    generator, w, epsilon = np.random.default_rng(4), 9, 3.0
    machine = WEventMachine(scheme, epsilon, 1.0, w, 1.0)
    state, spent = machine.start(Key.from_seed(1)), []
    compared = Fraction(0) if scheme in ("uniform", "sample") else Fraction(epsilon) / (2 * w)
    for _ in range(3000):
        scale = machine.scale(state)
        shown = scale is not None and (compared == 0 or generator.random() < generator.choice([0.1, 0.9]))
        spent.append(compared + (1 / scale if shown and scale is not None else 0))
        state = machine._after(state, 0, shown=shown, chain="")
        machine.restored(state, Key.from_seed(1))
    windows = [sum(spent[i : i + w]) for i in range(len(spent) - w)]
    assert max(windows) <= Fraction(epsilon)
    assert max(windows) >= Fraction(epsilon) * Fraction(9, 10)


def test_the_guarantee_names_the_window() -> None:
    for scheme in SCHEMES:
        said = WEvent(scheme, 0.5, 10.0, 12, seed=1).guarantee
        assert (said.epsilon, said.unit, said.adjacency) == (0.5, "any 12 consecutive values", "replace them")
        assert said.arithmetic == "exact"
        assert WEvent(scheme, 0.5, 10.0, 1, seed=1).guarantee.unit == "one value of the stream"
    with pytest.raises(DataError, match=r"chunk\[1\]"):
        WEvent("sample", 1.0, 1.0, 2, seed=1).publish([0.5, np.nan])
