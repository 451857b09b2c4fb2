"""State files frame by frame, records as JSON and back to the last bit, trees and codes at their borders."""

from __future__ import annotations

import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastdp import AdaptivePHDStream
from fastdp.errors import StateError
from fastdp.points import Box
from fastdp.points.decomposition import check_codes, shape
from fastdp.state import atomic_files, codec, state_file
from fastdp.state.state_file import StateFile
from fastdp.thresholds import Fixed, NoisyMax
from fastdp.thresholds.base import ThresholdTask
from tests.shared import full_disk

KEY = bytes(range(32))

NONCE = slice(-12, None)


def test_every_write_has_a_nonce_of_its_own(tmp_path: Path) -> None:
    """Two messages under one key and nonce would show their difference."""
    headers, previous = [], None
    file = StateFile(tmp_path / "state", KEY)
    for _ in range(20):
        previous = file.write(b"the same", previous)
        headers.append(previous)
        frames, stamp = file.open()
        assert (frames, stamp[: state_file.HEADER.size]) == ([b"the same"], previous)
    other = StateFile(tmp_path / "other", KEY).write(b"the same", None)
    assert len({header[NONCE] for header in [*headers, other]}) == 21
    assert len({file.seal.frame(headers[0], 1, b"same")[12:24] for _ in range(50)}) == 50


@pytest.mark.parametrize("key", [None, KEY])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, key: bytes | None) -> None:
    file = StateFile(tmp_path / "state", key)
    header = file.write(b"old", None)
    with full_disk(), pytest.raises(StateError, match="File too large"):
        file.write(b"new", header)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    frames, stamp = file.open()
    assert (frames, stamp[: state_file.HEADER.size]) == ([b"old"], header)


@pytest.mark.parametrize("key", [None, KEY])
def test_frames_stand_at_their_places(key: bytes | None) -> None:
    """An old record in a later one's place would take a publisher back."""
    sealing = state_file.Seal(key)
    header, raw = sealing.pack(b"state")
    frames = [raw[len(header) :], *(sealing.frame(header, k, each) for k, each in ((1, b"one"), (2, b"two")))]
    assert sealing.open(header + b"".join(frames), "s").frames == [b"state", b"one", b"two"]
    for begin, order in ((header, (0, 2, 1)), (header, (0, 1, 1)), (header, (0, 2)), (header, (1, 0))):
        with pytest.raises(StateError, match="altered"):
            sealing.open(begin + b"".join(frames[number] for number in order), "s")
    with pytest.raises(StateError, match="altered"):
        sealing.open(sealing.pack(b"state")[0] + b"".join(frames), "s")


def test_a_salt_serves_one_passphrase() -> None:
    """Under a common salt each guess would be tried on the files of all users of a process at once."""
    salts = [state_file.HEADER.unpack(state_file.Seal(key).pack(b"state")[0])[3] for key in ("one", "one", "another")]
    assert salts[0] == salts[1] != salts[2]


def test_a_small_state_does_not_inflate_to_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    _, raw = state_file.Seal().pack(bytes(2**20))
    monkeypatch.setattr(state_file, "MAX_PAYLOAD", 2**10)
    monkeypatch.setattr(state_file, "MAX_INFLATION", 2)
    with pytest.raises(StateError, match="inflates to more than"):
        state_file.Seal().open(raw, "state")
    with pytest.raises(StateError, match="expected at most"):
        state_file.Seal().pack(bytes(2**20))


@dataclass(frozen=True)
class Record:
    """All that a record may hold."""

    count: int
    share: float
    name: str | None
    whole: NDArray[np.int64]
    real: NDArray[np.float64]
    pairs: tuple[tuple[int, float], ...] = ()


def test_records_come_back_to_the_last_bit() -> None:
    whole = np.array([[-(2**63), 2**63 - 1], [2**32, -1]])
    real = np.array([0.1, -0.0, 5e-324, 1.7976931348623157e308, np.pi])
    record = Record(2**70, 0.1, None, whole, real, ((1, 0.5), (2, 0.25)))
    again = codec.restore(Record, codec.decode(codec.encode(codec.describe(record))))
    assert (again.count, again.share, again.name, again.pairs) == (2**70, 0.1, None, record.pairs)
    assert again.whole.dtype == np.int64
    assert again.real.dtype == np.float64
    assert np.array_equal(again.whole, whole)
    assert again.real.tobytes() == real.tobytes()
    assert codec.restore(Record, {**codec.describe(record), "name": "x"}).name == "x"


