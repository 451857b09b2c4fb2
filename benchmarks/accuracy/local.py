"""ToPL end to end on real streams: theta and the error of 200 random ranges, beside the authors' code."""

from __future__ import annotations

import argparse
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Literal, NamedTuple

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.accuracy import reference
from benchmarks.accuracy.reference import Table, ratio, shown, shown_theta
from benchmarks.accuracy.scale_free import REAL, Case
from benchmarks.accuracy.scenes import STREAMS, Scene, read_values
from benchmarks.shared import Floats, add_data_option, table
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


PARTS = ("accuracy", "scales", "ratios")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=10, help="simulations of each kind (default 10)")
    parser.add_argument("--streams", nargs="+", choices=list(BOUNDS), default=["POS", "DNS", WIDE_DNS],
                        metavar="NAME", help=f"of the tables of errors, among {', '.join(BOUNDS)}")  # fmt: skip
    parser.add_argument(
        "--epsilons", nargs="+", type=float, default=EPSILONS, help="of the users before the threshold"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="which tables")
    add_data_option(parser)
    reference.add_option(parser)


def run(options: argparse.Namespace) -> None:
    if "accuracy" in options.only:
        published = tidy(reference.read(options.reference))
        for name in options.streams:
            show(name, options.data, options.runs, options.epsilons, published)
    if "scales" in options.only:
        show_scales(options.data, options.epsilons, options.runs)
    if "ratios" in options.only:
        show_ratios()


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
    scene = Scene.load(folder, _stream(name), published)
    scene.bound = BOUNDS[name]
    return scene


def _stream(name: str) -> str:
    return name.partition(",")[0]


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
    begin = perf_counter()
    scene = load(folder, name)
    for fixed in (True, False):
        rows = list(_lines(scene, runs, epsilons, published, fixed=fixed))
        budget = f"stream eps = {STREAM_EPSILON:g}" if fixed else "stream eps = threshold eps"
        table(
            f"{name}, B = {scene.bound:,}, {budget}: medians of {runs} runs (least to largest), 200 random ranges, "
            f"truth not cut off; n = r = 2^20, m = 65,536. Published: with the correct mixture; "
            f"{perf_counter() - begin:.0f} s so far",
            ["threshold eps", "theta chosen by", "theta", "least to largest", "published", "ratio", "MSE",
             "least to largest", "published", "ratio"],
            rows,
        )  # fmt: skip


def _lines(
    scene: Scene, runs: int, epsilons: Sequence[float], published: Table, *, fixed: bool
) -> Iterator[list[str]]:
    for epsilon in epsilons:
        stream_epsilon = STREAM_EPSILON if fixed else epsilon
        for name, rule, method in variants():
            key = key_of(scene, method, epsilon, fixed=fixed)
            yield [f"{epsilon:g}", name, *_cells(repeat(scene, rule, epsilon, stream_epsilon, runs), published, key)]
    zeros = repeat(scene, None, STREAM_EPSILON, STREAM_EPSILON, runs)
    key = (known(scene), "ToPL base", "Base", STREAM_EPSILON)
    yield ["-", "Base (zeros)", *_cells(zeros, published, key)]


def _cells(measured: Floats, published: Table, key: tuple[str, str, str, float]) -> list[str]:
    theirs = published.get(key)
    cells = []
    for column, (numbers, show_one) in enumerate(zip(measured.T, (shown_theta, shown), strict=True)):
        spread = f"{show_one(numbers.min())} to {show_one(numbers.max())}"
        middle = float(np.median(numbers))
        reference = theirs[column] if theirs else 0.0
        cells += [show_one(middle), spread, *((show_one(reference), ratio(middle, reference)) if reference else "--")]
    return cells


RULES = {
    "linear, plain EM": SquareWave(),
    "linear, accelerated": SquareWave(accelerate=True),
    "logarithmic, free": SquareWave(scale="logarithmic"),
    "logarithmic, concave": SquareWave(scale="logarithmic", method="concave"),
}
#: Columns of the tables beside the streams: file, column, bound; values above 0 in the order of time.
TABLES = {
    "bike seconds": ("bike_trips", "duration_s", 604_800.0),
    "retail quantity": ("retail_lines", "quantity", 100_000.0),
    "retail pence": ("retail_lines", "amount_pence", 1e7),
    "pedestrians": ("pedestrians", "count", 20_000.0),
}
HALVES = ("tuning", "reporting")


