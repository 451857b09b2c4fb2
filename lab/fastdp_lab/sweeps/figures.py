"""Pictures of a sweep, from its files only; needs matplotlib (extra ``lab``), imported on use.

Sources of the groups: ToPS Figures 1 (error against theta), 2 and 9 (streams over time), 3 to 8 and 10 (error against
epsilon); PHDStream Figures 1 and 10 to 19 (error over time, by data set, budget and initialisation time), 2 (error of
running sums), 5 (points over time), 3, 4 and 6 to 9 (maps of true and released points, with the cells).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdp import validation
from fastdp.errors import DataError
from fastdp.kinds import Floats, Json
from fastdp_lab.sweeps.claims import student
from fastdp_lab.sweeps.results import load, read_manifest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

#: Wong's palette for colour-blind readers, without black.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3fbf")
MARKERS, DASHES = "os^Dv<>P", ("-", "--", ":", "-.")
GREY, TRUTH = "#777777", "#222222"
NAMES = {"mse": "MSE", "mae": "MAE", "mmse": "MMSE", "mmae": "MMAE", "relative_error": "relative error"}
#: Panels beside each other, most rows of a picture, and mechanisms of a map.
PANELS, MAX_ROWS, MAX_MAPS = 3, 8, 5
#: Runs that have a density.
LEAST_RUNS = 20
Styles = dict[str, Json]
Drawn = Iterator[tuple[str, "Figure"]]


def draw(
    folder: str | Path,
    output: str | Path,
    *,
    group: str = "all",
    formats: Sequence[str] = ("png", "svg"),
) -> list[Path]:
    """Draw every picture that the results of a sweep allow, finished or not; return their paths.

    Errors against epsilon, or against theta where that is given (a picture for each metric), thresholds, and streams
    over time; for points errors over time and against epsilon, totals over time, and maps; for statistics quantiles
    against shares or times, densities of runs, and numbers by data set or epsilon.  Lines are means over repetitions,
    bands the 95 % confidence intervals by Student's distribution.

    Parameters
    ----------
    folder, output : str or Path
        Of the sweep, and of the pictures; created if absent.
    group : str
        Of queries: "all", or a length class; for points a class of size, "all" for each.
    formats : sequence of str
        Suffixes.
    """
    for each in formats:
        validation.choice("format", each, ("png", "svg"))
    sweep = Sweep(Path(folder))
    rows, metrics = sweep.rows, [name for name in NAMES if name in sweep.rows]
    validation.choice("group", group, tuple(dict.fromkeys(["all", *rows["group"].unique()[:30]])))
    of_study = {"points": _of_points, "statistics": _of_statistics, "values": _of_values}[sweep.study]
    drawn = of_study(sweep, metrics, group)
    Path(output).mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in drawn:
        for suffix in formats:
            paths.append(Path(output) / f"{name}.{suffix}")
            figure.savefig(paths[-1], metadata={"Date": None} if suffix == "svg" else None)
    return paths


class Sweep:
    """The rows of a sweep's results without failed cells, and its manifest."""

    def __init__(self, folder: Path) -> None:
        self.manifest, rows = read_manifest(folder), load(folder)
        self.rows: DataFrame = rows[rows["queries"] > 0]
        self.failed = rows["error"].dropna()
        if self.rows.empty:
            raise DataError(f"{folder}: every cell failed; the column error of its results says why")
        self._specification = self.manifest["specification"]
        self.study = "points" if "time" in rows else "statistics" if "value" in rows else "values"
        self.name = self.manifest["name"]

    def title_of(self, data_set: str) -> str:
        """Its name, which says so if its values are synthetic."""
        kinds = {each["name"]: each["kind"] for each in self._specification["datasets"]}
        made = kinds.get(data_set) == "generator" and "synthetic" not in data_set
        return f"{data_set} (synthetic)" if made else data_set

    def lists_theta(self) -> bool:
        """True if one name of the specification has several thresholds."""
        fixed: dict[str, set[float]] = {}
        for each in self._specification["mechanisms"]:
            part = each["parameters"].get("threshold")
            if isinstance(part, dict) and "theta" in part:
                fixed.setdefault(each["name"].partition(", ")[0], set()).add(part["theta"])
        return any(len(each) > 1 for each in fixed.values())

    def is_base(self, mechanism: str) -> bool:
        """True if it publishes zeros."""
        return any(
            each["system"] == "base" for each in self._specification["mechanisms"] if each["name"] == mechanism
        )


