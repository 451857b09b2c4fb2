"""Jobs on engines: rows a second row by row, in lists and in batches, bytes of state, and a picture of growth."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np

from benchmarks.shared import table
from benchmarks.speed.measure import keep
from tests.engines import scenes, windows

#: Streams of the rates, numbers in a list, rows in a batch.
STREAMS, LIST, BATCH = 100, 100, 10_000
#: Rows of an engine's run by form: one that takes a microsecond a row needs many.
FORMS = {"row by row": 1, "lists of 100": LIST}
Run = Callable[[Path, list[Any]], object]


def _kafka(folder: Path, rows: list[Any]) -> float:
    """Its time is that from the first step to the last."""
    from fastdp_lab.kafka import Broker
    from tests.engines import test_kafka

    broker, moments = Broker(), list[float]()
    test_kafka.send(broker.address, rows)
    test_kafka.serve(broker.address, folder, lambda: moments.append(perf_counter()), batch=1000)
    return moments[-1] - moments[0]


def _flink(folder: Path, rows: list[Any]) -> None:
    from fastdp.engines import flink
    from tests.engines import test_flink

    os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112
    given = test_flink.environment(1).from_collection(rows)
    list(flink.release(given, scenes.make_job(folder)).execute_and_collect())


def _shards(folder: Path, rows: list[Any], start: Callable[[ExitStack], Callable[..., Any]]) -> float:
    with ExitStack() as stack:
        made = stack.enter_context(start(stack)(scenes.make_job(folder), folder / "state", 2))
        ids, values = [row[0] for row in rows], np.array([row[1] for row in rows])
        made.publish(1, ids, values)
        begin = perf_counter()
        made.publish(2, ids, values)
        return perf_counter() - begin


def _dask(stack: ExitStack) -> Callable[..., Any]:
    from distributed import Client, LocalCluster

    from fastdp.engines.dask import DaskShards

    cluster = stack.enter_context(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None))
    return partial(DaskShards, client=stack.enter_context(Client(cluster)))


#: Package, a run, whether rows may be lists of numbers, times of the number of rows.
ENGINES: dict[str, tuple[str, Run, bool, int]] = {
    "Kafka": ("confluent_kafka", _kafka, False, 1),
    "Flink": ("pyflink", _flink, True, 1),
    "Dask, one batch": ("distributed", partial(_shards, start=_dask), False, 20),
}


def rates(rows: int) -> None:
    """Rows a second: of twice the rows less that of the rows, so that the start of an engine does not count."""
    found: list[list[object]] = []
    for name, (package, run, lists, times) in ENGINES.items():
        if find_spec(package) is None:
            continue
        for form, size in FORMS.items():
            if size > 1 and not lists:
                continue
            seconds = []
            for count in (rows, 2 * rows):
                given: list[Any] = scenes.make_rows(count * min(times * size, 20), STREAMS)
                if size > 1:
                    given = [
                        (f"m{k % STREAMS}", [row[1] for row in given[size * k :][:size]])
                        for k in range(len(given) // size)
                    ]
                with tempfile.TemporaryDirectory() as folder:
                    begin = perf_counter()
                    own = run(Path(folder), given)
                    seconds.append(own if isinstance(own, float) else perf_counter() - begin)
            number = rows * min(times * size, 20)
            taken = max(seconds[1] - seconds[0], 1e-9) if not isinstance(own, float) else seconds[1] / 2.0
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


def _windows(folder: Path, rows: int, count: int, shards: int, keys: int) -> tuple[float, int]:
    """Seconds of a row through shards and their merge, and bytes of a shard's state before the windows end."""
    from fastdp.engines.windows import Shard, columns_of, merge, owners

    job = windows.make_job(folder, keys=[f"k{k}" for k in range(keys)])
    rng, length = np.random.default_rng(1), count * windows.MINUTE
    moments = np.sort(rng.uniform(0.0, 1.0, rows))
    given = [
        {"at": windows.START + at * length, "shop.town": f"k{k}", "kwh": 1.0, "who": f"p{who}"}
        for at, k, who in zip(moments.tolist(), rng.integers(0, keys, rows), rng.integers(0, 1000, rows), strict=True)
    ]
    columns = columns_of(job, given)
    begin = perf_counter()
    whose, merged, size = owners(job, columns, shards), dict[int, bytes](), 0
    for k in range(shards):
        shard, mine = Shard(job, (k, shards)), np.flatnonzero(whose == k).tolist()
        shard.add({name: [column[i] for i in mine] for name, column in columns.items()})
        size = len(shard.to_bytes())
        for window, share in shard.advance(windows.START + length):
            merged[window], _ = merge(job, shards, merged.get(window), share)
    return (perf_counter() - begin) / rows, size


def growth(folder: Path, most: int) -> dict[str, list[tuple[int, float, int]]]:
    """Of one axis each: sizes, microseconds a row, bytes of state."""
    tens = [10**k for k in range(3, 9) if 10**k <= most]
    found: dict[str, list[tuple[int, float, int]]] = {}
    _windows(folder, 1000, 8, 4, 10)
    for name, sizes, run in (
        ("rows of 1,000 streams", tens, lambda n: _job(folder, n, 1000, BATCH)),
        ("streams, 100,000 rows", [10, 100, *tens], lambda n: _job(folder, 100_000, n, BATCH)),
        ("keys of windows, 20,000 rows", [10, 100, 1000, 10_000], lambda n: _windows(folder, 20_000, 8, 4, n)),
        ("windows, 20,000 rows", [1, 10, 100, 1000], lambda n: _windows(folder, 20_000, n, 4, 10)),
        ("shards of windows, 20,000 rows", [1, 4, 16, 64], lambda n: _windows(folder, 20_000, 8, n, 10)),
    ):
        found[name] = []
        for size in sizes:
            seconds, state = run(size)
            keep("growth of jobs", f"{name}: {size}", [seconds])
            found[name].append((size, 1e6 * seconds, state))
    return found


def draw(found: dict[str, list[tuple[int, float, int]]], path: Path) -> None:
    """Microseconds a row, and bytes of state, over each size."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, points in found.items():
        sizes, micros, states = zip(*points, strict=True)
        left.loglog(sizes, micros, marker="o", label=name)
        right.loglog(sizes, states, marker="o", label=name)
    left.set(xlabel="number", ylabel="microseconds a row")
    right.set(xlabel="number", ylabel="bytes of a state")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(path, dpi=110)


def run(
    *,
    rows: Annotated[int, "of an engine; 0: none"] = 20_000,
    streams: Annotated[int, "in the largest state"] = 10**6,
    plot: Annotated[Path | None, "file of the picture of growth"] = None,
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
        if plot is not None:
            draw(growth(folder, streams), plot)
    if rows:
        rates(rows)
