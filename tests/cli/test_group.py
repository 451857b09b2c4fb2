"""The group of commands, and ``compile``, ``demo``, ``sweep``, ``plot`` and ``datasets`` as typed."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import fastdp
import fastdp.cli
import fastdp_lab
from fastdp.cli import COMMANDS, demo_command, main
from fastdp.cli.compile_command import SYSTEMS, first_calls
from fastdp.streams import METHODS
from fastdp_kernels.local import local_reports
from fastdp_kernels.noise import binary_counter
from fastdp_kernels.points import cell_codes
from fastdp_kernels.streams import adaptive_pass, online_pass
from fastdp_kernels.tables import window_sums
from fastdp_lab.datasets import dns_like_day
from fastdp_lab.sweeps import SPATIAL_GENERATORS
from tests.shared import run_python


def test_version():
    assert type_in("--version").output.strip() == f"fastdp, version {fastdp.__version__}"


def test_the_list_of_commands_says_what_each_command_says():
    context = click.Context(main)
    for name, (_, sentence) in COMMANDS.items():
        assert main.get_command(context, name).help.partition("\n\n")[0] == sentence
    assert "fastdp release trips.parquet --column fare" in type_in("--help").output
    said = " ".join(type_in("release", "--help").output.split())
    assert "For simulation only" in said
    assert "NOT PRIVATE" in said


def test_options_from_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", np.arange(2000.0) % 7)
    Path("fastdp.toml").write_text("""
