"""Kills workers and programs of each engine: no output may have two noises, and none may be lost.

Needs the extra ``engines``.  Bytewax and Quix Streams run in forked children that are killed at random moments; Ray
loses actors, Dask worker processes, and Spark a streaming query with all its processes, Java too.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import fastdp
from benchmarks.faults import processes
from benchmarks.shared import table
from fastdp.engines import Job
from tests.engines import windows
from tests.engines.scenes import expected, make_job, make_rows

ROWS, STREAMS, MAX_KILLS = 1500, 20, 3
#: Rows of jobs of windows, and of Flink's jobs, which last minutes.
WINDOW_ROWS, FLINK_ROWS = 600, 3000
#: Micro-batches of a streaming query, and kills before it may end: a session takes ten seconds to start.
SPARK_FILES, SPARK_KILLS = 36, 9


@dataclass
class Tally:
    """Kills of an engine and their outcome."""

    kills: int = 0
    outputs: int = 0
    two_noises: int = 0
    lost: int = 0
    twice: int = 0
    wanted: dict[Any, Any] = field(default_factory=dict)

    def compare_windows(self, folder: Path, rows: list[Any], found: list[Any]) -> None:
        """All windows that were ever visible, against one machine without kills."""
        wanted = windows.expected(windows.make_job(folder), rows)
        self.wanted = {(row["window"], row["shop.town"]): row for row in wanted}
        self.compare([((row["window"], row["shop.town"]), row) for row in found])

    def compare(self, found: list[tuple[Any, Any]]) -> None:
        """All that was ever visible, against one fleet without kills."""
        self.outputs += len(found)
        self.two_noises += sum(self.wanted[place] != value for place, value in found)
        self.lost += len(set(self.wanted) - {place for place, _ in found})


def bytewax(kills: int, chance: random.Random) -> Tally:
    from bytewax.recovery import init_db_dir

    tally = Tally()
    while tally.kills < kills:
        with tempfile.TemporaryDirectory(prefix="fastdp-engines-") as name:
            folder = Path(name)
            job, rows = make_job(folder), make_rows(ROWS, STREAMS)
            (folder / "recovery").mkdir()
            init_db_dir(folder / "recovery", 1)
            for _ in range(MAX_KILLS):
                work = partial(_bytewax, folder, rows)
                tally.kills += processes.run(work, after=chance.uniform(0.05, 1.2), log=folder / "log").killed
            end = processes.run(partial(_bytewax, folder, rows), log=folder / "log")
            if end.code:
                raise RuntimeError((folder / "log").read_text()[-1500:])
            tally.wanted = expected(job, rows)
            # A kill may cut the last line that the system took.
            lines = [line for line in (folder / "out").read_bytes().split(b"\n") if line.endswith(b"]")]
            tally.compare([(place, value) for _, value, place in map(json.loads, lines)])
    return tally


def _bytewax(folder: Path, rows: list[Any]) -> None:
    from bytewax.recovery import RecoveryConfig
    from bytewax.testing import run_main

    from tests.engines.test_bytewax import flow

    descriptor = os.open(folder / "out", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    class Out(list[Any]):
        def __iadd__(self, items: Any) -> Any:
            os.write(descriptor, b"".join(b"\n" + json.dumps(item).encode() for item in items) + b"\n")
            time.sleep(0.002)
            return self

    made = flow(rows, make_job(folder), Out(), batch=5)
    run_main(made, recovery_config=RecoveryConfig(folder / "recovery"), epoch_interval=timedelta(0, 0.03))


def bytewax_windows(kills: int, chance: random.Random) -> Tally:
    from bytewax.recovery import init_db_dir

    tally = Tally()
    while tally.kills < kills:
        with tempfile.TemporaryDirectory(prefix="fastdp-engines-") as name:
            folder, rows = Path(name), windows.make_rows(WINDOW_ROWS, seed=chance.randrange(2**32))
            (folder / "recovery").mkdir()
            init_db_dir(folder / "recovery", 1)
            for delay in [*(chance.uniform(0.05, 1.5) for _ in range(MAX_KILLS)), None]:
                end = processes.run(partial(_bytewax_windows, folder, rows), after=delay, log=folder / "log")
                tally.kills += end.killed
            if end.code:
                raise RuntimeError((folder / "log").read_text()[-1500:])
            tally.compare_windows(folder, rows, windows.logged(folder / "out"))
    return tally


def _bytewax_windows(folder: Path, rows: list[Any]) -> None:
    from bytewax.recovery import RecoveryConfig
    from bytewax.testing import run_main

    from tests.engines.test_bytewax import windows_flow

    log = windows.Log(folder / "out")

    class Out(list[Any]):
        def __iadd__(self, items: Any) -> Any:
            for item in items:
                log(item)
            time.sleep(0.02)
            return self

    made = windows_flow(windows.with_ticks(rows, 1), windows.make_job(folder), Out(), batch=5)
    run_main(made, recovery_config=RecoveryConfig(folder / "recovery"), epoch_interval=timedelta(0, 0.03))


def quix(kills: int, chance: random.Random) -> Tally:
    program = "from fastdp_lab.kafka import Broker; broker = Broker(); print(broker.address, flush=True)"
    with _broker("-c", f"import sys; {program}; sys.stdin.read()") as address:
        return _kafka(kills, chance, address, "at-least-once")


def quix_once(kills: int, chance: random.Random) -> Tally:
    """On a broker whose transactions end as those of Kafka do: readers of committed messages see each output once."""
    with _broker("-m", "tests.engines.broker") as address:
        return _kafka(kills, chance, address, "exactly-once")


def _kafka(kills: int, chance: random.Random, address: str, guarantee: str) -> Tally:
    tally, trial, once = Tally(), 0, guarantee == "exactly-once"
    with tempfile.TemporaryDirectory(prefix="fastdp-engines-") as name:
        while tally.kills < kills:
            trial += 1
            folder = Path(name) / str(trial)
            folder.mkdir()
            rows = make_rows(600, STREAMS, seed=trial)
            processes.run(partial(_send, address, f"in{trial}", rows))
            ends = []
            for begin in range(MAX_KILLS + 1):
                delay = chance.uniform(0.0, 1.0) if begin < MAX_KILLS else None
                # Every second start on a machine without state: the changelog topic has it.
                place = folder / f"state{begin // 2}"
                work = partial(_quix, address, trial, folder, place, delay, guarantee)
                ends.append(processes.run(work, log=folder / "log"))
                tally.kills += ends[-1].killed
            if ends[-1].code:
                raise RuntimeError((folder / "log").read_text()[-1500:])
            found = processes.run(partial(_read, address, f"out{trial}", once)).answer
            wanted = expected(make_job(folder), rows)
            places: dict[str, list[int]] = {}
            for stream, _, number in rows:
                places.setdefault(stream, []).append(number)
            # A message says which values of its stream it has, by its number.
            tally.wanted = wanted
            visible = [(places[key][k], value) for key, k, value in found]
            tally.compare(visible)
            tally.twice += once * (len(visible) - len(dict(visible)))
    return tally


@contextlib.contextmanager
def _broker(*program: str) -> Iterator[str]:
    """In a process of its own: this one forks, and must not have its threads."""
    child = subprocess.Popen([sys.executable, *program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        yield child.stdout.readline().strip()
    finally:
        child.kill()
        child.wait()


def _send(address: str, topic: str, rows: list[Any]) -> None:
    from confluent_kafka import Producer

    producer, seen = Producer({"bootstrap.servers": address}), dict[str, int]()
    for stream, value, _ in rows:
        producer.produce(topic, key=stream, value=json.dumps([seen.get(stream, 0), value]).encode())
        seen[stream] = seen.get(stream, 0) + 1
    producer.flush(30)


def _read(address: str, topic: str, committed: bool) -> list[Any]:
    from fastdp_lab.kafka import read

    return [[key, *json.loads(value)] for key, value in read(address, topic, committed=committed)]


def _quix(address: str, trial: int, folder: Path, state: Path, delay: float | None, guarantee: str) -> None:
    from fastdp.engines import quix as engine
    from fastdp_lab.kafka import application

    app = application(
        address,
        state,
        group=f"group{trial}",
        commit_interval=0.1,
        processing_guarantee=guarantee,
        consumer_extra_config={"session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
        # What a killed worker left open ends soon.
        producer_extra_config={"transaction.timeout.ms": 3000} if guarantee == "exactly-once" else None,
    )
    taken = app.topic(f"in{trial}", value_deserializer="json", key_deserializer="str")
    given = app.topic(f"out{trial}", key_serializer="str", value_serializer="json")
    timer: list[threading.Timer] = []

    def begin(_: Any) -> None:
        if delay is not None and not timer:
            timer.append(threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)))
            timer[0].start()
        time.sleep(0.002)

    numbers: list[int] = []
    frame = app.dataframe(taken).update(begin)

    def remember(pair: list[Any]) -> Any:
        numbers[:] = [pair[0]]
        return pair[1]

    published = engine.release(frame.apply(remember), make_job(folder))
    published.apply(lambda out: [numbers[0], out]).to_topic(given)
    app.run(timeout=8.0)


def quix_windows(kills: int, chance: random.Random) -> Tally:
    """Each worker finds its state in the changelog topic alone."""
    from tests.engines.test_quix import run_windows, send_windows

    tally, trial = Tally(), 0
    program = "from fastdp_lab.kafka import Broker; broker = Broker(); print(broker.address, flush=True)"
    options = {"consumer_extra_config": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}}
    while tally.kills < kills:
        trial += 1
        with (
            _broker("-c", f"import sys; {program}; sys.stdin.read()") as address,
            tempfile.TemporaryDirectory(prefix="fastdp-engines-") as name,
        ):
            folder, rows = Path(name), windows.make_rows(WINDOW_ROWS, seed=trial)
            processes.run(partial(send_windows, address, "in", rows, 1))
            for number, kill_at in enumerate([*(chance.randrange(1, 200) for _ in range(MAX_KILLS)), 0]):
                work = partial(
                    run_windows, address, folder, name=str(number), kill_at=kill_at, pause=0.004, **options
                )
                end = processes.run(work, log=folder / "log")
                tally.kills += end.code == -signal.SIGKILL
            if end.code:
                raise RuntimeError((folder / "log").read_text()[-1500:])
            found = processes.run(partial(_read_texts, address)).answer
            rows_found = [json.loads(value) for value in found]
            tally.compare_windows(
                folder, rows, [{**row, "window": datetime.fromisoformat(row["window"])} for row in rows_found]
            )
    return tally


def _read_texts(address: str) -> list[str]:
    from fastdp_lab.kafka import read

    return [value.decode() for _, value in read(address, "out")]


def flink(kills: int, chance: random.Random) -> Tally:
    """One job that restarts from its last checkpoint; its Python workers are killed."""
    rows = make_rows(FLINK_ROWS, STREAMS)
    with tempfile.TemporaryDirectory(prefix="fastdp-engines-") as name:
        tally, folder = Tally(), Path(name)
        tally.kills = _flink(folder, "serve_streams", kills, chance)
        tally.wanted = expected(make_job(folder), rows)
        tally.compare([(place, value) for _, value, place in windows.logged(folder / "out")])
    return tally


def flink_windows(kills: int, chance: random.Random) -> Tally:
    rows = windows.make_rows(FLINK_ROWS)
    with tempfile.TemporaryDirectory(prefix="fastdp-engines-") as name:
        tally, folder = Tally(), Path(name)
        tally.kills = _flink(folder, "serve_windows", kills, chance)
        # The rows that end the input end an hour of windows besides.
        found = [row for row in windows.logged(folder / "out") if row["window"] < windows.END]
        tally.compare_windows(folder, rows, found)
    return tally


def _flink(folder: Path, serve: str, kills: int, chance: random.Random) -> int:
    """Run a job to its end, and kill Python workers meanwhile; the number of kills."""
    given = f"Path({str(folder)!r}), {FLINK_ROWS}"
    program = f"from pathlib import Path; from tests.engines.test_flink import {serve}; {serve}({given})"
    # Else functions run in threads of the program itself.
    workers = {**os.environ, "_python_worker_execution_mode": "process"}
    struck = 0
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program],
            start_new_session=True,
            stdout=log,
            stderr=log,
            env=workers,
        ) as child,
    ):
        while child.poll() is None:
            # A restart takes seconds, a checkpoint half a one: many kills hit rows, and some a restart.
            time.sleep(chance.uniform(4.0, 9.0))
            living = [
                int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if _is_worker(path, child)
            ]
            if living and struck < kills:
                os.kill(chance.choice(living), signal.SIGKILL)
                struck += 1
    if child.returncode:
        raise RuntimeError((folder / "log").read_text()[-1500:])
    return struck


def _is_worker(path: Path, child: subprocess.Popen[bytes]) -> bool:
    """True for a Python worker of the program, with its Java in the program's session."""
    try:
        return b"pyflink.fn_execution" in path.read_bytes() and os.getsid(int(path.parent.name)) == child.pid
    except OSError:
        return False


