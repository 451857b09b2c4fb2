"""The streams of the accuracy benchmark: real ones where their files are, synthetic ones always."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import shared

REAL = {
    "POS": ("pos_length.npz", 1657, shared.HOLDOUT),
    "taxi distance": ("green_taxi_streethail_distance_centimiles.npz", 30_000, shared.HOLDOUT),
    "MSNBC": ("msnbc_length.npz", 41_270, shared.HOLDOUT),
    "DNS": ("dns_google_1k.npz", 500, shared.HOLDOUT),
    "smart meter": ("smartmeter10_wh.npz", 10_000, shared.HOLDOUT),
    "web clicks": ("bmswebview1_length.npz", 497, 14_900),
}
SYNTHETIC = ("dns", "fare", "kosarak", "pos")
ORDERS = ("iid", "diurnal", "bursty", "drifting")


def data_sets(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Tables of a specification."""
    length = {"published": shared.MAX_RANGE}
    real: list[dict[str, Any]] = [
        {"name": name, "file": file, "column": "values", "bound": bound, "holdout": held, **length}
        for name, (file, bound, held) in REAL.items()
        if (folder / file).exists()
    ]
    synthetic: list[dict[str, Any]] = [
        {"name": f"{stream} {order}", "generator": "table1", "stream": stream, "order": order}
        | {"n": shared.HOLDOUT + shared.MAX_RANGE}
        for stream in SYNTHETIC
        for order in ORDERS
    ]
    return real[:2] + synthetic[:1] if quick else real + synthetic
