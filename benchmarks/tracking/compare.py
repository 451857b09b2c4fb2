"""Compares the checkout with a commit on the quick set: two processes that take turns of milliseconds.

asv measures the sides seconds apart, and a machine that others use changes meanwhile; here it slows both sides alike.
The figure is the ratio of the least processor times, a median over pairs of fresh processes (their memory lies
elsewhere each time).  ``--alarms N`` compares the checkout with itself: how far apart are equal sides?
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Annotated

import numpy as np

from benchmarks import CACHE_VARIABLE, ROOT
from benchmarks.asv.bench_quick import TASKS
from benchmarks.shared import table

#: One thread each, so that processor time is the time of one core.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS"), "1"
)
#: Seconds of a turn, turns of each side, and pairs of processes, in a comparison of one minute.
SECONDS, TURNS, PAIRS = 0.008, 30, 3
FACTORS = (1.02, 1.03, 1.05, 1.1, 1.15, 1.2, 1.3)
#: A change is reported from here on.
FACTOR = 1.1


def run(
    base: Annotated[str, "the commit beside the checkout"] = "main",
    *,
    only: Annotated[str, "tasks whose name has this text"] = "",
    factor: Annotated[float, "report larger ratios"] = FACTOR,
    alarms: Annotated[int | None, "compare the checkout with itself so many times instead"] = None,
) -> int:
    names = [name for name in TASKS if only in name]
    if alarms is not None:
        show_alarms([compare(ROOT, ROOT, names) for _ in range(alarms)])
        return 0
    found, rows = compare(tree_of(base), ROOT, names), []
    for name, (before, after, ratio) in found.items():
        changed = "slower" if ratio > factor else "faster" if ratio < 1.0 / factor else ""
        rows.append([name, f"{before / 1e3:.4g}", f"{after / 1e3:.4g}", f"{ratio:.3f}", changed])
    table("Processor time of a call", ["task", f"{base}, us", "checkout, us", "ratio", "changed"], rows)
    return int(any(ratio > factor for _, _, ratio in found.values()))


def tree_of(commit: str) -> Path:
    """The packages of a commit, in a folder of its own that stays, as its compiled kernels do."""
    named = subprocess.run(["git", "rev-parse", commit], cwd=ROOT, check=True, capture_output=True, text=True)
    name = named.stdout.strip()
    folder = ROOT / ".asv" / "trees" / name
    if not folder.exists():
        packed = subprocess.run(
            ["git", "archive", name, "fastdp", "kernels", "lab"], cwd=ROOT, check=True, capture_output=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
    return folder


def side(tree: Path) -> subprocess.Popen[str]:
    """A process with this tree's fastdp and this checkout's benchmarks."""
    path = os.pathsep.join((str(tree), str(tree / "kernels"), str(tree / "lab"), str(ROOT)))
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": path}
    # Each tree has a folder of compiled kernels of its own.
    environment.pop(CACHE_VARIABLE, None)
    command = [sys.executable, "-m", "benchmarks.tracking.child"]
    return subprocess.Popen(
        command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def turn(child: subprocess.Popen[str], name: str) -> float:
    """Nanoseconds of a call in one turn."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{name}\t{SECONDS}\n")
    child.stdin.flush()
    line = child.stdout.readline()
    if not line:
        raise SystemExit(f"{name}: the process of {child.args!r} ended; see its error above")
    return float(line)


def compare(before: Path, after: Path, names: list[str]) -> dict[str, tuple[float, float, float]]:
    """By task: nanoseconds of both sides, and the ratio of the second to the first."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(PAIRS):
        children = (side(before), side(after))
        try:
            for name in names:
                for child in children:
                    turn(child, name)
                times = np.empty((TURNS, 2))
                for k in range(TURNS):
                    # Who goes first changes.
                    for which in (k % 2, 1 - k % 2):
                        times[k, which] = turn(children[which], name)
                least = times.min(axis=0)
                found[name].append((float(least[0]), float(least[1])))
        finally:
            for child in children:
                child.communicate()
    return {
        name: (min(p[0] for p in pairs), min(p[1] for p in pairs), float(np.median([p[1] / p[0] for p in pairs])))
        for name, pairs in found.items()
    }


def show_alarms(comparisons: list[dict[str, tuple[float, float, float]]]) -> None:
    """How often equal sides are further apart than each factor."""
    found = [(max(ratio, 1.0 / ratio), name) for each in comparisons for name, (_, _, ratio) in each.items()]
    ratios = np.array([ratio for ratio, _ in found])
    rows = [[f"{factor:g}", str((ratios > factor).sum()), f"{(ratios > factor).mean():.1%}"] for factor in FACTORS]
    table(f"The checkout beside itself: {len(found)} comparisons", ["factor", "further apart", "share"], rows)
    print("furthest apart: " + "; ".join(f"{name} {ratio:.3f}" for ratio, name in sorted(found, reverse=True)[:5]))
