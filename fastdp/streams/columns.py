"""State of n streams as columns, and the rows of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from fastdp.kinds import Array, Floats, Indices, Integers, Records
from fastdp.noise.chain_keys import key_of
from fastdp.noise.key import Key
from fastdp.noise.words import Words
from fastdp.thresholds import Chooser
from fastdp_kernels.streams.fixed_pass import STREAM_ROW

NO_FLOATS: Floats = np.empty((1, 0))
NO_SCALES: Floats = np.empty((1, 0, 0))
NO_RECORDS: Records = np.empty(0, [])
NO_TREE: Indices = np.full(1, -1)
NO_NOISE: Integers = np.empty((1, 1, 0), np.int64)
#: Row 0 of one, and where its values begin.
ZERO: Indices = np.zeros(1, np.int64)


class Streams(NamedTuple):
    """State of n streams between two calls, by column."""

    #: STREAM_ROW[n], or ADAPTIVE_ROW[n] where lengths follow released sums.
    rows: Records
    #: Values for the next threshold of each, as its rule summarizes them.
    choosers: list[Chooser | None] | Array
    #: float64[n, k]. State of the smoother.
    smoother: Floats = NO_FLOATS
    #: float64[n, k]. State of correlated noise. Secret.
    correlated: Floats = NO_FLOATS
    #: `scales`, `season`: float64[n, BY_SCALE, s], SEASON[n]. Followed by lengths besides the rows, or empty.
    scales: Floats = NO_SCALES
    season: Records = NO_RECORDS
    #: `trees`, `noise`: int64[n], int64[n, 1, W]. The tree in use and its leaves' noise; a cache, as the key
    #: determines it.
    trees: Indices = NO_TREE
    noise: Integers = NO_NOISE

    def __repr__(self) -> str:
        # Without the secrets.
        return f"Streams of {self.rows.size}, n_seen={self.rows['n_seen'][:1]}"

    def copied(self) -> Streams:
        rows, choosers, smoother, correlated, scales, season, trees, noise = self
        scales = scales.copy() if scales.size else scales
        season = copied(season) if season.size else season
        return tuple.__new__(Streams, (copied(rows), choosers, smoother, correlated, scales, season, trees, noise))


def new_rows(count: int, kind: Any = STREAM_ROW) -> Records:
    """Zeros over numbers of 8 bytes, :func:`copied` fast."""
    return np.ndarray(count, kind, np.zeros((count, kind.itemsize // 8), np.int64))


def copied(rows: Records) -> Records:
    """Copy :func:`new_rows` faster than NumPy, which copies by field."""
    return np.ndarray(rows.shape, rows.dtype, cast("Array", rows.base).copy())


class RowValues(NamedTuple):
    """Values of a call: ``counts[i]`` of row ``which[i]`` from ``starts[i]`` on, and their outputs."""

    values: Array
    starts: Indices
    counts: Indices
    which: Indices
    out: Floats
    out_starts: Indices

    def at(self, calls: Indices) -> RowValues:
        return self._replace(
            starts=self.starts[calls],
            counts=self.counts[calls],
            which=self.which[calls],
            out_starts=self.out_starts[calls],
        )


class NamedKeys(Sequence[Key]):
    """Keys of streams on demand: number i of `key`, or if negative, -1 - i of a secret."""

    def __init__(self, key: Key, numbers: Indices, secrets: Words) -> None:
        self._key, self._numbers, self.secrets = key, numbers, secrets

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, row: Any) -> Any:
        number = int(self._numbers[row])
        return self._key.of_stream(number) if number >= 0 else key_of(self._key, self.secrets[row], -1 - number)

    def are_texts(self, which: Indices) -> bool:
        return bool((self._numbers[which] == -1).all())


class RowKeys(NamedTuple):
    """Noise keys of n streams: numbers under one key, or their own."""

    key: Key
    #: int64[n], or None.
    numbers: Indices | None = None
    own: Sequence[Key] | None = None
    #: False if the state is not needed after the call, so that leaves after the last value are not drawn.
    goes_on: bool = True

    def of(self, row: int) -> Key:
        if self.own is not None:
            return self.own[row]
        return self.key if self.numbers is None else self.key.of_stream(int(self.numbers[row]))