#: Rivals that have a colour in pictures of many mechanisms; the others are grey.
MAX_RIVALS = 5


def draw_scores(scores: Any, seconds: Json, ours: set[str], folder: Path) -> Iterator[tuple[str, Path]]:
    """Pictures of a suite's scores, each with the question that it answers.

    Parameters
    ----------
    scores : fastdp_lab.sweeps.page.Scores
        Of all mechanisms.
    seconds : dict
        Time a value, by mechanism.
    ours : set of str
        fastdp's own methods, which have a colour each, as the best rivals have.
    folder : Path
        Of the pictures.
    """
    folder.mkdir(parents=True, exist_ok=True)
    order = list(scores.overall.index)
    named = [name for name in order if name in ours]
    named += [name for name in order if name not in ours][:MAX_RIVALS]
    styles = looks(named)
    for name in ours:
        styles[name]["linewidth"] = 2.4
    questions = {
        "kind": "Which mechanism for which queries?",
        "epsilon": "Which mechanism for which budget?",
        "dataset": "Which mechanism for which stream?",
    }
    for level, question in questions.items():
        means = scores.by(level)
        if means.shape[1] > 1:
            yield question, _score_lines(means, styles, level, folder)
    if seconds:
        yield "What does accuracy cost in time?", _score_times(scores.overall, seconds, styles, folder)


def _score_lines(means: DataFrame, styles: Styles, level: str, folder: Path) -> Path:
    """A line a mechanism over the entries of a level."""
    wide = max(7.0, 0.42 * means.shape[1] + 2.5)
    figure, axes = grid(1, 1, "", width=wide, height=4.6)
    (ax,), places = axes[0], np.arange(means.shape[1])
    for name in means.index[::-1]:
        style = styles.get(name, {"color": "#cccccc", "linewidth": 0.8, "zorder": 1})
        (line,) = ax.plot(places, means.loc[name], **style)
        line.set_label(name if name in styles else "")
    labels = [f"{each:g}" if level == "epsilon" else str(each) for each in means.columns]
    slant: Json = {"rotation": 40, "ha": "right"} if means.shape[1] > 6 else {}
    ax.set_xticks(places, labels, **slant)
    ax.set_xlabel(r"$\epsilon$" if level == "epsilon" else "")
    return _saved(figure, ax, styles, folder / f"by_{level}.png")


def _score_times(overall: Any, seconds: Json, styles: Styles, folder: Path) -> Path:
    """A mark a mechanism: time and error."""
    figure, axes = grid(1, 1, "", width=7.0, height=4.6)
    ax = axes[0][0]
    for name in overall.index[::-1]:
        style = styles.get(name, {"color": "#cccccc", "marker": "."}) | {"linestyle": ""}
        (line,) = ax.plot([1e6 * seconds.get(name, np.nan)], [overall[name]], **style)
        line.set_label(name if name in styles else "")
    ax.set_xscale("log")
    ax.set_xlabel("microseconds a value, one core")
    return _saved(figure, ax, styles, folder / "by_time.png")


def _saved(figure: Figure, ax: Axes, styles: Styles, path: Path) -> Path:
    """The picture with its legend, the better mechanisms first."""
    ax.set_yscale("log")
    ax.set_ylabel("error, as a multiple of the lowest")
    handles = {line.get_label(): line for line in ax.lines if line.get_label() in styles}
    legend(figure, {name: handles[name] for name in styles if name in handles})
    figure.savefig(path)
    return path


