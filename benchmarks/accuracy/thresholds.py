"""Ways to choose theta under one hierarchy (ToPS section 5.4, Figures 6 and 7), beside the published code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from benchmarks import shared
from benchmarks.accuracy import published
from benchmarks.accuracy.methods import RECENT
from benchmarks.accuracy.published import Row, composed, hierarchy, ratio, read, shown_theta
from benchmarks.accuracy.streams import STREAMS
from benchmarks.shared import DATA, Data, Runs, table

RANGE_EPSILON = shared.EPSILON
EPSILONS = (0.01, 0.05, 0.1)
PERCENTILES = (0.85, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999)
EXPERIMENT = f"ell_est range_eps={RANGE_EPSILON:g}"
BASE = Row("Base (zeros)", {"system": "base"}, EXPERIMENT, "Base")


def under_hat(name: str, method: str = "", **threshold: Any) -> Row:
    """The hierarchy with its own budget, for which noisy max prepares whatever the threshold's is."""
    pruned = hierarchy(prune=published.published_prune(RANGE_EPSILON))
    return Row(name, composed(threshold, pruned, RECENT, publish_epsilon=RANGE_EPSILON), EXPERIMENT, method)


def private_rules() -> list[Row]:
    """The rules of Figure 7, which aim at the published code's quantile; without the clip as it does."""
    smooth, pak = ({"part": part, "p": 0.995} for part in ("SmoothQuantile", "PAKQuantile"))
    return [
        under_hat("NM-E", "NM-E", part="NoisyMax"),
        under_hat("NM-E, exponential noise", part="NoisyMax", noise="exponential"),
        under_hat("S-P, theta <= B", **smooth),
        under_hat("S-P", "S-P", **smooth, clip=False),
        under_hat("S-PAK, theta <= B", **pak),
        under_hat("S-PAK", "S-PAK", **pak, clip=False),
    ]


def run(
    *,
    runs: Runs = 100,
    data: Data = DATA,
    streams: Annotated[Sequence[str], "real streams", list(STREAMS)] = tuple(STREAMS),
    epsilons: Annotated[Sequence[float], "budgets of theta"] = EPSILONS,
    reference: published.Reference = published.ACCURACY,
    thresholds: Annotated[Path, "the published code's thetas"] = published.THRESHOLDS,
) -> None:
    errors, known = read(reference), read(thresholds)
    names = [name for name in streams if STREAMS[name].there(data)]
    if not names:
        raise SystemExit(f"thresholds: no real stream in {data}; expected ../shared/data, or --data FOLDER")
    true = [under_hat(f"true {100 * p:g} % (NOT PRIVATE)", part="TruePercentile", p=p) for p in PERCENTILES]
    for name in names:
        lines, own = [], STREAMS[name].reference
        for rows, epsilon in (*((private_rules(), each) for each in epsilons), ([*true, BASE], RANGE_EPSILON)):
            found = published.measure(data, name, rows, epsilon, runs).groupby(level=0)
            for row in rows:
                # In the thetas' file NM-E prepares for the hierarchy's budget; the other rules do not look at it.
                experiment = "theta range_eps=0.05" if row.method == "NM-E" else "theta eps=range_eps"
                chosen = known.get((own, experiment, row.method, epsilon))
                there = errors.get((own, row.experiment, row.method, epsilon))
                of_row, theirs = found.get_group(row.name), None if there is None else there.mse
                thetas = [shown_theta(each) for each in of_row["threshold"].quantile([0.5, 0.0, 1.0])]
                mse, mae = (f"{of_row[metric].median():.3g}" for metric in ("mse", "mae"))
                budget = None if rows[0] is true[0] else f"{epsilon:g}"
                beside = [theirs and f"{theirs:.3g}", ratio(float(mse), theirs), mae]
                lines.append([row.name, budget, *thetas, chosen and shown_theta(chosen.theta), mse, *beside])
        title = (
            f"{name}, B = {STREAMS[name].bound:,}: thetas and errors of 200 random ranges, medians of {runs} runs "
        )
        title += f"under H_16^c, prune 3, Recent, eps = {RANGE_EPSILON:g}; n = r = 2^20, m = 65,536"
        columns = ["threshold", "eps", "theta", "least", "most", "published theta", "MSE", "published MSE", "ratio"]
        table(title, [*columns, "MAE"], lines)
