"""Files beside the checkout (../shared), whose absence skips a test; and Python processes with these packages."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import fastdp
from fastdp.data.frames import as_streams
from fastdp.perturbers import Blocks, Hierarchy
from fastdp.streams import METHODS
from fastdp.streams.methods import as_smoother
from fastdp.streams.parameters import DEFAULT_RANGE
from fastdp.streams.release_many import check_lengths
from fastdp.thresholds.base import DEFAULT_HOLDOUT, as_rule

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"


def shared_file(name: str) -> Path:
    """The path of a file of ``../shared``."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not beside the checkout (../shared)")
    return path


@contextmanager
def full_disk() -> Iterator[None]:
    """Meanwhile no file of this process grows: the system refuses each write."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def real_stream(name: str = "pos_length", length: int | None = None) -> np.ndarray:
    """The first values of a real stream."""
    with np.load(shared_file(f"data/{name}.npz")) as file:
        return file["values"][:length].astype(np.float64)


def python(*arguments: object, **variables: str) -> dict[str, Any]:
    """Command and environment of a process with this checkout's packages, as arguments of ``subprocess``."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "kernels", ROOT / "lab")))
    return {"args": [sys.executable, *map(str, arguments)], "env": {**os.environ, "PYTHONPATH": paths, **variables}}


def run_python(*arguments: object, check: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
    """Such a process, from its begin to its end."""
    process = python(*arguments, **variables)
    return subprocess.run(**process, capture_output=True, text=True, timeout=900, check=check)


def piped(text: str | bytes | None) -> io.BufferedReader | None:
    """Standard input of a command in this process, buffered as a process has it."""
    if text is None:
        return None
    return io.BufferedReader(cast("io.RawIOBase", io.BytesIO(text if isinstance(text, bytes) else text.encode())))


#: Arguments of ``release_many`` that say how streams are given.
FORMS = ("value", "by", "time", "offsets", "ids", "threads")


def release_many(streams: Any, epsilon: float, bound: float, **options: Any) -> fastdp.Release:
    """Many streams under any parts, by default those of ToPS; a quarter of the shortest may choose theta."""
    form = {name: options.pop(name) for name in FORMS if name in options}
    lengths = as_streams(streams, *(form.get(name) for name in ("offsets", "value", "by", "time"))).rows.lengths
    rule, parts = options.get("threshold"), {"perturber": Hierarchy(), "smoother": "recent", **options}
    if parts["smoother"] == "recent" and isinstance(parts["perturber"], Blocks):
        parts["smoother"] = None
    parts["smoother"] = as_smoother(parts["smoother"])
    if parts.get("holdout") is None:
        chooses = rule is None or as_rule("threshold", rule).uses_holdout
        parts["holdout"] = max(1, min(DEFAULT_HOLDOUT, int(lengths.min(initial=2**20)) // 4)) if chooses else 0
    check_lengths(lengths, parts["holdout"])
    if parts.get("max_range") is None:
        longest = int(lengths.max()) if lengths.size else 2**21
        parts["max_range"] = min(DEFAULT_RANGE, longest - parts["holdout"])
    return fastdp.StreamPublisher(epsilon=epsilon, bound=bound, **parts).release_many(streams, **form)


#: The smallest arguments besides epsilon, bound and hold-out that make a publisher of a method; of others, see below.
USUAL: dict[str, dict[str, Any]] = {"pak": {"delta": 1e-6, "length": 70_000}}


def usual_arguments(method: str) -> dict[str, Any]:
    """Those of a publisher of a method; one without a row is given its longest query."""
    return USUAL.get(method, {"max_range": 4})


def finished(method: str, size: int, epsilon: float, bound: float, holdout: int | None = None, **options: Any) -> Any:
    """A publisher of a finished array of so many values, a quarter of which are withheld by default."""
    kind = getattr(fastdp, METHODS[method])
    held = max(1, min(65_536, size // 4)) if holdout is None else holdout
    fitting = {
        "max_range": max(1, min(2**20, size - held)), "length": max(1, size), "delta": 1.0 / max(2, size) ** 2
    }  # fmt: skip
    needed = {name: fitting[name] for name in usual_arguments(method)}
    return kind(epsilon=epsilon, bound=bound, holdout=held, **{**needed, **options})


def move(publisher: fastdp.StreamPublisher, **numbers: int) -> None:
    """Put a publisher at another position."""
    publisher._state = publisher._state.copied()
    for name, number in numbers.items():
        publisher._state.rows[name] = number
