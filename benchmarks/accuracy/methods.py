"""Every method of ToPS section 5 on one stream: the paper's four metrics, beside the published code's MSE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from benchmarks.accuracy import published
from benchmarks.accuracy.published import Row, composed, hierarchy, published_prune, ratio, read, shown_theta
from benchmarks.accuracy.streams import STREAMS
from benchmarks.shared import DATA, Data, Runs, table

EPSILONS = (0.01, 0.05, 0.1)
#: Section 5.3 fixes theta at the 95th percentile of the hold-out, which is not private, and cuts the truth off there.
P95 = {"part": "TruePercentile", "p": 0.95}
#: As fastdp publishes, and as the published code does, theta beyond B included.
PAK_CLIPPED = {"part": "PAKQuantile", "p": 0.995}
PAK_PUBLISHED = {**PAK_CLIPPED, "clip": False}
NOISY_MAX = {"part": "NoisyMax"}
FLAT, H_2, H_16, H_16C = {"part": "Flat"}, hierarchy(2, consistent=False), hierarchy(consistent=False), hierarchy()
RECENT = {"part": "Recent"}
#: The five of Appendix D, under their names in the reference.
SMOOTHERS: dict[str, dict[str, Any]] = {
    "Recent": RECENT,
    "Mean": {"part": "Mean"},
    "Median": {"part": "Median"},
    "Moving w=5": {"part": "MovingAverage", "window": 5},
    "Exp a=0.6": {"part": "Exponential", "alpha": 0.6},
}
TOPS = "ToPS: NM-E + pruned H_16^c, {}"


def end_to_end(epsilon: float) -> list[Row]:
    """Both phases private, truth as it is."""
    pruned, both = hierarchy(prune=published_prune(epsilon)), "end_to_end"
    return [
        Row("Base (zeros)", {"system": "base"}, both, "Base"),
        Row("PAK: S-PAK + H_2", composed(PAK_PUBLISHED, H_2), both, "PAK"),
        Row("PAK, theta <= B", composed(PAK_CLIPPED, H_2)),
        Row("S-PAK + pruned H_16^c", composed(PAK_PUBLISHED, pruned, RECENT), both, "S-PAK+hatH"),
        Row("S-PAK + pruned H_16^c, theta <= B", composed(PAK_CLIPPED, pruned, RECENT)),
        Row("NM-E + Flat", composed(NOISY_MAX, FLAT)),
        Row("NM-E + H_2", composed(NOISY_MAX, H_2), both, "NM-E+H_2"),
        Row("NM-E + H_16", composed(NOISY_MAX, H_16)),
        Row("NM-E + H_16^c", composed(NOISY_MAX, H_16C)),
        *(
            Row(TOPS.format(name), composed(NOISY_MAX, pruned, each), *((both, "ToPS") if each is RECENT else ()))
            for name, each in SMOOTHERS.items()
        ),
    ]


def second_phase(epsilon: float) -> list[Row]:
    """Theta at the 95th percentile, truth cut off there (section 5.3)."""
    levels, fixed = published_prune(epsilon), "range_p95"
    smoothed = f"smoother_p95 g={16**levels}"
    return [
        Row("Base (zeros), truth cut off", {"system": "base", "threshold": P95}, fixed, "Base"),
        Row("Flat", composed(P95, FLAT)),
        Row("H_2", composed(P95, H_2), fixed, "H_2"),
        Row("H_16", composed(P95, H_16), fixed, "H_16"),
        Row("H_16^c", composed(P95, H_16C), fixed, "H_16^c"),
        *(
            Row(f"pruned H_16^c, {name}", composed(P95, hierarchy(prune=levels), each), smoothed, name)
            for name, each in SMOOTHERS.items()
        ),
    ]


#: A method, another one, and what the paper's text says of the ratio of their MSE.
RATIOS = (
    ("H_2", "H_16", "5"),
    ("H_16", "H_16^c", "about 2"),
    ("H_16^c", "pruned H_16^c, Recent", "10"),
    ("pruned H_16^c, Recent", "pruned H_16^c, Mean", "below 1"),
    ("NM-E + H_2", TOPS.format("Recent"), "-"),
    ("PAK, theta <= B", TOPS.format("Recent"), "-"),
    ("PAK: S-PAK + H_2", TOPS.format("Recent"), "10^7 to 10^11"),
)
_COLUMNS = ("method", "theta", "MSE", "MAE", "MMSE", "MMAE", "published MSE", "ratio")


def run(
    *,
    runs: Runs = 20,
    data: Data = DATA,
    stream: Annotated[str, "which", list(STREAMS)] = "POS",
    epsilons: Annotated[Sequence[float], "budgets"] = EPSILONS,
    reference: published.Reference = published.ACCURACY,
) -> None:
    known, ratios = read(reference), []
    for epsilon in epsilons:
        setting = f"eps = {epsilon:g}, pruned levels: {published_prune(epsilon)}; 200 random ranges, medians of"
        setting += f" {runs} runs; n = r = 2^20, m = 65,536"
        ours: dict[str, float] = {}
        theirs: dict[str, float] = {}
        fixed = f"theta = true 95th percentile (NOT PRIVATE), truth cut off, {setting}"
        for title, rows, truth in (
            (f"both phases, {setting}", end_to_end(epsilon), "raw"),
            (fixed, second_phase(epsilon), "clipped"),
        ):
            found, lines = published.medians(data, stream, rows, epsilon, runs, truth=truth), []
            for row in rows:
                there = known.get((STREAMS[stream].reference, row.experiment, row.method, epsilon))
                theta, *errors = found.loc[row.name]
                ours[row.name] = errors[0]
                theirs |= {} if there is None else {row.name: there.mse}
                mse = theirs.get(row.name)
                shown = [f"{error:.3g}" for error in errors]
                lines.append([row.name, shown_theta(theta), *shown, mse and f"{mse:.3g}", ratio(errors[0], mse)])
            table(f"{stream}, {title}", _COLUMNS, lines)
        for worse, better, paper in RATIOS:
            factors = [_factor(each.get(worse), each.get(better)) for each in (ours, theirs)]
            ratios.append([worse, better, f"{epsilon:g}", *factors, paper])
    table(f"{stream}: ratios of MSE", ("method", "over", "eps", "fastdp", "published code", "paper"), ratios)


def _factor(worse: float | None, better: float | None) -> str:
    if worse is None or better is None:
        return "-"
    factor = worse / better
    return f"{factor:.2f}" if factor < 1000.0 else f"10^{math.log10(factor):.1f}"
