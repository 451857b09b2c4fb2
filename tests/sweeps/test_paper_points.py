"""PHDStream's figures that are no plain sweep: every name draws at a tiny size, and says what is synthetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.paper import __main__ as paper
from benchmarks.paper import phd_pictures, phd_streams, phd_sweeps
from fastdp.spatial import Box
from fastdp_lab.datasets import concentric_circles, made_up_check_ins, made_up_pickups
from fastdp_lab.sweeps import from_table, run

shapely = pytest.importorskip("shapely", reason="the extra 'geo' (shapely) is not installed")
pytest.importorskip("pyarrow", reason="sweeps write Parquet")
figures = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed")

#: Part of the Earth, with most cities of the synthetic check-ins.
CONTINENTS = [shapely.box(-125, 25, -70, 50), shapely.box(-10, 36, 40, 65)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of ``--data`` with tiny files in the forms of the real ones."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / phd_streams.LAND).write_text(shapely.to_geojson(shapely.MultiPolygon(CONTINENTS)))
    day = np.arange(400) * 86_400.0
    places = np.random.default_rng(1).uniform((-100, 40), (-90, 45), (400, 2))
    _write(folder / phd_streams.GOWALLA, day, places)
    places = np.random.default_rng(2).uniform((-74, 40.7), (-73.9, 40.8), (400, 2))
    _write(folder / phd_streams.PICKUPS, day / 16, places)
    return folder


def _write(path: Path, times: np.ndarray, places: np.ndarray) -> None:
    rows = np.column_stack([times, places[:, 1], places[:, 0]])
    np.savetxt(path, rows, delimiter=",", header="t,lat,lon", comments="", fmt="%.6f")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Synthetic streams of a few hundred points."""
    changes = {
        "concentric_circles": lambda **how: concentric_circles(400, batch=40, **how),
        "made_up_check_ins": lambda **how: made_up_check_ins(600, **how),
        "made_up_pickups": lambda **how: made_up_pickups(400, days=4, **how),
    }
    for name, change in changes.items():
        monkeypatch.setattr(phd_streams, name, change)
    monkeypatch.setattr(phd_pictures, "EPSILONS", (2.0,))


@pytest.fixture
def titles(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Titles of the panels of each figure that is saved; nothing is drawn to a file, which takes most of the time."""
    seen: list[list[str]] = []

    def save(figure: Any, path: Any, **_: Any) -> None:
        seen.append([ax.get_title() for ax in figure.axes if ax.get_title()])
        Path(path).touch()

    monkeypatch.setattr(figures.Figure, "savefig", save)
    return seen


NAMES = [f"phd_figure_{k}" for k in (3, 4, 5, 6, 7, 8, 9)]


@pytest.mark.parametrize("name", NAMES)
def test_synthetic_panels_say_so(name, small, titles, tmp_path, monkeypatch) -> None:
    land = tmp_path / "land.geojson"
    land.write_text(shapely.to_geojson(shapely.MultiPolygon(CONTINENTS)))
    monkeypatch.setattr(phd_streams, "land", lambda *_: land)
    assert paper.main([name, "-o", str(tmp_path / "out")]) == 0
    (said,) = titles
    assert said
    # Figure 4 shows domains: land and a public box are no data.
    assert ["synthetic" in title for title in said] == (
        [False, False, True] if name == "phd_figure_4" else [True] * len(said)
    )
    assert len(list((tmp_path / "out" / name).glob("*.png"))) == 1


@pytest.mark.parametrize(
    ("name", "words"), [("phd_figure_5", ("Gowalla", "Gowalla", "Uber")), ("phd_figure_6", ("Gowalla, on land",) * 4)]
)
def test_real_streams_take_their_place(name, words, small, data, titles, tmp_path) -> None:
    assert paper.main([name, "-o", str(tmp_path / "out"), "--data", str(data)]) == 0
    (said,) = titles
    assert all(title.startswith(word) for title, word in zip(said, words, strict=True))
    assert (tmp_path / "out" / f"{name}_real").is_dir()
    assert not any("synthetic" in title for title in said)


def test_check_ins_of_the_last_days(data) -> None:
    scene = phd_streams.check_ins(data, start=100)
    assert scene.first == 200
    assert (scene.stream.n_steps, len(scene.stream.initial)) == (200, 200)
    assert phd_streams.check_ins(data).stream.n_steps == 400


def test_land_is_natural_earths(tmp_path) -> None:
    pytest.importorskip("pyogrio", reason="the extra 'geo' (geopandas) is not installed")
    domain, _ = phd_streams.read_domain(phd_streams.land(None, tmp_path))
    assert domain.contains([[-100, 40], [100, 30], [0, -80], [-30, 30]]).tolist() == [True, True, False, False]
    assert json.loads((tmp_path / "land.geojson").read_text())["type"] == "FeatureCollection"


def test_sweeps_on_real_streams(data) -> None:
    table = {
        "name": "x", "epsilons": [1.0], "mechanisms": [{"system": "phdstream"}], "workloads": [{"kind": "boxes"}],
        "datasets": [
            {"name": "Check-ins with deletion", "generator": "check_ins", "deletion": True, "start": [50, 100]},
            {"name": "Check-ins", "generator": "check_ins", "start": 7},
            {"name": "Pickups on streets", "generator": "pickups", "domain": "streets", "start": 2},
            {"name": "Circles", "generator": "circles", "deletion": True},
        ],
    }  # fmt: skip
    found = from_table(phd_sweeps.with_real_points(table, data)).datasets
    names = ["Gowalla with deletion, start=150", "Gowalla with deletion, start=200", "Gowalla"]
    assert [each.name for each in found] == [*names, "Uber pickups on synthetic streets", "Circles"]
    assert [each.start for each in found] == [150, 200, 107, 2, 0]
    assert [each.kind for each in found] == ["file", "file", "file", "file", "generator"]
    assert found[0].parameters["deletion"] is True
    # Without the files nothing changes.
    assert phd_sweeps.with_real_points(table, data.parent)["datasets"] == table["datasets"]


@pytest.mark.parametrize("parameter", ["sensitivity", "batch"])
def test_errors_against_a_parameter(parameter, titles, tmp_path) -> None:
    table = {
        "name": "tiny", "epsilons": [1.0, 2.0], "repetitions": 2, "metrics": ["relative_error"],
        "datasets": [{"name": "circles", "generator": "circles", "n_points": 300}],
        "mechanisms": [{"name": "PHDStream", "system": "phdstream"}],
        "workloads": [{"kind": "boxes", "count": 10, "times": 2}],
    }  # fmt: skip
    table["mechanisms" if parameter == "sensitivity" else "datasets"][0][parameter] = [10, 40]
    folder = run(from_table(table), tmp_path / "out")
    phd_sweeps.draw_against(folder, parameter)
    assert titles == [[f"circles (synthetic), {size} boxes" for size in ("small", "medium", "large")]]


def test_a_box_is_framed() -> None:
    figure = figures.Figure()
    ax = figure.subplots()
    phd_streams.draw_domain(ax, Box((0, 1), (2, 4)))
    (frame,) = ax.patches
    assert (*frame.get_xy(), frame.get_width(), frame.get_height()) == (0, 1, 2, 3)
