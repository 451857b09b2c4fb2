"""Adaptive(sensitivity=1) on buckets of events, beside Laplace per bucket, flat blocks and PeGaSus.

Root mean square errors of sums over ranges of 1 to 10^4 buckets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import fastdp
from benchmarks.accuracy.streams import REAL
from benchmarks.peers.online import PeGaSus
from benchmarks.shared import DATA, Data, Floats, Runs, geometric, prefix_sums, table

EPSILONS = (0.01, 0.1, 1.0)
LENGTHS = (1, 10, 100, 1000, 10_000)
FLAT = (4, 16, 64, 256)
REVISED, PUBLISHED = "Adaptive, revised", "Adaptive, published"
#: Root mean square errors by method, an entry a length.
Errors = dict[str, Floats]


def pedestrians(data: Path) -> Floats:
    """People per hour at four sensors, one after the other (gaps left out)."""
    import pandas as pd

    frame = pd.read_parquet(data / "tables" / "pedestrians.parquet").astype({"sensor": str})
    return frame.sort_values(["sensor", "time"], kind="stable")["count"].to_numpy(float)


STREAMS: dict[str, Callable[[Path], Floats]] = {
    "taxi, minutes": REAL["pickups a minute"].values,
    "DNS": REAL["DNS"].values,
    "pedestrians, hours": pedestrians,
}


def answers(counts: Floats, epsilon: float, seed: int) -> dict[str, Floats]:
    """Private prefix sums by method, float64[n + 1] each."""
    generator = np.random.default_rng(seed)
    prefix = prefix_sums(counts)
    found = {"Laplace": prefix_sums(counts + generator.laplace(0.0, 1.0 / epsilon, counts.size))}
    for length in FLAT:
        edges = np.append(np.arange(0, counts.size, length), counts.size)
        sums = np.diff(prefix[edges]) + generator.laplace(0.0, 1.0 / epsilon, edges.size - 1)
        found[f"flat {length}"] = np.interp(np.arange(counts.size + 1), edges, prefix_sums(sums))
    online, whole = PeGaSus(epsilon).release(counts, generator)
    found |= {"PeGaSus, published": prefix_sums(online), "PeGaSus, whole groups": prefix_sums(whole)}
    release = fastdp.Adaptive(epsilon, sensitivity=1, seed=seed).release(counts)
    return found | {REVISED: prefix_sums(release.revised), PUBLISHED: prefix_sums(release.values)}


def root_means(
    runs: int, answers: Callable[[int], dict[str, Floats]], squares: Callable[[Floats], list[float]]
) -> Errors:
    """Root mean square errors of runs by method, from prefix sums by seed, and mean squares by length from these."""
    found = [{name: squares(answer) for name, answer in answers(seed).items()} for seed in range(runs)]
    return {name: np.sqrt(np.mean([each[name] for each in found], axis=0)) for name in found[0]}


def measure(counts: Floats, epsilon: float, runs: int) -> Errors:
    """Over all ranges of a length: the few values of a stream's begin have large errors."""
    prefix = prefix_sums(counts)

    def squares(answer: Floats) -> list[float]:
        errors = answer - prefix
        return [float(np.mean((errors[length:] - errors[:-length]) ** 2)) for length in LENGTHS]

    return root_means(runs, lambda seed: answers(counts, epsilon, seed), squares)


def over_best(cells: list[Errors]) -> dict[str, Floats]:
    """Errors of Adaptive's answers over those of the best other method in hindsight: [cells, lengths]."""
    ours = (REVISED, PUBLISHED)
    best = [np.min([found for name, found in each.items() if name not in ours], axis=0) for each in cells]
    return {name: np.array([each[name] for each in cells]) / best for name in ours}


def show(results: dict[tuple[str, float], Errors]) -> None:
    """Errors of every cell, and how Adaptive compares with the best of the others in hindsight."""
    rows, ratios = [], over_best(list(results.values()))
    for cell, ((stream, epsilon), errors) in enumerate(results.items()):
        others = [name for name in errors if name not in ratios]
        for k, length in enumerate(LENGTHS):
            best = min(others, key=lambda name, k=k: errors[name][k])  # type: ignore[misc]
            line = [f"{stream}, {epsilon:g}" if not k else "", length, errors["Laplace"][k]]
            line += [min(errors[n][k] for n in others if "PeG" in n), f"{errors[best][k]:.3g} ({best})"]
            rows.append([*line, *(f"{errors[n][k]:.3g} ({found[cell, k]:.2f})" for n, found in ratios.items())])
    columns = ["stream, epsilon", "buckets", "Laplace", "PeGaSus", "best of the others", REVISED, PUBLISHED]
    table("Root mean square error of sums (and divided by the best of the others in hindsight)", columns, rows)
    table(
        "Errors divided by the best of the others in hindsight (targets: geometric mean .8, none above 1.5)",
        ["", "geometric mean", "largest", "cells up to 1.5", *(f"{n:,}" for n in LENGTHS)],
        [
            [name, geometric(found), found.max(), f"{np.mean(found <= 1.5):.0%}", *geometric(found, axis=0)]
            for name, found in ratios.items()
        ],
    )


def run(*, data: Data = DATA, runs: Runs = 5) -> None:
    streams = {name: read(data) for name, read in STREAMS.items()}
    show({(name, e): measure(counts, e, runs) for name, counts in streams.items() for e in EPSILONS})
