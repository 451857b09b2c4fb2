"""How costs grow: flat for a value, linear for EM and PHDStream.  ``python -m benchmarks.growth -o DIR``.

Writes ``growth.json`` and, with matplotlib, three pictures; prints the tables.  Nothing here is meant for release.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import multiprocessing
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import numpy as np

import fastdp
from benchmarks import bench_pak, many_streams, sizes
from benchmarks.show import local_speed, report, spatial_speed
from benchmarks.streams import item_counts
from benchmarks.timing import side_by_side, stay_on_one_core

CHUNK = 65_536
NEXT = 4096
#: Calls of publish with 4,096 values, and with one, at each length.
CALLS = 50
PARTS = ("streams", "em", "spatial", "many")
BINS = (256, 512, 1024, 2048, 4096, 8192, 16_384)
STREAMS = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000)
#: Publishers by their hold-out and the longest range that they are for.
PUBLISHERS: dict[str, Callable[[int, int], Any]] = {
    "ToPS, s = 0": lambda m, r: fastdp.ToPS(sizes.EPSILON, sizes.BOUND, m, r, prune=0),
    "ToPS, s = 2": lambda m, r: fastdp.ToPS(sizes.EPSILON, sizes.BOUND, m, r, prune=2),
    "Adaptive": lambda m, r: fastdp.Adaptive(sizes.EPSILON, sizes.BOUND, m, r),
    "PAK": lambda m, r: bench_pak.endless(m),
}
#: Hold-out and range of a publisher that loads every kernel and needs next to no memory.
SMALL = (4_000, 4_096)
#: Streams up to this length are published several times, each by a publisher whose range is the stream's length.
REPEATED = 10**7

Points = list[dict[str, Any]]


def resident_bytes() -> int:
    """Memory of this process now; its peak where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    import mmap

    return pages * mmap.PAGESIZE


def stream(name: str, longest: int, runs: int) -> Points:
    """What a value costs in streams of every length, hold-out before it and noise trees included; and memory.

    A publisher for short streams plans for short ranges, so its tree is no longer than the stream.  Memory is that
    of one endless stream, for ranges up to 2^20, and so are costs beyond ``REPEATED``.
    """
    out = np.zeros(CHUNK)
    _feed(_publishing(name, out, *SMALL), 0, SMALL[0] + CHUNK)
    gc.collect()
    before = resident_bytes()
    publish = _publishing(name, out)
    _feed(publish, 0, sizes.HOLDOUT)
    seconds, done, rises, whole = 0.0, 0, [], []
    for length in _marks(longest):
        seconds += _feed(publish, done, length)
        done = length
        rises.append((resident_bytes() - before) / 2**20)
        whole.append([seconds])
    for k, length in enumerate(_marks(min(longest, REPEATED))):
        whole[k] = [_whole(name, length, out) for _ in range(1 + runs)][1:]
    return [
        {"values": length, "ns_a_value": statistics.median(times) / length * 1e9, "MiB_more": rise}
        for length, times, rise in zip(_marks(longest), whole, rises, strict=True)
    ]


def _whole(name: str, length: int, out: np.ndarray) -> float:
    """Seconds to publish so many values behind the hold-out."""
    publish = _publishing(name, out, max_range=min(length, sizes.MAX_RANGE))
    _feed(publish, 0, sizes.HOLDOUT)
    return _feed(publish, 0, length)


def _feed(publish: Callable[[np.ndarray], object], done: int, length: int) -> float:
    """Publish values up to a length, chunk by chunk; seconds that this thread ran."""
    values = item_counts(CHUNK)
    begin = thread_time()
    for start in range(done, length, CHUNK):
        publish(values[: length - start])
    return thread_time() - begin


def latency(name: str, longest: int) -> Points:
    """Medians of single calls at each length of a stream of its own: they are values of the stream, too."""
    values, done, points = item_counts(NEXT), 0, []
    publish = _publishing(name, np.empty(CHUNK))
    _feed(publish, 0, sizes.HOLDOUT)
    for length in _marks(longest):
        _feed(publish, done, length)
        following = {size: _median_call(publish, values[:size]) for size in (1, NEXT)}
        done = max(done, length) + CALLS * (1 + NEXT)
        points.append({"us_one_value": following[1] * 1e6, "us_chunk": following[NEXT] * 1e6})
    return points


def streams(longest: int, runs: int) -> dict[str, Points]:
    """Every publisher in a process of its own, for memory is the process's."""
    found = {}
    context = multiprocessing.get_context("spawn")
    for name in PUBLISHERS:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            costs, calls = pool.submit(stream, name, longest, runs), pool.submit(latency, name, longest)
            found[name] = [{**cost, **call} for cost, call in zip(costs.result(), calls.result(), strict=True)]
    return found


