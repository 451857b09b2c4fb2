"""Jobs on engines: rows a second row by row, in lists and in batches, and bytes of state."""

import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np

from benchmarks.shared import table
from benchmarks.speed.measure import keep
from tests.engines import scenes

#: Streams of the rates, numbers in a list, rows in a batch.
STREAMS, LIST, BATCH = 100, 100, 10_000
Run = Callable[[Path, list[Any]], object]


def _bytewax(folder: Path, rows: list[Any]) -> None:
    from bytewax.testing import run_main

    from tests.engines import test_bytewax

    run_main(test_bytewax.flow(rows, scenes.make_job(folder), [], batch=1000))


def _quix(folder: Path, rows: list[Any]) -> float:
    """Its time is that from the first message to the last."""
    import json

    from fastdp_lab.kafka import Broker
    from tests.engines import test_quix

    broker = Broker()
    broker.send("in", [(stream, json.dumps(value).encode()) for stream, value, *_ in rows])
    moments: list[float] = []

    def make(place: Path, frame: Any) -> Any:
        return test_quix.streams(place, frame.update(lambda _: moments.append(perf_counter())))

    test_quix.serve(broker.address, folder, make)
    return moments[-1] - moments[0]


#: Package, a run, sizes of lists of numbers in a row, times of the number of rows.
ENGINES: dict[str, tuple[str, Run, tuple[int, ...], int]] = {
    "Bytewax": ("bytewax", _bytewax, (1,), 20),
    "Quix Streams": ("quixstreams", _quix, (1, LIST), 1),
}


def rates(rows: int) -> None:
    """Rows a second: of twice the rows less that of the rows, so that the start of an engine does not count."""
    found: list[list[object]] = []
    for name, (package, run, sizes, times) in ENGINES.items():
        for size in sizes if find_spec(package) else ():
            seconds, number = [], rows * min(times * size, 20)
            for count in (number, 2 * number):
                given: list[Any] = scenes.make_rows(count, STREAMS)
                if size > 1:
                    lists = range(len(given) // size)
                    given = [(f"m{k % STREAMS}", [row[1] for row in given[size * k :][:size]]) for k in lists]
                with tempfile.TemporaryDirectory() as folder:
                    begin = perf_counter()
                    own = run(Path(folder), given)
                    seconds.append(own if isinstance(own, float) else perf_counter() - begin)
            form, taken = f"lists of {size}" if size > 1 else "row by row", max(seconds[1] - seconds[0], 1e-9)
            keep("rows of streams on engines", f"{name}, {form}", [taken], items=number)
            found.append([name, form, f"{number / taken:.2g}"])
    table(f"Streams on engines, {STREAMS} ids", ["engine", "form", "rows a second"], found)


def _job(folder: Path, rows: int, streams: int, size: int) -> tuple[float, int]:
    """Seconds of a row by `advance`, and bytes of the last state."""
    job, rng = scenes.make_job(folder), np.random.default_rng(1)
    ids, values = rng.integers(0, streams, rows), rng.uniform(0.0, 10.0, rows)
    state = job.advance(None, np.arange(streams), np.ones(streams))[0]
    begin = perf_counter()
    for first in range(0, rows, size):
        state = job.advance(state, ids[first : first + size], values[first : first + size])[0]
    return (perf_counter() - begin) / rows, len(state)


def run(
    *, rows: Annotated[int, "of an engine; 0: none"] = 20_000, streams: Annotated[int, "in the largest state"] = 10**6
) -> None:
    """Rates of a job's own calls, of the engines that are installed, and growth."""
    with tempfile.TemporaryDirectory() as name:
        folder, lines = Path(name), list[list[object]]()
        for form, size, number in (("one value", 1, 5000), ("100", 100, 200_000), ("10,000", BATCH, 1_000_000)):
            # One stream a call, as engines give it; batches are of all.
            seconds, _ = _job(folder, number, 1 if size < BATCH else STREAMS, size)
            keep("rows of Job.advance", form, [seconds])
            lines.append([f"Job.advance, {form} a call", f"{1 / seconds:.2g}"])
        table("Jobs without an engine", ["work", "rows a second"], lines)
        begin = perf_counter()
        job, fleet = scenes.make_job(folder), scenes.make_job(folder).fleet()
        fleet.publish(np.arange(streams), np.ones(streams))
        begin = perf_counter()
        state = job.to_bytes(fleet)
        written = perf_counter()
        job.from_bytes(state)
        read = perf_counter()
        alone = len(job.advance(None, ["a"], [1.0])[0])
        keep("snapshot of streams", "to_bytes", [written - begin], items=streams)
        keep("snapshot of streams", "from_bytes", [read - written], items=streams)
        row = [f"{streams:,}", len(state) / streams, alone, written - begin, read - written]
        table("State", ["streams", "bytes of each in one state", "of one alone", "s to write", "s to read"], [row])
    if rows:
        rates(rows)
