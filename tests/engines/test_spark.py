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

import fastdp
from fastdp.errors import DataError, ParameterError
from tests.engines import windows
from tests.engines.conftest import environment
from tests.engines.scenes import Row, expected, make_job, make_rows, needs
from tests.tables import flat
from tests.tables.rows import as_family
from tests.tables.zones import ROWS, ZONES, instants, released

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


def make_table() -> Any:
    """Over the last Sunday of March, with values that are no multiple of any step."""
    import pandas as pd

    rng = np.random.default_rng(1)
    moments = pd.Timestamp("2024-03-29", tz="UTC") + pd.to_timedelta(
        rng.integers(0, 4 * 86_400 * 10**6, 3000), unit="us"
    )
    meters = [f"m{k}" for k in rng.integers(0, 5, 3000)]
    return pd.DataFrame({"at": moments, "meter": meters, "kwh": rng.exponential(2.0, 3000)})


@pytest.mark.parametrize(("every", "zone"), [("1h", "UTC"), ("1d", "Europe/Paris"), ("1w", None)])
def test_totals_and_counts_are_those_of_one_machine(session: Any, every: str, zone: str | None) -> None:
    from fastdp.engines import spark

    frame = make_table()
    table = session.createDataFrame(frame)
    options: dict[str, Any] = {"epsilon": 1.0, "start": "2024-03-25", "stop": "2024-04-08", "key": bytes(32)}
    options |= {"by": "meter", "keys": ["m3", "m0", "nowhere"]}
    clipped = options | {"clip": 4.0}
    pairs = [
        (
            flat.totals(frame, "kwh", "at", every, zone=zone or "UTC", **clipped),
            flat.totals(table, "kwh", "at", every, zone=zone, module=spark, **clipped),
        ),
        (
            flat.counts(frame, "at", every, zone=zone or "UTC", **options),
            flat.counts(table, "at", every, zone=zone, module=spark, **options),
        ),
    ]
    for one, two in pairs:
        assert_equal(one, two)


def test_tables_in_every_zone(session: Any, tmp_path: Path) -> None:
    """Clock times in a named zone, and instants in that of the session, whose name may be another."""
    from fastdp.engines import spark

    clock = as_family(ROWS, "pandas", tmp_path)
    times = [row[0] for row in ROWS]
    schema = "at timestamp_ntz, meter string, kwh double, person bigint"
    plain = session.createDataFrame(clock.assign(at=times), schema)
    for zone in ZONES:
        wanted = released(clock, zone)
        assert released(spark.table(plain), zone) == wanted
        if zone is not None:
            # narwhals asks a session for its zone once.
            own = session.newSession()
            own.conf.set("spark.sql.session.timeZone", zone)
            assert released(spark.table(own.createDataFrame(instants(clock, zone))), None) == wanted


def assert_equal(one: Any, two: Any) -> None:
    """Bit for bit."""
    for own, other in zip(one.released.measured, two.released.measured, strict=True):
        assert np.array_equal(own.steps, other.steps)
        assert own.noise == other.noise
    assert two.clipped_rows == one.clipped_rows
    assert two.released.edges.tolist() == one.released.edges.tolist()
    assert two.released.nodes == one.released.nodes
    # Tails hold arrays, which are compared by their texts: they are short.
    assert repr(two.released.tails) == repr(one.released.tails)
    assert two.guarantee == one.guarantee


def test_what_spark_tables_refuse(session: Any, tmp_path: Path) -> None:
    from fastdp.engines import spark

    frame = make_table()
    frame.loc[7, "kwh"] = float("nan")
    table = session.createDataFrame(frame)
    options: dict[str, Any] = {"epsilon": 1.0, "start": "2024-03-29", "stop": "2024-04-02", "key": bytes(32)}
    ledger = fastdp.Ledger(tmp_path / "budget")
    for wrong, said in (({"bound": 9.0}, "clip="), ({"clip": 4.0, "by": "meter", "keys": "public"}, "keys=")):
        with pytest.raises(ParameterError, match=said):
            flat.totals(table, "kwh", "at", "1h", ledger=ledger, stream="t", module=spark, **options, **wrong)
    with pytest.raises(ParameterError, match="column 'when'"):
        flat.counts(table, "when", "1h", module=spark, **options)
    with pytest.raises(ParameterError, match="because Spark has formats of its own"):
        flat.counts(table, "meter", "1h", module=spark, **options)
    with pytest.raises(ParameterError, match="value = 'meter' holds"):
        flat.totals(table, "meter", "at", "1h", clip=4.0, module=spark, **options)
    with pytest.raises(ParameterError, match=r"expected an object from fastdp\.ledger"):
        flat.counts(table, "at", "1h", ledger="budget", stream="t", module=spark, **options)
    with pytest.raises(ParameterError, match=r"expected a pyspark\.sql\.DataFrame"):
        flat.counts(frame, "at", "1h", module=spark, **options)
    assert not ledger.entries()
    with pytest.raises(DataError, match="not a finite number"):
        flat.totals(table, "kwh", "at", "1h", clip=4.0, ledger=ledger, stream="t", module=spark, **options)
    assert [each.state for each in ledger.entries()] == ["reserved"]
    zero = flat.totals(table, "kwh", "at", "1h", clip=4.0, nonfinite="zero", module=spark, **options)
    alone = flat.totals(frame, "kwh", "at", "1h", clip=4.0, nonfinite="zero", **options)
    assert zero.released.cells("total").tolist() == alone.released.cells("total").tolist()
    # One name, written in two ways: one stream, and one noise.
    named = [
        flat.counts(given, "at", "1h", stream=name, module=module, **options)
        for module, given, name in ((spark, table, "Zu\u0308rich"), (None, frame, "Z\u00fcrich"))
    ]
    assert_equal(*named)


