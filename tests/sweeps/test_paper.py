"""The command that makes the papers' figures: nothing is left out, and every panel says which streams it shows."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import shared
from benchmarks.accuracy.streams import STREAMS
from benchmarks.paper import __main__ as paper
from benchmarks.paper import pak_distributions, pak_figures, pak_runs, pak_tables, phd_streams, tops
from benchmarks.paper.tops import STAND_INS, with_real_streams
from fastdp_lab.datasets import concentric_circles, made_up_check_ins, made_up_pickups
from fastdp_lab.sweeps import from_table, load, read_manifest

figure_of = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed")

shapely = pytest.importorskip("shapely", reason="the extra 'geo' (shapely) is not installed")

HOLDOUT, LENGTH = 300, 8192

OURS = [name for name in paper.ITEMS if not name.startswith("phd")]

PICTURES = [name for name in OURS if "table" not in name]

SWEEPS = [name for name in OURS if paper.ITEMS[name].sweep]


def test_every_figure_and_table_has_its_command() -> None:
    wanted = ["tops_table_1", *(f"tops_figure_{k}" for k in range(1, 11)), "pak_table_1", "pak_table_2"]
    wanted += [f"pak_figure_{k}" for k in range(7, 12)] + [f"phd_figure_{k}" for k in range(1, 20)]
    assert set(wanted) <= set(paper.ITEMS)
    sweeps = {item.sweep for item in paper.ITEMS.values()} - {""}
    assert sweeps == {path.stem for path in paper.HERE.glob("*.toml")}
    for item in paper.ITEMS.values():
        assert bool(item.sweep) != (item.script is not None)


TINY: dict[str, Any] = {
    "name": "tiny",
    "epsilons": [1.0],
    "metrics": ["relative_error"],
    "datasets": [{"name": "circles", "generator": "circles", "n_points": 300}],
    "mechanisms": [{"name": "PHDStream", "system": "phdstream"}],
    "workloads": [{"kind": "boxes", "count": 10, "times": 2}],
}


def test_a_sweep_is_run_once_and_drawn_by_group(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(paper, "sweep_of", lambda *_: from_table({**TINY, "repetitions": 5}))
    items = {name: paper.Item(name, "tiny", name) for name in ("small", "large")}
    items["real"] = paper.Item("real", "tiny", needs_data=True)
    items["script"] = paper.Item("script", script=lambda options: [options.output / "x"])
    monkeypatch.setattr(paper, "ITEMS", items)
    monkeypatch.setattr(paper, "DATA", tmp_path / "absent")
    assert shared.call("paper", paper.main, ["all", "-o", str(tmp_path / "out"), "--quick"]) == 0
    said = capsys.readouterr().out
    folder = tmp_path / "out" / "tiny"
    names = ("relative_error_over_time_small", "total_over_time", "relative_error_over_time_large")
    assert {path.stem for path in (folder / "figures").glob("*.png")} == set(names)
    assert load(folder)["repetition"].nunique() == paper.QUICK
    assert len(read_manifest(folder)["sessions"]) == 1, "the second figure found the first one's results"
    assert "real: skipped" in said
    assert str(tmp_path / "out" / "script" / "x") in said
    assert shared.call("paper", paper.main, ["list"]) == 0
    assert "small" in capsys.readouterr().out


@pytest.fixture
def titles(monkeypatch) -> list[str]:
    """Titles of the panels that are saved; nothing is drawn to a file, which takes most of the time."""
    seen: list[str] = []

    def save(figure: Any, path: Any, **_: Any) -> None:
        whole = figure.get_suptitle()
        # Lower rows of a column stand under its title.
        named = [axes.get_title() for axes in figure.axes if axes.get_title()]
        seen.extend(f"{whole} | {title}" for title in named or [""])
        Path(path).touch()

    monkeypatch.setattr(figure_of.Figure, "savefig", save)
    return seen


# ToPS and PAK.
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
    """The same sweep on short streams, with one repetition of two budgets."""
    size = {"holdout": HOLDOUT, "published": LENGTH, "max_range": LENGTH}
    datasets = [{**each, **({"n": 2000} if "generator" in each else {}), **size} for each in table["datasets"]]
    mechanisms = [
        {**each, "epsilons": each["epsilons"][-1:]} if "epsilons" in each else each for each in table["mechanisms"]
    ]
    short = {"repetitions": 1, "metrics": ["mse", "parts"], "epsilons": table["epsilons"][-1:]}
    return {**table, **short, "datasets": datasets, "mechanisms": mechanisms}


def table_of(name: str) -> dict[str, Any]:
    return tomllib.loads((paper.HERE / f"{paper.ITEMS[name].sweep}.toml").read_text())


@pytest.fixture
def small(monkeypatch, real) -> None:
    """Every sweep and script on short streams."""

    def sweep_of(item: paper.Item, data: Path | None) -> Any:
        table = tomllib.loads((paper.HERE / f"{item.sweep}.toml").read_text())
        return from_table(tiny(table if data is None else with_real_streams(table, data)))

    rows = {
        name: (unit, x, bound, 1000, {HOLDOUT: rows[50_000]})
        for name, (unit, x, bound, _, rows) in pak_tables.PAPER.items()
    }
    changes: dict[Any, dict[str, Any]] = {
        paper: {"sweep_of": sweep_of, "FEWEST": 3},
        shared: {"HOLDOUT": HOLDOUT, "PUBLISHED": LENGTH, "MAX_RANGE": LENGTH, "QUERIES": 5},
        tops: {"table1": lambda name, **_: np.random.default_rng(5).integers(1, 60, 2000), "CANDIDATES": 3},
        pak_runs: {"PAPER": rows},
        pak_tables: {"PAPER": rows, "EPSILONS": (1.0,), "FIGURE_7_LAG": HOLDOUT, "LAGS": (HOLDOUT,)},
        pak_figures: {"LAG": HOLDOUT, "SYNTHETIC_LAG": HOLDOUT, "EPSILONS": (1.0,), "LAGS": (HOLDOUT,)},
        pak_distributions: {"SHARES": (0.1, 0.05)},
    }
    for module, given in changes.items():
        for name, value in given.items():
            monkeypatch.setattr(module, name, value)


def make(name: str, output: Path, data: Path | None) -> None:
    paper.draw(paper.ITEMS[name], paper.Options(output, data, 1, 1, "threads"))


QUICK = ("tops_figure_9", "pak_figure_5")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in PICTURES]
)
def test_panels_say_which_streams_they_show(name, small, titles, real, tmp_path) -> None:
    for data in (None, real):
        titles.clear()
        make(name, tmp_path / f"out_{data is None}", data)
        assert titles
        assert all(("synthetic" in title) == (data is None) for title in titles), titles


@pytest.mark.parametrize("name", SWEEPS)
def test_a_folder_of_real_streams_replaces_every_synthetic_one(name, real) -> None:
    before, after = table_of(name)["datasets"], with_real_streams(table_of(name), real)["datasets"]
    assert all("generator" in each for each in before)
    assert not any("generator" in each for each in after)
    bounds = {stream.file: stream.bound for stream in STREAMS.values()}
    assert all(each["bound"] == bounds[each["file"]] for each in after)
    four = {each["stream"] for each in before} == set(STAND_INS)
    assert len(after) == len(before) + four
    assert ("smart meter" in [each["name"] for each in after]) == four
    from_table(with_real_streams(table_of(name), real))
    (real / STREAMS["taxi distance"].file).unlink()
    left = with_real_streams(table_of("tops_figure_3"), real)["datasets"]
    assert [each["name"] for each in left if "generator" in each] == ["Fare"]


#: Part of the Earth, with most cities of the synthetic check-ins.
CONTINENTS = [shapely.box(-125, 25, -70, 50), shapely.box(-10, 36, 40, 65)]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Synthetic streams of a few hundred points."""
    changes: dict[str, Callable[..., Any]] = {
        "concentric_circles": lambda **how: concentric_circles(400, batch=40, **how),
        "made_up_check_ins": lambda **how: made_up_check_ins(600, **how),
        "made_up_pickups": lambda **how: made_up_pickups(400, days=4, **how),
    }
    for name, change in changes.items():
        monkeypatch.setattr(phd_streams, name, change)
    monkeypatch.setattr(phd_streams, "EPSILONS", (2.0,))


