"""Batch mode: many short streams in one call, and many repetitions of one release."""

from __future__ import annotations

from time import perf_counter

from benchmarks import many_streams, sizes
from benchmarks.streams import item_counts


class ManyStreams:
    """Nanoseconds a value: flat in the number of streams, near one long stream's."""

    params = (list(many_streams.KINDS), (10**2, 10**3, 10**4))
    param_names = ("kind", "streams")
    timeout = 300

    def setup(self, kind: str, streams: int) -> None:
        self.values = many_streams.meters(streams)
        many_streams.many(self.values, kind)

    def track_cost(self, kind: str, streams: int) -> float:
        seconds = []
        for _ in range(5):
            start = perf_counter()
            many_streams.many(self.values, kind)
            seconds.append(perf_counter() - start)
        return min(seconds) / self.values.size * 1e9

    track_cost.unit = "ns/value"  # type: ignore[attr-defined]


class StreamLengths:
    """The same million values as fewer, longer streams."""

    params = ((10**2, 10**3, 10**4, 10**5),)
    param_names = ("length",)
    timeout = 300

    def setup(self, length: int) -> None:
        self.values = many_streams.meters(10**6 // length, length)
        self.time_prune_1(length)

    def time_prune_1(self, length: int) -> None:
        many_streams.many(self.values, "prune 1")


class Threads:
    params = ((1, 2),)
    param_names = ("threads",)
    timeout = 300

    def setup(self, threads: int) -> None:
        self.values = many_streams.meters(4_000)
        self.time_every_value_noisy(threads)

    def time_every_value_noisy(self, threads: int) -> None:
        many_streams.many(self.values, "prune 0", threads)


class Memory:
    """Input and output, and no more with more streams."""

    params = ((10**3, 10**4, 5 * 10**4),)
    param_names = ("streams",)
    timeout = 300

    def setup(self, streams: int) -> None:
        self.values = many_streams.meters(streams)

    def peakmem_prune_1(self, streams: int) -> None:
        many_streams.many(self.values, "prune 1")


class Repetitions:
    """Forty repetitions with 200 queries each: a plain loop, and ``repeat``."""

    params = (("loop", "repeat"), (12_000, sizes.HOLDOUT + sizes.PUBLISHED), (0, 2))
    param_names = ("how", "length", "prune")
    timeout = 300

    def setup(self, how: str, length: int, prune: int) -> None:
        holdout = min(2_000, length // 4)
        self.task = many_streams.repetition_tasks(item_counts(length), prune, 40, holdout)[how]
        self.task()

    def time_repetitions(self, how: str, length: int, prune: int) -> None:
        self.task()
