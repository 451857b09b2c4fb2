"""What a second core gives: two independent calls at once, in two threads of one process.

Kernels let go of Python's lock, so releases of different streams, repetitions and draws run side by side; one call
stays on one core.  The threads of ``release_many`` and ``repeat`` are in ``benchmarks.show batch``.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from time import perf_counter

from benchmarks import records
from benchmarks.show import local_speed, spatial_speed, speed_tasks
from benchmarks.show.report import table
from benchmarks.show.speed_tasks import Group
from benchmarks.streams import DATA
from benchmarks.timing import Task
from fastdp.datasets import load_circles

THREADS = 2
#: Calls without preparation are repeated until they take so long together.
LEAST_SECONDS = 5e-3
#: Tasks of a group that are worth the time: fastdp's own, and what limits them.
CHOSEN = (
    "fastdp",
    "np.copyto",
    "AES",
    "worst",
    "POS",
    "prune",
    "Adaptive",
    "PAK: S-PAK, running",
    "NM-E + H_2",
    "EM",
    "Hybrid",
)
UNWANTED = ("int32", "2^40", "2^44", "memory at hand")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=25, help="warm runs of each task (default 25)")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of real streams (default ../shared/data)")


def run(options: argparse.Namespace) -> None:
    rows = []
    with ThreadPoolExecutor(THREADS) as pool:
        for make in makers(options.data):
            groups = [make() for _ in range(THREADS)]
            for name in filter(_wanted, groups[0].tasks):
                alone, together = alone_and_together(groups, name, options.runs, pool)
                items = groups[0].items.get(name, 1)
                records.keep(groups[0].name, f"{name}, alone", alone, items=items)
                records.keep(groups[0].name, f"{name}, two at once", together, items=items)
                once, twice = statistics.median(alone), statistics.median(together)
                cells = [f"{once * 1e3:.3f}", f"{twice * 1e3:.3f}", f"{once / twice:.2f}"]
                rows.append([f"{groups[0].name}: {name}", *cells])
    table(
        f"One call, and two independent calls at once in two threads; medians of {options.runs} warm runs",
        ["task", "ms a call, one core", "ms a call, two at once", "gain"],
        rows,
    )


def makers(data: Path) -> Iterator[Callable[[], Group]]:
    """Groups of the tables of speed; circles only where the file is there."""
    yield speed_tasks.sampler
    yield speed_tasks.consistency
    yield speed_tasks.noisy_max
    yield speed_tasks.smooth_sensitivity
    yield speed_tasks.online_pass
    yield speed_tasks.whole_release
    yield speed_tasks.other_releases
    yield _square_wave_em
    yield lambda: Group("reports", local_speed.report_tasks())
    path = data / spatial_speed.CIRCLES
    if path.is_file():
        yield lambda: _circles(path)


def _square_wave_em() -> Group:
    tasks = local_speed.estimate_tasks(1.0)
    return Group("square wave EM, eps 1", tasks, items={name: task().iterations for name, task in tasks.items()})  # type: ignore[arg-type]


def _circles(path: Path) -> Group:
    stream = load_circles(path, initial=0.0)
    run_all = "fastdp, all tree steps"
    system = spatial_speed.whole_run(stream, 1.0, "simple", seed=0)
    tasks: dict[str, Task] = {
        run_all: lambda: spatial_speed.whole_run(stream, 1.0, "simple", seed=0),
        "fastdp, one sampling": system.sample,
    }
    return Group(spatial_speed.whole_run_group(1.0, "simple", 0.0), tasks, items={run_all: system.n_steps})


def _wanted(name: str) -> bool:
    return any(word in name for word in CHOSEN) and not any(word in name for word in UNWANTED)


def alone_and_together(
    groups: list[Group], name: str, runs: int, pool: ThreadPoolExecutor
) -> tuple[list[float], list[float]]:
    """Seconds a call: of the first group's task, and of both threads' divided by the calls of both."""
    first = groups[0]
    repeats = 1 if name in first.prepare else _repeats(first.tasks[name])
    alone, together = [], []
    # One round more than is counted: compilation, and the allocator's first steps in each thread.
    for turn in range(1 + runs):
        begin, end = pool.submit(_calls, first, name, repeats, None).result()
        barrier = Barrier(THREADS)
        spans = [pool.submit(_calls, group, name, repeats, barrier) for group in groups]
        begins, ends = zip(*(span.result() for span in spans), strict=True)
        if turn:
            alone.append((end - begin) / repeats)
            together.append((max(ends) - min(begins)) / (repeats * THREADS))
    return alone, together


def _repeats(task: Task) -> int:
    task()
    begin = perf_counter()
    task()
    return math.ceil(LEAST_SECONDS / (perf_counter() - begin))


def _calls(group: Group, name: str, repeats: int, barrier: Barrier | None) -> tuple[float, float]:
    task, before = group.tasks[name], group.prepare.get(name)
    if before is not None:
        before()
    if barrier is not None:
        barrier.wait()
    begin = perf_counter()
    for _ in range(repeats):
        task()
    return begin, perf_counter()
