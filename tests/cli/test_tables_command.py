from __future__ import annotations

import gzip
import json

import click
import numpy as np
import pytest
from click.testing import CliRunner

import fastdp
from fastdp.cli import main
from fastdp.cli.terminal import in_options
from fastdp.guarantee import Guarantee
from fastdp.ledger import Ledger
from tests.tables import flat

pytest.importorskip("narwhals", reason="needs fastdp-streams[tables]")

pa = pytest.importorskip("pyarrow", reason="needs fastdp-streams[tables]")
csv = pytest.importorskip("pyarrow.csv")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def readings():
    rng, rows = np.random.default_rng(3), 4000
    times = np.datetime64("2024-03-30T00:00") + rng.integers(0, 4 * 86_400, rows).astype("timedelta64[s]")
    columns = {"city": rng.choice(["Rome", "Oslo", "Bern, old"], rows), "floor": rng.integers(1, 4, rows)}
    columns |= {"kwh": rng.gamma(2.0, 1.0, rows).round(2), "meter": rng.integers(0, 500, rows)}
    return pa.table({"at": pa.array(times, pa.timestamp("us")), **columns})


@pytest.fixture
def source(readings, tmp_path):
    parquet.write_table(readings, tmp_path / "readings.parquet")
    return tmp_path / "readings.parquet"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments, input=None):
        return CliRunner().invoke(main, [str(argument) for argument in arguments], input=input)

    return run


WINDOWS = ["--time", "at", "--every", "6h"]

TOTALS = [*WINDOWS, "--value", "kwh", "--epsilon", "1", "--seed", "5"]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz", "-"])
def test_every_input_gives_what_the_function_gives(suffix, readings, source, run, tmp_path):
    expected = flat.totals(str(source), "kwh", "at", "6h", epsilon=1.0, bound=10.0, seed=5).frame
    given, data = tmp_path / f"input{suffix}", None
    if suffix == ".parquet":
        given = source
    else:
        csv.write_csv(readings, tmp_path / "input.csv")
        data = (tmp_path / "input.csv").read_bytes()
        if suffix == ".csv.gz":
            given.write_bytes(gzip.compress(data))
        given = "-" if suffix == "-" else given
    result = run("totals", given, *TOTALS, "--bound", "10", "-o", "out.parquet", input=data)
    assert result.exit_code == 0, result.output
    assert parquet.read_table("out.parquet").equals(expected)


def test_times_that_are_numbers_and_texts(readings, run, tmp_path):
    """Unix times and numbers of days, as ``fastdp.Time`` reads them."""
    at = readings["at"].cast("timestamp[s]")
    days = pa.compute.strftime(at, "%Y%m%d").cast("int64")
    for name, column, option, given in (
        ("unix", at.cast("int64"), ["--time-unit", "s"], {"unit": "s"}),
        ("days", days, ["--time-format", "%Y%m%d"], {"format": "%Y%m%d"}),
    ):
        table, source = readings.set_column(0, "at", column), tmp_path / f"{name}.parquet"
        parquet.write_table(table, source)
        told = ["--time", "at", "--every", "1d", *option, "--epsilon", 1, "--seed", 5, "-o", f"{name}.csv"]
        done = run("counts", source, *told)
        assert done.exit_code == 0, done.output
        wanted = fastdp.counts(source, fastdp.Time("at", "1d", **given), epsilon=1.0, seed=5)
        assert csv.read_csv(f"{name}.csv")["estimate"].to_pylist() == wanted.arrow["estimate"].to_pylist()


