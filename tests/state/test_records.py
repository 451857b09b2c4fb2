"""A kept file record by record, and positions that are refused when it is read."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fastdp.errors import StateError
from fastdp.noise import Key
from fastdp.state import Machine, Publisher, Transition, driver
from fastdp.state.sealed_file import StateFile
from fastdp.streams.stream_machine import Schedule
from tests.state.saved_objects import CASES, golden_cut


@dataclass(frozen=True)
class Place:
    """A state with an index."""

    n_seen: int
    index: int


@dataclass(frozen=True)
class Counting(Machine[Place]):
    """Calls, modulo a length."""

    length: int

    def start(self, key: Key) -> Place:
        """Nothing."""
        return Place(0, 0)

    def step(self, state: Place, batch: Any, key: Key) -> Transition[Place]:
        """One call more."""
        return Transition(Place(state.n_seen + 1, (state.index + 1) % self.length), lambda: state.index)

    def check_indices(self, state: Place) -> None:
        """In range."""
        if not 0 <= state.index < self.length:
            raise ValueError("an index out of range")


def frames(path: Path) -> int:
    return len(StateFile(path).open()[0])


def altered(path: Path, within: str | None = None, **changes: Any) -> None:
    """A kept file with another present position."""
    file = StateFile(path)
    content = driver.read_file(file)[0]
    (content["now"] if within is None else content["now"][within]).update(changes)
    file.write(json.dumps(content).encode(), None)


def test_a_whole_file_is_followed_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a crash could leave the old name, without any of the records since."""
    synced, real = [], os.fsync

    def watching(descriptor: int) -> None:
        synced.append("folder" if os.path.samestat(os.fstat(descriptor), tmp_path.stat()) else "file")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watching)
    publisher = Publisher(Counting(3), seed=1)
    publisher.keep(tmp_path / "kept")
    assert synced == ["file", "folder"]
    publisher.step(1)
    assert synced == ["file", "folder", "file"], "a record is one sync"
    Publisher.load(tmp_path / "kept", machine=Counting).step(2)
    assert synced[3:] == ["file", "folder"], "the first write after loading is whole"


def test_records_come_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By number and by bytes, then one state takes their place; nothing is lost."""
    path = tmp_path / "kept"
    for name, most in (("MAX_RECORDS", 3), ("SPARE_BYTES", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(driver, name, most)
            publisher = Publisher(Counting(3), seed=1)
            publisher.keep(path.with_name(name))
            found = []
            for _ in range(9):
                publisher.step(1)
                found.append(frames(path.with_name(name)))
            assert found == ([2, 3, 4, 1, 2, 3, 4, 1, 2] if name == "MAX_RECORDS" else [1] * 9)
            assert Publisher.load(path.with_name(name), machine=Counting).state == Place(9, 0)


def test_an_index_out_of_range_is_refused(tmp_path: Path) -> None:
    publisher = Publisher(Counting(3), seed=1)
    publisher.keep(tmp_path / "kept")
    publisher.step(1)
    altered(tmp_path / "kept", state={"n_seen": 1, "index": 3})
    with pytest.raises(StateError, match="an index out of range"):
        Publisher.load(tmp_path / "kept", machine=Counting)


#: Of these the position is the state's own number, which the file has once.
ONCE = [name for name, case in CASES.items() if isinstance(case.make()._machine, Schedule)]


@pytest.mark.parametrize("name", ["counting", *(name for name in CASES if name not in ONCE)])
def test_a_position_that_is_not_the_states_is_refused(tmp_path: Path, name: str) -> None:
    path, options, kind = tmp_path / "kept", {"machine": Counting}, Publisher
    if name == "counting":
        publisher: Any = Publisher(Counting(3), seed=1)
        publisher.keep(path)
        publisher.step(1)
    else:
        case = CASES[name]
        publisher = case.make()
        publisher.keep(path)
        for chunk in case.calls[: golden_cut(case)]:
            case.run(publisher, chunk)
        options, kind = case.options, type(publisher)
    place = driver.read_file(StateFile(path))[0]["now"]["n_seen"]
    altered(path, n_seen=place)
    assert kind.load(path, moved=True, **options) is not None
    altered(path, n_seen=place + 1)
    with pytest.raises(StateError, match="damaged"):
        kind.load(path, moved=True, **options)


@pytest.mark.parametrize("theta", [-1.0, 0.0, 64.5, float("nan")])
def test_a_threshold_out_of_range_is_refused(tmp_path: Path, theta: float) -> None:
    case, path = CASES["topl_server"], tmp_path / "kept"
    server = case.make()
    server.keep(path)
    for chunk in case.calls[:4]:
        case.run(server, chunk)
    assert server.threshold is not None
    altered(path, "state", theta=theta)
    with pytest.raises(StateError, match="damaged"):
        type(server).load(path, moved=True)
