"""PHDStream: whole runs and memory; ``asv`` has a step by points present, batch and depth."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.accuracy.spatial import DEPTH, EPSILONS
from benchmarks.shared import table
from benchmarks.speed import start
from benchmarks.speed.inputs import circles, started
from benchmarks.speed.measure import Group, Task
from fastdp import AdaptivePHDStream, PHDStream
from fastdp.spatial import Box
from fastdp_lab.datasets import SpatialStream, load_circles

#: The authors' circles with deletion, in the folder of real streams.
CIRCLES = "motion_circles_synthetic.csv.gz"
#: The row of AdaptivePHDStream.
COUNT_ONLY = "counts alone"
MARKS = (100, 1_000, 2_500, 5_000, 10_000)
RUNS = 10


def whole_run(stream: SpatialStream, epsilon: float, counter: str, seed: int, *, sampled: bool = False) -> Any:
    """All batches of a stream, the initial set first."""
    box = Box(stream.lower, stream.upper)
    if counter == COUNT_ONLY:
        system: Any = AdaptivePHDStream(box, epsilon, max_depth=DEPTH, seed=seed)
    else:
        system = PHDStream(box, epsilon, counter, max_depth=DEPTH, seed=seed)
    for added, removed in [(stream.initial, None), *stream.batches]:
        system.advance(added, removed)
        if sampled:
            system.sample()
    return system


def whole_runs(path: Path, epsilon: float = 1.0, counter: str = "simple", initial: float = 0.0) -> Group:
    """The authors' circles with deletion, batches of 500, with or without an initial tenth."""
    stream = load_circles(path, initial=initial)
    run = partial(whole_run, stream, epsilon, counter, 0)
    system, new = run(), []
    tasks: dict[str, Task] = {
        "all tree steps": run,
        "one sampling": system.sample,
        "first sampling, cells included": lambda: new.pop().sample(),
    }
    prepare = {"first sampling, cells included": lambda: new.append(run())}
    name = f"circles with deletion, eps {epsilon:g}, {counter}, initial {initial:g}"
    return Group(name, tasks, prepare, {"all tree steps": system.n_steps})


def groups(data: Path) -> Iterator[Callable[[], Group]]:
    """Nothing where the file of circles is absent."""
    path = data / CIRCLES
    if not path.is_file():
        print(f"{CIRCLES} is not in the folder given by --data: whole runs are skipped")
        return
    for initial in (0.0, 0.1):
        for epsilon in EPSILONS:
            for counter in ("simple", "block", COUNT_ONLY):
                yield partial(whole_runs, path, epsilon, counter, initial)


def more(data: Path) -> None:
    del data
    memory()


class Endless:
    """A stream that goes on: in each step so many new points arrive and as many of the oldest are removed."""

    def __init__(self, present: int = 50_000, each: int = 250) -> None:
        self.stream = started(0, DEPTH)
        # The same points repeatedly, so that making them is neither timed nor in memory's way.
        self.coming = cycle(circles(2 * present, 0).reshape(-1, each, 2))
        self.there = deque(next(self.coming) for _ in range(present // each))
        self.stream.advance(np.concatenate(self.there))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.there.append(next(self.coming))
            self.stream.advance(self.there[-1], self.there.popleft())


def memory() -> None:
    """Nodes of an endless stream, and peak memory in fresh processes."""
    endless, rows = Endless(), []
    done = 0
    for mark in MARKS:
        begin = perf_counter()
        endless.run(mark - done)
        step, done = (perf_counter() - begin) / (mark - done), mark
        stream = endless.stream
        cells = [f"{stream.tree.n_leaves:,}", f"{stream.n_nodes:,}", f"{stream.total:,.0f}"]
        rows.append([f"{mark:,}", f"{1e3 * step:.3f}", *cells])
    table(
        "An endless stream: 50,000 points present, 250 arrive and 250 are removed in each step, eps 1",
        ["steps", "ms a step, since the row above", "leaves", "nodes in memory", "released total"],
        rows,
    )
    rises = [(steps, start.number(start.SPATIAL_RISE.format(steps=steps))) for steps in (1_000, 10_000)]
    table(
        "Rise of peak memory of that stream after its first 500 steps, fresh processes",
        ["further steps", "MiB"],
        [[f"{steps:,}", f"{rise / 2**20:.2f}"] for steps, rise in rises],
    )
    peaks = [start.number(start.SPATIAL_PEAK.format(traced=traced)) / 2**20 for traced in (False, True)]
    table(
        "Circles with deletion (generated, 75,000 events), every step sampled, in a fresh process: peak memory",
        ["", "MiB"],
        [
            ["whole process, Python, NumPy and Numba included", f"{peaks[0]:.0f}"],
            ["arrays and objects made during the run", f"{peaks[1]:.1f}"],
        ],
    )
