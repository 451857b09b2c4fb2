"""Every method of ToPS section 5 on one stream: the paper's four metrics, beside the published code's MSE."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.accuracy import reference
from benchmarks.accuracy.reference import ratio, shown, shown_theta
from benchmarks.accuracy.scenes import (
    H_2,
    H_16,
    H_16C,
    STREAMS,
    Errors,
    Method,
    Scene,
    hat,
    medians,
    published_prune,
    repeat,
)
from benchmarks.shared import add_data_option, table
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


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=20, help="releases of each kind (default 20)")
    add_data_option(parser)
    parser.add_argument("--stream", choices=list(STREAMS), default="POS", help="which (default POS)")
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS, help="budgets (default .01 .05 .1)")
    reference.add_option(parser)


def run(options: argparse.Namespace) -> None:
    scene = Scene.load(options.data, options.stream)
    published = reference.read(options.reference)
    ratios = []
    for epsilon in options.epsilons:
        setting = f"eps = {epsilon:g}, pruned levels: {published_prune(epsilon)}; 200 random ranges, medians of"
        setting += f" {options.runs} runs; n = r = 2^20, m = 65,536"
        ours: dict[str, float] = {}
        theirs: dict[str, float] = {}
        for title, rows in (
            (f"{scene.name}, both phases, {setting}", end_to_end(epsilon)),
            (f"{scene.name}, theta = true 95th percentile (NOT PRIVATE), truth cut off, {setting}",
             second_phase(epsilon)),
        ):  # fmt: skip
            lines = []
            for row in rows:
                measured = medians(repeat(scene, row.method, epsilon, options.runs))
                known = published.get((scene.reference, row.experiment, row.published, epsilon))
                lines.append(_line(row.method.name, measured, known))
                ours[row.method.name] = measured.mse
                if known is not None:
                    theirs[row.method.name] = known.mse
            table(title, _COLUMNS, lines)
        ratios += list(_ratios(epsilon, ours, theirs))
    table(f"{scene.name}: ratios of MSE", ("method", "over", "eps", "fastdp", "published code", "paper"), ratios)


_COLUMNS = ("method", "theta", "MSE", "MAE", "MMSE", "MMAE", "published MSE", "ratio", "ms a release")


def _line(name: str, measured: Errors, known: reference.Published | None) -> list[str]:
    errors = [shown(error) for error in (measured.mse, measured.mae, measured.mmse, measured.mmae)]
    theirs = None if known is None else known.mse
    milliseconds = f"{1e3 * measured.seconds:.1f}"
    return [name, shown_theta(measured.theta), *errors, shown(theirs), ratio(measured.mse, theirs), milliseconds]


def _ratios(epsilon: float, ours: dict[str, float], theirs: dict[str, float]) -> Iterator[list[str]]:
    for worse, better, paper in RATIOS:
        published = theirs[worse] / theirs[better] if {worse, better} <= theirs.keys() else None
        yield [worse, better, f"{epsilon:g}", _factor(ours[worse] / ours[better]), _factor(published), paper]


def _factor(factor: float | None) -> str:
    if factor is None:
        return "-"
    return f"{factor:.2f}" if factor < 1000.0 else f"10^{math.log10(factor):.1f}"
