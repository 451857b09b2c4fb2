"""Data sets: synthetic values, streams of points equal to a list kept by hand, and files in every accepted form."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import itertools
import threading
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdp.errors import DataError, FastDPError, ParameterError
from fastdp_lab.datasets import (
    CATALOGUE,
    TABLE1,
    PointStream,
    catalogue,
    concentric_circles,
    cut_events,
    dns_like_day,
    extend_by_reflection,
    fetch,
    hold_out_and_extend,
    load_circles,
    load_gowalla,
    load_pickups,
    parse,
    table1,
)


def keep_by_hand(stream: PointStream) -> None:
    """Play the batches on a plain list of points and compare with ``present``."""
    there = sorted(map(tuple, stream.initial.tolist()))
    for t, (added, removed) in enumerate(stream.batches, start=1):
        there += map(tuple, added.tolist())
        for point in map(tuple, removed.tolist()):
            there.remove(point)
        if t % 7 == 0 or t == stream.n_steps:
            assert sorted(there) == sorted(map(tuple, stream.present(t).tolist()))


@given(st.integers(0, 60), st.integers(1, 20), st.floats(0, 0.99), st.integers(0, 2**32 - 1))
def test_any_stream_is_true_to_its_events(n: int, batch: int, initial: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    points, cancels, free = generator.random((n, 2)), np.full(n, -1), []
    for i in range(n):
        if free and generator.random() < 0.4:
            cancels[i] = free.pop(int(generator.integers(len(free))))
            points[i] = points[cancels[i]]
        else:
            free.append(i)
    stream = cut_events("any", [0, 0], [1, 1], points, cancels=cancels, batch=batch, initial=initial)
    sizes = [len(added) + len(removed) for added, removed in stream.batches]
    assert sum(sizes) == n - int(initial * n)
    assert all(size == batch for size in sizes[:-1])
    assert len(sizes) == stream.n_steps
    keep_by_hand(stream)
    if stream.n_steps:
        later = stream.starting_at(1)
        assert np.array_equal(later.initial, stream.present(1))
        assert later.n_steps == stream.n_steps - 1


def test_periods() -> None:
    points = np.arange(6.0)[:, None]
    times = [10, 11, 12, 35, 36, 50]
    stream = cut_events("p", [0], [9], points, times=times, period=10)
    # 10 to 20, 20 to 30, 30 to 40, 40 to 50, 50 to 60.
    assert [added.ravel().tolist() for added, _ in stream.batches] == [[0, 1, 2], [], [3, 4], [], [5]]
    assert stream.initial.shape == (0, 1)
    # Half of the events, rounded up to whole periods.
    assert len(cut_events("p", [0], [9], points, times=times, period=10, initial=0.6).initial) == 3
    assert len(cut_events("p", [0], [9], points, times=times, period=10, initial=0.7).initial) == 5
    assert cut_events("p", [0], [9], np.empty((0, 1)), period=10).n_steps == 0


@given(
    st.lists(st.floats(-100, 100), min_size=2, max_size=12),
    st.floats(0.1, 50),
    st.sampled_from([0.0, -3.7, 1e4]),
    st.data(),
)
def test_no_event_moves_a_border_that_an_origin_sets(
    drawn: list[float], period: float, origin: float, data: st.DataObject
) -> None:
    times = np.sort(np.array(drawn))
    left_out = data.draw(st.integers(0, times.size - 1))

    def companions(kept: np.ndarray) -> set[frozenset[int]]:
        """Numbers of events that share a batch."""
        places = np.flatnonzero(kept)
        points = np.zeros((places.size, 1))
        cut = cut_events("p", [0], [9], points, times=times[kept], period=period, origin=origin)
        assert cut.cuts[0] == 0
        return {frozenset(places[a:b].tolist()) for a, b in itertools.pairwise(cut.cuts)} - {frozenset()}

    everybody = np.ones(times.size, bool)
    one_less = everybody.copy()
    one_less[left_out] = False
    before = {frozenset(batch - {left_out}) for batch in companions(everybody)} - {frozenset()}
    assert companions(one_less) == before


EVENTS = {"name": "e", "lower": [0], "upper": [9], "points": [[1.0], [2.0], [1.0]], "batch": 1}


def test_circles_with_deletion() -> None:
    stream = concentric_circles(seed=1)
    assert (len(stream.points), stream.n_steps, len(stream.initial)) == (75_000, 135, 7_500)
    radii = np.hypot(*stream.points.T)
    outer = np.abs(radii - 1) < np.abs(radii - 0.667)
    addition = stream.cancels < 0
    assert outer[:25_000].mean() > 0.995
    assert addition[:25_000].all()
    assert np.array_equal(stream.points[25_000::2], stream.points[:25_000])
    assert np.array_equal(stream.cancels[25_000::2], np.arange(25_000))
    assert outer[25_001::2].mean() < 0.005
    assert addition[25_001::2].all()
    shares = [np.mean(np.hypot(*stream.present(t).T) > 0.83) for t in (0, 34, 85, 135)]
    assert min(shares[:2]) > 0.99
    assert 0.4 < shares[2] < 0.6
    assert shares[3] < 0.01
    assert len(stream.present(stream.n_steps)) == 25_000


SNAP = (
    "0\t2010-10-19T23:55:27Z\t30.2359091167\t-97.7951395833\t22847\n"
    "0\t2010-10-18T22:17:43Z\t30.2691029532\t-97.7493953705\t420315\n"
    "1\t2010-11-17T23:42:03Z\t400.5\t-97.7\t5\n"
    "\n"
    "1\t2010-11-18T22:17:43Z\t51.5\t-0.1\t6\n"
)


@pytest.fixture
def snap(tmp_path: Path) -> Path:
    path = tmp_path / "check-ins.txt.gz"
    path.write_bytes(gzip.compress(SNAP.encode()))
    return path


def test_gowalla_in_snaps_form(snap: Path) -> None:
    stream = load_gowalla(snap, batch=2)
    # Sorted; the impossible latitude is left out.
    assert stream.points.tolist() == [[-97.7493953705, 30.2691029532], [-97.7951395833, 30.2359091167], [-0.1, 51.5]]
    assert stream.times[0] == 1287440263.0
    assert stream.cancels.tolist() == [-1] * 3
    assert len(load_gowalla(snap, batch=1, box=([-98, 30], [-97, 31])).points) == 2


def test_gowalla_with_deletion(snap: Path) -> None:
    stream = load_gowalla(snap, deletion=True, period=86_400.0)
    # 18 October + 30 days = 17 November 22:17:43; 19 October + 30 days is after the last check-in.
    assert stream.cancels.tolist() == [-1, -1, 0, -1]
    assert stream.times[2] - stream.times[0] == 30 * 86_400
    assert stream.n_steps == 32
    assert [len(stream.present(t)) for t in (1, 2, 30, 31, 32)] == [1, 2, 2, 1, 2]
    keep_by_hand(stream)
    # Where a removal and an addition fall together, the removal comes first.
    together = load_gowalla(snap, deletion=True, lifetime=31 * 86_400.0, period=86_400.0)
    assert together.cancels.tolist() == [-1, -1, 0, -1]
    assert together.times[2] == together.times[3]


PICKUPS = {
    "sample": "t,lat,lon\n1396311060,40.769,-73.9549\n1396311420,40.7267,-74.0345\n",
    "uber": '"Date/Time","Lat","Lon","Base"\n"4/1/2014 0:11:00",40.769,-73.9549,"B02512"\n'
    '"4/1/2014 0:17:00",40.7267,-74.0345,"B02512"\n',
    "tlc": "vendor_id, pickup_datetime, dropoff_datetime, pickup_longitude, pickup_latitude\n"
    "VTS,2014-04-01 00:11:00,2014-04-01 00:20:00,-73.9549,40.769\n"
    "VTS,2014-04-01 00:12:00,2014-04-01 00:20:00,0,0\n"
    "VTS,2014-04-01 00:17:00,2014-04-01 00:20:00,-74.0345,40.7267\n",
    "green": "\ufefflpep_pickup_datetime,Pickup_longitude,Pickup_latitude\r\n2014-04-01 00:11:00,-73.9549,40.769\r\n"
    "2014-04-01 00:17:00,-74.0345,40.7267\r\n",
}


@pytest.mark.parametrize("form", PICKUPS)
def test_pickups_in_every_form(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pickups.csv"
    path.write_text(PICKUPS[form], encoding="utf-8")
    # Times without a zone do not depend on the machine's.
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        stream = load_pickups(path, batch=1)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert stream.points.tolist() == [[-73.9549, 40.769], [-74.0345, 40.7267]]
    assert stream.times.tolist() == [1396311060, 1396311420]
    twice = load_pickups([path, str(path)], batch=1)
    assert twice.points[:, 1].tolist() == [40.769, 40.769, 40.7267, 40.7267]
    path.write_text("t,lat,lon\n")
    assert load_pickups(path, period=60.0).n_steps == load_pickups([], batch=1).n_steps == 0
    assert load_gowalla(path, batch=1, deletion=True).initial.shape == (0, 2)


def test_circles_file(tmp_path: Path) -> None:
    path = tmp_path / "circles.csv"
    path.write_text("x,y,move,label\n0.5,0.5,1.0,\n0.5,0.5,1.0,\n0.5,0.5,-1.0,\n0.1,0.2,1.0,1.0\n")
    stream = load_circles(path, batch=2, initial=0.0)
    assert stream.cancels.tolist() == [-1, -1, 0, -1]
    keep_by_hand(stream)
    for rows in ("0.5,0.5,-1.0,", "0.5,0.5,1,\n0.5,0.5,-1,\n0.5,0.5,-1,", "0.5,0.5,2,"):
        path.write_text(f"x,y,move,label\n{rows}\n")
        with pytest.raises(DataError, match="move"):
            load_circles(path)


def test_trips_in_order_of_pickup(tmp_path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="trips are Parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "yellow_tripdata_2019-01.parquet"
    times = [datetime(2019, 1, 1, hour) for hour in (9, 7, 8, 6)]
    table = arrow.table(
        {
            "tpep_pickup_datetime": arrow.array(times, arrow.timestamp("us")),
            "trip_distance": [1.5, 0.29, 3.0, 2.0],
            "fare_amount": [7.0, 3.5, -1.0, 52.0],
        }
    )
    parquet.write_table(table, path)
    found = parse("taxi", path)
    assert found["distance"].tolist() == [200, 29, 150]
    assert found["fare"].tolist() == [5200, 350, 700]
    parquet.write_table(table.drop_columns(["tpep_pickup_datetime"]), path)
    with pytest.raises(DataError, match="expected a Parquet file with moments in tpep_pickup_datetime"):
        parse("taxi", path)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Kosarak's file on a server of this machine."""
    pytest.importorskip("pooch", reason="pooch is not installed (pip install 'fastdp-streams[lab]')")
    content = gzip.compress(b"1 2\n3\n")
    served = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    url = f"http://127.0.0.1:{server.server_port}/data/kosarak.dat.gz"
    monkeypatch.setitem(
        CATALOGUE, "kosarak", replace(CATALOGUE["kosarak"], url=url, sha256=hashlib.sha256(content).hexdigest())
    )
    yield served
    server.shutdown()
    server.server_close()


