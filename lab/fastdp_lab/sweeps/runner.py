"""Run a sweep: parts in any order, by any number of workers, with the same result.

Parts are pure functions of the specification, so any worker can run one at any time, and retry it.  Only the runner
writes files; a part whose file exists is not run again.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
)
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fastdp import validation
from fastdp._optional import imported
from fastdp.errors import StateError, warn
from fastdp_lab.sweeps import results
from fastdp_lab.sweeps.cells import Group, Part, count_cells, parts, run_part
from fastdp_lab.sweeps.specification import Specification
from fastdp_lab.sweeps.study import load_truth

#: Attempts to run parts whose worker died or whose file is damaged.
MAX_ATTEMPTS = 3
#: Mechanisms on data sets that a dry run times, and repetitions of each besides the first, which prepares.
MAX_SAMPLES, FURTHER = 32, 3
#: Bytes of a row's labels, compressed, and of a part's header.
LABEL_BYTES, PART_BYTES = 12, 12_000
#: Seconds to find a scheduler; the beginning of the address of a Ray cluster.
TIMEOUT_SECONDS, RAY = 30, "ray:"


def check_data(specification: Specification, folder: Path) -> dict[str, dict[str, Any]]:
    """Load every data set and build every mechanism once; length and digest of each data set.

    Raises
    ------
    ParameterError, DataError
        Naming what cannot run.
    """
    data = {}
    for data_set in specification.datasets:
        truth = load_truth(data_set, folder)
        specification.check(truth)
        data[data_set.name] = truth.facts
    return data


def run(
    specification: Specification,
    output: str | Path,
    *,
    data: str | Path = ".",
    workers: int = 1,
    mode: str = "threads",
    executor: Executor | None = None,
    progress: bool = False,
) -> Path:
    """Run a sweep, or the rest of an interrupted one.

    Parameters
    ----------
    specification : Specification
        What to run.
    output : str or Path
        The folder of results; created if absent.  The folder of an interrupted run of the same sweep is completed.
    data : str or Path
        The folder of data sets' files without an absolute path; workers must see it too.
    workers : int
        Parts that run at once.
    mode : "threads" or "processes"
        Threads share the data, and kernels run in parallel; processes are faster where small cells keep Python busy.
    executor : concurrent.futures.Executor, optional
        Runs the parts instead of new workers, that of :func:`cluster` for example; it is not shut down.
    progress : bool
        A bar with the time left, on standard error.

    Returns
    -------
    Path
        The folder, for :func:`fastdp_lab.sweeps.load`.  ``results.parquet`` in it is byte for byte the same for any
        number and kind of workers, interrupted or not.

    Raises
    ------
    ParameterError, DataError, StateError
        Before anything runs, naming what cannot run; StateError if workers die repeatedly.
    """
    validation.integer("workers", workers, 1, 4096)
    validation.choice("mode", mode, ("threads", "processes"))
    base, folder = Path(validation.path("data", data)).absolute(), Path(validation.path("output", output))
    found = check_data(specification, base)
    digests = {name: each["sha256"] for name, each in found.items()}
    session = {"mode": mode, "workers": workers}
    if executor is not None:
        session = {"mode": type(executor).__name__, "workers": None}
    with results.opened(folder, specification, found) as manifest:
        if not (folder / results.RESULTS).exists():
            _Runner(specification, folder, base, digests, manifest, session, executor).complete(progress)
        if manifest["finished"] is None:
            results.write_manifest(folder, {**manifest, "finished": results.now()})
        for each in (folder / results.PARTS).iterdir():
            each.unlink()
    return folder


@dataclass
class _Runner:
    """One call of :func:`run`."""

    specification: Specification
    folder: Path
    data: Path
    digests: dict[str, str]
    manifest: dict[str, Any]
    session: dict[str, Any]
    executor: Executor | None

    def complete(self, progress: bool) -> None:
        """Run the missing parts, and merge all into the table; damaged parts are run again."""
        schema, every = results.schema_of(self.specification), list(parts(self.specification))
        names = [part.name for part in every]
        for _ in range(MAX_ATTEMPTS):
            waiting = {each.name: each for each in every if not results.part_path(self.folder, each.name).exists()}
            if waiting:
                begin, total = time.perf_counter(), count_cells(self.specification)
                cells = sum(len(part.cells) for part in waiting.values())
                own = {**self.session, "cells": cells, "started": results.now(), "versions": results.versions()}
                # A killed session has no seconds.
                self._record({**own, "seconds": None})
                with tqdm(
                    total=total, initial=total - cells, unit=" cells", file=sys.stderr, disable=not progress
                ) as bar:
                    # Closed at once, so that an interrupt ends the workers.
                    with closing(self._run(waiting)) as stored:
                        for part, rows in stored:
                            results.write_part(self.folder, part.name, schema, rows)
                            bar.update(len(part.cells))
                self.manifest["sessions"].pop()
                self._record({**own, "seconds": round(time.perf_counter() - begin, 3)})
            damaged = results.merge_parts(self.folder, names, schema)
            if not damaged:
                return
            paths = [results.part_path(self.folder, name) for name in damaged]
            said = ", ".join(map(str, paths[:3])) + (", ..." if len(paths) > 3 else "")
            warn(f"{said}: damaged; run again", RuntimeWarning)
            for path in paths:
                path.unlink()
        raise StateError(f"{said}: damaged {MAX_ATTEMPTS} times; expected a disk that keeps files")

    def _record(self, session: dict[str, Any]) -> None:
        self.manifest["sessions"].append(session)
        results.write_manifest(self.folder, self.manifest)

    def _run(self, waiting: dict[str, Part]) -> Iterator[tuple[Part, list[tuple[Any, ...]]]]:
        """Parts with their rows as they are done; those of workers that died are run again."""
        if self.executor is None and self.session["workers"] == 1:
            yield from ((part, run_part(*self._arguments(part))) for part in waiting.values())
            return
        for _ in range(MAX_ATTEMPTS):
            running: dict[Future[Any], Part] = {}
            try:
                with _pool(self.executor, **self.session) as pool:
                    running |= {pool.submit(_attempt, *self._arguments(part)): part for part in waiting.values()}
                    for done in as_completed(list(running)):
                        part, rows = running.pop(done), done.result()
                        if isinstance(rows, Exception):
                            raise rows
                        del waiting[part.name]
                        yield part, rows
                return
            except lost_errors() as error:
                if self.executor is not None:
                    raise StateError(
                        f"the executor lost its workers or its scheduler ({type(error).__name__}): finished parts "
                        "are kept; start the cluster and run the sweep again to go on"
                    ) from None
            finally:
                for future in running:
                    future.cancel()
        raise StateError(
            f"workers died {MAX_ATTEMPTS} times (out of memory?): expected enough memory; run again to go on"
        )

    def _arguments(self, part: Part) -> tuple[Specification, Part, Path, str]:
        """The arguments of a task, without the other parts' mechanisms: a sweep may have ten thousand."""
        group = part.cells[0][0]
        slim = replace(self.specification, datasets=(group.data_set,), mechanisms=(group.mechanism,))
        return slim, part, self.data, self.digests[group.data_set.name]


