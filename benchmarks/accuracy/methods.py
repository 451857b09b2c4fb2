"""Every method of ToPS section 5 on one stream: the paper's four metrics, beside the published code's MSE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from benchmarks.accuracy import scenes
from benchmarks.accuracy.scenes import (
    H_2,
    H_16,
    H_16C,
    Method,
    Scene,
    hat,
    medians,
    published_prune,
    ratio,
    read,
    repeat,
    shown_theta,
)
from benchmarks.accuracy.streams import STREAMS
from benchmarks.shared import DATA, Data, Runs, table
from fastdp.perturbers import Flat
from fastdp.smoothers import Exponential, Mean, Median, MovingAverage, Recent, Smoother
from fastdp.thresholds import NoisyMax, PAKQuantile, TruePercentile

EPSILONS = (0.01, 0.05, 0.1)
#: Section 5.3 fixes theta at the 95th percentile of the hold-out, which is not private, and cuts the truth off there.
P95 = TruePercentile(0.95)
#: As fastdp publishes, and as the published code does, theta beyond B included.
PAK_CLIPPED, PAK_PUBLISHED = PAKQuantile(p=0.995), PAKQuantile(p=0.995, clip=False)


class Row(NamedTuple):
    """A method, and its experiment and name in the reference."""

    method: Method
    experiment: str = ""
    published: str = ""


def smoothers() -> list[tuple[str, Smoother]]:
    """The five of Appendix D, under their names in the reference."""
    return [
        ("Recent", Recent()),
        ("Mean", Mean()),
        ("Median", Median()),
        ("Moving w=5", MovingAverage(5)),
        ("Exp a=0.6", Exponential(0.6)),
    ]


def end_to_end(epsilon: float) -> list[Row]:
    """Both phases private, truth as it is."""
    pruned, whole = hat(epsilon), "end_to_end"
    rows = [
        Row(Method("Base (zeros)"), whole, "Base"),
        Row(Method("PAK: S-PAK + H_2", PAK_PUBLISHED, H_2), whole, "PAK"),
        Row(Method("PAK, theta <= B", PAK_CLIPPED, H_2)),
        Row(Method("S-PAK + pruned H_16^c", PAK_PUBLISHED, pruned, Recent()), whole, "S-PAK+hatH"),
        Row(Method("S-PAK + pruned H_16^c, theta <= B", PAK_CLIPPED, pruned, Recent())),
        Row(Method("NM-E + Flat", NoisyMax(), Flat())),
        Row(Method("NM-E + H_2", NoisyMax(), H_2), whole, "NM-E+H_2"),
        Row(Method("NM-E + H_16", NoisyMax(), H_16)),
        Row(Method("NM-E + H_16^c", NoisyMax(), H_16C)),
    ]
    for name, smoother in smoothers():
        published = (whole, "ToPS") if name == "Recent" else ()
        rows.append(Row(Method(f"ToPS: NM-E + pruned H_16^c, {name}", NoisyMax(), pruned, smoother), *published))
    return rows


def second_phase(epsilon: float) -> list[Row]:
    """Theta at the 95th percentile, truth cut off there (section 5.3)."""
    pruned, fixed = hat(epsilon), "range_p95"
    rows = [
        Row(Method("Base (zeros), truth cut off", P95, None, truncated=True), fixed, "Base"),
        Row(Method("Flat", P95, Flat(), truncated=True)),
        Row(Method("H_2", P95, H_2, truncated=True), fixed, "H_2"),
        Row(Method("H_16", P95, H_16, truncated=True), fixed, "H_16"),
        Row(Method("H_16^c", P95, H_16C, truncated=True), fixed, "H_16^c"),
    ]
    experiment = f"smoother_p95 g={16 ** published_prune(epsilon)}"
    for name, smoother in smoothers():
        rows.append(Row(Method(f"pruned H_16^c, {name}", P95, pruned, smoother, truncated=True), experiment, name))
    return rows


#: What, over what, and what the paper's text says of the ratio of their MSE.
RATIOS = (
    ("H_2", "H_16", "5"),
    ("H_16", "H_16^c", "about 2"),
    ("H_16^c", "pruned H_16^c, Recent", "10"),
    ("pruned H_16^c, Recent", "pruned H_16^c, Mean", "below 1"),
    ("NM-E + H_2", "ToPS: NM-E + pruned H_16^c, Recent", "-"),
    ("PAK, theta <= B", "ToPS: NM-E + pruned H_16^c, Recent", "-"),
    ("PAK: S-PAK + H_2", "ToPS: NM-E + pruned H_16^c, Recent", "10^7 to 10^11"),
)


def run(
    *,
    runs: Runs = 20,
    data: Data = DATA,
    stream: Annotated[str, "which", list(STREAMS)] = "POS",
    epsilons: Annotated[Sequence[float], "budgets"] = EPSILONS,
    reference: scenes.Reference = scenes.ACCURACY,
) -> None:
    scene, published, ratios = Scene.load(data, stream), read(reference), []
    for epsilon in epsilons:
        setting = f"eps = {epsilon:g}, pruned levels: {published_prune(epsilon)}; 200 random ranges, medians of"
        setting += f" {runs} runs; n = r = 2^20, m = 65,536"
        ours: dict[str, float] = {}
        theirs: dict[str, float] = {}
        fixed = f"{scene.name}, theta = true 95th percentile (NOT PRIVATE), truth cut off, {setting}"
        both = f"{scene.name}, both phases, {setting}"
        for title, rows in ((both, end_to_end(epsilon)), (fixed, second_phase(epsilon))):
            lines = []
            for method, experiment, name in rows:
                found = medians(repeat(scene, method, epsilon, runs))
                known = published.get((scene.reference, experiment, name, epsilon))
                ours[method.name] = found.mse
                theirs |= {} if known is None else {method.name: known.mse}
                own, there = [f"{each:.3g}" for each in found[1:5]], theirs.get(method.name)
                cells = [there and f"{there:.3g}", ratio(found.mse, there), f"{1e3 * found.seconds:.1f}"]
                lines.append([method.name, shown_theta(found.theta), *own, *cells])
            table(title, _COLUMNS, lines)
        for worse, better, paper in RATIOS:
            pairs = [
                each[worse] / each[better] if {worse, better} <= each.keys() else None for each in (ours, theirs)
            ]
            ratios.append([worse, better, f"{epsilon:g}", *map(_factor, pairs), paper])
    table(f"{scene.name}: ratios of MSE", ("method", "over", "eps", "fastdp", "published code", "paper"), ratios)


_COLUMNS = ("method", "theta", "MSE", "MAE", "MMSE", "MMAE", "published MSE", "ratio", "ms a release")


def _factor(worse: float | None, better: float | None) -> str:
    if worse is None or better is None:
        return "-"
    factor = worse / better
    return f"{factor:.2f}" if factor < 1000.0 else f"10^{math.log10(factor):.1f}"
