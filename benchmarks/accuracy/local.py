"""ToPL end to end on real streams: theta and the error of 200 random ranges; a test holds it beside the authors' code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.accuracy import published
from benchmarks.accuracy.published import Row
from benchmarks.accuracy.streams import STREAMS

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
