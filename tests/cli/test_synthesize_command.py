from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fastdp.spatial import Box
from fastdp.spatial.adaptive_phdstream import AdaptivePHDStream
from fastdp.spatial.phdstream import PHDStream

N = 1_234


def library(events: np.ndarray, cuts: list[int], system=PHDStream, **options) -> list[np.ndarray]:
    """The library's own release of these batches."""
    stream = system(Box([0, 0], [10, 5]), 2.0, **{"seed": 4, **options})
    parts = [events[begin:end] for begin, end in itertools.pairwise(cuts)]
    return [stream.step(part[part[:, 3] > 0, 1:3], part[part[:, 3] < 0, 1:3]) for part in parts]


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


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".txt", ".parquet"])
def test_every_input_gives_what_the_library_gives(suffix, write_events, synthesize, events, tmp_path):
    result = synthesize(write_events(suffix), "--format", "npy")
    assert result.exit_code == 0, result.output
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == [f"batch_00{k}.npy" for k in range(5)]
    for file, wanted in zip(files, library(events, [0, 300, 600, 900, 1200, N]), strict=True):
        np.testing.assert_array_equal(read(file), wanted, strict=True)


@pytest.mark.parametrize("kind", ["csv", "npy", "parquet", "geojson"])
def test_every_format_holds_the_same_floats(kind, write_events, synthesize, events, tmp_path):
    assert synthesize(write_events(), "--format", kind, batch=N).exit_code == 0
    (wanted,) = library(events, [0, N])
    np.testing.assert_array_equal(read(tmp_path / "out" / f"batch_000.{kind}"), wanted)


def test_options_reach_the_system(write_events, synthesize, events, tmp_path):
    options = ["--counter", "block", "--max-depth", 6, "--sensitivity", 2, "--initial", 0.5, "--format", "npy"]
    assert synthesize(write_events(), *options).exit_code == 0
    wanted = library(events, [0, 617, 917, 1217, N], counter="block", max_depth=6, sensitivity=2)
    for k, points in enumerate(wanted):
        np.testing.assert_array_equal(read(tmp_path / "out" / f"batch_00{k}.npy"), points)


@pytest.mark.parametrize("options", [{}, {"period": 2}, {"max_period": 1, "sensitivity": 2}])
def test_counts_alone(options, write_events, synthesize, events, tmp_path):
    told = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    result = synthesize(write_events(), "--method", "adaptive", "--format", "npy", *told)
    assert result.exit_code == 0, result.output
    cuts = [0, 300, 600, 900, 1200, N]
    for k, points in enumerate(library(events, cuts, AdaptivePHDStream, **options)):
        np.testing.assert_array_equal(read(tmp_path / "out" / f"batch_00{k}.npy"), points)


