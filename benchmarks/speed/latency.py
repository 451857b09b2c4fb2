"""One call of publish in a running stream: one value, and a chunk of 4,096; the tree's noise is ready."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.shared import item_counts
from benchmarks.speed.inputs import endless_pak
from benchmarks.speed.measure import Group, Task

CHUNK = 4096
RUNS = 50


def latency() -> Group:
    publishers = {
        "ToPS, prune = 0": fastdp.ToPS(shared.EPSILON, shared.BOUND, prune=0, seed=1),
        "ToPS, prune = 2": fastdp.ToPS(shared.EPSILON, shared.BOUND, prune=2, seed=1),
        "Adaptive": fastdp.Adaptive(shared.EPSILON, shared.BOUND, seed=1),
        "PAK": endless_pak(),
    }
    tasks: dict[str, Task] = {}
    items: dict[str, int] = {}
    for name, publisher in publishers.items():
        publisher.publish(item_counts(shared.HOLDOUT + CHUNK))
        for size in (1, CHUNK):
            task = f"{name}, {size:,} value{'s' if size > 1 else ''}"
            chunk, out = item_counts(size), np.empty(size)
            tasks[task] = lambda p=publisher, chunk=chunk: p.publish(chunk)
            tasks[f"{task}, np.copyto"] = lambda out=out, chunk=chunk: np.copyto(out, chunk)
            items |= {task: size, f"{task}, np.copyto": size}
    return Group("latency", tasks, items=items, times=40)


def groups(data: Path) -> Iterator[Callable[[], Group]]:
    del data
    yield latency
