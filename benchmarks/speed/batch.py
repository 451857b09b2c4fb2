"""The batch mode: many short streams beside one long stream and a loop, repetitions of a release beside a loop."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.shared import Floats, item_counts
from benchmarks.speed.measure import Group, Task
from fastdp.perturbers import Hierarchy
from fastdp.smoothers import Recent
from fastdp.thresholds import Fixed
from fastdp_lab.queries import random_ranges
from fastdp_lab.repetitions import repeat

STREAMS, LENGTH = 4_000, 1_000
BOUND, THETA, EPSILON = 100.0, 60.0, 1.0
LOOPED = 200
REPETITIONS = 20
RUNS = 10
#: Perturber and smoother of each meter.
KINDS: dict[str, tuple[Any, Any]] = {
    "prune 0": (Hierarchy(prune=0), None),
    "prune 1": (Hierarchy(prune=1), Recent()),
    "prune 2": (Hierarchy(prune=2), Recent()),
}


def meters(streams: int, length: int = LENGTH) -> Floats:
    return np.random.default_rng(1).gamma(2.0, 9.0, (streams, length))


def options(kind: str) -> dict[str, Any]:
    perturber, smoother = KINDS[kind]
    return {"perturber": perturber, "smoother": smoother, "threshold": Fixed(THETA), "holdout": 0}


def many(values: Floats, kind: str, threads: int = 1) -> fastdp.Release:
    publisher = fastdp.StreamPublisher(epsilon=EPSILON, bound=BOUND, max_range=LENGTH, **options(kind))
    return publisher.release_many(values, threads=threads)


def many_streams(kind: str) -> Group:
    """The same values as one long stream, in one call, and by a publisher for each of the first streams."""
    values = meters(STREAMS)

    def publisher(max_range: int) -> fastdp.StreamPublisher:
        return fastdp.StreamPublisher(epsilon=EPSILON, bound=BOUND, max_range=max_range, **options(kind))

    def loop() -> None:
        for row in values[:LOOPED]:
            publisher(LENGTH).release(row)

    tasks: dict[str, Task] = {
        "long": lambda: publisher(2**20).release(values.reshape(-1)),
        "many": lambda: many(values, kind),
        "threads": lambda: many(values, kind, 2),
        "loop": loop,
    }
    items = {**dict.fromkeys(tasks, values.size), "loop": LOOPED * LENGTH}
    return Group(f"many streams, {kind}", tasks, items=items, limit="long", threaded=("threads",))


def repetition_tasks(length: int, prune: int, repetitions: int) -> dict[str, Task]:
    """A plain loop and ``repeat``, 200 queries each; both with what a sweep would seed."""
    values, holdout = item_counts(length), min(length // 6, shared.HOLDOUT)
    published = values.size - holdout
    queries = random_ranges(published, shared.QUERIES, seed=1)
    root = fastdp.Key.from_seed(1)

    def tops(**secret: Any) -> fastdp.ToPS:
        return fastdp.ToPS(shared.EPSILON, shared.BOUND, holdout=holdout, max_range=published, prune=prune, **secret)

    def plain() -> None:
        for k in range(repetitions):
            tops(key=root.of_stream(k)).release(values).sum(*queries)

    return {
        "loop": plain,
        "repeat": lambda: repeat(tops(seed=1), values, repetitions, queries=queries),
        "repeat, 2 threads": lambda: repeat(tops(seed=1), values, repetitions, queries=queries, threads=2),
    }


def repetitions(length: int, prune: int) -> Group:
    tasks = repetition_tasks(length, prune, REPETITIONS)
    items, threaded = dict.fromkeys(tasks, REPETITIONS), ("repeat, 2 threads",)
    name = f"repetitions, {length:,} values, prune {prune}"
    return Group(name, tasks, items=items, limit="loop", threaded=threaded)


def groups(data: Path) -> Iterator[Callable[[], Group]]:
    del data
    yield from (partial(many_streams, kind) for kind in KINDS)
    yield from (partial(repetitions, shared.HOLDOUT + shared.PUBLISHED, prune) for prune in (0, 2))