def _attempt(*arguments: Any) -> list[tuple[Any, ...]] | Exception:
    """The rows of a part, or its error: a cluster may wrap errors in texts of its own."""
    try:
        return run_part(*arguments)
    except Exception as error:
        return error


@contextmanager
def _pool(executor: Executor | None, mode: str, workers: int) -> Iterator[Executor]:
    """The given executor, or a new one that ends with the sweep, without the parts that have not begun."""
    if executor is not None:
        yield executor
        return
    # Not forked: a fork of a process with threads may hang.
    context = multiprocessing.get_context("spawn")
    pool: Executor = (
        ThreadPoolExecutor(workers)
        if mode == "threads"
        else ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    )
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """End this worker when its parent process ends, also if that is killed: closed pipes do not end it."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def lost_errors() -> tuple[type[Exception], ...]:
    """The errors of tasks whose executor lost its workers or its scheduler."""
    # Engines can raise nothing unless they were imported.
    dask: Any = sys.modules.get("distributed")
    ray: Any = sys.modules.get("ray")
    of_dask = () if dask is None else (dask.KilledWorker, dask.comm.CommClosedError)
    return BrokenExecutor, CancelledError, *of_dask, *(() if ray is None else (ray.exceptions.RayError,))


@contextmanager
def cluster(address: str) -> Iterator[Executor]:
    """An executor on a running cluster; tasks of a worker that dies are run by another.

    Parameters
    ----------
    address : str
        ``ray:HOST:6379`` or ``ray:auto`` for Ray, on a machine of its cluster; others are a Dask scheduler's,
        ``tcp://HOST:8786``.  Workers need fastdp, and see data files at the same paths.

    Raises
    ------
    StateError
        If the library is not installed, or there is no answer.
    """
    ray, dask = address.removeprefix(RAY), not address.startswith(RAY)
    extra, expected = (
        ("lab", "of a Dask scheduler") if dask else ("ray", "of a Ray head, on a machine of its cluster")
    )
    library = imported(
        "distributed" if dask else "ray",
        StateError(
            f"--scheduler {address} needs a library that is not installed: pip install 'fastdp-streams[{extra}]'"
        ),
    )
    with ExitStack() as stack:
        try:
            if dask:
                client = library.Client(address, timeout=TIMEOUT_SECONDS, set_as_default=False)
            else:
                library.init(ray, log_to_driver=False, configure_logging=False, logging_level=logging.CRITICAL)
        except (OSError, RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise StateError(f"scheduler {address}: no answer ({reason}); expected the address {expected}") from None
        if not dask:
            # Ends the tasks of this program too.
            stack.callback(library.shutdown)
            yield _RayExecutor(library.remote(num_cpus=1, max_retries=3)(_called))
            return
        # A lost connection is reported as the sweep's error.  Dask gives the client's log a level of its own.
        for log in (logging.getLogger("distributed"), logging.getLogger("distributed.client")):
            stack.callback(log.setLevel, log.level)
            log.setLevel(logging.CRITICAL)
        # Impure, so that Dask does not hash every argument to name its tasks.
        yield stack.enter_context(client).get_executor(pure=False, retries=3)


def _called(fn: Callable[..., Any], *args: Any) -> Any:
    return fn(*args)


@dataclass
class _RayExecutor(Executor):
    """Tasks of a core each, by a remote function that calls another."""

    call: Any

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As for :class:`concurrent.futures.Executor`, without keywords."""
        future: Future[Any] = self.call.remote(fn, *args).future()
        return future


