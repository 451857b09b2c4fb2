"""Methods of ToPS section 5 on a real stream, and the published code's medians of them: no command, a test's rows."""

import csv
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import shared
from benchmarks.accuracy.streams import STREAMS
from benchmarks.shared import REFERENCE
from fastdp_lab import sweeps

#: The factor that the reference's own spread allows.
TOLERANCE = 1.5
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


#: Section 5.3 fixes theta at the 95th percentile of the hold-out, which is not private, and cuts the truth off there.
P95 = {"part": "TruePercentile", "p": 0.95}
#: As the published code: theta beyond B included.
PAK = {"part": "PAKQuantile", "p": 0.995, "clip": False}
NOISY_MAX, RECENT = {"part": "NoisyMax"}, {"part": "Recent"}
H_2, H_16, H_16C = hierarchy(2, consistent=False), hierarchy(consistent=False), hierarchy()
#: The five of Appendix D, under their names in the reference.
SMOOTHERS: dict[str, dict[str, Any]] = {
    "Recent": RECENT,
    "Mean": {"part": "Mean"},
    "Median": {"part": "Median"},
    "Moving w=5": {"part": "MovingAverage", "window": 5},
    "Exp a=0.6": {"part": "Exponential", "alpha": 0.6},
}


def end_to_end(epsilon: float) -> list[Row]:
    """Both phases private, truth as it is."""
    pruned, both = hierarchy(prune=published_prune(epsilon)), "end_to_end"
    return [
        Row("Base (zeros)", {"system": "base"}, both, "Base"),
        Row("PAK: S-PAK + H_2", composed(PAK, H_2), both, "PAK"),
        Row("S-PAK + pruned H_16^c", composed(PAK, pruned, RECENT), both, "S-PAK+hatH"),
        Row("NM-E + H_2", composed(NOISY_MAX, H_2), both, "NM-E+H_2"),
        Row("ToPS: NM-E + pruned H_16^c", composed(NOISY_MAX, pruned, RECENT), both, "ToPS"),
    ]


def second_phase(epsilon: float) -> list[Row]:
    """Theta at the 95th percentile, truth cut off there (section 5.3)."""
    levels, fixed = published_prune(epsilon), "range_p95"
    smoothed = f"smoother_p95 g={16**levels}"
    trees = {"H_2": H_2, "H_16": H_16, "H_16^c": H_16C}
    return [
        *(Row(name, composed(P95, each), fixed, name) for name, each in trees.items()),
        *(
            Row(f"pruned H_16^c, {name}", composed(P95, hierarchy(prune=levels), each), smoothed, name)
            for name, each in SMOOTHERS.items()
        ),
    ]


#: Experiment of the reference in which ways to choose theta are compared (section 5.4).
EXPERIMENT = f"ell_est range_eps={shared.EPSILON:g}"


def private_rules() -> list[Row]:
    """NM-E and S-PAK of Figure 7; noisy max prepares for the hierarchy whatever the threshold's budget is."""
    pruned, more = hierarchy(prune=published_prune(shared.EPSILON)), {"publish_epsilon": shared.EPSILON}
    rules = {"NM-E": NOISY_MAX, "S-PAK": PAK}
    return [Row(name, composed(rule, pruned, RECENT, **more), EXPERIMENT, name) for name, rule in rules.items()]
