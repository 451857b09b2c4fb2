"""Tables and the picture of the accuracy benchmark, from its results alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.streams import REAL, REPORTING, TUNING, half
from benchmarks.shared import table

TOPS = "ToPS, scale-free theta"
PAPER = "ToPS, paper"
ADAPTIVE = "Adaptive, looking back"
ONLINE = "Adaptive, as published"
#: Names of mechanisms whose epsilon is for any W consecutive values end so.
W = 40
WINDOW = f", w = {W}"
#: Plans among which the best of a cell, and the best for all classes, are looked for.
PLANS = ("flat ", "shrunken ", "hold-out ")
#: What the design asks: ToPS / Adaptive in the geometric mean over real streams, by class; share of the best plan.
TARGETS = {
    ADAPTIVE: {"2^20": 3.0, "1e5": 8.0, "1e4": 25.0, "1e3": 70.0},
    ONLINE: {"2^20": 2.2, "1e5": 4.0, "1e4": 10.0, "1e3": 30.0},
}
OF_BEST = 0.8


def errors(frame: Any) -> Any:
    """Median MSE over repetitions: rows (dataset, epsilon, workload), a column a mechanism."""
    failed = frame["error"].notna() & (frame["error"] != "")
    if failed.any():
        raise SystemExit(f"{int(failed.sum())} cells failed, the first with: {frame.loc[failed, 'error'].iloc[0]}")
    every = frame[frame["group"] == "all"]
    keys = ["dataset", "epsilon", "workload"]
    return every.pivot_table(
        index=keys, columns="mechanism", values="mse", aggfunc="median", sort=False, observed=True
    )


def geometric(values: Any) -> float:
    """Geometric mean."""
    return float(np.exp(np.log(np.asarray(values, float)).mean()))


def spread(frame: Any) -> float:
    """Upper over lower quartile of the MSE over repetitions, the median over cells."""
    every = frame[frame["group"] == "all"]
    by_cell = every.groupby(["dataset", "epsilon", "workload", "mechanism"], observed=True)["mse"]
    return float((by_cell.quantile(0.75) / by_cell.quantile(0.25)).median())


def show(frame: Any, classes: Sequence[str], picture: Path | None) -> None:
    """Print all tables; draw if there is a place for it."""
    mse = errors(frame)
    plans = [name for name in mse.columns if name.startswith(PLANS) and not name.endswith(WINDOW)]
    gain = mse[[TOPS]].to_numpy() / mse[[ADAPTIVE, ONLINE, *plans]]
    _ratios(gain, classes)
    names = gain.index.get_level_values("dataset")
    real, first = names.isin(REAL), np.array([half(name) == TUNING for name in names])
    for word, which in ((TUNING, first), (REPORTING, ~first)):
        streams = ", ".join(sorted(set(names[which])))
        print(f"{word} half (parity of the first byte of SHA-256 of the name): {streams}")
    rows = []
    for title, which in (
        ("real, reporting half", real & ~first),
        ("real, tuning half", real & first),
        ("real, all", real),
        ("synthetic, reporting half", ~real & ~first),
        ("synthetic, tuning half", ~real & first),
    ):
        for mine in (ADAPTIVE, ONLINE):
            if which.any():
                rows += _summary(title, mine, gain[which], plans, classes)
    columns = [
        *("streams", "", "ranges up to", "ToPS / Adaptive", "target", "least", "of the best plan for the class"),
        *(f"cells of {OF_BEST:g} and more", "of the best single plan", f"cells of {OF_BEST:g} and more"),
    ]
    table(
        f"MSE ratios, geometric means over streams and budgets; {int(frame['repetition'].nunique())} seeds of each "
        f"cell's own, quartiles of MSE over them {spread(frame):.2f} apart",
        columns,
        rows,
    )
    _own(mse, classes)
    _parts(frame, classes)
    every = beside(mse)
    _every(every, classes)
    if picture is not None:
        _draw(gain, every, plans, classes, picture)


def _ratios(gain: Any, classes: Sequence[str]) -> None:
    """Every cell: longest class first, as the design page writes them."""
    order = list(reversed(classes))
    rows = []
    for (dataset, epsilon), part in gain.groupby(level=["dataset", "epsilon"], sort=False):
        by_class = part.droplevel(["dataset", "epsilon"])
        cells = [" / ".join(f"{by_class.loc[name, plan]:.3g}" for name in order) for plan in gain.columns]
        rows.append([f"{dataset}, {epsilon:g}", *cells])
    title = f"MSE of {TOPS}, divided by that of other plans; ranges up to {' / '.join(order)}"
    table(title, ["stream, epsilon", *gain.columns], rows)


def _summary(title: str, mine: str, gain: Any, plans: Sequence[str], classes: Sequence[str]) -> list[list[str]]:
    """Adaptive against ToPS, the best plan of each cell in hindsight, and the best single plan for all classes."""
    workloads = gain.index.get_level_values("workload")
    own = np.log(gain[mine]).groupby(level=["dataset", "epsilon"], sort=False).mean()
    singles = np.log(gain[list(plans)]).groupby(level=["dataset", "epsilon"], sort=False).mean().max(axis=1)
    of_single = np.exp(own - singles)
    overall = f"{geometric(of_single):.2f}", f"{100 * (of_single >= OF_BEST).mean():.0f} %"
    rows = []
    for name in reversed(classes):
        part = gain[workloads == name]
        of_best = part[mine] / part[list(plans)].max(axis=1)
        first = name == classes[-1]
        rows.append(
            [
                *((title, mine) if first else ("", "")),
                *(name, f"{geometric(part[mine]):.3g}", f"{TARGETS[mine][name]:g}", f"{part[mine].min():.2g}"),
                *(f"{geometric(of_best):.2f}", f"{100 * (of_best >= OF_BEST).mean():.0f} %"),
                *(overall if first else ("", "")),
            ]
        )
    return rows


def beside(mse: Any) -> Any:
    """MSE over that of Adaptive's revised answers, whose epsilon has the same unit."""
    windows = mse.columns.str.endswith(WINDOW)
    return mse / np.where(windows, mse[[ADAPTIVE + WINDOW]], mse[[ADAPTIVE]])


