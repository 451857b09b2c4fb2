"""``fastdp synthesize``: batches of points in a box or a domain of areas or streets, and what is refused."""

from __future__ import annotations

import itertools
import json
import sys
from functools import partial
from pathlib import Path

import click.testing
import numpy as np
import pytest

from fastdp.cli import main
from fastdp.points import Box, Network, Polygons
from fastdp.points.adaptive_phdstream import AdaptivePHDStream
from fastdp.points.phdstream import PHDStream
from tests.cli.conftest import N_EVENTS as N


def read(path: Path) -> np.ndarray:
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".parquet":
        table = pytest.importorskip("pyarrow.parquet").read_table(path)
        assert table.column_names == ["lon", "lat"]
        return np.column_stack([column.to_numpy() for column in table.columns])
    if path.suffix == ".geojson":
        features = json.loads(path.read_text())["features"]
        return np.array([feature["geometry"]["coordinates"] for feature in features])
    assert path.read_text().startswith("lon,lat\n")
    return np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)


def test_summary_says_public_facts_only(write_events, synthesize, events, tmp_path):
    result = synthesize(write_events(), batch=N)
    said = dict(line.split("  ", 1) for line in result.stderr.splitlines())
    said = {name: text.strip() for name, text in said.items()}
    stream = PHDStream(Box([0, 0], [10, 5]), 2.0, seed=4)
    points = stream.step(events[events[:, 3] > 0, 1:3], events[events[:, 3] < 0, 1:3])
    assert result.stdout == ""
    assert said.pop("batches") == "1"
    assert said.pop("cells").startswith(f"{stream.tree.n_leaves:,} ")
    assert said.pop("total").startswith(f"{stream.total:,.0f} points")
    assert said.pop("synthetic").startswith(f"{len(points):,} points")
    assert said.pop("guarantee") == str(stream.guarantee)
    assert "SIMULATED" in str(stream.guarantee)
    assert said.pop("output").startswith(str(tmp_path / "out" / "batch_000.csv"))
    assert set(said) == {"time"}


def test_earlier_files_need_force_and_none_is_left_over(write_events, synthesize, complaint, tmp_path):
    source = write_events()
    assert synthesize(source, batch=100).exit_code == 0
    (tmp_path / "out" / "notes.txt").write_text("precious")
    assert "of an earlier run; expected another folder, or --force" in complaint(synthesize(source))
    assert len(list((tmp_path / "out").iterdir())) == 14
    assert synthesize(source, "--force").exit_code == 0
    names = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert names == [*(f"batch_00{k}.csv" for k in range(5)), "notes.txt"]
    (tmp_path / "file").write_text("precious")
    for folder, said in (("file", "is a file; expected a folder"), ("no/out", "there is no folder")):
        assert said in complaint(synthesize(source, folder=folder))
    assert (tmp_path / "file").read_text() == "precious"


def test_an_interrupt_leaves_whole_files(write_events, synthesize, events, monkeypatch, tmp_path):
    advance, steps = PHDStream.advance, []

    def interrupted(self, added, removed=None):
        steps.append(len(added))
        if len(steps) == 3:
            raise KeyboardInterrupt
        advance(self, added, removed)

    monkeypatch.setattr(PHDStream, "advance", interrupted)
    assert synthesize(write_events(), "--format", "npy").exit_code == 130
    monkeypatch.undo()
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == ["batch_000.npy", "batch_001.npy"]
    for file, wanted in zip(files, library(events, [0, 300, 600]), strict=True):
        np.testing.assert_array_equal(read(file), wanted)


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


def test_a_state_file_remembers_the_domain(command, complaint, tmp_path) -> None:
    state = ("--state", tmp_path / "state", "--clip")
    assert command(AREAS, *state).exit_code == 0
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    assert "domain = " in complaint(command([shapely.box(0, 0, 10, 5)], *state))
    assert command(AREAS, *state).exit_code == 0
    assert before == {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}


