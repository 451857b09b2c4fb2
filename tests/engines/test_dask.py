"""Dask: a local cluster of processes, of which one is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engines.scenes import counting_job, expected, make_job, make_rows, needs, replay_altered

pytestmark = [needs("distributed"), pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_same_bytes_with_a_worker_killed(tmp_path: Path, workers: int) -> None:
    from distributed import Client, LocalCluster

    from fastdp.engines.dask import DaskShards

    job, rng = make_job(tmp_path), np.random.default_rng(2)
    fleet = job.fleet()
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        DaskShards(job, tmp_path / "state", 4, client=client) as shards,
    ):
        for number in range(1, 5):
            ids, values = rng.integers(0, 30, 300), rng.uniform(0.0, 10.0, 300)
            assert shards.publish(number, ids, values)[1].tolist() == fleet.publish(ids, values)[1].tolist()
            if number == 2:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


def test_an_altered_replay_meets_independent_noise(tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    from fastdp.engines.dask import DaskShards

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        DaskShards(counting_job(tmp_path), tmp_path / "state", 2, client=client) as shards,
    ):
        replay_altered(shards, lambda: os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL))


def test_streams_of_a_data_frame(tmp_path: Path) -> None:
    import dask
    import dask.dataframe as dd
    import pandas as pd

    from fastdp.engines import dask as engine

    job, rows = make_job(tmp_path), make_rows(500)
    frame: Any = pd.DataFrame(rows, columns=["id", "kwh", "place"]).sample(frac=1.0, random_state=3)
    for parts in (1, 2, 4):
        with dask.config.set(scheduler="synchronous"):
            published = engine.release(
                dd.from_pandas(frame, npartitions=parts, sort=False), job, id="id", order="place", value="kwh"
            ).compute()
        assert list(published.columns) == ["id", "place", "published"]
        assert dict(zip(published["place"], published["published"], strict=True)) == expected(job, rows)
