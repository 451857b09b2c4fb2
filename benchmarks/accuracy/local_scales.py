"""ToPL's theta by the linear and by the logarithmic square wave, beside the best theta for the same stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks import shared
from benchmarks.accuracy.scale_free import Case
from benchmarks.accuracy.scenes import STREAMS, read_values
from benchmarks.shared import table
from fastdp.local import Hybrid
from fastdp.randomness import Key
from fastdp.thresholds import SquareWave, ThresholdTask

RULES = {
    "linear, plain EM": SquareWave(),
    "linear, accelerated": SquareWave(accelerate=True),
    "logarithmic": SquareWave(scale="logarithmic"),
}


def show(folder: Path, epsilons: Sequence[float], draws: int) -> None:
    """One row a stream and budget, both groups of users with the same epsilon."""
    start = perf_counter()
    rows = list(_lines(folder, epsilons, draws))
    table(
        f"Expected MSE of random ranges (n = r = 2^20) over the best theta's, medians of {draws} draws (9th decile); "
        f"m = 65,536, one eps for both groups; {perf_counter() - start:.0f} s",
        ["stream", "eps", "best theta", *(part for name in RULES for part in (f"{name}: theta", "ratio"))],
        rows,
    )


def _lines(folder: Path, epsilons: Sequence[float], draws: int) -> Iterator[list[str]]:
    for name, stream in STREAMS.items():
        case = Case.of(name, read_values(folder, stream), stream.bound)
        for epsilon in epsilons:
            # Ranges of 1 to r values have r / 3 reports on average.
            noise = shared.MAX_RANGE / 3.0 * Hybrid(epsilon, 0.0, 1.0).worst_variance
            task = ThresholdTask(epsilon, case.bound, case.held.size, shared.MAX_RANGE, case.bound / 2.0**20)
            cells = [name, f"{epsilon:g}", f"{case.best(noise)[0]:.4g}"]
            for rule in RULES.values():
                chooser = rule.start(task)
                chooser.observe(case.held)
                thetas = np.array([chooser.choose(Key.from_seed(seed)) for seed in range(draws)])
                middle, high = (case.ratio(noise, thetas, level) for level in (0.5, 0.9))
                cells += [f"{np.median(thetas):.4g}", f"{middle:.3g} ({high:.3g})"]
            yield cells