def test_a_picture_of_what_was_released(synthesize, complaint, write_events, tmp_path, monkeypatch) -> None:
    plots = pytest.importorskip("fastdp.releases.pictures")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    seen: list[tuple] = []
    draw = plots.draw_points
    monkeypatch.setattr(
        plots, "draw_points", lambda rows, *given: seen.append((rows, given[1])) or draw(rows, *given)
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
    assert how == ["batch 0", "batch 1", "batch 3", "batch 4"]
    for points, number in zip(clouds, (0, 1, 3, 4), strict=True):
        np.testing.assert_array_equal(points, np.load(tmp_path / "out" / f"batch_00{number}.npy"))
    assert "exists already" in complaint(synthesize(write_events(), "--plot", picture, folder="other"))
    assert synthesize(write_events(), "--plot", picture, "--force").exit_code == 0


BOX = Box([0, 0], [10, 5])

CUTS = [0, 300, 600, 900, 1200, N]


def library(events: np.ndarray, cuts: list[int] = CUTS, system=PHDStream, domain=BOX, **options) -> list[np.ndarray]:
    """The library's own release of these batches."""
    stream = system(domain, 2.0, **{"seed": 4, **options})
    parts = [events[begin:end] for begin, end in itertools.pairwise(cuts)]
    return [stream.step(part[part[:, 3] > 0, 1:3], part[part[:, 3] < 0, 1:3]) for part in parts]


@pytest.fixture
def check(synthesize, tmp_path):
    """Batches of a command are those wanted."""

    def check(wanted: list[np.ndarray], *arguments: object, kind: str = "npy", **options) -> None:
        result = synthesize(*arguments, "--format", kind, **options)
        assert result.exit_code == 0, result.output
        files = sorted((tmp_path / "out").iterdir())
        assert [file.name for file in files] == [f"batch_{k:03d}.{kind}" for k in range(len(wanted))]
        for file, points in zip(files, wanted, strict=True):
            np.testing.assert_array_equal(read(file), points)

    return check


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".txt", ".parquet"])
@pytest.mark.parametrize("kind", ["csv", "npy", "parquet", "geojson"])
def test_every_kind_of_file_holds_what_the_library_gives(suffix, kind, check, write_events, events):
    check(library(events), write_events(suffix), kind=kind)


@pytest.mark.parametrize(
    ("system", "options", "cuts"),
    [
        (PHDStream, {"counter": "block", "max_depth": 6, "sensitivity": 2, "initial": 0.5}, [0, 617, 917, 1217, N]),
        (PHDStream, {"clip": True}, CUTS),
        (AdaptivePHDStream, {}, CUTS),
        (AdaptivePHDStream, {"period": 2}, CUTS),
        (AdaptivePHDStream, {"max_period": 1, "sensitivity": 2}, CUTS),
    ],
)
def test_options_reach_the_system(
    system, options, cuts, check, write_events, events, complaint, synthesize, tmp_path
):
    told = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    used = {name: value for name, value in options.items() if name not in ("initial", "clip")}
    table = events.copy()
    if "clip" in options:
        told, used = ["--clip"], {"outside": "clip"}
        table[[5, 800], 1] = [11.5, -1.25]
        said = complaint(synthesize(write_events(table=table)))
        assert f"2 of {N:,} points are outside the box" in said
        assert "11.5" not in said
        assert not (tmp_path / "out").exists()
    if system is AdaptivePHDStream:
        told += ["--method", "adaptive"]
    check(library(table, cuts, system, **used), write_events(table=table), *told)


