"""ToPL end to end on real streams: theta and the error of 200 random ranges, beside the authors' code."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from benchmarks import shared
from benchmarks.accuracy import published
from benchmarks.accuracy.published import Published, Row, Table, ratio, read, shown_theta
from benchmarks.accuracy.streams import ARRAYS, REAL, STREAMS
from benchmarks.shared import DATA, Data, Floats, geometric, table
from fastdp import local
from fastdp.noise import Key
from fastdp.thresholds import SquareWave, ThresholdTask
from fastdp_lab.datasets import TABLE1, hold_out_and_extend, table1
from fastdp_lab.queries import random_ranges

#: The reference has the DNS stream with B = 500 (its thetas are multiples of 500 / 1024), the paper with 2000.
WIDE_DNS = "DNS, wide"
BOUNDS = {"POS": 1657, "DNS": 500, WIDE_DNS: 2000, "taxi distance": 30_000, "MSNBC": 41_270}
EPSILONS = (0.2, 0.5, 1.0, 1.5, 2.0)
STREAM_EPSILON = 1.0
BASE = "Base (zeros)"


def variants() -> dict[str, tuple[str, dict[str, Any]]]:
    """Rows: the published code's rule that each is held against, and its threshold's table."""
    objectives = (("paper", ""), ("corrected", " (Eq.8 corrected)"))
    plain = (("plain", False), ("accelerated", True))
    return {
        **{
            f"SW-W, {objective}, {em} EM": (f"SW-W{there}", {"objective": objective, "accelerate": fast})
            for objective, there in objectives
            for em, fast in plain
        },
        **{f"SW, {each}": (f"SW{there}", {"objective": each, "method": "sw"}) for each, there in objectives},
        "99.5 % of EMS": ("", {"method": "percentile"}),
    }


def measure(data: Path, name: str, rules: Mapping[str, dict[str, Any]], own: float, epsilon: float, runs: int) -> Any:
    """Thetas and errors by rule and Base's; ``own`` is the budget of the users before the threshold."""
    square = {each: {"part": "SquareWave", **options} for each, options in rules.items()}
    rows = [
        Row(each, {"system": "topl", "threshold": part, "threshold_epsilon": own}) for each, part in square.items()
    ]
    rows.append(Row(BASE, {"system": "base"}))
    return published.measure(data, name.partition(",")[0], rows, epsilon, runs, bound=BOUNDS[name])


def key_of(name: str, method: str, epsilon: float, *, fixed: bool = True) -> tuple[str, str, str, float]:
    """Position of the published code's threshold, with the correct mixture, in the reference."""
    stream, experiment = (
        STREAMS[name.partition(",")[0]],
        "ToPL range_eps=" + (f"{STREAM_EPSILON:g}" if fixed else "eps"),
    )
    return stream.reference if stream.bound == BOUNDS[name] else "", experiment, f"{method} + HM mixture", epsilon


def show(name: str, data: Path, runs: int, epsilons: Sequence[float], known: Table) -> None:
    rules = variants()
    for fixed in (True, False):
        rows, base = [], []
        for epsilon in epsilons:
            options = {title: rule for title, (_, rule) in rules.items()}
            found = measure(data, name, options, epsilon, STREAM_EPSILON if fixed else epsilon, runs).groupby(level=0)
            for title, (method, _) in rules.items():
                there = known.get(key_of(name, method, epsilon, fixed=fixed))
                rows.append([f"{epsilon:g}", title, *_cells(found.get_group(title), there)])
            there = known.get((key_of(name, "", epsilon)[0], "ToPL base", "Base", STREAM_EPSILON))
            base = ["-", BASE, *_cells(found.get_group(BASE), there)]
        budget = f"stream eps = {STREAM_EPSILON:g}" if fixed else "stream eps = threshold eps"
        measured = ("least to largest", "published", "ratio")
        table(
            f"{name}, B = {BOUNDS[name]:,}, {budget}: medians of {runs} runs (least to largest), 200 random ranges, "
            "truth not cut off; n = r = 2^20, m = 65,536. Published: with the correct mixture",
            ["threshold eps", "theta chosen by", "theta", *measured, "MSE", *measured],
            [*rows, base],
        )


def _cells(measured: Any, theirs: Published | None) -> Iterator[str]:
    for column, there, shown in zip(
        ("threshold", "mse"), theirs or (0.0, 0.0), (shown_theta, "{:.3g}".format), strict=False
    ):
        least, middle, most = measured[column].quantile([0.0, 0.5, 1.0])
        yield from (shown(middle), f"{shown(least)} to {shown(most)}")
        yield from (shown(there), ratio(middle, there)) if there else "--"


#: Thetas at which the bias is summed up exactly; between them it is interpolated.
THETAS = 250
RANGES = 2000


