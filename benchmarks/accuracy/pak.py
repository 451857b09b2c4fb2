"""PAK measured: improvement over the plain binary tree on real streams, and POS beside the authors' code."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.accuracy import reference
from benchmarks.paper import pak_runs
from benchmarks.shared import REFERENCE, Floats, add_data_option
from fastdp.thresholds import PAKQuantile, SmoothQuantile
from fastdp_lab import planning
from fastdp_lab.queries.metrics import mse
from fastdp_lab.queries.workloads import random_ranges

LAGS = (50_000, 100_000)
EPSILONS = (0.01, 0.05, 0.1)
#: The published code spends all of epsilon on the threshold; ranges do not need the sum of the first values.
SHARE = 0.999
PUBLISHED_RUNS = 20


def improvement(streams: list[pak_runs.Stream], runs: int) -> Iterator[list[str]]:
    for stream in streams:
        light = ", ".join(
            f"{p:g}: {'yes' if planning.check_light_tail(stream.values, p).light else 'no'}"
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


def thetas(values: Floats, runs: int, known: reference.Table) -> Iterator[list[str]]:
    n, first = values.size, values[: shared.HOLDOUT]
    for name, rule in (("S-P", SmoothQuantile), ("S-PAK", PAKQuantile)):
        for epsilon in EPSILONS:
            chosen = []
            for seed in range(runs):
                publisher = fastdp.PAK(
                    *(epsilon, 1.0 / n**2, shared.BOUND, n),
                    threshold=rule(p=0.995, delta=1.0 / n**2, clip=False),
                    holdout=shared.HOLDOUT, share=SHARE, clip=False, seed=seed,
                )  # fmt: skip
                publisher.publish(first)
                chosen.append(publisher.threshold)
            above = np.mean(np.array(chosen) > shared.BOUND)
            theirs = known.get(("pos", "theta eps=range_eps", name, epsilon))
            shown = ("-", "-") if theirs is None else (f"{theirs.theta:.3g}", f"{theirs.above:.3f}")
            yield [name, f"{epsilon:g}", f"{statistics.median(chosen):.3g}", shown[0], f"{above:.3f}", shown[1]]


def errors(values: Floats, runs: int, known: reference.Table) -> Iterator[list[str]]:
    n = values.size
    truths = np.concatenate([[0.0], np.cumsum(values[shared.HOLDOUT :])])
    for epsilon in EPSILONS:
        for clip in (False, True):
            found, chosen, times = [], [], []
            for seed in range(runs):
                publisher = fastdp.PAK(
                    *(epsilon, 1.0 / n**2, shared.BOUND, n),
                    threshold=PAKQuantile(p=0.995, delta=1.0 / n**2, clip=clip),
                    holdout=shared.HOLDOUT, share=SHARE, clip=clip, seed=seed,
                )  # fmt: skip
                begin = perf_counter()
                sums = publisher.publish(values)
                times.append(perf_counter() - begin)
                starts, stops = random_ranges(shared.PUBLISHED, shared.QUERIES, shared.MAX_RANGE, seed)
                found.append(mse(truths[stops] - truths[starts], sums[stops] - sums[starts]))
                chosen.append(publisher.threshold)
            theirs = None if clip else known.get(("pos", "end_to_end", "PAK", epsilon))
            ours = statistics.median(found)
            yield [
                "PAK, clipped at B" if clip else "PAK, tau as it falls",
                f"{epsilon:g}", f"{statistics.median(chosen):.3g}", f"{ours:.2g}",
                f"{min(found):.2g} to {max(found):.2g}",
                *("---" if theirs is None else
                  (f"{theirs.theta:.3g}", f"{theirs.mse:.2g}", f"{ours / theirs.mse:.2f}")),
                f"{statistics.median(times) * 1e3:.0f}",
            ]  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=200, help="runs of each kind (default 200)")
    parser.add_argument("--reference", type=Path, default=REFERENCE, help="folder of the authors' figures")
    add_data_option(parser)


def run(options: argparse.Namespace) -> None:
    streams = pak_runs.load(options.data)
    chosen, whole = (reference.read(options.reference / f"dp-cont-{name}.csv") for name in ("thresholds", "accuracy"))
    values = streams[-1].values
    shared.table(
        f"PAK against the plain binary tree: error of the sum at step n, {options.runs} runs; eps = 1, "
        "delta = 2^-20, beta = 0.02, best parameters by bound; errors (medians of absolute values) in units of B",
        ["stream", "n", "B", "m", "IF, bound", "IF, medians", "IF, means", "plain", "PAK", "of it clipping",
         "clipping / its bound", "r", "r tau", "light beyond p"],
        improvement(streams, options.runs),
    )  # fmt: skip
    shared.table(
        f"theta before the clip to B on POS, p = 0.995, {options.runs} runs (reference: 1,000)",
        ["method", "eps", "median", "reference", "share above B", "reference"],
        thetas(values, options.runs, chosen),
    )
    runs = min(options.runs, PUBLISHED_RUNS)
    shared.table(
        f"MSE of 200 random ranges from running sums, POS, n = 2^20 + 65,536, p = 0.995, medians of {runs} runs",
        [
            "method",
            "eps",
            "theta",
            "MSE",
            "least to largest",
            "reference theta",
            "reference MSE",
            "ratio",
            "ms a run",
        ],
        errors(values, runs, whole),
    )
