"""Quix Streams on brokers in memory: workers, kills, both guarantees."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from fastdp.errors import DataError, ParameterError, StateError
from tests.engines import windows
from tests.engines.conftest import environment
from tests.engines.scenes import Row, assert_altered_replay, counting_job, expected, make_job, make_rows, needs

pytestmark = [needs("quixstreams"), pytest.mark.filterwarnings("ignore")]
STREAMS = 7
#: Workers are forked from a process that has imported all.
WORKERS = multiprocessing.get_context("forkserver")
WORKERS.set_forkserver_preload(["tests.engines.test_quix", "fastdp.engines.quix", "fastdp_lab.kafka", "quixstreams"])


def messages(rows: list[Row], size: int = 5) -> list[tuple[str, bytes]]:
    """Lists of values of one stream; single ones as numbers."""
    found = []
    for stream in sorted({row[0] for row in rows}):
        mine = [value for each, value, _ in rows if each == stream]
        parts: list[Any] = [mine[0], *(mine[k : k + size] for k in range(1, len(mine), size))]
        found += [(stream, json.dumps(part).encode()) for part in parts]
    return found


@contextmanager
def own_broker() -> Iterator[tuple[str, Callable[[], object]]]:
    """Address of a broker whose transactions end as those of Kafka do, and a call that lets open ones time out."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "tests.engines.broker"], stdin=pipe, stdout=pipe, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        ask = child.stdin, child.stdout

        def expire() -> None:
            ask[0].write("\n")
            ask[0].flush()
            ask[1].readline()

        yield child.stdout.readline().strip(), expire
        child.kill()


def serve(
    address: str,
    folder: Path,
    make: Callable[[Path, Any], Any],
    *,
    kill_at: int = 0,
    name: str = "",
    pause: float = 0.0,
    **options: Any,
) -> None:
    """One worker, until nothing comes any more, or it kills itself."""
    from fastdp_lab.kafka import application

    app = application(address, folder / f"state{name}", commit_interval=0.2, **options)
    taken = app.topic("in", value_deserializer="json", key_deserializer="str")
    given = app.topic("out", key_serializer="str", value_serializer="json")
    count = itertools.count(1)

    def look(_: Any) -> None:
        time.sleep(pause)
        if next(count) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    make(folder, app.dataframe(taken).update(look)).to_topic(given)
    app.run(timeout=1.5)


def streams(folder: Path, frame: Any) -> Any:
    from fastdp.engines import quix

    return quix.release(frame, make_job(folder))


def counts(folder: Path, frame: Any) -> Any:
    """Alone: a store that is copied to machines without its changelog topic, which a release demands."""
    from fastdp.engines import quix

    with mock.patch.object(type(frame.processing_context.state_manager), "using_changelogs", True):
        return quix.release(frame, counting_job(folder))


def released(folder: Path, frame: Any) -> Any:
    from fastdp.engines import quix

    return quix.windows(frame, windows.make_job(folder))


def start(*arguments: Any, **options: Any) -> Any:
    """:func:`serve` in a process of its own."""
    with environment():
        child = WORKERS.Process(target=serve, args=arguments, kwargs=options)
        child.start()
    return child


def ended(*arguments: Any, **options: Any) -> int | None:
    """How it ended: 0, or minus the signal."""
    child = start(*arguments, **options)
    child.join(300)
    code: int | None = child.exitcode
    return code


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
def test_two_workers_of_a_group(tmp_path: Path, broker: Any) -> None:
    rows = make_rows(300, STREAMS)
    broker.send("in", messages(rows))
    both = [start(broker.address, tmp_path, streams, name=str(k)) for k in range(2)]
    deadline = time.monotonic() + 300
    # What came before the group was whole may come again.
    while (
        sum(len(each) for each in by_stream(broker.read("out")).values()) < len(rows) and time.monotonic() < deadline
    ):
        time.sleep(0.2)
    for each in both:
        each.kill()
    assert_whole(by_stream(broker.read("out")), wanted(tmp_path, rows))


ONCE = {"processing_guarantee": "exactly-once"}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, ONCE])
def test_killed_and_restarted_elsewhere(tmp_path: Path, options: dict[str, str]) -> None:
    from fastdp_lab.kafka import read, send

    rows = make_rows(300, STREAMS)
    with own_broker() as (address, expire):
        send(address, "in", messages(rows))
        for number, kill_at in enumerate((25, 40)):
            # Another machine each time: no state but that of the changelog topic.
            assert ended(address, tmp_path, streams, name=str(number), kill_at=kill_at, **options) == -signal.SIGKILL
            expire()
        assert ended(address, tmp_path, streams, name="last", **options) == 0
        found = by_stream(read(address, "out", committed=options == ONCE))
    if options == ONCE:
        assert found == wanted(tmp_path, rows)
    assert_whole(found, wanted(tmp_path, rows))


@pytest.mark.slow
def test_an_altered_replay_meets_independent_noise(tmp_path: Path) -> None:
    from fastdp_lab.kafka import read, send

    def restored(name: str, increments: list[int]) -> list[float]:
        # Several checkpoints: the last ones read what the first ones wrote.
        given = [("a", json.dumps(increments[k : k + 3]).encode()) for k in range(0, len(increments), 3)]
        with own_broker() as (address, _):
            send(address, "in", given)
            assert ended(address, tmp_path, counts, name=name, pause=0.005, use_changelog_topics=False) == 0
            return by_stream(read(address, "out"))["a"]

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


def send_windows(address: str, rows: list[windows.Row], ticks: int = 3) -> None:
    """Rows under their person, in the partition of this; the clock in every partition, after its rows."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address})
    for item in windows.with_ticks(rows, ticks):
        if isinstance(item, dict):
            place = [zlib.crc32(item["who"].encode()) % 4]
            key, value = item["who"], {**item, "at": item["at"].isoformat()}
        else:
            place, key, value = list(range(4)), "clock", item.isoformat()
        for partition in place:
            producer.produce("in", key=key, value=json.dumps(value).encode(), partition=partition)
    assert producer.flush(60) == 0


def read_windows(address: str) -> list[windows.Row]:
    from fastdp_lab.kafka import read

    rows = [json.loads(value) for _, value in read(address, "out")]
    return [{**row, "window": datetime.fromisoformat(row["window"])} for row in rows]


@pytest.mark.slow
def test_windows_of_a_topic_whose_worker_is_killed(tmp_path: Path) -> None:
    rows = windows.make_rows()
    with own_broker() as (address, _):
        send_windows(address, rows)
        assert ended(address, tmp_path, released, name="one", kill_at=150) == -signal.SIGKILL
        # Another machine: no state but that of the changelog topic.
        assert ended(address, tmp_path, released, name="two") == 0
        found = read_windows(address)
    windows.assert_released(found, windows.make_job(tmp_path), rows)
