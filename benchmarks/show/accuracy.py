"""ToPS on real streams: error of 200 random range queries beside the published code's medians."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Literal, NamedTuple

import numpy as np

import fastdp
from benchmarks import sizes
from benchmarks.show import reference
from benchmarks.show.reference import TOLERANCE
from benchmarks.show.report import table
from benchmarks.show.scenes import Scene, published_prune
from benchmarks.streams import DATA
from fastdp.queries.metrics import mse
from fastdp.queries.workloads import random_ranges


class Case(NamedTuple):
    """One row: a stream, a budget, a number of pruned levels."""

    stream: str
    epsilon: float
    prune: int | Literal["optimal"]


#: Streams of the table.
NAMES = ("POS", "taxi distance")
#: Budgets at which the published code's figures are at hand.
EPSILONS = (0.01, 0.05, 0.1)
CASES = [
    *(Case("POS", epsilon, published_prune(epsilon)) for epsilon in EPSILONS),
    *(Case("POS", epsilon, "optimal") for epsilon in EPSILONS),
    Case("taxi distance", 0.05, "optimal"),
    Case("taxi distance", 0.05, 3),
]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=20, help="releases of each kind (default 20)")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of real streams (default ../shared/data)")
    reference.add_option(parser)


def run(options: argparse.Namespace) -> None:
    if not options.data.is_dir():
        raise SystemExit("accuracy: the folder of real streams is absent; expected ../shared/data, or --data FOLDER")
    start = perf_counter()
    published = reference.read(options.reference)
    scenes = {name: Scene.load(options.data, name) for name in NAMES}
    rows = [row for case in CASES for row in one_case(case, scenes[case.stream], options.runs, published)]
    table(
        f"MSE of 200 random ranges, medians of {options.runs} runs, truth not truncated; "
        f"n = r = 2^20, m = 65,536; {perf_counter() - start:.1f} s",
        ["stream", "eps", "prune", "block", "theta", "MSE", "MSE, retrospective", "Base (zeros)",
         "published theta", "published MSE", "published Base", f"MSE ratio (within {TOLERANCE}?)"],
        rows,
    )  # fmt: skip


def one_case(case: Case, scene: Scene, runs: int, errors: reference.Table) -> Iterator[list[str]]:
    prefix = scene.prefix()
    thetas, online, retrospective, base = [], [], [], []
    block = 0
    for seed in range(runs):
        release = fastdp.release(
            scene.values,
            case.epsilon,
            scene.bound,
            method="tops",
            seed=seed,
            holdout=sizes.HOLDOUT,
            max_range=sizes.MAX_RANGE,
            prune=case.prune,
        )
        starts, stops = random_ranges(sizes.PUBLISHED, sizes.QUERIES, sizes.MAX_RANGE, seed=seed)
        truth = prefix[stops] - prefix[starts]
        block = release.block
        thetas.append(release.threshold)
        online.append(mse(truth, release.range_sum(starts, stops)))
        retrospective.append(mse(truth, release.range_sum(starts, stops, retrospective=True)))
        base.append(mse(truth, np.zeros(truth.size)))
    measured = statistics.median(online)
    row = [case.stream, f"{case.epsilon:g}", str(case.prune), f"{block:,}", f"{statistics.median(thetas):.4g}"]
    row += [f"{statistics.median(errors):.3g}" for errors in (online, retrospective, base)]
    # The published code prunes in a way of its own; other block lengths have no counterpart there.
    like = case.prune == published_prune(case.epsilon)
    key = (scene.reference, "end_to_end")
    published = errors.get((*key, "ToPS", case.epsilon)) if like else None
    zeros = errors.get((*key, "Base", case.epsilon)) if like else None
    if published is None or zeros is None:
        yield [*row, "-", "-", "-", "-"]
        return
    factor = measured / published.mse
    verdict = "yes" if 1 / TOLERANCE <= factor <= TOLERANCE else "NO"
    yield [*row, f"{published.theta:.4g}", f"{published.mse:.3g}", f"{zeros.mse:.3g}", f"{factor:.2f} ({verdict})"]