def test_times_and_keys_of_every_kind(session: Any) -> None:
    """Clock times over changes of the clock, dates, missing times and keys, several key columns, means."""
    import pandas as pd
    import pyarrow as pa

    from fastdp.engines import spark

    frame = make_table()
    frame["at"] = frame["at"].dt.tz_localize(None)
    frame["day"] = frame["at"].dt.date
    frame["number"] = np.arange(len(frame)) % 4
    frame.loc[5:9, "at"] = pd.NaT
    frame.loc[20:90, "meter"] = None
    # Half an hour that the clock in Paris skips, and one that it shows twice.
    frame.loc[100:200, "at"] = pd.date_range("2024-03-31 01:45", periods=101, freq="1min")
    frame.loc[201:301, "at"] = pd.date_range("2024-10-27 02:15", periods=101, freq="1min")
    table = session.createDataFrame(
        frame.assign(at=frame["at"].astype(object).where(frame["at"].notna(), None)),
        "at timestamp_ntz, meter string, kwh double, day date, number bigint",
    )
    options: dict[str, Any] = {"epsilon": 1.0, "start": "2024-03-25", "stop": "2024-11-01", "key": bytes(32)}
    options |= {"by": ["meter", "number"], "keys": {"meter": ["m3", None, "m0"], "number": [3, 0, 9]}}
    one = pa.Table.from_pandas(frame)
    options |= {"clip": (-1.0, 4.0), "missing": "drop"}
    for time, every, zone in (("at", "1h", "Europe/Paris"), ("at", "1h", None), ("day", "1d", None)):
        pair = [
            flat.means(given, "kwh", time, every, zone=zone, module=module, **options)
            for module, given in ((spark, table), (None, one))
        ]
        assert_equal(*pair)
    del options["clip"], options["missing"]
    with pytest.raises(DataError, match="time: a row has none"):
        flat.counts(table, "at", "1d", module=spark, **options)


def test_several_statistics_of_unix_times(session: Any) -> None:
    """Sums, variances and means of two columns, at every level of two key columns; and without windows."""
    from fastdp.engines import spark

    frame = make_table()
    frame["at"] = frame["at"].astype("int64") // (1 if "us" in str(frame["at"].dtype) else 1000)
    frame["cost"] = frame["kwh"] * 3.0 - 2.0
    frame["part"] = np.arange(len(frame)) % 3
    asked = {"kwh": ["sum", "var"], "cost": ["mean", "std"], "*": "count"}
    options: dict[str, Any] = {"epsilon": 1.0, "key": bytes(32), "levels": True, "by": ["meter", "part"]}
    options |= {"keys": {"meter": ["m3", "m0"], "part": [0, 2]}}
    options["bounds"] = {"kwh": fastdp.Value(clip=4.0), "cost": fastdp.Value(clip=(-2.0, 9.0))}
    for time in (
        None,
        fastdp.Time("at", "1d", start="2024-03-29", stop="2024-04-02", unit="us", zone="Europe/Paris"),
    ):
        one, two = (
            fastdp.aggregate(each, asked, time, **options)
            for each in (frame, spark.table(session.createDataFrame(frame)))
        )
        assert_equal(one, two)


def test_unix_times_with_a_fraction_and_texts_that_are_refused(session: Any) -> None:
    from fastdp.engines import spark

    frame = make_table()
    frame["at"] = frame["at"].astype("int64") / 10**6 + 0.25
    time = fastdp.Time("at", "1d", start="2024-03-29", stop="2024-04-02", unit="s", missing="drop")
    options: dict[str, Any] = {"epsilon": 1.0, "key": bytes(32), "clip": 4.0}
    frame.loc[frame.index[0], "at"] = np.nan
    one, two = (
        fastdp.totals(each, "kwh", time, **options) for each in (frame, spark.table(session.createDataFrame(frame)))
    )
    assert_equal(one, two)
    frame["at"] = "2024-03-30"
    texts = spark.table(session.createDataFrame(frame))
    for given in ({}, {"format": "%Y-%m-%d"}):
        time = fastdp.Time("at", "1d", start="2024-03-29", stop="2024-04-02", **given)
        with pytest.raises(ParameterError, match="because Spark has formats of its own"):
            fastdp.totals(texts, "kwh", time, **options)


def test_what_spark_says_about_a_row_is_not_shown(session: Any) -> None:
    from fastdp.engines import spark

    table = session.createDataFrame(make_table())
    table = table.selectExpr("at", "cast(concat('secret', meter) as double) as kwh")
    options: dict[str, Any] = {"start": "2024-03-29", "stop": "2024-04-02", "epsilon": 1.0, "seed": 1}
    with pytest.raises(DataError, match="while Spark read") as error:
        flat.totals(table, "kwh", "at", "1d", clip=4.0, module=spark, **options)
    assert "secret" not in str(error.value)
    assert error.value.__cause__ is None


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


def test_windows_of_a_query_that_restarts(tmp_path: Path, session: Any) -> None:
    job, rows = windows.make_job(tmp_path), windows.make_rows()
    for number, part in enumerate(windows_files(rows)):
        put_windows(tmp_path, part, number)
        if number in (0, 2):
            start_windows(session, tmp_path, job).awaitTermination()
    assert windows.in_order(read_windows(tmp_path)[1]) == windows.expected(job, rows)
    put_windows(tmp_path, [{**rows[0], "at": windows.END + windows.MINUTE}], 3)
    with pytest.raises(Exception, match="shards = 3 in the state, 4 asked"):
        start_windows(session, tmp_path, job, 4).awaitTermination()