def averaged(rows: DataFrame, metric: str) -> DataFrame:
    """These rows, a metric averaged over the times of each cell and group."""
    found = rows.drop_duplicates(["cell", "group"]).set_index(["cell", "group"])
    found[metric] = rows.groupby(["cell", "group"])[metric].mean()
    return found.reset_index()


def grid(
    rows: int, columns: int, title: str, *, width: float = 3.6, height: float = 3.1, sharex: Any = "col"
) -> tuple[Figure, Any]:
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


def legend(figure: Figure, handles: Json) -> None:
    """One legend for all panels, below."""
    widest = 0.55 + 0.085 * max((len(name) for name in handles), default=0)
    columns = max(1, min(len(handles), 6, int(figure.get_figwidth() / widest)))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False)


def looks(names: Sequence[str], base: Callable[[str], bool] = lambda name: False) -> Styles:
    """A line style for each mechanism; one that publishes zeros is a grey dashed line.

    Where colours do not suffice, variants ("NAME", "NAME, VARIANT") share NAME's, and the later ones are dashed.
    """
    found: Styles = {name: {"color": GREY, "linestyle": "--", "linewidth": 1.3} for name in names}
    others = [name for name in names if not base(name)]
    kinds = [name.partition(", ")[0] for name in others] if len(others) > len(COLOURS) else others
    numbers = {kind: k for k, kind in enumerate(dict.fromkeys(kinds))}
    for place, (name, kind) in enumerate(zip(others, kinds, strict=True)):
        k, dash = numbers[kind], DASHES[kinds[:place].count(kind) % len(DASHES)]
        found[name] = {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)]}
        found[name] |= {"markersize": 4.5, "linewidth": 1.4, "linestyle": dash}
    return found


def curves(ax: Axes, rows: DataFrame, x: str, y: str, styles: Styles, by: str = "mechanism") -> Json:
    """Draw means over repetitions and their 95 % intervals, a curve for each mechanism; handles for the legend."""
    handles = {}
    for name, style in styles.items():
        finite = rows[(rows[by] == name) & rows[y].notna()]
        if len(finite):
            found = finite.groupby(x)[y].agg(["mean", "sem", "count"])
            factor = np.exp(student(found["count"]) * found["sem"] / found["mean"])
            (handles[name],) = ax.plot(found.index, found["mean"], **style)
            ax.fill_between(
                found.index,
                found["mean"] / factor,
                found["mean"] * factor,
                color=style["color"],
                alpha=0.15,
                linewidth=0,
            )
    return handles


def _positive(ax: Axes) -> bool:
    return any(np.any(np.asarray(line.get_ydata()) > 0.0) for line in ax.lines)


