"""ToPL end to end on real streams: theta and the error of 200 random ranges, beside the authors' code."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.accuracy import scenes
from benchmarks.accuracy.scale_free import Case
from benchmarks.accuracy.scenes import STREAMS, Published, Scene, Table, ratio, read, shown_theta
from benchmarks.accuracy.streams import ARRAYS, REAL
from benchmarks.shared import DATA, Data, Floats, geometric, table
from fastdp import local
from fastdp.local.mechanisms import Mechanism
from fastdp.local.reports import CONTEXT, ReportDistribution, exp_below
from fastdp.noise import Key
from fastdp.thresholds import SquareWave, ThresholdTask
from fastdp_lab.datasets import table1
from fastdp_lab.datasets.catalogue import TABLE1
from fastdp_lab.queries.metrics import mse
from fastdp_lab.queries.workloads import random_ranges

#: The reference has the DNS stream with B = 500 (its thetas are multiples of 500 / 1024), the paper with 2000.
WIDE_DNS = "DNS, wide"
BOUNDS = {"POS": 1657, "DNS": 500, WIDE_DNS: 2000, "taxi distance": 30_000, "MSNBC": 41_270}
EPSILONS = (0.2, 0.5, 1.0, 1.5, 2.0)
STREAM_EPSILON = 1.0


class Variant(NamedTuple):
    """A row: its rule, and the name of the published code's rule that it is held against."""

    name: str
    rule: SquareWave
    published: str = ""


def variants() -> list[Variant]:
    rows = []
    objectives: tuple[tuple[Literal["paper", "corrected"], str], ...] = (
        ("paper", ""),
        ("corrected", "(Eq.8 corrected)"),
    )
    for objective, published in objectives:
        for accelerate in (False, True):
            rule = SquareWave(objective=objective, accelerate=accelerate)
            name = f"SW-W, {objective}, {'accelerated' if accelerate else 'plain'} EM"
            rows.append(Variant(name, rule, f"SW-W {published}".strip()))
    for objective, published in objectives:
        rule = SquareWave(objective=objective, method="sw")
        rows.append(Variant(f"SW, {objective}", rule, f"SW {published}".strip()))
    return [*rows, Variant("99.5 % of EMS", SquareWave(method="percentile"))]


class Errors(NamedTuple):
    """One simulation: theta and the MSE of its ranges."""

    theta: float
    mse: float


def load(folder: Path, name: str, published: int = shared.PUBLISHED) -> Scene:
    scene = Scene.load(folder, name.partition(",")[0], published)
    scene.bound = BOUNDS[name]
    return scene


def known(scene: Scene) -> str:
    """The stream's name in the reference; empty if it is not there with this bound."""
    return scene.reference if scene.bound == STREAMS[scene.name].bound else ""


def tidy(published: Table) -> Table:
    """The reference pads names with spaces."""
    return {
        (stream, kind, " ".join(rule.split()), epsilon): found
        for (stream, kind, rule, epsilon), found in published.items()
    }


def simulate(scene: Scene, rule: SquareWave, epsilon: float, stream_epsilon: float, seed: int) -> fastdp.Release:
    """Users and server in one process; ``epsilon`` is the budget of the users before the threshold."""
    simulation = fastdp.ToPL(
        stream_epsilon, scene.bound, scene.holdout, scene.max_range,
        threshold=rule, threshold_epsilon=epsilon, seed=seed,
    )  # fmt: skip
    return simulation.release(scene.values)


def run_once(scene: Scene, rule: SquareWave | None, epsilon: float, stream_epsilon: float, seed: int) -> Errors:
    """No rule means Base (zeros)."""
    starts, stops = random_ranges(scene.body.size, shared.QUERIES, scene.max_range, seed)
    truth = scene.prefix()[stops] - scene.prefix()[starts]
    if rule is None:
        return Errors(0.0, mse(truth, np.zeros(truth.size)))
    release = simulate(scene, rule, epsilon, stream_epsilon, seed)
    return Errors(release.threshold, mse(truth, release.sum(starts, stops)))


def repeat(scene: Scene, rule: SquareWave | None, epsilon: float, stream_epsilon: float, runs: int) -> Floats:
    """Seeds 0, 1, ...: float64[runs, 2], columns as in :class:`Errors`."""
    return np.array([run_once(scene, rule, epsilon, stream_epsilon, seed) for seed in range(runs)])


