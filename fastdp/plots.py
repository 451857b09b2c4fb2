"""Pictures of points (extra ``plot``), which may show true data: for evaluation, never in a release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.kinds import Floats, Values
from fastdp.releases.pictures import PRIVATE, TRUTH, new_figure, save
from fastdp.spatial.domains import Corners, as_box, as_boxes, as_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Points drawn at most; more look the same and make large files.
MAX_DRAWN = 50_000
#: Width of a picture in inches, and characters of its label in one.
PANEL, CHARACTERS = 2.9, 12
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
    figure = new_figure(PANEL * width + 0.4, PANEL * aspect * len(clouds) + 0.5)
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
    if path is not None:
        save(figure, path)
    return figure


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
