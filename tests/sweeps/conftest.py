from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="sweeps write Parquet")

SMALL: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "repetitions": 5,
    "epsilons": [0.1, 1.0],
    "holdout": 500,
    "max_range": 2048,
    "part_cells": 7,
    "datasets": [
        {"name": "POS", "generator": "table1", "stream": "pos", "n": 3000, "order": ["iid", "bursty"]},
    ],
    "mechanisms": [
        {"name": "ToPS", "system": "tops", "prune": [0, 1]},
        {
            "name": "PAK",
            "system": "publisher",
            "threshold": {"part": "PAKQuantile", "p": 0.995, "clip": False},
            "perturber": {"part": "Hierarchy", "fan_out": 2, "consistent": False, "prune": 0},
        },
        {"name": "ToPL", "system": "topl"},
        {"name": "running", "system": "pak"},
        {"name": "Base", "system": "base"},
    ],
    "workloads": [
        {"kind": "random_ranges", "count": 50, "classes": [10, 1000]},
        {"kind": "timeline", "count": 4},
    ],
}


@pytest.fixture
def small() -> dict[str, Any]:
    """Tables of a sweep of 120 cells, all systems."""
    return copy.deepcopy(SMALL)


@pytest.fixture
def digest():
    def digest(folder: Path) -> str:
        return hashlib.sha256((folder / "results.parquet").read_bytes()).hexdigest()

    return digest


@pytest.fixture
def toml():
    """Tables as TOML text."""

    def value(entry: Any) -> str:
        if isinstance(entry, bool):
            return str(entry).lower()
        if isinstance(entry, str):
            return f'"{entry}"'
        if isinstance(entry, dict):
            return "{ " + ", ".join(f"{key} = {value(each)}" for key, each in entry.items()) + " }"
        if isinstance(entry, list):
            return "[" + ", ".join(value(each) for each in entry) + "]"
        return repr(entry)

    def toml(tables: dict[str, Any]) -> str:
        arrays = ("datasets", "mechanisms", "workloads")
        lines = [f"{key} = {value(entry)}" for key, entry in tables.items() if key not in arrays]
        for array in arrays:
            for table in tables.get(array, []):
                lines += [f"[[{array}]]", *(f"{key} = {value(entry)}" for key, entry in table.items())]
        return "\n".join(lines) + "\n"

    return toml
