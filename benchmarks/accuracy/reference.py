"""The published code's figures, from the tables beside the project."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, NamedTuple

from benchmarks.shared import REFERENCE

#: The factor that the reference's own spread allows.
TOLERANCE = 1.5
Reference = Annotated[Path, "the published code's figures"]
ACCURACY, THRESHOLDS = (REFERENCE / f"dp-cont-{name}.csv" for name in ("accuracy", "thresholds"))


class Published(NamedTuple):
    """Medians of the published code, for one stream, experiment, method and budget."""

    theta: float
    mse: float
    #: Share of its thetas above the bound.
    above: float = float("nan")


Table = dict[tuple[str, str, str, float], Published]


def read(path: Path) -> Table:
    """Medians by stream, experiment, method and budget; empty if the file is absent."""
    if not path.is_file():
        return {}
    with path.open(newline="") as lines:
        return {
            (row["dataset"], row["experiment"], row["method"], float(row["eps"])): Published(
                float(row["theta_median"]),
                *(float(row.get(column) or "nan") for column in ("mse_median", "frac_gt_B")),
            )
            for row in csv.DictReader(lines)
        }


def ratio(measured: float, published: float | None) -> str:
    return "-" if published is None else f"{measured / published:.2f}"


def shown_theta(theta: float) -> str:
    """Whole units from 100; a rule that falls below 0 gives one step of the grid."""
    if theta < 1e-3:
        return "one step" if theta else "0"
    return f"{theta:,.0f}" if theta >= 100.0 else f"{theta:.4g}"
