"""PHDStream's streams and geometries, real wherever their files are, and what they look like (Figures 3 to 5)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fastdp import PHDStream
from fastdp.counters import BinaryTree, Block, Counter, RunningCounts, Simple
from fastdp.kinds import Floats
from fastdp.releases.pictures import draw_points
from fastdp.spatial import Box, Domain, Network, Polygons
from fastdp.spatial.map_files import read_domain
from fastdp.spatial.maps import load
from fastdp_lab.datasets import (
    SpatialStream,
    concentric_circles,
    load_circles,
    load_gowalla,
    load_pickups,
    made_up_check_ins,
    made_up_pickups,
    made_up_streets,
)
from fastdp_lab.datasets.files import DAY
from fastdp_lab.sweeps.figures import NAMES, Sweep, averaged, curves, grid, legend, looks
from fastdp_lab.sweeps.points import confined

#: The real streams in the folder of ``--data``.
GOWALLA, PICKUPS, CIRCLES = "gowalla_sample.csv.gz", "uber_nyc_b02512.csv.gz", "motion_circles_synthetic.csv.gz"
#: Geometries that are used where the folder has them.
LAND, STREETS = "land.geojson", "manhattan.geojson"
#: Days of the paper's check-ins; of the sample, which begins slowly, the last ones.
HORIZON = 300
SEED = 7
#: Colour of a domain behind points.
GROUND = "#cccccc"


@dataclass(frozen=True)
class Scene:
    """A stream on its domain."""

    name: str
    stream: SpatialStream
    domain: Domain
    first: int = 0


def check_ins(data: Path | None, *, deletion: bool = False, start: int | None = None) -> Scene:
    """Gowalla from the day ``start`` of the sample's last 300 days on; all of it without."""
    if data is None:
        name, stream = "synthetic check-ins", made_up_check_ins(deletion=deletion, seed=SEED)
    else:
        name, stream = "Gowalla", load_gowalla(data / GOWALLA, deletion=deletion, period=DAY)
    first = 0 if start is None else max(0, stream.n_steps - HORIZON) + start
    return Scene(
        name + deletion * " with deletion", stream.starting_at(first), Box(stream.lower, stream.upper), first
    )


def pickups(data: Path | None, *, start: int = 0) -> Scene:
    """Pickups in New York, six hours a batch."""
    if data is None:
        name, stream = "synthetic pickups", made_up_pickups(seed=SEED)
    else:
        name, stream = "Uber pickups", load_pickups(data / PICKUPS, period=DAY / 4)
    return Scene(name, stream.starting_at(start), Box(stream.lower, stream.upper), start)


def circles(data: Path | None, *, deletion: bool = True) -> Scene:
    """Both circles; the authors' file, which is synthetic too, has deletion."""
    stream = (
        concentric_circles(deletion=deletion, seed=SEED)
        if data is None or not deletion
        else load_circles(data / CIRCLES)
    )
    name = "synthetic circles" + deletion * " with deletion"
    return Scene(name, stream, Box(stream.lower, stream.upper))


def on(scene: Scene, domain: Domain, where: str) -> Scene:
    """The scene's events in another domain."""
    return replace(scene, name=f"{scene.name}, {where}", stream=confined(scene.stream, domain), domain=domain)


def land(data: Path | None, output: Path) -> Path:
    """GeoJSON of the Earth's land without Antarctica: of the folder, or Natural Earth's in geopandas."""
    if data is not None and (data / LAND).exists():
        return data / LAND
    geopandas, found = load("geopandas"), find_spec("pyogrio")
    if found is None or found.origin is None:
        raise ImportError("pyogrio is not installed: pip install 'fastdp-streams[geo]'")
    countries = geopandas.read_file(Path(found.origin).parent / "tests" / "fixtures" / "naturalearth_lowres")
    shapes = countries.geometry[countries["continent"] != "Antarctica"]
    path = output / LAND
    features = [{"type": "Feature", "properties": {}, "geometry": each.__geo_interface__} for each in shapes]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}), encoding="utf-8")
    return path