[release]
output = "out.npy"
epsilon = 2
bound = 9
threshold = 5.0
max-range = 4096
quiet = true
[ledger.limit]
epsilon = "none"
[synthesize]
box = [0, 0, 1, 1]
""")
    released = type_in("--config", "fastdp.toml", "release", "in.npy", "--bound", 8, "--seed", 3)
    assert released.exit_code == 0, released.output
    own = fastdp.Adaptive(2.0, 8.0, max_range=4096, threshold=5.0, seed=3).publish(np.arange(2000.0) % 7)
    assert np.array_equal(np.load("out.npy"), own), "the command line comes first"
    assert "of its own: none" in type_in("--config", "fastdp.toml", "ledger", "limit", "budget").output
    told = ["release", "in.npy", "--method", "tops", "--sensitivity", 1]
    for content, said in (
        ("[release]\nepsilonn = 2", "epsilonn: expected an option without --, as --help lists them"),
        ("[realease]\nepsilon = 2", "realease: expected a table named as a command"),
        ("epsilon = 2", "epsilon: expected a table named as a command"),
        ("[release", "fastdp.toml: "),
        ("[release]\nepsilon = 'x'", "'x' is not a valid float"),
        ("[release]\nepsilon = true", "epsilon: expected a number, a text or a list of them"),
        ("[release]\nmax-range = [1, 2]", "'1,2' is not a valid integer"),
        ("[release]\nquiet = 1", "quiet: expected true or false"),
        ("[release]\nholdout = 1.5", "'1.5' is not a valid integer"),
        ("[release]\ndelta = 1e-6", "--delta does not apply to --method tops"),
    ):
        Path("fastdp.toml").write_text(content)
        refused = type_in(
            "--config", "fastdp.toml", *told, "-o", "x.npy", "--epsilon" if "'x'" not in content else "--bound", 1
        )
        assert refused.exit_code == 2, refused.output
        assert said in refused.stderr
        assert not Path("x.npy").exists()


@pytest.mark.slow
def test_what_is_compiled_is_found_afterwards(tmp_path):
    told, folder = ("-m", "fastdp", "compile", "pak"), {"NUMBA_CACHE_DIR": str(tmp_path)}
    first, second = (run_python(*told, check=True, **folder).stdout for _ in range(2))
    assert f"Kept in {tmp_path}" in first
    assert list(tmp_path.rglob("*.nbc"))
    assert second.split()[:4] == ["pak", "0", "kernels", "compiled,"]


#: Kernels that each system cannot do without, and that no other kernel calls; of another method, its release is seen.
NEEDED = {
    "adaptive": (adaptive_pass, "sum_bound"),
    "tops": (online_pass, "publish"),
    "pak": (binary_counter, "count_on"),
    "topl": (local_reports, "draw_window"),
    "phdstream": (cell_codes, "encode_points"),
    "totals": (window_sums, "add_values"),
    "fleet": (adaptive_pass, "publish_rows"),
}


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_calls_its_kernels(system, monkeypatch):
    module, name = NEEDED.get(system) or (getattr(fastdp, METHODS[system]), "release")
    kernel, calls = getattr(module, name), []
    monkeypatch.setattr(module, name, lambda *arguments: calls.append(system) or kernel(*arguments))
    first_calls()[system]()
    assert calls


def test_only_a_terminal_is_told():
    code = (
        "import sys; from fastdp.cli import main; import fastdp_kernels\n"
        "main(['ledger', '--help'], standalone_mode=False); said = fastdp_kernels.on_compile\n"
        "said and said('online_pass', '/cache'); print(said is not None)"
    )
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert piped.stdout.split()[-1] == "False"
    leader, follower = pty.openpty()
    try:
        on_terminal = subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=follower, check=True
        )
        assert b"once on this machine" in os.read(leader, 10_000)
    finally:
        os.close(follower)
        os.close(leader)
    assert on_terminal.stdout.split()[-1] == b"True"


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
    said = type_in("sweep", specification, "-o", out, "--workers", 2)
    assert said.exit_code == 0, said.output
    assert "cells    12" in said.stdout
    assert "failed   0" in said.stdout
    assert (out / "results.parquet").exists()
    again = type_in("sweep", specification, "-o", out)
    assert again.exit_code == 0, again.output
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    drawn = type_in("plot", out, "--metric", "mse", "--format", "png")
    assert drawn.exit_code == 0, drawn.output
    assert drawn.stdout.split() == [str(out / "figures" / f"{name}.png") for name in ("mse", "parts", "threshold")]


def test_dry_run(specification, tmp_path) -> None:
    said = type_in("sweep", specification, "--dry-run", "--repetitions", 100)
    assert said.exit_code == 0, said.output
    assert said.stdout.split() == ["cells", "400"]
    assert [each.name for each in tmp_path.iterdir()] == ["spec.toml"]


def test_complaints(specification, tmp_path, complaint) -> None:
    assert "Missing option" in type_in("sweep", specification).stderr
    specification.write_text(SPECIFICATION.replace("[0, 1]", "9"))
    said = complaint(type_in("sweep", specification, "-o", tmp_path / "out"))
    assert said.startswith("mechanisms[0].prune = 9: expected less than the 3 levels")
    assert not (tmp_path / "out").exists()
    assert "No such file" in complaint(type_in("sweep", tmp_path / "no.toml", "-o", tmp_path / "out"))
    assert "no manifest.json there" in complaint(type_in("plot", tmp_path))


def test_datasets_are_listed_with_terms_and_sources(tmp_path) -> None:
    said = type_in("datasets", "-o", tmp_path).stdout
    for word in ("kosarak (not here)", "licence", "41,270", "http://fimi.uantwerpen.be", 'stream = "fare"'):
        assert word in said
    assert {*SPATIAL_GENERATORS} <= {*said.split()}
    (tmp_path / "BMS-POS.csv").write_text("1,2,\n3,\n")
    assert "pos (here)" in type_in("datasets", "-o", tmp_path).stdout
    found = type_in("datasets", "--download", "pos", "-o", tmp_path)
    assert f"{tmp_path / 'BMS-POS.csv'}, values: 2 values, mean 1.5, largest 2" in found.stdout


def type_in(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture
def run_demo(monkeypatch):
    """``fastdp demo`` on a day of 8,000 intervals."""
    monkeypatch.setattr(demo_command, "DAY_LENGTH", 8000)
    monkeypatch.setattr(demo_command, "MAX_LENGTH", 4096)
    return lambda *arguments: type_in("demo", *arguments)


def test_the_demo_prints_errors_and_draws(run_demo, tmp_path):
    pytest.importorskip("matplotlib")
    result = run_demo("-o", tmp_path / "demo.png", "--epsilon", 1, "--seed", 4)
    assert result.exit_code == 0, result.output
    values = dns_like_day(8000).astype(float)
    release = fastdp.Adaptive(1.0, 2000, 2000, 4096, seed=4).release(values)
    paper = fastdp.ToPS(1.0, 2000, 2000, 4096, seed=4).release(values)
    for said in (
        "6,000 published, 2,000 held out",
        f"{release.threshold:g} (public bound 2000)",
        str(release.guarantee),
        "median of 9 warm runs",
    ):
        assert said in result.stdout
    generator = np.random.default_rng(1)
    lengths = generator.integers(1, 4096, 200, endpoint=True)
    starts = generator.integers(0, 6001 - lengths)
    queries = starts, starts + lengths
    edges = np.arange(0, 6001, 50)  # 120 stretches, as drawn
    before = np.insert(np.cumsum(values[2000:]), 0, 0.0)

    def error(answer, starts, stops):
        return fastdp_lab.queries.mse(before[stops] - before[starts], answer(starts, stops)) ** 0.5

    answers = {
        "as published": release.sum,
        "revised": lambda *at: release.sum(*at, revised=True),
        "ToPS": paper.sum,
        "zeros": lambda starts, stops: np.zeros(starts.size),
    }
    sizes = [error(answers["zeros"], *at) for at in (queries, (edges[:-1], edges[1:]))]
    for name, answer in answers.items():
        coarse, fine = error(answer, *queries), error(answer, edges[:-1], edges[1:])
        shares = [re.escape(f"{part / size:.3%}") for part, size in zip((coarse, fine), sizes, strict=True)]
        line = rf"^{name} +{coarse:,.0f} +{shares[0]} of the true sums +{shares[1]} of the means"
        assert re.search(line, result.stdout, re.M), name
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_noise_of_the_demo_is_fresh_by_default(run_demo):
    outputs = [run_demo("--no-picture").stdout for _ in range(2)]
    assert not any("SIMULATED" in output for output in outputs)
    # One of the numbers may be the same by chance, not all nine.
    errors = {tuple(re.findall(r"^(?:as published|revised|ToPS) .*$", output, re.M)) for output in outputs}
    assert {len(lines) for lines in errors} == {3}
    assert len(errors) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--epsilon", -1, "--no-picture"], "--epsilon -1.0: expected a number above 0"),
        (["-o", "demo.csv"], "--output 'demo.csv': expected a suffix among"),
        (["-o", "no/demo.png"], "output no/demo.png: there is no folder"),
    ],
)
def test_the_demo_refuses(arguments, said, run_demo, tmp_path, monkeypatch):
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


def test_missing_libraries_are_named_with_their_extra(run_demo, without, specification, complaint, tmp_path):
    out, told = tmp_path / "out", ("sweep", specification, "-o", tmp_path / "out")
    assert type_in(*told).exit_code == 0
    without("matplotlib")
    drawn = run_demo("-o", tmp_path / "demo.png")
    assert drawn.exit_code == 0, drawn.output
    assert "pip install 'fastdp-streams[plot]'" in drawn.stdout
    assert not (tmp_path / "demo.png").exists()
    assert "pip install 'fastdp-streams[lab]'" in complaint(type_in("plot", out))
    without("distributed")
    assert "pip install 'fastdp-streams[lab]'" in complaint(type_in(*told, "--scheduler", "tcp://x:1"))
    without("narwhals")
    left_out = type_in("compile", "totals").output.split(maxsplit=1)[1]
    assert left_out == "left out; it needs: pip install 'fastdp-streams[tables]'\n"