def test_counts_and_means_with_every_option(source, run):
    common = {"epsilon": 2.0, "by": ["city", "floor"], "keys": [("Rome", 1), ("Bern, old", 3)], "seed": 7}
    common |= {"start": "2024-03-30", "stop": "2024-03-31", "zone": "Europe/Rome"}
    common |= {"who": "meter", "contributions": 6, "period": "1d", "per_window": 3, "missing": "drop"}
    options = ["--epsilon", "2.0", "--by", "city", "--by", "floor", "--key", "Rome,1", "--key", '"Bern, old",3']
    options += ["--seed", 7, "--start", "2024-03-30", "--stop", "2024-03-31", "--zone", "Europe/Rome"]
    options += ["--confidence", 0.9, "--person", "meter", "--rows", 6, "--per", "1d", "--per-window", 3]
    options += ["--missing", "drop", "--origin", "2024-01-01", "-o", "out.parquet", "--force"]
    counts = flat.counts(str(source), "at", "6h", **common, origin="2024-01-01")
    assert run("counts", source, *WINDOWS, *options).exit_code == 0
    assert parquet.read_table("out.parquet").equals(counts.with_confidence(0.9).frame)
    more = {"clip": (-1.0, 5.0), "resolution": 0.25, "nonfinite": "zero"}
    means = flat.means(str(source), "kwh", "at", "6h", **common, **more, origin="2024-01-01")
    values = ["--value", "kwh", "--clip=-1,5", "--resolution", 0.25, "--nonfinite", "zero"]
    result = run("means", source, *WINDOWS, *values, *options)
    assert result.exit_code == 0, result.output
    assert parquet.read_table("out.parquet").equals(means.with_confidence(0.9).frame)


def test_where_keys_come_from(source, run, tmp_path):
    (tmp_path / "keys.csv").write_text("city,area\nOslo,1\nRome,2\n")
    ways = {
        "file": (["--keys-file", "keys.csv"], ["Oslo", "Rome"]),
        "public": (["--public-keys"], ["Bern, old", "Oslo", "Rome"]),
        "private": (["--delta", "1e-6"], ["Bern, old", "Oslo", "Rome"]),
    }
    for options, expected in ways.values():
        result = run("counts", source, *WINDOWS, "--epsilon", 1, "--by", "city", *options, "-o", "o.csv", "--force")
        assert result.exit_code == 0, result.output
        assert sorted(set(csv.read_csv("o.csv")["city"].to_pylist())) == expected
    assert json.loads((tmp_path / "o.csv.json").read_text())["guarantee"]["delta"] == 1e-6


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_outputs_say_what_they_are(suffix, source, run, tmp_path):
    pytest.importorskip("matplotlib", reason="needs fastdp-streams[plot]")
    result = run("totals", source, *TOTALS, "--clip", "4", "-o", f"out.{suffix}", "--plot", "out.png")
    assert result.exit_code == 0, result.output
    if suffix == "parquet":
        facts = json.loads(parquet.read_schema("out.parquet").metadata[b"fastdp"])
    else:
        facts = json.loads((tmp_path / "out.csv.json").read_text())
    guarantee = Guarantee.from_dict(facts["guarantee"])
    assert (guarantee.epsilon, guarantee.simulated) == (1.0, True)
    assert facts["clip"] == {"kwh": [0.0, 4.0]}
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert result.stderr.startswith("Totals of 16 windows of 6h, 2024-03-30 00:00 to 2024-04-03 00:00\n")
    clip = "clip       values were clipped to [0, 4]"
    for line in (clip, f"output     out.{suffix}", "picture    out.png", "SIMULATED"):
        assert line in result.stderr
    before = sorted(tmp_path.iterdir())
    piped = run("totals", source, *TOTALS, "--clip", 4, "-o", "-", "--quiet")
    assert piped.stderr == ""
    assert piped.stdout.startswith('"window","estimate","std_error","low","high","revised"')
    assert piped.stdout.count("\n") == 17
    assert sorted(tmp_path.iterdir()) == before


def test_a_ledger_is_charged_and_refuses(source, run, tmp_path):
    ledger = ["--ledger", "budget", "--stream", "meters"]
    options = [*WINDOWS, "--epsilon", 0.75]
    assert "no such file" in run("counts", source, *options, *ledger, "-o", "a.csv").output
    result = run("counts", source, *options, *ledger, "--limit", 1, "-o", "a.csv")
    assert result.exit_code == 0, result.output
    assert "stream 'meters' has cost epsilon = 0.75" in result.stderr
    refused = run("counts", source, *options, *ledger, "--limit", 1, "-o", "b.csv")
    assert refused.exit_code == 1
    assert "0.25" in refused.output
    assert not (tmp_path / "b.csv").exists()
    assert Ledger("budget").spent("meters").epsilon == 0.75


