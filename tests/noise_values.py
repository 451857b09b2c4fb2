"""The words and keys that a publisher's noise comes from, for oracles that draw it themselves.

An oracle has no fastdp in it; it gets the publisher's key as these functions derive the parts of it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np

from fastdp import StreamPublisher
from fastdp.kinds import Integers
from fastdp.noise import sampler
from fastdp.noise.given_noise import Name, given
from fastdp.noise.key import Binding, Key
from fastdp.noise.sampler import LaplaceDistribution
from fastdp.noise.words import Purpose, StreamId
from fastdp.points.domains import encode
from fastdp.points.phdstream import PointPublisher
from tests.oracles import bulk
from tests.oracles.prefix import BoundNoise
from tests.oracles.words import begun


def bound_key(seed: int | str) -> Key:
    """A key that no composition is joined to: publishers that differ in a parameter have the same noise with it."""
    return Key(Key.from_seed(seed).reveal(), simulated=True, binding=Binding.COMPOSITION)


def unbound_key(seed: int | str) -> Key:
    """A key whose noise depends on position alone: the same for any input, and for any composition.

    For comparisons that ask what other input gives under the very same noise.  Not of the local model, whose reports
    are drawn as under any other key.
    """

    def table(
        name: Name, distribution: LaplaceDistribution, start: int, out: Integers, sums: Integers | None
    ) -> None:
        sampler.fill(out, distribution, Key.from_seed(f"{seed} {name}"), StreamId(Purpose.TREE), start)

    return given(table)


def tree_key(key: Key, theta_steps: int) -> Key:
    """The key of all tree noise under a threshold."""
    return key.again().within("theta", theta_steps)


def threshold_key(publisher: StreamPublisher, holdout: np.ndarray, cycle: int = 0) -> Key:
    """The key of the choice from a hold-out, the first or the one of a renewal."""
    composition, key = publisher.composition, publisher._key.again()
    chooser = composition.threshold.start(composition.renewal_task if cycle else composition.task)
    chooser.observe(holdout)
    digest = hashlib.sha256(chooser.pack().tobytes()).digest()
    return (key.derive("threshold", cycle) if cycle else key).within("holdout", digest)


def chain_noise(key: Key, theta_steps: int, epsilon: float) -> BoundNoise:
    """Noise of scale theta / epsilon that is bound to the prefix of sums behind the first threshold."""
    start = struct.pack("<4Q", *_begun(key, theta_steps))
    return BoundNoise(start, Fraction(theta_steps) / Fraction(epsilon))


def prefix_noise(key: Key, theta_steps: int, epsilon: float) -> bulk.PrefixNoise:
    """The same for sums that are known beforehand."""
    low, high, *_ = _begun(key, theta_steps)
    draw = bulk.laplace(Fraction(theta_steps) / Fraction(epsilon))
    return bulk.PrefixNoise(key.reveal(), low + high * 2**64, draw, member=key.member)


def _begun(key: Key, theta_steps: int) -> list[int]:
    own = tree_key(key, theta_steps)
    return begun(own.reveal(), Purpose.CHAIN, 4, member=own.member)


def chain_draws(noise: Callable[[int], int], sums: np.ndarray) -> np.ndarray:
    """The noise of all these sums, in order."""
    return np.array([noise(int(total)) for total in sums], np.int64)


def step_keys(stream: PointPublisher, batches: Iterable[tuple[np.ndarray, np.ndarray]]) -> list[Key]:
    """The key of each batch's noise, bound to all batches so far as the codes of their points' cells."""
    keys, chain, key = [], b"", stream._key.again()
    for step, batch in enumerate(batches):
        parts = [encode(stream._plan, points) for points in batch]
        numbers = [step, len(parts), *(8 * part.size for part in parts)]
        message = b"".join(number.to_bytes(8, "big") for number in numbers)
        message += chain + b"".join(part.tobytes() for part in parts)
        words = hashlib.blake2b(message, digest_size=64, key=key.reveal(), person=b"fastdp step 1").digest()
        keys.append(Key(words[:32], simulated=key.simulated, member=key.member, binding=key.binding).again())
        chain = words[32:]
    return keys
