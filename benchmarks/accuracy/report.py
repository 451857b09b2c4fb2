"""Tables and the picture of the accuracy benchmark, from its results alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.streams import ORDERS
from benchmarks.shared import table

TOPS = "ToPS, scale-free theta"
PAPER = "ToPS, paper"
ADAPTIVE = "Adaptive, looking back"
ONLINE = "Adaptive, as published"
#: What the issue asks: ToPS / Adaptive in the geometric mean at small epsilon, by class; and shares of the best plan.
TARGETS = {"2^20": 3.0, "1e5": 15.0, "1e4": 80.0}
SMALL_EPSILON = 0.05
OF_BEST, OF_TOPS = 0.8, 0.9


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


def show(frame: Any, classes: Sequence[str], picture: Path | None) -> None:
    """Print all tables; draw if there is a place for it."""
    mse = errors(frame)
    plans = [name for name in mse.columns if name not in (TOPS, PAPER, ADAPTIVE, ONLINE)]
    gain = mse[[TOPS]].to_numpy() / mse[[ADAPTIVE, ONLINE, *plans]]
    best = gain[plans].max(axis=1)
    _ratios(gain, classes)
    synthetic = gain.index.get_level_values("dataset").str.endswith(ORDERS)
    for title, which in (("real streams", ~synthetic), ("synthetic streams", synthetic)):
        if which.any():
            _summary(f"Summary over {title} and budgets", gain[which], best[which], classes)
    _own(mse, classes)
    _parts(frame, classes)
    if picture is not None:
        _draw(gain, plans, classes, picture)


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


def _summary(title: str, gain: Any, best: Any, classes: Sequence[str]) -> None:
    """Adaptive against ToPS, and against the best fixed plan of each cell in hindsight."""
    rows = []
    small = gain.index.get_level_values("epsilon") <= SMALL_EPSILON
    for name in reversed(classes):
        here = gain.index.get_level_values("workload") == name
        mine, of_best = gain.loc[here, ADAPTIVE], gain.loc[here, ADAPTIVE] / best[here]
        rows.append(
            [
                name,
                f"{geometric(gain.loc[here & small, ADAPTIVE]):.3g}",
                f"{TARGETS[name]:g}" if name in TARGETS else "",
                f"{geometric(mine):.3g}",
                f"{mine.min():.3g}",
                f"{geometric(of_best):.2f}",
                f"{100 * (of_best >= OF_BEST).mean():.0f} %",
                f"{of_best.min():.2f}",
                f"{geometric(gain.loc[here, ONLINE]):.3g}",
                f"{gain.loc[here, ONLINE].min():.2g}",
            ]
        )
    columns = [
        *("ranges up to", f"ToPS / Adaptive, eps <= {SMALL_EPSILON:g}", "target", "all eps", f"least ({OF_TOPS:g})"),
        *("of the best fixed plan, geometric", f"cells of {OF_BEST:g} and more", "least"),
        *("ToPS / Adaptive as published", "least"),
    ]
    table(title, columns, rows)


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


def _draw(gain: Any, plans: Sequence[str], classes: Sequence[str], picture: Path) -> None:
    """Ratios by class, a point a cell: Adaptive against the best fixed plan in hindsight."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(1, len(classes), figsize=(3.2 * len(classes), 3.6), layout="constrained")
    budgets = sorted(set(gain.index.get_level_values("epsilon")))
    colours = pyplot.get_cmap("viridis")(np.linspace(0.0, 0.9, len(budgets)))
    for axis, name in zip(axes, reversed(classes), strict=True):
        here = gain[gain.index.get_level_values("workload") == name]
        best = here[list(plans)].max(axis=1)
        for colour, epsilon in zip(colours, budgets, strict=True):
            cells = here.index.get_level_values("epsilon") == epsilon
            axis.scatter(best[cells], here.loc[cells, ADAPTIVE], 14, color=colour, label=f"epsilon {epsilon:g}")
        ends = [0.8 * min(best.min(), here[ADAPTIVE].min()), 1.25 * max(best.max(), here[ADAPTIVE].max())]
        axis.plot(ends, ends, color="0.4", linewidth=0.8)
        axis.plot(ends, [OF_BEST * end for end in ends], color="0.4", linewidth=0.8, linestyle=":")
        axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends, title=f"ranges up to {name}")
        axis.set_aspect("equal")
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_locator(ticker.LogLocator(subs=(1.0, 3.0), numticks=6))
            side.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
            side.set_minor_locator(ticker.NullLocator())
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("ToPS / Adaptive (looking back)")
    figure.supxlabel("MSE of ToPS / best fixed plan in hindsight (dotted: 0.8 of it)", fontsize=10)
    axes[0].legend(fontsize=7)
    figure.savefig(picture, dpi=130)
    pyplot.close(figure)
    print(f"picture: {picture}")
