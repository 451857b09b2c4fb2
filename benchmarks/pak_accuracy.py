"""PAK measured: improvement over the plain binary tree on real streams, and POS beside the published code.

Run: python -m benchmarks.pak_accuracy [--runs 200] [--data FOLDER] [--reference FOLDER]
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

import fastdp
from benchmarks import pak_runs, sizes
from benchmarks.show import report
from benchmarks.streams import REFERENCE, Floats
from fastdp import analysis
from fastdp.queries.metrics import mse
from fastdp.queries.workloads import random_ranges
from fastdp.thresholds import PAKQuantile, SmoothQuantile

LAGS = (50_000, 100_000)
EPSILONS = (0.01, 0.05, 0.1)
#: The published code spends all of epsilon on the threshold; ranges do not need the sum of the first values.
SHARE = 0.999
PUBLISHED_RUNS = 20


def improvement(streams: list[pak_runs.Stream], runs: int) -> Iterator[list[str]]:
    for stream in streams:
        light = ", ".join(
            f"{p:g}: {'yes' if analysis.check_light_tail(stream.values, p).light else 'no'}"
            for p in (0.01, 0.005, 0.001)
        )
        for m in LAGS:
            found = pak_runs.measure(stream, m, 1.0, runs)
            best, estimate = found.optimum, pak_runs.outlier_bound(found, stream.values.size)
            yield [
                stream.name, f"{stream.values.size:,}", f"{stream.bound:g}", f"{m:,}",
                f"{best.improvement:.2f}", f"{found.factor_of_medians:.2f}", f"{found.factor_of_means:.2f}",
                f"{np.median(np.abs(found.plain)) / stream.bound:.1f}",
                f"{np.median(np.abs(found.pak)) / stream.bound:.1f}",
                "-" if best.fallback else f"{np.median(-found.clipped) / stream.bound:.1f}",
                "-" if best.fallback else f"{np.median(-found.clipped) / estimate:.2f}",
                f"{best.r:.2f}", f"{np.median(found.thresholds):.4g}", light,
            ]  # fmt: skip


def read_reference(folder: Path) -> dict[tuple[str, float], tuple[float, float, float | None]]:
    """By method and epsilon: median theta in 1,000 runs, share of runs above B; for PAK theta and MSE."""
    found: dict[tuple[str, float], tuple[float, float, float | None]] = {}
    thresholds, accuracy = folder / "dp-cont-thresholds.csv", folder / "dp-cont-accuracy.csv"
    if not (thresholds.is_file() and accuracy.is_file()):
        return found
    with thresholds.open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["dataset"] == "pos" and row["experiment"] == "theta eps=range_eps":
                found[row["method"], float(row["eps"])] = (float(row["theta_median"]), float(row["frac_gt_B"]), None)
    with accuracy.open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["dataset"] == "pos" and row["experiment"] == "end_to_end" and row["method"] == "PAK":
                found["PAK", float(row["eps"])] = (float(row["theta_median"]), 0.0, float(row["mse_median"]))
    return found


def thetas(values: Floats, runs: int, reference: dict) -> Iterator[list[str]]:
    n, first = values.size, values[: sizes.HOLDOUT]
    for name, rule in (("S-P", SmoothQuantile), ("S-PAK", PAKQuantile)):
        for epsilon in EPSILONS:
            chosen = []
            for seed in range(runs):
                publisher = fastdp.PAK(
                    *(epsilon, 1.0 / n**2, sizes.BOUND, n),
                    threshold=rule(p=0.995, delta=1.0 / n**2, clip=False),
                    holdout=sizes.HOLDOUT, share=SHARE, clip=False, seed=seed,
                )  # fmt: skip
                publisher.publish(first)
                chosen.append(publisher.threshold)
            above = np.mean(np.array(chosen) > sizes.BOUND)
            theirs = reference.get((name, epsilon))
            shown = ["-", "-"] if theirs is None else [f"{theirs[0]:.3g}", f"{theirs[1]:.3f}"]
            yield [name, f"{epsilon:g}", f"{statistics.median(chosen):.3g}", shown[0], f"{above:.3f}", shown[1]]


def errors(values: Floats, runs: int, reference: dict) -> Iterator[list[str]]:
    n = values.size
    truths = np.concatenate([[0.0], np.cumsum(values[sizes.HOLDOUT :])])
    for epsilon in EPSILONS:
        for clip in (False, True):
            found, chosen, times = [], [], []
            for seed in range(runs):
                publisher = fastdp.PAK(
                    *(epsilon, 1.0 / n**2, sizes.BOUND, n),
                    threshold=PAKQuantile(p=0.995, delta=1.0 / n**2, clip=clip),
                    holdout=sizes.HOLDOUT, share=SHARE, clip=clip, seed=seed,
                )  # fmt: skip
                begin = perf_counter()
                sums = publisher.publish(values)
                times.append(perf_counter() - begin)
                starts, stops = random_ranges(sizes.PUBLISHED, sizes.QUERIES, sizes.MAX_RANGE, seed)
                found.append(mse(truths[stops] - truths[starts], sums[stops] - sums[starts]))
                chosen.append(publisher.threshold)
            theirs = None if clip else reference.get(("PAK", epsilon))
            ours = statistics.median(found)
            yield [
                "PAK, clipped at B" if clip else "PAK, tau as it falls",
                f"{epsilon:g}", f"{statistics.median(chosen):.3g}", f"{ours:.2g}",
                f"{min(found):.2g} to {max(found):.2g}",
                "-" if theirs is None else f"{theirs[0]:.3g}",
                "-" if theirs is None or theirs[2] is None else f"{theirs[2]:.2g}",
                "-" if theirs is None or theirs[2] is None else f"{ours / theirs[2]:.2f}",
                f"{statistics.median(times) * 1e3:.0f}",
            ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pak_runs.add_options(parser, 200)
    parser.add_argument("--reference", type=Path, default=REFERENCE, help="the published code's figures")
    options = parser.parse_args()
    streams, reference = pak_runs.load(options.data), read_reference(options.reference)
    values = streams[-1].values
    report.heading(sys.argv[1:], "benchmarks.pak_accuracy")
    report.table(
        f"PAK against the plain binary tree: error of the sum at step n, {options.runs} runs; eps = 1, "
        "delta = 2^-20, beta = 0.02, best parameters by bound; errors (medians of absolute values) in units of B",
        ["stream", "n", "B", "m", "IF, bound", "IF, medians", "IF, means", "plain", "PAK", "of it clipping",
         "clipping / its bound", "r", "r tau", "light beyond p"],
        improvement(streams, options.runs),
    )  # fmt: skip
    report.table(
        f"theta before the clip to B on POS, p = 0.995, {options.runs} runs (published: 1,000)",
        ["method", "eps", "median", "published", "share above B", "published"],
        thetas(values, options.runs, reference),
    )
    runs = min(options.runs, PUBLISHED_RUNS)
    report.table(
        f"MSE of 200 random ranges from running sums, POS, n = 2^20 + 65,536, p = 0.995, medians of {runs} runs",
        [
            "method",
            "eps",
            "theta",
            "MSE",
            "least to largest",
            "published theta",
            "published MSE",
            "ratio",
            "ms a run",
        ],
        errors(values, runs, reference),
    )


if __name__ == "__main__":
    main()
