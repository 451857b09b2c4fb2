"""The batch mode: many short streams beside one long stream and a loop, repetitions of a release beside a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import fastdp
from benchmarks import shared
from benchmarks.shared import Floats, item_counts
from benchmarks.speed.measure import Group, Task
from fastdp.perturbers import Flat, Hierarchy
from fastdp.smoothers import Recent
from fastdp.thresholds import Fixed, NoisyMax
from fastdp_lab.queries.workloads import random_ranges
from fastdp_lab.repetitions import repeat

STREAMS, LENGTH = 4_000, 1_000
BOUND, THETA, EPSILON = 100.0, 60.0, 1.0
LOOPED = 200
FRAME_STREAMS, FRAME_LENGTH = 100_000, 96
REPETITIONS = 20
RUNS = 10
#: Perturber, smoother and threshold of each meter.
KINDS: dict[str, tuple[Any, Any, Any]] = {
    "prune 0": (Hierarchy(prune=0), None, Fixed(THETA)),
    "prune 1": (Hierarchy(prune=1), Recent(), Fixed(THETA)),
    "prune 2": (Hierarchy(prune=2), Recent(), Fixed(THETA)),
    "flat": (Flat(), None, Fixed(THETA)),
    "prune 1, noisy max of 250 values": (Hierarchy(prune=1), Recent(), NoisyMax()),
}


def meters(streams: int, length: int = LENGTH) -> Floats:
    return np.random.default_rng(1).gamma(2.0, 9.0, (streams, length))


def options(kind: str) -> dict[str, Any]:
    perturber, smoother, threshold = KINDS[kind]
    holdout = LENGTH // 4 if threshold.uses_holdout else 0
    return {"perturber": perturber, "smoother": smoother, "threshold": threshold, "holdout": holdout}


def many(values: Floats, kind: str, threads: int = 1) -> fastdp.ReleasedMany:
    return fastdp.release_many(values, EPSILON, BOUND, threads=threads, **options(kind))


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


def data_frames() -> Group:
    """A day of 100,000 meters as a matrix, and as a long frame of 9.6 million rows in order of time."""
    values = meters(FRAME_STREAMS, FRAME_LENGTH)
    names = np.array([f"meter-{i}" for i in range(FRAME_STREAMS)])
    numbers = np.arange(FRAME_STREAMS)
    times = np.repeat(np.arange(FRAME_LENGTH), FRAME_STREAMS)
    column = values.T.reshape(-1)
    frames = {
        label: pl.DataFrame({"meter": np.tile(ids, FRAME_LENGTH), "at": times, "kwh": column})
        for label, ids in (("numbers", numbers), ("names", names))
    }
    parts = {"threshold": THETA, "max_range": FRAME_LENGTH}
    columns = {"value": "kwh", "by": "meter", "time": "at"}

    def long(label: str) -> fastdp.ReleasedMany:
        return fastdp.release_many(frames[label], EPSILON, BOUND, **columns, **parts)

    made = long("names")
    tasks: dict[str, Task] = {
        "matrix": lambda: fastdp.release_many(values, EPSILON, BOUND, **parts),
        **{f"long polars frame, {label}": partial(long, label) for label in frames},
        "its frame": lambda: made.frame,
        "polars: group_by and sum of the names": lambda: frames["names"].group_by("meter").agg(pl.col("kwh").sum()),
    }
    return Group("data frames", tasks, items=dict.fromkeys(tasks, values.size))


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
            tops(key=root.of_stream(k)).release(values).range_sum(*queries)

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
    yield data_frames
    for length in (12_000, shared.HOLDOUT + shared.PUBLISHED):
        yield from (partial(repetitions, length, prune) for prune in (0, 2))
