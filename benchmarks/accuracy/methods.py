"""Every method of ToPS section 5, and ways to choose theta, on one stream: four metrics beside the published MSE."""

from collections.abc import Sequence
from typing import Annotated, Any

from benchmarks import shared
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


#: Budget of the hierarchy under which ways to choose theta are compared (section 5.4).
RANGE_EPSILON = shared.EPSILON
EXPERIMENT = f"ell_est range_eps={RANGE_EPSILON:g}"


def private_rules() -> list[Row]:
    """The rules of Figure 7 under one hierarchy, for which noisy max prepares whatever the threshold's budget is."""
    pruned = hierarchy(prune=published_prune(RANGE_EPSILON))

    def under(name: str, method: str = "", **threshold: Any) -> Row:
        return Row(name, composed(threshold, pruned, RECENT, publish_epsilon=RANGE_EPSILON), EXPERIMENT, method)

    smooth, pak = ({"part": part, "p": 0.995} for part in ("SmoothQuantile", "PAKQuantile"))
    return [
        under("NM-E", "NM-E", part="NoisyMax"),
        under("NM-E, exponential noise", part="NoisyMax", noise="exponential"),
        under("S-P, theta <= B", **smooth),
        under("S-P", "S-P", **smooth, clip=False),
        under("S-PAK, theta <= B", **pak),
        under("S-PAK", "S-PAK", **pak, clip=False),
    ]


def run(
    *,
    runs: Runs = 20,
    data: Data = DATA,
    stream: Annotated[str, "which", list(STREAMS)] = "POS",
    epsilons: Annotated[Sequence[float], "budgets"] = EPSILONS,
    reference: published.Reference = published.ACCURACY,
) -> None:
    known = read(reference)
    for epsilon in epsilons:
        for title, rows, truth in (
            (f"both phases, pruned levels: {published_prune(epsilon)}", end_to_end(epsilon), "raw"),
            ("theta = true 95th percentile (NOT PRIVATE), truth cut off", second_phase(epsilon), "clipped"),
            (f"ways to choose theta, hierarchy at eps = {RANGE_EPSILON:g}", private_rules(), "raw"),
        ):
            found, lines = published.medians(data, stream, rows, epsilon, runs, truth=truth), []
            for row in rows:
                theirs = known.get((STREAMS[stream].reference, row.experiment, row.method, epsilon))
                theta, *errors = found.loc[row.name]
                shown = [shown_theta(theta), *(f"{error:.3g}" for error in errors)]
                lines.append([row.name, *shown, *(["-", "-"] if theirs is None else _beside(errors[0], theirs.mse))])
            columns = ["method", "theta", "MSE", "MAE", "MMSE", "MMAE", "published MSE", "ratio"]
            size = f"200 random ranges, medians of {runs} runs; n = r = 2^20, m = 65,536"
            table(f"{stream}, eps = {epsilon:g}, {title}; {size}", columns, lines)


def _beside(measured: float, theirs: float) -> list[str]:
    return [f"{theirs:.3g}", ratio(measured, theirs)]
