"""Pictures of a sweep of points: errors over time and against epsilon, totals, maps of points.

Source of the groups: PHDStream Figures 1 and 10 to 19 (error over time, by data set, budget and initialisation time).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp_lab.sweeps.drawing import NAMES, Table, curves, errors_against_epsilon, grid, legend, looks

Rows = NDArray[np.bool_]
MAX_COLUMNS, MAX_MAPS = 4, 5
_MAP_WIDTH = 2.3


def draw(table: Table, metrics: Sequence[str], group: str) -> list[tuple[str, Any]]:
    """Names and figures; see :meth:`fastdp_lab.sweeps.study.Study.draw`."""
    drawn: list[tuple[str, Any]] = []
    for workload in table.manifest["specification"]["workloads"]:
        rows = table["workload"] == workload["name"]
        label = "" if workload["name"] == workload["kind"] else f"_{workload['name']}"
        if workload["kind"] == "map":
            drawn += _maps(table, rows, workload, label)
        else:
            drawn += _errors(table, rows, metrics, group, label)
    return drawn


def _errors(table: Table, rows: Rows, metrics: Sequence[str], group: str, label: str) -> Iterator[tuple[str, Any]]:
    groups = table.names("group", rows)
    for name in groups if group == "all" else [each for each in groups if each == group]:
        asked = rows & (table["group"] == name)
        several = np.unique(table["epsilon"][asked]).size > 1
        for metric in metrics:
            said = f"{NAMES[metric]}, {name} boxes"
            yield f"{metric}_over_time_{name}{label}", _over_time(table, asked, table[metric], said)
            if several:
                means = table.averaged(asked, [metric])
                every = np.ones(means["cell"].size, np.bool_)
                figure = errors_against_epsilon(means, every, metric, f": {name} boxes, mean over time")
                yield f"{metric}_{name}{label}", figure
    if groups and group in ("all", groups[0]):
        ratio = table["total"] / np.maximum(table["points"], 1.0)
        first = rows & (table["group"] == groups[0])
        yield (
            f"total_over_time{label}",
            _over_time(table, first, ratio, "released over true total", logarithmic=False),
        )


def _over_time(table: Table, rows: Rows, values: Any, said: str, *, logarithmic: bool = True) -> Any:
    """Median and middle half over repetitions: a panel for each data set and budget, a curve a mechanism."""
    data_sets, mechanisms = table.names("dataset", rows), table.names("mechanism", rows)
    epsilons = np.unique(table["epsilon"][rows]).tolist()
    columns = len(epsilons) if len(epsilons) > 1 else _columns(data_sets)
    count = -(-len(data_sets) * len(epsilons) // columns)
    figure, axes = grid(count, columns, f"{table.manifest['name']}: {said}", height=2.7, sharex="none")
    styles = {name: {**look, "markersize": 3.2} for name, look in looks(mechanisms, lambda _: False).items()}
    handles: dict[str, Any] = {}
    panels = [(data_set, epsilon) for data_set in data_sets for epsilon in epsilons]
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    for ax, (data_set, epsilon) in zip(axes.flat, panels, strict=False):
        panel = rows & (table["dataset"] == data_set) & (table["epsilon"] == epsilon)
        handles |= curves(ax, table, panel, "time", values, styles)
        ax.set_title(rf"{table.title_of(data_set)}, $\epsilon$ = {epsilon:g}", fontsize=9)
        if logarithmic and any(np.any(np.asarray(line.get_ydata()) > 0.0) for line in ax.lines):
            ax.set_yscale("log")
            _label_logarithmic(ax)
        elif not logarithmic:
            ax.axhline(1.0, color="#222222", linewidth=0.8)
    for ax in axes[-1]:
        ax.set_xlabel("batch", fontsize=9)
    for ax in axes[:, 0]:
        ax.set_ylabel(said.partition(",")[0], fontsize=9)
    legend(figure, handles)
    return figure


def _label_logarithmic(ax: Any) -> None:
    """Ticks with numbers: the shorter the axis, the more of them."""
    from matplotlib.ticker import FuncFormatter

    bottom, top = ax.get_ylim()
    leading = "123456789" if top < 4.0 * bottom else "1235" if top < 30.0 * bottom else "1"
    for axis_format in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        axis_format(FuncFormatter(lambda y, _: f"{y:.2g}" if f"{y:.1e}"[0] in leading else ""))
    ax.tick_params(axis="y", which="both", labelsize=8)


def _columns(data_sets: list[str]) -> int:
    """The number of variants of each data set if it is the same for all; else one row, or nearly a square."""
    bases = [name.partition(", ")[0] for name in data_sets]
    variants = {bases.count(each) for each in bases}
    if len(set(bases)) > 1 and len(variants) == 1 and 1 < min(variants) <= MAX_COLUMNS:
        return min(variants)
    return len(data_sets) if len(data_sets) <= MAX_COLUMNS else min(MAX_COLUMNS, -(-len(data_sets) // 2))


def _maps(table: Table, rows: Rows, workload: dict[str, Any], label: str) -> Iterator[tuple[str, Any]]:
    for number, data_set in enumerate(table.names("dataset", rows)):
        there = rows & (table["dataset"] == data_set)
        yield f"map{label}_{number}", _map(table, there, data_set, workload)


def _map(table: Table, rows: Rows, data_set: str, workload: dict[str, Any]) -> Any:
    """Points in the boxes of a grid: a row for the truth and each mechanism and budget, a column for each time."""
    from matplotlib.colors import LogNorm

    times = np.unique(table["time"][rows]).tolist()
    pairs = list(dict.fromkeys(zip(table["mechanism"][rows].tolist(), table["epsilon"][rows].tolist(), strict=True)))
    # One budget of every mechanism comes first.
    pairs = sorted(pairs, key=lambda pair: pair[1])[:MAX_MAPS]
    low, high = workload["box"] or table.manifest["data"][data_set]["box"]
    shape = float(np.clip((high[1] - low[1]) / (high[0] - low[0]), 0.4, 1.6))
    title = f"{table.manifest['name']}: {table.title_of(data_set)}"
    figure, axes = grid(
        len(pairs) + 1, len(times), title, width=1.3 * _MAP_WIDTH, height=_MAP_WIDTH * shape, sharex="col"
    )
    first = rows & (table["mechanism"] == pairs[0][0]) & (table["epsilon"] == pairs[0][1])
    norm = LogNorm(1.0, max(2.0, float(table["truth"][rows].max())), clip=False)
    shown = [("true", "truth", first)]
    for name, epsilon in pairs:
        which = rows & (table["mechanism"] == name) & (table["epsilon"] == epsilon)
        shown.append((f"{fill(name, 18)}\n$\\epsilon$ = {epsilon:g}", "answer", which))
    for line, (said, column, which) in zip(axes, shown, strict=True):
        line[0].set_ylabel(said, fontsize=8)
        for ax, time in zip(line, times, strict=True):
            counts = table[column][which & (table["time"] == time)]
            side = round(counts.size**0.5)
            if counts.size:
                image = np.ma.masked_less(counts.reshape(side, side), 0.5)
                picture = ax.imshow(image, origin="lower", norm=norm, cmap="viridis_r", aspect="auto",
                                    extent=(low[0], high[0], low[1], high[1]), interpolation="nearest")  # fmt: skip
            ax.set(xticks=[], yticks=[])
            ax.set_box_aspect(shape)
            ax.grid(visible=False)
            if column == "truth":
                ax.set_title(f"batch {time:g}", fontsize=9)
    figure.colorbar(picture, ax=axes, label="points in a box", shrink=0.6, aspect=40)
    return figure
