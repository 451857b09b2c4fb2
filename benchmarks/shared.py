"""What every group uses: the papers' sizes, where real streams are, the heading of a run, and tables in Markdown."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks import ROOT
from fastdp.kinds import Floats

# The sizes of the papers' experiments.
BOUND = 1657  # BMS-POS
WIDE_BOUND = 41_270  # Kosarak
EPSILON = 0.05
FAN_OUT = 16
HOLDOUT = 65_536
PUBLISHED = 2**20
MAX_RANGE = 2**20
QUERIES = 200
#: A threshold as NM-E chooses it on BMS-POS.
THETA = 58.0

#: Beside the project, never inside it.
DATA = ROOT.parent / "shared" / "data"
REFERENCE = DATA.parent / "reference"


@lru_cache(maxsize=4)
def item_counts(n: int, bound: int = BOUND) -> Floats:
    """Whole numbers from 2 to the bound with about the quantiles of BMS-POS (85 %: 13, 95 %: 21, 99.5 %: 40)."""
    generator = np.random.default_rng(20)
    return np.clip(np.rint(generator.lognormal(np.log(6.0), 0.75, n)), 2.0, float(bound))


def add_data_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=DATA, help="folder of real streams (default ../shared/data)")


def cpu_model() -> str:
    """The processor's name as the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def command(group: str, arguments: Sequence[str]) -> str:
    return f"python -m benchmarks {group} {shlex.join(arguments)}".rstrip()


def heading(group: str, arguments: Sequence[str]) -> None:
    """Where and how the numbers were made."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "opendp"))
    print(f"Machine: {cpu_model()}, {os.cpu_count()} cores, {platform.system()}; ", end="")
    print(f"Python {platform.python_version()}, {packages}")
    print(f"Command: {command(group, arguments)}", flush=True)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a Markdown table with aligned columns."""
    cells = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(columns))]
    print(f"\n{title}\n")
    for number, row in enumerate(cells):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print(flush=True)


def run_part(group: str, parts: Mapping[str, str], arguments: list[str] | None = None) -> int:
    """Run one module of a group: each has ``add_options(parser)`` and ``run(options)``; only that one is imported."""
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {group}")
    commands = parser.add_subparsers(dest="part", required=True)
    for name, summary in parts.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name in given[:1]:
            importlib.import_module(f"benchmarks.{group}.{name}").add_options(command)
    options = parser.parse_args(given)
    heading(group, given)
    return int(importlib.import_module(f"benchmarks.{group}.{options.part}").run(options) or 0)
