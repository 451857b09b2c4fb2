"""Sweeps of small cells and of large ones, on one worker and on two: threads, and processes with their start."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.shared import table
from benchmarks.speed.measure import keep
from fastdp_lab.sweeps import read_specification
from fastdp_lab.sweeps import run as run_sweep

SPECIFICATION = """
name = "two workers"
seed = 1
repetitions = {repetitions}
epsilons = [0.05, 0.1, 0.5, 1.0]
holdout = 16384
max_range = 65536
metrics = ["mse"]

[[datasets]]
name = "POS"
generator = "table1"
stream = "pos"
published = {published}

[[mechanisms]]
name = "Adaptive"
system = "adaptive"

[[mechanisms]]
name = "ToPS"
system = "tops"

[[mechanisms]]
name = "every value"
system = "tops"
prune = 0
"""
#: Sweeps by their place in the names of tasks: published values of a cell, and repetitions of each of 12 groups.
SWEEPS = {"sweep": (131_072, 200), "sweep of large cells": (2**20, 400)}
GROUPS = 12
#: Workers, and what they are.
HOW = ((1, "threads"), (2, "threads"), (2, "processes"))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, help="whole sweeps of each kind, in turn (default 3)")
    parser.add_argument("--only", default="", metavar="TEXT", help="sweeps whose name has this text")


def run(options: argparse.Namespace) -> None:
    for title, (published, repetitions) in SWEEPS.items():
        if options.only in title:
            _compare(title, published, repetitions, options.runs)


def _compare(title: str, published: int, repetitions: int, runs: int) -> None:
    cells = GROUPS * repetitions
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.toml"
        path.write_text(SPECIFICATION.format(published=published, repetitions=repetitions))
        specification = read_specification(path)
        for turn in range(1 + runs):
            for workers, mode in HOW:
                begin = perf_counter()
                run_sweep(specification, Path(folder) / f"{turn} {workers} {mode}", workers=workers, mode=mode)
                # The first turn compiles.
                if turn:
                    seconds.setdefault(f"{workers} {mode}", []).append(perf_counter() - begin)
    for name, sample in seconds.items():
        keep(title, name, sample, items=cells)
    alone = statistics.median(seconds["1 threads"])
    table(
        f"Seconds of a sweep of {cells:,} cells, {published:,} values each; medians of {runs}",
        ["workers", "seconds", "gain"],
        [[name, f"{statistics.median(s):.3g}", f"{alone / statistics.median(s):.3g}"] for name, s in seconds.items()],
    )
