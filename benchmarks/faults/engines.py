"""Kills workers and programs of each engine: no output may have two noises, and none may be lost.

Needs the extra ``engines``; Flink has an environment of its own.
"""

import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from benchmarks.shared import table
from tests.engines import windows
from tests.engines.scenes import expected, make_job, make_rows, released

#: Children are forked from a process that has imported all; it has no threads.
WORKERS = multiprocessing.get_context("forkserver")
WORKERS.set_forkserver_preload(
    ["tests.engines.windows", "benchmarks.faults.engines", "pandas", "fastdp.tables.windows"]
)
#: Name of the variable that marks all processes of a program.
MARK = "FASTDP_FAULTS"
STREAMS = 20


@dataclass(frozen=True)
class Subject:
    """A program that begins or goes on in a folder, and what is killed of it."""

    package: str
    #: Runs to the end of so many rows.
    serve: Callable[[Path, int], None]
    rows: int
    windows: bool = False
    #: Makes the folder ready; the answer is called after each kill.
    prepare: Callable[[Path, int, ExitStack], Callable[[], object]] = lambda *_: lambda: None
    #: Rows that were ever visible, and those that count in the end.
    read: Callable[[Path], tuple[list[Any], list[Any]]] = lambda folder: (windows.logged(folder / "out"),) * 2
    #: Whether a row may count once alone.
    once: bool = False
    #: In the command line of what is killed; else it is the whole program, which is started again.
    victims: bytes = b""
    #: Seconds at most from a step of the program to a kill.
    pause: float = 1.5
    kills: int = 3

    def wanted(self, folder: Path) -> list[Any]:
        """Outputs of one fleet or machine without kills."""
        if self.windows:
            return self.outputs(windows.expected(windows.make_job(folder), windows.make_rows(self.rows)))
        rows = make_rows(self.rows, STREAMS)
        values = expected(make_job(folder), rows)
        return [(stream, values[place]) for stream, _, place in rows]

    def outputs(self, rows: list[Any]) -> list[Any]:
        """Rows as they are compared; windows after the last one end the input."""
        if self.windows:
            return [tuple(sorted(row.items())) for row in rows if row["window"] < windows.END]
        return [(row[0], row[1]) for row in rows]


def _send(folder: Path, count: int, stack: ExitStack) -> Callable[[], object]:
    """A broker with all messages."""
    from tests.engines import test_kafka

    address = stack.enter_context(test_kafka.own_broker())
    (folder / "address").write_text(address)
    test_kafka.send(address, make_rows(count, STREAMS))
    return lambda: None


def _kafka(folder: Path, _: int) -> None:
    """The example's program, which finds its states in the broker alone; a step shows as a file that grows."""
    from tests.engines import test_kafka

    log = windows.Log(folder / "steps")

    def look() -> None:
        log(None)
        time.sleep(0.004)

    test_kafka.serve((folder / "address").read_text(), folder, look)


def _read_kafka(folder: Path) -> tuple[list[Any], list[Any]]:
    from tests.engines import test_kafka

    return (test_kafka.read((folder / "address").read_text()),) * 2


def _flink(folder: Path, count: int, *, windowed: bool = False) -> None:
    """One job that restarts from its last checkpoint; without the variable functions run in threads."""
    from tests.engines import test_flink

    os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112
    (test_flink.serve_windows if windowed else test_flink.serve_streams)(folder, count)


def _put(folder: Path, count: int, _: ExitStack, *, windowed: bool = False) -> Callable[[], object]:
    """The files of a streaming query, one a micro-batch."""
    from tests.engines import test_spark

    if windowed:
        for number, part in enumerate(test_spark.windows_files(windows.make_rows(count), 1)):
            test_spark.put_windows(folder, part, number)
    else:
        rows = make_rows(count, STREAMS)
        for number, begin in enumerate(range(0, count, 10)):
            test_spark.put(folder, rows[begin : begin + 10], number)
    return lambda: None


def _spark(folder: Path, _: int, *, windowed: bool = False) -> None:
    from tests.engines import test_spark
    from tests.engines.scenes import make_session

    start = partial(test_spark.start_windows, job=windows.make_job(folder)) if windowed else test_spark.start_query
    start(make_session(), folder).awaitTermination()


def _read_spark(folder: Path, *, windowed: bool = False) -> tuple[list[Any], list[Any]]:
    from tests.engines import test_spark

    if windowed:
        found, kept = test_spark.read_windows(folder)
    else:
        found, kept = ([(row["id"], row["published"]) for row in rows] for rows in test_spark.read(folder))
    return found, kept


