"""Where the random words of a client's reports are drawn: from its own key and stream, or the operating system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.errors import ParameterError

if TYPE_CHECKING:
    from fastdp.randomness.key import Key

WORD_BYTES = 8
MAX_STREAMS = 2**40
#: Words of one stream; those that follow are another stream's.
MAX_START = 2**33


@dataclass(frozen=True)
class Source:
    """Words of one call: report i uses word ``start + i`` of a stream.

    Parameters
    ----------
    seed, key
        A simulation's seed, or a key; None for fresh words.
    level : int
        Separates the streams of different mechanisms.
    stream, start : int
        Number of the stream and position in it; a key needs the position.  A stream has 2^33 words.
    of : labels
        What reports depend on besides: words belong to one mechanism with its parameters.
    """

    seed: int | str | None
    key: Key | bytes | None
    level: int
    stream: int
    start: int | None
    of: tuple[str | int | bytes, ...] = ()

    def __post_init__(self) -> None:
        """Check the parameters."""
        validation.integer("stream", self.stream, 0, MAX_STREAMS - 1)
        if self.start is not None:
            validation.integer("start", self.start, 0, MAX_START)
        elif self.key is not None and self.seed is None:
            raise ParameterError(
                "start = None: expected the position of the first unused word, because a key is given"
            )

    def _check_end(self, count: int) -> None:
        if (self.start or 0) + count > MAX_START:
            raise ParameterError(
                f"start = {self.start}: expected at most {MAX_START - count} for {count} reports, "
                f"because a stream has {MAX_START} words"
            )

    def few(self, count: int) -> list[int]:
        """A few words as Python integers; without seed or key they need neither cipher nor compiler."""
        self._check_end(count)
        if self.seed is None and self.key is None:
            raw = os.urandom(WORD_BYTES * count)
            return [int.from_bytes(raw[i : i + WORD_BYTES], "little") for i in range(0, len(raw), WORD_BYTES)]
        return [int(word) for block in self.blocks(count) for word in block]

    def blocks(self, count: int) -> Iterator[NDArray[np.uint64]]:
        """The words block by block; each block overwrites the one before."""
        from fastdp.randomness.key import Key

        self._check_end(count)
        from fastdp.randomness.words import CHUNK, Purpose, StreamId, WordStream

        stream = StreamId(Purpose.LOCAL, self.level, self.stream)
        key = Key.choose(self.seed, self.key).within(*self.of)
        source = WordStream(key, stream, self.start or 0)
        words: NDArray[np.uint64] = np.empty(min(CHUNK, count), np.uint64)
        for begin in range(0, count, CHUNK):
            part = words[: min(CHUNK, count - begin)]
            source.fill(part)
            yield part
