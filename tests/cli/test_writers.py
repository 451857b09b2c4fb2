from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from fastdp.cli import writers
from fastdp.cli.writers import as_lines, write_target
from fastdp.errors import ParameterError
from fastdp.state.atomic_files import atomic_file

ODD = np.array([0.1, 0.1, 1 / 3, -0.0, 0.0, 0.0, 1e300, 5e-324, 5e-324, 123456789.125, -7.0])


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".npy", ".npz", ".parquet", ".CSV", ".Npy"])
@pytest.mark.parametrize("parts", [1, 2, 11])
def test_what_is_written_reads_back(suffix, parts, read_output, tmp_path):
    path = tmp_path / f"out{suffix}"

    def chunks():
        for part in np.array_split(ODD, parts):
            yield (part,)
        assert not path.exists(), "not before the end"

    write_target(str(path), chunks(), force=False)
    lower = path.rename(path.with_suffix("").with_name("again" + suffix.lower()))
    back = read_output(lower)
    assert back.dtype == np.float64
    assert back.tobytes() == ODD.tobytes(), "signed zeros too"
    if suffix == ".npy":
        np.save(tmp_path / "numpy.npy", ODD)
        assert lower.read_bytes() == (tmp_path / "numpy.npy").read_bytes()
    if suffix == ".csv":
        assert lower.read_bytes() == b"value\n" + as_lines(ODD)
        assert as_lines(ODD) == "".join(f"{value!r}\n" for value in ODD.tolist()).encode()


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".npy", ".npz", ".parquet"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_nothing_remains_after_an_error(suffix, error, tmp_path):
    path = tmp_path / f"out{suffix}"
    path.write_bytes(b"precious")

    def chunks():
        yield (ODD,)
        raise error

    with pytest.raises(error):
        write_target(str(path), chunks(), force=True)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"precious"


@pytest.mark.parametrize("suffix", [".csv.gz", ".npz", ".parquet"])
def test_equal_releases_are_equal_files(suffix, tmp_path):
    # Of Parquet more than two groups of rows.
    values, files = np.arange(2_100_000.0 if suffix == ".parquet" else 5000.0), []
    for parts in (1, 3, 50):
        path = tmp_path / f"{parts}{suffix}"
        write_target(str(path), ((part,) for part in np.array_split(values, parts)), force=False)
        files.append(path.read_bytes())
    assert files[0] == files[1] == files[2]
    if suffix == ".csv.gz":
        assert files[0][4:8] == bytes(4), "no time of writing"
    assert all(b".tmp" not in content for content in files)


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


def test_rows_are_exact():
    odd = np.array([0.1, -0.0, 5e-324])
    assert writers.as_rows(odd, odd[::-1]) == b"0.1,5e-324\n-0.0,-0.0\n5e-324,0.1\n"
