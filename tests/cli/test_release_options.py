"""``fastdp release``: --threshold, --values, --index, --follow, inputs of known length, metadata of outputs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fastdp
from fastdp.cli import main, writers
from fastdp.guarantee import Guarantee
from tests.shared import python

pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")


@pytest.fixture
def bare() -> Callable[..., Result]:
    """The command without the small options of ``run``, with a seed."""

    def bare(*arguments: object, stdin: str | None = None) -> Result:
        given = ["release", *map(str, arguments), "--epsilon", "0.5", "--bound", "200", "--seed", "5", "--quiet"]
        return CliRunner().invoke(main, given, input=stdin)

    return bare


def facts_of(path: Path) -> dict[str, Any]:
    """The metadata of an output."""
    if path.suffix == ".parquet":
        from fastdp.data.readers import import_pyarrow

        return json.loads(import_pyarrow().parquet.read_schema(path).metadata[b"fastdp"])
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return json.loads(archive["fastdp"].item())
    return json.loads(path.with_name(f"{path.name}.json").read_text())


def columns_of(path: Path) -> dict[str, np.ndarray]:
    if path.suffix == ".parquet":
        from fastdp.data.readers import read_table

        return {name: column.to_numpy() for name, column in zip(*_named(read_table(path)), strict=True)}
    if path.suffix == ".npz":
        with np.load(path) as archive:
            names = {"values": "value"}
            return {names.get(name, name): archive[name] for name in archive.files if name != "fastdp"}
    if path.suffix == ".npy":
        rows = np.load(path)
        return {name: rows[name] for name in rows.dtype.names} if rows.dtype.names else {"value": rows}
    heading, *rows = path.read_text().splitlines()
    cells = np.array([[float(cell) for cell in row.split(",")] for row in rows])
    return dict(zip(heading.split(","), cells.T, strict=True))


def _named(table: Any) -> tuple[list[str], list[Any]]:
    return table.column_names, table.columns


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".npz", ".parquet"])
def test_columns_are_those_of_the_release(suffix, write_input, run, values, tmp_path):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    release = fastdp.Adaptive(0.5, 200.0, 1000, 4096, seed=5).release(values)
    wanted = {"index": np.arange(1000, values.size), "value": release.values, "revised": release.revised}
    for given, names in (
        (["--values", "both", "--index"], ("index", "value", "revised")),
        (["--values", "revised"], ("revised",)),
        (["--index"], ("index", "value")),
    ):
        out = tmp_path / f"{len(names)}{names[0]}{suffix}"
        result = run(write_input(".npy", values), "-o", out, *given, "--chunk-size", 777)
        assert result.exit_code == 0, result.output
        found = columns_of(out)
        if suffix == ".npy" and names == ("revised",):
            found = {"revised": found["value"]}
        assert tuple(found) == names
        for name in names:
            np.testing.assert_array_equal(found[name], wanted[name])
        if suffix != ".csv" and "index" in names:
            assert found["index"].dtype == np.int64


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".npy", ".npz", ".parquet"])
def test_outputs_say_what_they_are_the_same_each_time(suffix, write_input, run, values, tmp_path):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    source, files = write_input(".npy", values), []
    for name in ("a", "b"):
        out = tmp_path / f"{name}{suffix}"
        assert run(source, "-o", out).exit_code == 0
        files.append([path.read_bytes() for path in sorted(tmp_path.glob(f"{name}.*"))])
    assert files[0] == files[1]
    publisher = fastdp.Adaptive(0.5, 200.0, 1000, 4096, seed=5)
    publisher.publish(values)
    facts = facts_of(tmp_path / f"a{suffix}")
    assert facts["fastdp"] == fastdp.__version__
    assert (facts["method"], facts["offset"], facts["threshold"]) == ("adaptive", 1000, publisher.threshold)
    assert Guarantee.from_dict(facts["guarantee"]) == publisher.guarantee


def test_a_description_is_replaced_by_force_alone_and_is_no_other_file(write_input, run, complaint, values, tmp_path):
    source, out = write_input(".npy", values), tmp_path / "out.csv"
    beside = tmp_path / "out.csv.json"
    beside.write_text("mine")
    assert "out.csv.json: exists already" in complaint(run(source, "-o", out))
    assert not out.exists()
    assert run(source, "-o", out, "--force").exit_code == 0
    assert json.loads(beside.read_text())["offset"] == 1000
    said = complaint(run(source, "-o", tmp_path / "s.csv", "--state", tmp_path / "s.csv.json"))
    assert "expected another file" in said


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
def test_an_input_that_says_its_length_is_released_whole(suffix, write_input, bare, values, tmp_path):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / "out.npz"
    done = bare(write_input(suffix, values), "-o", out, "--chunk-size", 333)
    assert done.exit_code == 0, done.output
    release = fastdp.release(values, 0.5, 200.0, seed=5)
    np.testing.assert_array_equal(columns_of(out)["value"], release.values)
    facts = facts_of(out)
    assert (facts["offset"], facts["threshold"]) == (0, release.threshold)
    assert Guarantee.from_dict(facts["guarantee"]) == release.guarantee


def test_whole_inputs_resume_and_refuse_another(write_input, bare, values, tmp_path):
    source, state = write_input(".npy", values), tmp_path / "state"
    said = ("--state", state)
    first = bare(source, "-o", "-", *said)
    assert first.exit_code == 0, first.output
    assert bare(source, "-o", "-", *said).stdout == first.stdout
    np.save(source, np.append(values, 7.0))
    longer = bare(source, "-o", "-", *said)
    assert longer.exit_code == 1
    assert "expected the same command again" in longer.stderr
    altered = values.copy()
    altered[17] = 3.5
    np.save(source, altered)
    other = bare(source, "-o", "-", *said)
    assert (other.exit_code, other.stdout) == (1, "")
    assert "are not those that state file" in other.stderr


def test_whole_inputs_name_their_bad_values_and_empty_ones(write_input, bare, values, tmp_path):
    holes = values.copy()
    holes[2500] = np.nan
    done = bare(write_input(".npy", holes), "-o", tmp_path / "out.csv")
    assert "value 2,501 is missing, NaN or infinite" in done.stderr
    assert bare(write_input(".npy", holes), "-o", tmp_path / "out.csv", "--nonfinite", "zero").exit_code == 0
    assert "empty, holds no values" in bare(write_input(".npy", values[:0]), "-o", tmp_path / "no.csv").stderr
    short = bare(write_input(".csv", values), "-o", tmp_path / "short.csv")
    assert "smaller --holdout, --expected-length, or a public --threshold" in short.stderr


@pytest.mark.parametrize("method", ["adaptive", "pak", "topl"])
def test_a_public_threshold_withholds_nothing(method, write_input, bare, values, tmp_path):
    given = ["--method", method, *(["--length", values.size] if method == "pak" else [])]
    done = bare(write_input(".csv", values), "-o", tmp_path / "out.npz", "--threshold", 50, *given)
    assert done.exit_code == 0, done.output
    assert facts_of(tmp_path / "out.npz")["threshold"] == 50.0
    assert columns_of(tmp_path / "out.npz")["value"].size == values.size
    if method == "adaptive":
        expected = fastdp.Adaptive(0.5, 200.0, threshold=50.0, seed=5).publish(values)
        np.testing.assert_array_equal(columns_of(tmp_path / "out.npz")["value"], expected)


def test_length_and_rate_choose_the_holdout(bare, lines, values):
    for given, options in (
        (["--expected-length", 4000], {"expected_length": 4000}),
        (["--every", "1h", "--expected-length", 4000], {"every": "1h", "expected_length": 4000}),
    ):
        done = bare("-", "-o", "-", *given, stdin=lines(values))
        assert done.exit_code == 0, done.output
        expected = fastdp.Adaptive(0.5, 200.0, seed=5, **options).publish(values)
        assert done.stdout == "value\n" + lines(expected)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["in.csv", "-o", "-", "--follow"], "--follow needs IN - and -o -"),
        (["-", "-o", "out.csv", "--follow"], "--follow needs IN - and -o -"),
        (["-", "-o", "-", "--follow", "--state", "s"], "exclude each other"),
        (["-", "-o", "-", "--follow", "--values", "both"], "expected --values published"),
        (["-", "-o", "-", "--season", "5", "--method", "tops"], "does not apply to --method tops"),
        (["-", "-o", "-", "--every", "1h", "--method", "pak"], "does not apply to --method pak"),
    ],
)
def test_options_that_do_not_fit(given, said, run):
    result = run(*given)
    assert result.exit_code == 2
    assert said in result.stderr


FOLLOWED = ("-", "-o", "-", "--follow", "--threshold", "50", "--epsilon", "1", "--bound", "100", "--max-range", "64")


def test_a_live_pipe_is_answered_at_once():
    """Each answer is read before the next value is sent: a reader or writer that waited would hang."""
    expected = fastdp.Adaptive(1.0, 100.0, threshold=50.0, max_range=64, seed=5).publish(np.arange(5.0))
    told = python("-m", "fastdp", "release", *FOLLOWED, "--seed", 5, "--quiet")
    with subprocess.Popen(**told, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number, value in enumerate(expected):
            process.stdin.write(b"%d\n" % number)
            process.stdin.flush()
            if not number:
                assert process.stdout.readline() == b"value\n"
            assert float(process.stdout.readline()) == value
        process.stdin.close()
        assert process.wait(300) == 0


@pytest.mark.parametrize("text", ["1\r\n2\r\n3", "1\n\n3\n", '"1"\n2\n3\n', "\ufeffx\n1\n2\n3\n", "1\n2\n3\n\n\n"])
def test_followed_text_is_read_as_any_other(text, run):
    given = ("-", "-o", "-", "--threshold", 50, "--holdout", 0, "--nonfinite", "zero")
    live, plain = (run(*given, *more, stdin=text.encode()) for more in (["--follow"], []))
    assert plain.exit_code == 0, plain.output
    assert live.stdout == plain.stdout


def test_rows_are_exact():
    index, odd = np.array([0, 1, 2**53 + 1]), np.array([0.1, -0.0, 5e-324])
    assert writers.as_rows(index, odd) == b"0,0.1\n1,-0.0\n9007199254740993,5e-324\n"