def ray(kills: int, chance: random.Random) -> Tally:
    import ray as engine

    from fastdp.engines.ray import RayShards

    engine.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)

    def strike(shards: Any) -> int:
        engine.kill(chance.choice(shards.actors), no_restart=False)
        return 1

    tally = _shards(kills, chance, RayShards, strike)
    engine.shutdown()
    return tally


def dask(kills: int, chance: random.Random) -> Tally:
    import dask as configured
    from distributed import Client, LocalCluster

    from fastdp.engines.dask import DaskShards

    # A task that was on three killed workers would be given up.
    configured.config.set({"distributed.scheduler.allowed-failures": 100})
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def strike(shards: Any) -> int:
            living = [each.pid for each in cluster.workers.values() if each.pid]
            if living:
                os.kill(chance.choice(living), signal.SIGKILL)
            return bool(living)

        return _shards(kills, chance, partial(DaskShards, client=client), strike)


def _shards(kills: int, chance: random.Random, make: Callable[..., Any], strike: Callable[[Any], int]) -> Tally:
    """Batches one after the other, while another thread kills."""
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="fastdp-engines-") as name:
        folder = Path(name)
        job, rng = make_job(folder), np.random.default_rng(chance.randrange(2**32))
        fleet, batch = job.fleet(), 0
        with make(job, folder / "state", 4) as shards:
            over, moved = threading.Event(), threading.Event()

            def kill() -> None:
                # One for each batch, or the workers would never come back.
                while tally.kills < kills and moved.wait(60.0) and not over.wait(chance.uniform(0.0, 0.3)):
                    moved.clear()
                    tally.kills += strike(shards)

            killer = threading.Thread(target=kill)
            killer.start()
            try:
                while killer.is_alive() or batch == 0:
                    batch += 1
                    moved.set()
                    ids, values = rng.integers(0, 200, 2000), rng.uniform(0.0, 10.0, 2000)
                    rows, out = shards.publish(batch, ids, values)
                    tally.wanted = dict(enumerate(fleet.publish(ids, values)[1].tolist()))
                    tally.compare(list(zip(rows.tolist(), out.tolist(), strict=True)))
            finally:
                over.set()
                killer.join()
    return tally


