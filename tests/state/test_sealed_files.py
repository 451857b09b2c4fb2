"""The header of a state file, write by write, and a failed write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastdp.errors import StateError
from fastdp.state import atomic_files, sealed_file
from fastdp.state.sealed_file import StateFile

KEY = bytes(range(32))
NONCE = slice(-12, None)


def test_every_write_has_a_nonce_of_its_own_and_the_next_generation(tmp_path: Path) -> None:
    """Two messages under one key and nonce would show their difference."""
    headers, previous = [], None
    file = StateFile(tmp_path / "state", KEY)
    for _ in range(20):
        previous = file.write(b"the same", previous)
        headers.append(previous)
        frames, stamp = file.open()
        assert (frames, stamp[: sealed_file.HEADER.size]) == ([b"the same"], previous)
    other = StateFile(tmp_path / "other", KEY).write(b"the same", None)
    assert len({header[NONCE] for header in [*headers, other]}) == 21
    assert [file.seal.generation(header, "state") for header in headers] == list(range(1, 21))


@pytest.mark.parametrize("key", [None, KEY])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, key: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = StateFile(tmp_path / "state", key)
    header = file.write(b"old", None)

    def failing(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StateError, match="No space left"):
        file.write(b"new", header)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    frames, stamp = file.open()
    assert (frames, stamp[: sealed_file.HEADER.size]) == ([b"old"], header)


def frames_of(sealing: sealed_file.Seal, payloads: list[bytes]) -> tuple[bytes, list[bytes]]:
    """Header and frames; the first frame is in :meth:`Seal.pack`."""
    header, raw = sealing.pack(payloads[0])
    others = [sealing.frame(header, number, payload) for number, payload in enumerate(payloads[1:], 1)]
    return header, [raw[len(header) :], *others]


@pytest.mark.parametrize("key", [None, KEY])
def test_frames_stand_at_their_places(key: bytes | None) -> None:
    """An old record in a later one's place would take a publisher back."""
    sealing = sealed_file.Seal(key)
    header, frames = frames_of(sealing, [b"state", b"one", b"two"])
    assert sealing.open(header + b"".join(frames), "s").frames == [b"state", b"one", b"two"]
    for order in ((0, 2, 1), (0, 1, 1), (0, 2), (1, 0)):
        with pytest.raises(StateError, match="altered"):
            sealing.open(header + b"".join(frames[number] for number in order), "s")
    other, _ = frames_of(sealing, [b"state"])
    with pytest.raises(StateError, match="altered"):
        sealing.open(other + b"".join(frames), "s")


def test_frames_have_nonces_of_their_own() -> None:
    sealing = sealed_file.Seal(KEY)
    header, _ = sealing.pack(b"state")
    assert len({sealing.frame(header, 1, b"same")[12:24] for _ in range(50)}) == 50


def test_a_salt_serves_one_passphrase() -> None:
    """Under a common salt each guess would be tried on the files of all users of a process at once."""
    salts = [
        sealed_file.HEADER.unpack(sealed_file.Seal(key).pack(b"state")[0])[4] for key in ("one", "one", "another")
    ]
    assert salts[0] == salts[1] != salts[2]


def test_a_small_state_does_not_inflate_to_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    _, raw = sealed_file.Seal().pack(bytes(2**20))
    monkeypatch.setattr(sealed_file, "MAX_PAYLOAD", 2**10)
    monkeypatch.setattr(sealed_file, "MAX_INFLATION", 2)
    with pytest.raises(StateError, match="inflates to more than"):
        sealed_file.Seal().open(raw, "state")
    with pytest.raises(StateError, match="expected at most"):
        sealed_file.Seal().pack(bytes(2**20))


def test_a_record_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may write less than it is given."""
    file = StateFile(tmp_path / "state", KEY)
    header = file.write(b"state", None)
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:1000]))
    file.append(file.seal.frame(header, 1, b"record"), (tmp_path / "state").stat().st_size)
    assert file.open()[0] == [b"state", b"record"]


def test_a_folder_that_stays_locked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_files, "lock", lambda descriptor: False)
    with pytest.raises(StateError, match="stayed locked"), StateFile(tmp_path / "state").locked():
        pass
