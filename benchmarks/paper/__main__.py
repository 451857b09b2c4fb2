"""``python -m benchmarks paper NAME``: one command for every figure and table of the papers, in kind."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

from benchmarks.shared import DATA, call

if TYPE_CHECKING:
    from fastdp_lab.sweeps.specification import Specification

HERE = Path(__file__).parent
#: Repetitions with --quick.
QUICK = 2
#: Runs of which a density can be drawn.
FEWEST = 20


@dataclass(frozen=True)
class Options:
    """Options of a figure."""

    output: Path
    data: Path | None
    repetitions: int | None
    workers: int
    mode: str

    def runs(self, usual: int) -> int:
        """Repetitions: those asked for, or the figure's own."""
        return usual if self.repetitions is None else self.repetitions


Script = Callable[[Options], "list[Path] | None"]


@dataclass(frozen=True)
class Item:
    """A figure or table: a sweep and a group of its queries, or a script."""

    what: str
    sweep: str = ""
    group: str = "all"
    script: Script | None = None
    needs_data: bool = False
    #: A parameter of data sets or mechanisms, for a picture of errors against it.
    against: str = ""


def _script(place: str, make: Callable[[Any, Options], list[Path] | None]) -> Script:
    """A script that calls a module of this folder, which is imported then."""
    return lambda options: make(importlib.import_module(f"benchmarks.paper.{place}"), options)


def _pak_tables(**how: Any) -> Script:
    return _script("pak_tables", lambda module, o: module.show(o.data or o.output / "no data", **how))


def _pak(number: int) -> Script:
    def draw(module: Any, o: Options) -> None:
        module.draw_all(o.output, o.data, max(FEWEST, o.runs(300)), [number])

    return _script("pak_figures", draw)


def _pak_distributions(number: int) -> Script:
    return _script("pak_distributions", lambda module, o: module.draw(number, o.output, o.data))


def _phd(name: str) -> Script:
    return _script("phd_streams", lambda module, o: getattr(module, name)(o.output, o.data))


def _phd_points(name: str) -> Script:
    return _script("phd_streams", lambda module, o: module.points(name, o.data, o.output))


_TABLE_1 = _script("tops", lambda module, o: module.characteristics(o.data))
_FIGURE_1 = _script("tops", lambda module, o: module.figure_1(o.output, o.data, o.runs(20)))
_ERRORS = "PAK: density of the error, PAK beside the binary tree"
_OUTLIERS = "PAK: error by clipping over its bound"
_OVER_TIME = "PHDStream: error over time"
_POINTS = "PHDStream: points and cells"

ITEMS: dict[str, Item] = {
    "tops_table_1": Item("ToPS: the streams, synthetic and real", script=_TABLE_1),
    "tops_figure_1": Item("ToPS: Eq. 6, Eq. 4 and measured errors against theta", script=_FIGURE_1),
    "tops_figure_2": Item("ToPS: DNS over time, ToPS and PAK", "tops_figure_2"),
    "tops_figure_3": Item("ToPS: both phases private", "tops_figure_3"),
    "tops_figure_4": Item("ToPS: smoothers", "tops_figure_4"),
    "tops_figure_5": Item("ToPS: hierarchies", "tops_figure_5"),
    "tops_figure_6": Item("ToPS: percentiles and NM-E by length of the hold-out", "tops_figure_6"),
    "tops_figure_7": Item("ToPS: ways to choose theta", "tops_figure_7"),
    "tops_figure_8": Item("ToPL: ways to choose theta", "tops_figure_8"),
    "tops_figure_9": Item("ToPL: a stream over time", "tops_figure_9"),
    "tops_figure_10": Item("ToPS: the other metrics", "tops_figure_10"),
    "pak_table_1": Item("PAK: Tables I and II, criteria for m, Figure 7 by the bound", script=_pak_tables()),
    "pak_table_2": Item("PAK: the same", script=_pak_tables()),
    "pak_table_gaussian": Item("PAK: the same, Gaussian noise on the quantile", script=_pak_tables(noise="gaussian")),
    "pak_table_as_printed": Item("PAK: the same, Eq. 16 as printed", script=_pak_tables(first_sum=False)),
    "pak_figure_5": Item("PAK: tails beside the exponential distribution", script=_pak_distributions(5)),
    "pak_figure_6": Item("PAK: the search for p_max", script=_pak_distributions(6)),
    "pak_figure_7": Item("PAK: improvement against epsilon and m, measured, beside the bound", script=_pak(7)),
    "pak_figure_7_sweep": Item("PAK: errors of ranges against epsilon and m", "pak_figure_7"),
    "pak_figure_8": Item(_ERRORS, script=_pak(8)),
    "pak_figure_9": Item(_OUTLIERS, script=_pak(9)),
    "pak_figure_10": Item(_ERRORS, script=_pak(8)),
    "pak_figure_11": Item(_OUTLIERS, script=_pak(9)),
    "phd_figure_1": Item(f"{_OVER_TIME} by initialisation time, four streams", "phd_figure_1"),
    "phd_figure_2": Item("PHDStream: counters", script=_phd("counters")),
    "phd_figure_3": Item("PHDStream: the streams of circles", script=_phd("figure_3")),
    "phd_figure_4": Item("PHDStream: geometries (needs geopandas)", script=_phd("figure_4")),
    "phd_figure_5": Item("PHDStream: points present over time", script=_phd("figure_5")),
    "phd_figure_6": Item(f"{_POINTS}, check-ins on land (needs geopandas)", script=_phd_points("check-ins")),
    "phd_figure_7": Item(f"{_POINTS}, pickups", script=_phd_points("pickups")),
    "phd_figure_8": Item(f"{_POINTS}, pickups on streets (needs shapely)", script=_phd_points("streets")),
    "phd_figure_9": Item(f"{_POINTS}, circles with deletion", script=_phd_points("circles")),
    "phd_figure_10": Item(f"{_OVER_TIME}, check-ins, small boxes", "phd_figure_10", "small"),
    "phd_figure_11": Item(f"{_OVER_TIME}, check-ins with deletion, small boxes", "phd_figure_11", "small"),
    "phd_figure_12": Item(f"{_OVER_TIME}, pickups, small boxes", "phd_figure_12", "small"),
    "phd_figure_13": Item(f"{_OVER_TIME}, pickups on a network of streets, small boxes", "phd_figure_13", "small"),
    "phd_figure_14": Item(f"{_OVER_TIME}, circles, small boxes", "phd_figure_14", "small"),
    "phd_figure_15": Item(f"{_OVER_TIME}, circles with deletion, small boxes", "phd_figure_15", "small"),
    "phd_figure_16": Item(f"{_OVER_TIME}, check-ins, medium boxes", "phd_figure_10", "medium"),
    "phd_figure_17": Item(f"{_OVER_TIME}, check-ins, large boxes", "phd_figure_10", "large"),
    "phd_figure_18": Item(f"{_OVER_TIME}, check-ins with deletion, medium boxes", "phd_figure_11", "medium"),
    "phd_figure_19": Item(f"{_OVER_TIME}, check-ins with deletion, large boxes", "phd_figure_11", "large"),
    "phd_sensitivity": Item("PHDStream: error against sensitivity", "phd_sensitivity", against="sensitivity"),
    "phd_batch_size": Item("PHDStream: error against batch size", "phd_batch_size", against="batch"),
    "phd_figures_real": Item(f"{_OVER_TIME} on real streams, all sizes", "phd_figures_real", needs_data=True),
}  # fmt: skip


