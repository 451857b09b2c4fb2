"""PHDStream and its baselines beside the authors' code, by a sweep: errors and totals."""

import csv
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from benchmarks.shared import DATA, REFERENCE, Data, table
from fastdp_lab import sweeps
from fastdp_lab.datasets import concentric_circles, load_circles
from fastdp_lab.datasets.files import DAY

EPSILONS = (0.5, 1.0)
SETS = ("small", "medium", "large")
PUBLISHED = REFERENCE / "phdstream-accuracy.csv"
DEPTH = 20
#: As in the paper no epsilon is spent on a count of all points.
PAPER: dict[str, Any] = {"system": "phdstream", "total_share": 0.0}
#: Mechanisms by name, and the names of their rows in the reference.
METHODS: dict[str, tuple[dict[str, Any], str, str]] = {
    "repaired, simple": (PAPER, "phd_fix_proj", "simple"),
    "repaired, block": ({**PAPER, "counter": "block"}, "phd_fix_proj", "block"),
    "PHDStream": ({"system": "phdstream"}, "", ""),
    "AdaptivePHDStream": ({"system": "adaptive_phdstream"}, "", ""),
    "paper's score, simple": ({**PAPER, "score": "paper"}, "phd", "simple"),
    "paper's score, block": ({**PAPER, "score": "paper", "counter": "block"}, "phd", "block"),
    "Baseline 1 (not private)": ({"system": "offline_on_stream"}, "b1", "none"),
    "Baseline 2": ({"system": "offline_on_batch"}, "b2", "none"),
    "Baseline 3, simple": ({"system": "fixed_tree"}, "b3", "simple"),
    "Baseline 3, block": ({"system": "fixed_tree", "counter": "block"}, "b3", "block"),
}


def _own_box(stream: Any) -> dict[str, float]:
    """The data's own box, as in the reference: for comparison only, it must be public."""
    corners = (*stream.points.min(axis=0), *stream.points.max(axis=0))
    return dict(zip(("left", "bottom", "right", "top"), map(float, corners), strict=True))


def _deletion(data: Path, folder: Path) -> dict[str, Any]:
    """The authors' file."""
    del folder
    path = data / "motion_circles_synthetic.csv.gz"
    return {"file": str(path), "format": "circles", "box": _own_box(load_circles(path))}


def _circles(data: Path, folder: Path) -> dict[str, Any]:
    """Made up, of the size of the reference's."""
    del data
    stream, path = concentric_circles(50_000, deletion=False, seed=0), folder / "circles.csv"
    path.write_text("x,y,move\n" + "".join(f"{x!r},{y!r},1\n" for x, y in stream.points.tolist()))
    return {"file": str(path), "format": "circles", "box": _own_box(stream)}


def _check_ins(deletion: bool) -> dict[str, Any]:
    return {"file": "gowalla_sample.csv.gz", "format": "gowalla", "deletion": deletion, "period": DAY, "initial": 0.1}


RIDES = {"file": "uber_nyc_b02512.csv.gz", "format": "pickups", "period": DAY / 4, "initial": 0.1}
#: Data sets by name, the times that are looked at, where boxes are placed, and the name in the reference.
SCENES: dict[str, tuple[Callable[[Path, Path], dict[str, Any]], Any, str, str]] = {
    "deletion": (_deletion, [*range(0, 135, 10), 135], "clipped", "circles_with_deletion"),
    "circles": (_circles, list(range(0, 91, 10)), "clipped", "circles"),
    "pickups": (lambda data, folder: RIDES, 11, "inside", ""),
    "gowalla": (lambda data, folder: _check_ins(True), 11, "inside", ""),
    "check-ins": (lambda data, folder: _check_ins(False), 11, "inside", ""),
}
Published = dict[tuple[str, str, str, float, str], dict[int, tuple[float, float]]]


def read_published(path: Path) -> Published:
    """Relative error, and synthetic over true size, by time; by data set, method, counter, budget and query set."""
    found: Published = {}
    if path.is_file():
        with path.open(newline="") as lines:
            for row in csv.DictReader(lines):
                counter, size = row["counter"].removesuffix("_8"), float(row["n_synth"]) / float(row["n_true"])
                key = row["dataset"], row["method"], counter, float(row["eps"]), row["query_set"]
                found.setdefault(key, {})[int(row["t"])] = (float(row["rel_error"]), size)
    return found


def run(
    *,
    runs: Annotated[int, "releases of each kind, at least 2"] = 20,
    streams: Annotated[Sequence[str], "data sets", list(SCENES)] = tuple(SCENES),
    reference: Annotated[Path, "the authors' figures"] = PUBLISHED,
    data: Data = DATA,
) -> None:
    published = read_published(reference)
    for name in streams:
        show(name, measured(name, runs, data), published)


def measured(name: str, runs: int, data: Path) -> Any:
    """Rows of all mechanisms on a data set."""
    source, times, placement, _ = SCENES[name]
    with tempfile.TemporaryDirectory() as folder:
        found = sweeps.from_table({
            "seed": 1, "repetitions": runs, "epsilons": list(EPSILONS), "metrics": ["relative_error"],
            "datasets": [{"name": name, **source(data, Path(folder))}],
            "mechanisms": [{"name": own, "max_depth": DEPTH, **given} for own, (given, *_) in METHODS.items()],
            "workloads": [{"kind": "boxes", "times": times, "placement": placement}],
        })  # fmt: skip
        return sweeps.load(sweeps.run(found, Path(folder) / "out", data=data))


def show(name: str, frame: Any, published: Published) -> None:
    """Errors and totals; of the reference at the times that it has."""
    errors, totals, known = [], [], SCENES[name][3]
    frame["share"] = frame["total"] / frame["points"]
    for (epsilon, method), rows in frame.groupby(["epsilon", "mechanism"], sort=False):
        key, cells = (known, *METHODS[method][1:], epsilon), []
        for asked in SETS:
            mine, theirs = rows[rows["group"] == asked], published.get((*key, asked), {})
            at = mine[mine["time"].isin(theirs)] if theirs else mine
            error, there = (
                at["relative_error"].mean(),
                np.mean([theirs[t][0] for t in at["time"] if t in theirs] or [np.nan]),
            )
            cells += [f"{error:.3f}", *(f"{each:.3f}" if theirs else "-" for each in (there, error / there))]
        small = rows[rows["group"] == "small"]
        each, last = small.groupby("repetition")["relative_error"].mean(), small[small["time"] == small["time"].max()]
        spread, end = f"{each.min():.3f} to {each.max():.3f}", published.get((*key, "small"), {})
        errors.append([f"{epsilon:g}", method, *cells, spread, f"{last['leaves'].mean():,.0f}"])
        shown = [f"{number:.3f}" for number in (small["share"].mean(), last["share"].mean(), last["share"].sem())]
        theirs = end.get(int(last["time"].iloc[0]), (None, None))[1]
        totals.append([f"{epsilon:g}", method, *shown, theirs])
    runs, times = frame["repetition"].nunique(), frame["time"].nunique()
    heads = [head for asked in SETS for head in (asked, "reference", "ratio")]
    table(
        f"{name}: average relative error of sampled points, mean over {runs} seeds and {times} times (those that the "
        f"reference has, where it is there); queries {SCENES[name][2]}",
        ["eps", "method", *heads, "small, runs, all times", "leaves at the end"],
        errors,
    )
    columns = ["mean over times", "at the end", "its standard error", "reference, end"]
    table(f"{name}: released total over true total, {runs} seeds", ["eps", "method", *columns], totals)
