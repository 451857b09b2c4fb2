"""Pictures of a sweep, from its files alone; needs matplotlib (``pip install 'fastdp[plot]'``), imported on use.

Source of the groups: ToPS Figures 2 (streams over time), 3 to 8 and 10 (error against epsilon).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.errors import DataError
from fastdp.experiments.measure import PARTS, metrics_by_name
from fastdp.experiments.results import load, read_manifest

Floats = NDArray[np.float64]
#: Wong's colours, which the colour-blind can tell apart, without black.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3fbf")
MARKERS = "os^Dv<>P"
GREY, TRUTH = "#777777", "#222222"
FORMATS = ("png", "svg")
MOST_ROWS = 8
_NAMES = {"mse": "MSE", "mae": "MAE", "mmse": "MMSE", "mmae": "MMAE", "relative_error": "relative error"}


class Table:
    """Rows of results that did not fail, column by column.

    Parameters
    ----------
    folder : Path
        Of the sweep.
    """

    def __init__(self, folder: Path) -> None:
        self.manifest = read_manifest(folder)
        table = load(folder)
        columns = {name: np.asarray(table[name]) for name in table}
        good = columns["queries"] > 0
        self._columns = {name: column[good] for name, column in columns.items()}
        self.failed = int(np.count_nonzero(~good))
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


def draw_all(
    folder: str | Path,
    output: str | Path,
    *,
    metrics: Sequence[str] | None = None,
    group: str = "all",
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Every picture that the results allow.

    Parameters
    ----------
    folder : str or Path
        Of the sweep; it need not be finished.
    output : str or Path
        The folder of the pictures; made if absent.
    metrics : sequence of str, optional
        Which errors; by default all that were measured.
    group : str
        Which group of queries: "all", or a length class.
    formats : sequence of str
        Suffixes.

    Returns
    -------
    list of Path
        Errors against epsilon (a picture for each metric), thresholds, the parts of the error, and streams over time.

    Raises
    ------
    DataError
        If there is nothing to draw.
    ImportError
        If matplotlib is not installed.
    """
    for name in formats:
        validation.choice("format", name, FORMATS)
    table = Table(Path(folder))
    measured = [name for name in metrics_by_name() if name in table]
    chosen = measured if metrics is None else [validation.choice("metric", name, measured) for name in metrics]
    drawn: list[tuple[str, Any]] = []
    for workload in table.names("workload"):
        rows = table["workload"] == workload
        label = "" if workload == "random_ranges" else f"_{workload}"
        grouped = rows & (table["group"] == group)
        if grouped.any():
            drawn += [(f"{name}{label}", _errors(table, grouped, name)) for name in chosen]
            if f"{PARTS[0]}_mse" in table:
                drawn.append((f"parts{label}", _parts(table, grouped)))
        elif not (rows & (table["group"] == "all")).any():
            drawn.append((f"stream{label}", _streams(table, rows)))
    if not drawn:
        groups = ", ".join(repr(name) for name in table.names("group")[:30])
        raise DataError(f"group = {group!r}: expected one of {groups}")
    if np.isfinite(table["threshold"]).any():
        first = table["workload"] == table["workload"][0]
        first &= table["group"] == table["group"][0]
        drawn.append(("threshold", _errors(table, first, "threshold")))
    return list(_save(drawn, Path(output), formats))


def _save(drawn: list[tuple[str, Any]], output: Path, formats: Sequence[str]) -> Iterator[Path]:
    output.mkdir(parents=True, exist_ok=True)
    for name, figure in drawn:
        for suffix in formats:
            path = output / f"{name}.{suffix}"
            figure.savefig(path, metadata={"Date": None} if suffix == "svg" else None)
            yield path


def _grid(rows: int, columns: int, title: str, *, width: float = 3.6, height: float = 3.1) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns + 0.6, height * rows + 1.1), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=12)
    axes = figure.subplots(rows, columns, squeeze=False, sharex="col")
    for ax in axes.flat:
        ax.grid(visible=True, which="major", color="#e0e0e0", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _looks(names: Sequence[str], base: Callable[[str], bool]) -> dict[str, dict[str, Any]]:
    """A look for each mechanism; one that clips everything away is a grey dashed line."""
    looks: dict[str, dict[str, Any]] = {}
    for name in names:
        if base(name):
            looks[name] = {"color": GREY, "linestyle": "--", "linewidth": 1.3}
        else:
            k = sum("marker" in look for look in looks.values())
            looks[name] = {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)]}
            looks[name] |= {"markersize": 4.5, "linewidth": 1.4}
    return looks


