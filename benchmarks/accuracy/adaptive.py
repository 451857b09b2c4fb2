"""Every stream, budget, plan and class of query lengths: one sweep, one table.

Real streams are used where their files are; synthetic ones (the quantiles and means of ToPS Table 1 in four orders,
and streams that outgrow their hold-out) always.  A short stream is extended by its reverse.  Every cell has seeds of
its own.  The sweep can be interrupted; the same command resumes it.
"""

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from benchmarks import shared
from benchmarks.accuracy import plans, streams
from benchmarks.accuracy.streams import REAL, REPORTING, TUNING, half
from benchmarks.shared import DATA, Data, geometric, table
from fastdp.errors import AccuracyWarning
from fastdp_lab import sweeps

TOPS = "ToPS, scale-free theta"
PAPER = "ToPS, paper"
ADAPTIVE = "Adaptive, looking back"
ONLINE = "Adaptive, as published"
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


def spread(frame: Any) -> float:
    """Upper over lower quartile of the MSE over repetitions, the median over cells."""
    every = frame[frame["group"] == "all"]
    by_cell = every.groupby(["dataset", "epsilon", "workload", "mechanism"], observed=True)["mse"]
    return float((by_cell.quantile(0.75) / by_cell.quantile(0.25)).median())


def show(frame: Any, classes: Sequence[str]) -> None:
    """Print all tables."""
    mse = errors(frame)
    plans = [name for name in mse.columns if name.startswith(PLANS)]
    gain = mse[[TOPS]].to_numpy() / mse[[ADAPTIVE, ONLINE, *plans]]
    order = list(reversed(classes))
    by_class = gain.unstack("workload").map("{:.3g}".format)
    rows = [
        [f"{dataset}, {epsilon:g}", *(" / ".join(row[name][order]) for name in gain.columns)]
        for (dataset, epsilon), row in by_class.iterrows()
    ]
    title = f"MSE of {TOPS}, divided by that of other plans; ranges up to {' / '.join(order)}"
    table(title, ["stream, epsilon", *gain.columns], rows)
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
        for mine in (ADAPTIVE, ONLINE) if which.any() else ():
            rows += _summary(title, mine, gain[which], plans, order)
    columns = [
        *("streams", "", "ranges up to", "ToPS / Adaptive", "target", "least", "of the best plan for the class"),
        *(f"cells of {OF_BEST:g} and more", "of the best single plan", f"cells of {OF_BEST:g} and more"),
    ]
    title = (
        f"MSE ratios, geometric means over streams and budgets; {int(frame['repetition'].nunique())} seeds of each "
    )
    table(f"{title}cell's own, quartiles of MSE over them {spread(frame):.2f} apart", columns, rows)
    own = (mse[PAPER] / mse[ADAPTIVE]).rename("ratio").reset_index()
    _by_class(
        own, "dataset", order, "MSE of the paper's ToPS (c = 60) / Adaptive: geometric mean over budgets (least)"
    )
    every = (mse.div(mse[ADAPTIVE], axis=0)).melt(ignore_index=False, value_name="ratio").reset_index()
    title = f"Every mechanism: MSE / MSE of {ADAPTIVE}, geometric mean over all streams and budgets (least)"
    _by_class(every, "mechanism", order, title)


def _by_class(frame: Any, key: str, order: Sequence[str], title: str) -> None:
    """A row for each entry of a column, a column a class: geometric mean of the ratios (least)."""
    found = frame.groupby([key, "workload"], sort=False, observed=True)["ratio"]
    cells = found.agg(lambda each: f"{geometric(each):.3g} ({each.min():.2g})").unstack()[list(order)]
    table(title, [key, *(f"up to {name}" for name in order)], cells.reset_index().to_numpy().tolist())


def _summary(title: str, mine: str, gain: Any, plans: Sequence[str], order: Sequence[str]) -> list[list[object]]:
    """Adaptive against ToPS, the best plan of each cell in hindsight, and the best single plan for all classes."""
    logs = np.log(gain[[mine, *plans]]).groupby(level=["dataset", "epsilon"], sort=False).mean()
    of_single = np.exp(logs[mine] - logs[list(plans)].max(axis=1))
    rows = []
    for name in order:
        part = gain[gain.index.get_level_values("workload") == name]
        of_best, first = part[mine] / part[list(plans)].max(axis=1), name == order[0]
        ratios = [[geometric(each), f"{(each >= OF_BEST).mean():.0%}"] for each in (of_best, of_single)]
        own = [geometric(part[mine]), TARGETS[mine][name], part[mine].min(), *ratios[0]]
        rows.append([*((title, mine) if first else ("", "")), name, *own, *(ratios[1] if first else ("", ""))])
    return rows


EPSILONS = (0.01, 0.05, 0.1, 0.5, 1.0)
#: Longest query of each class.
CLASSES = {"1e3": 1000, "1e4": 10_000, "1e5": 100_000, "2^20": shared.MAX_RANGE}
FLAT = (256, 1024, 4096, 16_384, 65_536)
QUERIES = 400


def mechanisms() -> list[dict[str, Any]]:
    """Tables of a specification: ToPS first, Adaptive, and the plans in its way."""
    tops = {"system": "publisher", "perturber": {"part": "Hierarchy"}, "smoother": {"part": "Recent"}}
    return [
        {"name": TOPS, "threshold": {"part": "ScaleFree"}, **tops},
        {"name": PAPER, "system": "tops"},
        {"name": ADAPTIVE, "system": "adaptive"},
        {"name": ONLINE, "system": "as_published"},
        *({"name": f"flat {length:,}", "system": "flat_blocks", "length": length} for length in FLAT),
        {"name": "shrunken ToPS", "system": "shrunken_tree"},
        {"name": "hold-out mean", "system": "holdout_mean"},
    ]


def run(
    *,
    output: Annotated[Path | None, "folder of results; by default a temporary one"] = None,
    repetitions: Annotated[int, "seeds of each cell"] = 12,
    workers: int = 2,
    quick: Annotated[bool, "three streams, two budgets, three repetitions"] = False,
    real: Annotated[bool, "real streams alone"] = False,
    data: Data = DATA,
) -> None:
    """Run the sweep, print tables."""
    # Some hold-outs are short on purpose.
    warnings.simplefilter("ignore", AccuracyWarning)
    plans.register()
    streams.register(data)
    asked = {"kind": "random_ranges", "count": QUERIES}
    table = {
        "name": "accuracy",
        "seed": 1,
        "repetitions": 3 if quick else repetitions,
        "epsilons": list(EPSILONS[1:3] if quick else EPSILONS),
        "metrics": ["mse"],
        "datasets": streams.data_sets(data, quick, real=real),
        "mechanisms": mechanisms(),
        "workloads": [{"name": name, "max_range": longest, **asked} for name, longest in CLASSES.items()],
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder = output or Path(scratch)
        sweeps.run(sweeps.from_table(table), folder, data=data, workers=workers, progress=True)
        show(sweeps.load(folder), tuple(CLASSES))
