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
from time import perf_counter
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
PUBLISHERS: dict[str, Callable[[], fastdp.StreamPublisher | fastdp.PAK]] = {
    "ToPS, s = 0": lambda: fastdp.ToPS(sizes.EPSILON, sizes.BOUND, prune=0),
    "ToPS, s = 2": lambda: fastdp.ToPS(sizes.EPSILON, sizes.BOUND, prune=2),
    "Adaptive": lambda: fastdp.Adaptive(sizes.EPSILON, sizes.BOUND),
    "PAK": bench_pak.endless,
}

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


def stream(name: str, longest: int) -> Points:
    """One endless stream, the hold-out before it: what a value has cost so far, what the next ones cost, memory.

    The first values pay for a threshold and a whole noise tree.
    """
    values, out, holdout = item_counts(CHUNK), np.empty(CHUNK), item_counts(sizes.HOLDOUT)
    _ = PUBLISHERS[name]().publish(holdout[:1])
    gc.collect()
    before = resident_bytes()
    publisher, publish = _publisher(name, out)
    begin = perf_counter()
    publisher.publish(holdout)
    start, seconds, done, points = perf_counter() - begin, 0.0, 0, []
    for length in _marks(longest):
        last, marked = done, seconds
        while done < length:
            part = values[: length - done]
            begin = perf_counter()
            publish(part)
            seconds += perf_counter() - begin
            done += part.size
        points.append({
            "values": length,
            "ns_a_value": seconds / length * 1e9,
            "ns_a_value_since_before": (seconds - marked) / (length - last) * 1e9 if last else None,
            "MiB_more": (resident_bytes() - before) / 2**20,
            "start_ms": start * 1e3,
        })  # fmt: skip
    return points


def latency(name: str, longest: int) -> Points:
    """Medians of single calls at each length of a stream of its own: they are values of the stream, too."""
    values, out = item_counts(CHUNK), np.empty(CHUNK)
    publisher, publish = _publisher(name, out)
    publisher.publish(item_counts(sizes.HOLDOUT))
    done, points = 0, []
    for length in _marks(longest):
        while done < length:
            part = values[: length - done]
            publish(part)
            done += part.size
        following = {size: _median_call(publish, values[:size]) for size in (1, NEXT)}
        done += CALLS * (1 + NEXT)
        points.append({"us_one_value": following[1] * 1e6, "us_chunk": following[NEXT] * 1e6})
    return points


def streams(longest: int) -> dict[str, Points]:
    """Every publisher in a process of its own, for memory is the process's."""
    found = {}
    context = multiprocessing.get_context("spawn")
    for name in PUBLISHERS:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            pairs = zip(pool.submit(stream, name, longest).result(), pool.submit(latency, name, longest).result(),
                        strict=True)  # fmt: skip
            found[name] = [{**cost, **call} for cost, call in pairs]
    return found


def _marks(longest: int) -> list[int]:
    """10^4, 10^5, ... up to the longest."""
    return [10**power for power in range(4, 1 + math.floor(math.log10(longest) + 1e-9))]


def _publisher(name: str, out: np.ndarray) -> tuple[Any, Callable[[np.ndarray], object]]:
    """A publisher and its call; PAK makes its array itself, the others have memory at hand."""
    made: Any = PUBLISHERS[name]()
    return made, made.publish if name == "PAK" else lambda part: made.publish(part, out=out[: part.size])


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
    rows = [["-" if p[c] is None else p[c] if isinstance(p[c], str) else f"{p[c]:,.4g}" if isinstance(p[c], float)
             else f"{p[c]:,}" for c in columns] for p in points]  # fmt: skip
    report.table(title, [column.replace("_", " ") for column in columns], rows)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All points of the parts that were asked for."""
    found: dict[str, Any] = {}
    if "streams" in options.only:
        found["streams"] = streams(int(options.longest))
        for name, points in found["streams"].items():
            show(f"{name}: an endless stream, hold-out before it", points)
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
    numbers = {"machine": report.cpu_model(), "command": f"python -m benchmarks.growth {' '.join(given)}", **found}
    (options.output / "growth.json").write_text(json.dumps(numbers, indent=1) + "\n")
    if report.version("matplotlib") == "absent":
        print("No pictures: matplotlib is not installed.")
        return 0
    from benchmarks import growth_pictures

    for path in growth_pictures.draw(found, options.output):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
