"""Budgets on the command line; nothing is spent, removed or overwritten before inputs and outputs are in order."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fastdp import Guarantee
from fastdp.cli import main
from fastdp.cli.writers import PointFolder
from fastdp.errors import ParameterError
from fastdp.ledger import Ledger
from fastdp.units import Period, Times, UnitRows
from tests.cli.conftest import BOX


@pytest.fixture
def budget(tmp_path: Path) -> Path:
    return tmp_path / "budget"


@pytest.fixture
def account(budget: Path) -> Callable[..., Result]:
    """``fastdp ledger COMMAND FILE ...``."""

    def account(command: str, *arguments: object) -> Result:
        return CliRunner().invoke(main, ["ledger", command, str(budget), *map(str, arguments)])

    return account


def test_a_stream_is_released_until_its_limit(run, account, complaint, write_input, values, budget, tmp_path) -> None:
    source, told = write_input(".npy", values), ("--ledger", budget, "--stream", "meter")
    assert account("limit", "--epsilon", 1, "--note", "the board").output == (
        f"{budget}: limit for each stream without a limit of its own: epsilon = 1.0\n"
    )
    done = run(source, "-o", tmp_path / "first.npy", *told, seed=None)
    assert done.exit_code == 0, done.output
    assert f"{budget}: stream 'meter' has cost epsilon = 0.5" in done.stderr
    assert account("spent").output == (
        "'meter': epsilon = 0.5 for one value of the stream (replace one value); "
        "left epsilon = 0.5 of epsilon = 1.0\n"
    )
    assert run(source, "-o", tmp_path / "second.npy", *told, "--quiet", seed=None).exit_code == 0
    said = complaint(run(source, "-o", tmp_path / "third.npy", *told, seed=None))
    assert said == "Refused: stream 'meter' has 0.0 of 1.0 epsilon left, this release needs 0.5. Nothing was recorded"
    assert not (tmp_path / "third.npy").exists()
    shown = account("show").output.splitlines()
    assert len(shown) == 2
    assert "'meter'  whole stream  Adaptive: epsilon = 0.5 for one value" in shown[0]
    assert f"# input {source}" in shown[0]
    head = account("verify").output.split("head ")[1].strip()
    assert account("verify", "--head", head).exit_code == 0
    assert f"{budget}: 6 lines, all seals valid" in account("verify").output


def test_a_limit_that_renews_and_what_a_person_loses(account, complaint, budget) -> None:
    said = account("limit", "--epsilon", 2, "--per", "1mo", "--stream", "visits").output
    assert said == f"{budget}: limit for stream 'visits' in each period of 1mo: epsilon = 2.0\n"
    assert complaint(account("limit", "--epsilon", 2, "--per", "1 fortnight")).startswith(
        "--per '1 fortnight': expected"
    )
    unit, day = UnitRows("who", 1, Period.of("1d", "UTC")), 86_400_000_000
    for night in range(31):
        made = Guarantee(0.0625, rows=unit, times=Times("at", "UTC", night * day, night * day + day))
        Ledger(budget).spend(made, stream="visits")
    assert account("spent").output.splitlines()[1:] == [
        "  a person, in the period from 1970-01-01 on (1y): epsilon = 1.9375",
        "  a person, in the period from 1970-01-01 on (1mo): epsilon = 1.9375; limit epsilon = 2.0 in each",
    ]
    assert "'visits'  'at' from 1970-01-31 to 1970-02-01  epsilon = 0.0625" in account("show").output


def test_a_release_that_fails_costs_nothing_unless_its_values_were_read(run, write_input, values, budget, tmp_path):
    broken = np.where(np.arange(values.size) == 4000, np.nan, values)
    source, told = write_input(".npy", broken), ("--ledger", budget, "--stream", "meter", "--chunk-size", 500)
    (tmp_path / "there.npy").touch()
    account = Ledger(budget)
    for out in ("private.npy", "there.npy", "private.unknown"):
        assert run(source, "-o", tmp_path / out, *told, seed=None).exit_code == 1
    # The others could not begin, and did not get as far as the ledger.
    assert [entry.state for entry in account.entries()] == ["reserved"]
    failed = run(source, "-o", "-", *told, seed=None)
    assert failed.exit_code == 1
    assert failed.stdout.startswith("value\n")
    assert account.spent("meter").epsilon == 1.0
    assert account.entries()[-1].state == "reserved"
    early = write_input(".npy", np.where(np.arange(values.size) == 700, np.nan, values))
    for out in ("-", tmp_path / "private.npy"):
        assert run(early, "-o", out, *told[:-2], "--chunk-size", 500, seed=None).exit_code == 1
    # That a value of the hold-out is missing was said, and is not said for free.
    assert account.spent("meter").epsilon == 2.0


def test_a_limit_keeps_what_is_not_named(account, budget: Path) -> None:
    account("limit", "--epsilon", 1, "--delta", 1e-6)
    assert account("limit", "--epsilon", 0.5).output.endswith("own: epsilon = 0.5, delta = 1e-06\n")
    assert account("limit", "--stream", "m", "--epsilon", 2).output.endswith("'m': epsilon = 2.0, delta = 1e-06\n")
    assert account("limit", "--stream", "m", "--delta", "none").output.endswith("'m': epsilon = 2.0\n")
    assert account("limit", "--delta", "none").output.endswith("own: epsilon = 0.5\n")
    wrong = account("limit", "--epsilon", "much")
    assert wrong.exit_code == 2
    assert "'much' is neither a number nor 'none'" in wrong.stderr
    assert Ledger(budget).verify().lines == 6


def test_a_key_of_ones_own(run, account, complaint, write_input, values, budget: Path, tmp_path: Path) -> None:
    key = tmp_path / "seal.key"
    key.write_text("0123456789abcdef" * 4 + "\n")
    key.chmod(0o600)
    sealed = ("--ledger-key-file", key)
    assert account("limit", "--epsilon", 1, *sealed).exit_code == 0
    source = write_input(".npy", values)
    told = ("--ledger", budget, "--stream", "meter", "--quiet")
    assert run(source, "-o", tmp_path / "out.npy", *told, *sealed, seed=None).exit_code == 0
    assert "expected key = the key it was made with" in complaint(run(source, "-o", tmp_path / "no.npy", *told))
    assert "expected key" in complaint(account("spent"))
    assert "epsilon = 0.5" in account("spent", *sealed).output
    key.chmod(0o644)
    assert complaint(account("show", *sealed)).startswith(f"--ledger-key-file {key}: group or others have access")


def test_damage_is_one_line(account, complaint, budget: Path) -> None:
    assert complaint(account("show")) == f"ledger {str(budget)!r} could not be opened: No such file or directory"
    assert not budget.exists()
    assert account("limit").output == f"{budget}: limit for each stream without a limit of its own: none\n"
    assert account("spent").output == "No releases yet.\n"
    account("limit", "--stream", "meter", "--epsilon", 2, "--delta", 1e-9)
    assert account("verify").output.startswith(f"{budget}: 3 lines, all seals valid")
    assert "--epsilon -1.0: expected at least 0" in complaint(account("limit", "--epsilon", -1))
    with contextlib.closing(sqlite3.connect(budget, isolation_level=None)) as db:
        db.execute("UPDATE line SET body = replace(body, '2.0', '9.0')")
    assert "is damaged at line 2: its lines were altered" in complaint(account("verify"))


def test_what_does_not_depend_on_the_values_costs_nothing(run, complaint, write_input, values, budget, tmp_path):
    told = ("-o", tmp_path / "out.npy", "--ledger", budget, "--stream", "meter")
    account, words = Ledger(budget), write_input(".csv", values)
    text = write_input(".npy", np.array(["a"] * 5000), "text")
    for suffix in (".npy", ".npz", ".parquet"):
        short, empty = write_input(suffix, values[:1000], "short"), write_input(suffix, values[:0], "empty")
        source = write_input(suffix, values)
        assert "1,000 values came, all within the hold-out" in complaint(run(short, *told, seed=None))
        assert "empty, holds no values" in complaint(run(empty, *told, seed=None))
        pak = ("--method", "pak", "--length", 4000)
        assert "expected at most 4000" in complaint(run(source, *told, *pak, seed=None))
    for source, more, said in (
        (words, ("--column", "nope"), "no such column"),
        (text, (), "expected real numbers"),
        (words, ("--nonfinite", "zero", "--resolution", -1), "--resolution -1"),
    ):
        assert said in complaint(run(source, *told, *more, seed=None))
    assert account.entries() == []
    # The number of lines is known when all were read.
    short = write_input(".csv", values[:1000], "short")
    assert "all within the hold-out" in complaint(run(short, *told, seed=None))
    assert [entry.state for entry in account.entries()] == ["reserved"]
    # A text's size is in bytes, not in values.
    assert run(words, *told, "--method", "pak", "--length", 5000, seed=None).exit_code == 0


@pytest.mark.parametrize(
    ("column", "entry", "said"),
    [
        (1, np.nan, "missing, NaN or infinite"),
        (1, 99.0, "outside the box"),
        (3, 2.0, "neither 1"),
        (0, 1e9, "earlier"),
    ],
)
def test_an_error_about_events_leaves_the_budget_spent(
    synthesize, write_events, events, complaint, budget, tmp_path, column: int, entry: float, said: str
) -> None:
    spoilt = events.copy()
    spoilt[7, column] = entry
    key = tmp_path / "key"
    key.write_text("0123456789abcdef" * 4)
    key.chmod(0o600)
    told = ("--time", "time", "--ledger", budget, "--stream", "places", "--limit", 9, "--key-file", key)
    assert said in complaint(synthesize(write_events(table=spoilt), *told, "--quiet"))
    assert [each.state for each in Ledger(budget).entries()] == ["reserved"]
    assert not (tmp_path / "out").exists()
    # Whether anything was released under this noise is unknown to the ledger.
    again = complaint(synthesize(write_events(), *told, "--quiet"))
    assert "the same secret and composition were used by entry 1 on stream 'places'" in again
    assert synthesize(write_events(), *told[:-2], "--quiet").exit_code == 0


def test_what_does_not_depend_on_the_events_costs_nothing(
    synthesize, write_events, write_input, values, complaint, budget, tmp_path
) -> None:
    source, words = write_events(), tmp_path / "words.parquet"
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"x": ["a"], "y": [1.0]}), words)
    Ledger(budget)
    told = ("--ledger", budget, "--stream", "places")
    for given, said in (
        ((source, "--x", "nope"), "no such column"),
        ((source, "--event", "nope"), "no such column"),
        ((source, "--time", "nope"), "no such column"),
        ((source, "--initial", 1), "--initial 1.0: expected a number of at least 0 and below 1"),
        ((words,), "holds string entries"),
    ):
        assert said in complaint(synthesize(*given, *told))
    assert "--every -1.0" in complaint(synthesize(source, *told, "--every", -1, batch=None))
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "batch_000.csv").touch()
    assert "of an earlier run" in complaint(synthesize(source, *told))
    assert Ledger(budget).entries() == []


PAID = ("--ledger", "budget", "--stream", "places", "--limit", 2)

#: Of a batch that no later run has.
PART = ".batch_007.csv.0123456789abcdef.tmp"


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


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


pytestmark = pytest.mark.usefixtures("in_folder")


def test_points_spend_too(account, budget: Path, synthesize, write_events, complaint, monkeypatch) -> None:
    source, told = write_events(), ("--epsilon", 0.5, "--quiet", "--ledger", budget, "--stream", "places", "--limit")

    def spend(folder: str, limit: int = 1) -> Result:
        # Fresh noise each time: the same would be no release of its own.
        return CliRunner().invoke(
            main, [*map(str, ["synthesize", source, "-o", folder, *BOX, "--batch", 300, *told, limit])]
        )

    for name in ("first", "second"):
        assert spend(name).exit_code == 0
    assert "has 0.0 of 1.0 epsilon left" in complaint(spend("third"))
    assert not Path("third").exists()
    assert "for one event (one addition or one removal) (add or remove one event)" in account("spent").output

    def refuse(*_: object) -> None:
        raise ParameterError("output batch_000.csv: exists already")

    monkeypatch.setattr(PointFolder, "write", refuse)
    assert spend("fourth", 2).exit_code == 1
    assert account("verify").output.endswith("Reserved and never committed, so counted as spent: 5\n")
