"""Adaptive(sensitivity=1) on buckets of events, beside Laplace per bucket, flat blocks and PeGaSus.

Root mean square errors of sums over ranges of 1 to 10^4 buckets.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.peers.online import PeGaSus
from benchmarks.shared import Floats, add_data_option, table
from fastdp import Adaptive

EPSILONS = (0.01, 0.1, 1.0)
LENGTHS = (1, 10, 100, 1000, 10_000)
FLAT = (4, 16, 64, 256)
REVISED, PUBLISHED = "Adaptive, revised", "Adaptive, published"


def taxi(data: Path) -> Floats:
    """New York pickups per minute."""
    with gzip.open(data / "uber_nyc_b02512.csv.gz", "rt") as lines:
        times = [row["t"] for row in csv.DictReader(lines)]
    stamps = np.array(times, np.int64) // 60
    return np.bincount(stamps - stamps.min()).astype(float)


def dns(data: Path) -> Floats:
    """Queries per interval."""
    with np.load(data / "dns_google_1k.npz") as arrays:
        return np.asarray(arrays[arrays.files[0]], float)


def pedestrians(data: Path) -> Floats:
    """People per hour at four sensors, one after the other (gaps left out)."""
    import pyarrow.parquet as parquet

    frame = parquet.read_table(data / "tables" / "pedestrians.parquet")
    order = np.lexsort((frame["time"].to_numpy(), frame["sensor"].to_pandas().astype(str).to_numpy()))
    return frame["count"].to_numpy()[order].astype(float)


STREAMS: dict[str, Callable[[Path], Floats]] = {"taxi, minutes": taxi, "DNS": dns, "pedestrians, hours": pedestrians}


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
    release = Adaptive(epsilon, sensitivity=1, seed=seed).release(counts)
    return found | {REVISED: prefix_sums(release.revised), PUBLISHED: prefix_sums(release.values)}


def prefix_sums(values: Floats) -> Floats:
    """Sums before each position: float64[n + 1]."""
    return np.concatenate([np.zeros(1), np.cumsum(values)])


def measure(counts: Floats, epsilon: float, runs: int) -> dict[str, list[float]]:
    """Root mean square errors by method and length."""
    squares: dict[str, list[list[float]]] = {}
    prefix = prefix_sums(counts)
    for seed in range(runs):
        for name, answer in answers(counts, epsilon, seed).items():
            errors = answer - prefix
            # All ranges of a length: the few values of a stream's begin have large errors.
            cells = [float(np.mean((errors[length:] - errors[:-length]) ** 2)) for length in LENGTHS]
            squares.setdefault(name, []).append(cells)
    return {name: np.sqrt(np.mean(rows, axis=0)).tolist() for name, rows in squares.items()}


def show(results: list[dict[str, object]]) -> None:
    """Errors of every cell, and how Adaptive compares with the best of the others in hindsight."""
    rows, ratios = [], {REVISED: [], PUBLISHED: []}  # type: ignore[var-annotated]
    for cell in results:
        errors = {name: np.array(values) for name, values in cell["errors"].items()}  # type: ignore[attr-defined]
        others = [name for name in errors if name not in ratios]
        best = np.min([errors[name] for name in others], axis=0)
        names = [others[int(i)] for i in np.argmin([errors[name] for name in others], axis=0)]
        for name, found in ratios.items():
            found.append(errors[name] / best)
        for k, length in enumerate(LENGTHS):
            line = [f"{cell['stream']}, {cell['epsilon']:g}" if not k else "", f"{length:,}"]
            line += [f"{errors['Laplace'][k]:.3g}", f"{min(errors[n][k] for n in others if 'PeG' in n):.3g}"]
            line += [f"{best[k]:.3g} ({names[k]})"]
            rows.append([*line, *(f"{errors[n][k]:.3g} ({errors[n][k] / best[k]:.2f})" for n in ratios)])
    columns = ["stream, epsilon", "buckets", "Laplace", "PeGaSus", "best of the others", REVISED, PUBLISHED]
    table(
        "Root mean square error of sums of buckets (and divided by the best of the others in hindsight)",
        columns,
        rows,
    )
    summary = []
    for name, found in ratios.items():
        every = np.concatenate(found)
        by_length = np.exp(np.log(np.array(found)).mean(axis=0))
        cells = [f"{np.exp(np.log(every).mean()):.2f}", f"{every.max():.2f}", f"{100 * np.mean(every <= 1.5):.0f} %"]
        summary.append([name, *cells, *(f"{value:.2f}" for value in by_length)])
    table(
        "Errors divided by the best of the others in hindsight (targets: geometric mean .8, none above 1.5)",
        ["", "geometric mean", "largest", "cells up to 1.5", *(f"{n:,}" for n in LENGTHS)],
        summary,
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    add_data_option(parser)
    parser.add_argument("--runs", type=int, default=5, help="runs of each cell (default 5)")


def run(options: argparse.Namespace) -> int:
    results = []
    for name, read in STREAMS.items():
        counts = read(options.data)
        for epsilon in EPSILONS:
            errors = measure(counts, epsilon, options.runs)
            results.append({"stream": name, "epsilon": epsilon, "buckets": counts.size, "errors": errors})
    show(results)
    return 0
