"""What a sweep costs besides the mechanisms: 10^5 small cells, time a cell, memory, size on disk.

Run: python -m benchmarks.sweep_cells [--cells 100000] [--workers 2] [--mode processes]

The same cells are also run in a bare loop (publisher, answers, nothing else), and the difference is the overhead.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.show import report
from benchmarks.show.report import table
from fastdp import experiments
from fastdp.experiments import SYSTEMS
from fastdp.experiments.cells import groups
from fastdp.experiments.data_source import load_truth
from fastdp.randomness.key import Key

REPETITIONS = 100
BARE = 2000


def specification(cells: int) -> experiments.Specification:
    """ToPS on a short stream, at ten budgets and with ten values of c."""
    repetitions = max(1, cells // REPETITIONS)
    return experiments.from_table(
        {
            "name": "small cells",
            "repetitions": repetitions,
            "epsilons": [0.1 * k for k in range(1, 11)],
            "holdout": 256,
            "max_range": 1024,
            "datasets": [{"name": "POS", "generator": "table1", "stream": "pos", "n": 1280}],
            "mechanisms": [{"name": "ToPS", "system": "tops", "prune": 1, "c": [10.0 * k for k in range(1, 11)]}],
            "workloads": [{"kind": "random_ranges", "count": 20}],
        }
    )


def bare(found: experiments.Specification) -> float:
    """Seconds of a cell without a sweep: prepared once, then releases and answers."""
    group = next(groups(found))
    stream = load_truth(group.data_set, Path())
    setting = group.data_set.setting(stream.body.size, group.epsilon)
    run = SYSTEMS[group.mechanism.system].prepare(group.mechanism.parameters, setting, stream.values)
    queries = found.workloads[0].draw(stream.body.size, 1024, 0)
    root = Key.from_seed(0)
    keys = [root.derive("bare", k) for k in range(BARE)]
    run(keys[0])
    begin = perf_counter()
    for key in keys:
        run(key).answer(queries.starts, queries.stops)
    return (perf_counter() - begin) / BARE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--mode", choices=("threads", "processes"), default="processes")
    options = parser.parse_args()
    report.heading(sys.argv[1:], "benchmarks.sweep_cells")
    found = specification(options.cells)
    without = bare(found)
    with tempfile.TemporaryDirectory() as name:
        begin = perf_counter()
        folder = experiments.run(found, Path(name) / "out", workers=options.workers, mode=options.mode)
        seconds = perf_counter() - begin
        size = (folder / "results.parquet").stat().st_size
        begin = perf_counter()
        rows = len(experiments.load(folder)["cell"])
        reading = perf_counter() - begin
    cell = seconds / rows * options.workers
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    table(
        f"{rows:,} cells, {options.workers} workers ({options.mode})",
        ("what", "measured"),
        [
            ["whole sweep", f"{seconds:.1f} s"],
            ["a cell, times workers", f"{1e6 * cell:.0f} us"],
            ["a bare cell", f"{1e6 * without:.0f} us"],
            ["overhead a cell", f"{1e6 * (cell - without):.0f} us"],
            ["peak memory of the runner", f"{peak:.0f} MB"],
            ["table on disk", f"{size / 1e6:.1f} MB, {size / rows:.0f} bytes a cell"],
            ["load()", f"{reading:.2f} s"],
        ],
    )


if __name__ == "__main__":
    main()
