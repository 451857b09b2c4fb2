"""Streams: the next values by place and chunk, whole streams and releases, revised values, memory."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.shared import item_counts
from benchmarks.speed.inputs import endless_pak
from fastdp.perturbers import Flat, Hierarchy
from fastdp.queries.workloads import random_ranges
from fastdp.smoothers import Recent
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile

CHUNK, LONG_CHUNK = 4096, 65_536
LENGTH = shared.HOLDOUT + shared.PUBLISHED
#: Publishers of an endless stream.
PUBLISHERS: dict[str, Callable[[], Any]] = {
    **{
        f"ToPS, prune {prune}": lambda prune=prune: fastdp.ToPS(shared.EPSILON, shared.BOUND, prune=prune, seed=1)
        for prune in range(4)
    },
    **{
        f"Adaptive, {closing}": lambda closing=closing: fastdp.Adaptive(
            shared.EPSILON, shared.BOUND, closing=closing, seed=1
        )
        for closing in ("spread", "spike", "none")
    },
    "PAK": endless_pak,
}
SIZES: dict[str, Any] = {
    "epsilon": shared.EPSILON,
    "bound": shared.BOUND,
    "holdout": shared.HOLDOUT,
    "max_range": shared.MAX_RANGE,
}
H_2, H_16 = Hierarchy(2, consistent=False, prune=0), Hierarchy(16, consistent=False, prune=0)


def composed(threshold: Any, perturber: Any, smoother: Any = None) -> Callable[[np.ndarray], object]:
    parts = {"threshold": threshold, "perturber": perturber, "smoother": smoother}
    return lambda values: fastdp.StreamPublisher(**parts, **SIZES).release(values)


def pak(**options: Any) -> Callable[[np.ndarray], object]:
    fixed = (shared.EPSILON, 1.0 / LENGTH**2, shared.BOUND, LENGTH)
    return lambda values: fastdp.PAK(*fixed, holdout=shared.HOLDOUT, **options).publish(values)


#: Whole releases: the defaults, what ToPS section 5 compares, and PAK.
RELEASES: dict[str, Callable[[np.ndarray], object]] = {
    "Adaptive": lambda values: fastdp.Adaptive(**SIZES).release(values),
    "ToPS": lambda values: fastdp.ToPS(**SIZES).release(values),
    "ToPS, prune 3": composed(NoisyMax(), Hierarchy(16, prune=3), Recent()),
    "NM-E + H_16^c": composed(NoisyMax(), Hierarchy(16, prune=0)),
    "NM-E + H_16": composed(NoisyMax(), H_16),
    "NM-E + H_2": composed(NoisyMax(), H_2),
    "NM-E + Flat": composed(NoisyMax(), Flat()),
    "S-PAK + H_2": composed(PAKQuantile(), H_2),
    "PAK, running sums": pak(),
    "PAK, averages of 1,000": pak(average=1000),
    "plain binary tree": pak(threshold=Fixed(float(shared.BOUND))),
}


def started(name: str, length: int = 0) -> Any:
    """A publisher that has chosen its threshold, made its tree and published about ``length`` values."""
    publisher = PUBLISHERS[name]()
    publisher.publish(item_counts(shared.HOLDOUT))
    chunk = item_counts(LONG_CHUNK)
    for begin in range(0, length, LONG_CHUNK):
        publisher.publish(chunk[: length - begin])
    publisher.publish(item_counts(CHUNK))
    return publisher


class Online:
    """The next values of a running stream: flat in what was published before."""

    params = (list(PUBLISHERS), (10**4, 10**6, 10**7), (1, CHUNK))
    param_names = ("publisher", "published_before", "chunk")
    timeout = 120
    # One call a setup: every call sees the same place in the stream.
    number, repeat, warmup_time = 1, 15, 0.0

    def setup(self, name: str, length: int, chunk: int) -> None:
        self.publisher, self.chunk = started(name, length), item_counts(chunk)
        self.publisher.publish(self.chunk)

    def time_publish(self, name: str, length: int, chunk: int) -> None:
        self.publisher.publish(self.chunk)


class WholeStream:
    """Nanoseconds a value in chunks of 65,536, a noise tree every 2^20 values included: flat from there on."""

    params = (list(PUBLISHERS), (2**20, 2**22, 2**24))
    param_names = ("publisher", "length")
    timeout = 300

    def setup(self, name: str, length: int) -> None:
        started(name)
        self.chunk = item_counts(LONG_CHUNK)

    def track_cost(self, name: str, length: int) -> float:
        publisher = PUBLISHERS[name]()
        publisher.publish(self.chunk)
        start = perf_counter()
        for _ in range(length // LONG_CHUNK):
            publisher.publish(self.chunk)
        return (perf_counter() - start) / length * 1e9

    track_cost.unit = "ns/value"  # type: ignore[attr-defined]


class Release:
    """Hold-out and 2^20 published values at once, a fresh key and all noise in each run."""

    params = (list(RELEASES),)
    param_names = ("method",)
    timeout = 120

    def setup(self, method: str) -> None:
        self.values = item_counts(LENGTH)
        RELEASES[method](self.values)

    def time_release(self, method: str) -> None:
        RELEASES[method](self.values)


class Revised:
    """Queries from what is published and from the revised stream; short blocks come with a large epsilon."""

    params = ((0.05, 1.0, 20.0),)
    param_names = ("epsilon",)
    timeout = 120

    def setup(self, epsilon: float) -> None:
        publisher = fastdp.Adaptive(epsilon, shared.BOUND, shared.HOLDOUT, shared.MAX_RANGE, seed=1)
        self.values = item_counts(LENGTH)
        self.release = publisher.release(self.values)
        self.queries = random_ranges(shared.PUBLISHED, shared.QUERIES, shared.MAX_RANGE, seed=1)
        self.time_revised_values(epsilon)
        self.time_200_queries(epsilon)

    def time_revised_values(self, epsilon: float) -> None:
        """All 2^20 values, smoothing and index included: nothing is remembered from the call before."""
        known = self.release.revision
        type(known)(known.exponents, known.totals, known.threshold, known.memory, known.shape).values(
            shared.PUBLISHED
        )

    def time_200_queries(self, epsilon: float) -> None:
        """On a stream that was revised before."""
        self.release.range_sum(*self.queries, retrospective=True)


class EndlessStream:
    """Peak memory: the same for any length."""

    params = ((2**20, 2**23, 2**26),)
    param_names = ("length",)
    timeout = 300

    def setup(self, length: int) -> None:
        self.publisher, self.chunk = started("ToPS, prune 2"), item_counts(LONG_CHUNK)

    def peakmem_publish(self, length: int) -> None:
        for _ in range(length // LONG_CHUNK):
            self.publisher.publish(self.chunk)