def log_axes(ax: Axes) -> None:
    """Logarithmic axes with ticks at budgets that are drawn; y only if anything lies above 0."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    ax.set_xscale("log")
    if _positive(ax):
        ax.set_yscale("log")
    ax.set_xticks(ticks_of({x for line in ax.lines for x in np.asarray(line.get_xdata(), float).tolist()}))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def ticks_of(budgets: set[float]) -> list[float]:
    """Those that do not touch on a log axis."""
    kept: list[float] = []
    for x in sorted(budgets):
        if not kept or x >= 1.6 * kept[-1]:
            kept.append(x)
    return kept


def _of_values(sweep: Sweep, metrics: Sequence[str], group: str) -> Drawn:
    rows, several = sweep.rows, sweep.rows["epsilon"].nunique() > 1
    kinds = {each["name"]: each["kind"] for each in sweep.manifest["specification"]["workloads"]}
    for workload, asked in rows.groupby("workload", sort=False):
        label, grouped = "" if workload == "random_ranges" else f"_{workload}", asked[asked["group"] == group]
        if kinds[workload] == "timeline":
            if asked["group"].nunique() > 2:
                yield f"stream{label}", _streams(sweep, asked[asked["group"] != "all"])
        elif len(grouped) and several:
            yield from ((f"{name}{label}", _against_epsilon(sweep, grouped, name)) for name in metrics)
        elif sweep.lists_theta() and (grouped.groupby("mechanism")["threshold"].nunique() == 1).all():
            yield from ((f"{name}{label}", _against_theta(sweep, grouped, name)) for name in metrics)
        elif kinds[workload] == "running_sums" and "all" not in set(asked["group"]) and "mae" in rows:
            counted, said = asked.assign(values=asked["group"].astype(float)), "values in the sum"
            yield f"running_sums{label}", _over(sweep, counted, "mae", "absolute error", "values", said)
    first = rows[(rows["workload"] == rows["workload"].iloc[0]) & (rows["group"] == rows["group"].iloc[0])]
    if several and first["threshold"].notna().any():
        yield "threshold", _against_epsilon(sweep, first, "threshold")


def _figure(
    sweep: Sweep,
    panels: Sequence[tuple[str, DataFrame]],
    columns: int,
    title: str,
    y: str,
    styles: Styles,
    *,
    x: str = "epsilon",
    by: str = "mechanism",
    said: tuple[str, str] = (r"$\epsilon$", ""),
    height: float = 3.1,
) -> Figure:
    """Panels of curves, a title and rows each: means of ``y`` over repetitions."""
    lines = -(-len(panels) // columns)
    figure, axes = grid(lines, columns, sweep.name + title, width=3.3, height=height, sharex="none")
    handles: Json = {}
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    for ax, (name, rows) in zip(axes.flat, panels, strict=False):
        handles |= curves(ax, rows, x, y, styles, by)
        ax.set_title(fill(name, 46), fontsize=9)
        if x in ("epsilon", "threshold"):
            log_axes(ax)
        elif y == "ratio":
            ax.axhline(1.0, color=TRUTH, linewidth=0.8)
        elif x in ("time", "values") and y != "points" and _positive(ax):
            ax.set_yscale("log")
        if x == "values":
            ax.set_xscale("log")
    for ax in axes.flat[len(panels) - columns : len(panels)]:
        ax.set_xlabel(said[0], fontsize=9)
    for ax in axes[:, 0]:
        ax.set_ylabel(said[1], fontsize=9)
    figure.align_ylabels()
    legend(figure, handles)
    return figure


def _against_epsilon(sweep: Sweep, rows: DataFrame, column: str, title: str = "") -> Figure:
    """A panel for each data set, a curve a mechanism."""
    styles = looks(list(rows["mechanism"].unique()), sweep.is_base)
    if column == "threshold":
        styles = {name: style for name, style in styles.items() if "marker" in style}
    panels = [(sweep.title_of(str(name)), mine) for name, mine in rows.groupby("dataset", sort=False)]
    said = r"$\epsilon$", {**NAMES, "threshold": r"threshold $\theta$"}.get(column, column)
    return _figure(sweep, panels, min(PANELS, len(panels)), title or f": {said[1]}", column, styles, said=said)


def _against_theta(sweep: Sweep, rows: DataFrame, column: str) -> Figure:
    """A panel for each data set, a curve a list of mechanisms whose thresholds are given."""
    rows = rows.assign(mechanism=rows["mechanism"].str.partition(", ")[0])
    panels = [(sweep.title_of(str(name)), mine) for name, mine in rows.groupby("dataset", sort=False)]
    styles, said = looks(list(rows["mechanism"].unique())), (r"threshold $\theta$", NAMES[column])
    return _figure(sweep, panels, min(PANELS, len(panels)), "", column, styles, x="threshold", said=said, height=4.0)


def _streams(sweep: Sweep, rows: DataFrame) -> Figure:
    """Means of stretches over time, true and released, of the first repetition."""
    panels, first = [], rows[rows["repetition"] == 0]
    keys = ["mechanism", "epsilon"]
    runs: Iterator[Any] = (
        (*key, *each) for key, some in first.groupby(keys, sort=False) for each in some.groupby("dataset", sort=False)
    )
    for name, epsilon, data_set, mine in runs:
        settings = next(each for each in sweep.manifest["specification"]["datasets"] if each["name"] == data_set)
        published = sweep.manifest["data"][data_set]["values"] - settings["holdout"]
        lengths = np.diff(np.linspace(0, published, len(mine) + 1).astype(np.int64))
        middles = (np.cumsum(lengths) - lengths / 2.0) / 1e3
        means = {"truth": mine["truth"] / lengths, "private release": mine["answer"] / lengths, "position": middles}
        title = rf"{sweep.title_of(data_set)}: {name}, $\epsilon={epsilon:g}$"
        panels.append((title, mine.assign(**means)[list(means)].melt("position", var_name="line")))
    columns = rows["dataset"].nunique() if rows["dataset"].nunique() > 1 else min(PANELS, len(panels))
    styles: Styles = {"truth": {"color": TRUTH, "linewidth": 2.6}, "private release": {"color": COLOURS[0]}}
    said, panels = ("position in the stream, thousands", "mean value"), panels[: 2 * MAX_ROWS * columns]
    return _figure(
        sweep, panels, columns, ": over time", "value", styles, x="position", by="line", said=said, height=2.2
    )


def _of_statistics(sweep: Sweep, metrics: Sequence[str], group: str) -> Drawn:
    for workload in sweep.manifest["specification"]["workloads"]:
        rows = sweep.rows[sweep.rows["workload"] == workload["name"]]
        if workload["kind"] == "quantiles":
            yield workload["name"], _quantiles(sweep, rows, workload["by"])
            continue
        for name, mine in rows.groupby("group", sort=False):
            file = "".join(each if each.isalnum() else "_" for each in str(name))
            if sweep.manifest["specification"]["repetitions"] >= LEAST_RUNS:
                yield file, _densities(sweep, mine, str(name))
            elif mine["epsilon"].nunique() > 1:
                yield file, _against_epsilon(sweep, mine.rename(columns={"value": str(name)}), str(name))
            else:
                yield file, _by_data_set(sweep, mine, str(name))


def _quantiles(sweep: Sweep, rows: DataFrame, by: str | None) -> Figure:
    """Upper quantiles against the share above them, or against time for the first share."""
    found = rows["group"].str.extract(r"(?:\w+ (?P<when>\d+): )?(?P<share>.*)").astype(float)
    rows = rows.assign(x=found["share"] if by is None else found["when"], share=found["share"])
    if by is not None:
        rows = rows[rows["share"] == rows["share"].iloc[0]]
    said = "share of values above" if by is None else f"{by}, quantile at share {rows['share'].iloc[0]:g}"
    units = {each["name"]: each["unit"] for each in sweep.manifest["specification"]["datasets"]}
    panels = [
        (f"{sweep.title_of(str(name))}, {units[name]}", mine) for name, mine in rows.groupby("dataset", sort=False)
    ]
    styles = looks(list(rows["mechanism"].unique()))
    figure = _figure(sweep, panels, min(PANELS, len(panels)), "", "value", styles, x="x", said=(said, "quantile"))
    for ax in figure.axes[: len(panels)]:
        if by is None:
            log_axes(ax)
            ax.invert_xaxis()
            ax.tick_params("x", which="both", labelsize=7)
            ax.tick_params("x", which="minor", length=0)
        ax.set_yscale("log")
        _plain_ticks(ax.yaxis)
    return figure


def _plain_ticks(axis: Any) -> None:
    """Numbers in full on a log axis, with those between the powers of ten where few powers are seen."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 300.0 * low else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,g}"))
    axis.set_minor_formatter(NullFormatter())


