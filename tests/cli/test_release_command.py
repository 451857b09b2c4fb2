from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import fastdp
from tests.shared import python, run_python

INPUTS = (".csv", ".csv.gz", ".txt", ".txt.gz", ".npy", ".npz", ".parquet")
OUTPUTS = (".csv", ".csv.gz", ".npy", ".npz", ".parquet")


def given(options: dict[str, object]) -> list[str]:
    """Keyword arguments as the command takes them."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


@pytest.mark.parametrize("suffix", INPUTS)
def test_every_input_gives_what_the_library_publishes(
    suffix, write_input, run, read_output, values, expected, tmp_path
):
    result = run(write_input(suffix, values), "-o", tmp_path / "out.npy")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(read_output(tmp_path / "out.npy"), expected, strict=True)


@pytest.mark.parametrize("suffix", OUTPUTS)
@pytest.mark.parametrize(
    "options", [{}, {"season": 24}, {"method": "tops", "prune": 0}], ids=["adaptive", "season", "tops"]
)
def test_every_output_holds_the_same_floats(
    suffix, options, write_input, run, read_output, values, publish, tmp_path
):
    result = run(write_input(".npy", values), "-o", tmp_path / f"out{suffix}", *given(options))
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(read_output(tmp_path / f"out{suffix}"), publish(values, **options), strict=True)


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".npz", ".parquet"])
def test_chunk_size_changes_nothing(suffix, write_input, run, values, tmp_path):
    source, files = write_input(suffix, values), []
    for size in (1, 7, 1000, 1001, 100_000):
        target = tmp_path / f"out{size}{suffix}"
        assert run(source, "-o", target, "--chunk-size", size).exit_code == 0
        files.append(target.read_bytes())
    assert len(set(files)) == 1


@pytest.mark.parametrize(
    "options",
    [{"contributions": 2, "season": 24}, {"method": "tops", "fan_out": 4, "prune": 2, "contributions": 3}],
    ids=["adaptive", "tops"],
)
def test_options_reach_the_publisher(options, write_input, run, read_output, values, publish, tmp_path):
    options = {**options, "resolution": 0.125, "max_range": 999, "holdout": 500}
    assert run(write_input(".npy", values), "-o", tmp_path / "out.npy", *given(options)).exit_code == 0
    np.testing.assert_array_equal(read_output(tmp_path / "out.npy"), publish(values, **options))


def test_counts_of_events_need_no_bound(write_input, command, read_output, values, tmp_path):
    source, common = write_input(".npy", values), ["--epsilon", "0.5", "--seed", "1", "--quiet"]
    outputs = [tmp_path / "out.npy", tmp_path / "again.npy"]
    for out, more in zip(outputs, ([], ["--state", tmp_path / "state"]), strict=True):
        done = command("release", source, "-o", out, "--sensitivity", "2", "--contributions", "3", *more, *common)
        assert done.returncode == 0, done.stderr
    expected = fastdp.Adaptive(0.5, sensitivity=2.0, contributions=3, seed=1).publish(values)
    for out in outputs:
        np.testing.assert_array_equal(read_output(out), expected)
    for wrong in ([], ["--bound", "9", "--sensitivity", "1"]):
        done = command("release", source, "-o", tmp_path / "no.npy", *wrong, *common)
        assert b"Expected either --bound, or for counts of events --sensitivity" in done.stderr


def test_a_real_pipe(command, small_arguments, values, expected, lines):
    done = command("release", "-", "-o", "-", *small_arguments, input=lines(values).encode())
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == "value\n" + lines(expected)
    assert b"published" in done.stderr
    assert b"\r" not in done.stderr, "no progress bar where nobody watches"


@pytest.mark.parametrize("method", ["adaptive", "tops"])
def test_summary_says_public_facts_only(method, write_input, run, values, tmp_path):
    result = run(write_input(".npy", values), "-o", tmp_path / "out.npy", "--method", method)
    said = dict(line.split("  ", 1) for line in result.stderr.splitlines())
    said = {name: text.strip() for name, text in said.items()}
    system = {"adaptive": fastdp.Adaptive, "tops": fastdp.ToPS}[method]
    publisher = system(0.5, 200.0, 1000, 4096, seed=5)
    published = publisher.publish(values)
    assert result.stdout == ""
    assert said.pop("values read") == "4,321"
    assert said.pop("held out") == "1,000"
    assert said.pop("published") == f"{published.size:,}"
    assert said.pop("threshold").startswith(f"{publisher.threshold:g} ")
    assert said.pop("guarantee") == str(publisher.guarantee)
    now = f"{publisher.block:,}"
    wanted = {"adaptive": f"follows the stream; {now} values so far", "tops": now}
    assert said.pop("block length") == wanted[method]
    assert said.pop("resolution") == f"{publisher.resolution:g}"
    assert "values/s" in said.pop("time")
    assert said.pop("output") == str(tmp_path / "out.npy")
    assert not said, "nothing else is said"


@pytest.mark.filterwarnings("default::fastdp.errors.AccuracyWarning")
def test_a_short_holdout_is_said_in_one_line(write_input, run, values, tmp_path):
    result = run(write_input(".npy", values), "-o", tmp_path / "out.npy", "--holdout", 20, "--quiet")
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: holdout: 18 values are too few to choose a threshold")
    assert result.stderr.count("\n") == 1


# Keys.


def test_key_file_raw_and_hexadecimal(write_input, run, read_output, values, publish, tmp_path):
    secret = bytes(range(32))
    wanted = publish(values, seed=None, key=secret)
    source, key = write_input(".npy", values), tmp_path / "key"
    for k, content in enumerate((secret, secret.hex().encode(), secret.hex().upper().encode() + b"\n")):
        key.write_bytes(content)
        key.chmod(0o600)
        result = run(source, "-o", tmp_path / f"{k}.npy", "--key-file", key, seed=None)
        assert result.exit_code == 0, result.output
        assert "SIMULATED" not in result.output
        np.testing.assert_array_equal(read_output(tmp_path / f"{k}.npy"), wanted)


@pytest.mark.parametrize(
    "content", [b"", b"x" * 31, b"x" * 33, b"g" * 64, b"0" * 63, b"0" * 65, b" ".join([b"00"] * 21) + b"0"]
)
def test_a_wrong_key_is_refused_unseen(content, write_input, run, complaint, values, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(content)
    key.chmod(0o600)
    said = complaint(run(write_input(".npy", values), "-o", tmp_path / "out.npy", "--key-file", key, seed=None))
    assert "32 raw bytes or 64 hexadecimal digits" in said
    assert not content or content.decode() not in said
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_key_open_to_others_is_refused(mode, write_input, run, complaint, values, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(mode)
    said = complaint(run(write_input(".npy", values), "-o", tmp_path / "out.npy", "--key-file", key, seed=None))
    assert "group or others have access" in said
    assert f"{mode:04o}" in said


# Usage errors: exit code 2, as click does.


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
    ],
)
def test_usage_errors(arguments, said, write_input, run, values, tmp_path):
    result = run(write_input(".npy", values), "-o", tmp_path / "out.npy", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


# Everything else that goes wrong: one line, exit code 1, nothing left behind.


@pytest.fixture
def refused(run, complaint, tmp_path):
    """Run with a fresh output, then over an existing one: both say the same and leave all as it was."""

    def refused(source: object, *arguments: object, output: str = "out.csv", stdin: str | None = None) -> str:
        folder = tmp_path / "results"
        folder.mkdir()
        said = complaint(run(source, "-o", folder / output, *arguments, stdin=stdin))
        assert list(folder.iterdir()) == []
        (folder / output).write_bytes(b"precious")
        assert complaint(run(source, "-o", folder / output, *arguments, "--force", stdin=stdin)) == said
        assert [path.name for path in folder.iterdir()] == [output]
        assert (folder / output).read_bytes() == b"precious"
        return said

    return refused


def test_inputs_and_outputs_of_another_kind(refused, run, complaint, write_input, values, tmp_path):
    source, folder = write_input(".npy", values), tmp_path / "folder.npy"
    (tmp_path / "in.xlsx").touch()
    folder.mkdir()
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
    ):
        assert said in complaint(run(source, "-o", out, "--force"))
    assert "epsilon = -1.0: expected a number above 0" in refused(source, "--epsilon", "-1")


@pytest.mark.parametrize("output", ["out.csv", "out.csv.gz", "out.npy", "out.npz", "out.parquet"])
def test_ends_within_the_holdout(output, refused, write_input, values):
    said = refused(write_input(".csv", values[:1000]), output=output)
    assert "1,000 values came, all within the hold-out of 1,000" in said
    assert "smaller --holdout" in said


@pytest.mark.parametrize("output", ["out.csv", "out.csv.gz", "out.npy", "out.npz", "out.parquet"])
def test_nonfinite_values(output, refused, write_input, values):
    # Far behind the hold-out, so that output has begun.
    stream = values.copy()
    stream[4000] = np.inf
    said = refused(write_input(".npy", stream), "--chunk-size", 500, output=output)
    assert "value 4,001 is missing, NaN or infinite" in said
    assert "--nonfinite zero" in said


def test_nonfinite_zero(write_input, run, read_output, values, publish, tmp_path):
    stream, zeros = values.copy(), values.copy()
    stream[[3, 4000]], zeros[[3, 4000]] = np.nan, 0.0
    assert run(write_input(".npy", stream), "-o", tmp_path / "o.npy", "--nonfinite", "zero").exit_code == 0
    np.testing.assert_array_equal(read_output(tmp_path / "o.npy"), publish(zeros, nonfinite="zero"))


def test_existing_output_needs_force(write_input, run, read_output, complaint, values, expected, tmp_path):
    source, out = write_input(".npy", values), tmp_path / "out.npy"
    out.write_bytes(b"precious")
    assert "exists already; expected a new name, or --force" in complaint(run(source, "-o", out))
    assert out.read_bytes() == b"precious"
    assert run(source, "-o", out, "--force").exit_code == 0
    np.testing.assert_array_equal(read_output(out), expected)


def test_output_that_appears_meanwhile_is_kept(write_input, run, complaint, values, monkeypatch, tmp_path):
    source, out = write_input(".npy", values), tmp_path / "out.npy"
    publish = fastdp.Adaptive.publish

    def slow_publish(self, chunk):
        out.write_bytes(b"precious")
        return publish(self, chunk)

    monkeypatch.setattr(fastdp.Adaptive, "publish", slow_publish)
    assert "exists already" in complaint(run(source, "-o", out))
    assert out.read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npy", "out.npy"]


def test_output_folder_that_cannot_be_written(write_input, run, complaint, values, monkeypatch, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    source = write_input(".npy", values)
    if os.geteuid() == 0:
        # The superuser writes anywhere; say for it what the system would say for others.
        real = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder and real(path, mode))
    else:
        folder.chmod(0o500)
    said = complaint(run(source, "-o", folder / "out.npy"))
    assert said == f"output {folder / 'out.npy'}: no permission to write in {folder}"
    assert list(folder.iterdir()) == []


def test_a_disk_that_fails(write_input, run, complaint, values, monkeypatch, tmp_path):
    def fsync(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    out = tmp_path / "out.npy"
    assert complaint(run(write_input(".npy", values), "-o", out)) == f"{out}.json: No space left on device"
    assert [path.name for path in tmp_path.iterdir()] == ["in.npy"]


def _size(folder: Path) -> int:
    """Bytes in a folder's files; 0 while one of them is replaced."""
    try:
        return sum(path.stat().st_size for path in folder.iterdir())
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(number, values, lines, small_arguments, tmp_path):
    """A stream cut off by Ctrl-C or a polite kill leaves neither output nor temporary file."""
    told = ("release", "-", "-o", tmp_path / "out.csv", *small_arguments, "--chunk-size", 500)
    # A shell starts background jobs with SIGINT ignored, and a child inherits that; a handler is reset in it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(**python("-m", "fastdp", *told), stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stdin is not None
    assert process.stderr is not None
    try:
        process.stdin.write(lines(values).encode())
        process.stdin.flush()
        # The temporary file is filled when kernels have loaded; then the command waits for more of the stream.
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
    assert process.returncode == (1 if number == signal.SIGINT else 128 + signal.SIGTERM)
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_the_reader_of_standard_output_goes_away(small_arguments, values, lines, tmp_path):
    source = tmp_path / "in.csv"
    source.write_text(lines(np.tile(values, 50)))
    told = python("-m", "fastdp", "release", source, "-o", "-", "--chunk-size", 100, *small_arguments)
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


