"""A sweep of 2,400 cells on one worker and on two: threads, and processes with their start."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.shared import table
from benchmarks.speed.measure import keep
from fastdp.experiments import read_specification
from fastdp.experiments import run as run_sweep

SPECIFICATION = """
name = "two workers"
seed = 1
repetitions = 200
epsilons = [0.05, 0.1, 0.5, 1.0]
holdout = 16384
max_range = 65536
metrics = ["mse"]

[[datasets]]
name = "POS"
generator = "table1"
stream = "pos"
published = 131072

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
CELLS = 2400
#: Workers, and what they are.
HOW = ((1, "threads"), (2, "threads"), (2, "processes"))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, help="whole sweeps of each kind, in turn (default 3)")


def run(options: argparse.Namespace) -> None:
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.toml"
        path.write_text(SPECIFICATION)
        specification = read_specification(path)
        for turn in range(1 + options.runs):
            for workers, mode in HOW:
                begin = perf_counter()
                run_sweep(specification, Path(folder) / f"{turn} {workers} {mode}", workers=workers, mode=mode)
                # The first turn compiles.
                if turn:
                    seconds.setdefault(f"{workers} {mode}", []).append(perf_counter() - begin)
    for name, sample in seconds.items():
        keep("sweep", name, sample, items=CELLS)
    alone = statistics.median(seconds["1 threads"])
    table(
        f"Seconds of a sweep of {CELLS:,} cells, 131,072 values each; medians of {options.runs}",
        ["workers", "seconds", "gain"],
        [[name, f"{statistics.median(s):.3g}", f"{alone / statistics.median(s):.3g}"] for name, s in seconds.items()],
    )
