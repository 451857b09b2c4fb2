"""Words that a piece of code reads: by secret, stream number and stream id, ranges of positions."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from fastdp.noise.words import MAX_WORDS, WordStream

#: Positions around which an index of 8, 10, 16 or 32 bits, or a signed one, would begin anew.
FAR = (0, 1, 255, 256, 1023, 1024, 2**15, 2**16, 2**31, 2**32, 2**32 + 1)
#: Of 40 bits, the most that a stream id has.
FARTHEST = (*FAR, 2**40 - 1)


class Drawn:
    """Ranges of words that were read."""

    def __init__(self) -> None:
        self.ranges: defaultdict[tuple[bytes, int, int], list[tuple[int, int]]] = defaultdict(list)

    @property
    def count(self) -> int:
        return sum(end - begin for ranges in self.ranges.values() for begin, end in ranges)

    @property
    def repeated(self) -> bool:
        """True if a word was read twice."""
        for ranges in self.ranges.values():
            ordered = sorted(ranges)
            if any(end > begin for (_, end), (begin, _) in itertools.pairwise(ordered)):
                return True
        return False


@contextmanager
def record(monkeypatch: pytest.MonkeyPatch) -> Iterator[Drawn]:
    """Words read while the context is open."""
    drawn, places = Drawn(), {}
    begin, fill = WordStream.__init__, WordStream.fill

    def beginning(self, key, stream, start=0):
        begin(self, key, stream, start)
        places[id(self)] = (key.reveal(), key.member, stream.pack())

    def filling(self, out: np.ndarray) -> None:
        at = MAX_WORDS - self._left
        fill(self, out)
        drawn.ranges[places[id(self)]].append((at, at + out.size))

    with monkeypatch.context() as patch:
        patch.setattr(WordStream, "__init__", beginning)
        patch.setattr(WordStream, "fill", filling)
        yield drawn