def _densities(sweep: Sweep, rows: DataFrame, name: str) -> Figure:
    """How a number of runs is distributed: a panel for each data set; one that never changes is a line."""
    every = list(rows.groupby("dataset", sort=False))
    figure, axes = grid(1, len(every), f"{sweep.name}: {name}", sharex="none")
    handles: Json = {}
    for ax, (data_set, mine) in zip(axes[0], every, strict=True):
        edges = np.linspace(0.0, float(mine["value"].quantile(0.99)) * 1.1, 25)
        for mechanism, style in looks(list(mine["mechanism"].unique())).items():
            numbers, colour = mine.loc[mine["mechanism"] == mechanism, "value"], style["color"]
            if numbers.nunique() == 1:
                handles[mechanism] = ax.axvline(numbers.iloc[0], color=colour, linestyle="--")
            else:
                weights = np.full(len(numbers), 1.0 / len(numbers))
                *_, (handles[mechanism],) = ax.hist(
                    numbers, edges, weights=weights, histtype="stepfilled", facecolor=f"{colour}40", edgecolor=colour
                )
        ax.set_title(sweep.title_of(str(data_set)), fontsize=10)
        ax.set_xlabel(name, fontsize=9)
    axes[0][0].set_ylabel("part of the runs", fontsize=9)
    legend(figure, handles)
    return figure


