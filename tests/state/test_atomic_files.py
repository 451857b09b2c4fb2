"""Files that appear complete or not at all."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fastdp.errors import ParameterError
from fastdp.state.atomic_files import atomic_file, described_file


def test_a_part_is_for_its_owner_and_the_next_run_removes_it(tmp_path: Path) -> None:
    """A killed run leaves a part of a release behind, and another run may draw other noise."""
    target = tmp_path / "out[1].csv"
    mask = os.umask(0o022)
    try:
        with atomic_file(target, overwrite=False) as file:
            file.write(b"half")
            file.flush()
            (part,) = tmp_path.iterdir()
            assert stat.S_IMODE(part.stat().st_mode) == 0o600
            leftover = part.with_name(part.name[: -len("0.tmp")] + ("1.tmp" if part.name[-5] != "1" else "2.tmp"))
            leftover.write_bytes(b"of a run that was killed")
            bystander = tmp_path / ".out[1].csv.mine.tmp"
            bystander.touch()
            # Another run at the same time takes the dead one's part away, and not this one's.
            with atomic_file(target, overwrite=True) as other:
                other.write(b"other")
            assert part.exists()
            assert not leftover.exists()
            target.unlink()
        assert stat.S_IMODE(target.stat().st_mode) == 0o644
    finally:
        os.umask(mask)
    assert target.read_bytes() == b"half"
    assert sorted(tmp_path.iterdir()) == sorted([bystander, target])


def test_a_target_that_appears_meanwhile_stays(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(ParameterError, match="exists already"))
        stack.enter_context(atomic_file(target, overwrite=False)).write(b"a release")
        target.write_bytes(b"another's")
    assert [(each, each.read_bytes()) for each in tmp_path.iterdir()] == [(target, b"another's")]


def test_a_file_taken_for_a_leftover_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastdp.state import atomic_files as module

    original, taken = module.lock, []

    def lock(descriptor: int) -> bool:
        if not taken:
            taken.extend(tmp_path.glob(".out.*.tmp"))
            taken[0].unlink()
        return original(descriptor)

    monkeypatch.setattr(module, "lock", lock)
    with atomic_file(tmp_path / "out", overwrite=False) as file:
        file.write(b"whole")
        assert Path(file.name) != taken[0]
    assert (tmp_path / "out").read_bytes() == b"whole"


@pytest.mark.skipif(not hasattr(os, "O_DIRECTORY"), reason="folders cannot be synced here")
def test_a_file_and_its_new_name_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order: a power cut behind the end of a command leaves the file, whole, under its name."""
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def syncing(descriptor: int) -> None:
        steps.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        fsync(descriptor)

    def replacing(path: Path, target: Path) -> Path:
        steps.append("rename")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "replace", replacing)
    with atomic_file(tmp_path / "out", overwrite=False) as file:
        file.write(b"all of it")
    assert steps == ["sync file", "rename", "sync folder"]
    assert (tmp_path / "out").read_bytes() == b"all of it"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_nothing_remains_after_an_error(error: type[BaseException], tmp_path: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(error))
        stack.enter_context(atomic_file(tmp_path / "out", overwrite=False)).write(b"half")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_description_appears_with_its_file_or_not_at_all(tmp_path: Path) -> None:
    target, beside = tmp_path / "out.csv", tmp_path / "out.csv.json"

    def write(meanwhile: Callable[[], object], facts: dict[str, Any]) -> None:
        with described_file(target, beside, facts, overwrite=False) as file:
            file.write(b"1\n")
            meanwhile()

    with pytest.raises(ValueError, match="invalid literal"):
        write(lambda: int("full"), {"fastdp": 1})
    with pytest.raises(ValueError, match="JSON"):
        write(lambda: None, {"fastdp": math.nan})
    assert list(tmp_path.iterdir()) == []
    # A killed process may leave a description alone, which is replaced; another file is not.
    beside.write_text('{"fastdp": 0}')
    write(lambda: None, {"fastdp": 1})
    assert json.loads(beside.read_bytes()) == {"fastdp": 1}
    target.unlink()
    beside.write_text("{}")
    with pytest.raises(ParameterError, match=r"out\.csv\.json.*exists already"):
        write(lambda: None, {"fastdp": 2})
    beside.unlink()
    # Another process writes both meanwhile: its files stay.
    with pytest.raises(ParameterError, match="exists already"):
        write(lambda: (target.write_text("2\n"), beside.write_text('{"fastdp": 3}')), {"fastdp": 4})
    assert (target.read_text(), beside.read_text()) == ("2\n", '{"fastdp": 3}')