def test_what_could_not_be_written_costs_nothing(source, run, tmp_path):
    (tmp_path / "there.csv").write_text("kept")
    (tmp_path / "old.csv.json").write_text("kept")
    (tmp_path / "there.png").write_text("kept")
    (tmp_path / "link.png").symlink_to("out.csv")
    ledger = ["--ledger", "budget", "--stream", "meters", "--limit", 1]
    for outputs in (
        ["-o", "out.txt"],
        ["-o", "there.csv"],
        ["-o", "old.csv"],
        ["-o", "nowhere/out.csv"],
        ["-o", "out.csv", "--plot", "out.xyz"],
        ["-o", "out.csv", "--plot", "there.png"],
        ["-o", "out.csv", "--plot", "link.png"],
        ["-o", "budget"],
        ["-o", source],
    ):
        result = run("counts", source, *WINDOWS, "--epsilon", 1, *ledger, *outputs)
        assert result.exit_code == 1, (outputs, result.output)
        assert result.stderr.startswith("Error: ")
        assert len(result.stderr.splitlines()) == 1
        assert not (tmp_path / "budget").exists()
    assert (tmp_path / "there.csv").read_text() == "kept"


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_keys_are_dates_times_and_truth_values(ending, run, tmp_path):
    days = np.array(["2024-03-30", "2024-03-31", "2024-04-01"], "M8[D]").repeat(40)
    table = pa.table(
        {
            "day": days,
            "at": days.astype("M8[s]") + np.timedelta64(1, "h"),
            "open": np.arange(120) % 3 > 0,
            "x": days.astype(str),
        }
    )
    (parquet.write_table if ending == "parquet" else csv.write_csv)(table, tmp_path / f"t.{ending}")
    options = ["--epsilon", 1e6, "--seed", 1, "-o", "out.parquet", "--force"]
    for column, listed, counts in (
        ("day", ["2024-03-31", "2023-01-01"], [40, 0]),
        ("at", ["2024-04-01T01:00:00", "2024-04-01T02:00"], [40, 0]),
        ("open", ["true", "false"], [80, 40]),
    ):
        keys = [part for key in listed for part in ("--key", key)]
        done = run("counts", f"t.{ending}", "--by", column, *keys, *options)
        assert done.exit_code == 0, done.output
        assert parquet.read_table("out.parquet")["estimate"].to_pylist() == pytest.approx(counts, abs=0.5)
    for column, key in (("day", "tomorrow"), ("open", "perhaps"), ("at", "2024-04-01T01:00+01:00 no")):
        done = run("counts", f"t.{ending}", "--by", column, "--key", key, *options)
        assert done.exit_code == 1
        assert f"expected the type of column '{column}'" in done.stderr
    both = ["--by", "open", "--by", "day", "--key", "true,2024-03-30"]
    assert run("counts", f"t.{ending}", *both, *options).exit_code == 0
    assert parquet.read_table("out.parquet")["estimate"].to_pylist() == pytest.approx([26], abs=1.5)


def test_the_others_of_private_keys(source, run):
    told = ["--by", "meter", "--epsilon", 1, "--delta", 1e-6, "--seed", 1, "-o", "out.parquet", "--others"]
    assert run("counts", source, *told).exit_code == 0
    found, keys = parquet.read_table("out.parquet"), fastdp.PrivateKeys(others=True)
    wanted = fastdp.counts(str(source), by="meter", keys=keys, epsilon=1.0, delta=1e-6, seed=1)
    assert found.equals(wanted.arrow)
    assert found["meter"].to_pylist()[-1] is None