def _errors(table: Table, rows: NDArray[np.bool_], column: str) -> Any:
    """Median and middle half over repetitions, against epsilon: a panel for each data set, a curve a mechanism."""
    data_sets, mechanisms = table.names("dataset", rows), table.names("mechanism", rows)
    figure, axes = _grid(1, len(data_sets), table.manifest["name"])
    looks = _looks(mechanisms, lambda name: bool(np.all(table["threshold"][table["mechanism"] == name] == 0.0)))
    handles: dict[str, Any] = {}
    for ax, data_set in zip(axes[0], data_sets, strict=True):
        for name in mechanisms:
            which = rows & (table["dataset"] == data_set) & (table["mechanism"] == name)
            if column == "threshold" and "marker" not in looks[name]:
                continue
            epsilons, spread = quartiles(table["epsilon"][which], table[column][which])
            if epsilons.size:
                (handles[name],) = ax.plot(epsilons, spread[1], **looks[name])
                ax.fill_between(epsilons, spread[0], spread[2], color=looks[name]["color"], alpha=0.15, linewidth=0)
        ax.set_title(data_set, fontsize=11)
        _log(ax)
        ax.set_xlabel(r"$\epsilon$")
    axes[0, 0].set_ylabel(_NAMES.get(column, r"threshold $\theta$"))
    _legend(figure, handles)
    return figure


def _parts(table: Table, rows: NDArray[np.bool_]) -> Any:
    """Root mean squares of noise, truncation and smoothing: a row of panels for each mechanism."""
    data_sets = table.names("dataset", rows)
    mechanisms = [
        name
        for name in table.names("mechanism", rows)
        if np.any(table["threshold"][table["mechanism"] == name] > 0.0)
    ][:MOST_ROWS]
    figure, axes = _grid(max(len(mechanisms), 1), len(data_sets), f"{table.manifest['name']}: parts of the error")
    handles: dict[str, Any] = {}
    for line, name in zip(axes, mechanisms, strict=False):
        for ax, data_set in zip(line, data_sets, strict=True):
            which = rows & (table["dataset"] == data_set) & (table["mechanism"] == name)
            for k, part in enumerate(PARTS):
                epsilons, spread = quartiles(table["epsilon"][which], np.sqrt(table[f"{part}_mse"][which]))
                if np.any(spread[1] > 0.0):
                    look = {"color": COLOURS[k], "marker": MARKERS[k], "markersize": 4.0, "linewidth": 1.3}
                    (handles[part],) = ax.plot(epsilons, spread[1], **look)
            _log(ax)
        line[0].set_ylabel(f"{name}\nroot mean square", fontsize=9)
    for top, bottom, data_set in zip(axes[0], axes[-1], data_sets, strict=True):
        top.set_title(data_set, fontsize=11)
        bottom.set_xlabel(r"$\epsilon$")
    _legend(figure, handles)
    return figure


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


def _streams(table: Table, rows: NDArray[np.bool_]) -> Any:
    """Means of stretches over time, true and released, of the first repetition."""
    first = rows & (table["repetition"] == 0)
    data_sets = table.names("dataset", first)
    pairs = list(
        dict.fromkeys(zip(table["mechanism"][first].tolist(), table["epsilon"][first].tolist(), strict=True))
    )[: 2 * MOST_ROWS]
    # A column for each data set; one alone may take three.
    columns = len(data_sets) if len(data_sets) > 1 else min(3, len(pairs))
    count = len(pairs) if len(data_sets) > 1 else -(-len(pairs) // columns)
    figure, axes = _grid(count, columns, f"{table.manifest['name']}: over time", width=4.6, height=2.2)
    handles: dict[str, Any] = {}
    for k, (name, epsilon) in enumerate(pairs):
        for column, data_set in enumerate(data_sets):
            ax = axes[k, column] if len(data_sets) > 1 else axes.flat[k]
            which = first & (table["dataset"] == data_set) & (table["mechanism"] == name)
            which &= table["epsilon"] == epsilon
            if not which.any():
                continue
            lengths = np.diff(np.linspace(0, _published(table.manifest, data_set), which.sum() + 1).astype(np.int64))
            middles = np.cumsum(lengths) - lengths / 2.0
            for label, colour, wide in (("truth", TRUTH, 2.6), ("answer", COLOURS[0], 1.2)):
                shown = "private release" if label == "answer" else label
                means = table[label][which] / lengths
                (handles[shown],) = ax.plot(middles / 1e3, means, color=colour, linewidth=wide, alpha=0.8)
            ax.set_title(rf"{data_set}: {name}, $\epsilon$ = {epsilon:g}", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("position in the stream, thousands", fontsize=9)
    for ax in axes[:, 0]:
        ax.set_ylabel("mean value", fontsize=9)
    figure.align_ylabels()
    _legend(figure, handles)
    return figure


def _published(manifest: dict[str, Any], data_set: str) -> int:
    holdout = next(each["holdout"] for each in manifest["specification"]["datasets"] if each["name"] == data_set)
    return int(manifest["data"][data_set]["values"]) - int(holdout)


def _log(ax: Any) -> None:
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


def _legend(figure: Any, handles: dict[str, Any]) -> None:
    columns = max(1, min(len(handles), 6))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False)