def streets(data: Path | None) -> tuple[Network, str]:
    """Streets of Manhattan: of the folder, or synthetic ones; and what they are called."""
    if data is not None and (data / STREETS).exists():
        domain, _ = read_domain(data / STREETS)
        if isinstance(domain, Network):
            return domain, "streets of Manhattan"
    return made_up_streets(), "synthetic streets"


def draw_domain(ax: Any, domain: Domain) -> None:
    """Fill areas, draw lines, or frame a box."""
    from matplotlib.collections import LineCollection, PatchCollection
    from matplotlib.patches import Rectangle

    if isinstance(domain, Network):
        parts = domain.identity()
        lines = np.stack([parts["starts"], parts["starts"] + parts["steps"]], axis=1)
        ax.add_collection(LineCollection(list(lines), colors=GROUND, linewidths=0.6, zorder=0))
    elif isinstance(domain, Polygons):
        shapely, plotting = load("shapely"), load("shapely.plotting")
        shapes = shapely.get_parts(shapely.from_wkb(domain.identity()["parts"]))
        patches = [plotting.patch_from_polygon(each) for each in shapes]
        ax.add_collection(PatchCollection(patches, facecolor=GROUND, edgecolor=GROUND, linewidth=0.2, zorder=0))
    else:
        (x, y), (right, top) = domain.lower, domain.upper
        ax.add_patch(Rectangle((x, y), right - x, top - y, facecolor="none", edgecolor="#888888", zorder=0))


def figure_3(output: Path, data: Path | None) -> list[Path]:
    """Both streams of circles at four times."""
    scenes = [circles(data, deletion=False), circles(data, deletion=True)]
    figure, axes = grid(2, 4, "Figure 3 of PHDStream: two circles", width=2.4, height=2.3)
    for line, scene in zip(axes, scenes, strict=True):
        for k, ax in enumerate(line):
            t = round(scene.stream.n_steps * k / 3)
            ax.scatter(*scene.stream.present(t)[::4].T, s=0.6, color="#222222", linewidths=0)
            _frame(ax, scene.domain)
            ax.set_title(f"{scene.name}\nafter batch {t}", fontsize=8)
    return _saved(figure, output, "circles")


def figure_4(output: Path, data: Path | None) -> list[Path]:
    """The three geometries."""
    network, name = streets(data)
    shown: list[tuple[str, Domain]] = [
        ("Gowalla: land but Antarctica", read_domain(land(data, output))[0]),
        ("pickups: box around New York\n(the paper: land of the state)", pickups(data).domain),
        (f"pickups: {name}\n(the paper: roads of Manhattan)", network),
    ]
    figure, axes = grid(1, 3, "Figure 4 of PHDStream: geometries", width=4.2, height=3.0, sharex="none")
    for ax, (title, domain) in zip(axes[0], shown, strict=True):
        draw_domain(ax, domain)
        _frame(ax, domain, margin=0.05)
        ax.set_title(title, fontsize=9)
    return _saved(figure, output, "geometries")


def figure_5(output: Path, data: Path | None) -> list[Path]:
    """Points present over time, and the paper's t0."""
    shown = [(check_ins(data), 100), (check_ins(data, deletion=True), 150), (pickups(data), 0)]
    figure, axes = grid(1, 3, "Figure 5 of PHDStream: points present", width=3.8, height=2.7, sharex="none")
    for ax, (scene, start) in zip(axes[0], shown, strict=True):
        stream, t0 = scene.stream, start
        said, before = f"$t_0$ = {start}", stream.n_steps - HORIZON
        if start and before > 0:
            t0, said = before + start, f"last {HORIZON} days, {said} of them"
            ax.axvspan(before, stream.n_steps, color="#f2e6d8", linewidth=0, zorder=0)
        present = np.cumsum(np.where(stream.cancels < 0, 1, -1))
        ax.plot(np.append(0, present)[stream.cuts], color="#2e6f9e")
        ax.axvline(t0, color="#d1495b", linestyle="--", linewidth=1)
        ax.set_title(f"{scene.name}\n{said}", fontsize=9)
        ax.set_xlabel("batch", fontsize=9)
        ax.tick_params(labelsize=8)
    axes[0, 0].set_ylabel("points present", fontsize=9)
    return _saved(figure, output, "points_present")


