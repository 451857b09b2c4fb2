"""Common elements of pictures: rows of results, grids of panels, line styles, axes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import DataError
from fastdp_lab.sweeps.results import load, read_manifest

Floats = NDArray[np.float64]
#: Wong's palette for colour-blind readers, without black.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3fbf")
MARKERS = "os^Dv<>P"
DASHES = ("-", "--", ":", "-.")
GREY, TRUTH = "#777777", "#222222"
NAMES = {"mse": "MSE", "mae": "MAE", "mmse": "MMSE", "mmae": "MMAE", "relative_error": "relative error"}


class Table:
    """Rows of a sweep's results without failed cells, column by column."""

    def __init__(self, folder: Path) -> None:
        self.manifest = read_manifest(folder)
        table = load(folder)
        columns = {name: np.asarray(table[name]) for name in table}
        good = columns["queries"] > 0
        self._columns = {name: column[good] for name, column in columns.items()}
        if not good.any():
            raise DataError(f"{folder}: every cell failed; the column error of its results says why")

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    def names(self, column: str, where: NDArray[np.bool_] | None = None) -> list[str]:
        """Different entries of a column, in the order of first appearance."""
        entries = self._columns[column] if where is None else self._columns[column][where]
        return list(dict.fromkeys(entries.tolist()))

    def title_of(self, data_set: str) -> str:
        """Its name, which says so if its values are synthetic."""
        kinds = {each["name"]: each["kind"] for each in self.manifest["specification"]["datasets"]}
        made = kinds.get(data_set) == "generator" and "synthetic" not in data_set
        return f"{data_set} (synthetic)" if made else data_set

    def is_base(self, mechanism: str) -> bool:
        """Whether it publishes zeros."""
        each = self.manifest["specification"]["mechanisms"]
        return any(one["system"] == "base" for one in each if one["name"] == mechanism)

    def averaged(self, rows: NDArray[np.bool_], numbers: Sequence[str]) -> Table:
        """These rows, with these columns averaged over the times of each cell and group."""
        columns = {name: column[rows] for name, column in self._columns.items()}
        codes = np.stack([np.unique(columns[name], return_inverse=True)[1] for name in ("cell", "group")])
        _, first, which = np.unique(codes, axis=1, return_index=True, return_inverse=True)
        table = copy.copy(self)
        table._columns = {name: column[first] for name, column in columns.items()}
        for name in numbers:
            finite = np.isfinite(columns[name])
            members = which.reshape(-1)[finite]
            counts = np.bincount(members, minlength=first.size)
            sums = np.bincount(members, columns[name][finite], first.size)
            table._columns[name] = np.divide(sums, counts, out=np.full(first.size, np.nan), where=counts > 0)
        return table


def grid(
    rows: int,
    columns: int,
    title: str,
    *,
    width: float = 3.6,
    height: float = 3.1,
    sharex: Literal["none", "col"] = "col",
) -> tuple[Any, Any]:
    """A figure with a title, and its axes: an array of rows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns + 0.6, height * rows + 1.1), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=12)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=sharex)
    for ax in axes.flat:
        ax.grid(visible=True, which="major", color="#e0e0e0", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def looks(names: Sequence[str], base: Callable[[str], bool]) -> dict[str, dict[str, Any]]:
    """A line style for each mechanism; one that publishes zeros is a grey dashed line.

    Where colours do not suffice, variants ("NAME", "NAME, VARIANT") share NAME's, and the later ones are dashed.
    """
    found: dict[str, dict[str, Any]] = {}
    others = [name for name in names if not base(name)]
    kinds = [name.partition(", ")[0] for name in others] if len(others) > len(COLOURS) else others
    numbers = {kind: k for k, kind in enumerate(dict.fromkeys(kinds))}
    for name in names:
        if name not in others:
            found[name] = {"color": GREY, "linestyle": "--", "linewidth": 1.3}
            continue
        kind = kinds[others.index(name)]
        k, variant = numbers[kind], kinds[: others.index(name)].count(kind)
        found[name] = {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)]}
        found[name] |= {"markersize": 4.5, "linewidth": 1.4, "linestyle": DASHES[variant % len(DASHES)]}
    return found


def quartiles(x: Floats, values: Floats) -> tuple[Floats, Floats]:
    """The different x, and the quartiles of the finite values at each.

    Returns
    -------
    x : float64[k]
        Rising.
    spread : float64[3, k]
        Quantiles 1/4, 1/2 and 3/4.
    """
    finite = np.isfinite(values)
    points = np.unique(x[finite])
    spread = [np.quantile(values[finite & (x == point)], (0.25, 0.5, 0.75)) for point in points]
    return points, np.array(spread, np.float64).reshape(-1, 3).T


def curves(
    ax: Any, table: Table, rows: NDArray[np.bool_], x: str, values: Floats, styles: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Draw the median and the middle half over repetitions, a curve for each mechanism; handles for the legend."""
    handles = {}
    for name, style in styles.items():
        which = rows & (table["mechanism"] == name)
        places, spread = quartiles(table[x][which], values[which])
        if places.size:
            (handles[name],) = ax.plot(places, spread[1], **style)
            ax.fill_between(places, spread[0], spread[2], color=style["color"], alpha=0.15, linewidth=0)
    return handles


def log_axes(ax: Any) -> None:
    """Logarithmic axes with ticks at budgets that are drawn; y only if anything lies above 0."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    ax.set_xscale("log")
    if any(np.any(np.asarray(line.get_ydata()) > 0.0) for line in ax.lines):
        ax.set_yscale("log")
    ax.set_xticks(ticks_of({float(x) for line in ax.lines for x in line.get_xdata()}))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def ticks_of(budgets: set[float]) -> list[float]:
    """Those that begin with 1, 2 or 5; if that leaves less than two, all that do not touch on a log axis."""
    rising = sorted(budgets)
    round_ones = [x for x in rising if f"{x:.6e}".partition("e")[0] in ("1.000000", "2.000000", "5.000000")]
    if len(round_ones) > 1:
        return round_ones
    kept: list[float] = []
    for x in rising:
        if not kept or x >= 1.6 * kept[-1]:
            kept.append(x)
    return kept


def legend(figure: Any, handles: dict[str, Any]) -> None:
    """One legend for all panels, below."""
    widest = 0.55 + 0.085 * max((len(name) for name in handles), default=0)
    columns = max(1, min(len(handles), 6, int(figure.get_figwidth() / widest)))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False)


def errors_against_epsilon(table: Table, rows: NDArray[np.bool_], column: str, title: str = "") -> Any:
    """Median and middle half over repetitions, against epsilon: a panel for each data set, a curve a mechanism."""
    data_sets, mechanisms = table.names("dataset", rows), table.names("mechanism", rows)
    figure, axes = grid(1, len(data_sets), table.manifest["name"] + title)
    styles = looks(mechanisms, table.is_base)
    if column == "threshold":
        styles = {name: style for name, style in styles.items() if "marker" in style}
    handles: dict[str, Any] = {}
    for ax, data_set in zip(axes[0], data_sets, strict=True):
        handles |= curves(ax, table, rows & (table["dataset"] == data_set), "epsilon", table[column], styles)
        ax.set_title(table.title_of(data_set), fontsize=11)
        log_axes(ax)
        ax.set_xlabel(r"$\epsilon$")
    axes[0, 0].set_ylabel(NAMES.get(column, r"threshold $\theta$"))
    legend(figure, handles)
    return figure