def test_a_download_is_kept_and_compared_with_the_first(home, tmp_path) -> None:
    path = fetch("kosarak", tmp_path)
    assert path == tmp_path / "kosarak.dat.gz"
    assert catalogue.load("kosarak", folder=tmp_path).tolist() == [2, 1]
    assert fetch("kosarak", tmp_path) == path
    assert len(home) == 1
    path.write_bytes(b"something else")
    with pytest.raises(DataError, match="expected the same file"):
        fetch("kosarak", tmp_path)


def test_a_download_without_encryption_needs_a_known_digest(home, tmp_path, monkeypatch) -> None:
    for sha256, words in ((None, "not encrypted and no SHA-256 of it is known"), ("0" * 64, "no download \\(")):
        monkeypatch.setitem(CATALOGUE, "kosarak", replace(CATALOGUE["kosarak"], sha256=sha256))
        with pytest.raises(DataError, match=words) as found:
            fetch("kosarak", tmp_path)
        assert str(found.value).endswith(f"put it at {tmp_path / 'kosarak.dat.gz'}")
        assert not (tmp_path / "kosarak.dat.gz").exists()
    assert len(home) == 1


N = 200_000


@pytest.mark.parametrize("order", ["iid", "diurnal", "bursty", "drifting"])
@pytest.mark.parametrize("stream", list(TABLE1))
def test_quantiles_and_mean_of_table_1(stream, order) -> None:
    row = TABLE1[stream]
    values = table1(stream, n=N, order=order)
    assert values.dtype == np.int64
    np.testing.assert_array_equal(np.quantile(values, (0.85, 0.95, 0.995, 1.0)), row.quantiles)
    assert values.mean() == pytest.approx(row.mean, rel=0.01)
    assert values.min() >= row.least
    assert values.max() <= row.bound


