"""Mechanisms on a real stream beside the published code: a small sweep, and its medians beside the reference's."""

import csv
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from benchmarks import shared
from benchmarks.accuracy.streams import STREAMS
from benchmarks.shared import REFERENCE
from fastdp_lab import sweeps

#: The factor that the reference's own spread allows.
TOLERANCE = 1.5
Reference = Annotated[Path, "the published code's figures"]
ACCURACY, THRESHOLDS = (REFERENCE / f"dp-cont-{name}.csv" for name in ("accuracy", "thresholds"))
METRICS = ("mse", "mae", "mmse", "mmae")


class Row(NamedTuple):
    """A mechanism of a sweep, and its experiment and method in the reference."""

    name: str
    mechanism: dict[str, Any]
    experiment: str = ""
    method: str = ""


class Published(NamedTuple):
    """Medians of the published code, for one stream, experiment, method and budget."""

    theta: float
    mse: float


Table = dict[tuple[str, str, str, float], Published]


def read(path: Path) -> Table:
    """Medians by stream, experiment, method and budget; empty if the file is absent.  It pads names with spaces."""
    if not path.is_file():
        return {}
    with path.open(newline="") as lines:
        return {
            (row["dataset"], row["experiment"], " ".join(row["method"].split()), float(row["eps"])): Published(
                float(row["theta_median"]), float(row.get("mse_median") or "nan")
            )
            for row in csv.DictReader(lines)
        }


def medians(data: Path, stream: str, rows: Iterable[Row], epsilon: float, runs: int, *, truth: str = "raw") -> Any:
    """Medians of theta and of the paper's four metrics of 200 random ranges, by mechanism."""
    file, bound = STREAMS[stream].file, STREAMS[stream].bound
    size = {"holdout": shared.HOLDOUT, "published": shared.PUBLISHED, "max_range": shared.MAX_RANGE}
    found = sweeps.from_table({
        "seed": 1, "repetitions": runs, "epsilons": [epsilon], "truth": truth, "metrics": list(METRICS),
        "datasets": [{"name": stream, "file": file, "column": "values", "bound": bound, **size}],
        "mechanisms": [{"name": row.name, **row.mechanism} for row in rows],
        "workloads": [{"kind": "random_ranges", "count": shared.QUERIES}],
    })  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        frame = sweeps.load(sweeps.run(found, folder, data=data, workers=2))
    failed = frame["error"].dropna()
    if len(failed):
        raise SystemExit(f"{len(failed)} runs failed, the first with: {failed.iloc[0]}")
    return frame.groupby("mechanism", sort=False)[["threshold", *METRICS]].median()


def published_prune(epsilon: float) -> int:
    """Levels that the published code prunes at r = 2^20: blocks of 4,096 up to epsilon = .05, of 256 above."""
    return 3 if epsilon <= 0.05 else 2


def composed(
    threshold: dict[str, Any], perturber: dict[str, Any], smoother: Any = None, **more: Any
) -> dict[str, Any]:
    """The table of a publisher with these parts."""
    parts = {"threshold": threshold, "perturber": perturber, **({"smoother": smoother} if smoother else {})}
    return {"system": "publisher", **parts, **more}


def hierarchy(fan_out: int = 16, prune: int = 0, **more: Any) -> dict[str, Any]:
    return {"part": "Hierarchy", "fan_out": fan_out, "prune": prune, **more}


def ratio(measured: float, published: float | None) -> str:
    return "-" if published is None else f"{measured / published:.2f}"


def shown_theta(theta: float) -> str:
    """Whole units from 100; a rule that falls below 0 gives one step of the grid."""
    if theta < 1e-3:
        return "one step" if theta else "0"
    return f"{theta:,.0f}" if theta >= 100.0 else f"{theta:.4g}"
