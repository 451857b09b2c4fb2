"""Tasks of the batch mode: many short streams beside one long stream and a loop; repetitions beside a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fastdp
from benchmarks import sizes
from fastdp.perturbers import Flat, Hierarchy
from fastdp.queries.workloads import random_ranges
from fastdp.smoothers import Recent
from fastdp.thresholds import Fixed, NoisyMax

LENGTH = 1_000
BOUND, THETA, EPSILON = 100.0, 60.0, 1.0
LOOPED = 200

#: Perturber, smoother and threshold of each meter.
KINDS: dict[str, tuple[Any, Any, Any]] = {
    "prune 0": (Hierarchy(prune=0), None, Fixed(THETA)),
    "prune 1": (Hierarchy(prune=1), Recent(), Fixed(THETA)),
    "prune 2": (Hierarchy(prune=2), Recent(), Fixed(THETA)),
    "flat": (Flat(), None, Fixed(THETA)),
    "prune 1, noisy max of 250 values": (Hierarchy(prune=1), Recent(), NoisyMax()),
}


def meters(streams: int, length: int = LENGTH) -> np.ndarray:
    return np.random.default_rng(1).gamma(2.0, 9.0, (streams, length))


def options(kind: str) -> dict[str, Any]:
    perturber, smoother, threshold = KINDS[kind]
    holdout = LENGTH // 4 if threshold.uses_holdout else 0
    return {"perturber": perturber, "smoother": smoother, "threshold": threshold, "holdout": holdout}


def many(values: np.ndarray, kind: str, threads: int = 1) -> fastdp.ReleasedMany:
    return fastdp.release_many(values, EPSILON, BOUND, threads=threads, **options(kind))


def one_long(values: np.ndarray, kind: str) -> fastdp.Release:
    """The same values as one stream, its trees as long as usual."""
    publisher = fastdp.StreamPublisher(epsilon=EPSILON, bound=BOUND, max_range=2**20, **options(kind))
    return publisher.release(values.reshape(-1))


def loop(values: np.ndarray, kind: str) -> None:
    """A publisher for each stream."""
    for row in values[:LOOPED]:
        fastdp.StreamPublisher(epsilon=EPSILON, bound=BOUND, max_range=LENGTH, **options(kind)).release(row)


def repetition_tasks(values: np.ndarray, prune: int, repetitions: int, holdout: int) -> dict[str, Callable[[], Any]]:
    """A plain loop and ``repeat``, 200 queries each; both with what a sweep would seed."""
    published = values.size - holdout
    queries = random_ranges(published, sizes.QUERIES, seed=1)
    root = fastdp.Key.from_seed(1)

    def tops(**secret: Any) -> fastdp.ToPS:
        return fastdp.ToPS(sizes.EPSILON, sizes.BOUND, holdout=holdout, max_range=published, prune=prune, **secret)

    def plain() -> None:
        for k in range(repetitions):
            tops(key=root.of_stream(k)).release(values).range_sum(*queries)

    return {
        "loop": plain,
        "repeat": lambda: tops(seed=1).repeat(values, repetitions, queries=queries),
        "repeat, 2 threads": lambda: tops(seed=1).repeat(values, repetitions, queries=queries, threads=2),
    }
