"""Budgets on the command line, as somebody who reads --help uses them."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fastdp import Guarantee
from fastdp.cli import main
from fastdp.errors import ParameterError
from fastdp.ledger import Ledger
from fastdp.units import Period, Times, UnitRows


@pytest.fixture
def budget(tmp_path: Path) -> Path:
    return tmp_path / "budget"


@pytest.fixture
def account(budget: Path) -> Callable[..., Result]:
    """``fastdp ledger COMMAND FILE ...``."""

    def account(command: str, *arguments: object) -> Result:
        return CliRunner().invoke(main, ["ledger", command, str(budget), *map(str, arguments)])

    return account


def points(folder: Path, count: int = 60) -> Path:
    rows = np.random.default_rng(2).random((count, 2))
    path = folder / "points.csv"
    path.write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in rows.tolist()))
    return path


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
        "per = '1 fortnight': expected"
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


def test_points_spend_too(account, budget: Path, tmp_path: Path) -> None:
    told = ["--epsilon", "0.5", "--box", *["0", "0", "1", "1"], "--batch", "20"]
    spend = ["--ledger", str(budget), "--stream", "places", "--limit", "1"]

    def synthesize(name: str, *more: str) -> Result:
        source = str(points(tmp_path))
        return CliRunner().invoke(main, ["synthesize", source, "-o", str(tmp_path / name), *told, *spend, *more])

    done = synthesize("first")
    assert done.exit_code == 0, done.output
    assert "stream 'places' has cost epsilon = 0.5" in done.stderr
    assert synthesize("second", "--quiet").exit_code == 0
    refused = synthesize("third")
    assert refused.exit_code == 1
    assert "has 0.0 of 1.0 epsilon left" in refused.stderr
    assert not (tmp_path / "third").exists()
    assert "for one event (one addition or one removal) (add or remove one event)" in account("spent").output
    # What was written before a failure stays written.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastdp.cli.writers.PointFolder.write", _refuse)
        failed = synthesize("fourth", "--limit", "2")
    assert failed.exit_code == 1
    assert account("verify").output.endswith("Reserved and never committed, so counted as spent: 5\n")


def _refuse(*_: Any) -> None:
    raise ParameterError("output batch_000.csv: exists already")


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
    assert "epsilon = -1.0: expected at least 0" in complaint(account("limit", "--epsilon", -1))
    with contextlib.closing(sqlite3.connect(budget, isolation_level=None)) as db:
        db.execute("UPDATE line SET body = replace(body, '2.0', '9.0')")
    assert "is damaged at line 2: its lines were altered" in complaint(account("verify"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--limit", "1"), "--limit needs --ledger"),
        (("--ledger-key-file", "k"), "--ledger-key-file needs --ledger"),
        (("--ledger", "budget"), "--ledger needs --stream"),
    ],
)
def test_options_that_need_each_other(run, arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = run("in.npy", "-o", tmp_path / "out.npy", *arguments)
    assert done.exit_code == 2
    assert words in done.stderr


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
        (words, ("--nonfinite", "zero", "--resolution", -1), "resolution = -1"),
    ):
        assert said in complaint(run(source, *told, *more, seed=None))
    assert account.entries() == []
    # The number of lines is known when all were read.
    short = write_input(".csv", values[:1000], "short")
    assert "all within the hold-out" in complaint(run(short, *told, seed=None))
    assert [entry.state for entry in account.entries()] == ["reserved"]
    # A text's size is in bytes, not in values.
    assert run(words, *told, "--method", "pak", "--length", 5000, seed=None).exit_code == 0


def spoilt(events: np.ndarray, column: int, entry: float) -> np.ndarray:
    table = events.copy()
    table[7, column] = entry
    return table


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
    source = write_events(table=spoilt(events, column, entry))
    key = tmp_path / "key"
    key.write_text("0123456789abcdef" * 4)
    key.chmod(0o600)
    told = ("--time", "time", "--ledger", budget, "--stream", "places", "--limit", 9, "--key-file", key)
    assert said in complaint(synthesize(source, *told, "--quiet"))
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
        ((source, "--initial", 1), "initial = 1.0: expected a number of at least 0 and below 1"),
        ((words,), "holds string entries"),
    ):
        assert said in complaint(synthesize(*given, *told))
    assert "period = -1.0" in complaint(synthesize(source, *told, "--every", -1, batch=None))
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "batch_000.csv").touch()
    assert "of an earlier run" in complaint(synthesize(source, *told))
    assert Ledger(budget).entries() == []
