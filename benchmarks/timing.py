"""Timings side by side: every round runs each task in a short burst, so that a busy machine slows all alike.

The first call of a burst is not timed: it brings the task's data into the caches and the allocator into
the state that calls of this task leave, so that one task does not pay for its neighbour's memory.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

Task = Callable[[], Any]
BURST = 5


@dataclass(frozen=True)
class Timing:
    """Seconds of one task over several warm runs."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def least(self) -> float:
        return min(self.seconds)


def side_by_side(
    tasks: Mapping[str, Task], runs: int, prepare: Mapping[str, Task] | None = None
) -> dict[str, Timing]:
    """Time each task at least ``runs`` times, warm; ``prepare`` runs before every call of a task, untimed."""
    before = prepare or {}
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    gc.collect()
    gc.disable()
    try:
        # One round more than is timed: compilation and the allocator's first steps.
        for turn in range(1 + math.ceil(runs / BURST)):
            for name, task in tasks.items():
                burst = [_time(task, before.get(name)) for _ in range(1 + BURST)]
                if turn:
                    seconds[name] += burst[1:]
    finally:
        gc.enable()
    return {name: Timing(tuple(measured)) for name, measured in seconds.items()}


def _time(task: Task, before: Task | None) -> float:
    if before is not None:
        before()
    start = perf_counter()
    task()
    return perf_counter() - start


def stay_on_one_core() -> str:
    """Bind this process to one core where the system can; a sentence that says which."""
    try:
        core = max(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {core})
    except (AttributeError, OSError):
        return "not bound to a core (this system cannot)"
    return f"bound to core {core}"
