"""A real Dask cluster of several worker processes on this machine."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from fastdp import experiments
from fastdp.errors import StateError

distributed = pytest.importorskip("distributed", reason="Dask is not installed (pip install 'fastdp[sweep]')")

# Tornado's and Dask's own business, at the end of processes that are killed on purpose.
pytestmark = [pytest.mark.filterwarnings("ignore")]


def test_a_cluster_with_a_killed_worker_gives_the_same_bytes(small, tmp_path, digest, monkeypatch) -> None:
    from fastdp.experiments.cluster import dask_executor

    # Nannies start their workers as processes that must find both packages.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in __import__("sys").path if path))
    small["repetitions"], small["part_cells"] = 20, 4
    found = experiments.from_table(small)
    alone = experiments.run(found, tmp_path / "alone")
    out = tmp_path / "out"
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as cluster:
        victims = [nanny.pid for nanny in cluster.workers.values()]
        assert len(set(victims)) == 3

        def kill() -> None:
            while len(list(out.glob("parts/*.parquet"))) < 10:
                time.sleep(0.005)
            os.kill(victims[0], signal.SIGKILL)
            killed.append(len(list(out.glob("parts/*.parquet"))))

        killed: list[int] = []
        killer = threading.Thread(target=kill)
        killer.start()
        with dask_executor(cluster.scheduler_address) as executor:
            experiments.run(found, out, executor=executor, workers=3)
        killer.join()
    assert 10 <= killed[0] < 120, "the worker died in the middle"
    assert digest(out) == digest(alone)


def test_no_scheduler(monkeypatch) -> None:
    from fastdp.experiments import cluster

    monkeypatch.setattr(cluster, "PATIENCE", 0.2)
    with (
        pytest.raises(StateError, match="no answer"),
        cluster.dask_executor("tcp://127.0.0.1:9"),
    ):
        pass