@pytest.mark.parametrize("moments", ["seconds", "iso", "american", "parquet"])
def test_batches_by_time(moments, write_events, synthesize, events, tmp_path):
    # At whole multiples of the period: neither the first event nor any other moves a border.
    first, last = (int(moment) // 2500 for moment in events[[0, -1], 0])
    cuts = [*np.searchsorted(events[:, 0], 2500 * np.arange(first, last + 1)).tolist(), N]
    source = write_events()
    stamps = events[:, 0].astype("datetime64[s]")
    rows = events.tolist()
    if moments == "parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        source = tmp_path / "in.parquet"
        columns = [arrow.array(stamps), *(arrow.array(column) for column in events[:, 1:].T)]
        parquet.write_table(arrow.table(columns, names=["time", "lon", "lat", "event"]), source)
    elif moments != "seconds":
        texts = [str(s) if moments == "iso" else s.item().strftime("%m/%d/%Y %H:%M:%S") for s in stamps]
        lines = [f"{text},{x!r},{y!r},{e}" for text, (_, x, y, e) in zip(texts, rows, strict=True)]
        source.write_text("\n".join(["time,lon,lat,event", *lines]))
    result = synthesize(source, "--every", 2500, "--format", "npy", batch=None)
    assert result.exit_code == 0, result.output
    for k, points in enumerate(library(events, cuts)):
        np.testing.assert_array_equal(read(tmp_path / "out" / f"batch_00{k}.npy"), points)


def test_moments_between_tabs_and_by_number(synthesize, tmp_path):
    source = tmp_path / "in.txt"
    rows = ["2014-04-01T00:11:00\t1\t2", "", "2014-04-01 00:12:00\t2\t2", "2014-04-01T02:12:00\t2\t2"]
    source.write_text("\n".join(["when, UTC\tmy x\tmy y", *rows]))
    result = synthesize(source, "--every", 3600, "--x", "my x", "--y", 2, "--time", 0, batch=None)
    # The blank line is a missing value: how many rows there are is public, so none may silently go.
    assert "column 'my x': 1 of 4 rows are missing" in result.stderr
    source.write_text("\n".join(["when\tx, my own\tmy y", *filter(None, rows)]))
    result = synthesize(source, "--every", 3600, "--x", "x, my own", "--y", 2, "--time", 0, batch=None)
    assert result.exit_code == 0, result.output
    assert len(list((tmp_path / "out").iterdir())) == 3
    assert (tmp_path / "out" / "batch_000.csv").read_text().startswith('"x, my own",my y\n')


def test_disorder_is_refused_or_sorted(write_events, synthesize, complaint, events, tmp_path):
    table = events[np.random.default_rng(1).permutation(N)]
    source = write_events(table=table)
    assert "is earlier than the one before it; expected the order of time, or --sort" in complaint(
        synthesize(source, "--every", 2500, batch=None)
    )
    assert synthesize(source, "--sort", "--format", "npy", batch=N).exit_code == 0
    ordered = table[np.argsort(table[:, 0], kind="stable")]
    np.testing.assert_array_equal(read(tmp_path / "out" / "batch_000.npy"), library(ordered, [0, N])[0])


def test_points_outside_are_counted_or_clipped(write_events, synthesize, complaint, events, tmp_path):
    table = events.copy()
    table[[5, 800], 1] = [11.5, -1.25]
    source = write_events(table=table)
    said = complaint(synthesize(source))
    assert f"2 of {N:,} points are outside the box" in said
    assert "11.5" not in said
    assert not (tmp_path / "out").exists()
    assert synthesize(source, "--clip", "--format", "npy", batch=N).exit_code == 0
    np.testing.assert_array_equal(read(tmp_path / "out" / "batch_000.npy"), library(table, [0, N], outside="clip")[0])


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


def test_an_interrupt_leaves_whole_files(write_events, synthesize, events, monkeypatch, tmp_path):
    advance, steps = PHDStream.advance, []

    def interrupted(self, added, removed=None):
        steps.append(len(added))
        if len(steps) == 3:
            raise KeyboardInterrupt
        advance(self, added, removed)

    monkeypatch.setattr(PHDStream, "advance", interrupted)
    assert synthesize(write_events(), "--format", "npy").exit_code == 1
    monkeypatch.undo()
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == ["batch_000.npy", "batch_001.npy"]
    for file, wanted in zip(files, library(events, [0, 300, 600]), strict=True):
        np.testing.assert_array_equal(read(file), wanted)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch", "0"], "0 is not in the range"),
        (["--every", "60"], "exactly one of --batch and --every"),
        (["--key-file", "k", "--seed", "1"], "exclude each other"),
        (["--box", "0", "0", "1"], "Invalid value for '--box'"),
        (["--method", "adaptive", "--counter", "block"], "--counter does not apply to --method adaptive."),
        (["--period", "3"], "--period does not apply to --method phdstream."),
    ],
)
def test_usage_errors(arguments, said, write_events, synthesize):
    result = synthesize(write_events(), *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--epsilon", "-1"], "epsilon = -1.0: expected a number above 0"),
        (["--box", "0", "0", "0", "5"], "expected numbers above lower"),
        (["--max-depth", "99"], "max_depth"),
        (["--sensitivity", "0"], "sensitivity = 0"),
        (["--initial", "1"], "initial = 1.0: expected a number of at least 0 and below 1"),
        (["--x", "place"], "has no such column"),
        (["--key-file", "nowhere"], "No such file or directory"),
    ],
)
def test_parameters_are_refused(arguments, said, write_events, synthesize, complaint, tmp_path):
    assert said in complaint(synthesize(write_events(), *arguments))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("names", "row", "cell", "said"),
    [
        ("time,lon,lat,event", 7, "nan,1,1", "column 'lon': 1 of 1,234 rows are missing, NaN or infinite"),
        ("time,lon,lat,event", 7, "secret,1,1", "line 9, column 'lon': not a number"),
        ("time,lon,lat,event", 7, "1,1,2", "neither 1 (a point appears) nor -1"),
        ("time,lon,lat,event", 7, "1,1,0", "neither 1 (a point appears) nor -1"),
        (
            "time,a,b,event",
            7,
            "1,1,1",
            "has the columns 'time' (0), 'a' (1), 'b' (2), 'event' (3): expected 'x' or 'lon'",
        ),
    ],
)
def test_bad_rows_are_named_but_not_shown(names, row, cell, said, write_events, synthesize, complaint, tmp_path):
    source = write_events(names=names)
    lines = source.read_text().splitlines()
    lines[row + 1] = f"1,{cell}"
    source.write_text("\n".join(lines))
    complained = complaint(synthesize(source))
    assert said in complained
    assert "secret" not in complained
    assert not (tmp_path / "out").exists()


