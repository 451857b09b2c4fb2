"""PHDStream's streams and geometries, real wherever their files are, and what they look like (Figures 3 to 5)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

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
from fastdp_lab.sweeps.figures import grid
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
    """A stream on its domain.

    Attributes
    ----------
    name : str
        For titles; says what of it is synthetic.
    stream : SpatialStream
        Its initial set ends at t0.
    domain : Domain
        Where the points are.
    first : int
        The batch that the initial set ends with.
    """

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
    """GeoJSON of the Earth's land without Antarctica: of the folder, or Natural Earth's that geopandas brings along.

    Raises
    ------
    ImportError
        If geopandas and its reader are not installed.
    """
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
