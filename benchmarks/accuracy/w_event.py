"""w-event privacy: Adaptive(contributions=w) beside Uniform, Sample, budget distribution and budget absorption.

Root mean square errors of sums of values; the bound is theta for all of them, and no value is held out.
"""

from __future__ import annotations

import json
from typing import Annotated

import numpy as np

from benchmarks import ROOT
from benchmarks.accuracy.counts_mode import PUBLISHED, REVISED, STREAMS, Errors, over_best, root_means
from benchmarks.shared import DATA, Data, Floats, Runs, geometric, prefix_sums, table
from fastdp import Adaptive
from fastdp_lab.baselines.w_event import SCHEMES, WEvent

RESULTS = ROOT / "benchmarks" / "results" / "w_event.json"
WINDOWS = (10, 40, 120)
EPSILONS = (0.1, 1.0)
LENGTHS = (1, 10, 100, 1000)
QUERIES = 4000
#: Of each stream, its first values, and what a value is publicly known not to exceed.
VALUES = 20_000
BOUNDS = {"taxi, minutes": 10.0, "pedestrians, hours": 5000.0, "DNS": 30.0}
NAMES = dict(zip(SCHEMES, ("Uniform", "Sample", "BD", "BA"), strict=True))


def answers(values: Floats, epsilon: float, bound: float, w: int, seed: int) -> dict[str, Floats]:
    """Private prefix sums by method."""
    found = {
        NAMES[scheme]: prefix_sums(WEvent(scheme, epsilon, bound, w, seed=seed).publish(values)) for scheme in SCHEMES
    }
    publisher = Adaptive(epsilon, bound, max_range=2**14, threshold=bound, contributions=w, seed=seed)
    release = publisher.release(values)
    return found | {REVISED: prefix_sums(release.revised), PUBLISHED: prefix_sums(release.values)}


def measure(values: Floats, epsilon: float, bound: float, w: int, runs: int) -> Errors:
    truth, generator = prefix_sums(values), np.random.default_rng(5)
    starts = {length: generator.integers(0, values.size - length + 1, QUERIES) for length in LENGTHS}

    def squares(answer: Floats) -> list[float]:
        errors = answer - truth
        return [float(np.mean((errors[a + length] - errors[a]) ** 2)) for length, a in starts.items()]

    return root_means(runs, lambda seed: answers(values, epsilon, bound, w, seed), squares)


def run(
    *, data: Data = DATA, runs: Runs = 2, write: Annotated[bool, f"store the errors in {RESULTS.name}"] = False
) -> None:
    cells, rows = [], []
    for name, bound in BOUNDS.items():
        values = np.minimum(STREAMS[name](data)[:VALUES], bound)
        for epsilon in EPSILONS:
            for w in WINDOWS:
                errors = measure(values, epsilon, bound, w, runs)
                cells.append({"stream": name, "epsilon": epsilon, "w": w, "errors": errors})
                shown = [" / ".join(f"{error:.3g}" for error in found) for found in errors.values()]
                rows.append([f"{name}, {epsilon:g}, {w}", *shown])
    lengths = [f"{n:,}" for n in LENGTHS]
    table(f"Root mean square error of sums of {' / '.join(lengths)} values", ["stream, epsilon, w", *errors], rows)
    summary = [
        [name, *(f"{geometric(each):.2f} ({each.max():.2f})" for each in found.T)]
        for name, found in over_best([cell["errors"] for cell in cells]).items()  # type: ignore[misc]
    ]
    table(
        "Error divided by that of the best baseline in hindsight: geometric mean (largest)", ["", *lengths], summary
    )
    if write:
        facts = {"runs": runs, "lengths": LENGTHS, "cells": cells}
        RESULTS.write_text(json.dumps(facts, indent=1, default=np.ndarray.tolist) + "\n")