def test_a_part_of_ones_own_is_not_taken_for_one_of_the_same_name() -> None:
    known = {"Record": Record}
    stranger = type("Record", (), {})()
    with pytest.raises(StateError, match="of your own"):
        codec.describe_part(stranger, known)


def plan_of(max_depth: int) -> Any:
    return AdaptivePHDStream(Box([0.0], [1.0]), 1.0, max_depth=max_depth)._plan


def test_codes_of_a_batch_ascend_within_the_domain() -> None:
    plan = plan_of(4)
    for right in ([], [0], [15], [3, 3, 9]):
        check_codes(np.array(right, np.int64), plan)
    for wrong in ([-1], [16], [4, 3], [0, 15, 14], [[1, 2]]):
        with pytest.raises(ValueError, match="codes"):
            check_codes(np.array(wrong, np.int64), plan)


def test_trees_are_as_deep_as_the_plan_at_most() -> None:
    cut, size = np.array([0, 1, 3, 5]), 9
    first, starts = shape(cut, size, plan_of(4))
    assert first.tolist() == [1, 3, -1, 5, -1, 7, -1, -1, -1]
    assert starts.tolist() == [0, 1, 3, 5, 7, 9]
    with pytest.raises(ValueError, match="deeper"):
        shape(cut, size, plan_of(3))


@pytest.mark.parametrize(("rule", "packed"), [(NoisyMax(), [0, -1]), (NoisyMax(), [-1, 1]), (Fixed(1.0), [1])])
def test_packed_holdouts_that_no_rule_leaves_are_refused(rule: Any, packed: list[int]) -> None:
    chooser = rule.start(ThresholdTask(1.0, 100.0, 10, 16, 1.0))
    with pytest.raises(ValueError, match=r"negative|no data"):
        chooser.unpack(np.array(packed))


@pytest.mark.usefixtures("impatient")
def test_a_record_is_written_whole_and_in_a_locked_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may write less than it is given."""
    file = StateFile(tmp_path / "state", KEY)
    header = file.write(b"state", None)
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:1000]))
    file.append(file.seal.frame(header, 1, b"record"), (tmp_path / "state").stat().st_size)
    assert file.open()[0] == [b"state", b"record"]
    other = atomic_files.Hold(tmp_path)
    assert atomic_files.lock(other.descriptor)
    with pytest.raises(StateError, match="stayed locked"), file.locked():
        pass
    other.release()
    with file.locked():
        pass


@pytest.mark.parametrize("key", [None, bytes(32)])
def test_a_last_page_of_zeros_is_a_write_that_did_not_end(key: bytes | None) -> None:
    seal = state_file.Seal(key)
    header, packed = seal.pack(b"state")
    frame = seal.frame(header, 1, b"x" * 100)
    found = seal.open(packed + frame[:-64] + b"\0" * 64, "state file")
    assert found.frames == [b"state"]
    assert not found.complete


def test_locks_and_files_where_folders_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, with a module of the same calls."""
    fcntl = pytest.importorskip("fcntl")

    def locking(descriptor: int, mode: int, count: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN if mode == 0 else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError from None

    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_UNLCK=0, LK_NBLCK=2))
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delattr(os, "O_DIRECTORY", raising=False)
    windows = SimpleNamespace(**runpy.run_path(atomic_files.__file__))
    first, second = windows.Hold(tmp_path), windows.Hold(tmp_path)
    assert windows.lock(first.descriptor)
    assert not windows.try_lock(second.descriptor)
    first.release()
    assert windows.try_lock(second.descriptor)
    second.release()
    windows.sync_folder(tmp_path)
    with windows.atomic_file(tmp_path / "out", overwrite=False) as file:
        file.write(b"whole")
    assert {path.name for path in tmp_path.iterdir()} == {".fastdp.lock", "out"}
