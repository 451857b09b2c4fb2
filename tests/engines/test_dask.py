"""Dask: a local cluster of processes, of which one is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from tests.engines.scenes import expected, make_job, make_rows, needs, released

pytestmark = [needs("distributed"), pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def test_the_same_bytes_with_a_worker_killed(tmp_path: Path, client: Any) -> None:
    job, rows = make_job(tmp_path), make_rows(300)
    running = client.compute(released(job, rows))
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    found = running.result()
    assert dict(zip(found["place"], found["published"], strict=True)) == expected(job, rows)
    # The next test has the cluster as it was.
    client.wait_for_workers(2, timeout=120)


def test_streams_of_a_data_frame(tmp_path: Path) -> None:
    import dask
    import dask.dataframe as dd
    import pandas as pd

    from fastdp.engines import dask as engine

    job, rows = make_job(tmp_path), make_rows(500)
    frame: Any = pd.DataFrame(rows, columns=["id", "kwh", "place"]).sample(frac=1.0, random_state=3)
    for parts in (1, 2, 4):
        # Without the cluster of other tests.
        with dask.config.set({"scheduler": "synchronous", "dataframe.shuffle.method": "tasks"}):
            published = engine.release(
                dd.from_pandas(frame, npartitions=parts, sort=False), job, id="id", order="place", value="kwh"
            ).compute()
        assert list(published.columns) == ["id", "place", "published"]
        assert dict(zip(published["place"], published["published"], strict=True)) == expected(job, rows)


def test_parts_of_other_types_are_one_table_with_persons(client: Any) -> None:
    """An empty part and categories of each part have other Arrow types than the rest."""
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    from fastdp.engines import dask

    n = np.arange(300)
    at = pd.Timestamp("2026-01-01") + pd.to_timedelta(n % 48, unit="h")
    frame = pd.DataFrame({"at": at, "kwh": n % 7, "k": np.where(n % 3, "a", "b"), "who": [f"p{i % 40}" for i in n]})
    time, unit = fastdp.Time("at", "1d", start="2026-01-01", stop="2026-01-03"), fastdp.Person("who", rows=4)
    options = {"by": "k", "keys": ["a", "b"], "epsilon": 1.0, "clip": 5.0, "unit": unit, "seed": 1}
    one = fastdp.totals(frame, "kwh", time, **options)
    parts = [frame[:0], frame[:100], frame[100:].assign(kwh=frame["kwh"][100:].astype(float))]
    for made in (parts, [each.assign(k=each["k"].astype("category")) for each in parts]):
        given = dd.from_map(lambda k, made=made: made[k], range(3), meta=made[0])
        pd.testing.assert_frame_equal(fastdp.totals(dask.table(given), "kwh", time, **options).frame, one.frame)
