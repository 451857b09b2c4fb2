"""A key that takes noise from a table, for proofs by instances (couplings)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from fastdp.kinds import Integers
from fastdp.noise.key import KEY_BYTES, Key
from fastdp.noise.sampler import Distribution
from fastdp.noise.words import Purpose, StreamId, Words
from fastdp.record import put
from fastdp_kernels.noise import chacha


class Name(NamedTuple):
    """Labels of a key without digests of data, stream number, id of words or chain.

    Adjacent inputs share name and position: in a chain the sum's index, in a table the cell's.
    """

    labels: tuple[object, ...]
    member: int
    stream: StreamId


class NoiseTable(Protocol):
    """Overwrites an array with named noise."""

    def __call__(
        self, name: Name, distribution: Distribution, start: int, out: Integers, sums: Integers | None
    ) -> None:
        """Overwrite `out` with draws `start`, ... of `name`, bound to `sums`."""


class GivenNoise:
    """Reads noise from a table; remembers each chain's name."""

    def __init__(self, table: NoiseTable) -> None:
        self._table = table
        self._chains: dict[bytes, Name] = {}
        #: First window of each name, from which positions count.
        self._windows: dict[Name, int] = {}

    def fill(self, out: Integers, distribution: Distribution, key: Key, stream: StreamId, start: int) -> None:
        self._table(name_of(key, stream), distribution, start, out, None)

    def begin(self, chain: Words, key: Key, stream: StreamId) -> None:
        self._chains[chain.tobytes()] = name_of(key, stream)

    def bound(self, total: int, distribution: Distribution, chain: Words, index: int) -> int:
        words, noise = np.empty(2 * chacha.CHAIN, np.uint64), np.empty(1, np.int64)
        chacha.further_words(chain, index, np.int64(total), 0, words)
        self.follow(chain.tobytes(), words[: chacha.CHAIN], distribution, index, noise, np.array([total]))
        return int(noise[0])

    def follow(
        self, before: bytes, after: Words, distribution: Distribution, first: int, noise: Integers, sums: Integers
    ) -> None:
        name = self._chains[after.tobytes()] = self._chains[before]
        self._table(name, distribution, first, noise, sums)

    def cells(
        self, noise: Integers, distributions: Sequence[Distribution], key: Key, first: int, sums: Integers
    ) -> None:
        for i, (distribution, out, exact) in enumerate(zip(distributions, noise, sums, strict=True)):
            name = name_of(key, StreamId(Purpose.CELL, i))
            # Positions count from the first window of a name on.
            position = (first - self._windows.setdefault(name, first)) * out.shape[1]
            self._table(name, distribution, position, out.reshape(-1), exact.reshape(-1))


class GivenKey(Key):
    """Key whose noise is read from a table."""

    __slots__ = ("given", "labels")
    given: GivenNoise  # type: ignore[misc]
    labels: tuple[object, ...]

    @classmethod
    def of(cls, key: Key, noise: GivenNoise, labels: tuple[object, ...]) -> Self:
        keyed = cls(key.reveal(), simulated=key.simulated, member=key.member, binding=key.binding, drawn=key.drawn)
        put(keyed, given=noise, labels=labels)
        return keyed

    def _derived(self, secret: bytes, labels: tuple[object, ...] = (), **changes: Any) -> Key:
        key = super()._derived(secret, labels, **changes)
        more = labels if "member" not in changes or not self.member else (self.member, *labels)
        more = tuple(label for label in more if not isinstance(label, bytes))
        return self.of(key, self.given, (*self.labels, *more))


def given(table: NoiseTable) -> Key:
    """Key for audits: draws come from `table`, except reports, synthetic points and smooth sensitivity."""
    return GivenKey.of(Key(bytes(KEY_BYTES), simulated=True), GivenNoise(table), ())


def name_of(key: Key, stream: StreamId) -> Name:
    """Name under which a table holds a stream's draws."""
    if not isinstance(key, GivenKey):
        raise TypeError("a key without a table of noise: expected one of given()")
    return Name(key.labels, key.member, stream)
