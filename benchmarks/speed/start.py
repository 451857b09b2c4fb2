"""What a fresh process needs before the first answer, and the memory of an endless stream."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.shared import table
from benchmarks.speed import fresh
from benchmarks.speed.measure import keep, show

#: The default of ``fastdp.release`` and the paper's.
METHODS = ("adaptive", "tops")
CHUNKS = (16, 1024)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, help="fresh processes of each kind (default 3)")


def run(options: argparse.Namespace) -> None:
    seconds: dict[str, list[float]] = {}
    for name, script in (
        ("import fastdp, beyond numpy", fresh.IMPORT),
        ("import fastdp and look up fastdp.ToPS (loads numba), beyond numpy", fresh.FIRST_NAME),
    ):
        fresh.number(script)  # The first one writes bytecode.
        seconds[name] = [fresh.number(script) for _ in range(options.runs)]
    for method in METHODS * options.runs:
        with tempfile.TemporaryDirectory() as folder:
            # The first process fills the folder for the second.
            for cache in ("empty", "warm"):
                name = f"first release ({method}) and query, {cache} kernel cache"
                measured = fresh.number(fresh.FIRST_RELEASE.format(release=fresh.RELEASES[method]), Path(folder))
                seconds.setdefault(name, []).append(measured)
    for name, sample in seconds.items():
        keep("start", name, sample)
    show("Fresh process (first calls include the import of numba)", {k: np.array(v) for k, v in seconds.items()}, {})
    rises = [fresh.number(fresh.RISE.format(chunks=chunks)) / 2**20 for chunks in CHUNKS]
    keep("start", "memory after 67 million values more", rises[-1:], unit="MiB")
    table(
        "Endless stream, prune = 2, chunks of 65,536: rise of peak memory after 2.6 million values",
        ["further values", "MiB"],
        [[f"{chunks * 65_536:,}", f"{rise:.2f}"] for chunks, rise in zip(CHUNKS, rises, strict=True)],
    )