def test_times_that_are_none(write_events, synthesize, complaint):
    source = write_events()
    source.write_text(source.read_text().replace("\n", "\nsoon,1,1,1\n", 1))
    said = complaint(synthesize(source, "--every", 60, batch=None))
    assert "line 2, column 'time': not a time; expected seconds, or moments such as" in said
    assert "soon" not in said


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
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
def test_bad_files(name, content, said, synthesize, complaint, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert said in complaint(synthesize(name if name == "-" else tmp_path / name))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("moment", ["4/2/2014 0:12:00", "1396311060"])
def test_times_have_one_notation(moment, synthesize, complaint, tmp_path):
    rows = ["time,x,y", *["2014-04-01T00:11:00,1,2"] * 2, f"{moment},1,2"]
    (tmp_path / "in.csv").write_text("\n".join(rows))
    said = complaint(synthesize(tmp_path / "in.csv", "--every", 60, batch=None))
    assert "line 4, column 'time': not a time" in said
    assert moment not in said


def test_moments_in_parquet_are_times_and_never_missing(synthesize, complaint, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    moments = np.array(["2014-04-01T00:11:00", "NaT"], "datetime64[us]")
    pq.write_table(pa.table({"time": moments, "lon": [1.0, 2.0], "lat": [3.0, 4.0]}), tmp_path / "in.parquet")
    start = partial(synthesize, tmp_path / "in.parquet", "--every", 60, batch=None)
    assert "column 'time': 1 of 2 rows are missing" in complaint(start())
    assert "column 'time': holds timestamp entries; expected real numbers" in complaint(start("--x", "time"))


def test_a_damaged_page_of_moments(synthesize, complaint, tmp_path):
    """Found by fuzzing: Arrow's error came through in several lines."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    moments = np.array(["2014-04-01T00:11:00", "2014-04-02"], "datetime64[us]")
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"time": moments, "lon": [1.0, 2.0], "lat": [3.0, 4.0]}), path)
    raw = path.read_bytes()
    path.write_bytes(raw[:4] + bytes(24) + raw[28:])
    assert "not a readable Parquet file, or damaged" in complaint(synthesize(path, "--every", 60, batch=None))


def test_outputs_that_cannot_be(write_events, synthesize, complaint, tmp_path):
    (tmp_path / "file").write_text("precious")
    assert "is a file; expected a folder" in complaint(synthesize(write_events(), folder="file"))
    assert "there is no folder" in complaint(synthesize(write_events(), folder="no/out"))
    assert (tmp_path / "file").read_text() == "precious"