def spark(kills: int, chance: random.Random) -> Tally:
    """A streaming query, killed with Java and its Python workers, and restarted from its checkpoint."""
    from tests.engines import test_spark

    tally = Tally()
    while tally.kills < kills:
        with tempfile.TemporaryDirectory(prefix="fastdp-engines-") as name:
            folder = Path(name)
            rows = make_rows(10 * SPARK_FILES, STREAMS, seed=chance.randrange(2**32))
            for number in range(SPARK_FILES):
                test_spark.put(folder, rows[10 * number : 10 * number + 10], number)
            struck, ended = 0, False
            while not ended:
                child = subprocess.Popen(
                    [sys.executable, "-W", "ignore", "-c", test_spark.PROGRAM, folder],
                    start_new_session=True,
                    stderr=(folder / "log").open("wb"),
                )
                strikes = struck < SPARK_KILLS and tally.kills < kills
                hit = strikes and _strike(child, folder / "checkpoint" / "offsets", chance)
                code = child.wait()
                if code and not hit:
                    raise RuntimeError((folder / "log").read_text()[-1500:])
                struck, tally.kills, ended = struck + hit, tally.kills + hit, not code
            tally.wanted = expected(make_job(folder), rows)
            found, committed = test_spark.read(folder)
            tally.compare(found)
            tally.lost += committed != sorted(tally.wanted)
    return tally


