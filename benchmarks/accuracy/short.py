"""Finished arrays with nothing withheld beside the papers' hold-out, on every stream at n = 10^3 to 2^20.

Both ways answer the same ranges, those that the hold-out leaves: the errors of ranges up to all of it, a seventh and
a seventieth, relative to the mean sum of each class, as their geometric mean.  ``--shares`` compares shares of
epsilon instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

import fastdp
from benchmarks.accuracy import streams
from benchmarks.shared import DATA, Data, Floats, geometric, prefix_sums, table
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
        prefix = prefix_sums(values)
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
        return float(geometric(np.sqrt(squares) / self.means)), float(np.median(thetas))


def scenes(folder: Path, sizes: Sequence[int], repetitions: int) -> Iterator[tuple[str, float, Scene, int]]:
    """Every real stream at every size, and repetitions; a short one is extended by its reverse."""
    for name in streams.names(folder):
        values = streams.REAL[name].values(folder)
        for size in sizes:
            count = max(3, repetitions // 4) if size > 10**6 else repetitions
            yield name, streams.REAL[name].bound, Scene(extend_by_reflection(values, size)), count


def nothing_withheld(scene: Scene, epsilon: float, bound: float) -> tuple[Released, whole_release.WholeStream]:
    def make(seed: int) -> whole_release.WholeStream:
        longest = min(DEFAULT_RANGE, scene.size)
        key = Key.from_seed(seed)
        return whole_release.WholeStream(scene.size, epsilon, bound, longest, threshold=ScaleFree(), key=key)

    return lambda seed: make(seed).release(scene.values), make(0)


def held_out(scene: Scene, epsilon: float, bound: float) -> Released:
    longest = min(DEFAULT_RANGE, scene.size - scene.holdout)
    return lambda seed: fastdp.Adaptive(epsilon, bound, scene.holdout, longest, seed=seed).release(scene.values)


def compare_shares(folder: Path, repetitions: int) -> None:
    """Errors by how well the threshold is resolved: what :data:`whole.WELL_CHOSEN` was chosen from."""
    usual, ratios = whole_release.WELL_CHOSEN, {}
    for _, bound, scene, count in scenes(folder, SIZES, repetitions):
        for epsilon in EPSILONS:
            held = scene.error(held_out(scene, epsilon, bound), count)[0]
            for wanted in SHARES:
                whole_release.WELL_CHOSEN = wanted
                make, made = nothing_withheld(scene, epsilon, bound)
                found = ratios.setdefault((scene.size, epsilon), {}).setdefault(wanted, ([], made.share))
                found[0].append(scene.error(make, count)[0] / held)
            whole_release.WELL_CHOSEN = usual
    rows = [
        [n, f"{epsilon:g}", *(f"{geometric(found):.2f} ({share:.1%})" for found, share in by.values())]
        for (n, epsilon), by in sorted(ratios.items())
    ]
    title = (
        "Error over the hold-out's, geometric mean of the streams, and the share, by noise scales between candidates"
    )
    table(title, ["n", "epsilon", *(f"{wanted:g}" for wanted in SHARES)], rows)


def percent(error: float) -> str:
    return f"{100.0 * error:.3g} %" if error < 10.0 else f"{error:.0f} times"


def run(
    *,
    repetitions: Annotated[int, "releases of each cell"] = 60,
    quick: Annotated[bool, "two sizes"] = False,
    shares: Annotated[bool, "compare shares of epsilon"] = False,
    data: Data = DATA,
) -> None:
    """Measure, and print the table."""
    # Short streams are short on purpose.
    warnings.simplefilter("ignore", AccuracyWarning)
    if shares:
        compare_shares(data, repetitions)
        return
    sizes = SIZES[:2] if quick else SIZES
    cells: dict[tuple[str, float], list[tuple[float, float, float]]] = {}
    for name, bound, scene, count in scenes(data, sizes, repetitions):
        for epsilon in EPSILONS:
            make, made = nothing_withheld(scene, epsilon, bound)
            errors = [scene.error(each, count)[0] for each in (make, held_out(scene, epsilon, bound))]
            cells.setdefault((name, epsilon), []).append((errors[0], errors[1], made.share))
    rows = [
        [name, f"{epsilon:g}", *(f"{percent(own)} / {percent(held)}" for own, held, _ in found)]
        for (name, epsilon), found in cells.items()
    ]
    for epsilon in EPSILONS:
        own, held, share = np.array([found for (_, each), found in cells.items() if each == epsilon]).transpose(
            2, 0, 1
        )
        ratios = geometric(own / held, axis=0)
        rows.append(["**ratio**, geometric mean", f"{epsilon:g}", *(f"{ratio:.2f}" for ratio in ratios)])
        rows.append(["share of epsilon", f"{epsilon:g}", *(f"{each:.1%}" for each in share.max(axis=0))])
    title = "Nothing withheld / the hold-out: error relative to the mean sum"
    table(title, ["stream", "epsilon", *(f"n = {n:,}" for n in sizes)], rows)