def _frame(ax: Any, domain: Domain, margin: float = 0.0) -> None:
    low, high = domain.lower, domain.upper
    wide = margin * (high - low)
    ax.set(
        xlim=(low[0] - wide[0], high[0] + wide[0]), ylim=(low[1] - wide[1], high[1] + wide[1]), xticks=[], yticks=[]
    )
    middle = 0.0 if isinstance(domain, Box) and high[0] < 2.0 and low[0] > -2.0 else 0.5 * (low[1] + high[1])
    ax.set_aspect(1.0 / np.cos(np.radians(middle)))
    ax.set_axis_off()


def _saved(figure: Any, output: Path, name: str) -> list[Path]:
    path = output / f"{name}.png"
    figure.savefig(path)
    return [path]


EPSILON, DEPTH = 0.5, 20
#: Rows of the paper's scatter plots.
EPSILONS = (0.5, 1.0, 2.0)
#: Activations, and simultaneous running sums that the mean is over.
HORIZONS = (128, 4096)
BITS_RUNS = 200
#: The part of the plane that is shown; all of it by default.
WINDOWS = {"pickups": ((-74.1, 40.6), (-73.75, 40.9))}


def counters(output: Path, data: Path | None = None) -> list[Path]:
    """Figure 2: mean absolute error of a running count of random bits, which no data change."""
    del data
    paths = []
    for horizon, suffix in product(HORIZONS, ("png", "svg")):
        paths.append(output / f"counters_{horizon}.{suffix}")
        _counters(horizon, paths[-1])
    return paths


def points(name: str, data: Path | None, output: Path) -> list[Path]:
    """Figures 6 to 9: true and synthetic points at four times, and the cells; as PNG, for there are many."""
    scene = SCENES[name](data, output)
    path = output / f"points_{name}.png"
    _points(scene, WINDOWS.get(name), path)
    return [path]


def _streets(data: Path | None) -> Scene:
    network, name = streets(data)
    return on(pickups(data, start=2), network, f"on {name}")


SCENES: dict[str, Callable[[Path | None, Path], Scene]] = {
    "check-ins": lambda data, output: on(check_ins(data, start=100), read_domain(land(data, output))[0], "on land"),
    "pickups": lambda data, output: pickups(data, start=2),
    "streets": lambda data, output: _streets(data),
    "circles": lambda data, output: circles(data),
}


def _counters(horizon: int, path: Path) -> None:
    bits = np.random.default_rng(1).integers(0, 2, horizon)
    kinds: dict[str, Counter] = {
        "Simple": Simple(),
        "Block(8)": Block(),
        f"BinaryTree({horizon})": BinaryTree(horizon),
    }
    title = rf"Figure 2 in kind: a synthetic stream of random bits, $\epsilon$ = {EPSILON:g}, {BITS_RUNS} runs"
    figure, ((ax,),) = grid(1, 1, title, width=7.0, height=3.4)
    for name, counter in kinds.items():
        # As many independent running sums of the same bits as there are runs.
        running = RunningCounts(counter, EPSILON, BITS_RUNS, seed=1)
        said = np.stack([running.step(np.full(BITS_RUNS, bit)).copy() for bit in bits], axis=1)
        ax.plot(np.arange(1, horizon + 1), np.abs(said - np.cumsum(bits)).mean(axis=0), label=name)
    ax.set(xlabel="activation", ylabel="mean absolute error", ylim=(0.0, None))
    ax.legend(frameon=False, fontsize=9)
    figure.savefig(path)


def _points(scene: Scene, window: tuple[tuple[float, float], ...] | None, path: Path) -> None:
    """Rows as in the paper: the truth under the cells of the least epsilon, and each epsilon with its own."""
    stream = scene.stream
    times = [round(stream.n_steps * k / 3) for k in range(4)]
    options = {"max_depth": DEPTH, "total_share": 0.0, "seed": 1}
    systems = {f"ε = {epsilon:g}": PHDStream(scene.domain, epsilon, **options) for epsilon in EPSILONS}
    rows: dict[str, list[Floats]] = {"true": [stream.present(t) for t in times]}
    cells: dict[str, list[tuple[Floats, Floats]]] = {"true": []}
    for t, (added, removed) in enumerate([(stream.initial, None), *stream.batches]):
        for label, system in systems.items():
            system.advance(added, removed)
            if t in times:
                rows.setdefault(label, []).append(system.sample())
                cells.setdefault(label, []).append((system.tree.lower, system.tree.upper))
    cells["true"] = cells[next(iter(systems))]
    box = window if window is not None else (scene.domain.lower, scene.domain.upper)
    figure = draw_points(rows, cells, [f"{scene.name}\nt = {scene.first + t}" for t in times], box)
    for ax in figure.axes:
        draw_domain(ax, scene.domain)
    figure.savefig(path)


