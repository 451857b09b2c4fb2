"""``fastdp release``: what it writes is what the library releases, and whatever goes wrong leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fastdp
from fastdp.cli import main
from fastdp.guarantee import Guarantee
from fastdp.releases import pictures
from tests.cli.conftest import ARGUMENTS
from tests.shared import full_disk, python, run_python

INPUTS = (".csv", ".csv.gz", ".txt", ".txt.gz", ".npy", ".npz", ".parquet")

OUTPUTS = (".csv", ".csv.gz", ".npy", ".npz", ".parquet")


def given(options: dict[str, object]) -> list[str]:
    """Keyword arguments as the command takes them."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".npz", ".parquet"])
def test_chunk_size_changes_nothing(suffix, write_input, run, values, tmp_path):
    source, files = write_input(suffix, values), []
    for size in (7, 1000, 1001, 100_000):
        target = tmp_path / f"out{size}{suffix}"
        assert run(source, "-o", target, "--chunk-size", size).exit_code == 0
        files.append(target.read_bytes())
    assert len(set(files)) == 1


def test_counts_of_events_need_no_bound(write_input, bare, read_output, values, tmp_path):
    source, counted = write_input(".npy", values), ["--sensitivity", 2, "--contributions", 3]
    expected = fastdp.Adaptive(0.5, sensitivity=2.0, contributions=3, seed=5).publish(values)
    for name, more in (("out", []), ("again", ["--state", tmp_path / "state"])):
        done = bare(source, "-o", tmp_path / f"{name}.npy", *counted, *more, bound=False)
        assert done.exit_code == 0, done.output
        np.testing.assert_array_equal(read_output(tmp_path / f"{name}.npy"), expected)
    for wrong in ([], ["--bound", 9, "--sensitivity", 1]):
        done = bare(source, "-o", tmp_path / "no.npy", *wrong, bound=False)
        assert "Expected either --bound, or for counts of events --sensitivity" in done.stderr


@pytest.mark.filterwarnings("default::fastdp.errors.AccuracyWarning")
def test_a_short_holdout_is_said_in_one_line(write_input, run, values, tmp_path):
    result = run(write_input(".npy", values), "-o", tmp_path / "out.npy", "--holdout", 20, "--quiet")
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: holdout: 18 values are too few to choose a threshold")
    assert "or a threshold known publicly (--threshold 50.0)" in result.stderr
    # The second says that theta became the bound.
    assert result.stderr.count("\n") == result.stderr.count("Warning: ") == 2


# Everything else that goes wrong: one line, exit code 1, nothing left behind.
@pytest.fixture
def refused(run, complaint, tmp_path):
    """Run with a fresh output, then over an existing one: both say the same and leave all as it was."""

    def refused(source: object, *arguments: object, output: str = "out.csv", stdin: str | None = None) -> str:
        out = tmp_path / "results" / output
        out.parent.mkdir(exist_ok=True)
        said = complaint(run(source, "-o", out, *arguments, stdin=stdin))
        assert list(out.parent.iterdir()) == []
        out.write_bytes(b"precious")
        assert complaint(run(source, "-o", out, *arguments, "--force", stdin=stdin)) == said
        assert list(out.parent.iterdir()) == [out]
        assert out.read_bytes() == b"precious"
        out.unlink()
        return said

    return refused


def test_inputs_and_outputs_of_another_kind(refused, run, complaint, write_input, values, monkeypatch, tmp_path):
    source, folder, locked = write_input(".npy", values), tmp_path / "folder.npy", tmp_path / "locked"
    (tmp_path / "in.xlsx").touch()
    folder.mkdir()
    locked.mkdir()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != locked and access(path, mode))
    for name, said in (
        ("no.csv", "no such file"),
        (".", "is a folder; expected a file"),
        ("in.xlsx", "unknown kind"),
    ):
        assert said in complaint(run(tmp_path / name, "-o", tmp_path / "out.csv"))
    for out, said in (
        (folder, "is a folder"),
        (tmp_path / "out.xlsx", "out.xlsx: unknown kind of file; expected .csv"),
        (tmp_path / "no" / "out.npy", f"out.npy: there is no folder {tmp_path / 'no'}"),
        (locked / "out.npy", f"output {locked / 'out.npy'}: no permission to write in {locked}"),
    ):
        assert said in complaint(run(source, "-o", out, "--force"))
    assert "--epsilon -1.0: expected a number above 0" in refused(source, "--epsilon", "-1")
    assert "expected at most 4000" in refused(source, "--method", "pak", "--length", 4000)


