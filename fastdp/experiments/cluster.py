"""Dask distributed as an executor; needs the extra ``sweep``."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from contextlib import contextmanager
from typing import Any

from fastdp.errors import StateError

#: Seconds to find the scheduler.
TIMEOUT_SECONDS = 30


@contextmanager
def dask_executor(address: str) -> Iterator[tuple[Executor, Callable[[], int]]]:
    """An executor on a running cluster, and how many cores the cluster has now.

    Tasks of a worker that dies are run by another.

    Parameters
    ----------
    address : str
        Of the scheduler: ``tcp://host:8786``.  Its workers need fastdp, and see data files at the same paths.

    Raises
    ------
    StateError
        If distributed is not installed, or there is no answer.
    """
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise StateError(
            "--scheduler needs Dask, which is not installed: pip install 'fastdp-streams[sweep]'"
        ) from None
    try:
        client = distributed.Client(address, timeout=TIMEOUT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise StateError(
            f"scheduler {address}: no answer ({reason}); expected the address of a Dask scheduler"
        ) from None
    with _without_tracebacks(), client:
        # Impure, so that Dask does not hash every argument to name its tasks.
        executor = client.get_executor(pure=False, retries=3)
        # A cluster that scales has no cores when it starts.
        yield executor, lambda: max(1, sum(client.nthreads().values()))


@contextmanager
def _without_tracebacks() -> Iterator[None]:
    """Silence Dask's log of a lost connection, which the sweep reports as its error."""
    log = logging.getLogger("distributed.client")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def lost_errors() -> tuple[type[Exception], ...]:
    """The errors of tasks whose executor lost its workers or its scheduler."""
    # Dask can raise nothing unless it was imported.
    dask: Any = sys.modules.get("distributed")
    own = () if dask is None else (dask.KilledWorker, dask.comm.CommClosedError)
    return BrokenExecutor, CancelledError, *own
