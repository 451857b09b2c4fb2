"""ToPL end to end on real streams: theta and the error of 200 random ranges, beside the authors' code."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Literal, NamedTuple

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.accuracy import local_ratios, local_scales, reference
from benchmarks.accuracy.reference import Table, ratio, shown, shown_theta
from benchmarks.accuracy.scenes import STREAMS, Scene
from benchmarks.shared import Floats, add_data_option, table
from fastdp.thresholds import SquareWave
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
        local_scales.show(options.data, options.epsilons, options.runs)
    if "ratios" in options.only:
        local_ratios.show()


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
