"""Long streams and many publishers: rates, resident memory.

One publisher takes the values chunk by chunk, into one buffer; then many publishers take turns in one process.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Literal

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.shared import Floats, item_counts, table

CHUNK = 2**16
#: Chunks are cut from a stream of this length, over and over.
POOL = 2**22
#: Points of the picture.
SAMPLES = 100
#: Values of one publisher's turn.
TURN = 4096
MIB = 2**20


@dataclass(frozen=True)
class Schedule:
    """A run in ``SAMPLES`` parts.

    Attributes
    ----------
    values : int
        Of the whole run.
    seconds, processor : float64[parts]
        Of each part by the clock, and of this process alone: on a shared machine only the latter compare.
    resident : float64[parts]
        MiB behind each part.
    """

    values: int
    seconds: Floats
    processor: Floats
    resident: Floats

    def rate(self, parts: slice) -> float:
        """Million values a processor second."""
        taken = self.processor[parts]
        return float(self.values / self.processor.size * taken.size / taken.sum() / 1e6)


def resident() -> float:
    """MiB of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / MIB


def make(prune: int | Literal["optimal"], number: int = 0) -> fastdp.ToPS:
    return fastdp.ToPS(
        epsilon=shared.EPSILON, bound=shared.BOUND, max_range=shared.MAX_RANGE, prune=prune, seed=f"load {number}"
    )


def one_publisher(publisher: Any, values: int) -> Schedule:
    pool, out = item_counts(POOL), np.empty(CHUNK)
    per_part = max(1, round(values / CHUNK / SAMPLES))
    # The hold-out, the threshold, the first trees and cold caches are no part of the run.
    for start in range(0, POOL, CHUNK):
        publisher.publish(pool[start : start + CHUNK], out=out)
    seconds, processor, memory = np.empty(SAMPLES), np.empty(SAMPLES), np.empty(SAMPLES)
    place = 0
    for part in range(SAMPLES):
        begin, used = perf_counter(), process_time()
        for _ in range(per_part):
            publisher.publish(pool[place : place + CHUNK], out=out)
            place = (place + CHUNK) % POOL
        seconds[part], processor[part], memory[part] = perf_counter() - begin, process_time() - used, resident()
    return Schedule(per_part * CHUNK * SAMPLES, seconds, processor, memory)


def many_publishers(prune: int | Literal["optimal"], count: int, rounds: int) -> list[str]:
    """One row: publishers that take turns, and one alone in the same turns."""
    pool, out = item_counts(POOL), np.empty(TURN)
    warm = shared.HOLDOUT // TURN + 1

    def turns(publishers: list[fastdp.ToPS], begin: int, end: int) -> float:
        start = process_time()
        for turn in range(begin, end):
            at = turn * TURN % POOL
            for publisher in publishers:
                publisher.publish(pool[at : at + TURN], out=out)
        return process_time() - start

    alone = [make(prune)]
    turns(alone, 0, warm)
    alone_seconds = turns(alone, warm, warm + count * rounds)
    before = resident()
    publishers = [make(prune, number) for number in range(count)]
    made = resident()
    turns(publishers, 0, 1)
    holding = resident()
    turns(publishers, 1, warm)
    published = resident()
    seconds = turns(publishers, warm, warm + rounds)
    after = resident()
    n = count * rounds * TURN
    return [
        f"prune = {prune!r} (block {publishers[0].plan.block:,})",
        f"{count:,}",
        f"{n / 1e6:,.0f} M",
        f"{n / seconds / 1e6:,.0f}",
        f"{n / alone_seconds / 1e6:,.0f}",
        *(f"{(level - before) * 1024 / count:,.1f}" for level in (made, holding, published, after)),
    ]


def draw(runs: dict[str, Schedule], path: Path) -> None:
    """Throughput and resident memory over the runs."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (speed, memory) = plt.subplots(2, 1, sharex=True, figsize=(7, 4.5), layout="constrained")
    for label, each in runs.items():
        x = np.arange(1, SAMPLES + 1) * (each.values / SAMPLES / 1e6)
        speed.plot(x, each.values / SAMPLES / each.processor / 1e6, label=label, linewidth=1)
        memory.plot(x, each.resident, label=label, linewidth=1)
    speed.set(ylabel="M values / CPU second", ylim=(0, None))
    highest = 1.2 * max(each.resident.max() for each in runs.values())
    memory.set(ylabel="resident, MiB", xlabel="values published, millions", ylim=(0, highest))
    speed.legend(frameon=False)
    figure.savefig(path, dpi=110)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--values", type=float, default=1e9, help="through one publisher (default 1e9)")
    parser.add_argument("--publishers", type=int, default=1000, help="side by side (default 1000)")
    parser.add_argument(
        "--rounds", type=int, default=256, help="turns of each, of 4,096 values (default 256: one noise tree)"
    )
    parser.add_argument("--picture", type=Path, help="a file for throughput and memory over the run")


def run(options: argparse.Namespace) -> None:
    makers: dict[str, Callable[[], Any]] = {
        "ToPS, optimal prune": partial(make, "optimal"),
        "ToPS, prune = 0": partial(make, 0),
    }
    runs = {name: one_publisher(maker(), int(options.values)) for name, maker in makers.items()}
    table(
        f"One publisher, chunks of {CHUNK:,} (epsilon {shared.EPSILON}, bound {shared.BOUND}, max_range 2^20)",
        ["system", "values", "s", "M values a CPU second", "first tenth", "last tenth", "resident MiB: first tenth",
         "last", "most"],
        (one_row(name, each) for name, each in runs.items()),
    )  # fmt: skip
    if options.picture:
        draw(runs, options.picture)
    # At prune = 0 each holds the noise of 2^20 values: fewer of them fit.
    few = max(1, options.publishers // 10)
    table(
        f"Publishers side by side, turns of {TURN:,} values; KiB a publisher, above the memory before them",
        ["system", "publishers", "values", "M values a CPU second", "one alone", "KiB: made", "in the hold-out",
         "publishing", "at the end"],
        [many_publishers("optimal", options.publishers, options.rounds), many_publishers(0, few, options.rounds)],
    )  # fmt: skip


def one_row(name: str, each: Schedule) -> list[str]:
    tenth = SAMPLES // 10
    rates = [each.rate(part) for part in (slice(None), slice(tenth), slice(-tenth, None))]
    memory = (each.resident[:tenth].mean(), each.resident[-tenth:].mean(), each.resident.max())
    return [
        name, f"{each.values:,}", f"{each.seconds.sum():.1f}", *(f"{rate:,.0f}" for rate in rates),
        *(f"{level:.1f}" for level in memory),
    ]  # fmt: skip
