"""PHDStream: seconds of whole runs, growth of a step, and memory."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from benchmarks import fresh_process, records
from benchmarks.bench_phdstream import circles, started
from benchmarks.show.report import table
from benchmarks.show.spatial_runs import DEPTH, EPSILONS
from fastdp import AdaptivePHDStream, PHDStream
from fastdp.datasets import SpatialStream, load_circles
from fastdp.spatial import Box

#: Seconds of one sampling, and of all tree steps: the published code, and its logic with NumPy's box test.
PUBLISHED_RUN, PUBLISHED_SAMPLING = 91.0, 1.2
NUMPY_RUN, NUMPY_SAMPLING = 5.4, 2e-3
#: The authors' circles with deletion, in the folder of real streams.
CIRCLES = "motion_circles_synthetic.csv.gz"
#: The row of AdaptivePHDStream.
ALONE = "counts alone"
#: What is varied one at a time: points present, events in a batch, greatest depth.
CENTRE = (100_000, 500, 20)
GROWTH = ((1_000, 10_000, 100_000, 1_000_000), (5, 50, 500, 5_000, 50_000), (5, 10, 20, 40))
STEPS = 20
MARKS = (100, 1_000, 2_500, 5_000, 10_000)


def whole_run(
    stream: SpatialStream, epsilon: float, counter: str, seed: int, *, sampled: bool = False
) -> PHDStream | AdaptivePHDStream:
    """All batches of a stream, the initial set first."""
    box = Box(stream.lower, stream.upper)
    system: PHDStream | AdaptivePHDStream
    if counter == ALONE:
        system = AdaptivePHDStream(box, epsilon, max_depth=DEPTH, seed=seed)
    else:
        system = PHDStream(box, epsilon, counter, max_depth=DEPTH, seed=seed)
    for added, removed in [(stream.initial, None), *stream.batches]:
        system.advance(added, removed)
        if sampled:
            system.sample()
    return system


def whole_run_group(epsilon: float, counter: str, initial: float) -> str:
    """The name of its tasks in the summary."""
    return f"circles with deletion, eps {epsilon:g}, {counter}, initial {initial:g}"


def whole_runs(data: Path, runs: int) -> None:
    """The authors' circles with deletion, batches of 500, with and without an initial tenth."""
    rows = []
    for initial in (0.0, 0.1):
        stream = load_circles(data / CIRCLES, initial=initial)
        for epsilon in EPSILONS:
            for counter in ("simple", "block", ALONE):
                whole_run(stream, epsilon, counter, seed=0).sample()
                trees, firsts, samplings = [], [], []
                for seed in range(runs):
                    begin = perf_counter()
                    system = whole_run(stream, epsilon, counter, seed)
                    trees.append(perf_counter() - begin)
                    begin = perf_counter()
                    system.sample()
                    firsts.append(perf_counter() - begin)
                    begin = perf_counter()
                    system.sample()
                    samplings.append(perf_counter() - begin)
                tree, sampling = statistics.median(trees), statistics.median(samplings)
                group = whole_run_group(epsilon, counter, initial)
                records.keep(group, "all tree steps", trees, items=system.n_steps)
                records.keep(group, "one sampling", samplings)
                plain = initial == 0.0 and epsilon == 1.0 and counter == "simple"
                rows.append([
                    f"{epsilon:g}", counter, f"{initial:g}", str(system.n_steps), f"{tree:.4f} ({min(trees):.4f})",
                    f"{1e3 * tree / system.n_steps:.2f}", f"{1e3 * statistics.median(firsts):.2f}",
                    f"{1e3 * sampling:.2f} ({1e3 * min(samplings):.2f})",
                    f"{PUBLISHED_RUN / tree:,.0f}, {NUMPY_RUN / tree:,.0f}" if plain else "",
                    f"{PUBLISHED_SAMPLING / sampling:,.0f}, {NUMPY_SAMPLING / sampling:,.1f}" if plain else "",
                ])  # fmt: skip
    table(
        f"Circles with deletion, batches of 500, depth {DEPTH}: all tree steps, and one sampling of some 25,000 "
        f"points; medians of {runs} warm runs (least). The published code takes {PUBLISHED_RUN:g} s and "
        f"{PUBLISHED_SAMPLING:g} s, NumPy by a skilled hand {NUMPY_RUN:g} s and {1e3 * NUMPY_SAMPLING:g} ms "
        "(measured elsewhere, eps 1)",
        ["eps", "counter", "t0", "steps", "tree s", "ms a step", "first sampling ms, cells included", "sampling ms",
         "tree: faster than code, NumPy", "sampling: faster"],
        rows,
    )  # fmt: skip


