"""Batch mode: many short streams in one call, and many repetitions of one release."""

from __future__ import annotations

from benchmarks.shared import HOLDOUT, PUBLISHED
from benchmarks.speed import batch


class ManyStreams:
    """A million values as few long streams or many short ones, with one thread or two; and memory."""

    params = (list(batch.KINDS), ((10**4, 10**2), (10**3, 10**3), (10**2, 10**4)), (1, 2))
    param_names = ("kind", "streams, length", "threads")
    timeout = 300

    def setup(self, kind: str, shape: tuple[int, int], threads: int) -> None:
        self.values = batch.meters(*shape)
        batch.many(self.values, kind, threads)

    def time_release_many(self, kind: str, shape: tuple[int, int], threads: int) -> None:
        batch.many(self.values, kind, threads)

    def peakmem_release_many(self, kind: str, shape: tuple[int, int], threads: int) -> None:
        batch.many(self.values, kind, threads)


class Repetitions:
    """Forty repetitions with 200 queries each: a plain loop, and ``repeat``."""

    params = (("loop", "repeat"), (12_000, HOLDOUT + PUBLISHED), (0, 2))
    param_names = ("how", "length", "prune")
    timeout = 300

    def setup(self, how: str, length: int, prune: int) -> None:
        self.task = batch.repetition_tasks(length, prune, 40)[how]
        self.task()

    def time_repetitions(self, how: str, length: int, prune: int) -> None:
        self.task()