def draw(item: Item, options: Options) -> list[Path]:
    """Make one, in its own folder; a sweep that was run before is only drawn."""
    if item.script is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        return item.script(options) or []
    from fastdp_lab import sweeps

    specification = sweep_of(item, options.data)
    # A figure of one run shows that run.
    runs = options.runs(specification.repetitions) if specification.repetitions > 1 else 1
    specification = replace(specification, repetitions=runs)
    sweeps.run(
        specification,
        options.output,
        data=options.data or HERE,
        workers=options.workers,
        mode=options.mode,
        progress=sys.stderr.isatty(),
    )
    paths = sweeps.draw(options.output, options.output / "figures", group=item.group)
    if item.against:
        from benchmarks.paper.phd_streams import draw_against

        paths += draw_against(options.output, item.against)
    return paths


def sweep_of(item: Item, data: Path | None) -> Specification:
    """The sweep of an item; on real streams wherever a folder has them."""
    from benchmarks.paper.phd_streams import with_real_points
    from benchmarks.paper.tops import with_real_streams
    from fastdp_lab.sweeps import from_table, read_specification

    path = HERE / f"{item.sweep}.toml"
    if data is None:
        return read_specification(path)
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return from_table(with_real_points(with_real_streams(table, data), data))


def main(
    names: Annotated[Sequence[str], "list, all, or some figures and tables", ["list", "all", *ITEMS]],
    *,
    output: Annotated[Path, "folder of results"] = Path("paper"),
    data: Annotated[Path | None, "folder of real streams, where a figure can use them"] = None,
    repetitions: Annotated[int | None, "of a sweep, or runs of a script (default: the figure's own)"] = None,
    quick: Annotated[bool, f"{QUICK} repetitions: the shape"] = False,
    workers: Annotated[int, "of a sweep"] = 2,
    mode: Annotated[str, "what workers are", ("threads", "processes")] = "threads",
) -> int:
    """Make the figures and tables that are named."""
    if "list" in names:
        print("\n".join(f"{name:20} {item.what}" for name, item in ITEMS.items()))
        return 0
    for name in ITEMS if "all" in names else names:
        item = ITEMS[name]
        # Those that are of real streams alone find them beside the project.
        streams = DATA if item.needs_data and data is None else data
        if item.needs_data and not streams.is_dir():
            print(f"{name}: skipped, it needs a folder of real streams (--data)")
            continue
        begin = perf_counter()
        # Real and synthetic results have folders of their own: a sweep's folder belongs to one specification.
        folder = output / f"{item.sweep or name}{'_real' if streams is not None and not item.needs_data else ''}"
        options = Options(folder, streams, QUICK if quick else repetitions, workers, mode)
        for path in draw(item, options):
            print(path)
        print(f"{name}: {perf_counter() - begin:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(call("paper", main))
