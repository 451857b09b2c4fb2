"""Figures, and pictures of estimates with intervals (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.kinds import Floats
from fastdp.validation import refusal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ESTIMATE, TRUTH, PRIVATE = "#33658a", "#222222", "#d1495b"
#: Points drawn at most; more look the same and make large files.
MAX_DRAWN = 50_000
#: Width of a picture in inches, and characters of its label in one.
PANEL, CHARACTERS = 2.9, 12
#: Lower and upper corners of boxes.
Boxes = tuple[Floats, Floats]


def band(
    ax: Axes,
    x: ArrayLike,
    estimate: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    revised: ArrayLike | None = None,
    label: str = "estimate",
) -> None:
    """Draw a line with its interval, and the revised line."""
    check_axes(ax)
    ax.fill_between(x, low, high, color=ESTIMATE, alpha=0.22, linewidth=0.0, label="interval")
    ax.plot(x, estimate, color=ESTIMATE, linewidth=0.9, alpha=0.85, label=label)
    if revised is not None:
        ax.plot(x, revised, color=PRIVATE, linewidth=1.5, label="revised")
    tidy(ax)


def tidy(ax: Axes) -> None:
    """Draw a faint grid, without top and right frame."""
    ax.grid(visible=True, color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def check_axes(*axes: object) -> None:
    """ParameterError unless all are axes of matplotlib."""
    for ax in axes:
        if not hasattr(ax, "fill_between"):
            raise ParameterError(f"ax is a {type(ax).__name__}: expected axes of matplotlib")


def new_figure(width: float, height: float) -> Figure:
    """Figure of this size in inches, without a window."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "plot needs matplotlib, which is not installed: pip install 'fastdp-streams[plot]'"
        ) from None
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_axes(rows: int = 1, height: float = 4.2) -> Any:
    """Axes of a new figure, one or `rows`."""
    return new_figure(9.0, height).subplots(rows, 1, sharex=True)


def save(figure: Any, path: str | Path) -> None:
    """Write the figure; ParameterError for another suffix."""
    figure.savefig(_check_suffix(figure, path))


def check_picture(path: str | Path) -> None:
    """Raise the errors of :func:`save` and :func:`new_figure` before any work."""
    _check_suffix(new_figure(9.0, 4.2), path)


def _check_suffix(figure: Figure, path: str | Path) -> str:
    kinds, text = figure.canvas.get_supported_filetypes(), validation.path("path", path)
    if Path(text).suffix.lower().lstrip(".") not in kinds:
        raise refusal("path", text, f"a suffix among {', '.join(sorted(kinds))}")
    return text


def draw_points(
    rows: Mapping[str, Sequence[Floats]],
    cells: Mapping[str, Sequence[Boxes]],
    columns: Sequence[str],
    box: tuple[ArrayLike, ArrayLike],
) -> Figure:
    """Draw points and cells, a panel for each time (PHDStream Figures 6 to 9)."""
    low, high = (np.asarray(corner, float) for corner in box)
    aspect = float(np.clip((high[1] - low[1]) / (high[0] - low[0]), 0.3, 3.0))
    figure = new_figure(PANEL * len(columns) + 0.4, PANEL * aspect * len(rows) + 0.5)
    axes = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey=True)
    for i, (name, row) in enumerate(rows.items()):
        for ax, points, grid in zip(axes[i], row, cells[name], strict=True):
            shown = points[:: max(1, -(-len(points) // MAX_DRAWN))]
            size = float(np.clip(4000.0 / max(len(shown), 1), 0.15, 4.0))
            colour = TRUTH if name == "true" else PRIVATE
            ax.scatter(*shown.T, s=size, color=colour, alpha=0.6, linewidths=0, rasterized=True, zorder=2)
            _draw_cells(ax, *grid)
            ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])
            ax.set_aspect((high[0] - low[0]) / (high[1] - low[1]) * aspect)
        axes[i, 0].set_ylabel(fill(name, int(CHARACTERS * PANEL * aspect)), fontsize=10)
    for ax, title in zip(axes[0], columns, strict=True):
        ax.set_title(title, fontsize=10)
    return figure


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
