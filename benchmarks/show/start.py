"""What a fresh process pays before the first answer."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from benchmarks import fresh_process, records
from benchmarks.show.report import table

#: The default of ``fastdp.release`` and the paper's.
METHODS = ("adaptive", "tops")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, help="fresh processes of each kind (default 3)")


def run(options: argparse.Namespace) -> None:
    fresh_process.import_seconds()  # The first one writes bytecode.
    imports = [fresh_process.import_seconds() for _ in range(max(options.runs, 5))]
    fresh_process.first_name_seconds()
    names = [fresh_process.first_name_seconds() for _ in range(max(options.runs, 5))]
    calls: dict[str, list[float]] = {}
    for method in METHODS * options.runs:
        with tempfile.TemporaryDirectory() as folder:
            # The first process fills the folder for the second.
            for cache in ("empty", "warm"):
                seconds = fresh_process.first_call_seconds(Path(folder), method)
                calls.setdefault(f"first release ({method}) and query, {cache} kernel cache", []).append(seconds)
    growth = [fresh_process.growth_bytes(chunks) / 2**20 for chunks in (16, 1024)]
    tasks = {
        "import fastdp, beyond numpy": imports,
        "import fastdp and look up fastdp.ToPS (loads numba), beyond numpy": names,
        **calls,
    }
    for name, seconds in tasks.items():
        records.keep("start", name, seconds)
    records.keep("start", "memory after 67 million values more", growth[-1:], unit="MiB")
    rows = [
        [name, f"{statistics.median(seconds):.3f}", f"{min(seconds):.3f}", str(len(seconds))]
        for name, seconds in tasks.items()
    ]
    table("Fresh process (first calls include the import of numba)", ["task", "s (median)", "s (min)", "runs"], rows)
    table(
        "Endless stream, prune = 2, chunks of 65,536: rise of peak memory after 2.6 million values",
        ["further values", "MiB"],
        [[f"{chunks * 65_536:,}", f"{rise:.2f}"] for chunks, rise in zip((16, 1024), growth, strict=True)],
    )
