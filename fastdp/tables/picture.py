"""Pictures of released windows: estimate, interval and revised line; needs matplotlib (``fastdp-streams[plot]``)."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from fastdp.errors import ParameterError
from fastdp.releases.bands import band, check_axes, new_axes, save
from fastdp.tables import cut
from fastdp.tables.answers import Answer, Answers
from fastdp.tables.calendar import zone_of
from fastdp.tables.revised import DAY, Integers
from fastdp.tables.sums import WindowSums

#: Up to so many keys are drawn one below the other; more are added up.
MAX_PANELS = 6
#: Points of a line; more windows are drawn as means of neighbours.
MAX_POINTS = 2000


def draw(sums: WindowSums, answers: Answers, path: Any, ax: Any) -> Any:
    """See :meth:`fastdp.tables.table.Table.plot`."""
    windows, keys = next(iter(sums.columns.values())).steps.shape
    if not windows:
        raise ParameterError("plot: the table holds no windows; expected at least one")
    if ax is not None:
        check_axes(*(np.ravel(ax) if isinstance(ax, (list, tuple, np.ndarray)) else [ax]))
    if not keys:
        return _without_keys(sums, path, ax)
    pooled = keys > (MAX_PANELS if ax is None else 1)
    panels = 1 if pooled else keys
    axes = np.atleast_1d(new_axes(panels, height=max(4.2, 0.8 + 1.9 * panels)) if ax is None else ax)
    group = _group(sums.edges)
    starts = np.arange(0, windows, group)
    stops = np.minimum(starts + group, windows)
    # A mean over windows is one already; sums are drawn as means of the windows that they cover.
    size = np.ones(starts.size) if sums.kind == "means" else (stops - starts).astype(np.float64)
    exact = _scaled(answers.exact(starts, stops, pooled=pooled), size)
    revised = _scaled(answers.revised(starts, stops, pooled=pooled), size)
    x = (sums.edges[starts] + (sums.edges[stops] - sums.edges[starts]) // 2).astype("datetime64[us]")
    names = [
        ", ".join(f"{name} = {key}" for name, key in zip(sums.keys, row, strict=True))
        for row in zip(*sums.keys.values(), strict=True)
    ]
    for k, each in enumerate(axes):
        lines = (exact.estimate, exact.low, exact.high, revised.estimate)
        estimate, low, high, smooth = (line[:, k] for line in lines)
        band(each, x, estimate, low, high, smooth)
        _limit(each, exact.estimate[:, k], exact.low[:, k], exact.high[:, k])
        title = f"all {keys:,} keys together" if pooled else names[k] if names else ""
        each.set_title(title, loc="left", fontsize=10)
    quantity = {"totals": "total", "counts": "count", "means": "mean"}[sums.kind]
    grouped = f", means of {group} windows" if group > 1 and sums.kind != "means" else ""
    label = f"{quantity}, windows of {sums.every}{grouped}"
    if panels == 1:
        axes[0].set_ylabel(label)
    else:
        axes[0].figure.supylabel(label, fontsize=10)
    axes[0].legend(frameon=False, loc="upper right", ncols=3, fontsize=8)
    _clock(axes[-1], sums)
    if path is not None:
        save(axes[0], path)
    return axes[0] if panels == 1 else axes


def _group(edges: Integers) -> int:
    """Windows to a point: one, else whole days or weeks where windows fit into them, whose patterns then even out."""
    needed = -(-(edges.size - 1) // MAX_POINTS)
    usual = int(np.median(np.diff(edges)))
    for period in (DAY, 7 * DAY):
        if 1 < needed <= period // usual and period % usual == 0:
            return period // usual
    return needed


def _scaled(answer: Answer, size: Any) -> Answer:
    parts = (answer.estimate, answer.std_error, answer.low, answer.high)
    return Answer(*(part / size[:, None] for part in parts))


def _limit(ax: Any, estimate: Any, low: Any, high: Any) -> None:
    """A few windows about which nothing is known must not flatten all others."""
    reach = np.quantile(high - low, 0.9)
    bottom, top = max(low.min(), estimate.min() - reach), min(high.max(), estimate.max() + reach) + 1e-9 * reach
    if bottom < top:
        ax.set_ylim(bottom, top)


def _without_keys(sums: WindowSums, path: Any, ax: Any) -> Any:
    """A picture that says so: the budget of a private choice of keys is spent, whatever it chose."""
    ax = new_axes() if ax is None else ax
    ax.text(0.5, 0.5, "no key was released", ha="center", va="center", transform=ax.transAxes)
    ax.set_xlabel(_caption(sums))
    if path is not None:
        save(ax, path)
    return ax


def _caption(sums: WindowSums) -> str:
    """Caption of the shares that were cut."""
    return "\n".join(text if name == "clip" else f"{name}: {text}" for name, text in cut.described(sums))


def _clock(ax: Any, sums: WindowSums) -> None:
    """Times as the zone's clock shows them, over what was cut."""
    dates: Any = importlib.import_module("matplotlib.dates")

    zone = zone_of(sums.time_zone)
    locator = dates.AutoDateLocator(tz=zone)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=zone))
    time = "time" if sums.time_zone is None else f"time ({sums.time_zone})"
    ax.set_xlabel(f"{time}\n{_caption(sums)}")