def key_of(scene: Scene, method: str, epsilon: float, *, fixed: bool) -> tuple[str, str, str, float]:
    """Where the published code's threshold, with the correct mixture, is in the tidied reference."""
    experiment = "ToPL range_eps=" + (f"{STREAM_EPSILON:g}" if fixed else "eps")
    return known(scene), experiment, f"{method} + HM mixture", epsilon


def show(name: str, folder: Path, runs: int, epsilons: Sequence[float], published: Table) -> None:
    scene = load(folder, name)
    for fixed in (True, False):
        rows = []
        for epsilon in epsilons:
            stream_epsilon = STREAM_EPSILON if fixed else epsilon
            for title, rule, method in variants():
                key = key_of(scene, method, epsilon, fixed=fixed)
                cells = _cells(repeat(scene, rule, epsilon, stream_epsilon, runs), published.get(key))
                rows.append([f"{epsilon:g}", title, *cells])
        zeros = repeat(scene, None, STREAM_EPSILON, STREAM_EPSILON, runs)
        key = (known(scene), "ToPL base", "Base", STREAM_EPSILON)
        rows.append(["-", "Base (zeros)", *_cells(zeros, published.get(key))])
        budget = f"stream eps = {STREAM_EPSILON:g}" if fixed else "stream eps = threshold eps"
        measured = ("least to largest", "published", "ratio")
        table(
            f"{name}, B = {scene.bound:,}, {budget}: medians of {runs} runs (least to largest), 200 random ranges, "
            "truth not cut off; n = r = 2^20, m = 65,536. Published: with the correct mixture",
            ["threshold eps", "theta chosen by", "theta", *measured, "MSE", *measured],
            rows,
        )


def _cells(measured: Floats, theirs: Published | None) -> Iterator[str]:
    for numbers, there, shown in zip(measured.T, theirs or (0.0, 0.0), (shown_theta, "{:.3g}".format), strict=False):
        middle = float(np.median(numbers))
        yield from (shown(middle), f"{shown(numbers.min())} to {shown(numbers.max())}")
        yield from (shown(there), ratio(middle, there)) if there else "--"


RULES = {
    "linear, plain EM": SquareWave(),
    "linear, accelerated": SquareWave(accelerate=True),
    "logarithmic, free": SquareWave(scale="logarithmic"),
    "logarithmic, concave": SquareWave(scale="logarithmic", method="concave"),
}
#: Columns of the tables beside the streams; values above 0.
TABLES = {
    "bike seconds": REAL["trip seconds"]._replace(bound=604_800.0),
    "retail quantity": REAL["order items"],
    "retail pence": REAL["order pence"],
    "pedestrians": REAL["people an hour"],
}
HALVES = ("tuning", "reporting")


def half_of(name: str) -> str:
    """The half that a stream belongs to: tuning or reporting."""
    return HALVES[zlib.crc32(name.encode()) % 2]


def cases(folder: Path) -> Iterator[Case]:
    """Real streams, columns of tables where they are, and synthetic streams."""
    for name, stream in ARRAYS.items():
        yield Case.of(name, stream.values(folder), stream.bound)
    for name, stream in TABLES.items():
        if stream.there(folder):
            values = stream.values(folder)
            yield Case.of(name, values[values > 0] if name != "pedestrians" else values, stream.bound)
    for name in TABLE1:
        values = table1(name, shared.HOLDOUT + shared.MAX_RANGE, seed=0).astype(np.float64)
        yield Case.of(f"{name} iid", values, TABLE1[name].bound)


def show_scales(folder: Path, epsilons: Sequence[float], draws: int) -> None:
    """One row a stream and budget, both groups of users with the same epsilon."""
    found: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    rows = []
    for case in cases(folder):
        half = half_of(case.name)
        for epsilon in epsilons:
            # Ranges of 1 to r values have r / 3 reports on average.
            noise = shared.MAX_RANGE / 3.0 * local.Hybrid(epsilon, 0.0, 1.0).worst_variance
            task = ThresholdTask(epsilon, case.bound, case.held.size, shared.MAX_RANGE, case.bound / 2.0**20)
            cells = [case.name, half, f"{epsilon:g}", f"{case.best(noise)[0]:.4g}"]
            for title, rule in RULES.items():
                chooser = rule.start(task)
                chooser.observe(case.held)
                thetas = np.array([chooser.choose(Key.from_seed(seed)) for seed in range(draws)])
                middle, high = (case.ratio(noise, thetas, level) for level in (0.5, 0.9))
                found[half, title, epsilon].append(middle)
                cells += [f"{np.median(thetas):.4g}", f"{middle:.3g} ({high:.3g})"]
            rows.append(cells)
    table(
        f"Expected MSE of random ranges (n = r = 2^20) over the best theta's, medians of {draws} draws (9th decile); "
        "m = 65,536, one eps for both groups",
        ["stream", "half", "eps", "best theta", *(part for name in RULES for part in (f"{name}: theta", "ratio"))],
        rows,
    )
    summary = [
        [
            half,
            f"{e:g}",
            *(f"{geometric(found[half, rule, e]):.3g} ({max(found[half, rule, e]):.3g})" for rule in RULES),
        ]
        for half in HALVES
        for e in epsilons
    ]
    table("The same by half: geometric mean of the streams' medians (the worst)", ["half", "eps", *RULES], summary)


