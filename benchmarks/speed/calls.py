"""The calls that users make, whole, in processor time: the default release, tables, ids, ledger, kept calls, maps."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.shared import item_counts, table
from benchmarks.speed.files import ENTRIES, kept
from benchmarks.speed.inputs import fill
from benchmarks.speed.measure import Group, Task, keep
from benchmarks.speed.streams import COPY_OF_RELEASE
from fastdp.ledger import Ledger
from fastdp.points import Box, Polygons
from fastdp_lab.queries import random_ranges

RUNS = 30
#: Rows of tables of persons, each person's rows, and rows of a person that count.
ROWS, EACH, COUNTED = 10**6, 50, 10
WINDOWS, KEYS = 1000, 60
#: Rows and keys of fresh processes, whose memory is measured.
MANY_ROWS, MANY_KEYS = 8 * 10**6, 1000
BY_CLOCK = {process_time: "", perf_counter: ", by the clock"}
#: Persons of rows in a window that is open.
WAITING = 10**6
#: Text ids of a fleet.
IDS = 100_000
#: Points of a step on a map, half of them new and half removed.
POINTS, CORNERS = 5_000, 2_001


def releases() -> Group:
    """The first call of README, of reals and of whole numbers, beside the paper's method and a copy."""
    whole = item_counts(shared.HOLDOUT + shared.PUBLISHED)
    reals = np.maximum(whole + np.random.default_rng(2).uniform(-0.5, 0.5, whole.size), 0.0)
    body, out = whole[shared.HOLDOUT :], np.empty(shared.PUBLISHED)
    queries = random_ranges(shared.PUBLISHED, shared.QUERIES, shared.MAX_RANGE, seed=1)
    fresh: list[fastdp.Release] = []
    tasks: dict[str, Task] = {
        COPY_OF_RELEASE: lambda: np.copyto(out, body),
        "ToPS": lambda: fastdp.ToPS(shared.EPSILON, shared.BOUND).release(whole),
        "fastdp.release, reals": lambda: fastdp.release(reals, shared.EPSILON, shared.BOUND),
        "fastdp.release, whole numbers": lambda: fastdp.release(whole, shared.EPSILON, shared.BOUND),
        "the first 200 intervals of a release": lambda: fresh.pop().interval(*queries),
    }
    prepare: dict[str, Task] = {
        "the first 200 intervals of a release": lambda: fresh.append(
            fastdp.release(reals, shared.EPSILON, shared.BOUND)
        ),
    }
    return Group("the default release", tasks, prepare, limit=COPY_OF_RELEASE, clock=process_time)


def ledgers(folder: Path, clock: Callable[[], float]) -> Group:
    """Whole releases of 1,000 values, without a ledger and with one of so many entries."""
    values, names = item_counts(1000), map(str, count())
    tasks: dict[str, Task] = {"no ledger": lambda: release(values)}
    for entries in ENTRIES:
        book = Ledger(folder / f"budget{entries}")
        fill(book, 0, entries)
        tasks[f"after {entries:,} entries"] = partial(_recorded, book, values, names)
    return Group("a release with a ledger" + BY_CLOCK[clock], tasks, limit="no ledger", clock=clock)


