"""Plots of spatial streams; each function returns a figure and, given a path, writes it.

Figures show true data: use them for evaluation and synthetic data, never in a release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdp import validation
from fastdp.data.column import as_reals
from fastdp.errors import ParameterError
from fastdp.kinds import Floats, Values
from fastdp.plots.streams import PRIVATE, TRUTH, finish, new_figure, tidy
from fastdp.spatial.domains import Corners, as_box, as_boxes, as_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Points drawn at most; more look the same and make large files.
MAX_DRAWN = 50_000
#: Width of a picture in inches, and characters of its label in one.
PANEL, CHARACTERS = 2.9, 12
#: Lines of a comparison; colour and dash differ, so that they can be distinguished in print.
_COLOURS = (PRIVATE, "#2e6f9e", "#66a182", "#edae49", "#7b5ea7", "#8c564b", "#222222")
_GAPS = ((5, 1.5), (1.2, 1.2), (6, 1.5, 1.2, 1.5), (3, 1), (8, 2))
_DASHES: tuple[Any, ...] = ("-", *((0, gaps) for gaps in _GAPS), ":")

Cells = tuple[Values, Values]


@validation.plain
def points_and_cells(
    rows: Mapping[str, Sequence[Values]],
    path: str | Path | None = None,
    *,
    cells: Mapping[str, Sequence[Cells]] | None = None,
    columns: Sequence[str] | None = None,
    box: tuple[Values, Values] | None = None,
) -> Figure:
    """Draw true and synthetic points side by side, with the tree's leaves over them (PHDStream Figures 6 to 9).

    Parameters
    ----------
    rows : mapping of str to sequence of array-like[n, 2]
        One row of plots for each name, one plot for each time; of more than 50,000 points every k-th.
    path : str or Path, optional
        Output file; its suffix chooses the format.
    cells : mapping of str to sequence of (lower, upper), optional
        For some rows, corners float64[m, 2] of cells at each time.
    columns : sequence of str, optional
        Titles of the times.
    box : two array-like[2], optional
        The rectangle to show; by default the smallest.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ParameterError
        If rows are empty or differ in length, or cells are of no row.
    ImportError
        Without matplotlib.
    """
    clouds = {
        name: [as_points(points, f"points of row {k}", 2) for points in _row("rows", row)]
        for k, (name, row) in enumerate(rows.items())
    }
    grids = {
        name: [as_boxes(*validation.pair("cells", pair), 2, finite=True) for pair in _row("cells", row)]
        for name, row in (cells or {}).items()
    }
    width = len(next(iter(clouds.values()), []))
    sizes = [len(row) for row in clouds.values()]
    if width == 0 or set(sizes) != {width}:
        raise ParameterError(f"rows have {sizes} pictures: expected the same number in each, at least one")
    for k, (name, grid) in enumerate(grids.items()):
        if name not in clouds or len(grid) != width:
            raise ParameterError(f"cells[{k}], {len(grid)} times: expected a row's name and {width} times")
    if columns is not None and len(_row("columns", columns)) != width:
        raise ParameterError(f"columns has {len(columns)} titles: expected {width}")
    parts = [points for clouds_of_row in clouds.values() for points in clouds_of_row]
    parts += [corner for grids_of_row in grids.values() for pair in grids_of_row for corner in pair]
    low, high = _frame(parts)
    if box is not None:
        low, high = as_box("box", box)

    aspect = float(np.clip((high[1] - low[1]) / (high[0] - low[0]), 0.3, 3.0))
    figure = new_figure((PANEL * width + 0.4, PANEL * aspect * len(clouds) + 0.5))
    axes = figure.subplots(len(clouds), width, squeeze=False, sharex=True, sharey=True)
    for i, (name, row) in enumerate(clouds.items()):
        for j, points in enumerate(row):
            ax = axes[i, j]
            shown = points[:: max(1, -(-len(points) // MAX_DRAWN))]
            size = float(np.clip(4000.0 / max(len(shown), 1), 0.15, 4.0))
            colour = TRUTH if i == 0 else PRIVATE
            ax.scatter(*shown.T, s=size, color=colour, alpha=0.6, linewidths=0, rasterized=True, zorder=2)
            if name in grids:
                _draw_cells(ax, *grids[name][j])
            ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])
            ax.set_aspect((high[0] - low[0]) / (high[1] - low[1]) * aspect)
            if i == 0 and columns is not None:
                ax.set_title(columns[j], fontsize=10)
        axes[i, 0].set_ylabel(fill(name, int(CHARACTERS * PANEL * aspect)), fontsize=10)
    return finish(figure, path)


@validation.plain
def errors_over_time(
    times: Values,
    errors: Mapping[str, Values],
    path: str | Path | None = None,
    *,
    title: str = "",
    x_label: str = "batch",
    y_label: str = "average relative error",
    logarithmic: bool = False,
) -> Figure:
    """Draw the error of each method over time (PHDStream Figures 1 and 10 to 19).

    Parameters
    ----------
    times : array-like[T]
        The x axis.
    errors : mapping of str to array-like[T] or array-like[runs, T]
        One to seven methods; of several runs the mean, with a band from minimum to maximum.
    path : str or Path, optional
        Output file; its suffix chooses the format.
    title, x_label, y_label : str
        Texts.
    logarithmic : bool
        True for a logarithmic y axis.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ParameterError, ImportError
        If lengths differ, or there are too many methods; without matplotlib.
    """
    moments = as_reals(times, "times")
    table = {name: np.atleast_2d(as_reals(values, f"errors[{k}]")) for k, (name, values) in enumerate(errors.items())}
    if not 1 <= len(table) <= len(_COLOURS):
        raise ParameterError(f"errors of {len(table)} methods: expected 1 to {len(_COLOURS)}")
    for k, runs in enumerate(table.values()):
        if (
            moments.ndim != 1
            or not moments.size
            or runs.ndim != 2
            or runs.shape[1:] != moments.shape
            or not len(runs)
        ):
            raise ParameterError(f"errors[{k}] has shape {runs.shape}, times {moments.shape}: expected [T] both")
    figure = new_figure((7.5, 4.5))
    ax = figure.subplots()
    for (name, runs), colour, dash in zip(table.items(), _COLOURS, _DASHES, strict=False):
        if len(runs) > 1:
            ax.fill_between(moments, runs.min(axis=0), runs.max(axis=0), color=colour, alpha=0.15, linewidth=0)
        ax.plot(moments, runs.mean(axis=0), color=colour, linestyle=dash, linewidth=1.6, label=name)
    if logarithmic:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0.0)
    ax.set_xlim(moments.min(), moments.max() if moments.size > 1 else moments.min() + 1.0)
    ax.set(xlabel=x_label, ylabel=y_label)
    if title:
        ax.set_title(title, loc="left", fontsize=11)
    tidy(ax)
    ax.legend(frameon=False, fontsize=9)
    return finish(figure, path)


@validation.plain
def counters_compared(
    truth: Values,
    counts: Mapping[str, Values],
    path: str | Path | None = None,
    *,
    title: str = "",
) -> Figure:
    """Draw the mean absolute error of counters over time (PHDStream Figure 2), as :func:`errors_over_time`.

    `truth`, [T]: true counts after each activation; `counts`: released ones by counter, [runs, T].
    """
    exact = as_reals(truth, "truth")
    errors: dict[str, Floats] = {}
    for k, (name, said) in enumerate(counts.items()):
        table = np.atleast_2d(as_reals(said, f"counts[{k}]"))
        if exact.ndim != 1 or table.ndim != 2 or table.shape[1:] != exact.shape or not len(table):
            raise ParameterError(f"counts[{k}] has shape {table.shape}: expected [runs, {exact.size}]")
        errors[name] = np.abs(table - exact).mean(axis=0)
    return errors_over_time(
        np.arange(1, exact.size + 1), errors, path, title=title, x_label="activation", y_label="mean absolute error"
    )


def _row(name: str, row: Any) -> Any:
    if not isinstance(row, (list, tuple, np.ndarray)):
        raise ParameterError(f"{name} has a {type(row).__name__}: expected a list, an entry for each time")
    return row


def _frame(parts: Sequence[Floats]) -> Corners:
    """Corners of a rectangle around all points, with a margin of 1 %."""
    filled = [part for part in parts if len(part)] or [np.array([[0.0, 0.0], [1.0, 1.0]])]
    low = np.min([part.min(axis=0) for part in filled], axis=0)
    high = np.max([part.max(axis=0) for part in filled], axis=0)
    margin = np.where(high > low, 0.01 * (high - low), 0.5)
    return low - margin, high + margin


def _draw_cells(ax: Axes, lower: Floats, upper: Floats) -> None:
    from matplotlib.collections import LineCollection

    # Lower and left sides, and the other two where no neighbour draws them.
    x0, y0, x1, y1 = *lower.T, *upper.T
    sides = (x0, y0, x1, y0), (x0, y0, x0, y1), (x0, y1, x1, y1), (x1, y0, x1, y1)
    lines = np.unique(np.concatenate([np.stack(side, 1).reshape(-1, 2, 2) for side in sides]), axis=0)
    # Solid: where the sides of small and large cells coincide, dashes would fill each other's gaps.  Thin where there
    # are many, and under the points, which they would hide.
    thin = float(np.clip(4.0 / np.sqrt(max(len(lower), 1)), 0.12, 0.4))
    ax.add_collection(LineCollection(list(lines), colors="#555555", linewidths=thin, zorder=1))
