"""What is in the header of a state file, write by write, and what a failed write leaves behind."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from fastdp.errors import StateError
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
        assert file.open()[0][:2] == ([b"the same"], previous)
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
    assert file.open()[0][:2] == ([b"old"], header)


@pytest.mark.parametrize(("version", "age"), [(1, "an older fastdp"), (99, "a newer fastdp")])
def test_other_formats_are_named(tmp_path: Path, version: int, age: str) -> None:
    file = StateFile(tmp_path / "state")
    file.write(b"payload", None)
    raw = bytearray((tmp_path / "state").read_bytes())
    raw[8:10] = struct.pack(">H", version)
    (tmp_path / "state").write_bytes(raw)
    with pytest.raises(StateError, match=age):
        file.open()


def test_a_renamed_file_is_synced_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First what is in it, then the name."""
    synced, real = [], os.fsync

    def watching(descriptor: int) -> None:
        found = os.fstat(descriptor)
        synced.append("folder" if os.path.samestat(found, tmp_path.stat()) else "file")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watching)
    file = StateFile(tmp_path / "state")
    file.write(b"payload", None)
    assert synced == ["file"]
    file.sync_folder()
    assert synced == ["file", "folder"]
