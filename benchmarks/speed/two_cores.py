"""Two independent calls at once, in two threads of one process, beside one alone.

Kernels release Python's lock, so releases of different streams, repetitions and draws run side by side; one call
stays on one core.  The threads of ``release_many`` and ``repeat`` are in ``speed batch``.
"""

import math
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from time import perf_counter
from typing import Annotated

from benchmarks.shared import DATA, Data, table
from benchmarks.speed import local, points, streams
from benchmarks.speed.measure import Group, Task, keep

THREADS = 2
#: Calls without preparation are repeated until they take so long together.
MIN_SECONDS = 5e-3
#: Tasks that are measured on one core alone: peers, variants, and scales beyond what a release draws at.
LEFT_OUT = ("NumPy", "int32", "2^44", "memory at hand", "new memory", "first sampling")


def run(*, runs: Annotated[int, "warm runs of each task"] = 25, data: Data = DATA) -> None:
    rows = []
    with ThreadPoolExecutor(THREADS) as pool:
        for make in makers(data):
            groups = [make() for _ in range(THREADS)]
            for name in groups[0].tasks:
                if any(word in name for word in LEFT_OUT):
                    continue
                alone, together = alone_and_together(groups, name, runs, pool)
                items = groups[0].items.get(name, 1)
                keep(groups[0].name, f"{name}, alone", alone, items=items)
                keep(groups[0].name, f"{name}, two at once", together, items=items)
                once, twice = statistics.median(alone), statistics.median(together)
                rows.append([f"{groups[0].name}: {name}", once * 1e3, twice * 1e3, once / twice])
    table(
        f"One call, and two independent calls at once in two threads; medians of {runs} warm runs",
        ["task", "ms a call, one core", "ms a call, two at once", "gain"],
        rows,
    )


def makers(data: Path) -> Iterator[Callable[[], Group]]:
    """Groups of the other tables; circles only where the file is there."""
    yield from streams.groups(data)
    yield partial(local.square_wave, 1.0)
    yield local.reports
    path = data / points.CIRCLES
    if path.is_file():
        yield partial(points.whole_runs, path)


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
    return math.ceil(MIN_SECONDS / (perf_counter() - begin))


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