METRIC = "relative_error"
#: What a parameter is.
AXES = {"sensitivity": "events of a person protected together, k", "batch": "events in a batch"}


def with_real_points(table: Mapping[str, Any], data: Path) -> dict[str, Any]:
    """A sweep's TOML tables with Gowalla, Uber pickups and the authors' circles in place of synthetic streams."""
    return {**table, "datasets": [_real(each, data) for each in table["datasets"]]}


def _real(table: dict[str, Any], data: Path) -> dict[str, Any]:
    made, kept = (
        table.get("generator"),
        {key: table[key] for key in table if key not in ("generator", "name", "start")},
    )
    if made == "check_ins" and (data / GOWALLA).exists():
        # The paper's days are counted within its horizon, the last days of the sample.
        first = load_gowalla(data / GOWALLA, period=DAY).n_steps - HORIZON
        days = table.get("start", 0)
        start = [first + day for day in days] if isinstance(days, list) else first + days
        name = table["name"].replace("Check-ins", "Gowalla")
        return {"name": name, "file": GOWALLA, "format": "gowalla", "period": DAY, "start": start, **kept}
    if made == "pickups" and (data / PICKUPS).exists():
        start = {"start": table["start"]} if "start" in table else {}
        name, domain = "Uber pickups", table.get("domain")
        if domain is not None:
            real = (data / STREETS).exists()
            name, kept["domain"] = f"{name} on {'' if real else 'synthetic '}streets", STREETS if real else domain
        return {"name": name, "file": PICKUPS, "format": "pickups", "period": DAY / 4, **start, **kept}
    if made == "circles" and table.get("deletion", True) and (data / CIRCLES).exists():
        kept.pop("deletion", None)
        return {"name": f"{table['name']} (synthetic)", "file": CIRCLES, "format": "circles", **kept}
    return dict(table)


def draw_against(folder: Path, parameter: str) -> list[Path]:
    """Errors of every class of boxes, mean over time, against a parameter that names data sets or mechanisms."""
    from matplotlib.ticker import LogLocator, NullLocator

    sweep = Sweep(folder)
    label = re.compile(rf"(, )?\b{parameter}=(\d+)")
    table = averaged(sweep.rows, METRIC)
    value = (table["dataset"] + ", " + table["mechanism"]).str.extract(label)[1].astype(float)
    bases = [label.sub("", sweep.title_of(name)) for name in table["dataset"]]
    said = [f"$\\epsilon$ = {epsilon:g}" for epsilon in table["epsilon"]]
    table = table.assign(value=value, base=bases, said=said)
    panels = list(product(table["group"].unique(), table["base"].unique()))
    figure, axes = grid(table["group"].nunique(), table["base"].nunique(), sweep.name, height=2.5)
    styles, x = looks(sorted(table["said"].unique())), sorted(table["value"].unique())
    handles: dict[str, Any] = {}
    for ax, (group, title) in zip(axes.flat, panels, strict=True):
        rows = table[(table["group"] == group) & (table["base"] == title)]
        handles |= curves(ax, rows, "value", METRIC, styles, "said")
        ax.set(xscale="log", yscale="log", title=f"{title}, {group} boxes")
        ax.set_xticks(x, [f"{each:g}" for each in x])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
        for axis_format in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
            axis_format("{x:.2g}")
        ax.tick_params(which="both", labelsize=8)
        ax.title.set_fontsize(9)
    for ax in axes[-1]:
        ax.set_xlabel(AXES[parameter], fontsize=9)
    for ax in axes[:, 0]:
        ax.set_ylabel(NAMES[METRIC], fontsize=9)
    legend(figure, handles)
    path = folder / "figures" / f"{METRIC}_against_{parameter}.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
    return [path]