def test_the_same_key_gives_the_same_bytes(source, run, tmp_path):
    (tmp_path / "key").write_bytes(bytes(range(32)))
    (tmp_path / "key").chmod(0o600)
    for name in ("a", "b"):
        options = [*WINDOWS, "--epsilon", 1, "--key-file", "key", "-o", f"{name}.parquet"]
        assert run("counts", source, *options).exit_code == 0
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert run("counts", source, *options, "--stream", "other", "--force").exit_code == 0
    assert (tmp_path / "a.parquet").read_bytes() != (tmp_path / "b.parquet").read_bytes()


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("totals", [], "Expected --bound, the public largest value (or LOW,HIGH), or --clip"),
        ("means", [], "Expected --bound, the public largest value (or LOW,HIGH), or --clip"),
        *[
            ("totals", ["--bound", text], "neither a number nor two separated by a comma")
            for text in ("ten", "1,2,3", "")
        ],
        *[
            (
                command,
                [*asked, *more],
                "Expected --bound kwh=HIGH, the public largest value (or LOW,HIGH), or --clip kwh",
            )
            for asked in [["--stat", "kwh=mean", "--stat", "*=count", "--stat", "city=nunique"]]
            for command, more in (("aggregate", ["--weight", "kwh=2"]), ("plan", []))
        ],
        ("counts", ["--by", "city"], "--by needs the keys"),
        ("counts", ["--key", "Rome"], "need --by"),
        ("counts", ["--by", "city", "--key", "Rome", "--public-keys"], "exclude each other"),
        ("counts", ["--by", "floor", "--key", "ground"], "an entry is no int64: expected the type of column 'floor'"),
        ("counts", ["--by", "city", "--by", "floor", "--key", "Rome"], "expected 2 entries, one for each --by"),
        (
            "counts",
            ["--by", "town", "--key", "Rome"],
            "column 'town': expected one of the table's columns, 'at', 'city'",
        ),
        ("counts", ["--every", "1hour"], "--every '1hour': expected a length such as '15min'"),
        ("counts", ["--time", "when"], "column 'when': expected one of the table's columns"),
        ("counts", ["--time", "kwh"], "--time 'kwh' holds"),
        ("counts", ["--epsilon", "0"], "epsilon"),
        ("counts", ["--confidence", "2"], "confidence"),
        ("counts", ["--seed", "1", "--key-file", "k"], "--seed and --key-file exclude each other"),
        ("counts", ["--limit", "1"], "--limit needs --ledger"),
        ("counts", ["--ledger", "budget"], "--ledger needs --stream"),
        *[
            ("counts", ["--by", "meter", "--delta", 1e-6, "--others", *more], "--others need --by and --delta")
            for more in (["--public-keys"], ["--key", "7"])
        ],
    ],
)
def test_refusals_name_options(command, options, message, source, run, tmp_path):
    value = ["--value", "kwh"] if command in ("totals", "means") else []
    table = [source, *WINDOWS, *value, "-o", "out.csv"] if command != "plan" else []
    result = run(command, *table, "--epsilon", "1", *options)
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "out.csv").exists()


def test_files_that_are_refused(run, tmp_path):
    heading = "at,kwh\n2026-01-02,1.5\n"
    for content, told in (
        (heading + "2026-01-01,\n", "(--nonfinite zero makes"),
        (heading + ",1\n", "(--missing drop drops such rows)"),
        ("at,kwh\n1,2,3,secret\n", "not readable as CSV"),
    ):
        with gzip.open(tmp_path / "in.csv.gz", "wt") as file:
            file.write(content)
        done = run("totals", "in.csv.gz", *TOTALS, "--clip", 2, "-o", "out.csv")
        assert done.exit_code == 1
        assert told in done.stderr
        assert "secret" not in done.output
    said = "time=fastdp.Time(..., start=, stop=), Time(unit=), fewer keys (keys=), every = '1d', clip=2.0"
    with click.Context(main.get_command(click.Context(main), "aggregate")):
        assert in_options("statistics, entry 0: no") == "--stat, entry 0: no"
    with click.Context(main.get_command(click.Context(main), "totals")):
        assert in_options("bound = (2.0, 1.0): no") == "--bound (2.0, 1.0): no"
        assert in_options(said) == "--start, --stop, --time-unit, fewer keys (--key), --every '1d', clip=2.0"
