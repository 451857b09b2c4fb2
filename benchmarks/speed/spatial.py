"""PHDStream: whole runs, and samples of their points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.accuracy.spatial import DEPTH, EPSILONS
from benchmarks.speed.measure import Group, Task
from fastdp import AdaptivePHDStream, PHDStream
from fastdp.spatial import Box
from fastdp_lab.datasets import SpatialStream, load_circles

#: The authors' circles with deletion, in the folder of real streams.
CIRCLES = "motion_circles_synthetic.csv.gz"
#: The row of AdaptivePHDStream.
COUNT_ONLY = "counts alone"
RUNS = 10


def whole_run(stream: SpatialStream, epsilon: float, counter: str, seed: int) -> Any:
    """All batches of a stream, the initial set first."""
    box = Box(stream.lower, stream.upper)
    if counter == COUNT_ONLY:
        system: Any = AdaptivePHDStream(box, epsilon, max_depth=DEPTH, seed=seed)
    else:
        system = PHDStream(box, epsilon, counter, max_depth=DEPTH, seed=seed)
    for added, removed in [(stream.initial, None), *stream.batches]:
        system.advance(added, removed)
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
