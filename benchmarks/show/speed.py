"""Every speed of streams that the project promises, in one process on one core, side by side with peers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from time import perf_counter

import numpy as np

from benchmarks import records, sizes
from benchmarks.pak_holdouts import HOLDOUTS
from benchmarks.peers import open_dp
from benchmarks.show import speed_tasks
from benchmarks.show.report import table
from benchmarks.show.speed_tasks import COPY, COPY_OF_RELEASE, SCALES, Group
from benchmarks.timing import BURST, Timing, side_by_side, stay_on_one_core
from benchmarks.tree import make_tree
from fastdp_kernels.smooth_sensitivity import scan_pairs

OPENDP_DRAWS = 10_000
#: OpenDP takes long, and the spread of its runs is small.
OPENDP_RUNS = 5


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=50, help="warm runs of each task (default 50)")


def run(options: argparse.Namespace) -> None:
    print(f"Process {stay_on_one_core()}; {options.runs} warm runs, bursts of {BURST} in turn.")
    sampler(options.runs)
    consistency(options.runs)
    noisy_max(options.runs)
    smooth_sensitivity(options.runs)
    online_pass(options.runs)
    whole_release(options.runs)
    other_releases(options.runs)


def milliseconds(timing: Timing) -> list[str]:
    return [f"{timing.median * 1e3:.3f}", f"{timing.least * 1e3:.3f}"]


def timed(group: Group, runs: int) -> dict[str, Timing]:
    """All tasks of a group side by side, and kept for the summary."""
    timings = side_by_side(group.tasks, runs, group.prepare)
    records.keep_all(group.name, timings, group.items)
    return timings


def _tabled(title: str, timings: Mapping[str, Timing]) -> None:
    rows = ([name, *milliseconds(timing)] for name, timing in timings.items())
    table(title, ["task", "ms (median)", "ms (min)"], rows)


def sampler(runs: int) -> None:
    group = speed_tasks.sampler()
    timings, draws = timed(group, runs), dict(group.items)
    if open_dp.INSTALLED:
        zeros = np.zeros(OPENDP_DRAWS, np.int64)
        for label in ("2^22", "2^34"):
            name = f"OpenDP exact, scale {label}"
            measurement = open_dp.discrete_laplace(SCALES[label])
            draws[name] = OPENDP_DRAWS
            peer = Group(group.name, {name: lambda measurement=measurement: measurement(zeros)}, items=draws)
            timings |= timed(peer, OPENDP_RUNS)
    table(
        "Discrete Laplace noise, key stream included",
        ["task", "draws a call", "M draws/s (median)", "M draws/s (best)"],
        (
            [name, f"{draws[name]:,}", *(f"{draws[name] / s / 1e6:.4g}" for s in (timing.median, timing.least))]
            for name, timing in timings.items()
        ),
    )


def consistency(runs: int) -> None:
    group = speed_tasks.consistency()
    timings = timed(group, runs)
    if open_dp.INSTALLED:
        postprocessor, nodes = open_dp.consistent_leaves(16), make_tree(16, 2**20).breadth_first()
        peer = Group(group.name, {"OpenDP b-ary tree, floats": lambda: postprocessor(nodes)})
        timings |= timed(peer, OPENDP_RUNS)
    _tabled("Consistency, 2^20 leaves, fan-out 16", timings)


def noisy_max(runs: int) -> None:
    _tabled(f"Noisy max, B = {sizes.WIDE_BOUND:,}", timed(speed_tasks.noisy_max(), runs))


def smooth_sensitivity(runs: int) -> None:
    """The scan is timed once: its worst case takes seconds."""
    group = speed_tasks.smooth_sensitivity()
    rows = []
    for name, timing in timed(group, runs).items():
        values, bound, rank, decay = task = HOLDOUTS[name]()
        scan_pairs(values[:64], bound, min(rank, 64), decay[:66])
        start = perf_counter()
        scan_pairs(*task)
        seconds = perf_counter() - start
        records.keep(group.name, f"{name}, the papers' scan", [seconds])
        rows.append([name, *milliseconds(timing), f"{seconds * 1e3:.1f}"])
    columns = ["hold-out", "divide and conquer, ms (median)", "ms (min)", "the papers' scan, ms (one run)"]
    table("Smooth sensitivity of a quantile of 65,536 values, to the last bit", columns, rows)


def online_pass(runs: int) -> None:
    group = speed_tasks.online_pass()
    timings = timed(group, runs)

    def cost(name: str, pick: Callable[[Timing], float]) -> float:
        return pick(timings[name]) / group.items[name]

    def share(name: str, pick: Callable[[Timing], float]) -> str:
        return f"{cost(COPY, pick) / cost(name, pick):.0%}"

    table(
        "Online pass, 2^20 values",
        ["task", "ns/value (median)", "of copyto (medians)", "of copyto (mins)"],
        (
            [
                name,
                f"{cost(name, lambda t: t.median) * 1e9:.3f}",
                share(name, lambda t: t.median),
                share(name, lambda t: t.least),
            ]
            for name in timings
        ),
    )


def whole_release(runs: int) -> None:
    runs = max(runs, 50)
    timings = timed(speed_tasks.whole_release(), runs)
    copy = timings[COPY_OF_RELEASE]
    table(
        f"Whole release, n = 2^20 + 65,536, eps = {sizes.EPSILON}, B = {sizes.BOUND:,}; {runs} warm runs",
        ["task", "ms (median)", "ms (min)", "np.copyto times (medians)"],
        ([name, *milliseconds(timing), f"{timing.median / copy.median:.2f}"] for name, timing in timings.items()),
    )


def other_releases(runs: int) -> None:
    title = f"Other whole releases, n = 2^20 + 65,536, eps = {sizes.EPSILON}, B = {sizes.BOUND:,}"
    _tabled(title, timed(speed_tasks.other_releases(), runs))
