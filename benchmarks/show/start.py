"""What a fresh process pays before the first answer."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from benchmarks import fresh_process
from benchmarks.show.report import table


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, help="fresh processes of each kind (default 3)")


def run(options: argparse.Namespace) -> None:
    fresh_process.import_seconds()  # The first one writes bytecode.
    imports = [fresh_process.import_seconds() for _ in range(max(options.runs, 5))]
    fresh_process.first_name_seconds()
    names = [fresh_process.first_name_seconds() for _ in range(max(options.runs, 5))]
    cold, warm = [], []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(fresh_process.first_call_seconds(Path(folder)))
            warm.append(fresh_process.first_call_seconds(Path(folder)))
    growth = [fresh_process.growth_bytes(chunks) / 2**20 for chunks in (16, 1024)]
    rows = [
        [name, f"{statistics.median(seconds):.3f}", f"{min(seconds):.3f}", str(len(seconds))]
        for name, seconds in (
            ("import fastdp, beyond numpy", imports),
            ("import fastdp and look up fastdp.ToPS (loads numba), beyond numpy", names),
            ("first release and query, empty kernel cache", cold),
            ("first release and query, warm kernel cache", warm),
        )
    ]
    table("Fresh process (first calls include the import of numba)", ["task", "s (median)", "s (min)", "runs"], rows)
    table(
        "Endless stream, prune = 2, chunks of 65,536: rise of peak memory after 2.6 million values",
        ["further values", "MiB"],
        [[f"{chunks * 65_536:,}", f"{rise:.2f}"] for chunks, rise in zip((16, 1024), growth, strict=True)],
    )
