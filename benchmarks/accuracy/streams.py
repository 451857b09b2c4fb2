"""The streams of the accuracy benchmark: real ones where their files are, made-up ones always."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import sizes

REAL = {
    "POS": ("pos_length.npz", 1657, sizes.HOLDOUT),
    "taxi distance": ("green_taxi_streethail_distance_centimiles.npz", 30_000, sizes.HOLDOUT),
    "MSNBC": ("msnbc_length.npz", 41_270, sizes.HOLDOUT),
    "DNS": ("dns_google_1k.npz", 500, sizes.HOLDOUT),
    "smart meter": ("smartmeter10_wh.npz", 10_000, sizes.HOLDOUT),
    "web clicks": ("bmswebview1_length.npz", 497, 14_900),
}
MADE_UP = ("dns", "fare", "kosarak", "pos")
ORDERS = ("iid", "diurnal", "bursty", "drifting")


def data_sets(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Tables of a specification."""
    length = {"published": sizes.MAX_RANGE}
    real: list[dict[str, Any]] = [
        {"name": name, "file": file, "column": "values", "bound": bound, "holdout": held, **length}
        for name, (file, bound, held) in REAL.items()
        if (folder / file).exists()
    ]
    made_up: list[dict[str, Any]] = [
        {"name": f"{stream} {order}", "generator": "table1", "stream": stream, "order": order}
        | {"n": sizes.HOLDOUT + sizes.MAX_RANGE}
        for stream in MADE_UP
        for order in ORDERS
    ]
    return real[:2] + made_up[:1] if quick else real + made_up