class Step(NamedTuple):
    """Seconds of one step, and the tree's leaves and nodes in memory."""

    present: int
    batch: int
    depth: int
    seconds: float
    leaves: int
    nodes: int

    @property
    def visited(self) -> int:
        """Nodes of the tree, all of which a step visits."""
        return 2 * self.leaves - 1


def steps(repeats: int) -> Iterator[Step]:
    """A step's cost as points present, batch or depth grow, the others at the centre."""
    for axis, values in enumerate(GROWTH):
        for value in values:
            sizes = list(CENTRE)
            sizes[axis] = value
            present, batch, depth = sizes
            half = -(-batch // 2)
            batches = [(circles(half, 2 * i + 1), circles(batch - half, 2 * i + 2)) for i in range(STEPS)]
            seconds = []
            for _ in range(repeats):
                stream = started(present, depth)
                stream.advance(*batches[0])
                begin = perf_counter()
                for added, removed in batches:
                    stream.advance(added, removed)
                seconds.append((perf_counter() - begin) / STEPS)
            yield Step(*sizes, statistics.median(seconds), stream.tree.n_leaves, stream.n_nodes)


def growth(repeats: int) -> None:
    rows = [
        [f"{step.present:,}", f"{step.batch:,}", str(step.depth), f"{1e3 * step.seconds:.3f}",
         f"{1e9 * step.seconds / (step.batch + step.visited):.0f}", f"{step.leaves:,}", f"{step.nodes:,}"]
        for step in steps(repeats)
    ]  # fmt: skip
    table(
        f"Growth: two circles, eps 1, half additions and half removals, mean of {STEPS} steps, median of {repeats}",
        ["points present", "batch", "depth", "ms a step", "ns / (batch + visited nodes)", "leaves",
         "nodes in memory"],
        rows,
    )  # fmt: skip


class Endless:
    """A stream that goes on: in each step so many new points, and as many of the oldest go."""

    def __init__(self, present: int = 50_000, each: int = 250) -> None:
        self.stream = started(0, DEPTH)
        # The same points again and again, so that making them is neither timed nor in memory's way.
        self.coming = cycle(circles(2 * present, 0).reshape(-1, each, 2))
        self.there = deque(next(self.coming) for _ in range(present // each))
        self.stream.advance(np.concatenate(self.there))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.there.append(next(self.coming))
            self.stream.advance(self.there[-1], self.there.popleft())


def memory() -> None:
    """Nodes of an endless stream, and peak memory in fresh processes."""
    endless, rows = Endless(), []
    done = 0
    for mark in MARKS:
        begin = perf_counter()
        endless.run(mark - done)
        step, done = (perf_counter() - begin) / (mark - done), mark
        stream = endless.stream
        cells = [f"{stream.tree.n_leaves:,}", f"{stream.n_nodes:,}", f"{stream.total:,.0f}"]
        rows.append([f"{mark:,}", f"{1e3 * step:.3f}", *cells])
    table(
        "An endless stream: 50,000 points present, 250 come and 250 go in each step, eps 1",
        ["steps", "ms a step, since the row above", "leaves", "nodes in memory", "released total"],
        rows,
    )
    rises = [(steps, fresh_process.spatial_growth_bytes(steps)) for steps in (1_000, 10_000)]
    table(
        "Rise of peak memory of that stream after its first 500 steps, fresh processes",
        ["further steps", "MiB"],
        [[f"{steps:,}", f"{rise / 2**20:.2f}"] for steps, rise in rises],
    )
    peaks = [fresh_process.spatial_peak_bytes(traced=traced) / 2**20 for traced in (False, True)]
    table(
        "Circles with deletion (generated, 75,000 events), every step sampled, in a fresh process: peak memory "
        "(the published code: 495 to 551 MB)",
        ["", "MiB"],
        [
            ["whole process, Python, NumPy and Numba included", f"{peaks[0]:.0f}"],
            ["arrays and objects made during the run", f"{peaks[1]:.1f}"],
        ],
    )
