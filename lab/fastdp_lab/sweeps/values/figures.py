"""Pictures of a sweep of values: errors and thresholds against epsilon, parts of the error, streams over time.

Source of the groups: ToPS Figures 2 (streams over time), 3 to 8 and 10 (error against epsilon).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp_lab.sweeps.drawing import (
    COLOURS,
    MARKERS,
    TRUTH,
    Table,
    errors_against_epsilon,
    grid,
    legend,
    log_axes,
    quartiles,
)
from fastdp_lab.sweeps.values.measure import PARTS

MAX_ROWS = 8
#: Column, label, colour and width of the lines of a stream.
_LINES = (("truth", "truth", TRUTH, 2.6), ("answer", "private release", COLOURS[0], 1.2))


def draw(table: Table, metrics: Sequence[str], group: str) -> list[tuple[str, Any]]:
    """Names and figures; see :meth:`fastdp_lab.sweeps.study.Study.draw`."""
    drawn: list[tuple[str, Any]] = []
    for workload in table.names("workload"):
        rows = table["workload"] == workload
        label = "" if workload == "random_ranges" else f"_{workload}"
        grouped = rows & (table["group"] == group)
        if grouped.any():
            drawn += [(f"{name}{label}", errors_against_epsilon(table, grouped, name)) for name in metrics]
            if f"{PARTS[0]}_mse" in table:
                drawn.append((f"parts{label}", _parts(table, grouped)))
        elif not (rows & (table["group"] == "all")).any():
            drawn.append((f"stream{label}", _streams(table, rows)))
    if drawn and np.isfinite(table["threshold"]).any():
        first = table["workload"] == table["workload"][0]
        first &= table["group"] == table["group"][0]
        drawn.append(("threshold", errors_against_epsilon(table, first, "threshold")))
    return drawn


def _parts(table: Table, rows: NDArray[np.bool_]) -> Any:
    """Root mean squares of noise, truncation and smoothing: a row of panels for each mechanism."""
    data_sets = table.names("dataset", rows)
    known = rows & np.isfinite(table[f"{PARTS[0]}_mse"])
    mechanisms = [name for name in table.names("mechanism", known) if not table.is_base(name)][:MAX_ROWS]
    figure, axes = grid(max(len(mechanisms), 1), len(data_sets), f"{table.manifest['name']}: parts of the error")
    handles: dict[str, Any] = {}
    for line, name in zip(axes, mechanisms, strict=False):
        for ax, data_set in zip(line, data_sets, strict=True):
            which = rows & (table["dataset"] == data_set) & (table["mechanism"] == name)
            for k, part in enumerate(PARTS):
                epsilons, spread = quartiles(table["epsilon"][which], np.sqrt(table[f"{part}_mse"][which]))
                if np.any(spread[1] > 0.0):
                    look = {"color": COLOURS[k], "marker": MARKERS[k], "markersize": 4.0, "linewidth": 1.3}
                    (handles[part],) = ax.plot(epsilons, spread[1], **look)
            log_axes(ax)
        line[0].set_ylabel(f"{name}\nroot mean square", fontsize=9)
    for top, bottom, data_set in zip(axes[0], axes[-1], data_sets, strict=True):
        top.set_title(table.title_of(data_set), fontsize=11)
        bottom.set_xlabel(r"$\epsilon$")
    legend(figure, handles)
    return figure


def _streams(table: Table, rows: NDArray[np.bool_]) -> Any:
    """Means of stretches over time, true and released, of the first repetition."""
    first = rows & (table["repetition"] == 0)
    data_sets = table.names("dataset", first)
    pairs = list(
        dict.fromkeys(zip(table["mechanism"][first].tolist(), table["epsilon"][first].tolist(), strict=True))
    )[: 2 * MAX_ROWS]
    # A column for each data set; one alone may take three.
    columns = len(data_sets) if len(data_sets) > 1 else min(3, len(pairs))
    count = len(pairs) if len(data_sets) > 1 else -(-len(pairs) // columns)
    figure, axes = grid(count, columns, f"{table.manifest['name']}: over time", width=4.6, height=2.2)
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
            for column_name, label, colour, wide in _LINES:
                means = table[column_name][which] / lengths
                (handles[label],) = ax.plot(middles / 1e3, means, color=colour, linewidth=wide, alpha=0.8)
            ax.set_title(rf"{table.title_of(data_set)}: {name}, $\epsilon$ = {epsilon:g}", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("position in the stream, thousands", fontsize=9)
    for ax in axes[:, 0]:
        ax.set_ylabel("mean value", fontsize=9)
    figure.align_ylabels()
    legend(figure, handles)
    return figure


def _published(manifest: dict[str, Any], data_set: str) -> int:
    holdout = next(each["holdout"] for each in manifest["specification"]["datasets"] if each["name"] == data_set)
    return int(manifest["data"][data_set]["values"]) - int(holdout)