def unit(mechanism: str) -> str:
    """What epsilon is for."""
    return f"any {W} consecutive values" if mechanism.endswith(WINDOW) else "one value"


def _every(ratios: Any, classes: Sequence[str]) -> None:
    """A row a mechanism, grouped by the unit of privacy."""
    workloads = ratios.index.get_level_values("workload")
    rows = []
    for name in sorted(ratios.columns, key=lambda name: name.endswith(WINDOW)):
        parts = [ratios.loc[workloads == each, name] for each in reversed(classes)]
        rows.append([name, unit(name), *(f"{geometric(part):.3g} ({part.min():.2g})" for part in parts)])
    title = (
        f"Every mechanism: MSE / MSE of {ADAPTIVE} under epsilon for the same unit, geometric mean over all streams "
        "and budgets (least); pure epsilon, theta chosen from the hold-out"
    )
    table(title, ["mechanism", "epsilon is for", *(f"up to {name}" for name in reversed(classes))], rows)


def _own(mse: Any, classes: Sequence[str]) -> None:
    """Adaptive against ToPS as the paper has it, with its own threshold."""
    own = mse[PAPER] / mse[ADAPTIVE]
    rows = []
    for dataset in own.index.get_level_values("dataset").unique():
        part = own[own.index.get_level_values("dataset") == dataset]
        cells = [part[part.index.get_level_values("workload") == name] for name in reversed(classes)]
        rows.append([dataset, *(f"{geometric(cell):.3g} ({cell.min():.3g})" for cell in cells)])
    title = "MSE of the paper's ToPS (c = 60) / Adaptive: geometric mean over budgets (least)"
    table(title, ["stream", *(f"up to {name}" for name in reversed(classes))], rows)


