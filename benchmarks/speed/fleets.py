"""A fleet of Adaptive against the number of its streams, beside a dictionary of publishers."""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

import numpy as np

import fastdp
from benchmarks.shared import Floats, table
from benchmarks.speed.measure import keep

#: Of the dictionary: each takes milliseconds to make.
PUBLISHERS = 1_000
SEAL = bytes(range(32))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--most", type=int, default=10**6, help="streams of the largest fleet (default 10^6)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="a picture of seconds and bytes")


def adaptive(key: fastdp.Key | None = None) -> fastdp.Adaptive:
    return fastdp.Adaptive(epsilon=0.5, bound=100.0, threshold=20.0, max_range=4096, key=key)


def run(options: argparse.Namespace) -> None:
    sizes = [10**k for k in range(3, 9) if 10**k <= options.most]
    adaptive_fleet(np.arange(10), np.ones(10))
    rows = [measured(size) for size in sizes]
    table(
        "Fleet of Adaptive: seconds of one core",
        ["streams", "first value of each", "a further value of each", "bytes a stream", "sealed snapshot", "restart"],
        [[f"{size:,}", *(f"{number:.3g}" for number in row)] for size, row in zip(sizes, rows, strict=True)],
    )
    loop, fleet = dictionary(), rows[-1][1] / sizes[-1]
    print(f"Dictionary of {PUBLISHERS:,} publishers: {1e6 * loop:.3g} us a value; the fleet: {1e6 * fleet:.3g}.")
    if options.plot is not None:
        draw(sizes, rows, options.plot)


def adaptive_fleet(ids: object, values: Floats) -> fastdp.Fleet:
    fleet = fastdp.Fleet(adaptive())
    fleet.publish(ids, values)
    return fleet


def measured(size: int) -> tuple[float, float, float, float, float]:
    """Seconds of the first value of each stream and of further ones, bytes, seconds of a snapshot and a restart."""
    rng = np.random.default_rng(1)
    ids, values = rng.permutation(size), rng.exponential(10.0, size)
    begin = perf_counter()
    fleet = adaptive_fleet(ids, values)
    first = perf_counter() - begin
    passes = []
    for _ in range(5):
        begin = perf_counter()
        fleet.publish(ids, values)
        passes.append(perf_counter() - begin)
    begin = perf_counter()
    state = fleet.to_bytes(SEAL)
    snapshot = perf_counter() - begin
    begin = perf_counter()
    fastdp.Fleet.from_bytes(state, SEAL)
    restart = perf_counter() - begin
    keep("fleets", f"a further value of each of {size:,} streams", passes, items=size)
    for name, seconds in (("first value of each", first), ("snapshot", snapshot), ("restart", restart)):
        keep("fleets", f"{name} of {size:,} streams", [seconds], items=size)
    keep("fleets", f"bytes a stream of {size:,}", [fleet.nbytes / size], unit="bytes")
    return first, float(np.median(passes)), fleet.nbytes / size, snapshot, restart


def dictionary() -> float:
    """Seconds a value of publishers that take turns."""
    secret = fastdp.Key.random()
    publishers = {number: adaptive(secret.of_stream(number)) for number in range(PUBLISHERS)}
    values = np.random.default_rng(1).exponential(10.0, PUBLISHERS)
    begin = perf_counter()
    for number, value in zip(publishers, values, strict=True):
        publishers[number].publish([value])
    return (perf_counter() - begin) / PUBLISHERS


def draw(sizes: list[int], rows: list[tuple[float, float, float, float, float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for column, name in ((0, "first value of each"), (1, "a further value of each"), (3, "snapshot"), (4, "restart")):
        axes.loglog(sizes, [row[column] for row in rows], marker="o", label=name)
    axes.set(xlabel="streams", ylabel="seconds on one core", title="Fleet of Adaptive")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
