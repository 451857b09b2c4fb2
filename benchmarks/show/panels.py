"""Drawing of error against epsilon: median, spread, and the published code's medians as crosses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.streams import Floats

#: Wong's colours, which the colour-blind can tell apart.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3fbf", "#222222")
MARKERS = "os^Dv<>P"
GREY = "#777777"


#: Marks a variant that is drawn dashed in the colour of the curve without it.
CLIPPED = ", theta <= B"
#: Names as tables print them, and as a legend shows them.
SYMBOLS = (
    ("pruned H_16^c", r"$\hat{H}_{16}^c$"),
    ("H_16^c", "$H_{16}^c$"),
    ("H_16", "$H_{16}$"),
    ("H_2", "$H_2$"),
    ("theta <= B", r"$\theta \leq B$"),
)
PUBLISHED = "published code"


Points = tuple[tuple[float, ...], tuple[float, ...]]
NONE: Points = ((), ())


class Curve(NamedTuple):
    """Rows are budgets, columns repetitions; ``plain`` draws a grey dashed line (Base)."""

    name: str
    epsilons: tuple[float, ...]
    errors: Floats
    plain: bool = False
    #: The published code's budgets and medians.
    published: Points = NONE


class Panel(NamedTuple):
    """``bands`` shows the middle half of the repetitions; ``log`` and ``log_x`` are for the axes."""

    title: str
    y_label: str
    curves: list[Curve]
    bands: bool = True
    log: bool = True
    log_x: bool = True
    ticks: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1)


def symbols(name: str) -> str:
    for plain, symbol in SYMBOLS:
        name = name.replace(plain, symbol)
    return name


def new_figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw(rows: Sequence[Sequence[Panel]], title: str, x_label: str, path: Path) -> None:
    """A grid of panels with one legend below."""
    columns = len(rows[0])
    figure = new_figure(3.5 * columns, 3.0 * len(rows) + 1.0)
    grid = figure.subplots(len(rows), columns, squeeze=False, sharex=True)
    handles: dict[str, Any] = {}
    for axes, panels in zip(grid, rows, strict=True):
        for ax, panel in zip(axes, panels, strict=True):
            handles |= _draw_panel(ax, panel)
            ax.set_title(panel.title, fontsize=11)
            if ax is axes[0] or panel.y_label != panels[0].y_label:
                ax.set_ylabel(panel.y_label)
    for ax in grid[-1]:
        ax.set_xlabel(x_label)
    if PUBLISHED in handles:
        handles[PUBLISHED] = handles.pop(PUBLISHED)
    figure.suptitle(title, fontsize=12)
    names = [symbols(name) for name in handles]
    figure.legend(handles.values(), names, loc="outside lower center", ncols=min(len(names), 8), frameon=False)
    figure.savefig(path)


def _draw_panel(ax: Any, panel: Panel) -> dict[str, Any]:
    handles: dict[str, Any] = {}
    stems: list[str] = []
    for curve in panel.curves:
        stem = curve.name.removesuffix(CLIPPED)
        if curve.plain:
            look: dict[str, Any] = {"color": GREY, "linestyle": "--", "linewidth": 1.3}
        else:
            stems += [stem] if stem not in stems else []
            k = stems.index(stem)
            look = {"color": COLOURS[k], "marker": MARKERS[k], "markersize": 4.5, "linewidth": 1.4}
            look |= {"linestyle": "--", "markerfacecolor": "white"} if stem != curve.name else {}
        low, middle, high = np.quantile(curve.errors, (0.25, 0.5, 0.75), axis=1)
        (handles[curve.name],) = ax.plot(curve.epsilons, middle, **look)
        if panel.bands:
            ax.fill_between(curve.epsilons, low, high, color=look["color"], alpha=0.15, linewidth=0)
        if curve.published[0]:
            ax.plot(*curve.published, linestyle="", marker="x", color=look["color"], markersize=7)
            (handles[PUBLISHED],) = ax.plot([], [], linestyle="", marker="x", color=GREY, markersize=7)
    _set_scales(ax, panel)
    ax.grid(visible=True, which="major", color="#e0e0e0", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return handles


def _set_scales(ax: Any, panel: Panel) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log" if panel.log_x else "linear")
    ax.set_xticks(panel.ticks)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    if panel.log:
        ax.set_yscale("log")
        bottom, top = ax.get_ylim()
        few = top / bottom < 100.0
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
        if few:
            ax.yaxis.set_major_formatter(
                FuncFormatter(lambda y, _: f"{y:.0e}".replace("e+0", "e").replace("e+", "e"))
            )
        ax.yaxis.set_minor_formatter(NullFormatter())


def _as_power(number: float, _position: int | None = None) -> str:
    """2e7, not 2e+07."""
    leading, exponent = f"{number:.0e}".split("e")
    return f"{leading}e{int(exponent)}"
