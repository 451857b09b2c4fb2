"""Quix Streams on the mock broker of librdkafka: workers, a kill, both guarantees."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import sleep
from typing import Any
from unittest import mock

import pytest

from fastdp.errors import DataError, ParameterError, StateError
from tests.engines import windows
from tests.engines.scenes import Row, assert_altered_replay, counting_job, expected, make_job, make_rows, needs

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


@contextmanager
def own_broker() -> Iterator[str]:
    """A broker whose transactions end as those of Kafka do."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "tests.engines.broker"], stdin=pipe, stdout=pipe, text=True
    ) as child:
        assert child.stdout is not None
        yield child.stdout.readline().strip()
        child.kill()


def run(
    address: str, folder: Path, *, kill_at: int = 0, name: str = "", counting: bool = False, **options: Any
) -> None:
    """One worker, until nothing comes any more."""
    from fastdp.engines import quix
    from fastdp_lab.kafka import application

    app = application(address, folder / f"state{name}", commit_interval=0.2, **options)
    taken, given = (
        app.topic("in", value_deserializer="json", key_deserializer="str"),
        app.topic("out", key_serializer="str", value_serializer="json"),
    )
    job = counting_job(folder) if counting else make_job(folder)
    frame = app.dataframe(taken)
    # A worker that stays alone finds its state without the changelog topic that a release demands.
    alone = mock.patch.object(type(frame.processing_context.state_manager), "using_changelogs", True)
    with alone if options.get("use_changelog_topics") is False else nullcontext():
        frame = quix.release(frame, job).to_topic(given)
    count = 0

    def look(_: Any) -> None:
        nonlocal count
        count += 1
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    frame.update(look)
    app.run(timeout=float(options.get("patience", 15.0)))


def worker(address: str, folder: Path, **options: Any) -> subprocess.Popen[bytes]:
    given = ", ".join(f"{name}={value!r}" for name, value in options.items())
    call = f"run({address!r}, Path({str(folder)!r}), {given})"
    program = f"from pathlib import Path; from tests.engines.test_quix import run; {call}"
    return subprocess.Popen([sys.executable, "-W", "ignore", "-c", program])


@pytest.fixture
def broker() -> Any:
    from fastdp_lab.kafka import Broker

    return Broker()


class Store(dict[str, bytes]):
    """The state of a key in one transaction of Quix's store."""

    def get_bytes(self, entry: str) -> bytes | None:
        return self.get(entry)

    def set_bytes(self, entry: str, value: bytes) -> None:
        self[entry] = value


def test_states_are_written_once_a_checkpoint(tmp_path: Path, broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastdp.engines import quix
    from fastdp_lab.kafka import application

    monkeypatch.setattr(quix, "OPEN_FLEETS", 3)
    job, rows = make_job(tmp_path), make_rows(400, STREAMS)
    kept, stores = dict[str, Store](), dict[str, Store]()
    sealed = 0

    def seal(fleet: Any) -> bytes:
        nonlocal sealed
        sealed += 1
        return suspend(fleet)

    suspend = job.suspend
    app = application(broker.address, tmp_path / "state")
    frame = app.dataframe(app.topic("in"))
    checkpoint = quix._checkpoint(frame, job.resume, seal)
    found: dict[int, float] = {}

    def consume(part: list[Row]) -> None:
        for stream, value, place in part:
            store = stores.setdefault(stream, Store(kept.get(stream, {})))
            (found[place],) = checkpoint.opened(store).publish([stream], [value])[1]

    for begin in range(0, 400, 50):
        # A checkpoint that Quix gives up: what it published comes again.
        consume(rows[begin : begin + 30])
        if begin % 100:
            checkpoint.on_paused()
        else:
            checkpoint.flush()
        given_up = [(store, dict(store)) for store in stores.values()]
        stores.clear()
        consume(rows[begin : begin + 50])
        assert any(store["fastdp"].startswith(quix.MARK) for store in stores.values())
        checkpoint.flush()
        # Their transactions are over.
        assert all(store == before for store, before in given_up)
        assert not any(store["fastdp"].startswith(quix.MARK) for store in stores.values())
        kept |= {stream: Store(store) for stream, store in stores.items()}
        stores.clear()
    assert found == expected(job, rows)
    assert sealed < 640
    with pytest.raises(StateError, match="not written at the end of its checkpoint"):
        checkpoint.opened(Store({"fastdp": quix.MARK + b"1"}))


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
    ended = [each.wait(300) for each in running]
    # A commit while another worker leaves the group ends a worker; who runs it starts it again.
    for number, code in enumerate(ended):
        if code:
            assert worker(broker.address, tmp_path, name=str(number)).wait(300) == 0
    if any(ended):
        assert_whole(by_stream(broker.read("out")), wanted(tmp_path, rows))
    else:
        assert by_stream(broker.read("out")) == wanted(tmp_path, rows)


def assert_whole(found: dict[Any, list[Any]], given: dict[Any, list[Any]]) -> None:
    """Nothing is lost; what came again, from the last checkpoint on, is the same."""
    assert set(found) == set(given)
    for stream, values in found.items():
        whole, places = given[stream], {0}
        for value in values:
            # The next place, or one that was there before.
            places = {place + 1 for place in range(max(places) + 1) if whole[place : place + 1] == [value]}
            assert places, (stream, values, whole)
        assert len(whole) in places, (stream, values, whole)


@pytest.mark.slow
def test_killed_and_restarted_elsewhere(tmp_path: Path, broker: Any) -> None:
    # At least once: the mock broker forgets offsets that are sent to a transaction.
    rows = make_rows(300, STREAMS)
    sent = messages(rows)
    broker.send("in", sent)
    options = {"consumer_extra_config": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}}
    assert worker(broker.address, tmp_path, name="one", kill_at=25, **options).wait(300) == -signal.SIGKILL
    # Another machine: no state but that of the changelog topic.
    assert worker(broker.address, tmp_path, name="two", **options).wait(300) == 0
    found, given = broker.read("out"), wanted(tmp_path, rows)
    assert len(found) >= len(sent)
    assert_whole(by_stream(found), given)


