"""Run a sweep: parts in any order, by any number of workers, with the same result.

Tasks are pure functions of the specification, so any worker can run one at any time, and retry it.  Only the runner
writes files; a part whose file exists is not run again.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fastdp import validation
from fastdp.errors import StateError, warn
from fastdp.files.parquet_reader import import_pyarrow
from fastdp_lab.sweeps.cells import Part, parts
from fastdp_lab.sweeps.cluster import lost_errors
from fastdp_lab.sweeps.data_source import load_truth
from fastdp_lab.sweeps.folder import SweepFolder
from fastdp_lab.sweeps.results import DamagedPartsError, merge_parts
from fastdp_lab.sweeps.specification import Specification
from fastdp_lab.sweeps.work import run_part

MODES = ("threads", "processes")
#: Tasks queued for each worker, so that none is idle and memory stays small.
AHEAD = 3
#: Attempts to run parts whose worker died or whose file is damaged.
MAX_ATTEMPTS = 3


def check_data(specification: Specification, folder: Path) -> dict[str, dict[str, object]]:
    """Load every data set and build every mechanism once; length and digest of each data set.

    Raises
    ------
    ParameterError, DataError
        Naming what cannot run.
    """
    data: dict[str, dict[str, object]] = {}
    sizes = {}
    for data_set in specification.datasets:
        truth = load_truth(data_set, folder)
        sizes[data_set.name] = truth.size
        data[data_set.name] = truth.facts
    specification.check(sizes)
    return data


def run(
    specification: Specification,
    output: str | Path,
    *,
    data: str | Path = ".",
    workers: int | Callable[[], int] = 1,
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
    workers : int or function without arguments
        Parts that run at once.  With an executor, how many tasks it runs at once; a function is called before each
        batch of parts, because a cluster may grow.
    mode : "threads" or "processes"
        Threads share the data, and kernels run in parallel; processes are faster where small cells keep Python busy.
        This process is one of them, so that it works while the others start.
    executor : concurrent.futures.Executor, optional
        Runs the parts instead of new workers, Dask's for example; it is not shut down.
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
    size = workers if callable(workers) else partial(int, validation.integer("workers", workers, 1, 4096))
    validation.choice("mode", mode, MODES)
    import_pyarrow()
    base = Path(validation.path("data", data)).absolute()
    found = check_data(specification, base)
    folder = SweepFolder(Path(validation.path("output", output)), specification, found)
    with folder.locked():
        if not folder.finished:
            digests = {name: str(each["sha256"]) for name, each in found.items()}
            _Runner(specification, folder, base, digests, size, mode, executor).complete(progress)
        folder.finish()
    return folder.path


@dataclass
class _Runner:
    """One call of :func:`run`."""

    specification: Specification
    folder: SweepFolder
    data: Path
    digests: dict[str, str]
    size: Callable[[], int]
    mode: str
    executor: Executor | None
    bar: Any = None

    def complete(self, progress: bool) -> None:
        """Run the missing parts, and merge all into the table; damaged parts are run again."""
        named = {part.name(self.specification): part for part in parts(self.specification)}
        own = self.executor is None
        how = {"workers": self.size() if own else None, "mode": self.mode if own else type(self.executor).__name__}
        for left in reversed(range(MAX_ATTEMPTS)):
            done = self.folder.done()
            waiting = {name: part for name, part in named.items() if name not in done}
            if waiting:
                begin = time.perf_counter()
                cells, every = (sum(part.cells for part in some.values()) for some in (waiting, named))
                self.folder.begin_session({**how, "cells": cells})
                options: dict[str, Any] = {"unit": " cells", "file": sys.stderr, "disable": not progress}
                with tqdm(total=every, initial=every - cells, **options) as self.bar:
                    self._run(waiting)
                self.folder.end_session(round(time.perf_counter() - begin, 3))
            try:
                merge_parts(self.folder.path, list(named))
                return
            except DamagedPartsError as error:
                if not left:
                    raise
                warn(f"{error}; run again", RuntimeWarning)
                for name in error.names:
                    self.folder.drop_part(name)

    def _run(self, waiting: dict[str, Part]) -> None:
        if self.executor is None and self.size() == 1:
            for name, part in waiting.items():
                self._store(name, part, run_part(*self._arguments(part)))
            return
        for attempt in range(MAX_ATTEMPTS):
            # Not after a worker died: its part could end this process too.
            helps = self.executor is None and self.mode == "processes" and not attempt
            try:
                with ExitStack() as stack:
                    pool = stack.enter_context(_pool(self.size, self.mode, self.executor, helps=helps))
                    here = stack.enter_context(_ending(ThreadPoolExecutor(1))) if helps else None
                    self._spread(waiting, pool, here)
            except lost_errors() as error:
                # The parts of the dead worker are run again; finished parts are kept.
                if self.executor is not None:
                    raise StateError(
                        f"the executor lost its workers or its scheduler ({type(error).__name__}): finished parts "
                        "are kept; start the cluster and run the sweep again to go on"
                    ) from None
                continue
            return
        raise StateError(
            f"workers died {MAX_ATTEMPTS} times (out of memory?): expected enough memory; run again to go on"
        )

    def _arguments(self, part: Part) -> tuple[Specification, Part, Path, str]:
        """The arguments of a task, without the other parts' mechanisms: a sweep may have ten thousand."""
        first = part.ranges[0].group
        slim = replace(self.specification, datasets=(first.data_set,), mechanisms=(first.mechanism,))
        return slim, part, self.data, self.digests[first.data_set.name]

    def _store(self, name: str, part: Part, content: bytes) -> None:
        self.folder.write_part(name, content)
        self.bar.update(part.cells)

    def _spread(self, waiting: dict[str, Part], pool: Executor, here: Executor | None) -> None:
        """Run parts in a pool, a few more queued than it has workers, and one after another ``here``.

        A stored part waits no longer.  Parts in threads of this process end early if the sweep does.
        """
        ended = threading.Event()
        queue = iter(list(waiting))
        running: dict[Future[bytes], str] = {}
        own: list[Future[bytes]] = []

        def start(executor: Executor) -> Future[bytes] | None:
            name = next(queue, None)
            if name is None:
                return None
            local = (ended,) if isinstance(executor, ThreadPoolExecutor) else ()
            future = executor.submit(run_part, *self._arguments(waiting[name]), *local)
            running[future] = name
            return future

        try:
            while True:
                own = [each for each in own if each in running]
                # One more, which begins while the first is stored.
                while here is not None and len(own) < 2 and (future := start(here)) is not None:
                    own.append(future)
                ahead = len(own) + AHEAD * (self.size() - (here is not None))
                while len(running) < ahead and start(pool) is not None:
                    pass
                if not running:
                    return
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for done in finished:
                    name = running.pop(done)
                    self._store(name, waiting[name], done.result())
                    del waiting[name]
        finally:
            ended.set()
            for each in running:
                each.cancel()


@contextmanager
def _pool(size: Callable[[], int], mode: str, executor: Executor | None, *, helps: bool) -> Iterator[Executor]:
    """The given executor, or a new one that ends with the sweep; with one worker fewer where this process helps."""
    if executor is not None:
        yield executor
        return
    pool: Executor
    if mode == "threads":
        pool = ThreadPoolExecutor(size())
    else:
        # Not forked: a fork of a process with threads may hang.
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(max(1, size() - helps), mp_context=context, initializer=_end_with_parent)
    with _ending(pool):
        yield pool


@contextmanager
def _ending(pool: Executor) -> Iterator[Executor]:
    """An executor that ends with the block; an interrupt does not wait for parts that have not begun."""
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