# Running sums.


def pak(**options):
    return fastdp.PAK(0.5, 1 / 5000**2, 200.0, 5000, holdout=1000, **({"seed": 5} | options))


@pytest.mark.parametrize("chunk_size", [7, 999, 1000, 1001, 65_536])
def test_running_sums_give_what_the_library_releases(chunk_size, write_input, run, read_output, values, tmp_path):
    told = ("--method", "pak", "--length", 5000, "--chunk-size", chunk_size)
    result = run(write_input(".npy", values), "-o", tmp_path / "out.npy", *told)
    assert result.exit_code == 0, result.output
    released = pak().release(values)
    np.testing.assert_array_equal(read_output(tmp_path / "out.npy"), released.values, strict=True)
    said = {name: text.strip() for name, text in (line.split("  ", 1) for line in result.stderr.splitlines())}
    assert said["guarantee"] == str(released.guarantee)
    assert said["published"] == "3,321"
    assert "block length" not in said


def test_running_sums_need_a_length(write_input, run, complaint, values, tmp_path):
    source = write_input(".npy", values)
    result = run(source, "-o", tmp_path / "out.npy", "--method", "pak")
    assert result.exit_code == 2
    assert "--method pak needs --length" in result.stderr
    said = complaint(run(source, "-o", tmp_path / "out.npy", "--method", "pak", "--length", 4000))
    assert "expected at most 4000" in said
    assert not (tmp_path / "out.npy").exists()