def _by_data_set(sweep: Sweep, rows: DataFrame, name: str) -> Figure:
    """One panel: a number against the data sets."""
    figure, axes = grid(1, 1, f"{sweep.name}: {name}", width=6.4)
    (ax,), data_sets = axes[0], list(rows["dataset"].unique())
    places = rows.assign(x=rows["dataset"].map(data_sets.index))
    handles = curves(ax, places, "x", "value", looks(list(rows["mechanism"].unique())))
    ax.set_xticks(range(len(data_sets)), [fill(each, 16) for each in data_sets], fontsize=8)
    ax.set_ylabel(name, fontsize=9)
    legend(figure, handles)
    return figure


def _of_points(sweep: Sweep, metrics: Sequence[str], group: str) -> Drawn:
    for workload in sweep.manifest["specification"]["workloads"]:
        rows = sweep.rows[sweep.rows["workload"] == workload["name"]]
        label = "" if workload["name"] == workload["kind"] else f"_{workload['name']}"
        if workload["kind"] == "map":
            # A map of one box is for claims.
            for number, (data_set, mine) in enumerate(rows.groupby("dataset", sort=False)):
                if workload["count"] != 1:
                    yield f"map{label}_{number}", _map(sweep, mine, data_set, workload)
            continue
        groups = list(rows["group"].unique())
        for name in groups if group == "all" else [each for each in groups if each == group]:
            asked = rows[rows["group"] == name]
            for metric in metrics:
                yield (
                    f"{metric}_over_time_{name}{label}",
                    _over(sweep, asked, metric, f"{NAMES[metric]}, {name} boxes"),
                )
                if asked["epsilon"].nunique() > 1:
                    title = f": {name} boxes, mean over time"
                    yield f"{metric}_{name}{label}", _against_epsilon(sweep, averaged(asked, metric), metric, title)
        if group in ("all", *groups[:1]):
            first = rows[rows["group"] == groups[0]]
            ratio = first.assign(ratio=first["total"] / first["points"].clip(lower=1.0))
            yield f"total_over_time{label}", _over(sweep, ratio, "ratio", "released over true total")
            truth = first.drop_duplicates(["dataset", "time"]).assign(mechanism="truth", epsilon=np.nan)
            yield f"points_over_time{label}", _over(sweep, truth, "points", "points present")


