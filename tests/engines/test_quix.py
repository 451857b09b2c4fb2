"""Quix Streams on the mock broker of librdkafka: workers, a kill, both guarantees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engines.scenes import Row, expected, make_job, make_rows, needs

pytestmark = [needs("quixstreams"), pytest.mark.filterwarnings("ignore")]
STREAMS = 7


def messages(rows: list[Row], size: int = 5) -> list[tuple[str, bytes]]:
    """Lists of values of one stream; single ones as numbers."""
    found = []
    for stream in sorted({row[0] for row in rows}):
        mine = [value for each, value, _ in rows if each == stream]
        parts: list[Any] = [mine[0], *(mine[k : k + size] for k in range(1, len(mine), size))]
        found += [(stream, json.dumps(part).encode()) for part in parts]
    return found


def run(address: str, folder: Path, *, kill_at: int = 0, name: str = "", **options: Any) -> None:
    """One worker, until nothing comes any more."""
    from fastdp.engines import quix
    from tests.engines.kafka import application

    app = application(address, folder / f"state{name}", commit_interval=0.2, **options)
    taken, given = (
        app.topic("in", value_deserializer="json", key_deserializer="str"),
        app.topic("out", key_serializer="str", value_serializer="json"),
    )
    frame = quix.release(app.dataframe(taken), make_job(folder)).to_topic(given)
    count = 0

    def look(_: Any) -> None:
        nonlocal count
        count += 1
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    frame.update(look)
    app.run(timeout=float(options.get("patience", 6.0)))


def worker(address: str, folder: Path, **options: Any) -> subprocess.Popen[bytes]:
    given = ", ".join(f"{name}={value!r}" for name, value in options.items())
    call = f"run({address!r}, Path({str(folder)!r}), {given})"
    program = f"from pathlib import Path; from tests.engines.test_quix import run; {call}"
    return subprocess.Popen([sys.executable, "-W", "ignore", "-c", program])


@pytest.fixture
def broker() -> Any:
    from tests.engines.kafka import Broker

    return Broker()


def by_stream(found: list[tuple[str, bytes]]) -> dict[str, list[float]]:
    out: dict[str, list[float]] = {}
    for key, value in found:
        published = json.loads(value)
        out.setdefault(key, []).extend(published if isinstance(published, list) else [published])
    return out


def wanted(folder: Path, rows: list[Row]) -> dict[str, list[float]]:
    places, out = expected(make_job(folder), rows), {}
    for stream, _, place in rows:
        out.setdefault(stream, []).append(places[place])
    return out


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_same_bytes_for_any_number_of_workers(tmp_path: Path, broker: Any, workers: int) -> None:
    rows = make_rows(300, STREAMS)
    broker.send("in", messages(rows))
    running = [worker(broker.address, tmp_path, name=str(k)) for k in range(workers)]
    ended = [each.wait(120) for each in running]
    # A commit while another worker leaves the group ends a worker; who runs it starts it again.
    for number, code in enumerate(ended):
        if code:
            assert worker(broker.address, tmp_path, name=str(number)).wait(120) == 0
    if any(ended):
        assert_whole(by_stream(broker.read("out")), wanted(tmp_path, rows))
    else:
        assert by_stream(broker.read("out")) == wanted(tmp_path, rows)


def assert_whole(found: dict[Any, list[Any]], given: dict[Any, list[Any]]) -> None:
    """Nothing is lost; those since a checkpoint came twice, the same ones."""
    for stream, values in found.items():
        whole = given[stream]
        again = len(values) - len(whole)
        assert any(values == whole[: k + again] + whole[k:] for k in range(len(whole) - again + 1)), stream
    assert set(found) == set(given)


@pytest.mark.slow
def test_killed_and_restarted_elsewhere(tmp_path: Path, broker: Any) -> None:
    # Not with exactly-once: the mock broker forgets offsets that are sent to a transaction.
    rows = make_rows(300, STREAMS)
    sent = messages(rows)
    broker.send("in", sent)
    options = {"consumer_extra_config": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}}
    assert worker(broker.address, tmp_path, name="one", kill_at=25, **options).wait(120) == -signal.SIGKILL
    # Another machine: no state but that of the changelog topic.
    assert worker(broker.address, tmp_path, name="two", **options).wait(120) == 0
    found, given = broker.read("out"), wanted(tmp_path, rows)
    assert len(found) >= len(sent)
    assert_whole(by_stream(found), given)