def _correlation(values, lag: int) -> float:
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return float(np.corrcoef(ranks[:-lag], ranks[lag:])[0, 1])


def test_orders_have_their_course_over_time() -> None:
    streams = {order: table1("dns", n=N, order=order) for order in ("iid", "diurnal", "bursty", "drifting")}
    day = N // 14
    assert abs(_correlation(streams["iid"], 1)) < 0.01
    assert _correlation(streams["diurnal"], day) > 0.2
    assert _correlation(streams["diurnal"], day // 2) < -0.2
    assert _correlation(streams["bursty"], 1) > 0.1
    assert abs(_correlation(streams["bursty"], 20_000)) < 0.03
    tenths = streams["drifting"].reshape(10, -1).mean(axis=1)
    assert np.all(np.diff(tenths) > 0.0)
    assert tenths[-1] > 1.5 * tenths[0]
    sorted_once = np.sort(streams["iid"])
    assert all(np.array_equal(np.sort(each), sorted_once) for each in streams.values())


@pytest.mark.parametrize(
    ("error", "changes", "message"),
    [
        (DataError, {"points": [[1.0], [10.0]]}, r"points\[1\]"),
        (DataError, {"points": [[1.0, 2.0]]}, "points"),
        (DataError, {"cancels": [-1, -1]}, "cancels"),
        (DataError, {"cancels": [-1, -1, 2]}, "cancels"),
        (DataError, {"cancels": [-1, -1, -2]}, "cancels"),
        (DataError, {"cancels": [-1, -1, 1]}, "place of the addition"),
        (DataError, {"points": [[1.0]] * 3, "cancels": [-1, 0, 0]}, "addition of its own"),
        (DataError, {"points": [[1.0]] * 3, "cancels": [-1, 0, 1]}, "addition of its own"),
        (DataError, {"times": [1, 3, 2]}, "times"),
        (DataError, {"times": [1, 2]}, "times"),
        (DataError, {"times": [1, 2, np.nan]}, "times"),
        (ParameterError, {"batch": 0}, "batch"),
        (ParameterError, {"batch": None}, "batch, period"),
        (ParameterError, {"period": 1.0}, "batch, period"),
        (ParameterError, {"batch": None, "period": 1e-9}, "period"),
        (ParameterError, {"initial": 1.0}, "initial"),
        (ParameterError, {"upper": [0]}, "lower, upper"),
    ],
)
def test_bad_events_and_cuts_are_named(error: type, changes: dict, message: str) -> None:
    with pytest.raises(error, match=message):
        cut_events(**(EVENTS | changes))
    stream = cut_events(**EVENTS)
    for call in (stream.present, stream.starting_at):
        with pytest.raises(ParameterError, match="t = 4"):
            call(4)


CHECK_INS = b"0\t2010-10-19T23:55:27Z\t30.5\t-97.75\t22847\n7\t2009-03-21T00:00:00Z\t-1.5\t2.25\t1"


@pytest.mark.parametrize(
    ("name", "file", "content", "columns", "broken", "said"),
    [
        (
            "kosarak",
            "kosarak.dat.gz",
            b"1 2 3\n1 \n4 5 6 7\n\n8\n",
            {"values": [3, 1, 4, 1]},
            b"1 x\n",
            "whole numbers",
        ),
        ("pos", "BMS-POS.csv", b"1,2,3,\n5,\n5,6\n", {"values": [3, 1, 2]}, b"1,2\n3,x\n", "line 2: expected whole"),
        (
            "gowalla",
            "loc-gowalla_totalCheckins.txt.gz",
            CHECK_INS,
            {"t": [1237593600.0, 1287532527.0], "lat": [-1.5, 30.5], "lon": [2.25, -97.75]},
            b"0\tyesterday\t1\t2\t3\n",
            "an entry is no time",
        ),
    ],
)
def test_public_files_are_parsed(name, file, content, columns, broken, said, tmp_path) -> None:
    packed = gzip.compress if file.endswith("gz") else bytes
    (tmp_path / file).write_bytes(packed(content))
    assert {each: column.tolist() for each, column in parse(name, tmp_path / file).items()} == columns
    with pytest.raises(FastDPError, match="column = 'clicks': expected one of"):
        catalogue.load(name, "clicks", tmp_path)
    (tmp_path / file).write_bytes(packed(broken))
    with pytest.raises(DataError, match=said):
        parse(name, tmp_path / file)


def test_without_a_download_the_manual_way(tmp_path, monkeypatch) -> None:
    pytest.importorskip("pooch", reason="pooch is not installed (pip install 'fastdp-streams[lab]')")
    nowhere = replace(CATALOGUE["kosarak"], url="http://127.0.0.1:9/kosarak.dat.gz", sha256="0" * 64)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setitem(CATALOGUE, "kosarak", nowhere)
    for name, file, said in (
        ("kosarak", "kosarak.dat.gz", r"http://127.0.0.1:9/kosarak.dat.gz: no download \("),
        ("pos", "BMS-POS.csv", r"BMS-POS.csv: no download, since its terms .* ask for the file"),
    ):
        with pytest.raises(DataError, match=said) as found:
            fetch(name, tmp_path)
        assert str(found.value).endswith(f"and put it at {tmp_path / file}")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ParameterError, match="name = 'web': expected one of 'kosarak', 'pos'"):
        fetch("web")
    monkeypatch.setenv("FASTDP_DATA", str(tmp_path))
    assert catalogue.cache_folder() == tmp_path
    monkeypatch.delenv("FASTDP_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert catalogue.cache_folder() == tmp_path / "cache" / "fastdp"


def test_made_up_streams_are_reproducible_and_checked() -> None:
    assert table1("pos").size == 515_597
    assert np.array_equal(table1("pos", 1000, seed=1), table1("pos", 1000, seed=1))
    assert not np.array_equal(table1("pos", 1000, seed=1), table1("pos", 1000, seed=2))
    assert table1("pos", 1).tolist() == [165]
    for wrong, said in (
        (("dsn",), "stream = 'dsn'"),
        (("dns", 0), "n = 0"),
        (("dns", 5, "daily"), "order = 'daily'"),
    ):
        with pytest.raises(ParameterError, match=said):
            table1(*wrong)
    day = dns_like_day()
    assert (day.size, day.max()) == (2**20 + 65_536, 640)
    assert day.mean() == pytest.approx(38.0, abs=0.05)
    np.testing.assert_array_equal(np.quantile(day, [0.85, 0.95, 0.995]), [62, 86, 134])
    values = np.array([1.0, 2.0, 3.0])
    assert extend_by_reflection(values, 8).tolist() == [1, 2, 3, 3, 2, 1, 1, 2]
    assert hold_out_and_extend(values, 1, 5).tolist() == [1, 2, 3, 3, 2, 2]
    with pytest.raises(DataError, match="values is empty"):
        extend_by_reflection(values[:0], 3)
