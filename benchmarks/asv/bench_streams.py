"""Streams: the next values by place and chunk, whole streams and releases, revised values, memory."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.shared import item_counts
from benchmarks.speed.inputs import endless_pak
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.smoothers import Recent
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile
from fastdp_lab.queries.workloads import random_ranges

CHUNK, LONG_CHUNK = 4096, 65_536
LENGTH = shared.HOLDOUT + shared.PUBLISHED
#: Publishers of an endless stream for ranges up to so many values.
PUBLISHERS: dict[str, Callable[[int], Any]] = {
    **{
        f"ToPS, prune {prune}": lambda r, prune=prune: fastdp.ToPS(
            shared.EPSILON, shared.BOUND, max_range=r, prune=prune, seed=1
        )
        for prune in range(4)
    },
    **{
        f"Adaptive, {closing}": lambda r, closing=closing: fastdp.Adaptive(
            shared.EPSILON, shared.BOUND, max_range=r, perturber=Blocks(closing), seed=1
        )
        for closing in ("spread", "spike", "none")
    },
    "PAK": lambda r: endless_pak(),
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
    publisher = PUBLISHERS[name](shared.MAX_RANGE)
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
    """Nanoseconds of processor time a value behind the hold-out, noise trees included: flat from 2^20 values on.

    A publisher for a short stream is for short ranges, so its tree is no longer than the stream.
    """

    params = (["ToPS, prune 0", "ToPS, prune 2", "Adaptive, spread", "PAK"], [10**power for power in range(4, 10)])
    param_names = ("publisher", "length")
    timeout = 300

    def setup(self, name: str, length: int) -> None:
        started(name)
        self.chunk = item_counts(LONG_CHUNK)

    def track_cost(self, name: str, length: int) -> float:
        publisher = PUBLISHERS[name](min(length, shared.MAX_RANGE))
        publisher.publish(self.chunk)
        start = process_time()
        for begin in range(0, length, LONG_CHUNK):
            publisher.publish(self.chunk[: length - begin])
        return (process_time() - start) / length * 1e9

    track_cost.unit = "ns/value"  # type: ignore[attr-defined]

    def peakmem_publish(self, name: str, length: int) -> None:
        """The same for any length from 2^20 values on."""
        self.track_cost(name, length)


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
        self.release.sum(*self.queries, revised=True)