def _dask(folder: Path, count: int) -> None:
    """Tables of streams one after the other, while workers are killed."""
    import dask
    from distributed import Client, LocalCluster

    # A task that was on three killed workers would be given up.
    dask.config.set({"distributed.scheduler.allowed-failures": 100})
    log, rows = windows.Log(folder / "out"), make_rows(count, STREAMS)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        for stream in sorted({row[0] for row in rows}):
            found = released(make_job(folder), [row for row in rows if row[0] == stream]).compute()
            for name, value in zip(found["id"], found["published"], strict=True):
                log((name, float(value)))


def _both(name: str, package: str, rows: int, window_rows: int, **given: Any) -> dict[str, Subject]:
    """Streams and windows of an engine, whose functions take ``windowed=True``."""
    functions = {key: each for key, each in given.items() if callable(each)}
    windowed = {key: partial(each, windowed=True) for key, each in functions.items()}
    return {
        name: Subject(package, rows=rows, **given),
        f"{name}_windows": Subject(package, rows=window_rows, windows=True, **given | windowed),
    }


SUBJECTS: dict[str, Subject] = {
    "kafka": Subject("confluent_kafka", _kafka, 600, prepare=_send, read=_read_kafka, once=True),
    **_both(
        "spark", "pyspark", 120, 400, serve=_spark, prepare=_put, read=_read_spark, once=True, pause=3.0, kills=7
    ),
    "dask": Subject("distributed", _dask, 3000, victims=b"multiprocessing.spawn"),
    **_both("flink", "pyflink", 3000, 3000, serve=_flink, victims=b"pyflink.fn_execution", pause=9.0, kills=10),
}


def _child(name: str, folder: Path) -> None:
    """The program, with all that it starts marked."""
    os.environ[MARK] = str(folder)
    log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    SUBJECTS[name].serve(folder, SUBJECTS[name].rows)


def _marked(folder: Path, victims: bytes) -> list[int]:
    """Processes that a program started, with this in their command lines."""
    mark, found = f"{MARK}={folder}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes() and victims in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def _size(folder: Path) -> int:
    """Bytes of state and output, which grow with each step."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != "log")


def _strike(name: str, folder: Path, child: Any, chance: random.Random) -> bool:
    """Kill, some time after a further step, the program with all its processes or one of its workers."""
    subject, before = SUBJECTS[name], _size(folder)
    while _size(folder) == before and child.is_alive():
        time.sleep(0.02)
    time.sleep(chance.uniform(0.0, subject.pause))
    living = _marked(folder, subject.victims)
    struck = (
        [chance.choice(living)] if subject.victims and living else [] if subject.victims else [child.pid, *living]
    )
    if not struck or not child.is_alive():
        return False
    for each in struck:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    return True


def _trial(name: str, folder: Path, most: int, chance: random.Random) -> list[int]:
    """Kills, outputs, those with two noises, lost ones, those that came twice."""
    subject, kills = SUBJECTS[name], 0
    with ExitStack() as stack:
        struck = subject.prepare(folder, subject.rows, stack)
        code: int | None = -signal.SIGKILL
        while code == -signal.SIGKILL:
            child = WORKERS.Process(target=_child, args=(name, folder))
            child.start()
            while child.is_alive() and kills < most:
                kills += _strike(name, folder, child, chance)
                struck()
                if not subject.victims:
                    break
            child.join()
            code = child.exitcode
        if code:
            raise RuntimeError((folder / "log").read_text()[-1500:])
        found, kept = map(subject.outputs, subject.read(folder))
    wanted = Counter(subject.wanted(folder))
    twice = sum((Counter(kept) - wanted).values()) if subject.once else 0
    return [kills, len(found), sum(each not in wanted for each in found), len(set(wanted) - set(kept)), twice]


def main(
    *,
    kills: Annotated[int, "of each engine, at least"] = 20,
    seed: Annotated[int, "of the moments"] = 1,
    only: Annotated[str, "this engine alone", ["", *SUBJECTS]] = "",
) -> int:
    """Kill the engines of docs/engines.md; exit code 0 if no output had two noises, and none was lost."""
    lines, good, chance = [], True, random.Random(seed)
    for name, subject in SUBJECTS.items():
        if only not in ("", name) or find_spec(subject.package) is None:
            continue
        total, start = [0] * 5, time.perf_counter()
        while total[0] < kills:
            with tempfile.TemporaryDirectory(prefix="fastdp-engines-") as folder:
                counted = _trial(name, Path(folder), min(subject.kills, kills - total[0]), chance)
            total = [old + new for old, new in zip(total, counted, strict=True)]
        good &= not any(total[2:])
        lines.append([name, *total, f"{time.perf_counter() - start:.0f}"])
    columns = ["engine", "kills", "outputs compared", "with two noises", "lost", "twice", "s"]
    table("SIGKILL and restart", columns, lines)
    print("All survived." if good else "FAILED: see above.")
    return 0 if good else 1
