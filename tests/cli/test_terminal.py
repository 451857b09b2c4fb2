"""A person's terminal: signals, pipes, progress, and the commands that are no signature."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fastdp
import fastdp_lab
from fastdp.cli import main
from fastdp.cli.compile_command import SYSTEMS, first_calls
from fastdp.streams import METHODS
from fastdp_kernels.local import local_reports
from fastdp_kernels.noise import binary_counter
from fastdp_kernels.points import cell_codes
from fastdp_kernels.streams import adaptive_pass, fixed_pass
from fastdp_kernels.tables import window_sums
from fastdp_lab.datasets import dns_like_day
from fastdp_lab.sweeps import SPATIAL_GENERATORS
from tests.shared import python, run_python

FOLLOW = "release - -o - --follow --threshold 50 --epsilon 1 --bound 100 --max-range 64 --seed 5 --quiet"


def type_in(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def test_version() -> None:
    assert type_in("--version").output.strip() == f"fastdp, version {fastdp.__version__}"


def started(line: str, **streams: Any) -> subprocess.Popen[bytes]:
    """A command in a process of its own, which Ctrl-C reaches."""
    # A shell starts background jobs with SIGINT ignored, and a child inherits that; a handler is reset in it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(**python("-m", "fastdp", *line.split()), **streams)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_live_pipe_is_answered_at_once() -> None:
    """Each answer is read before the next value is sent: a reader or writer that waited would hang."""
    expected = fastdp.Adaptive(1.0, 100.0, threshold=50.0, max_range=64, seed=5).publish(np.arange(5.0))
    with started(FOLLOW, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("line", [FOLLOW, "release - -o out.csv --epsilon 1 --bound 100 --state S"])
def test_interrupted(line: str, number: int, code: int, folder: Path) -> None:
    """A stream that is cut off by Ctrl-C or a polite kill leaves neither a part of a file nor a traceback."""
    before = sorted(folder.iterdir())
    with started(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"1\n2\n")
        process.stdin.flush()
        if "--follow" in line:
            process.stdout.readline()
        # Once the pipe is empty the command waits for more.
        while struct.unpack("i", fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)))[0]:
            time.sleep(0.1)
        time.sleep(0.5)
        process.send_signal(number)
        assert process.wait(300) == code
        said = process.stderr.read()
        process.stdin.close()
    assert b"Traceback" not in said
    assert sorted(folder.iterdir()) == before


def test_the_reader_of_standard_output_goes_away(folder: Path) -> None:
    np.save("long.npy", np.arange(200_000.0) % 90)
    line = "release long.npy -o - --epsilon 1 --bound 100 --threshold 50 --quiet"
    with started(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"value\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(300) == 141


def on_terminal(*command: object) -> tuple[str, int]:
    """Standard error of a command at a terminal, and its exit code."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    process = subprocess.Popen(**python(*command), stdout=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    said = b""
    # The end of the terminal is an error on Linux.
    with contextlib.suppress(OSError):
        while block := os.read(leader, 10_000):
            said += block
    os.close(leader)
    return said.decode(), process.wait(300)


def test_only_a_terminal_has_progress_and_is_told_of_compiling(folder: Path) -> None:
    line = "-m fastdp synthesize events.csv -o out.csv --epsilon 1 --box 0 0 10 5 --batch 100 --seed 1"
    said, code = on_terminal(*line.split())
    assert code == 0
    assert "events.csv: " in said
    assert "/2" in said
    assert "in 6 batches" in said
    piped = run_python(*line.split(), "--force").stderr
    assert "/2" not in piped
    assert on_terminal(*line.split(), "--force", "--quiet") == ("", 0)
    code_of = (
        "import sys; from fastdp.cli import main; import fastdp_kernels\n"
        "main(['ledger', '--help'], standalone_mode=False); said = fastdp_kernels.on_compile\n"
        "said and said('online_pass', '/cache')"
    )
    assert "once on this machine" in on_terminal("-c", code_of)[0]
    assert run_python("-c", code_of).stderr == ""


@pytest.mark.filterwarnings("always::fastdp.errors.AccuracyWarning")
def test_warnings_are_lines(run: Callable[..., Result]) -> None:
    pipe = "\n".join(["9"] * 300) + "\n"
    said = run("release - -o - --epsilon 1 --bound 100 --threshold 2 --quiet --seed 1", stdin=pipe).stderr
    assert said.startswith("Warning: --threshold: 2 is far below the values")
    assert said.count("\n") == 1


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("size", [1, 300, 22_000])
def test_a_finite_pipe_is_a_finite_array(size: int, run: Callable[..., Result]) -> None:
    values = np.random.default_rng(size).gamma(2.0, 20.0, size).round(1)
    text = "".join(f"{value}\n" for value in values.tolist())
    Path("log.csv").write_text(f"load\n{text}")
    expected = fastdp.release(values, 0.05, 1657.0, seed=1).values
    for source, stdin in (("-", text), ("log.csv", None)):
        run(f"release {source} -o out.npy --epsilon 0.05 --bound 1657 --seed 1 --force --quiet", stdin=stdin)
        assert np.array_equal(np.load("out.npy"), expected)