def _strike(child: subprocess.Popen[bytes], offsets: Path, chance: random.Random) -> bool:
    """Kill a query with all its processes, some time after it has begun a further micro-batch."""
    before = len(list(offsets.glob("[0-9]*")))
    while len(list(offsets.glob("[0-9]*"))) <= before:
        if child.poll() is not None:
            return False
        time.sleep(0.02)
    time.sleep(chance.uniform(0.0, 3.0))
    if child.poll() is not None:
        return False
    os.killpg(child.pid, signal.SIGKILL)
    return True


#: Each engine's share of the kills, by what one costs.
SHARES = {bytewax: 0.4, bytewax_windows: 0.1, quix: 0.1, quix_once: 0.1, ray: 0.14, dask: 0.08, spark: 0.08}
#: Run by name alone: minutes each, and Flink's need its environment.
SHARES |= dict.fromkeys([quix_windows, flink, flink_windows], 0.0)


def main(
    *,
    kills: Annotated[int, "in all, at least"] = 300,
    seed: Annotated[int, "of the moments"] = 1,
    only: Annotated[str, "all kills for this engine", ["", *(each.__name__ for each in SHARES)]] = "",
) -> int:
    """Kill the engines of docs/engines.md; exit code 0 if no output had two noises, and none was lost."""
    # Kernels, once, for all children.
    Job(fastdp.Adaptive(epsilon=1.0, bound=10.0, threshold=5.0), name="warm", secret=lambda: bytes(32)).advance(
        None, ["a"] * 50, [1.0] * 50
    )
    lines, good = [], True
    for engine, share in SHARES.items():
        if only == engine.__name__ or (not only and share):
            start = time.perf_counter()
            tally = engine(kills if only else max(1, round(share * kills)), random.Random(seed))
            good &= not tally.two_noises and not tally.lost and not tally.twice
            numbers = [tally.kills, tally.outputs, tally.two_noises, tally.lost, tally.twice]
            lines.append([engine.__name__, *numbers, f"{time.perf_counter() - start:.0f}"])
    columns = ["engine", "kills", "outputs compared", "with two noises", "lost", "twice", "s"]
    table("SIGKILL and restart", columns, lines)
    print("All survived." if good else "FAILED: see above.")
    return 0 if good else 1
