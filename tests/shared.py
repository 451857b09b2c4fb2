"""Real streams and published figures beside the checkout (../shared); a test that needs an absent one is skipped."""

from __future__ import annotations

from pathlib import Path

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
