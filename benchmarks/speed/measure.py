"""Groups of tasks that are timed side by side, and the file of their numbers (``--json``)."""

import datetime
import gc
import json
import math
import os
import platform
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np

import fastdp
from benchmarks.shared import DATA, Data, cpu_model, table, version

Task = Callable[[], Any]
BURST = 5
#: Runs of a task that takes long and scatters little.
SLOW_RUNS = 3
#: Seconds of a task that is timed once.
LONG = 1.0
FORMAT = 1
PACKAGES = ("numpy", "numba", "scipy", "opendp")
_kept: dict[str, dict[str, Any]] = {}
#: Cores that the process was given; None where the system does not tell.
_CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None


@dataclass(frozen=True)
class Group:
    """Tasks to time side by side; each maker gives tasks memory of their own, so two threads can have one each."""

    name: str
    tasks: dict[str, Task]
    prepare: dict[str, Task] = field(default_factory=dict)
    items: dict[str, int] = field(default_factory=dict)
    slow: dict[str, Task] = field(default_factory=dict)
    limit: str = ""
    times: int = 1
    threaded: Collection[str] = ()
    #: ``process_time`` where threads and other processes do not count.
    clock: Callable[[], float] = perf_counter


def side_by_side(
    tasks: Mapping[str, Task],
    runs: int,
    prepare: Mapping[str, Task] | None = None,
    threaded: Collection[str] = (),
    clock: Callable[[], float] = perf_counter,
) -> dict[str, Any]:
    """Seconds of each task, at least ``runs`` times, warm: float64[runs] by name; ``threaded`` ones on all cores.

    Every round runs each task in a short burst, so that a busy machine slows all alike.  The first call of a burst is
    not timed: it brings the task's data into the caches and the allocator into the state that this task leaves.
    """
    before = prepare or {}
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    gc.collect()
    gc.disable()
    try:
        # One round more than is timed: compilation and the allocator's first steps.
        for turn in range(1 + math.ceil(runs / BURST)):
            for name, task in tasks.items():
                with on_all_cores() if name in threaded else nullcontext():
                    burst = [_time(task, before.get(name), clock) for _ in range(1 + BURST)]
                if turn:
                    seconds[name] += burst[1:]
    finally:
        gc.enable()
    return {name: np.array(measured) for name, measured in seconds.items()}


def _time(task: Task, before: Task | None = None, clock: Callable[[], float] = perf_counter) -> float:
    if before is not None:
        before()
    start = clock()
    task()
    return clock() - start


def measure(group: Group, runs: int) -> None:
    """Time a group, keep its numbers, and print its table."""
    found = side_by_side(group.tasks, runs * group.times, group.prepare, group.threaded, group.clock)
    for name, task in group.slow.items():
        first = _time(task, clock=group.clock)
        found[name] = np.array(
            [first] if first > LONG else [_time(task, clock=group.clock) for _ in range(SLOW_RUNS)]
        )
    for name, seconds in found.items():
        keep(group.name, name, seconds, items=group.items.get(name, 1))
    show(group.name, found, group.items, group.limit)


def timed(module: Any) -> Callable[..., None]:
    """A function that times the groups of a module."""

    def run(
        *,
        runs: Annotated[int, "warm runs"] = module.RUNS,
        only: Annotated[str, "groups whose name has this text"] = "",
        data: Data = DATA,
    ) -> None:
        print(f"Process {stay_on_one_core()}; {runs} warm runs, bursts of {BURST} in turn.")
        for make in module.groups(data):
            group = make()
            if only in group.name:
                measure(group, runs)
        if hasattr(module, "more") and not only:
            module.more(data)

    return run


def show(title: str, found: Mapping[str, Any], items: Mapping[str, int], limit: str = "") -> None:
    """A row for each task: seconds a call, and of an item beside the limit's."""

    def cost(name: str) -> float:
        return float(np.median(found[name])) / items.get(name, 1)

    columns = ["task", "items a call", "median", "least", "99 %", "an item", *([f"over {limit}"] if limit else [])]
    table(
        title,
        columns,
        (
            [name, f"{items.get(name, 1):,}"]
            + [duration(float(q)) for q in (np.median(seconds), seconds.min(), np.quantile(seconds, 0.99))]
            + [duration(cost(name)), *([f"{cost(name) / cost(limit):.2f}"] if limit else [])]
            for name, seconds in found.items()
        ),
    )


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def spread(sample: Sequence[float]) -> dict[str, float]:
    """Median, quartiles and least of a sample."""
    low, median, high = (float(q) for q in np.quantile(np.asarray(sample, np.float64), (0.25, 0.5, 0.75)))
    return {"median": median, "q1": low, "q3": high, "least": float(min(sample))}


def keep(group: str, task: str, sample: Sequence[float], *, items: int = 1, unit: str = "s") -> None:
    """Remember a task: seconds a call (or another unit), and how many draws, values or steps a call handles."""
    _kept[f"{group}: {task}"] = {**spread(sample), "runs": len(sample), "items": items, "unit": unit}


def write(path: Path, section: str, command: str) -> None:
    """Put what was remembered into a section of the file, and forget it; others, and tasks beside --only, stay."""
    known = json.loads(path.read_text()) if path.exists() else {"format": FORMAT, "sections": {}}
    if known.get("format") != FORMAT:
        raise SystemExit(f"{path}: expected a summary of format {FORMAT}, got {known.get('format')!r}")
    others = known["sections"].get(section, {}).get("tasks", {}) if "--only" in command else {}
    known["sections"][section] = {
        "machine": f"{cpu_model()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "packages": {"fastdp": fastdp.__version__, **{name: version(name) for name in PACKAGES}},
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        # Processes that want to run, this one included: above 1 (2 for two threads), others were at work.
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "tasks": others | _kept,
    }
    _kept.clear()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def stay_on_one_core() -> str:
    """Bind this process to one core where the system can; a sentence that says which."""
    try:
        core = max(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {core})
    except (AttributeError, OSError):
        return "not bound to a core (this system cannot)"
    return f"bound to core {core}"


@contextmanager
def on_all_cores() -> Iterator[None]:
    """Let this thread, and threads that it starts, use every core that the process was given."""
    if _CORES is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, _CORES)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
