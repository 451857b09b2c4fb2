"""Plots of streams (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fastdp import validation
from fastdp.data.column import as_reals
from fastdp.errors import ParameterError
from fastdp.kinds import Floats, Values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRUTH, PRIVATE = "#222222", "#d1495b"
#: Releases in the order of their lines; the last is drawn above the others.
RELEASES = ("#8d99ae", "#e9a23b", PRIVATE)


@validation.plain
def bin_means(values: Values, bins: int) -> Floats:
    """Means of ``bins`` consecutive ranges of nearly equal length: float64[min(bins, n)]."""
    array = as_reals(values, "values")
    bins = validation.integer("bins", bins, 1)
    if array.ndim != 1 or array.size == 0:
        raise ParameterError(f"values has shape {array.shape}: expected one row, not empty")
    edges = np.linspace(0, array.size, min(bins, array.size) + 1).astype(np.int64)
    means: Floats = np.add.reduceat(array, edges[:-1]) / np.diff(edges)
    return means


@validation.plain
def truth_and_releases(
    truth: Values,
    released: Mapping[str, Values],
    path: str | Path,
    *,
    bins: int = 120,
    span: tuple[float, float] | None = None,
    clock: bool = False,
    title: str = "",
    x_label: str = "position in the stream",
    y_label: str = "mean value",
) -> None:
    """Draw a stream and private releases of it over time, as in ToPS Figure 2.

    The plot shows true data: use it for evaluation and synthetic data, never in a release.

    Parameters
    ----------
    truth : float64[n]
        Published values of the stream, without the hold-out.
    released : dict of str to float64[n]
        One to three releases, by name.
    path : str or Path
        Output file; its suffix chooses the format.
    bins : int
        Points of each line, means of about n / bins values.
    span : (float, float), optional
        Values of the x axis at begin and end; by default 0 and n.
    clock : bool
        True for hours of the day on the x axis.
    title, x_label, y_label : str
        Texts.

    Raises
    ------
    ParameterError, ImportError
        If streams differ in length or are too many, or for another suffix; without matplotlib.
    """
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    exact = as_reals(truth, "truth")
    streams = {name: as_reals(values, f"released[{k}]") for k, (name, values) in enumerate(released.items())}
    if not 1 <= len(streams) <= len(RELEASES):
        raise ParameterError(f"released has {len(streams)} streams: expected 1 to {len(RELEASES)}")
    for k, values in enumerate(streams.values()):
        if values.shape != exact.shape:
            raise ParameterError(f"released[{k}] has shape {values.shape}: expected truth's, {exact.shape}")
    figure = new_figure((9.0, 5.4))
    exact_means = bin_means(exact, bins)
    low, high = (0.0, float(exact.size)) if span is None else validation.ends("span", span)
    centres = low + (high - low) * (np.arange(exact_means.size) + 0.5) / exact_means.size
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    upper.plot(centres, exact_means, color=TRUTH, linewidth=3.0, alpha=0.45, label="truth")
    lower.axhline(0.0, color=TRUTH, linewidth=0.8)
    bottom = 0.0
    for (name, values), colour in zip(streams.items(), RELEASES[-len(streams) :], strict=True):
        means = bin_means(values, bins)
        bottom = min(bottom, 1.05 * float(means.min()))
        upper.plot(centres, means, color=colour, linewidth=1.3, label=name)
        lower.plot(centres, means - exact_means, color=colour, linewidth=1.2)
    upper.set_ylim(bottom=bottom)
    upper.set_ylabel(y_label)
    upper.legend(frameon=False, loc="best")
    if title:
        upper.set_title(title, loc="left", fontsize=11)
    lower.set_ylabel("release\nminus truth")
    lower.set_xlabel(x_label)
    if clock:
        lower.xaxis.set_major_locator(MultipleLocator(4))
        lower.xaxis.set_major_formatter(FuncFormatter(_as_clock))
    for ax in (upper, lower):
        ax.set_xlim(low, high)
        tidy(ax)
    figure.align_ylabels()
    finish(figure, path)


def _as_clock(hour: float, _position: int | None = None) -> str:
    return f"{round(hour) % 24}:00"


def new_figure(size: tuple[float, float]) -> Figure:
    """Figure of `size` in inches, without a window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(ax: Axes) -> None:
    """Draw a faint grid, and hide the top and right frame."""
    ax.grid(visible=True, color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def finish(figure: Figure, path: str | Path | None) -> Figure:
    """`figure`, written to `path`, if any; ParameterError for another suffix."""
    if path is not None:
        kinds = figure.canvas.get_supported_filetypes()
        if Path(validation.path("path", path)).suffix.lower().lstrip(".") not in kinds:
            raise ParameterError(f"picture {path}: expected a suffix among {', '.join(sorted(kinds))}")
        figure.savefig(path)
    return figure
