"""Every method of ToPS section 5 on POS: error beside the published code's medians, and what a release costs."""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

import fastdp
from benchmarks import sizes
from benchmarks.show.report import table
from benchmarks.streams import DATA, Floats, hold_out_and_extend
from fastdp.metrics import mse
from fastdp.perturbers import Flat, Hierarchy
from fastdp.smoothers import Exponential, Mean, Median, MovingAverage, Recent
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile
from fastdp.workloads import random_ranges


class Method(NamedTuple):
    """One row; ``truncated`` compares with the truth clipped at theta, as the paper's section 5.3 does."""

    name: str
    epsilon: float
    parts: dict
    truncated: bool = False
    published: float | None = None


H_2 = Hierarchy(2, consistent=False, prune=0)
H_16 = Hierarchy(16, consistent=False, prune=0)
H_16C = Hierarchy(16, prune=0)
HAT = Hierarchy(16, prune=3)
P95 = Fixed(21.0)
SMOOTHERS = (
    (Recent(), 1.45e7),
    (Mean(), 1.25e7),
    (Median(), 1.25e7),
    (MovingAverage(8), None),
    (Exponential(), None),
)


def methods() -> list[Method]:
    """Reference medians are those of the design page and of the reference table beside the project."""
    rows = [
        Method("NM-E + H_2", epsilon, {"threshold": NoisyMax(), "perturber": H_2}, published=published)
        for epsilon, published in ((0.01, 2.7e11), (0.05, 2.2e10), (0.1, 6.8e9))
    ]
    for name, perturber, published in (
        ("H_2, theta 21", H_2, 2.7e9),
        ("H_16, theta 21", H_16, 5.7e8),
        ("H_16^c, theta 21", H_16C, 1.9e8),
        ("Flat, theta 21", Flat(), None),
    ):
        rows.append(Method(name, 0.05, {"threshold": P95, "perturber": perturber}, True, published))
    for smoother, published in SMOOTHERS:
        parts = {"threshold": P95, "perturber": HAT, "smoother": smoother}
        rows.append(Method(f"H_16^c, prune 3, {smoother!r}, theta 21", 0.05, parts, True, published))
    for epsilon in (0.01, 0.05, 0.1):
        parts = {"threshold": PAKQuantile(), "perturber": HAT, "smoother": Recent()}
        rows.append(Method("S-PAK (cut off at B) + H_16^c, prune 3", epsilon, parts))
        rows.append(Method("S-PAK (cut off at B) + H_2", epsilon, {"threshold": PAKQuantile(), "perturber": H_2}))
    return rows


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=20, help="releases of each kind (default 20)")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of real streams (default ../shared/data)")


def run(options: argparse.Namespace) -> None:
    file = options.data / "pos_length.npz"
    if not file.exists():
        raise SystemExit(f"{file} is not there: the table needs the real stream POS (--data FOLDER)")
    with np.load(file) as stored:
        values = hold_out_and_extend(stored["values"].astype(np.float64), sizes.HOLDOUT, sizes.PUBLISHED)
    lines = [_measure(method, values, options.runs) for method in methods()]
    columns = ("method", "eps", "theta", "MSE", "published MSE", "ratio", "ms a release")
    table(f"POS, 200 random ranges, medians of {options.runs} runs; n = r = 2^20, m = 65,536", columns, lines)


def _measure(method: Method, values: Floats, runs: int) -> tuple[str, ...]:
    errors, thetas, times = [], [], []
    truth = values[sizes.HOLDOUT :]
    prefix = np.concatenate([[0.0], np.cumsum(np.minimum(truth, 21.0) if method.truncated else truth)])
    for seed in range(runs):
        publisher = fastdp.StreamPublisher(
            **method.parts, epsilon=method.epsilon, bound=sizes.BOUND, holdout=sizes.HOLDOUT, seed=seed
        )
        begin = perf_counter()
        release = publisher.release(values)
        times.append(perf_counter() - begin)
        starts, stops = random_ranges(sizes.PUBLISHED, sizes.QUERIES, sizes.MAX_RANGE, seed)
        errors.append(mse(prefix[stops] - prefix[starts], release.range_sum(starts, stops)))
        thetas.append(release.threshold)
    error = statistics.median(errors)
    published = "-" if method.published is None else f"{method.published:.3g}"
    ratio = "-" if method.published is None else f"{error / method.published:.2f}"
    return (
        method.name,
        f"{method.epsilon:g}",
        f"{statistics.median(thetas):g}",
        f"{error:.3g}",
        published,
        ratio,
        f"{statistics.median(times) * 1e3:.1f}",
    )
