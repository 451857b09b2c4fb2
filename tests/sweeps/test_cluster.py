"""A real Dask cluster of several worker processes on this machine."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import time
from unittest.mock import MagicMock

import pytest

from fastdp.errors import StateError
from fastdp_lab import sweeps
from fastdp_lab.sweeps import results, runner
from tests.shared import python

distributed = pytest.importorskip("distributed", reason="Dask is not installed (pip install 'fastdp-streams[lab]')")

# Tornado's and Dask's own business, at the end of processes that are killed on purpose.
pytestmark = [pytest.mark.filterwarnings("ignore")]


def test_a_cluster_with_a_killed_worker_gives_the_same_bytes(small, tmp_path, digest, monkeypatch) -> None:
    # Nannies start their workers as processes that must find both packages.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in __import__("sys").path if path))
    small["repetitions"], small["part_cells"] = 20, 4
    found = sweeps.from_table(small)
    alone = sweeps.run(found, tmp_path / "alone")
    out = tmp_path / "out"
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as cluster:
        victims = [nanny.pid for nanny in cluster.workers.values()]
        assert len(set(victims)) == 3

        write, stored = results.write_part, []

        def killing(*arguments) -> None:
            write(*arguments)
            stored.append(arguments)
            if len(stored) == 10:
                os.kill(victims[0], signal.SIGKILL)

        monkeypatch.setattr(results, "write_part", killing)
        with sweeps.cluster(cluster.scheduler_address) as executor:
            sweeps.run(found, out, executor=executor)
    assert len(stored) == 120, "the worker died in the middle"
    assert digest(out) == digest(alone)


def test_no_scheduler(monkeypatch) -> None:
    monkeypatch.setattr(runner, "TIMEOUT_SECONDS", 0.2)
    with (
        pytest.raises(StateError, match="no answer"),
        sweeps.cluster("tcp://127.0.0.1:9"),
    ):
        pass


def test_all_logs_of_dask_are_silent_while_a_sweep_runs(monkeypatch) -> None:
    """Which of them tells of a lost scheduler depends on the moment."""
    logs = [logging.getLogger(f"distributed{each}") for each in ("", ".batched", ".client", ".core", ".comm.tcp")]
    before = [log.getEffectiveLevel() for log in logs]
    monkeypatch.setattr(distributed, "Client", MagicMock())
    with sweeps.cluster("tcp://127.0.0.1:9"):
        assert not any(log.isEnabledFor(logging.ERROR) for log in logs)
    assert [log.getEffectiveLevel() for log in logs] == before


def test_a_scheduler_that_dies_is_one_line(toml, small, tmp_path) -> None:
    """Of the command, with everything that Dask logs."""
    (tmp_path / "spec.toml").write_text(toml(small))
    file = tmp_path / "scheduler.json"
    command = ["distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    scheduler = subprocess.Popen(**python("-m", *command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not file.exists() or not file.read_text().endswith("}"):
            assert scheduler.poll() is None
            time.sleep(0.01)
        address = json.loads(file.read_text())["address"]
        out = tmp_path / "out"
        options = ["-o", str(out), "--scheduler", address, "-q"]
        # Without workers no part is ever done.
        sweep = subprocess.Popen(
            **python("-m", "fastdp", "sweep", tmp_path / "spec.toml", *options),
            stderr=subprocess.PIPE,
            text=True,
        )
        while not (out / "manifest.json").exists() or not sweeps.read_manifest(out)["sessions"]:
            assert sweep.poll() is None
            time.sleep(0.01)
    finally:
        scheduler.kill()
        scheduler.wait()
    said = sweep.communicate(timeout=900)[1]
    assert sweep.returncode == 1
    assert re.fullmatch(r"Error: the executor lost its workers or its scheduler \(.*\): .* to go on\n", said)
