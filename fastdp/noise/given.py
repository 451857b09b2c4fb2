"""Noise from a table in place of draws, for proofs by instances (couplings).

A key carries the table to all code that draws, so that keys, chains of keys and everything else are as in a release.
Each draw has a name that adjacent inputs share: the labels that its key was derived with, but digests of data, the
number of the stream, the id of its words, and its position.  Noise that is bound to a chain of sums is "sum i of the
chain that began here": the id is that of the chain's beginning, and the position the index of the sum.  Noise of a
table's cell has the statistic's id, and the cell's place from the first window on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fastdp.kinds import Integers
from fastdp.noise.gaussian import AnyLaw
from fastdp.noise.key import KEY_BYTES, Key
from fastdp.noise.words import Purpose, StreamId
from fastdp_kernels.noise import chacha


class Name(NamedTuple):
    """Name of a sequence of draws.

    Attributes
    ----------
    labels : tuple
        Of the key, from the one that was given; digests of data are left out.
    member : int
        Number of the key's stream (:attr:`fastdp.Key.member`).
    stream : StreamId
        Of the words; of a chain, that of its beginning.
    """

    labels: tuple[Any, ...]
    member: int
    stream: StreamId


class NoiseTable(Protocol):
    """Noise by name."""

    def __call__(self, name: Name, law: AnyLaw, start: int, out: Integers, sums: Integers | None) -> None:
        """Overwrite ``out`` with draws ``start``, ``start + 1``, ... of a name; ``sums``: what they are bound to."""


class GivenNoise:
    """A table, and the names of the chains that began under it."""

    def __init__(self, table: NoiseTable) -> None:
        self._table = table
        self._chains: dict[bytes, Name] = {}
        self._windows: dict[Name, int] = {}

    def fill(self, out: Integers, law: AnyLaw, key: Key, stream: StreamId, start: int) -> None:
        """In place of :func:`fastdp.noise.sampler.fill`."""
        self._table(name_of(key, stream), law, start, out, None)

    def begin(self, chain: NDArray[np.uint64], key: Key, stream: StreamId) -> None:
        """A chain begins."""
        self._chains[chain.tobytes()] = name_of(key, stream)

    def bound(self, total: int, law: AnyLaw, chain: NDArray[np.uint64], index: int) -> int:
        """Noise of the sum that moves a chain key on, in place of :func:`fastdp.noise.binding.settle`."""
        words, noise = np.empty(2 * chacha.CHAIN, np.uint64), np.empty(1, np.int64)
        chacha.further_words(chain, index, np.int64(total), 0, words)
        self.follow(chain.tobytes(), words[: chacha.CHAIN], law, index, noise, np.array([total]))
        return int(noise[0])

    def follow(
        self, before: bytes, after: NDArray[np.uint64], law: AnyLaw, first: int, noise: Integers, sums: Integers
    ) -> None:
        """Overwrite the noise of sums that moved a chain key on."""
        name = self._chains[after.tobytes()] = self._chains[before]
        self._table(name, law, first, noise, sums)

    def cells(self, noise: Integers, laws: Sequence[AnyLaw], key: Key, first: int, sums: Integers) -> None:
        """Overwrite the noise of a table's cells: int64[n, W, K], of each statistic a name of its own."""
        for i, (law, out, exact) in enumerate(zip(laws, noise, sums, strict=True)):
            name = name_of(key, StreamId(Purpose.CELL, i))
            # Positions count from the first window of a name on.
            place = (first - self._windows.setdefault(name, first)) * out.shape[1]
            self._table(name, law, place, out.reshape(-1), exact.reshape(-1))


class GivenKey(Key):
    """A key whose noise is a table's."""

    __slots__ = ("given", "labels")
    given: GivenNoise  # type: ignore[misc]
    labels: tuple[Any, ...]

    @classmethod
    def of(cls, key: Key, noise: GivenNoise, labels: tuple[Any, ...]) -> Self:
        """A key with this table."""
        own = cls(key.reveal(), simulated=key.simulated, member=key.member, binding=key.binding, drawn=key.drawn)
        object.__setattr__(own, "given", noise)
        object.__setattr__(own, "labels", labels)
        return own

    def _derived(self, secret: bytes, labels: tuple[Any, ...] = (), **changes: Any) -> Key:
        key = super()._derived(secret, labels, **changes)
        more = labels if "member" not in changes or not self.member else (self.member, *labels)
        more = tuple(label for label in more if not isinstance(label, bytes))
        return self.of(key, self.given, (*self.labels, *more))


def given(table: NoiseTable) -> Key:
    """A key for audits: whatever a publisher draws with it is taken from the table instead.

    Local reports, samples of synthetic points and smooth sensitivity are drawn as under any other key.
    """
    return GivenKey.of(Key(bytes(KEY_BYTES), simulated=True), GivenNoise(table), ())


def name_of(key: Key, stream: StreamId) -> Name:
    """The name of a stream of draws under a key that was given, or derived of it."""
    assert isinstance(key, GivenKey)  # noqa: S101 - the only keys with a table
    return Name(key.labels, key.member, stream)
