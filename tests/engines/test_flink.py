"""Flink: a small cluster in this process's Java, with one worker process of Python for each slot."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.engines import windows
from tests.engines.scenes import expected, make_job, make_rows, needs

pytestmark = [needs("pyflink"), pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.fixture(autouse=True)
def own_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes, as on a cluster; else functions run in threads of this one."""
    monkeypatch.setenv("_python_worker_execution_mode", "process")


def environment(parallelism: int = 2, **options: str) -> Any:
    """An execution environment as small as it gets."""
    from pyflink.common import Configuration
    from pyflink.datastream import StreamExecutionEnvironment

    configuration = Configuration()
    given = {"python.executable": sys.executable, "python.client.executable": sys.executable, **options}
    for name, value in given.items():
        configuration.set_string(name, value)
    made = StreamExecutionEnvironment.get_execution_environment(configuration)
    made.set_parallelism(parallelism)
    return made


@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_bytes_for_any_number_of_workers(tmp_path: Path, workers: int) -> None:
    from fastdp.engines import flink

    job, rows = make_job(tmp_path), make_rows(300)
    given = environment(workers).from_collection(rows)
    out = list(flink.release(given, job).execute_and_collect())
    assert {place: value for _, value, place in out} == expected(job, rows)


def test_lists_are_published_as_lists(tmp_path: Path) -> None:
    from fastdp.engines import flink

    job, rows = make_job(tmp_path), make_rows(300)
    lists: dict[str, list[Any]] = {}
    for stream, value, place in rows:
        lists.setdefault(stream, []).append((value, place))
    given = [
        (stream, [value for value, _ in part], [place for _, place in part])
        for stream, mine in lists.items()
        for part in (mine[:20], mine[20:])
    ]
    out = list(flink.release(environment().from_collection(given), job).execute_and_collect())
    found = {place: value for _, values, places in out for place, value in zip(places, values, strict=True)}
    assert found == expected(job, rows)


def windows_of(rows: Any, job: Any, shards: int) -> Any:
    """Released windows of a stream of rows whose watermark is a minute behind."""
    from pyflink.common import Duration, WatermarkStrategy
    from pyflink.common.watermark_strategy import TimestampAssigner

    from fastdp.engines import flink

    class Times(TimestampAssigner):
        def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
            return int(value["at"].timestamp() * 1000)

    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(1)).with_timestamp_assigner(Times())
    return flink.windows(rows.assign_timestamps_and_watermarks(strategy), job, shards)


#: Checkpoints, restarts and watermarks that follow each other soon, and task managers in reserve: a small cluster
#: starts none in place of one that is lost.
OFTEN = {
    "minicluster.number-of-taskmanagers": "4",
    "pipeline.auto-watermark-interval": "20 ms",
    "python.fn-execution.bundle.size": "1",
    "execution.checkpointing.interval": "500 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


def paced(made: Any, rows: list[Any], pause: float = 0.02) -> Any:
    """Rows in order from a source whose place is in checkpoints; that of a collection begins again."""
    from time import sleep

    from pyflink.common import Types, WatermarkStrategy
    from pyflink.datastream.connectors.number_seq import NumberSequenceSource

    def row_at(number: int) -> Any:
        sleep(pause)
        return rows[number]

    numbers = NumberSequenceSource(0, len(rows) - 1)
    given = made.from_source(numbers, WatermarkStrategy.no_watermarks(), "rows", Types.LONG())
    return given.set_parallelism(1).map(row_at).set_parallelism(1)


def serve_streams(folder: Path, count: int) -> None:
    """A job that lasts, whose rows are logged; the harness kills its workers."""
    from fastdp.engines import flink

    made = environment(2, **OFTEN)
    given = paced(made, make_rows(count, 20))
    flink.release(given, make_job(folder)).map(windows.Log(folder / "out")).print()
    made.execute()


def serve_windows(folder: Path, count: int) -> None:
    made = environment(2, **OFTEN)
    rows = windows.make_rows(count)
    # A second of rows behind the end of all windows.
    beyond = [{**rows[0], "at": windows.END + timedelta(hours=1)}] * 50
    out = windows_of(paced(made, [*rows, *beyond]), windows.make_job(folder), 3)
    out.map(windows.Log(folder / "out")).print()
    made.execute()


@pytest.mark.parametrize(("workers", "shards", "options"), [(1, 1, {}), (2, 3, windows.PRIVATE)])
def test_windows_for_any_number_of_workers(tmp_path: Path, workers: int, shards: int, options: windows.Row) -> None:
    job, rows = windows.make_job(tmp_path, **options), windows.make_rows()
    rows = [{**row, "who": "7"} if k % 3 else row for k, row in enumerate(rows)]
    made = environment(workers, **OFTEN)
    beyond = [{**rows[0], "at": windows.END + timedelta(hours=1)}] * 50
    # A person of two types is one; rows that are not accepted are dropped.
    given = [{**row, "who": 7} if row["who"] == "7" and k % 2 else row for k, row in enumerate(rows)]
    given[20:20] = [{**rows[20], "who": None}, {**rows[20], "kwh": "much"}]
    out = list(windows_of(paced(made, [*given, *beyond], 0.005), job, shards).execute_and_collect())
    wanted = windows.expected(job, rows)
    assert windows.in_order(out)[: len(wanted)] == wanted
