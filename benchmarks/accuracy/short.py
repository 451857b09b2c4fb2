"""Streams of 24 to 1,000 values beside two rivals: a Laplace number for each value, and one of the total.

Both rivals clip at the public bound and have the whole of epsilon; their errors are exact.  A value's answer is its
own noisy value, or the total over n.  A cell (stream, length, epsilon) has parts spread over the stream.  Coverage is
that of true sums at 95 %.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import fastdp
from benchmarks.accuracy import streams
from benchmarks.accuracy.streams import REPORTING, TUNING
from benchmarks.shared import DATA, Data, Floats, geometric, prefix_sums, table
from fastdp.errors import AccuracyWarning

SIZES = (24, 100, 365, 1000)
EPSILONS = (0.1, 0.5, 1.0)
ANSWERS = ("value", "total")
TARGET = 1.2
#: Parts of a stream, ranges whose intervals are counted, and the bound of :func:`shapes`.
PARTS, RANGES, BOUND = 5, 50, 200.0


def shapes(n: int) -> dict[str, Floats]:
    """Streams that are hard to clip or to predict."""
    place, generator = np.arange(n) / n, np.random.default_rng(1)
    return {
        "at the bound": np.full(n, 195.0),
        "half the bound": generator.normal(108.0, 5.0, n).clip(0.0, BOUND),
        "nine of ten 0": np.where(generator.random(n) < 0.1, 60.0, 0.0),
        "99 of 100 0": np.where(generator.random(n) < 0.01, 150.0, 0.0),
        "far below": generator.gamma(4.0, 0.25, n),
        "a step up": np.where(place < 0.75, 4.0, 120.0),
        "a step down": np.where(place < 0.25, 120.0, 4.0),
        "a wave": 20.0 + 20.0 * np.sin(np.arange(n) * (2.0 * np.pi / 24.0)),
        "a ramp": 150.0 * place,
        "all 0": np.zeros(n),
    }


def cases(folder: Path) -> Iterator[tuple[str, float, list[Floats]]]:
    """Name, public bound, and parts of each length."""
    for name in streams.every(folder):
        values, bound, _ = streams.extended(name, folder)
        for n in SIZES:
            yield name, bound, [values[at : at + n] for at in np.linspace(0, values.size - n, PARTS).astype(int)]
    for n in SIZES:
        for name, values in shapes(n).items():
            yield name, BOUND, [values]


def cell(name: str, bound: float, parts: list[Floats], epsilon: float, repetitions: int) -> dict[str, Any]:
    """Errors over the better rival's, and coverage of ranges and of the total."""
    n = parts[0].size
    starts, stops = np.sort(np.random.default_rng(n).integers(0, n + 1, (2, RANGES)), axis=0)
    # The first range is the total.
    starts[0], stops[0] = 0, n
    ours, theirs, hits = np.zeros(2), np.zeros(2), np.zeros(RANGES)
    for number in range(repetitions):
        values = parts[number % len(parts)]
        release = fastdp.release(values, epsilon, bound, seed=f"{name}, {n}, {epsilon}, {number}")
        before = prefix_sums(values)
        ours += np.mean((release.values - values) ** 2), (release.sum(0, n)[0] - before[-1]) ** 2
        noise = 2.0 * (bound / epsilon) ** 2
        theirs += min(noise, np.var(values) + noise / n**2), noise
        low, high = release.interval(starts, stops)
        truth = before[stops] - before[starts]
        rounding = 1e-9 * bound
        hits += (low <= truth + rounding) & (truth <= high + rounding)
    found = {"stream": name, "half": streams.half(name), "n": n, "epsilon": epsilon}
    found |= dict(zip(ANSWERS, np.sqrt(ours / theirs).tolist(), strict=True))
    return found | {"covered": hits[1:].mean() / repetitions, "total covered": hits[0] / repetitions}


def run(
    *,
    output: Annotated[Path | None, "file for the numbers (JSON)"] = None,
    repetitions: Annotated[int, "releases of each cell"] = 1000,
    data: Data = DATA,
) -> None:
    """Measure, keep, show."""
    warnings.simplefilter("ignore", AccuracyWarning)
    found = [cell(*case, epsilon, repetitions) for case in cases(data) for epsilon in EPSILONS]
    if output:
        output.write_text(json.dumps(found, indent=1) + "\n")
    for half in (TUNING, REPORTING):
        own = [each for each in found if each["half"] == half]
        rows = []
        for n in SIZES:
            for epsilon in EPSILONS:
                cells = [each for each in own if (each["n"], each["epsilon"]) == (n, epsilon)]
                ratios = [np.array([each[name] for each in cells]) for name in ANSWERS]
                least = [f"{min(each[name] for each in cells):.0%}" for name in ("covered", "total covered")]
                rows.append([n, f"{epsilon:g}", *(f"{geometric(r):.2f} ({r.max():.2f})" for r in ratios), *least])
        columns = ["values", "epsilon", *ANSWERS, "least coverage of ranges", "of totals"]
        table(f"{half} half: error over the better rival's, geometric mean (largest)", columns, rows)
        worse = [each for each in own if max(each[name] for name in ANSWERS) > TARGET or each["covered"] < 0.9]
        table(
            f"{half} half: above {TARGET:g}, or coverage below 90 %", list(own[0]), [list(e.values()) for e in worse]
        )
