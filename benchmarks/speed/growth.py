"""Growth with the length: a value's cost in a stream of up to 10^9 values, a ledger's by its entries."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Annotated, Any

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.shared import item_counts, table
from benchmarks.speed import measure
from benchmarks.speed.inputs import CHUNK, GUARANTEE, LONG_CHUNK, PUBLISHERS, fill
from benchmarks.speed.measure import keep, stay_on_one_core
from fastdp.ledger import Ledger
from fastdp.perturbers import Flat

FIRST, LAST, LEDGER = 5, 9, (2, 6)
#: A stream ends early where its next part would take longer.
PATIENCE = 15.0
SPENDS = 30
#: Entries, and milliseconds of a release and of opening the file.
Book = tuple[list[int], list[float], list[float]]


def flat(max_range: int) -> fastdp.StreamPublisher:
    """Noise of its own on every value, bound to the values before."""
    fixed = {"epsilon": shared.EPSILON, "bound": shared.BOUND, "threshold": 58.0}
    return fastdp.StreamPublisher(**fixed, perturber=Flat(), max_range=max_range, seed=1)  # type: ignore[arg-type]


#: Publishers, and values a call.
STREAMS: dict[str, tuple[Callable[[int], Any], int]] = {
    "ToPS, s = 0": (PUBLISHERS["ToPS, prune 0"], LONG_CHUNK),
    "ToPS, s = 2": (PUBLISHERS["ToPS, prune 2"], LONG_CHUNK),
    "ToPS, s = 2, 4,096 a call": (PUBLISHERS["ToPS, prune 2"], CHUNK),
    "Adaptive": (PUBLISHERS["Adaptive, spread"], LONG_CHUNK),
    "Adaptive, 4,096 a call": (PUBLISHERS["Adaptive, spread"], CHUNK),
    "PAK": (PUBLISHERS["PAK"], LONG_CHUNK),
    "Flat": (flat, LONG_CHUNK),
}


def run(
    *,
    last: Annotated[int, "longest stream, a power of ten"] = LAST,
    plot: Annotated[Path | None, "a picture of both"] = None,
) -> None:
    """Tables of streams and of the ledger, and a picture."""
    print(f"Process {stay_on_one_core()}.")
    streams, book = {name: costs(name, last) for name in STREAMS}, ledger()
    lengths = max((line[0] for line in streams.values()), key=len)
    cells = itertools.zip_longest(lengths, *(found for _, found in streams.values()))
    title = "Nanoseconds of processor time a value, between the length before and this one"
    table(title, ["values", *streams], cells)
    entries, spends, opens = book
    title = f"Ledger: milliseconds of a release, median of {SPENDS}, and of opening the file"
    table(title, ["entries", "spend", "open"], zip(*book, strict=True))
    if plot is not None:
        text = {"xlabel": "values published", "ylabel": "ns a value", "title": "Endless streams, one core"}
        of_book = {"xlabel": "entries", "ylabel": "milliseconds, disk included", "title": "Ledger"}
        lines = {"spend": (entries, spends), "open": (entries, opens)}
        measure.draw(
            plot,
            lambda axes: measure.panel(axes, streams, yscale="log", ylim=(0.3, 3e3), **text),
            lambda axes: measure.panel(axes, lines, ylim=(0, None), **of_book),
        )


def costs(name: str, last: int) -> measure.Line:
    """Lengths, and nanoseconds a value of the part that ends there; the hold-out is not counted."""
    make, size = STREAMS[name]
    publisher, chunk = make(shared.MAX_RANGE), item_counts(size)
    # Kernels are compiled by another one.
    for one in (make(shared.MAX_RANGE), publisher):
        one.publish(item_counts(shared.HOLDOUT))
        if one is not publisher:
            for stop in (CHUNK - 5, size, 5):
                one.publish(chunk[:stop])
    lengths, found, done = list[int](), list[float](), 0
    for half in range(2 * FIRST, 2 * last + 1):
        length = round(10.0 ** (half / 2))
        if found and (length - done) * found[-1] > PATIENCE * 1e9:
            break
        begin, count = process_time(), length - done
        while done < length:
            publisher.publish(chunk[: length - done])
            done += min(size, length - done)
        seconds = process_time() - begin
        keep("growth", f"{name}: values up to {length:,}", [seconds], items=count)
        lengths.append(length)
        found.append(seconds / count * 1e9)
    return lengths, found


def ledger() -> Book:
    entries, spends, opens = list[int](), list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        path, filled = Path(folder) / "budget", 0
        for power in range(2 * LEDGER[0], 2 * LEDGER[1] + 1):
            count = round(10.0 ** (power / 2))
            book = Ledger(path)
            fill(book, filled, count)
            begin = perf_counter()
            book = Ledger(path)
            book.spend(GUARANTEE, stream="meter")
            opened = perf_counter() - begin
            times = []
            for _ in range(SPENDS):
                begin = perf_counter()
                book.spend(GUARANTEE, stream="meter")
                times.append(perf_counter() - begin)
            book.close()
            filled = count + SPENDS + 1
            keep("growth", f"ledger: a release after {count:,} entries", times)
            entries.append(count)
            spends.append(1e3 * float(np.median(times)))
            opens.append(1e3 * opened)
    return entries, spends, opens