# Commands that are no signature: compile, demo; and those of the laboratory.


@pytest.mark.slow
def test_what_is_compiled_is_found_afterwards(tmp_path):
    told, folder = ("-m", "fastdp", "compile", "pak"), {"NUMBA_CACHE_DIR": str(tmp_path)}
    first, second = (run_python(*told, check=True, **folder).stdout for _ in range(2))
    assert f"Kept in {tmp_path}" in first
    assert list(tmp_path.rglob("*.nbc"))
    assert second.split()[:4] == ["pak", "0", "kernels", "compiled,"]


#: Kernels that each system cannot do without, and that no other kernel calls; of another method, its release is seen.
NEEDED = {
    "adaptive": (adaptive_pass, "advance_rows"),
    "tops": (fixed_pass, "publish_rows"),
    "pak": (binary_counter, "count_on"),
    "topl": (local_reports, "draw_window"),
    "phdstream": (cell_codes, "encode_points"),
    "totals": (window_sums, "add_values"),
    "fleet": (adaptive_pass, "advance_rows"),
}


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_calls_its_kernels(system, monkeypatch):
    module, name = NEEDED.get(system) or (getattr(fastdp, METHODS[system]), "release")
    kernel, calls = getattr(module, name), []
    monkeypatch.setattr(module, name, lambda *arguments: calls.append(system) or kernel(*arguments))
    first_calls()[system]()
    assert calls


pytest.importorskip("pyarrow", reason="sweeps write Parquet")

SPECIFICATION = """
name = "tiny"
epsilons = [0.5, 2.0]
repetitions = 3
holdout = 300
max_range = 1024

[[datasets]]
name = "POS"
generator = "table1"
stream = "pos"
n = 1500

[[mechanisms]]
name = "ToPS"
system = "tops"
prune = [0, 1]
"""


@pytest.fixture
def specification(tmp_path) -> Path:
    path = tmp_path / "spec.toml"
    path.write_text(SPECIFICATION)
    return path


def test_sweep_and_plot(specification, tmp_path) -> None:
    out = tmp_path / "out"
    said = type_in("bench", specification, "-o", out, "--workers", 2)
    assert said.exit_code == 0, said.output
    assert "cells    12" in said.stdout
    assert "failed   0" in said.stdout
    assert (out / "results.parquet").exists()
    again = type_in("bench", specification, "-o", out)
    assert again.exit_code == 0, again.output
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    drawn = type_in("plot", out, "--format", "png")
    assert drawn.exit_code == 0, drawn.output
    assert {Path(path).name for path in drawn.stdout.split()} >= {"mse.png", "mae.png", "threshold.png"}


def _complaint(result: Result) -> str:
    assert result.exit_code == 1, result.output
    return result.stderr.strip().removeprefix("Error: ")


def test_dry_run(specification, tmp_path) -> None:
    said = type_in("bench", specification, "--dry-run", "--repetitions", 100)
    assert said.exit_code == 0, said.output
    assert said.stdout.split() == ["cells", "400"]
    assert [each.name for each in tmp_path.iterdir()] == ["spec.toml"]


def test_complaints(specification, tmp_path) -> None:
    assert "Missing option" in type_in("bench", specification).stderr
    specification.write_text(SPECIFICATION.replace("[0, 1]", "9"))
    said = _complaint(type_in("bench", specification, "-o", tmp_path / "out"))
    assert said.startswith("mechanisms[0].prune = 9: expected less than the 3 levels")
    assert not (tmp_path / "out").exists()
    assert "No such file" in _complaint(type_in("bench", tmp_path / "no.toml", "-o", tmp_path / "out"))
    assert "no manifest.json there" in _complaint(type_in("plot", tmp_path))