# The local model.


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".parquet"])
@pytest.mark.parametrize("chunk_size", [7, 65_536])
def test_the_local_model_gives_what_the_library_gives(
    suffix, chunk_size, write_input, run, read_output, values, simulate, tmp_path
):
    out = tmp_path / f"out{suffix}"
    result = run(write_input(suffix, values), "-o", out, "--method", "topl", "--chunk-size", chunk_size)
    assert result.exit_code == 0, result.output
    simulation = simulate()
    np.testing.assert_array_equal(read_output(out), simulation.publish(values), strict=True)
    said = dict(line.split("  ", 1) for line in result.stderr.splitlines())
    said = {name: text.strip() for name, text in said.items()}
    assert said.pop("threshold").startswith(f"{simulation.threshold:g} ")
    assert said.pop("guarantee") == str(simulation.guarantee)
    assert "local model" in str(simulation.guarantee)
    error = np.sqrt(simulation.server.value_variance)
    assert said.pop("standard error").startswith(f"at most {error:.4g} for one value")
    assert set(said) == {"values read", "held out", "published", "time", "output"}


@pytest.mark.parametrize(
    ("method", "option"),
    [
        ("adaptive", "--fan-out=16"),
        ("adaptive", "--prune=optimal"),
        ("adaptive", "--length=5000"),
        ("pak", "--max-range=9"),
        ("pak", "--prune=1"),
        ("pak", "--nonfinite=zero"),
        ("topl", "--fan-out=16"),
        ("topl", "--prune=optimal"),
        ("topl", "--resolution=0.5"),
    ],
)
def test_options_of_another_method_are_refused(method, option, write_input, run, values, tmp_path):
    result = run(write_input(".npy", values), "-o", tmp_path / "out.npy", "--method", method, option)
    assert result.exit_code == 2
    assert f"{option.partition('=')[0]} does not apply to --method {method}" in result.stderr
    assert not (tmp_path / "out.npy").exists()


def test_the_local_model_has_a_way_out_for_missing_values(refused, write_input, values):
    stream = values.copy()
    stream[4000] = np.nan
    said = "value 4,001 is missing, NaN or infinite; expected finite numbers"
    told = refused(write_input(".npy", stream), "--method", "topl", "--chunk-size", 500)
    assert told.endswith(f"{said} (or --nonfinite zero, which counts such values as 0)")


@pytest.mark.parametrize(
    ("method", "ways"),
    [
        (["adaptive"], ", --expected-length, or a public --threshold"),
        (["tops"], ", --expected-length, or a public --threshold"),
        (["topl"], " or a public --threshold"),
        (["pak", "--length", 9000], " or a public --threshold"),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
def test_within_the_holdout_options_of_the_method_are_named(method, ways, refused, write_input, values):
    said = refused(write_input(".npy", values[:1000]), "--method", *method)
    assert "all within the hold-out of 1,000" in said
    assert said.endswith(f"expected more values, a smaller --holdout{ways}")
