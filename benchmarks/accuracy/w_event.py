"""w-event privacy: Adaptive(contributions=w) beside Uniform, Sample, budget distribution and budget absorption.

Root mean square errors of sums of values; the bound is theta for all of them, and no value is held out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import ROOT
from benchmarks.accuracy.counts_mode import PUBLISHED, REVISED, dns, pedestrians, prefix_sums, taxi
from benchmarks.shared import Floats, add_data_option, table
from fastdp import Adaptive
from fastdp_lab.baselines.w_event import SCHEMES, WEvent

RESULTS = ROOT / "benchmarks" / "results" / "w_event.json"
WINDOWS = (10, 40, 120)
EPSILONS = (0.1, 1.0)
LENGTHS = (1, 10, 100, 1000)
QUERIES = 4000
#: Of each stream, its first values, and what a value is publicly known not to exceed.
VALUES = 20_000
STREAMS: dict[str, tuple[Callable[[Path], Floats], float]] = {
    "taxi, minutes": (taxi, 10.0),
    "pedestrians, hours": (pedestrians, 5000.0),
    "DNS": (dns, 30.0),
}
NAMES = dict(zip(SCHEMES, ("Uniform", "Sample", "BD", "BA"), strict=True))


def answers(values: Floats, epsilon: float, bound: float, w: int, seed: int) -> dict[str, Floats]:
    """Private prefix sums by method."""
    found = {
        NAMES[scheme]: prefix_sums(WEvent(scheme, epsilon, bound, w, seed=seed).publish(values)) for scheme in SCHEMES
    }
    publisher = Adaptive(epsilon, bound, max_range=2**14, threshold=bound, contributions=w, seed=seed)
    release = publisher.release(values)
    return found | {REVISED: prefix_sums(release.revised), PUBLISHED: prefix_sums(release.values)}


def measure(values: Floats, epsilon: float, bound: float, w: int, runs: int) -> dict[str, list[float]]:
    """Root mean square errors by method and length."""
    truth, generator = prefix_sums(values), np.random.default_rng(5)
    starts = [generator.integers(0, values.size - length + 1, QUERIES) for length in LENGTHS]
    squares: dict[str, list[list[float]]] = {}
    for seed in range(runs):
        for name, answer in answers(values, epsilon, bound, w, seed).items():
            errors = answer - truth
            cells = [float(np.mean((errors[a + n] - errors[a]) ** 2)) for a, n in zip(starts, LENGTHS, strict=True)]
            squares.setdefault(name, []).append(cells)
    return {name: np.sqrt(np.mean(rows, axis=0)).tolist() for name, rows in squares.items()}


def show(cells: list[dict[str, object]]) -> None:
    """A row a cell; errors by length."""
    rows, ratios = [], {REVISED: [], PUBLISHED: []}  # type: ignore[var-annotated]
    for cell in cells:
        errors: dict[str, list[float]] = cell["errors"]  # type: ignore[assignment]
        best = np.min([found for name, found in errors.items() if name not in ratios], axis=0)
        for name, found in ratios.items():
            found.append(np.array(errors[name]) / best)
        row = [f"{cell['stream']}, {cell['epsilon']:g}, {cell['w']}"]
        rows.append(row + [" / ".join(f"{error:.3g}" for error in found) for found in errors.values()])
    columns = ["stream, epsilon, w", *errors]
    lengths = " / ".join(f"{n:,}" for n in LENGTHS)
    table(f"Root mean square error of sums of {lengths} values", columns, rows)
    summary = []
    for name, found in ratios.items():
        means = np.exp(np.log(np.array(found)).mean(axis=0))
        summary.append(
            [name, *(f"{mean:.2f} ({most:.2f})" for mean, most in zip(means, np.max(found, 0), strict=True))]
        )
    title = "Error divided by that of the best baseline in hindsight: geometric mean (largest)"
    table(title, ["", *(f"{n:,}" for n in LENGTHS)], summary)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_data_option(parser)
    parser.add_argument("--runs", type=int, default=2, help="runs of each cell (default 2)")
    parser.add_argument("--write", action="store_true", help=f"store the errors in {RESULTS.relative_to(ROOT)}")


def run(options: argparse.Namespace) -> int:
    cells: list[dict[str, object]] = []
    for name, (read, bound) in STREAMS.items():
        values = np.minimum(read(options.data)[:VALUES], bound)
        for epsilon in EPSILONS:
            for w in WINDOWS:
                errors = measure(values, epsilon, bound, w, options.runs)
                cells.append({"stream": name, "epsilon": epsilon, "w": w, "errors": errors})
    show(cells)
    if options.write:
        RESULTS.write_text(json.dumps({"runs": options.runs, "lengths": LENGTHS, "cells": cells}, indent=1) + "\n")
    return 0
