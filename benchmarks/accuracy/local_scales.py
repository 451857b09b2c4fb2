"""ToPL's theta by the linear and by the logarithmic square wave, beside the best theta for the same stream.

The constants of the concave estimate were chosen on the streams of the tuning half; a stream's half follows from its
name.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks import shared
from benchmarks.accuracy.scale_free import REAL, Case
from benchmarks.accuracy.scenes import read_values
from benchmarks.shared import table
from fastdp.local import Hybrid
from fastdp.noise import Key
from fastdp.thresholds import SquareWave, ThresholdTask
from fastdp_lab.datasets import table1
from fastdp_lab.datasets.catalogue import TABLE1

RULES = {
    "linear, plain EM": SquareWave(),
    "linear, accelerated": SquareWave(accelerate=True),
    "logarithmic, free": SquareWave(scale="logarithmic"),
    "logarithmic, concave": SquareWave(scale="logarithmic", method="concave"),
}
#: Columns of the tables beside the streams: file, column, bound; values above 0 in the order of time.
TABLES = {
    "bike seconds": ("bike_trips", "duration_s", 604_800.0),
    "retail quantity": ("retail_lines", "quantity", 100_000.0),
    "retail pence": ("retail_lines", "amount_pence", 1e7),
    "pedestrians": ("pedestrians", "count", 20_000.0),
}
HALVES = ("tuning", "reporting")


def half_of(name: str) -> str:
    """Which half a stream belongs to."""
    return HALVES[zlib.crc32(name.encode()) % 2]


def cases(folder: Path) -> Iterator[Case]:
    """Real streams, columns of tables where they are, and synthetic streams."""
    for name, stream in REAL.items():
        yield Case.of(name, read_values(folder, stream), stream.bound)
    for name, (file, column, bound) in TABLES.items():
        path = folder / "tables" / f"{file}.parquet"
        if path.is_file():
            import pandas as pd

            values = pd.read_parquet(path).sort_values("time", kind="stable")[column].to_numpy(np.float64)
            yield Case.of(name, values[values > 0] if column != "count" else values, bound)
    for name in TABLE1:
        values = table1(name, shared.HOLDOUT + shared.MAX_RANGE, seed=0).astype(np.float64)
        yield Case.of(f"{name} iid", values, TABLE1[name].bound)


def show(folder: Path, epsilons: Sequence[float], draws: int) -> None:
    """One row a stream and budget, both groups of users with the same epsilon."""
    start = perf_counter()
    found: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    rows = list(_lines(folder, epsilons, draws, found))
    table(
        f"Expected MSE of random ranges (n = r = 2^20) over the best theta's, medians of {draws} draws (9th decile); "
        f"m = 65,536, one eps for both groups; {perf_counter() - start:.0f} s",
        ["stream", "half", "eps", "best theta", *(part for name in RULES for part in (f"{name}: theta", "ratio"))],
        rows,
    )
    table(
        "The same by half: geometric mean of the streams' medians (the worst)",
        ["half", "eps", *RULES],
        [
            [half, f"{epsilon:g}", *(_summary(found[half, rule, epsilon]) for rule in RULES)]
            for half in HALVES
            for epsilon in epsilons
        ],
    )


def _summary(ratios: list[float]) -> str:
    return f"{np.exp(np.mean(np.log(ratios))):.3g} ({max(ratios):.3g})"


def _lines(
    folder: Path, epsilons: Sequence[float], draws: int, found: dict[tuple[str, str, float], list[float]]
) -> Iterator[list[str]]:
    for case in cases(folder):
        name, half = case.name, half_of(case.name)
        for epsilon in epsilons:
            # Ranges of 1 to r values have r / 3 reports on average.
            noise = shared.MAX_RANGE / 3.0 * Hybrid(epsilon, 0.0, 1.0).worst_variance
            task = ThresholdTask(epsilon, case.bound, case.held.size, shared.MAX_RANGE, case.bound / 2.0**20)
            cells = [name, half, f"{epsilon:g}", f"{case.best(noise)[0]:.4g}"]
            for title, rule in RULES.items():
                chooser = rule.start(task)
                chooser.observe(case.held)
                thetas = np.array([chooser.choose(Key.from_seed(seed)) for seed in range(draws)])
                middle, high = (case.ratio(noise, thetas, level) for level in (0.5, 0.9))
                found[half, title, epsilon].append(middle)
                cells += [f"{np.median(thetas):.4g}", f"{middle:.3g} ({high:.3g})"]
            yield cells
