"""Figures, and pictures of estimates with intervals; need matplotlib (extra ``plot``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from fastdp import validation
from fastdp.errors import ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ESTIMATE, TRUTH, PRIVATE = "#33658a", "#222222", "#d1495b"


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
    """Draw a faint grid, and hide the top and right frame."""
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
    """`path` as text; ParameterError for another suffix."""
    kinds, text = figure.canvas.get_supported_filetypes(), validation.path("path", path)
    if Path(text).suffix.lower().lstrip(".") not in kinds:
        raise ParameterError(f"path = {text!r}: expected a suffix among {', '.join(sorted(kinds))}")
    return text