@dataclass(frozen=True)
class Estimate:
    """The cost of a sweep.

    Attributes
    ----------
    cells, rows, parts : int
        How many; rows if no cell fails.
    seconds : float
        Of one worker.
    table_bytes, most_bytes : int
        Upper bounds of the size of the final table, and of all files together while the sweep runs.
    """

    cells: int
    rows: int
    parts: int
    seconds: float
    table_bytes: int
    most_bytes: int


def estimate(specification: Specification, data: str | Path = ".") -> Estimate:
    """Check a sweep and time some of its cells; nothing is written.

    Parameters
    ----------
    specification : Specification
        The sweep.
    data : str or Path
        Where the data sets' files are.

    Raises
    ------
    ParameterError, DataError
        As :func:`fastdp_lab.sweeps.run` would.
    """
    base, runs = Path(data).absolute(), specification.repetitions
    check_data(specification, base)
    part_count, cells = sum(1 for _ in parts(specification)), count_cells(specification)
    # Every part prepares its mechanisms again.
    prepared = min(runs, max(1, math.ceil(part_count * runs / cells)))
    pairs = [(data_set, each) for data_set in specification.datasets for each in specification.mechanisms]
    chosen = pairs[:: math.ceil(len(pairs) / MAX_SAMPLES)]
    seconds = rows = weight = 0.0
    for data_set, mechanism in chosen:
        budgets = mechanism.epsilons or specification.epsilons
        group = Group(data_set, mechanism, budgets[len(budgets) // 2])
        _time(specification, group, 1, base)
        first, found = _time(specification, group, 1, base)
        each = max(_time(specification, group, 1 + FURTHER, base)[0] - first, 0.0) / FURTHER
        seconds += len(budgets) * (prepared * max(first - each, 0.0) + runs * each)
        rows += len(budgets) * runs * found
        weight += len(budgets) * runs
    per_row = 8 * (len(specification.study.columns(specification.metrics)) + 1) + LABEL_BYTES
    scale = cells / weight
    table = math.ceil(scale * rows * per_row)
    return Estimate(
        cells, round(scale * rows), part_count, scale * seconds, table, 2 * table + part_count * PART_BYTES
    )


def _time(specification: Specification, group: Group, runs: int, data: Path) -> tuple[float, int]:
    """Seconds and rows of some repetitions."""
    begin = time.perf_counter()
    rows = run_part(specification, Part(0, tuple((group, k) for k in range(runs))), data)
    return time.perf_counter() - begin, len(rows)
