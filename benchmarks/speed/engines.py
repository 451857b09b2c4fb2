"""Spark, two cores: totals of generated rows beside its own group-by, and streams beside its own shuffle and sort."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np

import fastdp
from benchmarks.shared import table
from benchmarks.speed.measure import keep
from fastdp.engines import Job, spark

#: Of the generated rows: 1,000 hours, 1,000 keys; streams of the second table.
HOURS, KEYS, STREAMS = 1000, 1000, 5000
HOUR, BEGIN = 3_600_000_000, 1_704_067_200_000_000
TIME = fastdp.Time("at", "1h", start="2024-01-01", stop="2024-02-11T16:00", zone="UTC")
PUBLIC: dict[str, Any] = {"epsilon": 1.0, "clip": 10.0}
OWN, OURS, SEVERAL = "Spark's group-by: sum and count", "fastdp.totals", "fastdp.aggregate: sum, mean, count"
SORTED, STREAM = "Spark's shuffle and sort", "spark.release"


def run(
    *,
    rows: Annotated[float, "of the totals"] = 1e8,
    stream_rows: Annotated[float, "of the streams"] = 2e6,
    rounds: Annotated[int, "in which the tasks take turns"] = 3,
    cores: Annotated[int, "of Spark"] = 2,
    texts: Annotated[bool, "keys are texts, not numbers"] = False,
) -> None:
    session = make_session(cores)
    try:
        if rows:
            totals(session, int(rows), rounds, texts=texts)
        if stream_rows:
            streams(session, int(stream_rows), rounds)
    finally:
        session.stop()


def make_session(cores: int) -> Any:
    from tests.engines import scenes

    return scenes.make_session(cores)


def generated(session: Any, rows: int, texts: bool) -> Any:
    """Expression columns, so that Spark reads no file."""
    from pyspark.sql import functions as f

    mixed = f.col("id") * 2654435761 % 2**31
    key = f.col("id") * 48271 % KEYS
    return session.range(rows).select(
        f.timestamp_micros(f.lit(BEGIN) + mixed * 1_676_381 % (HOURS * HOUR)).alias("at"),
        (f.concat(f.lit("meter-"), key.cast("string")) if texts else key).alias("key"),
        (mixed % 1_000_003 / 50_000.0).alias("value"),
    )


def totals(session: Any, rows: int, rounds: int, *, texts: bool) -> None:
    from pyspark.sql import functions as f

    frame = generated(session, rows, texts)
    public = {**PUBLIC, "by": "key", "keys": [f"meter-{key}" if texts else key for key in range(KEYS)]}

    def own() -> Any:
        window = f.expr(f"unix_micros(at) div {HOUR}L").alias("window")
        return frame.groupBy(window, "key").agg(f.sum("value"), f.count(f.lit(1))).toArrow()

    def ours() -> Any:
        return fastdp.totals(spark.table(frame), "value", TIME, **public, key=bytes(32))

    def several() -> Any:
        given = {name: public[name] for name in ("epsilon", "by", "keys")} | {"bounds": bounds, "key": bytes(32)}
        wanted = {"value": ["sum", "mean"], "*": "count"}
        return fastdp.aggregate(spark.table(frame), wanted, TIME, **given)

    bounds = fastdp.Value(clip=public["clip"])
    _turns("totals", {OWN: own, OURS: ours, SEVERAL: several}, rows, rounds)


def streams(session: Any, rows: int, rounds: int) -> None:
    from pyspark.sql import functions as f

    with tempfile.TemporaryDirectory() as name:
        secret, stored = Path(name) / "secret", f"{name}/rows"
        secret.touch(0o600)
        secret.write_bytes(bytes(32))
        mixed = f.col("id") * 2654435761 % 2**31
        made = session.range(rows).select(
            f.concat(f.lit("meter-"), (mixed % STREAMS).cast("string")).alias("id"),
            (f.col("id") * 7919 % rows).alias("at"),
            (mixed % 1_000_003 / 100_000.0).alias("value"),
        )
        made.write.parquet(stored)
        frame = session.read.parquet(stored)
        mechanism = fastdp.Adaptive(epsilon=1.0, bound=10.0, threshold=5.0, max_range=4096)
        job = Job(mechanism, name="streams", secret=f"file:{secret}")

        def run_through(given: Any) -> None:
            given.write.format("noop").mode("overwrite").save()

        tasks: dict[str, Callable[[], Any]] = {
            SORTED: lambda: run_through(frame.repartition("id").sortWithinPartitions("id", "at", "value")),
            STREAM: lambda: run_through(spark.release(frame, job, id="id", order="at", value="value")),
        }
        _turns("streams", tasks, rows, rounds)


def _turns(title: str, tasks: dict[str, Callable[[], Any]], rows: int, rounds: int) -> None:
    """Wall and processor seconds of each task, in turn; the first round has Java's compiler."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            begin, used = perf_counter(), _processor_seconds()
            task()
            found[name].append((perf_counter() - begin, _processor_seconds() - used))
    lines: list[list[object]] = []
    first = np.min(found[next(iter(tasks))], axis=0)
    for name, times in found.items():
        keep(f"spark {title} of {rows:.0e} rows", name, [each[0] for each in times], items=rows)
        keep(f"spark {title} of {rows:.0e} rows", f"{name}, processor", [each[1] for each in times], items=rows)
        wall, used = (float(each) for each in np.min(times, axis=0))
        ratios = [wall / first[0], used / first[1] if first[1] else None]
        lines.append([name, wall, used, f"{rows / wall:.3g}", f"{2 * rows / used:.3g}" if used else None, *ratios])
    columns = ["task", "s", "processor s", "rows a second", "on two free cores", "over Spark's own", "processor"]
    table(f"Spark {title}, {rows:,} rows, least of {rounds}", columns, lines)


def _processor_seconds() -> float:
    """Of this process and all that it started: Java and the Python workers; 0 where /proc is not there."""
    mine, parents, times = {os.getpid()}, dict[int, int](), dict[int, int]()
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = each.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(each.parent.name)] = int(fields[1])
        times[int(each.parent.name)] = sum(map(int, fields[11:15]))
    for _ in range(8):
        mine |= {child for child, parent in parents.items() if parent in mine}
    return sum(times.get(each, 0) for each in mine) / os.sysconf("SC_CLK_TCK")
