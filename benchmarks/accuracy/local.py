"""ToPL end to end on real streams: theta and the error of 200 random ranges, beside the authors' code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from benchmarks.accuracy import published
from benchmarks.accuracy.published import Published, Row, Table, ratio, read, shown_theta
from benchmarks.accuracy.streams import STREAMS
from benchmarks.shared import DATA, Data, table

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


def run(
    *,
    runs: Annotated[int, "simulations of each kind"] = 10,
    streams: Annotated[Sequence[str], "of the tables of errors", list(BOUNDS)] = ("POS", "DNS", WIDE_DNS),
    epsilons: Annotated[Sequence[float], "of the users before the threshold"] = EPSILONS,
    data: Data = DATA,
    reference: published.Reference = published.ACCURACY,
) -> None:
    for name in streams:
        show(name, data, runs, epsilons, read(reference))