def half_of(name: str) -> str:
    """The half that a stream belongs to: tuning or reporting."""
    return HALVES[zlib.crc32(name.encode()) % 2]


def cases(folder: Path) -> Iterator[Case]:
    """Real streams, columns of tables where they are, and synthetic streams."""
    for name, stream in REAL.items():
        yield Case.of(name, read_values(folder, stream), stream.bound)
    for name, (file, column, bound) in TABLES.items():
        path = folder / "tables" / f"{file}.parquet"
        if path.is_file():
            import pandas as pd

            values = pd.read_parquet(path).sort_values("time", kind="stable")[column].to_numpy(np.float64)
            yield Case.of(name, values[values > 0] if column != "count" else values, bound)
    for name in TABLE1:
        values = table1(name, shared.HOLDOUT + shared.MAX_RANGE, seed=0).astype(np.float64)
        yield Case.of(f"{name} iid", values, TABLE1[name].bound)


def show_scales(folder: Path, epsilons: Sequence[float], draws: int) -> None:
    """One row a stream and budget, both groups of users with the same epsilon."""
    start = perf_counter()
    found: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    rows = list(_scale_lines(folder, epsilons, draws, found))
    table(
        f"Expected MSE of random ranges (n = r = 2^20) over the best theta's, medians of {draws} draws (9th decile); "
        f"m = 65,536, one eps for both groups; {perf_counter() - start:.0f} s",
        ["stream", "half", "eps", "best theta", *(part for name in RULES for part in (f"{name}: theta", "ratio"))],
        rows,
    )
    table(
        "The same by half: geometric mean of the streams' medians (the worst)",
        ["half", "eps", *RULES],
        [
            [half, f"{epsilon:g}", *(_summary(found[half, rule, epsilon]) for rule in RULES)]
            for half in HALVES
            for epsilon in epsilons
        ],
    )


def _summary(ratios: list[float]) -> str:
    return f"{np.exp(np.mean(np.log(ratios))):.3g} ({max(ratios):.3g})"


def _scale_lines(
    folder: Path, epsilons: Sequence[float], draws: int, found: dict[tuple[str, str, float], list[float]]
) -> Iterator[list[str]]:
    for case in cases(folder):
        name, half = case.name, half_of(case.name)
        for epsilon in epsilons:
            # Ranges of 1 to r values have r / 3 reports on average.
            noise = shared.MAX_RANGE / 3.0 * local.Hybrid(epsilon, 0.0, 1.0).worst_variance
            task = ThresholdTask(epsilon, case.bound, case.held.size, shared.MAX_RANGE, case.bound / 2.0**20)
            cells = [name, half, f"{epsilon:g}", f"{case.best(noise)[0]:.4g}"]
            for title, rule in RULES.items():
                chooser = rule.start(task)
                chooser.observe(case.held)
                thetas = np.array([chooser.choose(Key.from_seed(seed)) for seed in range(draws)])
                middle, high = (case.ratio(noise, thetas, level) for level in (0.5, 0.9))
                found[half, title, epsilon].append(middle)
                cells += [f"{np.median(thetas):.4g}", f"{middle:.3g} ({high:.3g})"]
            yield cells


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
            steps = client.STEPS
            all_pairs = largest_ratio(tiny.distribution, range(SMALL_GRID + 1), range(tiny.n_outputs))
            real = largest_ratio(client.distribution, (0, steps), extreme_outputs(client))
            rows.append([
                mechanism.__name__, f"{epsilon:g}",
                *(f"{below(found, epsilon):.1e}" for found in (all_pairs, real)),
                "yes" if min(below(found, epsilon) for found in (all_pairs, real)) >= 0 else "NO",
            ])  # fmt: skip
    table(
        "1 - (largest ratio of weights) / e^eps, in exact integers: 0 is the budget to the last digit, below 0 would "
        "break it",
        ["mechanism", "eps", f"grid of {SMALL_GRID} steps, every pair and output", "grid of 2^20 steps, extremes",
         "within e^eps"],
        rows,
    )  # fmt: skip
