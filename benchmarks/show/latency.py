"""Latency of one call of publish in a running stream: one value, and a chunk of 4,096; the tree's noise is ready."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter

import numpy as np

import fastdp
from benchmarks import bench_pak, records, sizes
from benchmarks.show.report import table
from benchmarks.streams import Floats, item_counts
from benchmarks.timing import stay_on_one_core

CHUNK = 4096
#: Calls of publish, by the chunk's length, for each of ``--runs``.
CALLS = {1: 200, CHUNK: 4}
Publish = Callable[[Floats, Floats], object]


def started() -> dict[str, Publish]:
    """Publishers that have chosen their threshold and made their first tree."""
    publishers = {
        "ToPS, prune = 0": fastdp.ToPS(sizes.EPSILON, sizes.BOUND, prune=0, seed=1),
        "ToPS, prune = 2": fastdp.ToPS(sizes.EPSILON, sizes.BOUND, prune=2, seed=1),
        "Adaptive": fastdp.Adaptive(sizes.EPSILON, sizes.BOUND, seed=1),
    }
    pak = bench_pak.endless()
    for publisher in (*publishers.values(), pak):
        publisher.publish(item_counts(sizes.HOLDOUT + CHUNK))
    calls: dict[str, Publish] = {
        name: lambda chunk, out, p=p: p.publish(chunk, out=out) for name, p in publishers.items()
    }
    # PAK makes the array of its running sums.
    return {**calls, "PAK": lambda chunk, out: pak.publish(chunk)}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=50, help="200 calls of one value, 4 of a chunk, for each run")


def run(options: argparse.Namespace) -> None:
    print(f"Process {stay_on_one_core()}.")
    rows = []
    for name, publish in started().items():
        for size, calls in CALLS.items():
            chunk, out, copy = item_counts(size), np.empty(size), np.empty(size)
            seconds, copies = np.empty(calls * options.runs), np.empty(calls * options.runs)
            for k in range(seconds.size):
                start = perf_counter()
                publish(chunk, out)
                middle = perf_counter()
                np.copyto(copy, chunk)
                copies[k] = perf_counter() - middle
                seconds[k] = middle - start
            task = f"{name}, {size:,} value{'s' if size > 1 else ''}"
            records.keep("latency", task, seconds, items=size)
            records.keep("latency", f"{task}, np.copyto", copies, items=size)
            microseconds = [float(q) * 1e6 for q in np.quantile(seconds, [0.5, 0.99])]
            rows.append(
                [
                    task,
                    f"{seconds.size:,}",
                    *(f"{q:.2f}" for q in microseconds),
                    f"{microseconds[0] * 1e3 / size:.2f}",
                    f"{float(np.median(copies)) * 1e6:.2f}",
                ]
            )
    columns = ["task", "calls", "us (median)", "us (99 %)", "ns/value", "np.copyto us (median)"]
    table("Latency of one call of publish", columns, rows)
