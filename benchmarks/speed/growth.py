"""How the cost of a value, the latency of a call and memory grow with the stream: flat beyond the first tree."""

from __future__ import annotations

import argparse
import gc
import math
import multiprocessing
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.shared import Floats, item_counts, table
from benchmarks.speed.inputs import endless_pak
from benchmarks.speed.load import resident

CHUNK, NEXT = 65_536, 4096
#: Calls of publish with 4,096 values, and with one, at each length.
CALLS = 50
#: Publishers by their hold-out and the longest range that they are for.
PUBLISHERS: dict[str, Callable[[int, int], Any]] = {
    "ToPS, s = 0": lambda m, r: fastdp.ToPS(shared.EPSILON, shared.BOUND, m, r, prune=0),
    "ToPS, s = 2": lambda m, r: fastdp.ToPS(shared.EPSILON, shared.BOUND, m, r, prune=2),
    "Adaptive": lambda m, r: fastdp.Adaptive(shared.EPSILON, shared.BOUND, m, r),
    "PAK": lambda m, r: endless_pak(m),
}
#: Hold-out and range of a publisher that loads every kernel and needs next to no memory.
SMALL = (4_000, 4_096)
#: Streams up to this length are published several times, each by a publisher whose range is the stream's length.
REPEATED = 10**7
COLUMNS = ("values", "ns a value", "MiB more", "us a call, one value", "us a call, 4,096 values")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--longest", type=float, default=1e9, help="values of the longest stream (default 1e9)")
    parser.add_argument("--runs", type=int, default=5, help="runs of streams up to 10^7 values (default 5)")
    parser.add_argument("--picture", type=Path, help="a file for the three curves of each publisher")


def run(options: argparse.Namespace) -> None:
    found = {}
    context = multiprocessing.get_context("spawn")
    for name in PUBLISHERS:
        # A process of its own, for memory is the process's.
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            costs = pool.submit(stream, name, int(options.longest), options.runs).result()
            calls = pool.submit(latency, name, int(options.longest)).result()
        found[name] = np.column_stack([marks(int(options.longest)), *costs, *calls])
        rows = [[f"{n:,.0f}", *(f"{number:.4g}" for number in row)] for n, *row in found[name].tolist()]
        table(f"{name}: processor time of values behind the hold-out, noise trees included", COLUMNS, rows)
    if options.picture:
        draw(found, options.picture)


def marks(longest: int) -> list[int]:
    """10^4, 10^5, ... up to the longest."""
    return [10**power for power in range(4, 1 + math.floor(math.log10(longest) + 1e-9))]


def stream(name: str, longest: int, runs: int) -> tuple[list[float], list[float]]:
    """Nanoseconds a value in streams of every length, noise trees included, and MiB beyond the process before.

    A publisher for short streams plans for short ranges, so its tree is no longer than the stream.  Memory is that
    of one endless stream, for ranges up to 2^20, and so are costs beyond ``REPEATED``.
    """
    out = np.zeros(CHUNK)
    _feed(_publishing(name, out, *SMALL), 0, SMALL[0] + CHUNK)
    gc.collect()
    before = resident()
    publish = _publishing(name, out)
    _feed(publish, 0, shared.HOLDOUT)
    seconds, done, rises, costs = 0.0, 0, [], []
    for length in marks(longest):
        seconds += _feed(publish, done, length)
        done = length
        rises.append(resident() - before)
        costs.append(seconds / length * 1e9)
    for k, length in enumerate(marks(min(longest, REPEATED))):
        costs[k] = statistics.median([_whole(name, length, out) for _ in range(1 + runs)][1:]) / length * 1e9
    return costs, rises


def latency(name: str, longest: int) -> tuple[list[float], list[float]]:
    """Microseconds of single calls at each length of a stream of its own, one value and 4,096; medians."""
    values, done = item_counts(NEXT), 0
    ones: list[float] = []
    chunks: list[float] = []
    publish = _publishing(name, np.empty(CHUNK))
    _feed(publish, 0, shared.HOLDOUT)
    for length in marks(longest):
        _feed(publish, done, length)
        for size, found in ((1, ones), (NEXT, chunks)):
            found.append(_median_call(publish, values[:size]) * 1e6)
        done = max(done, length) + CALLS * (1 + NEXT)
    return ones, chunks


def _whole(name: str, length: int, out: Floats) -> float:
    """Seconds to publish so many values behind the hold-out."""
    publish = _publishing(name, out, max_range=min(length, shared.MAX_RANGE))
    _feed(publish, 0, shared.HOLDOUT)
    return _feed(publish, 0, length)


def _feed(publish: Callable[[Floats], object], done: int, length: int) -> float:
    """Publish values up to a length, chunk by chunk; seconds that this thread ran."""
    values = item_counts(CHUNK)
    begin = thread_time()
    for start in range(done, length, CHUNK):
        publish(values[: length - start])
    return thread_time() - begin


def _publishing(
    name: str, out: Floats, holdout: int = shared.HOLDOUT, max_range: int = shared.MAX_RANGE
) -> Callable[[Floats], object]:
    """A new publisher's call; PAK makes its array itself, the others have memory at hand."""
    made = PUBLISHERS[name](holdout, max_range)
    return made.publish if name == "PAK" else lambda part: made.publish(part, out=out[: part.size])


def _median_call(publish: Callable[[Floats], object], part: Floats) -> float:
    seconds = []
    for _ in range(CALLS):
        begin = perf_counter()
        publish(part)
        seconds.append(perf_counter() - begin)
    return statistics.median(seconds)


def draw(found: dict[str, Floats], path: Path) -> None:
    """Cost, latency and memory by length."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (cost, call, memory) = plt.subplots(1, 3, figsize=(13.8, 3.8), layout="constrained")
    for k, (name, points) in enumerate(found.items()):
        n, each, rise, one, chunk = points.T
        cost.plot(n, each, "o-", color=f"C{k}", label=name)
        call.plot(n, chunk, "o-", color=f"C{k}")
        call.plot(n, one, "o:", color=f"C{k}", fillstyle="none")
        memory.plot(n, rise, "o-", color=f"C{k}")
    cost.set(yscale="log", ylabel="ns of processor time a value", title="Cost of a value, noise trees included")
    call.set(yscale="log", ylabel="us a call", title="Latency: 4,096 values (full), 1 value (dotted)")
    memory.set(ylabel="MiB more than before the publisher", title="Memory of the process")
    for axis in (cost, call, memory):
        axis.set(xscale="log", xlabel="values published")
        axis.grid(alpha=0.3)
    cost.legend(fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)
