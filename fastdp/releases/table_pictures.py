"""Pictures of a table's windows: estimate, interval, revised line (extra ``plot``)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fastdp.errors import ParameterError
from fastdp.kinds import Floats, Integers
from fastdp.releases.pictures import ESTIMATE, band, check_axes, new_axes, save
from fastdp.units import zone_of
from fastdp.validation import DAY

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: A table's release, its answers and a statistic, of :mod:`fastdp.tables`, which is above this folder.
Windows: TypeAlias = Any
Answers: TypeAlias = Any
Statistic: TypeAlias = Any
#: Up to so many keys are drawn one below the other; more are added up.
MAX_PANELS = 6
#: Points of a line; more windows are drawn as means of neighbours.
MAX_POINTS = 2000
#: Colour of windows that the table covers in part.
PARTIAL = "#00000014"


def draw_table(sums: Windows, answers: Answers, depth: int, caption: str, path: str | Path | None, ax: Any) -> Any:
    """Draw windows and nodes of a depth: see :meth:`fastdp.tables.table.Table.plot`."""
    statistics, windows, keys = sums.statistics, sums.edges.size - 1, sums.sizes[depth]
    if not windows:
        raise ParameterError("plot: the table holds no windows; expected at least one")
    given = None
    if ax is not None:
        several = ax.ravel() if isinstance(ax, np.ndarray) else ax
        given = list(several) if isinstance(several, (np.ndarray, list, tuple)) else [ax]
        check_axes(*given)
    if not keys:
        return _without_keys(caption, path, ax)
    one = len(statistics) == 1
    pooled = keys > (MAX_PANELS if given is None and one else 1)
    # A panel for each key of one statistic, or for each statistic.
    panels = [(each, k) for each in statistics for k in range(keys if one and not pooled else 1)]
    axes = np.atleast_1d(new_axes(len(panels), height=max(4.2, 1.2 + 1.9 * len(panels)))) if given is None else given
    if len(axes) < len(panels):
        raise ParameterError(f"ax: {len(axes)} axes: expected {len(panels)}, one a statistic or key")
    names = [", ".join(map(str, row)) for row in zip(*sums.nodes[depth].values(), strict=True)]
    of = ", ".join(sums.nodes[depth])
    for each, (statistic, k) in zip(axes, panels, strict=False):
        # An entry may be in several keys and windows: distinct ones are drawn of the first key, window by window.
        pools = statistic.has_level(0)
        group = _group(sums.edges) if pools else 1
        _panel(each, sums, answers, statistic, (k, group, 0 if pooled and pools else depth))
        which = [] if one else [statistic.name]
        if keys > 1 or names:
            which.append(f"all {keys:,} keys of {of}" if pooled and pools else f"{of} = {names[k]}")
        each.set_title(", ".join(which), loc="left", fontsize=9)
        each.set_ylabel(_label(sums, statistic, group), fontsize=9 if len(panels) < 3 else 7)
    axes[0].legend(frameon=False, loc="upper right", ncols=4, fontsize=8)
    if given is None:
        axes[0].figure.suptitle(_title(sums), x=0.01, ha="left", fontsize=9)
    _draw_time_axis(axes[len(panels) - 1], sums, caption)
    if path is not None:
        save(axes[0].figure, path)
    return axes[0] if len(panels) == 1 else axes


def _panel(ax: Axes, sums: Windows, answers: Answers, statistic: Statistic, shown: tuple[int, int, int]) -> None:
    k, group, depth = shown
    windows = sums.edges.size - 1
    starts = np.arange(0, windows, group)
    stops = np.minimum(starts + group, windows)
    # A mean over windows is one already; sums are drawn as means of the windows that they cover.
    size = (stops - starts).astype(np.float64)[:, None] if statistic.adds_up else 1.0
    exact, revised = (answers.about(statistic, starts, stops, revised=which, depth=depth) for which in (False, True))
    lines = ((line / size)[:, k] for line in (exact.estimate, exact.low, exact.high, revised.estimate))
    estimate, low, high, smooth = lines
    x = (sums.edges[starts] + (sums.edges[stops] - sums.edges[starts]) // 2).astype("datetime64[us]")
    if starts.size == 1:
        ax.errorbar([0], estimate, [estimate - low, high - estimate], fmt="o", color=ESTIMATE, label="estimate")
        ax.set_xticks([])
    else:
        band(ax, x, estimate, low, high, smooth)
    _limit(ax, estimate, low, high, from_zero=statistic.from_zero)
    edges = sums.edges.astype("datetime64[us]")
    if sums.every is not None and starts.size > 1:
        ends = {"first": (edges[0], edges[1]), "last": (edges[-2], edges[-1])}
        for number, end in enumerate(sums.taken):
            # The table begins and ends within these windows, so their sums are of a part of them.
            ax.axvspan(*ends[end], color=PARTIAL, linewidth=0.0, label="" if number else "cut by the table")


def _label(sums: Windows, statistic: Statistic, group: int) -> str:
    quantity = statistic.axis or statistic.kind
    if sums.every is None:
        return f"{quantity}, all rows"
    grouped = f", means of {group} windows" if group > 1 and statistic.adds_up else ""
    return f"{quantity}, windows of {sums.every}{grouped}"


def _title(sums: Windows) -> str:
    guarantee = sums.guarantee
    delta = f", delta = {guarantee.delta:g}" if guarantee.delta else ""
    return f"epsilon = {guarantee.epsilon:g}{delta} for {guarantee.unit}"


def _group(edges: Integers) -> int:
    needed = -(-(edges.size - 1) // MAX_POINTS)
    usual = int(np.median(np.diff(edges)))
    for period in (DAY, 7 * DAY):
        if 1 < needed <= period // usual and period % usual == 0:
            return period // usual
    return needed


def _limit(ax: Axes, estimate: Floats, low: Floats, high: Floats, *, from_zero: bool) -> None:
    shown = np.isfinite(estimate)
    if not shown.any():
        return
    known = np.isfinite(high - low)
    reach = np.quantile((high - low)[known], 0.9) if known.any() else float(np.ptp(estimate[shown]))
    least, most = estimate[shown].min() - reach, estimate[shown].max() + reach
    bottom, top = np.fmax(np.fmin.reduce(low), least), np.fmin(np.fmax.reduce(high), most) + 1e-9 * reach
    bottom, top = (min(bottom, 0.0), max(top, 0.0)) if from_zero else (bottom, top)
    if bottom < top:
        ax.set_ylim(bottom, top + 0.03 * (top - bottom))


def _without_keys(caption: str, path: str | Path | None, ax: Axes | None) -> Axes:
    ax = new_axes() if ax is None else ax
    ax.text(0.5, 0.5, "no key was released", ha="center", va="center", transform=ax.transAxes)
    ax.set_xlabel(caption)
    if path is not None:
        save(ax.figure, path)
    return ax


def _draw_time_axis(ax: Axes, sums: Windows, caption: str) -> None:
    if sums.every is None or sums.edges.size == 2:
        ax.set_xlabel(caption, fontsize=8)
        return
    dates = importlib.import_module("matplotlib.dates")
    zone = zone_of(sums.time_zone)
    locator = dates.AutoDateLocator(tz=zone)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=zone))
    time = "time" if sums.time_zone is None else f"time ({sums.time_zone})"
    ax.set_xlabel(f"{time}\n{caption}", fontsize=8)
