"""Adaptive beside ToPS: whole releases, the online pass, and the stream seen again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import fastdp
from benchmarks import sizes
from benchmarks.streams import item_counts
from fastdp.queries.workloads import random_ranges
from fastdp.systems.stream.adaptive import Adaptive

CHUNK = 4096
CLOSINGS = ("spread", "spike", "none")

#: Whole releases; "retrospective" revises the stream and answers the queries from it.
METHODS: dict[str, Callable[[], fastdp.StreamPublisher]] = {
    "ToPS": lambda: fastdp.ToPS(sizes.EPSILON, sizes.BOUND, sizes.HOLDOUT, sizes.MAX_RANGE),
    "Adaptive": lambda: Adaptive(sizes.EPSILON, sizes.BOUND, sizes.HOLDOUT, sizes.MAX_RANGE),
}


class WholeRelease:
    """Hold-out and 2^20 published values at once."""

    params = (list(METHODS),)
    param_names = ("method",)
    timeout = 120

    def setup(self, method: str) -> None:
        self.values = item_counts(sizes.HOLDOUT + sizes.PUBLISHED)
        self.queries = random_ranges(sizes.PUBLISHED, sizes.QUERIES, sizes.MAX_RANGE, seed=1)
        self.time_release_and_200_queries(method)

    def time_release(self, method: str) -> fastdp.Release:
        return METHODS[method]().release(self.values)

    def time_release_and_200_queries(self, method: str) -> None:
        self.time_release(method).range_sum(*self.queries)

    def time_release_and_200_queries_looking_back(self, method: str) -> None:
        self.time_release(method).range_sum(*self.queries, retrospective=True)


class Chunks:
    """Latency of one value and of a chunk, behind the hold-out and a chunk."""

    params = (list(CLOSINGS), (1, CHUNK))
    param_names = ("closing", "chunk")

    def setup(self, closing: str, size: int) -> None:
        self.publisher = Adaptive(sizes.EPSILON, sizes.BOUND, closing=closing, seed=1)  # type: ignore[arg-type]
        self.publisher.publish(item_counts(sizes.HOLDOUT))
        self.chunk = item_counts(size)
        self.out = np.empty(size)
        self.publisher.publish(item_counts(CHUNK))
        self.publisher.publish(self.chunk, out=self.out)

    def time_publish(self, closing: str, size: int) -> None:
        self.publisher.publish(self.chunk, out=self.out)

    def time_copyto(self, closing: str, size: int) -> None:
        np.copyto(self.out, self.chunk)


class LookingBack:
    """The stream revised, and ranges answered from it; short blocks come with a large epsilon."""

    params = ((0.05, 1.0, 20.0),)
    param_names = ("epsilon",)
    timeout = 120

    def setup(self, epsilon: float) -> None:
        publisher = Adaptive(epsilon, sizes.BOUND, sizes.HOLDOUT, sizes.MAX_RANGE, seed=1)
        self.release = publisher.release(item_counts(sizes.HOLDOUT + sizes.PUBLISHED))
        self.queries = random_ranges(sizes.PUBLISHED, sizes.QUERIES, sizes.MAX_RANGE, seed=1)
        self.time_revised_values(epsilon)
        self.time_200_queries(epsilon)

    def track_blocks(self, epsilon: float) -> int:
        return int(self._fresh().exponents.size)

    def _fresh(self) -> fastdp.releases.release.RevisedStream:
        """As it was before anything was asked: what is computed once is not remembered from the call before."""
        known = self.release.revision
        assert known is not None
        return type(known)(known.exponents, known.totals, known.threshold, known.memory, known.shape)

    def time_revise_blocks(self, epsilon: float) -> None:
        """Smoothing and the index; no value, no query."""
        self._fresh().sums_before(np.zeros(1, np.int64))

    def time_revised_values(self, epsilon: float) -> None:
        """All 2^20 values of the revised stream."""
        self._fresh().values(sizes.PUBLISHED)

    def time_200_queries(self, epsilon: float) -> None:
        """On a stream that was revised before."""
        self.release.range_sum(*self.queries, retrospective=True)