def _marks(longest: int) -> list[int]:
    """10^4, 10^5, ... up to the longest."""
    return [10**power for power in range(4, 1 + math.floor(math.log10(longest) + 1e-9))]


def _publishing(
    name: str, out: np.ndarray, holdout: int = sizes.HOLDOUT, max_range: int = sizes.MAX_RANGE
) -> Callable[[np.ndarray], object]:
    """A new publisher's call; PAK makes its array itself, the others have memory at hand."""
    made = PUBLISHERS[name](holdout, max_range)
    return made.publish if name == "PAK" else lambda part: made.publish(part, out=out[: part.size])


def _median_call(publish: Callable[[np.ndarray], object], part: np.ndarray) -> float:
    seconds = []
    for _ in range(CALLS):
        begin = perf_counter()
        publish(part)
        seconds.append(perf_counter() - begin)
    return statistics.median(seconds)


def square_wave(runs: int) -> Points:
    """A plain EM step by the number of bins."""
    steps = local_speed.STEPS
    return [
        {
            "bins": bins,
            "us_a_step": timing.median / steps * 1e6,
            "ns_a_step_and_bin": timing.median / steps / bins * 1e9,
        }
        for bins, timing in local_speed.step_timings(runs, BINS).items()
    ]


def spatial(runs: int) -> Points:
    """PHDStream's step by points present, batch and depth."""
    return [
        {"present": step.present, "batch": step.batch, "depth": step.depth, "visited": step.visited,
         "us_a_step": step.seconds * 1e6, "ns_each": step.seconds / (step.batch + step.visited) * 1e9}
        for step in spatial_speed.steps(runs)
    ]  # fmt: skip


def many(runs: int) -> Points:
    """``release_many`` by the number of streams of 1,000 values."""
    values = {count: many_streams.meters(count) for count in STREAMS}
    points: Points = []
    for kind in ("prune 0", "prune 1"):
        tasks = {str(n): lambda rows=rows, kind=kind: many_streams.many(rows, kind) for n, rows in values.items()}
        for name, timing in side_by_side(tasks, runs).items():
            size = int(name) * many_streams.LENGTH
            points.append({"kind": kind, "streams": int(name), "ms": timing.median * 1e3,
                           "ns_a_value": timing.median / size * 1e9})  # fmt: skip
    return points


def linear_fit(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Slope a and constant b of y = a x + b by least relative squares, and the largest relative miss."""
    slope, constant = np.polyfit(x, y, 1, w=1.0 / y)
    return float(slope), float(constant), float(np.max(np.abs((slope * x + constant) / y - 1.0)))


def show(title: str, points: Points) -> None:
    """A table with one row for each point."""
    columns = list(points[0])
    rows = [[p[c] if isinstance(p[c], str) else f"{p[c]:,.4g}" if isinstance(p[c], float)
             else f"{p[c]:,}" for c in columns] for p in points]  # fmt: skip
    report.table(title, [column.replace("_", " ") for column in columns], rows)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All points of the parts that were asked for."""
    found: dict[str, Any] = {}
    if "streams" in options.only:
        found["streams"] = streams(int(options.longest), options.runs)
        for name, points in found["streams"].items():
            show(f"{name}: processor time of values behind the hold-out", points)
    for part, title, take in (
        ("em", f"A plain EM step, {local_speed.STEPS} steps a run", square_wave),
        ("spatial", "PHDStream's step, half additions and half removals", spatial),
        ("many", f"release_many, streams of {many_streams.LENGTH:,} values", many),
    ):
        if part in options.only:
            found[part] = take(options.runs)
            show(title, found[part])
    return found


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__.partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for numbers and pictures")
    parser.add_argument("--longest", type=float, default=1e9, help="values of the longest stream (default 1e9)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each timed task (default 5)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="which parts")
    options = parser.parse_args(given)
    report.heading(given, "benchmarks.growth")
    print(f"Process {stay_on_one_core()}.")
    options.output.mkdir(parents=True, exist_ok=True)
    found = measure(options)
    path = options.output / "growth.json"
    # Parts that were not asked for stay.
    numbers = json.loads(path.read_text()) if path.exists() else {}
    origin = {"machine": report.cpu_model(), "command": f"python -m benchmarks.growth {' '.join(given)}"}
    numbers |= {part: {**origin, "points": points} for part, points in found.items()}
    path.write_text(json.dumps(numbers, indent=1) + "\n")
    if report.version("matplotlib") == "absent":
        print("No pictures: matplotlib is not installed.")
        return 0
    from benchmarks import growth_pictures

    for path in growth_pictures.draw(found, options.output):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