def test_datasets_are_listed_with_terms_and_sources(tmp_path) -> None:
    said = type_in("datasets", "-o", tmp_path).stdout
    for word in ("kosarak (not here)", "licence", "41,270", "http://fimi.uantwerpen.be", 'stream = "fare"'):
        assert word in said
    assert {*SPATIAL_GENERATORS} <= {*said.split()}
    (tmp_path / "BMS-POS.csv").write_text("1,2,\n3,\n")
    assert "pos (here)" in type_in("datasets", "-o", tmp_path).stdout
    found = type_in("datasets", "--download", "pos", "-o", tmp_path)
    assert f"{tmp_path / 'BMS-POS.csv'}, values: 2 values, mean 1.5, largest 2" in found.stdout


def run_demo(*arguments: object) -> Result:
    return type_in("demo", *arguments)


def test_the_demo_prints_errors_and_draws(tmp_path):
    pytest.importorskip("matplotlib")
    result = run_demo("-o", tmp_path / "demo.png", "--epsilon", 1, "--seed", 4)
    assert result.exit_code == 0, result.output
    values, held = dns_like_day().astype(float), 65_536
    release = fastdp.release(values, 1.0, 2000, seed=4)
    paper = fastdp.ToPS(1.0, 2000, held, 2**20, seed=4).release(values)
    for said in (
        "1,114,112, all released; ToPS holds out the first 65,536",
        f"{release.threshold:g} (public bound 2000)",
        str(release.guarantee),
    ):
        assert said in result.stdout
    generator = np.random.default_rng(1)
    lengths = generator.integers(1, 2**20, 200, endpoint=True)
    starts = generator.integers(held, values.size + 1 - lengths)
    queries = starts, starts + lengths
    edges = np.linspace(held, values.size, 121).astype(int)  # 120 stretches, as drawn
    before = np.insert(np.cumsum(values), 0, 0.0)

    def error(answer, starts, stops):
        return fastdp_lab.queries.mse(before[stops] - before[starts], answer(starts, stops)) ** 0.5

    answers = {
        "release": release.sum,
        "ToPS": lambda starts, stops: paper.sum(starts - held, stops - held),
        "zeros": lambda starts, stops: np.zeros(starts.size),
    }
    sizes = [error(answers["zeros"], *at) for at in (queries, (edges[:-1], edges[1:]))]
    for name, answer in answers.items():
        coarse, fine = error(answer, *queries), error(answer, edges[:-1], edges[1:])
        shares = [re.escape(f"{part / size:.3%}") for part, size in zip((coarse, fine), sizes, strict=True)]
        line = rf"^{name} +{coarse:,.0f} +{shares[0]} of the true sums +{shares[1]} of the means"
        assert re.search(line, result.stdout, re.M), name
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_noise_of_the_demo_is_fresh_by_default():
    outputs = [run_demo("--no-picture").stdout for _ in range(2)]
    assert not any("SIMULATED" in output for output in outputs)
    # One of the numbers may be the same by chance, not all nine.
    errors = {tuple(re.findall(r"^(?:release|ToPS) .*$", output, re.M)) for output in outputs}
    assert {len(lines) for lines in errors} == {2}
    assert len(errors) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--epsilon", -1, "--no-picture"], "--epsilon -1.0: expected a number above 0"),
        (["-o", "demo.csv"], "--output 'demo.csv': expected a suffix among"),
        (["-o", "no/demo.png"], "output no/demo.png: there is no folder"),
    ],
)
def test_the_demo_refuses(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run_demo(*arguments)
    assert result.exit_code == 1
    assert said in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def without(monkeypatch):
    """Imports of a package fail, although it was imported."""

    def without(missing: str, *users: str) -> None:
        for name in [name for name in sys.modules if name.startswith((missing, *users))]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, missing, None)

    return without


def test_missing_libraries_are_named_with_their_extra(without, specification, tmp_path):
    out, told = tmp_path / "out", ("bench", specification, "-o", tmp_path / "out")
    assert type_in(*told).exit_code == 0
    without("matplotlib")
    drawn = run_demo("-o", tmp_path / "demo.png")
    assert drawn.exit_code == 0, drawn.output
    assert "pip install 'fastdp-streams[plot]'" in drawn.stdout
    assert not (tmp_path / "demo.png").exists()
    assert "pip install 'fastdp-streams[lab]'" in _complaint(type_in("plot", out))
    line = f"release no.npy -o {out}.csv --epsilon 1 --bound 9 --plot {out}.png"
    assert "pip install 'fastdp-streams[plot]'" in _complaint(type_in(*line.split()))
    without("distributed")
    assert "pip install 'fastdp-streams[lab]'" in _complaint(type_in(*told, "--scheduler", "tcp://x:1"))
    without("narwhals")
    left_out = type_in("compile", "totals").output.split(maxsplit=1)[1]
    assert left_out == "left out; it needs: pip install 'fastdp-streams[tables]'\n"
