"""Spark: one session for finished tables, and a streaming query that is killed and restarted from its checkpoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest

from fastdp.errors import ParameterError
from tests.engines import windows
from tests.engines.conftest import environment
from tests.engines.scenes import Row, expected, make_job, make_rows, needs

pytestmark = [
    needs("pyspark", "pandas", "pyarrow", "narwhals"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.slow,
]
COLUMNS = ["id", "kwh", "place"]


def put(folder: Path, rows: list[Row], number: int) -> None:
    """A file that a streaming query finds, whole."""
    import pandas as pd

    (folder / "in").mkdir(exist_ok=True)
    part = folder / "part"
    pd.DataFrame(rows, columns=COLUMNS).to_parquet(part)
    # Spark takes files in the order of these times, which may be equal for files of one moment.
    os.utime(part, (1.7e9 + number, 1.7e9 + number))
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


def read(folder: Path) -> tuple[list[Any], list[Any]]:
    """Every row that a file shows, those of micro-batches that were not committed included; committed rows."""
    import pyarrow.parquet as pq

    # Plain files and compacted ones, which name the earlier ones once more.
    lines = [line for log in (folder / "out" / "_spark_metadata").glob("[0-9]*") for line in log.open()]
    committed = {Path(json.loads(line)["path"]).name for line in lines if line.startswith("{")}
    found, kept = [], []
    for path in (folder / "out").glob("*.parquet"):
        # A kill cuts files that no commit names.
        if path.name in committed or path.read_bytes()[-4:] == b"PAR1":
            rows = pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read().to_pylist()
            found += rows
            kept += rows if path.name in committed else []
    return found, kept


def assert_published(folder: Path, rows: list[Row]) -> None:
    """Whatever is visible has one noise, and each row is committed once."""
    found, kept = read(folder)
    wanted = expected(make_job(folder), rows)
    assert all(wanted[row["place"]] == row["published"] for row in found), "an output with two noises"
    assert sorted(row["place"] for row in kept) == sorted(wanted)


@pytest.mark.parametrize("workers", [1, 3])
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
    session.conf.set("spark.sql.shuffle.partitions", "1")


def test_names_with_dots_and_ids_of_other_types(tmp_path: Path, session: Any) -> None:
    import pandas as pd

    from fastdp.engines import spark

    job, rows = make_job(tmp_path), make_rows(100)
    names = {"id": "house.meter", "order": "at.place", "value": "kwh.sum"}
    table = session.createDataFrame(pd.DataFrame([(*row[::2], row[1]) for row in rows], columns=list(names.values())))
    published = spark.release(table, job, **names)
    assert published.columns == ["house.meter", "at.place", "published"]
    assert {row["at.place"]: row["published"] for row in published.collect()} == expected(job, rows)
    with pytest.raises(ParameterError, match=r"id = 'kwh\.sum' holds double entries: expected texts or"):
        spark.release(table, job, **names | {"id": "kwh.sum"})


def test_another_number_of_partitions_after_a_restart(tmp_path: Path, session: Any) -> None:
    """The checkpoint has the number that decides where the state of a key is; a session's new one is not taken."""
    rows = make_rows(60)
    for number, partitions in enumerate(("2", "3")):
        session.conf.set("spark.sql.shuffle.partitions", partitions)
        put(tmp_path, rows[30 * number : 30 * number + 30], number)
        start_query(session, tmp_path).awaitTermination()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    assert_published(tmp_path, rows)


PROGRAM = """
import sys
from datetime import UTC
from pathlib import Path
from tests.engines.scenes import make_session
from tests.engines.test_spark import start_query
start_query(make_session(), Path(sys.argv[1])).awaitTermination()
"""


def test_a_query_is_killed_and_restarted(tmp_path: Path, session: Any) -> None:
    rows = make_rows(120)
    for number in range(3):
        put(tmp_path, rows[40 * number : 40 * number + 40], number)
    with environment():
        child = subprocess.Popen([sys.executable, "-W", "ignore", "-c", PROGRAM, tmp_path], start_new_session=True)
    commits = tmp_path / "checkpoint" / "commits"
    deadline = monotonic() + 900
    while monotonic() < deadline:
        # Not reaped, so that its group is there to be killed.
        ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if (commits / "0").exists():
            break
        assert ended is None, "the query ended"
        sleep(0.05)
    assert (commits / "0").exists()
    # Java and the Python workers are in its group.
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    query = start_query(session, tmp_path)
    query.awaitTermination()
    assert query.exception() is None
    assert_published(tmp_path, rows)


def put_windows(folder: Path, rows: list[windows.Row], number: int) -> None:
    """A file of rows of windows, whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "in").mkdir(exist_ok=True)
    part = folder / "part"
    kinds = [
        ("at", pa.timestamp("us", "UTC")),
        ("shop.town", pa.string()),
        ("kwh", pa.float64()),
        ("who", pa.string()),
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(kinds)), part)
    os.utime(part, (1.7e9 + number, 1.7e9 + number))
    part.rename(folder / "in" / f"{number}.parquet")


def start_windows(session: Any, folder: Path, job: Any, shards: int = 3) -> Any:
    """One file a micro-batch, until all are read."""
    from fastdp.engines import spark

    given = session.readStream.schema("at timestamp, `shop.town` string, kwh double, who string")
    rows = given.option("maxFilesPerTrigger", 1).parquet(str(folder / "in")).withWatermark("at", "0 seconds")
    writer = spark.windows(rows, job, shards).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).option("path", str(folder / "out"))
    return writer.trigger(availableNow=True).start()


def read_windows(folder: Path) -> list[list[windows.Row]]:
    """As :func:`read`; Spark's files leave the zone out."""
    return [[{**row, "window": row["window"].replace(tzinfo=UTC)} for row in rows] for rows in read(folder)]


def windows_files(rows: list[windows.Row], each: int = 4) -> list[list[windows.Row]]:
    """So many windows a file, in any order; the last file moves the watermark alone."""
    rng = np.random.default_rng(1)
    numbers = range(windows.WINDOWS // each)
    files = [[row for row in rows if (row["at"] - windows.START) // (each * windows.MINUTE) == k] for k in numbers]
    for part in files:
        rng.shuffle(part)
    return [*files, [{**rows[0], "at": windows.END}]]


@pytest.mark.parametrize("options", [{}, windows.PRIVATE])
def test_windows_of_a_query_that_restarts(tmp_path: Path, session: Any, options: windows.Row) -> None:
    job, rows = windows.make_job(tmp_path, **options), windows.make_rows()
    for number, part in enumerate(windows_files(rows)):
        put_windows(tmp_path, part, number)
        if number in (0, 2):
            start_windows(session, tmp_path, job).awaitTermination()
    assert windows.in_order(read_windows(tmp_path)[1]) == windows.expected(job, rows)
    put_windows(tmp_path, [{**rows[0], "at": windows.END + windows.MINUTE}], 3)
    with pytest.raises(Exception, match="shards = 3 in the state, 4 asked"):
        start_windows(session, tmp_path, job, 4).awaitTermination()