def test_a_disk_that_fails(write_input, run, complaint, values, tmp_path):
    source, out = write_input(".npy", values), tmp_path / "out.npy"
    with full_disk():
        said = complaint(run(source, "-o", out))
    assert said == f"{out}: File too large"
    assert [path.name for path in tmp_path.iterdir()] == ["in.npy"]


def _size(folder: Path) -> int:
    """Bytes in a folder's files; 0 while one of them is replaced."""
    try:
        return sum(path.stat().st_size for path in folder.iterdir())
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(number, values, lines, tmp_path):
    """A stream cut off by Ctrl-C or a polite kill leaves neither output nor temporary file."""
    told = ("release", "-", "-o", tmp_path / "out.csv", *ARGUMENTS, "--seed", 5, "--chunk-size", 500)
    # A shell starts background jobs with SIGINT ignored, and a child inherits that; a handler is reset in it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(**python("-m", "fastdp", *told), stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stdin is not None
    assert process.stderr is not None
    try:
        # More than the buffer of a file, 128 KiB since Python 3.14, so that the temporary file shows them.
        process.stdin.write(lines(np.tile(values, 20)).encode())
        process.stdin.flush()
        # It is filled when kernels have loaded; then the command waits for more of the stream.
        deadline = time.monotonic() + 900
        while not _size(tmp_path):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert [path.suffix for path in tmp_path.iterdir()] == [".tmp"]
        time.sleep(1.0)
        process.send_signal(number)
        process.wait(300)
        said = process.stderr.read().decode()
    finally:
        process.kill()
        process.stdin.close()
        process.stderr.close()
        process.wait()
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_the_reader_of_standard_output_goes_away(values, lines, tmp_path):
    source = tmp_path / "in.csv"
    source.write_text(lines(np.tile(values, 50)))
    told = python("-m", "fastdp", "release", source, "-o", "-", "--chunk-size", 100, *ARGUMENTS, "--seed", 5)
    with subprocess.Popen(**told, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"value\n"
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
        assert process.wait(300) == 1


WATCHED = """
import sys
from pathlib import Path
from fastdp.cli import main
main(sys.argv[1:], standalone_mode=False)
lines = Path("/proc/self/status").read_text().splitlines()
print(next(line for line in lines if line.startswith("VmHWM")).split()[1])
"""


@pytest.mark.slow
# Compared from where the buffers are full: a Parquet row group is a million values, and Arrow holds a few.
@pytest.mark.parametrize(
    ("suffix", "few", "more"),
    [(".csv", 400_000, 3_000_000), (".npy", 400_000, 6_000_000), (".parquet", 3_100_000, 9_000_000)],
)
def test_memory_is_constant(suffix, few, more, write_input, tmp_path):
    """Millions of values more, but not half of the memory that one copy of them would take."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux to tell a process's peak memory")

    def peak(n: int) -> int:
        source = write_input(suffix, np.arange(n) % 100.0, name=str(n))
        arguments = [source, "-o", tmp_path / f"out{suffix}", "--epsilon", "1", "--bound", "100", "--quiet"]
        told = ("-c", WATCHED, "release", *arguments, "--max-range", "65536", "--force")
        # Allocators that keep what was freed would be measured instead of what is held.
        kept = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
        return int(run_python(*told, check=True, **kept).stdout)

    assert min(peak(few + more) for _ in range(2)) - peak(few) < more * 8 / 1024 / 2, "kibibytes"


def facts_of(path: Path) -> dict[str, Any]:
    """The metadata of an output."""
    if path.suffix == ".parquet":
        return json.loads(pytest.importorskip("pyarrow.parquet").read_schema(path).metadata[b"fastdp"])
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return json.loads(archive["fastdp"].item())
    return json.loads(path.with_name(f"{path.name}.json").read_text())


def columns_of(path: Path) -> dict[str, np.ndarray]:
    if path.suffix == ".parquet":
        table = pytest.importorskip("pyarrow.parquet").read_table(path)
        return {name: table[name].to_numpy() for name in table.column_names}
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


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".npz", ".parquet"])
def test_columns_are_those_of_the_release(suffix, write_input, run, values, tmp_path):
    release = fastdp.Adaptive(0.5, 200.0, 1000, 4096, seed=5).release(values)
    wanted = {"value": release.values, "revised": release.revised}
    for told, names in (("both", ("value", "revised")), ("revised", ("revised",))):
        out = tmp_path / f"{told}{suffix}"
        result = run(write_input(".npy", values), "-o", out, "--values", told, "--chunk-size", 777)
        assert result.exit_code == 0, result.output
        found = columns_of(out)
        if suffix == ".npy" and names == ("revised",):
            found = {"revised": found["value"]}
        assert tuple(found) == names
        for name in names:
            np.testing.assert_array_equal(found[name], wanted[name])


@pytest.mark.filterwarnings("default::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("told", ["published", "both"])
@pytest.mark.parametrize("few", [True, False])
def test_a_total_of_a_counted_file_is_that_of_the_release_function(few, told, write_input, bare, values, tmp_path):
    given = values[:900] if few else np.where(np.arange(1500) % 50, 0.0, 90.0)
    expected = fastdp.release(given, 0.5, 200.0, seed=5)
    assert expected.threshold == 200.0
    out = tmp_path / "out.csv"
    done = bare(write_input(".npy", given), "-o", out, "--values", told, "--chunk-size", 77)
    assert done.exit_code == 0, done.output
    names = ("value", "revised") if told == "both" else ("value",)
    for name, found in zip(names, np.loadtxt(out, delimiter=",", skiprows=1, ndmin=2, unpack=True), strict=True):
        np.testing.assert_array_equal(found, expected.values if name == "value" else expected.revised)


@pytest.mark.parametrize("suffix", OUTPUTS)
def test_outputs_say_what_they_are_the_same_each_time(suffix, write_input, run, values, tmp_path):
    source, files = write_input(".npy", values), []
    for name in ("a", "b"):
        assert run(source, "-o", tmp_path / f"{name}{suffix}").exit_code == 0
        files.append([path.read_bytes() for path in sorted(tmp_path.glob(f"{name}.*"))])
    assert files[0] == files[1]
    publisher = SYSTEMS["adaptive"]()
    publisher.publish(values)
    facts = facts_of(tmp_path / f"a{suffix}")
    assert facts["fastdp"] == fastdp.__version__
    assert (facts["method"], facts["offset"], facts["threshold"]) == ("adaptive", 1000, publisher.threshold)
    assert Guarantee.from_dict(facts["guarantee"]) == publisher.guarantee


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
def test_an_input_that_says_its_length_is_released_whole(suffix, write_input, bare, values, tmp_path):
    out = tmp_path / "out.npz"
    done = bare(write_input(suffix, values), "-o", out, "--chunk-size", 333)
    assert done.exit_code == 0, done.output
    release = fastdp.release(values, 0.5, 200.0, seed=5)
    np.testing.assert_array_equal(columns_of(out)["value"], release.values)
    facts = facts_of(out)
    assert (facts["offset"], facts["threshold"]) == (0, release.threshold)
    assert Guarantee.from_dict(facts["guarantee"]) == release.guarantee


def test_whole_inputs_resume_and_refuse_another(write_input, bare, complaint, values, tmp_path):
    told = (write_input(".npy", values), "-o", "-", "--state", tmp_path / "state")
    first = bare(*told)
    assert first.exit_code == 0, first.output
    assert bare(*told).stdout == first.stdout
    altered = np.where(np.arange(values.size) == 17, 3.5, values)
    for other, said in (
        (np.append(values, 7.0), "expected the same command again"),
        (altered, "are not those that state file"),
    ):
        np.save(told[0], other)
        assert said in complaint(bare(*told))


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


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_length_and_rate_choose_the_holdout(bare, lines, values):
    for told, options in (([], {}), (["--every", "1h"], {"every": "1h"})):
        done = bare("-", "-o", "-", *told, "--expected-length", 4000, stdin=lines(values))
        assert done.exit_code == 0, done.output
        expected = fastdp.Adaptive(0.5, 200.0, seed=5, expected_length=4000, **options).publish(values)
        assert done.stdout == "value\n" + lines(expected)


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


@pytest.fixture
def bare() -> Callable[..., Result]:
    """The command without the small options of ``run``, with a seed."""

    def bare(*arguments: object, stdin: str | None = None, bound: bool = True) -> Result:
        given = ["release", *map(str, arguments), "--epsilon", "0.5", "--seed", "5", "--quiet"]
        return CliRunner().invoke(main, [*given, *(["--bound", "200"] if bound else [])], input=stdin)

    return bare


@pytest.mark.parametrize("suffix", INPUTS)
def test_every_kind_of_file_gives_what_the_library_publishes(
    suffix, write_input, run, read_output, values, expected, tmp_path
):
    out = tmp_path / f"out{suffix if suffix in OUTPUTS else '.npy'}"
    result = run(write_input(suffix, values), "-o", out)
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(read_output(out), expected, strict=True)


@pytest.mark.parametrize(
    "options",
    [
        {"season": 24},
        {"contributions": 2, "season": 24, "resolution": 0.125, "max_range": 999, "holdout": 500},
        {"method": "tops", "prune": 0},
        {"method": "tops", "fan_out": 4, "prune": 2, "contributions": 3, "max_range": 999, "holdout": 500},
        {"nonfinite": "zero"},
    ],
    ids=lambda options: "-".join(options),
)
def test_options_reach_the_publisher(options, write_input, run, read_output, values, publish, tmp_path):
    stream, wanted = values.copy(), values.copy()
    if "nonfinite" in options:
        stream[[3, 4000]], wanted[[3, 4000]] = np.nan, 0.0
    result = run(write_input(".npy", stream), "-o", tmp_path / "out.npy", *given(options))
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(read_output(tmp_path / "out.npy"), publish(wanted, **options), strict=True)


SYSTEMS = {
    "adaptive": partial(fastdp.Adaptive, 0.5, 200.0, 1000, 4096, seed=5),
    "tops": partial(fastdp.ToPS, 0.5, 200.0, 1000, 4096, seed=5),
    "pak": partial(fastdp.PAK, 0.5, 1 / 5000**2, 200.0, 5000, holdout=1000, seed=5),
    "topl": partial(fastdp.ToPL, 0.5, 200.0, holdout=1000, max_range=4096, seed=5),
}


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".parquet"])
@pytest.mark.parametrize("chunk_size", [7, 1000, 65_536])
@pytest.mark.parametrize("method", SYSTEMS)
def test_values_and_public_facts_of_every_method(
    method, chunk_size, suffix, write_input, run, read_output, values, tmp_path
):
    out, more = tmp_path / f"out{suffix}", ["--length", 5000] if method == "pak" else []
    result = run(write_input(suffix, values), "-o", out, "--method", method, "--chunk-size", chunk_size, *more)
    assert result.exit_code == 0, result.output
    publisher = SYSTEMS[method]()
    published = publisher.release(values).values if method == "pak" else publisher.publish(values)
    np.testing.assert_array_equal(read_output(out), published, strict=True)
    assert result.stdout == ""
    said = dict(line.split("  ", 1) for line in result.stderr.splitlines())
    said = {name: text.strip() for name, text in said.items()}
    assert said.pop("values read") == "4,321"
    assert said.pop("held out") == "1,000"
    assert said.pop("published") == f"{published.size:,}"
    assert said.pop("threshold").startswith(f"{publisher.threshold:g} ")
    assert said.pop("guarantee") == str(publisher.guarantee)
    assert "values/s" in said.pop("time")
    assert said.pop("output") == str(out)
    if method == "topl":
        assert "local model" in str(publisher.guarantee)
        error = np.sqrt(publisher.server.value_variance)
        assert said.pop("standard error").startswith(f"at most {error:.4g} for one value")
    elif method != "pak":
        now = f"{publisher.block:,}"
        block = f"follows the stream; {now} values so far" if method == "adaptive" else now
        assert said.pop("block length") == block
        assert said.pop("resolution") == f"{publisher.resolution:g}"
    assert not said or method == "pak", "nothing else is said"


@pytest.mark.parametrize("method", [*SYSTEMS, "whole"])
def test_a_picture_of_the_release_changes_no_output(method, write_input, run, bare, values, monkeypatch, tmp_path):
    """The picture is that of the library's release: same lines and interval, with the full guarantee below."""
    pytest.importorskip("matplotlib", reason="needs fastdp-streams[plot]")
    drawn, save = [], pictures.save
    monkeypatch.setattr(pictures, "save", lambda figure, path: (drawn.append(figure.axes[0]), save(figure, path)))
    source, picture = write_input(".npy", values), tmp_path / "out.png"
    call = partial(bare, source) if method == "whole" else partial(run, source, "--method", method)
    more = ["--length", 5000] if method == "pak" else []
    assert call("-o", tmp_path / "plain.csv", *more).exit_code == 0
    result = call("-o", tmp_path / "out.csv", "--plot", picture, "--chunk-size", 777, *more)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "plain.csv").read_bytes()
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert method == "whole" or result.stderr.splitlines()[-1].split() == ["picture", str(picture)]
    release = SYSTEMS[method]().release(values) if method in SYSTEMS else fastdp.release(values, 0.5, 200.0, seed=5)
    wanted, found = release.plot(), drawn[0]
    assert found.get_xlabel() == wanted.get_xlabel()
    assert str(release.guarantee) in found.get_xlabel().replace("\n", " ")
    for mine, other in zip([*found.lines, *found.collections], [*wanted.lines, *wanted.collections], strict=True):
        shown = (each.get_xydata() if each in (*found.lines, *wanted.lines) else each.get_paths()[0].vertices
                 for each in (mine, other))  # fmt: skip
        np.testing.assert_array_equal(*shown)


