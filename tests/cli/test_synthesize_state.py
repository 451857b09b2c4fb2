"""``fastdp synthesize --state``: a killed command goes on, and each batch has one noise."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from fastdp.cli.ledger_command import Account
from fastdp.cli.writers import PointFolder
from fastdp.ledger import Ledger
from fastdp.ledger.ledger import Reservation

RESERVE = Ledger.reserve

METHODS = {"phdstream": (), "adaptive": ("--method", "adaptive", "--period", 2)}

PAID = ("--ledger", "budget", "--stream", "places", "--limit", 2)

FILES = [f"batch_00{k}.csv" for k in range(5)]


@pytest.fixture
def source(write_events, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_events()


@pytest.fixture
def go(synthesize, source) -> Callable:
    """A run with a fresh key, its noise remembered in ``s``."""

    def go(*arguments: object, **options):
        return synthesize(source, "--state", "s", *arguments, **options)

    return go


@pytest.fixture
def cut_short(go, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """A run that ends when it is about to write a file; as far as files can tell, the process died."""

    def cut_short(number: int, *arguments: object, left: list[str] | None = None, **options) -> None:
        write = PointFolder.write

        def interrupted(self: PointFolder, batch: int, points: np.ndarray) -> None:
            if batch == number:
                raise KeyboardInterrupt
            write(self, batch, points)

        with monkeypatch.context() as patch:
            patch.setattr(PointFolder, "write", interrupted)
            assert go(*arguments, **options).exit_code == 130
        assert written() == (FILES[:number] if left is None else left)

    return cut_short


def written(folder: str = "out") -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def contents(folder: str = "out") -> dict[str, bytes]:
    return {name: (Path(folder) / name).read_bytes() for name in written(folder)}


def moments() -> dict[str, tuple[int, int]]:
    """Names of the files, and times of writing."""
    return {name: (seen.st_ino, seen.st_mtime_ns) for name in written() for seen in [(Path("out") / name).stat()]}


def write_key(fill: int = 7) -> tuple[str, str]:
    Path("key").touch(mode=0o600)
    Path("key").write_bytes(bytes([fill]) * 32)
    return "--key-file", "key"


@pytest.mark.parametrize("method", METHODS)
def test_the_same_command_writes_the_same_files(method, go) -> None:
    done = go(*METHODS[method])
    assert done.exit_code == 0, done.output
    assert "SIMULATED" not in done.stderr
    whole, state = contents(), Path("s").read_bytes()
    for damage in (
        lambda: None,
        Path("out/batch_002.csv").unlink,
        lambda: Path("out/batch_001.csv").write_bytes(b"edited"),
        lambda: shutil.rmtree("out"),
    ):
        damage()
        again = go(*METHODS[method])
        assert (again.exit_code, again.stdout) == (0, ""), again.output
        assert contents() == whole
        assert Path("s").read_bytes() == state
    assert stat.S_IMODE(Path("s").stat().st_mode) == 0o600


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("number", [0, 1, 4])
def test_what_was_interrupted_is_written_from_the_start(method, number, go, synthesize, source, cut_short) -> None:
    key = write_key()
    assert synthesize(source, *key, *METHODS[method], folder="whole").exit_code == 0
    cut_short(number, *key, *METHODS[method])
    before = contents()
    assert before == {name: content for name, content in contents("whole").items() if name in before}
    assert go(*key, *METHODS[method]).exit_code == 0
    assert contents() == contents("whole")


def test_altered_batches_get_nothing(go, cut_short, complaint, events, write_events) -> None:
    cut_short(3)
    before, state = moments(), Path("s").read_bytes()
    for row in (0, 299, 300, 1199, 1233):
        altered = events.copy()
        altered[row, 1] += 1e-9
        write_events(table=altered)
        assert "the first 5 values or batches are not those that state file 's' recorded" in complaint(go())
    swapped = events.copy()
    swapped[[299, 300]] = swapped[[300, 299]]
    turned = events.copy()
    turned[1233, 3] *= -1
    longer = np.append(events, events[-1:], axis=0)
    for table in (swapped, turned, longer, events[:1233]):
        write_events(table=table)
        assert "are not those" in complaint(go())
    write_events(table=events[:900])
    assert "the input has 3 values or batches, fewer than the 5 that state file 's' recorded" in complaint(go())
    assert (moments(), Path("s").read_bytes()) == (before, state)
    write_events()
    assert go().exit_code == 0
    assert written() == FILES


def test_other_settings_and_keys_are_refused(go, synthesize, source, complaint, run, write_input, values) -> None:
    key = write_key()
    assert go(*key).exit_code == 0
    state = Path("s").read_bytes()
    said = complaint(go(*key, "--epsilon", 1, "--method", "adaptive"))
    assert "is of a release with --method 'phdstream', now 'adaptive', --epsilon 2.0, now 1.0: expected" in said
    assert "--box [0.0, 0.0, 10.0, 5.0], now [0.0, 0.0, 10.0, 6.0]" in complaint(go(*key, "--box", 0, 0, 10, 6))
    assert "--batch 300, now 200" in complaint(go(*key, batch=200))
    write_key(8)
    assert "wrong key" in complaint(go(*key))
    assert "expected key" in complaint(go())
    write_key()
    shutil.copy("s", "copy")
    assert "'copy' is a copy of" in complaint(synthesize(source, "--state", "copy", *key))
    assert Path("s").read_bytes() == state
    assert run(write_input(".npy", values), "-o", "o.npy", "--state", "r", seed=None).exit_code == 0
    assert "holds a fastdp release: expected a fastdp synthesize" in complaint(synthesize(source, "--state", "r"))


def test_files_of_others_are_not_replaced(go, synthesize, source, complaint) -> None:
    assert synthesize(source, batch=100).exit_code == 0
    others = contents()
    assert "of an earlier run; expected another folder, or --force" in complaint(go())
    assert contents() == others
    assert go("--force").exit_code == 0
    assert written() == FILES
    whole = contents()
    # Another folder gets the same, and this release has written nothing in a third one.
    assert go(folder="second").exit_code == 0
    assert contents("second") == whole
    shutil.copytree("second", "third")
    assert "of an earlier run" in complaint(go(folder="third"))
    # Nor are places that this release has no batch for, or files of another format.
    for name in ("batch_005.csv", "batch_000.npy"):
        Path("out", name).write_bytes(b"foreign")
        assert f"holds {name}" in complaint(go())
        assert Path("out", name).read_bytes() == b"foreign"
        assert go("--force").exit_code == 0
        assert contents() == whole


def states() -> list[str]:
    return [entry.state for entry in Ledger("budget").entries()]


def test_a_ledger_is_charged_once(go, cut_short, complaint) -> None:
    cut_short(2, *PAID)
    assert states() == ["reserved"]
    Path("budget").rename("gone")
    assert "could not be opened" in complaint(go(*PAID))
    Path("gone").rename("budget")
    assert "cost epsilon = 2.0" in go(*PAID).stderr
    assert states() == ["spent"]
    assert go(*PAID).exit_code == 0
    assert states() == ["spent"]


def die(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def reserve_and_die(*arguments: object, **options: object) -> NoReturn:
    RESERVE(*arguments, **options)
    raise KeyboardInterrupt


MOMENTS = {
    "before the ledger": (Ledger, "reserve", die, []),
    "before its answer": (Ledger, "reserve", reserve_and_die, ["reserved"]),
    "behind it": (PointFolder, "clear", die, ["reserved"]),
    "at the commit": (Reservation, "commit", die, ["reserved"]),
    "behind that": (Account, "summary", die, ["spent"]),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_beside_the_ledger_is_not_charged_twice(moment, go, monkeypatch) -> None:
    where, name, death, left = MOMENTS[moment]
    with monkeypatch.context() as patch:
        patch.setattr(where, name, death)
        assert go(*PAID).exit_code == 130
    assert states() == left
    assert go(*PAID).exit_code == 0
    assert states() == ["spent"]
    assert written() == FILES


def test_refusals_by_the_ledger_or_the_folder_leave_no_new_state_file(
    go, run, cut_short, write_input, values, complaint, monkeypatch
) -> None:
    key = write_key()
    with monkeypatch.context() as patch:
        Path("out").mkdir()
        patch.setattr("fastdp.state.atomic_files.os.access", lambda path, mode: not mode & os.W_OK)
        assert complaint(go(*PAID)).endswith("/out")
        assert not Path("budget").exists()
    assert "--limit), this release needs" in complaint(go(*PAID, *key, "--limit", 1))
    assert not Path("s").exists()
    # Its key would bind what comes next.
    write_key(8)
    assert go(*PAID, *key, "--epsilon", 1, "--limit", 1).exit_code == 0
    told = ("-o", "-", "--state", "t", "--ledger", "small", "--stream", "meter", "--limit", 0.25)
    assert "has 0.25 of 0.25 epsilon left" in complaint(run(write_input(".npy", values), *told, seed=None))
    assert not Path("t").exists()


def test_a_reservation_is_of_a_release_and_its_settings(go, cut_short, complaint, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(PointFolder, "clear", die)
        assert go(*PAID, "--epsilon", 0.125).exit_code == 130
    # Nothing was written: another epsilon may come, but not at the price of the first.
    cut_short(2, *PAID, "--limit", 3)
    account = Ledger("budget")
    assert [(each.guarantee.epsilon, each.state) for each in account.entries()] == [
        (0.125, "reserved"),
        (2, "reserved"),
    ]
    # By hand, and wrongly so: files are out.
    Reservation(account, account.entries()[1]).cancel()
    state = Path("s").read_bytes()
    assert "--limit), this release needs" in complaint(go(*PAID, "--limit", 1))
    assert Path("s").read_bytes() == state
