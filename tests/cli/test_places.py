"""Inputs and outputs of commands: nothing is spent, removed or overwritten before all are in order."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fastdp.ledger import Ledger

PAID = ("--ledger", "budget", "--stream", "places", "--limit", 2)
#: Of a batch that no later run has.
PART = ".batch_007.csv.0123456789abcdef.tmp"


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def everything() -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(Path().rglob("*"))}


@pytest.fixture
def older(synthesize, write_events) -> Path:
    """An earlier run's folder, which another run may replace."""
    assert synthesize(write_events(), batch=100).exit_code == 0
    return Path("out")


def test_only_plain_files_are_in_the_places_of_batches(synthesize, complaint, older) -> None:
    Path("elsewhere.csv").write_text("precious")
    odd = older / "batch_004.csv"
    odd.unlink()
    for make in (odd.mkdir, lambda: odd.symlink_to("../elsewhere.csv"), lambda: odd.symlink_to("../nowhere.csv")):
        make()
        before = everything()
        said = complaint(synthesize("in.csv", "--force", "--state", "s", *PAID))
        assert "holds batch_004.csv, which is no plain file" in said
        assert everything() == before
        odd.unlink() if odd.is_symlink() else odd.rmdir()


def test_a_missing_package_is_missed_before_anything_is_spent(
    synthesize, run, complaint, older, write_input, values, monkeypatch
) -> None:
    write_input(".npy", values)
    before = everything()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    paid = ("--state", "s", *PAID)
    assert "need pyarrow" in complaint(synthesize("in.csv", "--force", "--format", "parquet", *paid))
    assert "need pyarrow" in complaint(run("in.npy", "-o", "o.parquet", *paid, seed=None))
    assert everything() == before


PLACES = {
    "input": None,
    "state file": "--state",
    "ledger": "--ledger",
    "key file": "--key-file",
    "ledger key file": "--ledger-key-file",
    "output": None,
}


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(PLACES, 2)))
@pytest.mark.parametrize("command", ["release", "synthesize"])
def test_all_places_are_apart(
    command, first, second, run, synthesize, write_events, write_input, values, complaint
) -> None:
    for name in ("key", "seal"):
        Path(name).touch(mode=0o600)
        Path(name).write_bytes(name[:1].encode() * 32)
    write_events()
    write_input(".csv", values, "numbers")
    Ledger("budget").set_limit(epsilon=9)
    usual = ("numbers.csv" if command == "release" else "in.csv", "s", "budget", "key", "seal", "out")
    where = dict(zip(PLACES, usual, strict=True))
    # One is there, or will be; the other way there is a link's.
    Path("link").symlink_to(where[first])
    where[second] = "link"
    options = [each for what, option in PLACES.items() if option for each in (option, where[what])]
    before = everything()
    start = run if command == "release" else synthesize
    folder = {} if command == "release" else {"folder": where["output"]}
    output = ("-o", where["output"]) if command == "release" else ()
    seed = {"seed": None} if command == "release" else {}
    result = start(where["input"], *output, *options, "--stream", "places", "--force", **folder, **seed)
    assert f"is the {first}; expected another file" in complaint(result)
    assert everything() == before


@pytest.mark.parametrize("option", ["--state", "--ledger", "--key-file", "--ledger-key-file", None])
def test_no_place_is_a_file_of_the_folder(option, synthesize, complaint, write_events, older) -> None:
    inside = older / "batch_099.csv"
    write_events().rename(inside)
    Path("link.csv").symlink_to(inside)
    spare = () if option == "--ledger" else ("--ledger", "budget")
    before = everything()
    for path in (inside, "link.csv"):
        given = (path,) if option is None else ("in.csv", option, path)
        result = synthesize(*given, "--force", "--limit", 2, "--stream", "places", *spare)
        assert "is named like a file of the output" in complaint(result)
        assert everything() == before


def part(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / PART).write_text("part of a release")
    return folder / PART


def test_parts_of_killed_runs_are_removed(synthesize, write_events) -> None:
    def go() -> int:
        return synthesize(write_events(), "--force").exit_code

    left = part(Path("out"))
    assert go() == 0
    assert not left.exists()
    # One that a process is about to complete stays.
    fcntl = pytest.importorskip("fcntl")
    with part(Path("out")).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert go() == 0
        assert left.exists()
    assert go() == 0
    assert not left.exists()


@pytest.mark.skipif(os.name != "posix" or sys.platform == "darwin", reason="names are any bytes on Linux")
@pytest.mark.parametrize("state", [(), ("--state", "s")])
def test_names_that_are_no_text(
    state, run: Callable, synthesize: Callable, write_events, write_input, values: np.ndarray
) -> None:
    odd = os.fsdecode(b"n\xffl.csv")
    write_events().rename(odd)
    assert synthesize(odd, *PAID, *state).exit_code == 0
    write_input(".csv", values).rename(odd)
    state = state and ("--state", "t")
    result = run(odd, "-o", os.fsdecode(b"\xff.csv"), *PAID, "--stream", "numbers", *state, seed=None)
    assert result.exit_code == 0, result.output
    assert all(entry.note.endswith("input n\\xffl.csv") for entry in Ledger("budget").entries())
