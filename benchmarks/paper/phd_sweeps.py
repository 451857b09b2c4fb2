"""PHDStream's sweeps on real streams, and errors against a parameter of a sweep (section 5.5)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paper.phd_streams import CIRCLES, GOWALLA, HORIZON, PICKUPS, STREETS
from fastdp_lab.datasets import load_gowalla
from fastdp_lab.datasets.files import DAY
from fastdp_lab.sweeps.drawing import NAMES, Table, grid, legend, looks, quartiles

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

    whole = Table(folder)
    table = whole.averaged(np.ones(whole["cell"].size, np.bool_), [METRIC])
    label = re.compile(rf"(, )?\b{parameter}=(\d+)")
    pairs = zip(table["dataset"].tolist(), table["mechanism"].tolist(), strict=True)
    values = np.array([float(found[2]) for pair in pairs if (found := label.search(", ".join(pair)))])
    bases = np.array([label.sub("", whole.title_of(name)) for name in table["dataset"].tolist()])
    groups, titles = whole.names("group"), list(dict.fromkeys(bases.tolist()))
    figure, axes = grid(len(groups), len(titles), whole.manifest["name"], height=2.5)
    epsilons = np.unique(table["epsilon"]).tolist()
    styles = looks([f"$\\epsilon$ = {epsilon:g}" for epsilon in epsilons], lambda _: False)
    handles: dict[str, Any] = {}
    for ax, (group, title) in zip(axes.flat, product(groups, titles), strict=True):
        for (name, style), epsilon in zip(styles.items(), epsilons, strict=True):
            rows = (bases == title) & (table["group"] == group) & (table["epsilon"] == epsilon)
            x, spread = quartiles(values[rows], table[METRIC][rows])
            (handles[name],) = ax.plot(x, spread[1], **style)
            ax.fill_between(x, spread[0], spread[2], color=style["color"], alpha=0.15, linewidth=0)
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
