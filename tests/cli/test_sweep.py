"""``fastdp sweep``, ``fastdp plot`` and ``fastdp datasets`` as typed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fastdp.cli import main
from fastdp_lab.sweeps import SPATIAL_GENERATORS

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


def type_in(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


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
    said = type_in("sweep", specification, "--dry-run", "--workers", 2, "--repetitions", 100)
    assert said.exit_code == 0, said.output
    assert "cells   400" in said.stdout
    assert "of one worker" in said.stdout
    assert "MB" in said.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["spec.toml"]


def test_complaints(specification, tmp_path, complaint) -> None:
    assert "Missing option" in type_in("sweep", specification).stderr
    specification.write_text(SPECIFICATION.replace("[0, 1]", "9"))
    said = complaint(type_in("sweep", specification, "-o", tmp_path / "out"))
    assert said.startswith("mechanisms[0].prune = 9: expected less than the 3 levels")
    assert not (tmp_path / "out").exists()
    assert "No such file" in complaint(type_in("sweep", tmp_path / "no.toml", "-o", tmp_path / "out"))
    assert "no manifest.json there" in complaint(type_in("plot", tmp_path))


def test_plot_without_matplotlib(specification, tmp_path, complaint, monkeypatch) -> None:
    assert type_in("sweep", specification, "-o", tmp_path / "out").exit_code == 0
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'fastdp-streams[lab]'" in complaint(type_in("plot", tmp_path / "out"))


def test_sweep_without_msgspec(specification, tmp_path, complaint, monkeypatch) -> None:
    for name in [name for name in sys.modules if name.startswith("fastdp_lab.sweeps")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "msgspec", None)
    said = complaint(type_in("sweep", specification, "-o", tmp_path / "out"))
    assert said == "fastdp sweep needs msgspec, which is not installed: pip install 'fastdp-streams[lab]'"


def test_scheduler_without_dask(specification, tmp_path, complaint, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    said = complaint(type_in("sweep", specification, "-o", tmp_path / "out", "--scheduler", "tcp://x:1"))
    assert "pip install 'fastdp-streams[lab]'" in said


def test_datasets_are_listed_with_terms_and_sources(tmp_path) -> None:
    said = type_in("datasets", "-o", tmp_path)
    assert said.exit_code == 0
    for word in (
        *SPATIAL_GENERATORS,
        "kosarak (not here)",
        "licence",
        "41,270",
        "http://fimi.uantwerpen.be",
        'stream = "fare"',
    ):
        assert word in said.stdout
    (tmp_path / "BMS-POS.csv").write_text("1,2,\n3,\n")
    assert "pos (here)" in type_in("datasets", "-o", tmp_path).stdout
    found = type_in("datasets", "--download", "pos", "-o", tmp_path)
    assert f"{tmp_path / 'BMS-POS.csv'}, values: 2 values, mean 1.5, largest 2" in found.stdout
