"""Finished arrays with nothing withheld beside the papers' hold-out, on every stream at n = 10^3 to 2^20.

Both ways answer the same ranges, those that the hold-out leaves: the errors of ranges up to all of it, a seventh and
a seventieth, relative to the mean sum of each class, as their geometric mean.  ``--shares`` compares shares of
epsilon instead.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fastdp
from benchmarks.accuracy.streams import REAL
from benchmarks.shared import Floats, add_data_option, table
from fastdp.errors import AccuracyWarning
from fastdp.noise import Key
from fastdp.streams import release as whole_release
from fastdp.streams.parameters import DEFAULT_RANGE
from fastdp.thresholds import ScaleFree
from fastdp_lab.datasets.synthetic import extend_by_reflection
from fastdp_lab.queries.workloads import random_ranges

SIZES = (1000, 10_000, 100_000, 2**20)
EPSILONS = (0.1, 1.0)
CLASSES = (1, 7, 70)
RANGES = 150
SHARES = (0.5, 1.0, 1.5, 2.0, 3.0)

Released = Callable[[int], fastdp.Release]


class Scene:
    """A stream's first n values, and the ranges that both ways answer."""

    def __init__(self, values: Floats) -> None:
        self.values, self.size = values, values.size
        self.holdout = min(65_536, self.size // 4)
        left = self.size - self.holdout
        classes = [random_ranges(left, RANGES, max(1, left // part), 1) for part in CLASSES]
        self.starts, self.stops = (np.concatenate(ends) + self.holdout for ends in zip(*classes, strict=True))
        prefix = np.concatenate([[0.0], np.cumsum(values)])
        self.sums = prefix[self.stops] - prefix[self.starts]
        self.means = self.sums.reshape(len(CLASSES), -1).mean(1)

    def error(self, make: Released, repetitions: int) -> tuple[float, float]:
        """Relative error of revised answers, and the median theta."""
        squares, thetas = np.zeros(len(CLASSES)), []
        for seed in range(repetitions):
            release = make(seed)
            answers = release.sum(self.starts - release.offset, self.stops - release.offset, revised=True)
            squares += ((answers - self.sums) ** 2).reshape(len(CLASSES), -1).mean(1) / repetitions
            thetas.append(release.threshold)
        return float(np.exp(np.mean(np.log(np.sqrt(squares) / self.means)))), float(np.median(thetas))


def scenes(folder: Path, sizes: Sequence[int]) -> Iterator[tuple[str, float, Scene]]:
    """Every real stream at every size; a short one is extended by its reverse."""
    for name, each in REAL.items():
        if (folder / each.file).exists():
            values = each.read(folder / each.file).clip(0.0)
            for size in sizes:
                yield name, each.bound, Scene(extend_by_reflection(values, size))


def nothing_withheld(scene: Scene, epsilon: float, bound: float) -> tuple[Released, whole_release.WholeStream]:
    def make(seed: int) -> whole_release.WholeStream:
        longest = min(DEFAULT_RANGE, scene.size)
        key = Key.from_seed(seed)
        return whole_release.WholeStream(scene.size, epsilon, bound, longest, threshold=ScaleFree(), key=key)

    return lambda seed: make(seed).release(scene.values), make(0)


def held_out(scene: Scene, epsilon: float, bound: float) -> Released:
    longest = min(DEFAULT_RANGE, scene.size - scene.holdout)
    return lambda seed: fastdp.Adaptive(epsilon, bound, scene.holdout, longest, seed=seed).release(scene.values)


def measure(folder: Path, repetitions: int, quick: bool) -> list[dict[str, Any]]:
    """One record for each stream, size and budget."""
    records = []
    for name, bound, scene in scenes(folder, SIZES[:2] if quick else SIZES):
        count = max(3, repetitions // 4) if scene.size > 10**6 else repetitions
        for epsilon in EPSILONS:
            make, made = nothing_withheld(scene, epsilon, bound)
            error, theta = scene.error(make, count)
            held_error, held_theta = scene.error(held_out(scene, epsilon, bound), count)
            record = {"stream": name, "n": scene.size, "epsilon": epsilon, "share": made.share, "error": error}
            record |= {"theta": theta, "holdout": scene.holdout, "held_error": held_error, "held_theta": held_theta}
            records.append(record | {"repetitions": count})
    return records


def compare_shares(folder: Path, repetitions: int) -> None:
    """Errors by how well the threshold is resolved: what :data:`whole.WELL_CHOSEN` was chosen from."""
    usual, ratios = whole_release.WELL_CHOSEN, {}
    for _, bound, scene in scenes(folder, SIZES):
        count = max(3, repetitions // 4) if scene.size > 10**6 else repetitions
        for epsilon in EPSILONS:
            held = scene.error(held_out(scene, epsilon, bound), count)[0]
            for wanted in SHARES:
                whole_release.WELL_CHOSEN = wanted
                make, made = nothing_withheld(scene, epsilon, bound)
                found = ratios.setdefault((scene.size, epsilon), {}).setdefault(wanted, ([], made.share))
                found[0].append(scene.error(make, count)[0] / held)
            whole_release.WELL_CHOSEN = usual
    rows = [
        [f"{n:,}", f"{epsilon:g}", *(f"{mean_of(found):.2f} ({share:.1%})" for found, share in by.values())]
        for (n, epsilon), by in sorted(ratios.items())
    ]
    title = (
        "Error over the hold-out's, geometric mean of the streams, and the share, by noise scales between candidates"
    )
    table(title, ["n", "epsilon", *(f"{wanted:g}" for wanted in SHARES)], rows)


def mean_of(ratios: Sequence[float]) -> float:
    """Geometric."""
    return float(np.exp(np.mean(np.log(ratios))))


def page_of(records: list[dict[str, Any]]) -> str:
    """The table in Markdown."""
    sizes = sorted({record["n"] for record in records})
    lines = [
        "| stream | epsilon | " + " | ".join(f"n = {n:,}" for n in sizes) + " |",
        "|---" * (len(sizes) + 2) + "|",
    ]
    by = {(record["stream"], record["epsilon"], record["n"]): record for record in records}
    for stream in dict.fromkeys(record["stream"] for record in records):
        for epsilon in EPSILONS:
            found = [by[stream, epsilon, n] for n in sizes]
            cells = [f"{percent(each['error'])} / {percent(each['held_error'])}" for each in found]
            lines.append(f"| {stream} | {epsilon:g} | " + " | ".join(cells) + " |")
    for epsilon in EPSILONS:
        columns = [[each for each in records if (each["n"], each["epsilon"]) == (n, epsilon)] for n in sizes]
        ratios = [mean_of([each["error"] / each["held_error"] for each in column]) for column in columns]
        lines.append(f"| **ratio**, geometric mean | {epsilon:g} | " + " | ".join(f"{r:.2f}" for r in ratios) + " |")
        shares = [max(each["share"] for each in column) for column in columns]
        lines.append(f"| share of epsilon | {epsilon:g} | " + " | ".join(f"{s:.1%}" for s in shares) + " |")
    return "\n".join(lines) + "\n"


def percent(error: float) -> str:
    return f"{100.0 * error:.3g} %" if error < 10.0 else f"{error:.0f} times"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repetitions", type=int, default=60)
    parser.add_argument("--quick", action="store_true", help="two sizes")
    parser.add_argument("--shares", action="store_true", help="compare shares of epsilon")
    add_data_option(parser)


def run(options: argparse.Namespace) -> None:
    """Measure, and print the table."""
    # Short streams are short on purpose.
    warnings.simplefilter("ignore", AccuracyWarning)
    if options.shares:
        compare_shares(options.data, options.repetitions)
        return
    print(page_of(measure(options.data, options.repetitions, options.quick)))
