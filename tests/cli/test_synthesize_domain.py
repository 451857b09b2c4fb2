"""``fastdp synthesize --domain``: areas and streets from GeoJSON in place of a box."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click.testing
import numpy as np
import pytest

from fastdp.cli import main
from fastdp.spatial import Network, Polygons
from fastdp.spatial.phdstream import PHDStream

shapely = pytest.importorskip("shapely", reason="the extra 'geo' (shapely, geopandas) is not installed")

#: Two parts in one feature, as maps of countries have them, and a bow tie, which is repaired.
AREAS = [
    shapely.MultiPolygon([shapely.box(0, 0, 6, 5), shapely.box(7, 0, 10, 2)]),
    shapely.Polygon([(7, 3), (10, 5), (10, 3), (7, 5)]),
]
STREETS = [shapely.LineString([(0, 1), (10, 1)]), shapely.MultiLineString([[(1, 0), (1, 5)], [(4, 0), (4, 5)]])]
DOMAINS = {
    "areas": (
        AREAS,
        Polygons([*shapely.get_parts(AREAS[0]), *shapely.get_parts(shapely.make_valid(AREAS[1]))], geographic=True),
    ),
    "streets": (STREETS, Network([STREETS[0], *shapely.get_parts(STREETS[1])], geographic=True)),
}


def collection(geometries: list) -> str:
    features = [
        {"type": "Feature", "properties": {}, "geometry": json.loads(shapely.to_geojson(each))} for each in geometries
    ]
    return json.dumps({"type": "FeatureCollection", "features": features})


@pytest.fixture
def command(tmp_path: Path, write_events):
    def command(geometries: list, *arguments: object) -> click.testing.Result:
        (tmp_path / "domain.geojson").write_text(collection(geometries))
        given = ["synthesize", write_events(), "-o", tmp_path / "out", "--epsilon", 2, "--batch", 617]
        given += ["--domain", tmp_path / "domain.geojson", "--format", "npy", *arguments]
        if "--state" not in arguments:
            given += ["--seed", 4]
        return click.testing.CliRunner().invoke(main, [*map(str, given)])

    return command


@pytest.mark.parametrize("kind", DOMAINS)
def test_the_command_gives_what_the_library_gives(kind, command, events, tmp_path) -> None:
    geometries, domain = DOMAINS[kind]
    result = command(geometries, "--clip")
    assert result.exit_code == 0, result.output
    stream = PHDStream(domain, 2.0, seed=4, outside="clip")
    for k, part in enumerate((events[:617], events[617:])):
        points = np.load(tmp_path / "out" / f"batch_00{k}.npy")
        want = stream.step(part[part[:, 3] > 0, 1:3], part[part[:, 3] < 0, 1:3])
        np.testing.assert_array_equal(points, want)
        # But for the last digit of a place between two corners.
        assert domain.contains(points).mean() > 0.999


def test_points_outside_are_counted_in_the_message(command, complaint, events) -> None:
    geometries, domain = DOMAINS["areas"]
    outside = int((~domain.contains(events[:, 1:3])).sum())
    assert outside > 0
    assert domain.contains([[7.1, 4], [9.9, 4], [8.5, 4.5], [6.5, 1]]).tolist() == [True, True, False, False]
    assert f"{outside} of 1,234 points are outside the domain" in complaint(command(geometries))


def test_a_box_or_a_domain(command, complaint) -> None:
    result = command(AREAS, "--box", 0, 0, 1, 1)
    assert result.exit_code == 2
    assert "exactly one of --box and --domain" in result.stderr
    far = complaint(command([shapely.box(0, 0, 181, 5)]))
    assert "expected x in [-180, 180] (longitude)" in far
    assert "to_crs(4326)" in far


@pytest.mark.parametrize(
    ("geometries", "found"),
    [
        ([*AREAS, shapely.Point(1, 1)], "Point, Polygon"),
        ([*AREAS, *STREETS], "LineString, Polygon"),
        ([shapely.Polygon([(0, 0), (1, 1), (0, 0)])], "Polygon"),
        ([shapely.Polygon()], "nothing"),
        ([], "nothing"),
    ],
)
def test_files_of_another_kind(geometries, found, command, complaint) -> None:
    """In words of the file, not of shapely's objects."""
    said = complaint(command(geometries))
    assert f"domain.geojson: holds {found}; expected polygons with an area" in said
    assert "shapely" not in said


def test_a_state_file_remembers_the_domain(command, complaint, tmp_path) -> None:
    state = ("--state", tmp_path / "state", "--clip")
    assert command(AREAS, *state).exit_code == 0
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    assert "domain = " in complaint(command([shapely.box(0, 0, 10, 5)], *state))
    assert command(AREAS, *state).exit_code == 0
    assert before == {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize(
    ("given", "seconds"), [("2500", 2500), ("30min", 1800), ("1.5h", 5400), ("h", 3600), ("1d", 86_400)]
)
def test_a_batch_lasts_a_length_of_time(given, seconds, synthesize, write_events, events, tmp_path) -> None:
    result = synthesize(write_events(), "--every", given, batch=None)
    assert result.exit_code == 0, result.output
    periods = events[:, 0] // seconds
    assert len(list((tmp_path / "out").iterdir())) == int(periods[-1] - periods[0]) + 1


@pytest.mark.parametrize("given", ["1x", "1 mo", "0h", ""])
def test_what_is_no_length_of_time(given, synthesize, write_events) -> None:
    result = synthesize(write_events(), "--every", given, batch=None)
    assert result.exit_code == 2
    assert "expected a length of time such as 90s" in " ".join(result.stderr.split())


def test_a_picture_of_what_was_released(synthesize, complaint, write_events, tmp_path, monkeypatch) -> None:
    plots = pytest.importorskip("fastdp.plots")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    seen: list[tuple] = []
    draw = plots.points_and_cells
    monkeypatch.setattr(
        plots, "points_and_cells", lambda rows, *given, **how: seen.append((rows, how)) or draw(rows, *given, **how)
    )
    picture = tmp_path / "points.png"
    assert "expected a suffix among" in complaint(synthesize(write_events(), "--plot", tmp_path / "points.xyz"))
    assert not (tmp_path / "out").exists()
    result = synthesize(write_events(), "--plot", picture, "--format", "npy")
    assert result.exit_code == 0, result.output
    assert str(picture) in result.stderr
    assert picture.stat().st_size > 5000
    ((rows, how),) = seen
    (clouds,) = rows.values()
    assert how["columns"] == ("batch 0", "batch 1", "batch 3", "batch 4")
    for points, number in zip(clouds, (0, 1, 3, 4), strict=True):
        np.testing.assert_array_equal(points, np.load(tmp_path / "out" / f"batch_00{number}.npy"))
    assert "exists already" in complaint(synthesize(write_events(), "--plot", picture, folder="other"))
    assert synthesize(write_events(), "--plot", picture, "--force").exit_code == 0


def test_a_domain_without_shapely_is_one_line_that_names_the_extra(command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shapely", None)
    done = command(AREAS[:1])
    assert done.exit_code == 1
    assert done.output.endswith("need shapely, which is not installed: pip install 'fastdp-streams[geo]'\n")