@pytest.mark.parametrize("name", [f"phd_figure_{k}" for k in (3, 4, 5, 6, 7, 8, 9)])
def test_synthetic_panels_of_points_say_so(name, few, titles, tmp_path, monkeypatch) -> None:
    land = tmp_path / phd_streams.LAND
    land.write_text(shapely.to_geojson(shapely.MultiPolygon(CONTINENTS)))
    monkeypatch.setattr(phd_streams, "land", lambda *_: land)
    assert shared.call("paper", paper.main, [name, "-o", str(tmp_path / "out")]) == 0
    said = ["synthetic" in title.partition(" | ")[2] for title in titles]
    # Figure 4 shows domains: land and a public box are no data.
    assert said == ([False, False, True] if name == "phd_figure_4" else [True] * len(said))
    assert said
    assert len(list((tmp_path / "out" / name).glob("*.png"))) == 1


def test_sweeps_on_real_points(tmp_path: Path) -> None:
    """Without their files nothing changes."""
    data = [
        {"name": "Check-ins with deletion", "generator": "check_ins", "deletion": True, "start": [50, 100]},
        {"name": "Pickups on streets", "generator": "pickups", "domain": "streets", "start": 2},
        {"name": "Circles", "generator": "circles", "deletion": True},
    ]
    table = {**TINY, "datasets": data}
    assert phd_streams.with_real_points(table, tmp_path)["datasets"] == data
    for file in (phd_streams.GOWALLA, phd_streams.PICKUPS):
        rows = np.column_stack([86_400.0 * np.arange(400), np.full(400, 40.5), np.full(400, -73.5)])
        np.savetxt(tmp_path / file, rows, delimiter=",", header="t,lat,lon", comments="", fmt="%.6f")
    found = from_table(phd_streams.with_real_points(table, tmp_path)).datasets
    names = ["Gowalla with deletion, start=150", "Gowalla with deletion, start=200"]
    assert [each.name for each in found] == [*names, "Uber pickups on synthetic streets", "Circles"]
    assert [each.start for each in found] == [150, 200, 2, 0]
    assert [each.kind for each in found] == ["file", "file", "file", "generator"]
    assert found[0].parameters["deletion"] is True
