"""Batch mode: many short streams in one call."""

from __future__ import annotations

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
