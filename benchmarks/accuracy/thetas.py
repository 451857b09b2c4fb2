"""Revised answers under the theta that Adaptive chooses and follows, beside the best fixed theta in hindsight.

The best theta of a stream and budget is chosen by runs of its own and judged by others ("honest"), or judged by the
runs that it was chosen from ("in hindsight"), which no rule can reach.
"""

from __future__ import annotations

import argparse
import hashlib
import warnings
from collections.abc import Sequence

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.accuracy import streams
from benchmarks.shared import Floats, add_data_option, table
from fastdp.errors import AccuracyWarning
from fastdp_lab.datasets import hold_out_and_extend, table1
from fastdp_lab.datasets.catalogue import TABLE1
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


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=96, help="releases of each cell (default 96)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="streams (default: all; an hour)")
    add_data_option(parser)


def run(options: argparse.Namespace) -> None:
    real = [name for name, each in streams.REAL.items() if (options.data / each.file).is_file()]
    names = options.only or [*real, *streams.GROWTHS, *SYNTHETIC]
    rows: list[list[str]] = []
    ratios: dict[tuple[str, float], tuple[float, float]] = {}
    for name in names:
        values, bound, m = _stream(name, options)
        for epsilon in EPSILONS:
            best, ratio, hindsight, chosen = _cell(name, values, bound, m, epsilon, options.runs)
            ratios[name, epsilon] = ratio, hindsight
            rows.append([name, f"{epsilon:g}", f"{best:.4g}", f"{chosen:.4g}", f"{ratio:.2f}", f"{hindsight:.2f}"])
    table(
        f"Revised MSE over that of the best fixed theta, mean of four classes; medians of {options.runs} runs",
        ["stream", "eps", "best theta", "ours", "honest", "in hindsight"],
        rows,
    )
    for title, names in (
        ("real", real),
        *((f"real, {half}", [n for n in real if streams.half(n) == half]) for half in ("tuning", "reporting")),
        ("growing", list(streams.GROWTHS)),
        ("other synthetic", SYNTHETIC),
    ):
        for number, measure in enumerate(("honest", "in hindsight")):
            found = np.array([pair[number] for (name, _), pair in ratios.items() if name in names])
            if found.size:
                print(
                    f"{title}, {measure}: {_mean(found):.2f}; {np.mean(found <= 1.3):.0%} of {found.size} within "
                    f"1.3; worst {found.max():.3g}"
                )


def _mean(ratios: Floats) -> float:
    return float(np.exp(np.log(ratios).mean()))


def _stream(name: str, options: argparse.Namespace) -> tuple[Floats, float, int]:
    """Its values, bound and hold-out."""
    if name in streams.REAL:
        real = streams.REAL[name]
        values = np.minimum(real.read(options.data / real.file).clip(0.0), real.bound)
        m = min(shared.HOLDOUT, values.size // 4)
        return hold_out_and_extend(values, m, R), real.bound, m
    if name in streams.GROWTHS:
        return streams.growing(name, shared.HOLDOUT + R), streams.GROWTH_BOUND, shared.HOLDOUT
    row, order = name.rsplit(" ", 1)
    values = table1(row, n=shared.HOLDOUT + R, order=order).astype(np.float64)
    return values, float(TABLE1[row].bound), shared.HOLDOUT


def _cell(
    name: str, values: Floats, bound: float, m: int, epsilon: float, runs: int
) -> tuple[float, float, float, float]:
    """The best theta, our ratio by both measures, and the median of our thetas."""
    prefix = np.concatenate([[0.0], np.cumsum(values[m:])])

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
    best = min(tried, key=lambda theta: _mean(tried[theta]))
    judged = np.median(errors("B", JUDGING, best)[0], 0)
    found, thetas = errors("C", runs, None)
    ours = np.median(found, 0)
    return best, _mean(ours / judged), _mean(ours / tried[best]), float(np.median(thetas))


def _thetas(body: Floats, bound: float) -> Sequence[float]:
    """From the bound down, none far above the largest value."""
    least = max(float(np.quantile(body, LOWEST)), float(body.mean()), float(body[body > 0].min()))
    thetas = [bound]
    while thetas[-1] > least:
        thetas.append(thetas[-1] / APART)
    return [theta for theta in thetas if theta < 1.5 * body.max()] or [bound]
