"""The machine, the command, and tables in Markdown."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path


def cpu_model() -> str:
    """The processor's name as the system knows it."""
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


def heading(arguments: Sequence[str], module: str = "benchmarks.show") -> None:
    """Where and how the numbers were made."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "opendp"))
    print(f"Machine: {cpu_model()}, {os.cpu_count()} cores, {platform.system()}; ", end="")
    print(f"Python {platform.python_version()}, {packages}")
    print(f"Command: python -m {module} {shlex.join(arguments)}", flush=True)


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
