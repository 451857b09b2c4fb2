"""Commands refuse wrong options in one line that names the option, before anything is read, spent or written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fastdp.ledger import Ledger
from tests.shared import full_disk

pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
RELEASE = "release in.npy -o out.csv --epsilon 1 --bound 200"
TOTALS = "totals readings.parquet -o out.csv --value kwh --epsilon 1 --bound 10"
COUNTS = "counts readings.parquet -o out.csv --epsilon 1"
POINTS = "synthesize events.csv -o points.csv --epsilon 1 --box 0 0 10 5 --batch 100"

#: Errors about the use of options: exit code 2.
USAGE = {
    RELEASE.replace("--epsilon 1", ""): "Missing option '--epsilon'.",
    f"{RELEASE} --epsilon x": "'x': expected a number.",
    f"{RELEASE} --max-range 9": "--max-range does not apply to --method adaptive without --follow or --holdout.",
    f"{RELEASE} --method tops --season 9": "--season does not apply to --method tops.",
    f"{RELEASE} --method pak --delta 1e-6": "Expected --length.",
    "release in.npy -o out.csv --epsilon 1 --method tops": "Expected --bound.",
    RELEASE.replace("--bound 200", ""): "Expected --bound or --sensitivity.",
    f"{RELEASE} --follow": "expected - as IN and as OUT.",
    "release - -o - --epsilon 1 --bound 200 --follow --values both": "expected no --values and no --plot.",
    f"{RELEASE} --seed 1 --key-file key": "--seed and --key-file exclude each other: simulation or release.",
    f"{RELEASE} --seed -1": "-1 is not in the range x>=0.",
    f"{RELEASE} --ledger budget": "--ledger needs --stream, the name of the stream whose budget is spent.",
    f"{RELEASE} --limit 1": "--limit needs --ledger.",
    f"{RELEASE} --part a": "--part needs --ledger.",
    f"{TOTALS} --every 1h": "--every needs --time.",
    f"{TOTALS} --time at": "--time needs --every.",
    f"{TOTALS} --per-window 3": "--per-window needs --person.",
    f"{TOTALS} --keys a": "--keys needs --by, the column of the keys.",
    f"{COUNTS} --by city --keys Rome --others": "--keys needs no --key-share and no --others.",
    "aggregate readings.parquet -o out.csv --statistics kwh --epsilon 1": "'kwh': expected COL=NAME,....",
    POINTS.replace("--box 0 0 10 5", ""): "Expected exactly one of --box and --domain.",
    POINTS.replace("--batch 100", ""): "Missing option '--batch'.",
    f"{POINTS} --counter block --method adaptive": "--counter does not apply to --method adaptive.",
    "ledger limit budget --epsilon some": "'some': expected a number or none.",
}
#: Other errors: exit code 1.
REFUSED = {
    RELEASE.replace("200", "-1"): "--bound -1.0: expected a number above 0",
    f"{RELEASE} --sensitivity 2": "sensitivity",
    "plan --epsilon 1": "expected --statistics of a table, or --size of a finished array",
    f"{RELEASE} --threshold 0": "--threshold",
    f"{RELEASE} --separator ';'": "--separator is for text files: 'in.npy' is none",
    f"{TOTALS} --no-header": "--header is for text files: 'readings.parquet' is none",
    RELEASE.replace(
        "in.npy", "none.csv --column city --types no=string"
    ): "--types 'no': expected one of the columns",
    RELEASE.replace("in.npy", "none.csv --column city --types city=foo"): "--types 'foo': expected names of Arrow's",
    f"{RELEASE} --column nope": "nope",
    RELEASE.replace("in.npy", "no.npy"): "no.npy: no such file",
    RELEASE.replace("in.npy", "key"): "'key': unknown kind of file",
    RELEASE.replace("out.csv", "out.xlsx"): "--output 'out.xlsx': expected a name that ends in .csv, .csv.gz, .npy",
    RELEASE.replace("out.csv", "no/out.csv"): "there is no folder",
    RELEASE.replace("out.csv", "key"): "--output 'key': expected a name that ends in .csv",
    RELEASE.replace("out.csv", "in.npy"): "output in.npy: is the input; expected another file",
    f"{RELEASE} --plot out.kwh": "--plot 'out.kwh': expected a suffix among",
    f"{RELEASE} --plot out.csv": "is the picture; expected another file",
    f"{RELEASE} --state in.npy": "is the input; expected another file",
    f"{RELEASE} --key-file in.npy": "is the input; expected another file",
    f"{RELEASE} --ledger no --stream a": "--ledger no: no such file; expected a ledger (fastdp ledger limit makes",
    f"{RELEASE} --key-file in.txt": "--key-file in.txt: group or others have access",
    f"{TOTALS} --value nope": "column 'nope': expected one of the table's columns",
    TOTALS.replace("10", "x=3"): "",
    f"{TOTALS} --time at --every 1q": "--every '1q': expected a length such as",
    f"{TOTALS} --time at --every 1h --zone Mars": "--zone 'Mars': expected the name of a time zone",
    f"{TOTALS} --nonfinite zero --weight 0": "--weight 0.0: expected a number above 0",
    TOTALS.replace("--bound 10", ""): "--bound: expected a public upper bound of a value",
    f"{TOTALS} --confidence 2": "--confidence 2.0: expected",
    TOTALS.replace("out.csv", "out.npy"): "--output 'out.npy': expected a name that ends in .parquet or .csv",
    f"{COUNTS} --by floor": "--keys: expected the list of keys of 'floor' that are released",
    f"{COUNTS} --by floor --keys x": "--keys: an entry is no int64: expected the type of column 'floor'",
    f"{COUNTS} --by floor --keys 0x1": "--keys: an entry is no int64: expected the type of column 'floor'",
    f"{COUNTS} --by floor --by city --keys 1": "--keys '1': expected 2 entries, one for each --by",
    f"{COUNTS} --by floor --by city --keys ''": "--keys '': expected 2 entries",
    f"{COUNTS} --by floor --by city --keys '1\nRome,2'": r"--keys '1\nRome,2': expected 2 entries",
    f"{COUNTS} --by floor --keys @none.csv": "--keys @none.csv: holds no keys",
    "counts none.csv -o out.csv --epsilon 1 --by floor --keys 1": "--keys: no entry tells the type of column 'floor'",
    f"{COUNTS} --by floor --keys 1 --keys 1": "--keys has 2 entries, 1 of them distinct",
    f"{COUNTS} --by floor --keys @no.csv": "--keys @no.csv: no such file",
    f"{COUNTS} --rows auto": "--rows 'auto': expected a whole number of at least 1",
    POINTS.replace("100", "0.5"): "--batch '0.5': expected a",
    POINTS.replace("100", "0"): "--batch 0: expected a whole number of at least 1",
    f"{POINTS} --max-depth -1": "--max-depth -1: expected a whole number of at least",
    POINTS.replace("10 5", "0 5"): "--box 0 0 0 5: expected finite X0 below X1",
    POINTS.replace("10 5", "1 1"): "points are outside the domain; expected points inside, or --outside clip",
    f"{POINTS} --x nope": "nope",
    "ledger show no": "no",
    "plan --statistics kwh=sum --bound 3": "--epsilon, --half-width: expected one of the two",
    "plan --statistics kwh=sum --bound 3 --epsilon 1 --windows 0": "--windows 0: expected a whole number",
}


@pytest.mark.parametrize("line", USAGE)
def test_options_that_do_not_fit(line: str, refused: Callable[..., str]) -> None:
    assert refused(line, code=2).endswith(USAGE[line])


@pytest.mark.parametrize("line", REFUSED)
def test_one_line_names_the_option(line: str, refused: Callable[..., str]) -> None:
    Path("in.txt").chmod(0o644)
    Path("none.csv").write_text("floor,city\n")
    if REFUSED[line]:
        assert REFUSED[line] in refused(line)
    else:
        assert refused(line, code=2)


@pytest.mark.parametrize("line", [RELEASE, TOTALS, POINTS], ids=["release", "totals", "synthesize"])
def test_existing_outputs_need_force(line: str, run: Callable[..., Result], refused: Callable[..., str]) -> None:
    run(f"{line} --seed 1")
    assert "; expected " in refused(line)
    run(f"{line} --seed 1 --force")
    out = Path(line.split()[3])
    out.unlink()
    # A description that a killed process left alone is replaced, another file not.
    run(f"{line} --seed 1")
    out.unlink()
    Path(f"{out}.json").write_text("{}")
    assert f"{out}.json: exists already" in refused(line)
    Path(f"{out}.json").unlink()
    Path("p.png").touch()
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    assert "p.png: exists already" in refused(f"{line} --plot p.png")


def test_what_fails_before_the_values_costs_nothing(run: Callable[..., Result], refused: Callable[..., str]) -> None:
    Ledger("budget").set_limit(9.0)
    for line in (RELEASE, TOTALS, POINTS):
        line += " --ledger budget --stream a"
        for worse in (re.sub(r"-o ", "-o no/", line), f"{line} --epsilon -1"):
            run(worse, code=1)
    assert Ledger("budget").entries() == []
    # An error about the values depends on them.
    Path("in.npy").unlink()
    Path("bad.txt").write_text("1\nnan\n2\n")
    run(f"{RELEASE} --ledger budget --stream a".replace("in.npy", "bad.txt"), code=1)
    run(POINTS.replace("10 5", "1 1") + " --ledger budget --stream a", code=1)
    assert [entry.state for entry in Ledger("budget").entries()] == ["reserved"] * 2


def test_a_limit_refuses_and_records_nothing(run: Callable[..., Result], refused: Callable[..., str]) -> None:
    line = f"{RELEASE} --ledger budget --stream a --quiet"
    run(f"{line} --limit 1.5 --force")
    assert "stream 'a' has 0.5 of 1.5 epsilon left" in run(f"{line} --limit 1.5 --force", code=1).output
    assert "has cost epsilon = 1" in run("ledger spent budget").stdout.replace("'a': ", "has cost ")
    shown = run("ledger show budget").stdout
    assert shown.count("\n") == 1
    assert "# input in.npy" in shown
    head = run("ledger verify budget").stdout.split()[-1]
    assert run(f"ledger verify budget --head {head}").stdout.endswith(f"head {head}\n")
    assert "no line" in run(f"ledger verify budget --head {'0' * 64}", code=1).output
    assert (
        "limit for stream 'a' in each period of 1mo: epsilon = 3"
        in run("ledger limit budget --stream a --epsilon 3 --per 1mo --note mine").stdout
    )


@pytest.mark.parametrize("line", [RELEASE, TOTALS], ids=["release", "totals"])
def test_a_full_disk(line: str, run: Callable[..., Result], folder: Path) -> None:
    before = sorted(folder.iterdir())
    with full_disk():
        assert run(line, code=1).stderr.splitlines()[-1].endswith("File too large")
    assert sorted(folder.iterdir()) == before


def test_names_that_are_no_text(run: Callable[..., Result], folder: Path) -> None:
    odd = os.fsdecode(b"in\xff.npy")
    Path("in.npy").replace(odd)
    run(RELEASE.replace("in.npy", f"'{odd}'") + " --ledger budget --stream a --limit 2 --quiet")
    assert Ledger("budget").entries()[0].note == r"input in\xff.npy"
