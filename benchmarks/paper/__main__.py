"""``python -m benchmarks paper NAME``: the sweep of a TOML file of this folder, and its pictures."""

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

from benchmarks.accuracy.streams import STREAMS, Real
from benchmarks.shared import DATA, call
from fastdp_lab.datasets import load_gowalla
from fastdp_lab.datasets.files import DAY

HERE = Path(__file__).parent
SWEEPS = {path.stem: tomllib.loads(path.read_text()) for path in sorted(HERE.glob("*.toml"))}
CHOICES = ["list", "all", *SWEEPS]
#: Repetitions with --quick.
QUICK = 2


def main(
    names: Annotated[Sequence[str], "list, all, or some figures", CHOICES],
    *,
    output: Annotated[Path, "folder of results"] = Path("paper"),
    data: Annotated[Path | None, "folder of real streams, which take the place of synthetic ones"] = None,
    repetitions: Annotated[int | None, "of each cell (default: the figure's own)"] = None,
    quick: Annotated[bool, f"{QUICK} repetitions: the shape"] = False,
    workers: Annotated[int, "of a sweep"] = 2,
    mode: Annotated[str, "kind of workers", ("threads", "processes")] = "threads",
) -> int:
    """Make the figures that are named."""
    if "list" in names:
        print("\n".join(f"{name:20} {table['name']}" for name, table in SWEEPS.items()))
        return 0
    from fastdp_lab import sweeps

    for name in SWEEPS if "all" in names else names:
        # A sweep of real streams alone finds them beside the project.
        alone = all("file" in each for each in SWEEPS[name]["datasets"])
        streams = DATA if alone and data is None else data
        if alone and not DATA.is_dir() and data is None:
            print(f"{name}: skipped, it needs a folder of real streams (--data)")
            continue
        begin = perf_counter()
        table = SWEEPS[name] if streams is None else with_real(SWEEPS[name], streams)
        specification = sweeps.from_table(table)
        # A figure of one run shows that run.
        if specification.repetitions > 1 and (asked := QUICK if quick else repetitions):
            specification = replace(specification, repetitions=asked)
        # Real and synthetic results have folders of their own: a sweep's folder belongs to one specification.
        folder = output / f"{name}{'_real' if streams is not None and not alone else ''}"
        how: dict[str, Any] = {"workers": workers, "mode": mode, "progress": sys.stderr.isatty()}
        sweeps.run(specification, folder, data=streams or HERE, **how)
        for path in sweeps.draw(folder, folder / "figures"):
            print(path)
        print(f"{name}: {perf_counter() - begin:.0f} s", flush=True)
    return 0


#: Streams of ToPS's Table 1: the label in our figures, the real stream that takes its place, that one's label.
STAND_INS = {
    "dns": ("DNS", "DNS", "DNS (Google)"),
    "fare": ("Fare", "taxi distance", "taxi distance, for Fare"),
    "kosarak": ("Kosarak", "MSNBC", "MSNBC, for Kosarak"),
    "pos": ("POS", "POS", "POS"),
}
#: Shown besides, where a figure has all four.
FURTHER = "smart meter"
#: Keys of a synthetic stream that a file does not have.
_OWN = ("generator", "stream", "n", "order", "seed")
#: Streams of points, and streets, which are used where the folder has them.
GOWALLA, PICKUPS, CIRCLES = "gowalla_sample.csv.gz", "uber_nyc_b02512.csv.gz", "motion_circles_synthetic.csv.gz"
STREETS = "manhattan.geojson"
#: Days of the paper's check-ins; of the sample, which begins slowly, the last ones.
HORIZON = 300


def with_real(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A sweep's TOML tables with the real stream in place of each synthetic one whose file is in the folder."""
    datasets = list(_replaced(table["datasets"], folder))
    if {each.get("stream") for each in table["datasets"]} == set(STAND_INS) and STREAMS[FURTHER].there(folder):
        sizes = {key: each for key, each in table["datasets"][0].items() if key not in ("name", *_OWN)}
        datasets.append({"name": FURTHER, **_source(STREAMS[FURTHER]), **sizes})
    return {**table, "datasets": datasets}


def _replaced(datasets: Sequence[dict[str, Any]], folder: Path) -> Iterator[dict[str, Any]]:
    for each in datasets:
        label, name, real = STAND_INS.get(each.get("stream", ""), ("", "", ""))
        if not name or not STREAMS[name].there(folder):
            yield _points(each, folder)
            continue
        kept = {key: value for key, value in each.items() if key not in ("name", *_OWN)}
        said = real if each["name"] == label else f"{real}, {each['name']}"
        yield {"name": said, **_source(STREAMS[name]), **kept}


def _source(stream: Real) -> dict[str, Any]:
    return {"file": stream.file, "column": "values", "bound": stream.bound}


def _points(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Gowalla, Uber's pickups and the authors' circles."""
    made, start = table.get("generator"), table.get("start", 0)
    kept = {key: value for key, value in table.items() if key not in ("generator", "name", "start")}
    if made == "check_ins" and (folder / GOWALLA).exists():
        # The paper's days are counted within its horizon, the last days of the sample.
        first = load_gowalla(folder / GOWALLA, period=DAY).n_steps - HORIZON
        days = [first + day for day in start] if isinstance(start, list) else first + start
        name = table["name"].replace("Check-ins", "Gowalla")
        return {"name": name, "file": GOWALLA, "format": "gowalla", "period": DAY, "start": days, **kept}
    if made == "pickups" and (folder / PICKUPS).exists():
        name = "Uber pickups"
        if "domain" in table:
            real = (folder / STREETS).exists()
            name += f" on {'' if real else 'synthetic '}streets"
            kept["domain"] = STREETS if real else table["domain"]
        return {"name": name, "file": PICKUPS, "format": "pickups", "period": DAY / 4, "start": start, **kept}
    if made == "circles" and table.get("deletion", True) and (folder / CIRCLES).exists():
        kept.pop("deletion", None)
        return {"name": f"{table['name']} (synthetic)", "file": CIRCLES, "format": "circles", **kept}
    return dict(table)


if __name__ == "__main__":
    sys.exit(call("paper", main))
