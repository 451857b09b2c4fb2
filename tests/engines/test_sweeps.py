"""Sweeps on a Dask cluster that is started by command line, as on several machines, on the loopback."""

from __future__ import annotations

import copy
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fastdp.errors import DataError
from fastdp_lab import sweeps
from fastdp_lab.sweeps import runner
from fastdp_lab.sweeps.specification import parts
from tests.engines.scenes import needs
from tests.sweeps.conftest import SMALL

TABLES = copy.deepcopy(SMALL) | {"repetitions": 6, "part_cells": 4}
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), needs("distributed")]


#: Of every process: all packages.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
PYTHON = [sys.executable, "-W", "ignore"]


@contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the cluster; it ends those that it started."""
    none = subprocess.DEVNULL
    command = [*PYTHON, "-m", *arguments]
    process = subprocess.Popen(command, env=ENVIRONMENT, start_new_session=True, stdout=none, stderr=none)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(300)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(3000):
        assert process.poll() is None
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError


def start_dask(stack: ExitStack, machines: int, folder: Path) -> str:
    port = free_port()
    quiet = ["--host", "127.0.0.1", "--no-dashboard"]
    scheduler = stack.enter_context(program("distributed.cli.dask_scheduler", *quiet, "--port", str(port)))
    wait_for(port, scheduler)
    address = f"tcp://127.0.0.1:{port}"
    for number in range(machines):
        place = ["--nthreads", "1", "--local-directory", str(folder / str(number))]
        stack.enter_context(program("distributed.cli.dask_worker", address, *quiet, *place))
    return address


def drive(address: str, out: str) -> None:
    """A sweep on the cluster, and a task whose error arrives as it is."""
    with sweeps.cluster(address) as executor:
        found = sweeps.from_table(TABLES)
        part = next(parts(found))
        error = executor.submit(runner._attempt, found, part, Path(out).parent, "0" * 32).result(300)
        assert isinstance(error, DataError)
        assert str(error).endswith("a worker has other values; expected those of the runner")
        sweeps.run(found, out, executor=executor)


@pytest.mark.parametrize("machines", [1, 2])
def test_the_same_bytes_on_any_number_of_machines(tmp_path: Path, machines: int) -> None:
    alone = sweeps.run(sweeps.from_table(TABLES), tmp_path / "alone")
    out = tmp_path / "out"
    with ExitStack() as stack:
        address = start_dask(stack, machines, tmp_path)
        call = f"from tests.engines.test_sweeps import drive; drive({address!r}, {str(out)!r})"
        subprocess.run([*PYTHON, "-c", call], env=ENVIRONMENT, check=True, timeout=900)
    assert (out / "results.parquet").read_bytes() == (alone / "results.parquet").read_bytes()
