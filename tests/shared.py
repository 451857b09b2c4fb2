"""What lies beside the checkout (../shared), whose absence skips a test; and Python processes with these packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"


def shared_file(name: str) -> Path:
    """The path of a file of ``../shared``."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not beside the checkout (../shared)")
    return path


def real_stream(name: str = "pos_length", length: int | None = None) -> np.ndarray:
    """The first values of a real stream."""
    with np.load(shared_file(f"data/{name}.npz")) as file:
        return file["values"][:length].astype(np.float64)


def python(*arguments: object, **variables: str) -> dict[str, Any]:
    """Command and environment of a process with this checkout's packages, as arguments of ``subprocess``."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "kernels", ROOT / "lab")))
    return {
        "args": [sys.executable, *map(str, arguments)],
        "env": {**os.environ, "PYTHONPATH": paths, **variables},
    }


def run_python(*arguments: object, check: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
    """Such a process, from its begin to its end."""
    process = python(*arguments, **variables)
    return subprocess.run(**process, capture_output=True, text=True, timeout=900, check=check)