def _parts(frame: Any, classes: Sequence[str]) -> None:
    """Where the error comes from, as shares of the mean square."""
    names = ("noise", "truncation", "smoothing")
    rows = []
    for mechanism in (TOPS, ADAPTIVE):
        for name in reversed(classes):
            part = frame[(frame["mechanism"] == mechanism) & (frame["workload"] == name) & (frame["group"] == "all")]
            shares = [geometric_share(part, f"{which}_mse") for which in names]
            rows.append([mechanism, name, *(f"{share:.2f}" for share in shares)])
    title = "Parts of the error: median over cells of each part's mean square / the whole's (they are correlated)"
    table(title, ["mechanism", "ranges up to", *names], rows)


def geometric_share(part: Any, column: str) -> float:
    """Median share of a part."""
    return float((part[column] / part["mse"]).median())


def _draw(gain: Any, every: Any, plans: Sequence[str], classes: Sequence[str], picture: Path) -> None:
    """By class: Adaptive against the best fixed plan in hindsight, a point a cell; below, every mechanism."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot, ticker

    figure, rows = pyplot.subplots(
        2, len(classes), figsize=(3.2 * len(classes), 9.6), height_ratios=(3, 5), sharey="row", layout="constrained"
    )
    budgets = sorted(set(gain.index.get_level_values("epsilon")))
    colours = pyplot.get_cmap("viridis")(np.linspace(0.0, 0.9, len(budgets)))
    columns = sorted(every.columns, key=lambda name: name.endswith(WINDOW), reverse=True)
    best = gain[list(plans)].max(axis=1)
    ends = [0.8 * min(best.min(), gain[ADAPTIVE].min()), 1.25 * max(best.max(), gain[ADAPTIVE].max())]
    for axis, below, name in zip(*rows, reversed(classes), strict=True):
        here = gain.index.get_level_values("workload") == name
        for colour, epsilon in zip(colours, budgets, strict=True):
            cells = here & (gain.index.get_level_values("epsilon") == epsilon)
            axis.scatter(best[cells], gain.loc[cells, ADAPTIVE], 14, color=colour, label=f"epsilon {epsilon:g}")
        axis.plot(ends, ends, color="0.4", linewidth=0.8)
        axis.plot(ends, [OF_BEST * end for end in ends], color="0.4", linewidth=0.8, linestyle=":")
        axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends, title=f"ranges up to {name}")
        axis.set_aspect("equal")
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_locator(ticker.LogLocator(numticks=7))
            side.set_minor_locator(ticker.NullLocator())
        logs = np.log10(every.loc[every.index.get_level_values("workload") == name, columns])
        for place, column in enumerate(columns):
            colour = "tab:red" if column.endswith(WINDOW) else "tab:blue"
            low, middle, high = logs[column].quantile([0.1, 0.5, 0.9])
            below.plot([10**low, 10**high], [place, place], color=colour, alpha=0.4)
            below.plot(10**middle, place, "o", color=colour, markersize=4)
        below.axvline(1.0, color="0.4", linewidth=0.8)
        below.set(xscale="log")
        below.xaxis.set_major_locator(ticker.LogLocator(numticks=6))
        below.xaxis.set_minor_locator(ticker.NullLocator())
        axis.grid(alpha=0.3)
        below.grid(alpha=0.3)
    rows[0][0].set(ylabel="ToPS / Adaptive (looking back)")
    rows[0][1].set_xlabel("MSE of ToPS / best fixed plan in hindsight (dotted: 0.8 of it)", fontsize=10)
    rows[1][0].set_yticks(range(len(columns)), columns, fontsize=7)
    figure.supxlabel(
        "MSE / Adaptive (looking back) with epsilon for the same unit, median and 80 % of cells; "
        f"blue: epsilon is for one value, red: for any {W} consecutive values",
        fontsize=10,
    )
    rows[0][0].legend(fontsize=7)
    figure.savefig(picture, dpi=130)
    pyplot.close(figure)
    print(f"picture: {picture}")
