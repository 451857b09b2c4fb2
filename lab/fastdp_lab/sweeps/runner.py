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
import warnings
from collections.abc import Generator, Iterator
from concurrent import futures
from concurrent.futures import Executor, Future
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fastdp import Key, validation
from fastdp._lazy import imported
from fastdp.errors import AccuracyWarning, StateError
from fastdp.kinds import Json
from fastdp_lab.sweeps import results
from fastdp_lab.sweeps.specification import Part, Specification, parts, run_part
from fastdp_lab.sweeps.study import Row, forget, load_truth

#: Attempts to run parts whose worker died or whose file is damaged.
MAX_ATTEMPTS = 3
#: Seconds to find a scheduler.
TIMEOUT_SECONDS = 30


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Thousands of runs would say the same of their hold-outs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        yield


@_without_warnings()
def check_data(specification: Specification, folder: Path) -> dict[str, Json]:
    """Load every data set and build every mechanism once; length and digest of each data set."""
    forget()
    data = {}
    for data_set in specification.datasets:
        truth = load_truth(data_set, folder)
        specification.check(truth)
        data[data_set.name] = truth.facts
    return data


@_without_warnings()
def timed(specification: Specification, folder: Path) -> dict[str, float]:
    """Seconds a value of each mechanism on the first data set, by this thread: the least of three runs, or NaN.

    Of streams of points the queries are part of it.
    """
    data_set = specification.datasets[0]
    truth, seconds = load_truth(data_set, folder), {}
    alone = specification if hasattr(truth, "asked") else replace(specification, workloads=())
    size = truth.facts.get("values", truth.facts.get("events"))
    for mechanism in specification.mechanisms:
        epsilon, spent = (mechanism.epsilons or specification.epsilons)[0], []
        try:
            run_cell = specification.study.build(alone, mechanism, truth, epsilon)()
            for number in range(3):
                begin = time.perf_counter()
                run_cell(number, Key.from_seed(number), lambda _: 0)
                spent.append(time.perf_counter() - begin)
        except Exception:  # the results tell why
            spent = [math.nan]
        seconds[mechanism.name] = min(spent) / size
    return seconds


@_without_warnings()
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
    """Run a sweep, or the rest of an interrupted one; the folder, for :func:`fastdp_lab.sweeps.load`.

    ``results.parquet`` in it is byte for byte the same for any number and kind of workers, interrupted or not.
    AccuracyWarnings are not shown here nor by worker processes.

    Parameters
    ----------
    specification : Specification
        What to run.
    output : str or Path
        The folder of results; created if absent.  That of an interrupted run of the same sweep is completed.
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

    Raises
    ------
    ParameterError, DataError, StateError
        Before anything runs, naming what cannot run; StateError if workers die repeatedly.
    """
    validation.integer("workers", workers, 1, 4096)
    validation.choice("mode", mode, ("threads", "processes"))
    base, folder = Path(validation.path("data", data)).absolute(), Path(validation.path("output", output))
    found, schema = check_data(specification, base), results.schema_of(specification)
    how = (
        {"mode": mode, "workers": workers} if executor is None else {"mode": type(executor).__name__, "workers": None}
    )
    with results.opened(folder, specification, found) as manifest:
        every = {part.name: part for part in parts(specification)}
        for _ in range(MAX_ATTEMPTS):
            if (folder / results.RESULTS).exists():
                break
            waiting = {name: part for name, part in every.items() if not results.part_path(folder, name).exists()}
            tasks = {name: _task(specification, part, base, found) for name, part in waiting.items()}
            cells = sum(len(part.cells) for part in waiting.values())
            options: Json = {"unit": " cells", "file": sys.stderr, "disable": not progress}
            with (
                results.session(folder, manifest, {**how, "cells": cells}),
                tqdm(total=manifest["cells"], initial=manifest["cells"] - cells, **options) as bar,
                # Closed at once, so that an interrupt ends the workers.
                closing(_run(tasks, mode, workers, executor)) as stored,
            ):
                for name, rows in stored:
                    results.write_part(folder, name, schema, rows)
                    bar.update(len(every[name].cells))
            results.merge_parts(folder, list(every), schema)
        else:
            raise StateError(f"{folder}: parts were damaged {MAX_ATTEMPTS} times; expected a disk that keeps files")
        results.finish(folder, manifest)
    return folder


