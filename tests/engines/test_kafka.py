"""The example of Kafka on a broker in memory: a program that is killed, and one that is shut out."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fastdp.engines import Job
from tests.engines.conftest import environment
from tests.engines.scenes import Row, expected, make_job, make_rows, needs

pytestmark = [needs("confluent_kafka"), pytest.mark.filterwarnings("ignore"), pytest.mark.slow]
STREAMS = 7


@contextmanager
def own_broker() -> Iterator[str]:
    """Address of a broker whose transactions end as those of Kafka do."""
    command = [sys.executable, "-m", "tests.engines.broker"]
    with environment(), subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child.stdout.readline().strip()
        finally:
            child.kill()


def send(address: str, rows: list[Row]) -> None:
    from fastdp_lab import kafka

    kafka.send(address, "readings", [(stream, json.dumps(value).encode()) for stream, value, _ in rows])


def read(address: str) -> list[tuple[str, float]]:
    from fastdp_lab import kafka

    return [(stream, json.loads(value)) for stream, value in kafka.read(address, "published", committed=True)]


def by_stream(rows: list[tuple[str, float]]) -> dict[str, list[float]]:
    return {stream: [value for each, value in rows if each == stream] for stream in {row[0] for row in rows}}


def wanted(folder: Path, rows: list[Row]) -> dict[str, list[float]]:
    values = expected(make_job(folder), rows)
    return by_stream([(stream, values[place]) for stream, _, place in rows])


class Watched(Job):
    """A job whose program calls ``look`` before each step, within a transaction."""

    look: Any = None

    def advance(self, *arguments: Any) -> Any:
        self.look()
        return super().advance(*arguments)


def serve(address: str, folder: Path, look: Any, batch: int = 20, idle: float = 2.0) -> None:
    """The example's program on the rows that are there."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "engines"))
    from kafka_meters import publish

    plain = make_job(folder)
    job = Watched(plain.machine, name=plain.name, secret=plain.secret)
    job.look = look
    publish(address, job, batch, idle)


class KillAt:
    """The process kills itself at this call; never at 0."""

    def __init__(self, call: int) -> None:
        self.left = call

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def ended(address: str, folder: Path, kill_at: int) -> int | None:
    """How the program ended in a process of its own: 0, or minus the signal."""
    with environment():
        child = multiprocessing.get_context("spawn").Process(target=serve, args=(address, folder, KillAt(kill_at)))
        child.start()
    child.join(300)
    return child.exitcode


def test_killed_and_restarted(tmp_path: Path) -> None:
    """Each message counts once; a program that starts again finds its states and offsets in the broker alone."""
    rows = make_rows(300, STREAMS)
    with own_broker() as address:
        send(address, rows)
        for kill_at in (3, 25):
            assert ended(address, tmp_path, kill_at) == -signal.SIGKILL
        assert ended(address, tmp_path, 0) == 0
        assert by_stream(read(address)) == wanted(tmp_path, rows)


def test_a_second_program_shuts_the_first_one_out(tmp_path: Path) -> None:
    from confluent_kafka import KafkaException

    rows, seen = make_rows(100, STREAMS), []
    with own_broker() as address:
        send(address, rows)

        def second() -> None:
            seen.append(None)
            if len(seen) == 5:
                assert ended(address, tmp_path, 0) == 0

        with pytest.raises(KafkaException, match=r"[Ff]enced|Fatal error"):
            serve(address, tmp_path, second)
        assert by_stream(read(address)) == wanted(tmp_path, rows)
