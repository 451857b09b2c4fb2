"""PAK measured: improvement over the plain binary tree on real streams, and POS beside the authors' code."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Annotated

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.accuracy.published import Table, read
from benchmarks.paper import pak_runs
from benchmarks.shared import DATA, REFERENCE, Data, Floats, Runs, prefix_sums, table
from fastdp.thresholds import PAKQuantile, SmoothQuantile, Threshold
from fastdp_lab import planning
from fastdp_lab.queries.metrics import mse
from fastdp_lab.queries.workloads import random_ranges

LAGS = (50_000, 100_000)
EPSILONS = (0.01, 0.05, 0.1)
#: The published code spends all of epsilon on the threshold; ranges do not need the sum of the first values.
SHARE = 0.999
PUBLISHED_RUNS = 20


def improvement(streams: list[pak_runs.Stream], runs: int) -> Iterator[list[object]]:
    for stream in streams:
        light = {p: planning.check_light_tail(stream.values, p).light for p in (0.01, 0.005, 0.001)}
        for m in LAGS:
            found = pak_runs.measure(stream, m, 1.0, runs)
            best, estimate = found.optimum, pak_runs.outlier_bound(found, stream.values.size)
            errors = [float(np.median(np.abs(each)) / stream.bound) for each in (found.plain, found.pak)]
            clipped = float(np.median(-found.clipped))
            yield [
                *(stream.name, stream.values.size, f"{stream.bound:g}", m, best.improvement, found.factor_of_medians),
                *(found.factor_of_means, *errors),
                *((None, None) if best.fallback else (clipped / stream.bound, clipped / estimate)),
                *(best.r, np.median(found.thresholds)),
                ", ".join(f"{p:g}: {'yes' if each else 'no'}" for p, each in light.items()),
            ]


def _publisher(rule: Callable[..., Threshold], epsilon: float, n: int, seed: int, *, clip: bool) -> fastdp.PAK:
    threshold, options = rule(p=0.995, delta=1.0 / n**2, clip=clip), {"holdout": shared.HOLDOUT, "share": SHARE}
    return fastdp.PAK(epsilon, 1.0 / n**2, shared.BOUND, n, threshold=threshold, clip=clip, seed=seed, **options)


def thetas(values: Floats, runs: int, known: Table) -> Iterator[list[object]]:
    for name, rule in (("S-P", SmoothQuantile), ("S-PAK", PAKQuantile)):
        for epsilon in EPSILONS:
            publishers = [_publisher(rule, epsilon, values.size, seed, clip=False) for seed in range(runs)]
            for publisher in publishers:
                publisher.publish(values[: shared.HOLDOUT])
            chosen = np.array([publisher.threshold for publisher in publishers])
            theirs, above = (
                known.get(("pos", "theta eps=range_eps", name, epsilon)),
                float(np.mean(chosen > shared.BOUND)),
            )
            there = (None, None) if theirs is None else (theirs.theta, theirs.above)
            yield [name, f"{epsilon:g}", float(np.median(chosen)), there[0], above, there[1]]


def errors(values: Floats, runs: int, known: Table) -> Iterator[list[object]]:
    truths = prefix_sums(values[shared.HOLDOUT :])
    for epsilon in EPSILONS:
        for clip in (False, True):
            found, chosen, times = [], [], []
            for seed in range(runs):
                publisher = _publisher(PAKQuantile, epsilon, values.size, seed, clip=clip)
                begin = perf_counter()
                sums = publisher.publish(values)
                times.append(perf_counter() - begin)
                starts, stops = random_ranges(shared.PUBLISHED, shared.QUERIES, shared.MAX_RANGE, seed)
                found.append(mse(truths[stops] - truths[starts], sums[stops] - sums[starts]))
                chosen.append(publisher.threshold)
            theirs = None if clip else known.get(("pos", "end_to_end", "PAK", epsilon))
            ours = statistics.median(found)
            there = [None] * 3 if theirs is None else [theirs.theta, f"{theirs.mse:.2g}", ours / theirs.mse]
            spread = [statistics.median(chosen), f"{ours:.2g}", f"{min(found):.2g} to {max(found):.2g}"]
            name = "PAK, clipped at B" if clip else "PAK, tau as it falls"
            yield [name, f"{epsilon:g}", *spread, *there, statistics.median(times) * 1e3]


def run(
    *, runs: Runs = 200, reference: Annotated[Path, "folder of the authors' figures"] = REFERENCE, data: Data = DATA
) -> None:
    streams = pak_runs.load(data)
    chosen, whole = (read(reference / f"dp-cont-{name}.csv") for name in ("thresholds", "accuracy"))
    values, few = streams[-1].values, min(runs, PUBLISHED_RUNS)
    table(
        f"PAK against the plain binary tree: error of the sum at step n, {runs} runs; eps = 1, "
        "delta = 2^-20, beta = 0.02, best parameters by bound; errors (medians of absolute values) in units of B",
        [
            *("stream", "n", "B", "m", "IF, bound", "IF, medians", "IF, means", "plain", "PAK", "of it clipping"),
            *("clipping / its bound", "r", "r tau", "light beyond p"),
        ],
        improvement(streams, runs),
    )
    columns = ["method", "eps", "median", "reference", "share above B", "reference"]
    title = f"theta before the clip to B on POS, p = 0.995, {runs} runs (reference: 1,000)"
    table(title, columns, thetas(values, runs, chosen))
    columns = [
        "method",
        "eps",
        "theta",
        "MSE",
        "least to largest",
        "reference theta",
        "reference MSE",
        "ratio",
        "ms a run",
    ]
    title = f"MSE of 200 random ranges from running sums, POS, n = 2^20 + 65,536, p = 0.995, medians of {few} runs"
    table(title, columns, errors(values, few, whole))