def release(values: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        # So few values have a wide error, which is said.
        warnings.simplefilter("ignore")
        return fastdp.release(values, 1e-6, 100.0, threshold=20.0, **options)


def _recorded(book: Ledger, values: Any, names: Iterator[str]) -> None:
    release(values, ledger=book, stream=next(names))


def persons_frame(rows: int) -> Any:
    """Unsorted rows of times, keys, values and persons."""
    import polars as pl

    generator = np.random.default_rng(0)
    seconds = generator.integers(0, WINDOWS * 3600, rows).astype("timedelta64[s]")
    columns = {"at": (np.datetime64("2024-01-01", "s") + seconds).astype("datetime64[us]")}
    columns |= {"key": generator.integers(0, KEYS, rows), "value": generator.gamma(2.0, 0.2, rows)}
    return pl.DataFrame(columns | {"who": generator.integers(0, rows // EACH, rows)})


def totals(frame: Any, keys: int = KEYS, **options: Any) -> Any:
    time = fastdp.Time("at", "1h", start="2024-01-01", stop="2024-02-11T16:00")
    with warnings.catch_warnings():
        # So many rows of a person are dropped.
        warnings.simplefilter("ignore")
        return fastdp.totals(
            frame, "value", by="key", keys=list(range(keys)), time=time, clip=2.0, epsilon=1.0, **options
        )


def persons() -> Group:
    """Totals of 60,000 cells where the unit is a person, and where it is a row, beside the polars group-by."""
    import polars as pl

    frame, person = persons_frame(ROWS), fastdp.Person("who", rows=COUNTED)
    cell = [pl.col("at").dt.truncate("1h"), pl.col("key")]
    tasks: dict[str, Task] = {
        "polars group-by": lambda: frame.group_by(cell).agg(pl.col("value").clip(0.0, 2.0).sum()),
        "rows": lambda: totals(frame),
        "persons": lambda: totals(frame, unit=person),
        "no rows, a million cells": lambda: totals(frame[:0], MANY_KEYS),
    }
    items = dict.fromkeys(tasks, ROWS) | {"no rows, a million cells": WINDOWS * MANY_KEYS}
    return Group("totals", tasks, items=items, limit="polars group-by", clock=process_time)


def windows() -> Group:
    """One row of a key; where persons are the unit, with 10^6 of them waiting."""
    time = fastdp.Time("at", "1h", start="2024-01-01")
    given: dict[str, Any] = {"epsilon": 1.0, "by": "key", "keys": list(range(KEYS)), "bounds": 10.0}
    plain = fastdp.Windows({"value": "sum"}, time, **given)
    unit = fastdp.Person("who", rows=COUNTED, per="1h")
    full = fastdp.Windows({"value": "sum"}, time, unit=unit, **given)
    who, moment = np.arange(WAITING), datetime(2024, 1, 1, 0, 30)
    full.add(np.full(WAITING, np.datetime64(moment)), np.ones(WAITING), who % KEYS, who)
    tasks: dict[str, Task] = {
        "a row": lambda: plain.add([moment], [1.0], [7]),
        "a row, NumPy's time in a list": partial(plain.add, [np.datetime64(moment)], [1.0], [7]),
        f"a row, {WAITING:,} persons waiting": lambda: full.add([moment], [1.0], [7], [12_345]),
    }
    return Group("Windows.add", tasks, times=10, clock=process_time)


def fleets() -> Group:
    """A fleet that meets texts, and whole numbers, for the first time; and again."""
    texts, numbers, ones = [f"meter-{i:07d}" for i in range(IDS)], np.arange(IDS), np.ones(IDS)

    def made() -> fastdp.Fleet:
        return fastdp.Fleet(fastdp.Adaptive(0.5, 100.0, threshold=20.0, max_range=4096))

    known = made()
    known.publish(texts, ones)
    tasks: dict[str, Task] = {
        "texts, first sight": lambda: made().publish(texts, ones),
        "whole numbers, first sight": lambda: made().publish(numbers, ones),
        "texts again": lambda: known.publish(texts, ones),
    }
    return Group("ids of a fleet", tasks, items=dict.fromkeys(tasks, IDS), clock=process_time)


def maps() -> Group:
    """Steps of PHDStream on a ragged polygon with a hole, and on its box."""
    import shapely

    angles = np.linspace(0.0, 2.0 * np.pi, CORNERS, endpoint=False)
    radii = 2.0 + 0.7 * np.sin(7.0 * angles) + 0.2 * np.sin(91.0 * angles)
    outline = np.c_[3.0 * radii * np.cos(angles), radii * np.sin(angles)]
    area = Polygons(shapely.Polygon(outline, [[(-0.5, -0.5), (0.5, -0.5), (0.2, 0.6)]]))
    points = np.random.default_rng(3).uniform(area.lower, area.upper, (3 * POINTS, 2))
    points = points[area.contains(points)][:POINTS]
    tasks: dict[str, Task] = {}
    for name, domain in (("box", Box(area.lower, area.upper)), ("polygons", area)):
        stream = fastdp.PHDStream(domain, 1.0, seed=1)
        stream.advance(points, None)
        tasks[name] = partial(stream.advance, points, points)
    return Group("a step of PHDStream with 5,000 points", tasks, limit="box", clock=process_time)


def groups(data: Path) -> Iterator[Callable[[], Group]]:
    del data
    yield releases
    for clock in BY_CLOCK:
        with tempfile.TemporaryDirectory() as folder:
            yield partial(ledgers, Path(folder), clock)
    with tempfile.TemporaryDirectory() as folder:
        yield lambda: replace(kept(Path(folder)), name="kept publisher, processor time", clock=process_time)
    yield persons
    yield windows
    yield fleets
    yield maps


#: Processor time of one call after a small one, and how far it lifts the peak of memory.
RISE = """
import re, time
from pathlib import Path
import fastdp
from benchmarks.speed.calls import COUNTED, KEYS, MANY_KEYS, MANY_ROWS, persons_frame, totals
peak = lambda: int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
frame, options = persons_frame({rows}), {options}
totals(frame[:1000], **options)
before, start = peak(), time.process_time()
made = totals(frame, {keys}, **options){then}
print(time.process_time() - start, peak() - before)
"""
#: Rows, keys, options and what comes after the call, and the items that share the memory.
RISES = {
    "8 x 10^6 rows, persons": ("MANY_ROWS", "KEYS", "{'unit': fastdp.Person('who', rows=COUNTED)}", "", MANY_ROWS),
    "a million cells": ("1000", "MANY_KEYS", "{}", "", WINDOWS * MANY_KEYS),
    "a million cells, with their frame": ("1000", "MANY_KEYS", "{}", ".frame", WINDOWS * MANY_KEYS),
}


def more(data: Path) -> None:
    """Memory and time of large tables in fresh processes."""
    del data
    rows = []
    for name, (size, keys, options, then, items) in RISES.items():
        program = RISE.format(rows=size, keys=keys, options=options, then=then)
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        seconds, rise = map(float, run.stdout.split())
        keep("totals", name, [seconds], items=items)
        keep("totals", f"{name}: rise of memory", [rise / 2**20], items=items, unit="MiB")
        rows.append([name, seconds, rise / 2**20, rise / items])
    table("a fresh process", ["call", "seconds", "rise, MiB", "bytes an item"], rows)
