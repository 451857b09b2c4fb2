"""Measured numbers for machines: what ``--json FILE`` of the tables writes and ``benchmarks.summary`` reads.

The file has a section for each table, with the machine, the command and the tasks; a table that runs again replaces
its own section and no other.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fastdp
from benchmarks.show import report
from benchmarks.timing import Timing

FORMAT = 1
PACKAGES = ("numpy", "numba", "scipy", "opendp")
_kept: dict[str, dict[str, Any]] = {}


def spread(sample: Sequence[float]) -> dict[str, float]:
    """Median, quartiles and least of a sample."""
    low, median, high = (float(q) for q in np.quantile(np.asarray(sample, np.float64), (0.25, 0.5, 0.75)))
    return {"median": median, "q1": low, "q3": high, "least": float(min(sample))}


def keep(group: str, task: str, sample: Sequence[float], *, items: int = 1, unit: str = "s") -> None:
    """Remember a task: seconds a call (or bytes), and how many draws, values or steps a call handles."""
    _kept[f"{group}: {task}"] = {**spread(sample), "runs": len(sample), "items": items, "unit": unit}


def keep_all(group: str, timings: Mapping[str, Timing], items: Mapping[str, int] | None = None) -> None:
    """Remember tasks that were timed side by side."""
    for name, timing in timings.items():
        keep(group, name, timing.seconds, items=(items or {}).get(name, 1))


def write(path: Path, section: str, command: str) -> None:
    """Put what was remembered into a section of the file, and forget it."""
    known = json.loads(path.read_text()) if path.exists() else {"format": FORMAT, "sections": {}}
    if known.get("format") != FORMAT:
        raise SystemExit(f"{path}: expected a summary of format {FORMAT}, got {known.get('format')!r}")
    known["sections"][section] = {
        "machine": f"{report.cpu_model()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "packages": {"fastdp": fastdp.__version__, **{name: report.version(name) for name in PACKAGES}},
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        # Processes that want to run, this one included: above 1 (2 for two threads) somebody else was at work.
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "tasks": dict(_kept),
    }
    _kept.clear()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
