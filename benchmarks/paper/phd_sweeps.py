"""PHDStream's sweeps on real streams, and errors against a parameter of a sweep (section 5.5)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.paper.phd_streams import CIRCLES, GOWALLA, HORIZON, PICKUPS, STREETS
from fastdp_lab.datasets import load_gowalla
from fastdp_lab.datasets.files import DAY
from fastdp_lab.sweeps.figures import NAMES, Sweep, averaged, curves, grid, legend, looks

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