def test_a_picture_that_cannot_be_drawn_costs_nothing(write_input, run, complaint, values, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib", reason="needs fastdp-streams[plot]")
    told = (write_input(".npy", values), "-o", tmp_path / "out.csv", "--state", tmp_path / "state")
    (tmp_path / "there.png").write_bytes(b"precious")
    charged = ("--ledger", tmp_path / "ledger", "--limit", 10, "--stream", "s")
    for name, said in (("p.kwh", "expected a suffix among"), ("there.png", "exists already")):
        assert said in complaint(run(*told, *charged, "--plot", tmp_path / name))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install 'fastdp-streams[plot]'" in complaint(run(*told, *charged, "--plot", tmp_path / "p.png"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npy", "there.png"]
    monkeypatch.undo()
    # Run again after a crash, the command replaces its own picture.
    for _ in range(2):
        assert run(*told, "--plot", tmp_path / "p.png").exit_code == 0


def test_key_files(write_input, run, read_output, complaint, values, publish, tmp_path):
    secret = bytes(range(32))
    source, key = write_input(".npy", values), tmp_path / "key"
    told = partial(run, source, "--key-file", key, "-o", seed=None)
    wanted = publish(values, seed=None, key=secret)
    for k, content in enumerate((secret, secret.hex().encode(), secret.hex().upper().encode() + b"\n")):
        key.write_bytes(content)
        key.chmod(0o600)
        result = told(tmp_path / f"{k}.npy")
        assert result.exit_code == 0, result.output
        assert "SIMULATED" not in result.output
        np.testing.assert_array_equal(read_output(tmp_path / f"{k}.npy"), wanted)
    for mode in (0o640, 0o604, 0o620):
        key.chmod(mode)
        said = complaint(told(tmp_path / "out.npy"))
        assert "group or others have access" in said
        assert f"{mode:04o}" in said
    key.chmod(0o600)
    for wrong in (b"", b"x" * 31, b"x" * 33, b"g" * 64, b"0" * 63, b"0" * 65, b" ".join([b"00"] * 21) + b"0"):
        key.write_bytes(wrong)
        said = complaint(told(tmp_path / "out.npy"))
        assert "32 raw bytes or 64 hexadecimal digits" in said
        assert not wrong or wrong.decode() not in said
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--key-file", "k"], "exclude each other"),
        (["--prune", "much"], "neither a whole number nor 'optimal'"),
        (["--epsilon", "little"], "not a valid float"),
        (["--chunk-size", "0"], "0 is not in the range"),
        (["--seed", "-1"], "-1 is not in the range"),
        (["--nonfinite", "skip"], "not one of"),
        (["--method", "magic"], "Invalid value for '--method'"),
        (["--method", "pak"], "--method pak needs --length"),
        (["--follow"], "--follow needs IN - and -o -"),
        (["-o", "-", "--follow"], "--follow needs IN - and -o -"),
        (["--limit", "1"], "--limit needs --ledger"),
        (["--ledger-key-file", "k"], "--ledger-key-file needs --ledger"),
        (["--ledger", "budget"], "--ledger needs --stream"),
        *[
            (["--method", method, option], f"{option.partition('=')[0]} does not apply to --method {method}")
            for method, options in {
                "adaptive": ("--fan-out=16", "--prune=optimal", "--length=5000"),
                "tops": ("--season=5",),
                "pak": ("--max-range=9", "--prune=1", "--nonfinite=zero", "--every=1h"),
                "topl": ("--fan-out=16", "--prune=optimal", "--resolution=0.5"),
            }.items()
            for option in options
        ],
    ],
)
def test_usage_errors(arguments, said, write_input, run, values, tmp_path):
    result = run(write_input(".npy", values), "-o", tmp_path / "out.npy", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize(
    ("method", "ways", "zero"),
    [
        (["adaptive"], ", --expected-length, or a public --threshold", True),
        (["tops"], ", --expected-length, or a public --threshold", True),
        (["topl"], " or a public --threshold", True),
        (["pak", "--length", 9000], " or a public --threshold", False),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
@pytest.mark.parametrize("output", OUTPUTS)
def test_values_that_cannot_be_released(output, method, ways, zero, refused, write_input, values):
    told = partial(refused, output=f"out{output}")
    said = told(write_input(".csv", values[:1000]), "--method", *method)
    assert "1,000 values came, all within the hold-out of 1,000" in said
    assert said.endswith(f"expected more values, a smaller --holdout{ways}")
    # Far behind the hold-out, so that output has begun.
    stream = values.copy()
    stream[4000] = np.inf
    said = told(write_input(".npy", stream), "--chunk-size", 500, "--method", *method)
    assert "value 4,001 is missing, NaN or infinite; expected finite numbers" in said
    assert ("(or --nonfinite zero, which counts such values as 0)" in said) == zero


def test_outputs_that_are_there_need_force(write_input, run, read_output, complaint, values, expected, tmp_path):
    source, out = write_input(".npy", values), tmp_path / "out.csv"
    beside = tmp_path / "out.csv.json"
    for path in (out, beside):
        path.write_bytes(b"precious")
        assert f"{path.name}: exists already; expected a new name, or --force" in complaint(run(source, "-o", out))
        assert path.read_bytes() == b"precious"
        assert run(source, "-o", out, "--force").exit_code == 0
        np.testing.assert_array_equal(read_output(out), expected)
        out.unlink()
        if path is out:
            beside.unlink()
    assert json.loads(beside.read_text())["offset"] == 1000
    said = complaint(run(source, "-o", tmp_path / "s.csv", "--state", tmp_path / "s.csv.json"))
    assert "expected another file" in said
    # Before anything is charged.
    (tmp_path / "o.csv.json").write_bytes(b"precious")
    charged = ("--ledger", tmp_path / "ledger", "--limit", 10, "--stream", "s")
    assert "o.csv.json: exists already" in complaint(run(source, "-o", tmp_path / "o.csv", *charged))
    ledger = tmp_path / "ledger"
    assert not ledger.exists() or not fastdp.Ledger(ledger).entries()


def test_whole_inputs_name_their_bad_values_and_empty_ones(write_input, bare, values, tmp_path):
    holes = np.where(np.arange(values.size) == 2500, np.nan, values)
    done = bare(write_input(".npy", holes), "-o", tmp_path / "out.csv")
    assert "value 2,501 is missing, NaN or infinite" in done.stderr
    assert bare(write_input(".npy", holes), "-o", tmp_path / "out.csv", "--nonfinite", "zero").exit_code == 0
    assert "empty, holds no values" in bare(write_input(".npy", values[:0]), "-o", tmp_path / "no.csv").stderr
    unused = bare(write_input(".npy", values), "-o", tmp_path / "no.csv", "--every", "5x")
    assert "--every chooses a hold-out, and IN says how many values it holds" in unused.stderr
    short = bare(write_input(".csv", values), "-o", tmp_path / "short.csv")
    assert "smaller --holdout, --expected-length, or a public --threshold" in short.stderr


@pytest.mark.parametrize("text", ["1\r\n2\r\n3", "1\n\n3\n", '"1"\n2\n3\n', "\ufeffx\n1\n2\n3\n", "1\n2\n3\n\n\n"])
def test_followed_text_is_read_as_any_other(text, run):
    told = ("-", "-o", "-", "--threshold", 50, "--holdout", 0, "--nonfinite", "zero")
    live, plain = (run(*told, *more, stdin=text.encode()) for more in (["--follow"], []))
    assert plain.exit_code == 0, plain.output
    assert live.stdout == plain.stdout
    for more, said in (
        (["--state", "s"], "exclude each other"),
        (["--values", "both"], "expected --values published"),
        (["--plot", "p.png"], "a picture needs the end of the input"),
    ):
        assert said in run(*told, "--follow", *more, stdin=text.encode()).stderr