def _task(specification: Specification, part: Part, folder: Path, data: Json) -> Row:
    """The arguments of :func:`run_part`, without the other parts' mechanisms: a sweep may have ten thousand."""
    group = part.cells[0][0]
    slim = replace(specification, datasets=(group.data_set,), mechanisms=(group.mechanism,))
    return slim, part, folder, data[group.data_set.name]["sha256"]


def _run(
    tasks: dict[str, Row], mode: str, workers: int, executor: Executor | None
) -> Generator[tuple[str, list[Row]]]:
    """Names of parts with their rows as they are done; those of workers that died are run again."""
    if executor is None and workers == 1:
        yield from ((name, run_part(*task)) for name, task in tasks.items())
        return
    for _ in range(MAX_ATTEMPTS):
        running: dict[Future[Any], str] = {}
        try:
            with nullcontext(executor) if executor else _pool(mode, workers) as pool:
                running |= {pool.submit(_attempt, *task): name for name, task in tasks.items()}
                for done in futures.as_completed(list(running)):
                    name, rows = running.pop(done), done.result()
                    if isinstance(rows, Exception):
                        raise rows
                    del tasks[name]
                    yield name, rows
            return
        except lost_errors() as error:
            if executor is not None:
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


def _attempt(*arguments: Any) -> list[Row] | Exception:
    """The rows of a part, or its error: a cluster may wrap errors in texts of its own."""
    try:
        return run_part(*arguments)
    except Exception as error:
        return error


@contextmanager
def _pool(mode: str, workers: int) -> Iterator[Executor]:
    """New workers, which end with the sweep, without the parts that have not begun."""
    # Not forked: a fork of a process with threads may hang.
    spawn: Json = {"mp_context": multiprocessing.get_context("spawn"), "initializer": _begin_worker}
    processes, threads = futures.ProcessPoolExecutor, futures.ThreadPoolExecutor
    pool: Executor = threads(workers) if mode == "threads" else processes(workers, **spawn)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker() -> None:
    """Say no warnings; end with the parent process, also if that is killed: closed pipes do not end a worker."""
    warnings.simplefilter("ignore", AccuracyWarning)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def lost_errors() -> tuple[type[Exception], ...]:
    """The errors of tasks whose executor lost its workers or its scheduler."""
    # Dask can raise nothing unless it was imported.
    dask: Any = sys.modules.get("distributed")
    of_dask = () if dask is None else (dask.KilledWorker, dask.comm.CommClosedError)
    return (futures.BrokenExecutor, futures.CancelledError, *of_dask)


@contextmanager
def cluster(address: str) -> Iterator[Executor]:
    """An executor on a running Dask cluster, by its scheduler's address, such as ``tcp://HOST:8786``.

    Tasks of a worker that dies are run by another.  Workers need fastdp, and see data files at the same paths.
    StateError if there is no answer.
    """
    told = f"--scheduler {address} needs a library that is not installed: pip install 'fastdp-streams[lab]'"
    dask = imported("distributed", StateError(told))
    with ExitStack() as stack:
        try:
            client = dask.Client(address, timeout=TIMEOUT_SECONDS, set_as_default=False)
        except (OSError, RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise StateError(
                f"scheduler {address}: no answer ({reason}); expected the address of a Dask scheduler"
            ) from None
        # A lost connection is reported as the sweep's error.  Dask gives the client's log a level of its own.
        for log in (logging.getLogger("distributed"), logging.getLogger("distributed.client")):
            stack.callback(log.setLevel, log.level)
            log.setLevel(logging.CRITICAL)
        # Impure, so that Dask does not hash every argument to name its tasks.
        yield stack.enter_context(client).get_executor(pure=False, retries=3)
