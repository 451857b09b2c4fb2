"""The words and keys that a publisher's noise comes from, for oracles that draw it themselves.

An oracle has no fastdp in it; it gets the publisher's key as these functions derive the parts of it.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np

from fastdp.randomness.key import Binding, Key
from fastdp.randomness.words import Purpose, StreamId, WordStream
from tests.oracles.prefix import BoundNoise


def bound_key(seed: int | str) -> Key:
    """A key that no composition is joined to: publishers that differ in a parameter have the same noise with it."""
    return Key(Key.from_seed(seed).reveal(), simulated=True, binding=Binding.COMPOSITION)


def unbound_key(seed: int | str) -> Key:
    """A key of the first noise format: noise that depends on position alone, the same for any input.

    For couplings, which ask what other input gives under the very same noise.
    """
    return Key(Key.from_seed(seed).reveal(), simulated=True, binding=Binding.FIRST_FORMAT)


def tree_key(key: Key, theta_steps: int) -> Key:
    """The key of all tree noise under a threshold."""
    return key.within("theta", theta_steps)


def chain_noise(key: Key, theta_steps: int, epsilon: float) -> BoundNoise:
    """Noise of scale theta / epsilon that is bound to the prefix of sums behind the first threshold."""
    start = np.empty(4, "<u8")
    WordStream(tree_key(key, theta_steps), StreamId(Purpose.CHAIN)).fill(start)
    return BoundNoise(start.tobytes(), Fraction(theta_steps) / Fraction(epsilon))


def chain_draws(noise: BoundNoise, sums: np.ndarray) -> np.ndarray:
    """The noise of all these sums, in order."""
    return np.array([noise(int(total)) for total in sums], np.int64)


def step_keys(key: Key, inputs: list[list[np.ndarray]]) -> list[Key]:
    """The key of each step's noise, bound to the inputs of all steps so far."""
    keys, chain = [], b""
    for step, parts in enumerate(inputs):
        digest = hashlib.blake2b(digest_size=32)
        for part in parts:
            digest.update(len(part.tobytes()).to_bytes(8, "big") + part.tobytes())
        own = key.within("step", step, chain, digest.digest())
        keys.append(own.within("noise"))
        chain = own.within("chain").reveal()
    return keys