def _over(sweep: Sweep, rows: DataFrame, y: str, said: str, x: str = "time", place: str = "batch") -> Figure:
    """A panel for each data set and budget (NaN: all), a curve a mechanism, over time."""
    data_sets, epsilons = list(rows["dataset"].unique()), np.unique(rows["epsilon"])
    columns = len(epsilons) if len(epsilons) > 1 else min(PANELS, len(data_sets))
    panels = [
        (
            sweep.title_of(name) + ("" if np.isnan(epsilon) else rf", $\epsilon={epsilon:g}$"),
            rows[(rows["dataset"] == name) & (np.isnan(epsilon) | (rows["epsilon"] == epsilon))],
        )
        for name in data_sets
        for epsilon in epsilons
    ]
    styles = {name: {**look, "markersize": 3.2} for name, look in looks(list(rows["mechanism"].unique())).items()}
    axes = place, said.partition(",")[0]
    return _figure(sweep, panels, columns, f": {said}", y, styles, x=x, said=axes, height=2.7)


def _map(sweep: Sweep, rows: DataFrame, data_set: str, workload: Json) -> Figure:
    """Points in the boxes of a grid: a row for the truth and each mechanism and budget, a column for each time."""
    from matplotlib.colors import LogNorm

    times = np.unique(rows["time"])
    # One budget of every mechanism comes first.
    pairs = rows[["mechanism", "epsilon"]].drop_duplicates().sort_values("epsilon", kind="stable")[:MAX_MAPS]
    low, high = workload["box"] or sweep.manifest["data"][data_set]["box"]
    shape, title = float(np.clip((high[1] - low[1]) / (high[0] - low[0]), 0.4, 1.6)), sweep.title_of(data_set)
    figure, axes = grid(len(pairs) + 1, len(times), f"{sweep.name}: {title}", width=3.0, height=2.3 * shape)
    norm = LogNorm(1.0, max(2.0, float(rows["truth"].max())), clip=False)
    shown = [("true", "truth", pairs.iloc[0])]
    shown += [
        (f"{fill(each.mechanism, 18)}\n$\\epsilon$ = {each.epsilon:g}", "answer", each)
        for _, each in pairs.iterrows()
    ]
    for line, (said, column, pair) in zip(axes, shown, strict=True):
        line[0].set_ylabel(said, fontsize=8)
        mine = rows[(rows["mechanism"] == pair.mechanism) & (rows["epsilon"] == pair.epsilon)]
        for ax, time in zip(line, times, strict=True):
            counts = mine[column][mine["time"] == time].to_numpy()
            if counts.size:
                side = round(counts.size**0.5)
                picture = ax.imshow(np.ma.masked_less(counts.reshape(side, side), 0.5), origin="lower", norm=norm,
                                    cmap="viridis_r", aspect="auto", interpolation="nearest",
                                    extent=(low[0], high[0], low[1], high[1]))  # fmt: skip
                _draw_cells(ax, mine["region"][mine["time"] == time].to_numpy().reshape(side, side), low, high)
            ax.set(title=f"batch {time:g}" if column == "truth" else "")
            ax.title.set_fontsize(9)
            ax.set_box_aspect(shape)
            ax.grid(visible=False)
            ax.locator_params(nbins=3)
            ax.tick_params(labelsize=7, labelleft=ax is line[0])
    figure.colorbar(picture, ax=axes, label="points in a box", shrink=0.6, aspect=40)
    return figure


def _draw_cells(ax: Axes, cells: Floats, low: Sequence[float], high: Sequence[float]) -> None:
    """Lines where neighbouring boxes of a map are in different cells."""
    from matplotlib.collections import LineCollection

    x, y = (np.linspace(low[k], high[k], len(cells) + 1) for k in range(2))
    cells = np.nan_to_num(cells, nan=-1.0)
    row, column = np.nonzero(cells[:, 1:] != cells[:, :-1])
    upright = np.stack([x[[column + 1, column + 1]], y[[row, row + 1]]], axis=2)
    row, column = np.nonzero(cells[1:] != cells[:-1])
    level = np.stack([x[[column, column + 1]], y[[row + 1, row + 1]]], axis=2)
    lines = np.concatenate([upright, level], axis=1).swapaxes(0, 1)
    ax.add_collection(LineCollection(list(lines), colors=TRUTH, linewidths=0.25))
