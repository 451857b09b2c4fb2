"""A fleet of Adaptive against the number of its streams, beside a dictionary of publishers."""

from time import process_time
from typing import Annotated

import numpy as np

import fastdp
from benchmarks.shared import Floats, table
from benchmarks.speed.measure import keep, stay_on_one_core

#: Of the dictionary: each takes milliseconds to make.
PUBLISHERS = 1_000
SEAL = bytes(range(32))
#: Seconds of the first value of each stream and of further ones; bytes; seconds of snapshot and restart; its bytes.
Row = tuple[float, float, float, float, float, float]


def adaptive(key: fastdp.Key | None = None) -> fastdp.Adaptive:
    return fastdp.Adaptive(epsilon=0.5, bound=100.0, threshold=20.0, max_range=4096, key=key)


def run(*, most: Annotated[int, "streams of the largest fleet (10^7 need 8 GB)"] = 10**6) -> None:
    sizes = [10**k for k in range(3, 9) if 10**k <= most]
    print(f"Processor seconds; process {stay_on_one_core()}.")
    # Kernels and the cipher, once.
    fastdp.Fleet.from_bytes(adaptive_fleet(np.arange(10), np.ones(10)).to_bytes(SEAL), SEAL)
    rows = [measured(size) for size in sizes]
    columns = ["streams", "first value of each", "a further value of each", "bytes a stream", "sealed snapshot"]
    cells = [[size, *row] for size, row in zip(sizes, rows, strict=True)]
    table("Fleet of Adaptive: seconds of one core", [*columns, "restart", "bytes a stream there"], cells)
    loop, fleet = dictionary(), rows[-1][1] / sizes[-1]
    print(f"Dictionary of {PUBLISHERS:,} publishers: {1e6 * loop:.3g} us a value; the fleet: {1e6 * fleet:.3g}.")


def adaptive_fleet(ids: object, values: Floats) -> fastdp.Fleet:
    fleet = fastdp.Fleet(adaptive())
    fleet.publish(ids, values)
    return fleet


def measured(size: int) -> Row:
    """Time and memory of a fleet of so many streams."""
    rng = np.random.default_rng(1)
    ids, values = rng.permutation(size), rng.exponential(10.0, size)
    begin = process_time()
    fleet = adaptive_fleet(ids, values)
    first = process_time() - begin
    passes = []
    for _ in range(5):
        begin = process_time()
        fleet.publish(ids, values)
        passes.append(process_time() - begin)
    begin = process_time()
    state = fleet.to_bytes(SEAL)
    snapshot = process_time() - begin
    begin = process_time()
    fastdp.Fleet.from_bytes(state, SEAL)
    restart = process_time() - begin
    keep("fleets", f"a further value of each of {size:,} streams", passes, items=size)
    for name, seconds in (("first value of each", first), ("snapshot", snapshot), ("restart", restart)):
        keep("fleets", f"{name} of {size:,} streams", [seconds], items=size)
    held, stored = fleet.nbytes / size, len(state) / size
    keep("fleets", f"bytes a stream of {size:,}", [held], unit="bytes")
    keep("fleets", f"sealed bytes a stream of {size:,}", [stored], unit="bytes")
    return first, float(np.median(passes)), held, snapshot, restart, stored


def dictionary() -> float:
    """Seconds a value of publishers that take turns."""
    secret = fastdp.Key.random()
    publishers = {number: adaptive(secret.of_stream(number)) for number in range(PUBLISHERS)}
    adaptive().publish([1.0])  # kernels, once
    values = np.random.default_rng(1).exponential(10.0, PUBLISHERS)
    begin = process_time()
    for number, value in zip(publishers, values, strict=True):
        publishers[number].publish([value])
    return (process_time() - begin) / PUBLISHERS
