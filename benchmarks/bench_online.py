"""The online pass of ToPS: cost a value by pruned levels, place in the stream and chunk."""

from __future__ import annotations

from time import perf_counter

import numpy as np

import fastdp
from benchmarks import sizes
from benchmarks.streams import item_counts

CHUNK = 4096
LONG_CHUNK = 65_536
LENGTHS = [10**4, 10**5, 10**6, 10**7]


def started(prune: int, length: int = 0) -> fastdp.ToPS:
    """A publisher that has chosen its threshold, made its tree and published about ``length`` values."""
    publisher = fastdp.ToPS(epsilon=sizes.EPSILON, bound=sizes.BOUND, prune=prune, seed=1)
    publisher.publish(item_counts(sizes.HOLDOUT))
    chunk = item_counts(LONG_CHUNK)
    for begin in range(0, length, LONG_CHUNK):
        publisher.publish(chunk[: length - begin])
    publisher.publish(item_counts(CHUNK))
    return publisher


class StreamLength:
    """Flat: what a value costs does not depend on how many came before."""

    params = ([0, 1, 2, 3], LENGTHS)
    param_names = ("prune", "published_before")
    timeout = 120
    # One call a setup: every call sees the same place in the stream.
    number = 1
    repeat = 15
    warmup_time = 0.0

    def setup(self, prune: int, length: int) -> None:
        self.publisher = started(prune, length)
        self.chunk = item_counts(CHUNK)
        self.out = np.empty(CHUNK)

    def time_next_4096_values(self, prune: int, length: int) -> None:
        self.publisher.publish(self.chunk, out=self.out)


class WholeStream:
    """Nanoseconds a value over a stream published in chunks of 65,536, a noise tree every 2^20 values included.

    A stream shorter than 2^20 values pays for a whole tree all the same; from there on the cost is flat.
    """

    params = ((0, 1, 2, 3), (2**20, 2**22, 2**24))
    param_names = ("prune", "length")
    timeout = 300

    def setup(self, prune: int, length: int) -> None:
        started(prune)
        self.chunk = item_counts(LONG_CHUNK)
        self.out = np.empty(LONG_CHUNK)

    def track_cost(self, prune: int, length: int) -> float:
        publisher = fastdp.ToPS(epsilon=sizes.EPSILON, bound=sizes.BOUND, prune=prune, seed=1)
        publisher.publish(self.chunk)
        start = perf_counter()
        for _ in range(length // LONG_CHUNK):
            publisher.publish(self.chunk, out=self.out)
        return (perf_counter() - start) / length * 1e9

    track_cost.unit = "ns/value"  # type: ignore[attr-defined]


class Chunks:
    """Latency of one value and of a chunk, beside a copy of the chunk."""

    params = ((0, 1, 2, 3), (1, CHUNK, 2**20))
    param_names = ("prune", "chunk")

    def setup(self, prune: int, size: int) -> None:
        self.publisher = started(prune)
        self.chunk = item_counts(size)
        self.out = np.empty(size)
        self.publisher.publish(self.chunk, out=self.out)

    def time_publish(self, prune: int, size: int) -> None:
        self.publisher.publish(self.chunk, out=self.out)

    def time_copyto(self, prune: int, size: int) -> None:
        np.copyto(self.out, self.chunk)
