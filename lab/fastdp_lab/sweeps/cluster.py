"""Dask distributed and Ray as executors; they need the extras ``sweep`` and ``ray``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import contextmanager
from typing import Any

from fastdp._optional import imported
from fastdp.errors import StateError

#: Seconds to find the scheduler.
TIMEOUT_SECONDS = 30
#: Before the address of a Ray cluster.
RAY = "ray:"
Cluster = tuple[Executor, Callable[[], int]]


@contextmanager
def cluster_executor(address: str) -> Iterator[Cluster]:
    """An executor on a running cluster, and how many cores the cluster has now.

    Parameters
    ----------
    address : str
        ``ray:HOST:6379`` or ``ray:auto`` for Ray, on a machine of its cluster; others are a Dask scheduler's.
    """
    kind = ray_executor(address.removeprefix(RAY)) if address.startswith(RAY) else dask_executor(address)
    with kind as found:
        yield found


@contextmanager
def ray_executor(address: str) -> Iterator[Cluster]:
    """An executor on the Ray cluster of this machine, and how many cores the cluster has now.

    Tasks of a worker that dies are run by another.

    Parameters
    ----------
    address : str
        Of the head: ``HOST:6379``, or ``auto``.  Its machines need fastdp, and see data files at the same paths.

    Raises
    ------
    StateError
        If Ray is not installed, or there is no answer.
    """
    told = f"--scheduler {RAY} needs Ray, which is not installed: pip install 'fastdp-streams[ray]'"
    ray = imported("ray", StateError(told))
    try:
        ray.init(address, log_to_driver=False, configure_logging=False, logging_level=logging.CRITICAL)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise StateError(
            f"scheduler {RAY}{address}: no answer ({reason}); expected the address of a Ray head, on a machine "
            "that has joined it (ray start --address)"
        ) from None
    try:
        yield _RayExecutor(ray), lambda: max(1, int(ray.cluster_resources().get("CPU", 1)))
    finally:
        # Ends the tasks of this program too.
        ray.shutdown()


class _RayExecutor(Executor):
    """Tasks of a core each."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._remote: dict[Callable[..., Any], Any] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As for :class:`concurrent.futures.Executor`; errors are the task's, without Ray's text around them."""
        task = self._remote.setdefault(fn, self._ray.remote(num_cpus=1, max_retries=3)(fn))
        promised: Future[Any] = Future()

        def settle(done: Future[Any]) -> None:
            error = done.exception()
            if not promised.set_running_or_notify_cancel():
                return
            if error is None:
                promised.set_result(done.result())
            else:
                promised.set_exception(getattr(error, "cause", None) or error)

        task.remote(*args, **kwargs).future().add_done_callback(settle)
        return promised


@contextmanager
def dask_executor(address: str) -> Iterator[Cluster]:
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
    told = "--scheduler needs Dask, which is not installed: pip install 'fastdp-streams[lab]'"
    distributed = imported("distributed", StateError(told))
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

        def cores() -> int:
            try:
                # A cluster that scales has no cores when it starts.
                return max(1, int(sum(client.nthreads().values())))
            except OSError as error:
                # A question that finds no scheduler ends in a timeout, a task in this error.
                raise distributed.comm.CommClosedError(str(error)) from None

        yield executor, cores


@contextmanager
def _without_tracebacks() -> Iterator[None]:
    """Silence Dask's logs of a lost connection, which the sweep reports as its error."""
    # Dask gives the client's log a level of its own; the others follow the first.
    logs = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)


def lost_errors() -> tuple[type[Exception], ...]:
    """The errors of tasks whose executor lost its workers or its scheduler."""
    # Engines can raise nothing unless they were imported.
    dask: Any = sys.modules.get("distributed")
    ray: Any = sys.modules.get("ray")
    of_dask = () if dask is None else (dask.KilledWorker, dask.comm.CommClosedError)
    of_ray = () if ray is None else (ray.exceptions.RayError,)
    return BrokenExecutor, CancelledError, *of_dask, *of_ray