@pytest.mark.slow
def test_exactly_once_over_kills(tmp_path: Path) -> None:
    from fastdp_lab.kafka import read, send

    rows = make_rows(300, STREAMS)
    # What a killed worker left open ends soon.
    options = {"processing_guarantee": "exactly-once", "producer_extra_config": {"transaction.timeout.ms": 8000}}
    with own_broker() as address:
        send(address, "in", messages(rows))
        for number, kill_at in enumerate((5, 25, 40)):
            # Another machine each time: no state but that of the changelog topic.
            ended = worker(address, tmp_path, name=str(number), kill_at=kill_at, **options).wait(300)
            assert ended == -signal.SIGKILL
        assert worker(address, tmp_path, name="last", **options).wait(300) == 0
        assert by_stream(read(address, "out", committed=True)) == wanted(tmp_path, rows)


@pytest.mark.slow
def test_an_altered_replay_meets_independent_noise(tmp_path: Path) -> None:
    from fastdp_lab.kafka import Broker

    # The store alone, without its changelog topic: it is copied to machines whose brokers have other messages.
    options = {"counting": True, "use_changelog_topics": False}

    def restored(name: str, increments: list[int]) -> list[float]:
        broker = Broker()
        # Several checkpoints: the last ones read what the first ones wrote.
        broker.send("in", [("a", json.dumps(increments[k : k + 3]).encode()) for k in range(0, len(increments), 3)])
        assert worker(broker.address, tmp_path, name=name, **options).wait(300) == 0
        return by_stream(broker.read("out"))["a"]

    restored("saved", [1] * 30)
    found = []
    for number, value in enumerate((1, 1, 2)):
        shutil.copytree(tmp_path / "statesaved", tmp_path / f"state{number}")
        found.append([out - 30.0 for out in restored(str(number), [*[1] * 100, value, *[1] * 199])])
    assert_altered_replay(found[0], found[1], found[2], 100)


def test_another_number_of_partitions_is_refused(tmp_path: Path) -> None:
    """Quix looks for the state of a key in its partition; the changelog topic has the number of the first start."""
    from dataclasses import replace

    from quixstreams.models.topics.exceptions import TopicConfigurationMismatch

    from fastdp.engines import quix
    from fastdp_lab.kafka import Broker, application

    broker = Broker()
    for partitions in (4, 8):
        app = application(broker.address, tmp_path / "state")
        topic = app.topic("in", value_deserializer="json", key_deserializer="str")
        topic.broker_config = replace(topic.broker_config, num_partitions=partitions)
        frame = app.dataframe(topic)
        if partitions == 4:
            quix.release(frame, make_job(tmp_path))
        else:
            with pytest.raises(TopicConfigurationMismatch, match="expected 8, got 4"):
                quix.release(frame, make_job(tmp_path))


