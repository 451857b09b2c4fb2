"""Revised answers under the theta that Adaptive chooses and follows, beside the best fixed theta in hindsight.

The best theta of a stream and budget is chosen by runs of its own and judged by others ("honest"), or judged by the
runs that it was chosen from ("in hindsight"), which no rule can reach.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from typing import Annotated

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.accuracy import streams
from benchmarks.shared import DATA, Data, Floats, geometric, prefix_sums, table
from fastdp.errors import AccuracyWarning
from fastdp_lab.queries.workloads import random_ranges

R = shared.MAX_RANGE
EPSILONS = (0.01, 0.05, 0.2, 1.0)
CLASSES = (R, 100_000, 10_000, 1000)
RANGES = {longest: random_ranges(R, 400, longest, 7) for longest in CLASSES}
#: Thetas that are tried are so far apart; they begin at a stream's 90 per cent quantile.
APART, LOWEST = 1.4, 0.9
SYNTHETIC = [f"{stream} {order}" for stream in streams.SYNTHETIC for order in streams.ORDERS]
#: Runs that choose the best theta, and that judge it.
CHOOSING, JUDGING = 16, 48


def run(
    *,
    runs: Annotated[int, "releases of each cell"] = 96,
    only: Annotated[Sequence[str] | None, "streams (default: all; an hour)"] = None,
    data: Data = DATA,
) -> None:
    real, rows = streams.names(data), []
    for name in only or [*real, *streams.GROWTHS, *SYNTHETIC]:
        values, bound, m = streams.extended(name, data)
        rows += [[name, f"{e:g}", *_cell(name, values, bound, m, e, runs)] for e in EPSILONS]
    columns = ["stream", "eps", "best theta", "ours", "honest", "in hindsight"]
    table(
        f"Revised MSE over that of the best fixed theta, mean of four classes; medians of {runs} runs", columns, rows
    )
    for title, names in (
        ("real", real),
        *((f"real, {half}", [n for n in real if streams.half(n) == half]) for half in ("tuning", "reporting")),
        ("growing", list(streams.GROWTHS)),
        ("other synthetic", SYNTHETIC),
    ):
        for column, measure in ((4, "honest"), (5, "in hindsight")):
            found = np.array([row[column] for row in rows if row[0] in names])
            if found.size:
                within = f"{np.mean(found <= 1.3):.0%} of {found.size} within 1.3; worst {found.max():.3g}"
                print(f"{title}, {measure}: {geometric(found):.2f}; {within}")


def _cell(
    name: str, values: Floats, bound: float, m: int, epsilon: float, runs: int
) -> tuple[float, float, float, float]:
    """The best theta, the median of our thetas, and our ratio by both measures."""
    prefix = prefix_sums(values[m:])

    def errors(tag: str, count: int, theta: float | None) -> tuple[Floats, Floats]:
        """Of every run and class, and the thetas at the end."""
        found, thetas = np.empty((count, len(CLASSES))), np.empty(count)
        for seed in range(count):
            digest = hashlib.sha256(f"{name}{epsilon}{seed}{tag}".encode()).digest()
            own = int.from_bytes(digest[:6], "little")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AccuracyWarning)
                publisher = fastdp.Adaptive(epsilon, bound, m, R, threshold=theta, seed=own)
                release = publisher.release(values)
            assert publisher.threshold is not None
            thetas[seed] = publisher.threshold
            for number, (starts, stops) in enumerate(RANGES.values()):
                wrong = release.sum(starts, stops, revised=True) - (prefix[stops] - prefix[starts])
                found[seed, number] = np.mean(wrong**2)
        return found, thetas

    tried = {theta: np.median(errors(f"A{theta:g}", CHOOSING, theta)[0], 0) for theta in _thetas(values[m:], bound)}
    best = min(tried, key=lambda theta: geometric(tried[theta]))
    judged = np.median(errors("B", JUDGING, best)[0], 0)
    found, thetas = errors("C", runs, None)
    ours = np.median(found, 0)
    return best, float(np.median(thetas)), geometric(ours / judged), geometric(ours / tried[best])


def _thetas(body: Floats, bound: float) -> Sequence[float]:
    """From the bound down, none far above the largest value."""
    least = max(float(np.quantile(body, LOWEST)), float(body.mean()), float(body[body > 0].min()))
    thetas = [bound]
    while thetas[-1] > least:
        thetas.append(thetas[-1] / APART)
    return [theta for theta in thetas if theta < 1.5 * body.max()] or [bound]
