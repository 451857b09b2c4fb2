"""The command that makes the papers' figures: its sweeps run, and every panel says which streams it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import shared
from benchmarks.accuracy.streams import STREAMS
from benchmarks.paper import __main__ as paper
from fastdp_lab.sweeps import from_table, load, read_manifest

figure_of = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed")

HOLDOUT, LENGTH = 300, 8192
OURS = [name for name in paper.SWEEPS if not name.startswith("phd")]
TINY: dict[str, Any] = {
    "name": "tiny",
    "epsilons": [1.0],
    "metrics": ["relative_error"],
    "datasets": [{"name": "circles", "generator": "circles", "n_points": 300}],
    "mechanisms": [{"name": "PHDStream", "system": "phdstream"}],
    "workloads": [{"kind": "boxes", "count": 10, "times": 2}],
}


def test_a_sweep_is_run_once_and_drawn(tmp_path, monkeypatch, capsys) -> None:
    real = {**TINY, "datasets": [{"name": "circles", "file": "absent", "format": "circles"}]}
    monkeypatch.setattr(paper, "SWEEPS", {"tiny": {**TINY, "repetitions": 5}, "real": real})
    monkeypatch.setattr(paper, "DATA", tmp_path / "absent")
    for _ in range(2):
        assert shared.call("paper", paper.main, ["all", "-o", str(tmp_path / "out"), "--quick"]) == 0
    folder = tmp_path / "out" / "tiny"
    sizes = {f"relative_error_over_time_{size}" for size in ("small", "medium", "large")}
    assert sizes | {"total_over_time"} <= {path.stem for path in (folder / "figures").glob("*.png")}
    assert load(folder)["repetition"].nunique() == paper.QUICK
    assert len(read_manifest(folder)["sessions"]) == 1, "the second time found the first one's results"
    assert "real: skipped" in capsys.readouterr().out
    assert shared.call("paper", paper.main, ["list"]) == 0
    assert "Figure 3 of ToPS" not in capsys.readouterr().out


@pytest.fixture
def titles(monkeypatch) -> list[str]:
    """Titles of the panels that are saved; nothing is drawn to a file, which takes most of the time."""
    seen: list[str] = []

    def save(figure: Any, path: Any, **_: Any) -> None:
        # Lower rows of a column stand under its title.
        named = [axes.get_title() for axes in figure.axes if axes.get_title()]
        seen.extend(f"{figure.get_suptitle()} | {title}" for title in named or [""])
        Path(path).touch()

    monkeypatch.setattr(figure_of.Figure, "savefig", save)
    return seen


@pytest.fixture
def real(tmp_path) -> Path:
    """A folder with a short stream under the name of every real one."""
    folder = tmp_path / "data"
    folder.mkdir()
    for k, stream in enumerate(STREAMS.values()):
        values = np.random.default_rng(k).gamma(2.0, 3.0, 25_000)
        np.savez(folder / stream.file, values=np.minimum(np.rint(values) + 1.0, stream.bound))
    return folder


def tiny(table: dict[str, Any]) -> dict[str, Any]:
    """The same sweep on short streams, with one repetition of the last budget."""
    size = {"holdout": HOLDOUT, "published": LENGTH, "max_range": LENGTH}
    datasets = [{**each, **({"n": 2000} if "generator" in each else {}), **size} for each in table["datasets"]]
    mechanisms = [
        {**each, "epsilons": each["epsilons"][-1:]} if "epsilons" in each else each for each in table["mechanisms"]
    ]
    short = {"repetitions": 1, "metrics": ["mse", "parts"], "epsilons": table["epsilons"][-1:]}
    return {**table, **short, "datasets": datasets, "mechanisms": mechanisms}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "tops_figure_9" else pytest.mark.slow) for name in OURS]
)
def test_panels_say_which_streams_they_show(name, monkeypatch, titles, real, tmp_path) -> None:
    monkeypatch.setattr(paper, "SWEEPS", {name: tiny(paper.SWEEPS[name])})
    for data in (None, real):
        titles.clear()
        given = [] if data is None else ["--data", str(data)]
        assert shared.call("paper", paper.main, [name, "-o", str(tmp_path), "--workers", "1", *given]) == 0
        assert titles
        assert all(("synthetic" in title) == (data is None) for title in titles), titles


@pytest.mark.parametrize("name", OURS)
def test_a_folder_of_real_streams_replaces_every_synthetic_one(name, real) -> None:
    table = paper.SWEEPS[name]
    before, after = table["datasets"], paper.with_real(table, real)["datasets"]
    assert all("generator" in each for each in before)
    assert not any("generator" in each for each in after)
    bounds = {stream.file: stream.bound for stream in STREAMS.values()}
    assert all(each["bound"] == bounds[each["file"]] for each in after)
    four = {each["stream"] for each in before} == set(paper.STAND_INS)
    assert len(after) == len(before) + four
    assert ("smart meter" in [each["name"] for each in after]) == four
    from_table(paper.with_real(table, real))
    (real / STREAMS["taxi distance"].file).unlink()
    left = paper.with_real(paper.SWEEPS["tops_figure_3"], real)["datasets"]
    assert [each["name"] for each in left if "generator" in each] == ["Fare"]


def test_sweeps_on_real_points(tmp_path: Path) -> None:
    """Without their files nothing changes."""
    data = [
        {"name": "Check-ins with deletion", "generator": "check_ins", "deletion": True, "start": [50, 100]},
        {"name": "Pickups on streets", "generator": "pickups", "domain": "streets", "start": 2},
        {"name": "Circles", "generator": "circles", "deletion": True},
    ]
    table = {**TINY, "datasets": data}
    assert paper.with_real(table, tmp_path)["datasets"] == data
    for file in (paper.GOWALLA, paper.PICKUPS):
        rows = np.column_stack([86_400.0 * np.arange(400), np.full(400, 40.5), np.full(400, -73.5)])
        np.savetxt(tmp_path / file, rows, delimiter=",", header="t,lat,lon", comments="", fmt="%.6f")
    found = from_table(paper.with_real(table, tmp_path)).datasets
    names = ["Gowalla with deletion, start=150", "Gowalla with deletion, start=200"]
    assert [each.name for each in found] == [*names, "Uber pickups on synthetic streets", "Circles"]
    assert [each.start for each in found] == [150, 200, 2, 0]
    assert [each.kind for each in found] == ["file", "file", "file", "generator"]
    assert found[0].parameters["deletion"] is True