def test_states_that_another_worker_would_not_find_are_refused(tmp_path: Path) -> None:
    from fastdp.engines import quix
    from fastdp_lab.kafka import Broker, application

    broker = Broker()
    app = application(broker.address, tmp_path / "state", use_changelog_topics=False)
    frame = app.dataframe(app.topic("in", value_deserializer="json", key_deserializer="str"))
    with pytest.raises(ParameterError, match="use_changelog_topics = False: expected True"):
        quix.release(frame, make_job(tmp_path))


def test_a_person_has_one_key_in_a_topic(tmp_path: Path, broker: Any) -> None:
    """Under a second key, in another partition, the rows of a person would count again."""
    from fastdp.engines import quix
    from fastdp_lab.kafka import application

    job, app = windows.make_job(tmp_path), application(broker.address, tmp_path / "state")
    read = app.dataframe(app.topic("json", value_deserializer="json", key_deserializer="json"))
    with pytest.raises(ParameterError, match="key_deserializer is a JSONDeserializer: expected 'str', 'bytes' or"):
        quix.windows(read, job)
    frame = app.dataframe(app.topic("in", value_deserializer="json", key_deserializer="str"))
    with mock.patch.object(type(frame), "apply") as apply:
        quix.windows(frame, job)
    collected = apply.call_args_list[0].args[0]
    row = windows.make_rows()[0]
    spelled = [("7.0", 7.0), ("-0.0", -0.0), ("1e3", 1e3), ("a\u0308", "a\u0308"), ("None", None), (None, "None")]
    for key, who in spelled:
        for value in ({**row, "who": who}, [{**row, "who": who}, {**row, "who": who}]):
            with pytest.raises(DataError, match="a message key is not the row's 'who' in its one spelling"):
                collected(value, key, 0, None, None)


def send_windows(broker: Any, topic: str, rows: list[windows.Row], ticks: int = 3) -> None:
    """Rows under their person, in the partition of this; the clock in every partition, behind its rows."""
    import zlib

    for item in windows.with_ticks(rows, ticks):
        if isinstance(item, dict):
            place = [zlib.crc32(item["who"].encode()) % 4]
            key, value = item["who"], {**item, "at": item["at"].isoformat()}
        else:
            place, key, value = list(range(4)), "clock", item.isoformat()
        for partition in place:
            broker.producer.produce(topic, key=key, value=json.dumps(value).encode(), partition=partition)
    assert broker.producer.flush(60) == 0


def run_windows(
    address: str, folder: Path, name: str = "", kill_at: int = 0, pause: float = 0.0, **options: Any
) -> None:
    """One worker, until nothing comes any more."""
    from fastdp.engines import quix
    from fastdp_lab.kafka import application

    app = application(address, folder / f"state{name}", commit_interval=0.2, **options)
    taken = app.topic("in", value_deserializer="json", key_deserializer="str")
    given = app.topic("out", key_serializer="str", value_serializer="json")
    count = 0

    def look(_: Any) -> None:
        nonlocal count
        count += 1
        sleep(pause)
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    frame = app.dataframe(taken).update(look)
    quix.windows(frame, windows.make_job(folder)).to_topic(given)
    app.run(timeout=15.0)


def windows_worker(address: str, folder: Path, **options: Any) -> int:
    given = ", ".join(f"{name}={value!r}" for name, value in options.items())
    call = f"run_windows({address!r}, Path({str(folder)!r}), {given})"
    program = f"from pathlib import Path; from tests.engines.test_quix import run_windows; {call}"
    return subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=False).returncode


@pytest.mark.slow
def test_windows_of_a_topic_whose_worker_is_killed(tmp_path: Path, broker: Any) -> None:
    rows = windows.make_rows()
    send_windows(broker, "in", rows)
    options = {"consumer_extra_config": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}}
    assert windows_worker(broker.address, tmp_path, name="one", kill_at=150, **options) == -signal.SIGKILL
    # Another machine: no state but that of the changelog topic.
    assert windows_worker(broker.address, tmp_path, name="two", **options) == 0
    found = [json.loads(value) for _, value in broker.read("out")]
    wanted = [
        {**row, "window": row["window"].isoformat()} for row in windows.expected(windows.make_job(tmp_path), rows)
    ]
    once = {(row["window"], row["shop.town"]): row for row in found}
    assert all(once[row["window"], row["shop.town"]] == row for row in found), "an output with two noises"
    assert windows.in_order(list(once.values())) == wanted