@dataclass
class Case:
    """A hold-out, and the squared bias of a random range by theta, from the prefix sums of what theta cuts off."""

    name: str
    bound: float
    held: Floats
    thetas: Floats
    squared_bias: Floats

    @classmethod
    def of(cls, name: str, values: Floats, bound: float) -> Case:
        m = shared.HOLDOUT if values.size > 2 * shared.HOLDOUT else values.size // 4
        stream = np.minimum(hold_out_and_extend(values, m, shared.MAX_RANGE), bound)
        held, body = stream[:m], stream[m:]
        starts, stops = random_ranges(body.size, RANGES, shared.MAX_RANGE, 5)
        thetas = np.geomspace(max(float(np.median(body)), 1.0), bound, THETAS)
        squared, prefix = np.empty(THETAS), np.zeros(body.size + 1)
        for i, theta in enumerate(thetas):
            np.cumsum(np.maximum(body - theta, 0.0), out=prefix[1:])
            squared[i] = np.mean((prefix[stops] - prefix[starts]) ** 2)
        return cls(name, bound, held, thetas, squared)

    def errors(self, noise: float, theta: Floats) -> Floats:
        """Expected squared error of a random range: the noise at theta = 1 times theta^2, and the squared bias."""
        return noise * theta**2 + np.interp(theta, self.thetas, self.squared_bias)

    def best(self, noise: float) -> tuple[float, float]:
        """The oracle's theta and its error."""
        errors = self.errors(noise, self.thetas)
        return float(self.thetas[errors.argmin()]), float(errors.min())

    def ratio(self, noise: float, thetas: Floats, level: float = 0.5) -> float:
        """A quantile of the errors under these thetas, over the oracle's."""
        return float(np.quantile(self.errors(noise, thetas), level) / self.best(noise)[1])


RULES = {
    "linear, plain EM": SquareWave(),
    "linear, accelerated": SquareWave(accelerate=True),
    "logarithmic, free": SquareWave(scale="logarithmic"),
    "logarithmic, concave": SquareWave(scale="logarithmic", method="concave"),
}
#: Columns of the tables beside the streams; values above 0.
TABLES = {
    "bike seconds": REAL["trip seconds"]._replace(bound=604_800.0),
    "retail quantity": REAL["order items"],
    "retail pence": REAL["order pence"],
    "pedestrians": REAL["people an hour"],
}
HALVES = ("tuning", "reporting")


def half_of(name: str) -> str:
    """The half that a stream belongs to: tuning or reporting."""
    return HALVES[zlib.crc32(name.encode()) % 2]


def cases(folder: Path) -> Iterator[Case]:
    """Real streams, columns of tables where they are, and synthetic streams."""
    for name, stream in ARRAYS.items():
        yield Case.of(name, stream.values(folder), stream.bound)
    for name, stream in TABLES.items():
        if stream.there(folder):
            values = stream.values(folder)
            yield Case.of(name, values[values > 0] if name != "pedestrians" else values, stream.bound)
    for name in TABLE1:
        values = table1(name, shared.HOLDOUT + shared.MAX_RANGE, seed=0).astype(np.float64)
        yield Case.of(f"{name} iid", values, TABLE1[name].bound)


def show_scales(folder: Path, epsilons: Sequence[float], draws: int) -> None:
    """One row a stream and budget, both groups of users with the same epsilon."""
    found: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    rows = []
    for case in cases(folder):
        half = half_of(case.name)
        for epsilon in epsilons:
            # Ranges of 1 to r values have r / 3 reports on average.
            noise = shared.MAX_RANGE / 3.0 * local.Hybrid(epsilon, 0.0, 1.0).worst_variance
            task = ThresholdTask(epsilon, case.bound, case.held.size, shared.MAX_RANGE, case.bound / 2.0**20)
            cells = [case.name, half, f"{epsilon:g}", f"{case.best(noise)[0]:.4g}"]
            for title, rule in RULES.items():
                chooser = rule.start(task)
                chooser.observe(case.held)
                thetas = np.array([chooser.choose(Key.from_seed(seed)) for seed in range(draws)])
                middle, high = (case.ratio(noise, thetas, level) for level in (0.5, 0.9))
                found[half, title, epsilon].append(middle)
                cells += [f"{np.median(thetas):.4g}", f"{middle:.3g} ({high:.3g})"]
            rows.append(cells)
    table(
        f"Expected MSE of random ranges (n = r = 2^20) over the best theta's, medians of {draws} draws (9th decile); "
        "m = 65,536, one eps for both groups",
        ["stream", "half", "eps", "best theta", *(part for name in RULES for part in (f"{name}: theta", "ratio"))],
        rows,
    )
    summary = [
        [
            half,
            f"{e:g}",
            *(f"{geometric(found[half, rule, e]):.3g} ({max(found[half, rule, e]):.3g})" for rule in RULES),
        ]
        for half in HALVES
        for e in epsilons
    ]
    table("The same by half: geometric mean of the streams' medians (the worst)", ["half", "eps", *RULES], summary)


PARTS = ("accuracy", "scales")


def run(
    *,
    runs: Annotated[int, "simulations of each kind"] = 10,
    streams: Annotated[Sequence[str], "of the tables of errors", list(BOUNDS)] = ("POS", "DNS", WIDE_DNS),
    epsilons: Annotated[Sequence[float], "of the users before the threshold"] = EPSILONS,
    only: Annotated[Sequence[str], "which tables", PARTS] = PARTS,
    data: Data = DATA,
    reference: published.Reference = published.ACCURACY,
) -> None:
    if "accuracy" in only:
        for name in streams:
            show(name, data, runs, epsilons, read(reference))
    if "scales" in only:
        show_scales(data, epsilons, runs)