MECHANISMS: tuple[type[Mechanism], ...] = (local.SquareWave, local.StochasticRounding, local.Piecewise, local.Hybrid)
RATIO_EPSILONS = (1e-6, 0.01, 0.2, 0.61, 1.0, 2.0, 5.0, 8.0, 32.0)
SMALL_GRID = 64


def small(mechanism: type[Mechanism]) -> type[Mechanism]:
    """The same mechanism on a grid of 64 steps."""
    return type(mechanism.__name__, (mechanism,), {"STEPS": SMALL_GRID})


def largest_ratio(law: ReportDistribution, inputs: Iterable[int], outputs: Iterable[int]) -> Fraction:
    """Over every pair of the inputs and every one of the outputs."""
    inputs = list(inputs)
    worst = Fraction(1)
    for output in outputs:
        weights = [law.weight(x, output) for x in inputs]
        worst = max(worst, Fraction(max(weights), min(weights)))
    return worst


def extreme_outputs(client: Mechanism) -> set[int]:
    """Index of the largest ratio: the last output of each part of the law, and the bit 0.

    Input 0 has the last output of a window law far and input D has it near, and it gets the fewer of the left-over
    words, so no output is further apart; a bit is furthest apart between inputs 0 and D.
    """
    ends = {term.last - 1 for term in client.distribution.terms()}
    return ends | {max(end - 1, 0) for end in ends}


def below(ratio: Fraction, epsilon: float) -> Decimal:
    """1 - ratio / e^epsilon."""
    quotient = ratio / exp_below(epsilon)
    return CONTEXT.subtract(Decimal(1), CONTEXT.divide(Decimal(quotient.numerator), Decimal(quotient.denominator)))


def show_ratios() -> None:
    rows = []
    for mechanism in MECHANISMS:
        for epsilon in RATIO_EPSILONS:
            client, tiny = mechanism(epsilon), small(mechanism)(epsilon)
            all_pairs = largest_ratio(tiny.distribution, range(SMALL_GRID + 1), range(tiny.n_outputs))
            real = largest_ratio(client.distribution, (0, client.STEPS), extreme_outputs(client))
            gaps = [below(found, epsilon) for found in (all_pairs, real)]
            within = "yes" if min(gaps) >= 0 else "NO"
            rows.append([mechanism.__name__, f"{epsilon:g}", *(f"{gap:.1e}" for gap in gaps), within])
    title = (
        "1 - (largest ratio of weights) / e^eps, in exact integers: 0 is the budget to the last digit, below 0 would "
    )
    columns = [f"grid of {SMALL_GRID} steps, every pair and output", "grid of 2^20 steps, extremes", "within e^eps"]
    table(f"{title}break it", ["mechanism", "eps", *columns], rows)


PARTS = ("accuracy", "scales", "ratios")


def run(
    *,
    runs: Annotated[int, "simulations of each kind"] = 10,
    streams: Annotated[Sequence[str], "of the tables of errors", list(BOUNDS)] = ("POS", "DNS", WIDE_DNS),
    epsilons: Annotated[Sequence[float], "of the users before the threshold"] = EPSILONS,
    only: Annotated[Sequence[str], "which tables", PARTS] = PARTS,
    data: Data = DATA,
    reference: scenes.Reference = scenes.ACCURACY,
) -> None:
    if "accuracy" in only:
        for name in streams:
            show(name, data, runs, epsilons, tidy(read(reference)))
    if "scales" in only:
        show_scales(data, epsilons, runs)
    if "ratios" in only:
        show_ratios()