@pytest.mark.parametrize("moments", ["seconds", "iso", "american", "parquet"])
@pytest.mark.parametrize(("every", "seconds"), [("2500", 2500), ("1.5h", 5400)])
def test_batches_by_time(moments, every, seconds, write_events, check, events, tmp_path):
    # At whole multiples of the period: neither the first event nor any other moves a border.
    first, last = (int(moment) // seconds for moment in events[[0, -1], 0])
    cuts = [*np.searchsorted(events[:, 0], seconds * np.arange(first, last + 1)).tolist(), N]
    source = write_events()
    stamps = events[:, 0].astype("datetime64[s]")
    if moments == "parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        source = tmp_path / "in.parquet"
        columns = [arrow.array(stamps), *(arrow.array(column) for column in events[:, 1:].T)]
        parquet.write_table(arrow.table(columns, names=["time", "lon", "lat", "event"]), source)
    elif moments != "seconds":
        texts = [str(s) if moments == "iso" else s.item().strftime("%m/%d/%Y %H:%M:%S") for s in stamps]
        lines = [f"{text},{x!r},{y!r},{e}" for text, (_, x, y, e) in zip(texts, events.tolist(), strict=True)]
        source.write_text("\n".join(["time,lon,lat,event", *lines]))
    check(library(events, cuts), source, "--every", every, batch=None)


def test_moments_between_tabs_and_by_number(synthesize, tmp_path):
    source = tmp_path / "in.txt"
    rows = ["2014-04-01T00:11:00\t1\t2", "", "2014-04-01 00:12:00\t2\t2", "2014-04-01T02:12:00\t2\t2"]
    told = (source, "--every", 3600, "--y", 2, "--time", 0, "--x")
    source.write_text("\n".join(["when, UTC\tmy x\tmy y", *rows]))
    # The blank line is a missing value: how many rows there are is public, so none may silently go.
    assert "column 'my x': 1 of 4 rows are missing" in synthesize(*told, "my x", batch=None).stderr
    source.write_text("\n".join(["when\tx, my own\tmy y", *filter(None, rows)]))
    assert synthesize(*told, "x, my own", batch=None).exit_code == 0
    assert len(list((tmp_path / "out").iterdir())) == 3
    assert (tmp_path / "out" / "batch_000.csv").read_text().startswith('"x, my own",my y\n')


def test_disorder_is_refused_or_sorted(write_events, synthesize, complaint, check, events):
    table = events[np.random.default_rng(1).permutation(N)]
    source = write_events(table=table)
    said = complaint(synthesize(source, "--every", 2500, batch=None))
    assert "is earlier than the one before it; expected the order of time, or --sort" in said
    check(library(table[np.argsort(table[:, 0], kind="stable")]), source, "--sort")


USAGE = [
    (["--batch", "0"], "0 is not in the range"),
    (["--every", "60"], "exactly one of --batch and --every"),
    (["--key-file", "k", "--seed", "1"], "exclude each other"),
    (["--box", "0", "0", "1"], "Invalid value for '--box'"),
    (["--domain", __file__], "exactly one of --box and --domain"),
    (["--method", "adaptive", "--counter", "block"], "--counter does not apply to --method adaptive."),
    (["--period", "3"], "--period does not apply to --method phdstream."),
    *[(["--every", length], "expected a length of time such as 90s") for length in ("1x", "1 mo", "0h", "")],
]

REFUSED = [
    (["--epsilon", "-1"], "--epsilon -1.0: expected a number above 0"),
    (["--box", "0", "0", "0", "5"], "--box X1 Y1: expected numbers above --box X0 Y0"),
    (["--max-depth", "99"], "--max-depth"),
    (["--sensitivity", "0"], "--sensitivity 0"),
    (["--initial", "1"], "--initial 1.0: expected a number of at least 0 and below 1"),
    (["--x", "place"], "--x 'place': "),
    (["--key-file", "nowhere"], "No such file or directory"),
]


@pytest.mark.parametrize(
    ("code", "arguments", "said"), [(2, *usage) for usage in USAGE] + [(1, *refused) for refused in REFUSED]
)
def test_options_that_are_refused(code, arguments, said, write_events, synthesize, tmp_path):
    length = said.startswith("expected a length")
    result = synthesize(write_events(), *arguments, **({"batch": None} if length else {}))
    assert result.exit_code == code
    assert said in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()


HEADING = b"time,lon,lat,event\n"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("in.csv", HEADING + b"1,1,1,1\n1,nan,1,1\n", "column 'lon': 1 of 2 rows are missing, NaN or infinite"),
        ("in.csv", HEADING + b"1,1,1,1\n1,secret,1,1\n", "line 3, column 'lon': not a number"),
        ("in.csv", HEADING + b"1,1,1,2\n", "neither 1 (a point appears) nor -1"),
        ("in.csv", HEADING + b"1,1,1,0\n", "neither 1 (a point appears) nor -1"),
        (
            "in.csv",
            HEADING + b"secret,1,1,1\n",
            "line 2, column 'time': not a time; expected seconds, or moments such",
        ),
        (
            "in.csv",
            HEADING + b"2014-04-01T00:11:00,1,2,1\n4/2/2014 0:12:00,1,2,1\n",
            "line 3, column 'time': not a t",
        ),
        ("in.csv", HEADING + b"2014-04-01T00:11:00,1,2,1\n1396311060,1,2,1\n", "line 3, column 'time': not a time"),
        ("in.csv", b"time,a,b\n1,1,1\n", "has the columns 'time' (0), 'a' (1), 'b' (2): expected 'x' or 'lon'"),
        ("in.xlsx", b"", "unknown kind of file"),
        ("in.csv.gz", b"lon,lat\n", "not a gzip file"),
        ("in.parquet", b"lon,lat\n", "not a readable Parquet file"),
        ("in.csv", b"lon,lat\n", "empty, holds no points"),
        ("in.parquet", b"PAR1\0\0\0\0PAR1", "not a readable Parquet file, or damaged"),
        ("in.csv", b"1,2\n3,4\n", "has no heading: expected 'x' or 'lon'"),
        ("-", None, "expected a file"),
        ("nowhere.csv", None, "no such file"),
        (".", None, "is a folder"),
    ],
)
def test_bad_files_and_rows_are_named_but_not_shown(name, content, said, synthesize, complaint, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    cut = {"batch": None} if "'time': not" in said else {}
    every = ["--every", 60] if cut else []
    complained = complaint(synthesize(name if name == "-" else tmp_path / name, *every, **cut))
    assert said in complained
    assert not any(shown in complained for shown in ("secret", "2014 0:12", "1396311060"))
    assert not (tmp_path / "out").exists()


def test_moments_in_parquet_are_times_and_never_missing(synthesize, complaint, tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "in.parquet"
    start = partial(synthesize, path, "--every", 60, batch=None)
    for last in ("NaT", "2014-04-02"):
        moments = np.array(["2014-04-01T00:11:00", last], "datetime64[us]")
        parquet.write_table(arrow.table({"time": moments, "lon": [1.0, 2.0], "lat": [3.0, 4.0]}), path)
        if last == "NaT":
            assert "column 'time': 1 of 2 rows are missing" in complaint(start())
            assert "column 'time': holds timestamp entries; expected real numbers" in complaint(start("--x", "time"))
    # Found by fuzzing: of a damaged page Arrow's error came through in several lines.
    raw = path.read_bytes()
    path.write_bytes(raw[:4] + bytes(24) + raw[28:])
    assert "not a readable Parquet file, or damaged" in complaint(start())


@pytest.fixture
def command(tmp_path: Path, write_events):
    """The command with a domain from GeoJSON."""

    def command(geometries: list, *arguments: object) -> click.testing.Result:
        shapes = [json.loads(shapely.to_geojson(each)) for each in geometries]
        features = [{"type": "Feature", "properties": {}, "geometry": shape} for shape in shapes]
        domain = tmp_path / "domain.geojson"
        domain.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        given = ["synthesize", write_events(), "-o", tmp_path / "out", "--epsilon", 2, "--batch", 617]
        given += ["--domain", domain, "--format", "npy", *arguments]
        if "--state" not in arguments:
            given += ["--seed", 4]
        return click.testing.CliRunner().invoke(main, [*map(str, given)])

    return command


@pytest.mark.parametrize("kind", DOMAINS)
def test_a_domain_gives_what_the_library_gives(kind, command, complaint, events, tmp_path) -> None:
    geometries, domain = DOMAINS[kind]
    outside = int((~domain.contains(events[:, 1:3])).sum())
    assert outside > 0
    assert f"{outside:,} of 1,234 points are outside the domain" in complaint(command(geometries))
    result = command(geometries, "--clip")
    assert result.exit_code == 0, result.output
    for k, want in enumerate(library(events, [0, 617, N], domain=domain, outside="clip")):
        points = np.load(tmp_path / "out" / f"batch_00{k}.npy")
        np.testing.assert_array_equal(points, want)
        # But for the last digit of a place between two corners.
        assert domain.contains(points).mean() > 0.999


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
def test_domains_that_are_refused(geometries, found, command, complaint, monkeypatch) -> None:
    """In words of the file, not of shapely's objects."""
    said = complaint(command(geometries))
    assert f"domain.geojson: holds {found}; expected polygons with an area" in said
    assert "shapely" not in said
    far = complaint(command([shapely.box(0, 0, 181, 5)]))
    assert "expected x in [-180, 180] (longitude)" in far
    assert "to_crs(4326)" in far
    monkeypatch.setitem(sys.modules, "shapely", None)
    said = complaint(command(AREAS[:1]))
    assert said.endswith("need shapely, which is not installed: pip install 'fastdp-streams[geo]'")
