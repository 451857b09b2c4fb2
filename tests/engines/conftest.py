"""Started once for all tests: a Spark session, and a Dask cluster of two processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def environment() -> Iterator[None]:
    """Of processes that start meanwhile: this one's packages, and the secret of the examples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        patch.setenv("FASTDP_SECRET", "00" * 31 + "2a")
        yield


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    from tests.engines.scenes import make_session

    with environment():
        made = make_session()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def client() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with environment():
        cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as made:
        yield made
