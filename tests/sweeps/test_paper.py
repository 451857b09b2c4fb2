"""The command that makes the papers' figures: nothing is left out, and a figure is a sweep and its pictures."""

from __future__ import annotations

import pytest

from benchmarks.paper import __main__ as paper
from benchmarks.paper import phd_pictures, tops

pytest.importorskip("pyarrow", reason="sweeps write Parquet")


def test_every_figure_and_table_has_its_command() -> None:
    wanted = ["tops_table_1", *(f"tops_figure_{k}" for k in range(1, 11)), "pak_table_1", "pak_table_2"]
    wanted += [f"pak_figure_{k}" for k in range(7, 12)] + ["phd_figure_1", "phd_figure_2"]
    wanted += [f"phd_figure_{k}" for k in range(3, 20)]
    assert set(wanted) <= set(paper.ITEMS)
    sweeps = {item.sweep for item in paper.ITEMS.values()} - {""}
    assert sweeps == {path.stem for path in paper.HERE.glob("*.toml")}
    for item in paper.ITEMS.values():
        assert bool(item.sweep) != (item.script is not None)


SWEEP = """
name = "tiny"
epsilons = [1.0]
repetitions = 5
metrics = ["mae"]
[[datasets]]
name = "circles"
generator = "circles"
n_points = 300
[[mechanisms]]
system = "phdstream"
[[workloads]]
kind = "boxes"
count = 10
times = 2
"""


def test_a_sweep_is_run_once_and_drawn_by_group(tmp_path, monkeypatch, capsys) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    (tmp_path / "tiny.toml").write_text(SWEEP)
    monkeypatch.setattr(paper, "HERE", tmp_path)
    items = {name: paper.Item(name, "tiny", name) for name in ("small", "large")}
    items["real"] = paper.Item("real", "tiny", needs_data=True)
    items["script"] = paper.Item("script", script=lambda options: [options.output / "x"])
    monkeypatch.setattr(paper, "ITEMS", items)
    monkeypatch.setattr("benchmarks.shared.DATA", tmp_path / "absent")
    assert paper.main(["all", "-o", str(tmp_path / "out"), "--quick"]) == 0
    said = capsys.readouterr().out
    folder = tmp_path / "out" / "tiny"
    assert {path.name for path in (folder / "figures").glob("*.png")} == {
        *("mae_over_time_small.png", "total_over_time.png", "mae_over_time_large.png")
    }
    from fastdp_lab.sweeps import load, read_manifest

    assert load(folder)["repetition"].nunique() == paper.QUICK
    assert len(read_manifest(folder)["sessions"]) == 1, "the second figure found the first one's results"
    assert "real: skipped" in said
    assert str(tmp_path / "out" / "script" / "x") in said
    assert paper.main(["list"]) == 0
    assert "small" in capsys.readouterr().out


def test_the_streams_characteristics(capsys, monkeypatch) -> None:
    monkeypatch.setattr(tops, "table1", lambda name: tops.np.arange(1, 1001))
    tops.characteristics(None)
    said = capsys.readouterr().out
    assert "| dns     | ToPS      | 1,141,961 | 2,000  | 63  | 85" in said
    assert "| pos     | synthetic | 1,000     | 1,657  | 850 | 950   | 995   | 1,000" in said


def test_counters(tmp_path, monkeypatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.setattr(phd_pictures, "HORIZONS", (16,))
    for path in phd_pictures.counters(tmp_path):
        assert path.stat().st_size > 5000
