"""Spatial streams: cut as asked, true to a list of points kept by hand; files in every accepted form."""

from __future__ import annotations

import gzip
import itertools
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdp.errors import DataError, ParameterError
from fastdp_lab.datasets import (
    SpatialStream,
    concentric_circles,
    cut_events,
    load_circles,
    load_gowalla,
    load_pickups,
)
from tests.shared import shared_file


def keep_by_hand(stream: SpatialStream) -> None:
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
    assert stream.has_deletions == bool((cancels >= 0).any())
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


def test_bad_events_are_named() -> None:
    for changes, message in (
        ({"points": [[1.0], [10.0]]}, r"points\[1\]"),
        ({"points": [[1.0, 2.0]]}, "points"),
        ({"cancels": [-1, -1]}, "cancels"),
        ({"cancels": [-1, -1, 2]}, "cancels"),
        ({"cancels": [-1, -1, -2]}, "cancels"),
        ({"cancels": [-1, -1, 1]}, "place of the addition"),
        ({"points": [[1.0]] * 3, "cancels": [-1, 0, 0]}, "addition of its own"),
        ({"points": [[1.0]] * 3, "cancels": [-1, 0, 1]}, "addition of its own"),
        ({"times": [1, 3, 2]}, "times"),
        ({"times": [1, 2]}, "times"),
        ({"times": [1, 2, np.nan]}, "times"),
    ):
        with pytest.raises(DataError, match=message):
            cut_events(**(EVENTS | changes))


def test_bad_cuts_are_named() -> None:
    for changes, message in (
        ({"batch": 0}, "batch"),
        ({"batch": None}, "batch, period"),
        ({"period": 1.0}, "batch, period"),
        ({"batch": None, "period": 0.0}, "period"),
        ({"batch": None, "period": 1e-9}, "period"),
        ({"initial": 1.0}, "initial"),
        ({"initial": -0.1}, "initial"),
        ({"upper": [0]}, "lower, upper"),
    ):
        with pytest.raises(ParameterError, match=message):
            cut_events(**(EVENTS | changes))


def test_steps_out_of_range() -> None:
    stream = cut_events(**EVENTS)
    for call in (stream.present, stream.starting_at):
        with pytest.raises(ParameterError, match="t = 4"):
            call(4)


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
    assert not stream.has_deletions
    with pytest.raises(DataError, match="entry 2"):
        load_gowalla(snap, batch=2, unsorted="raise")
    with pytest.raises(ParameterError, match="unsorted"):
        load_gowalla(snap, batch=2, unsorted="ignore")


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


def test_samples(snap: Path) -> None:
    assert len(load_gowalla(snap, batch=1, max_points=2, seed=1).points) == 2
    kept = {tuple(load_gowalla(snap, batch=1, max_points=1, seed=seed).points[0]) for seed in range(30)}
    assert len(kept) == 3
    assert len(load_gowalla(snap, batch=1, max_points=0).points) == 0
    assert len(load_gowalla(snap, batch=1, box=([-98, 30], [-97, 31])).points) == 2


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
def test_pickups_in_every_form(form: str, tmp_path: Path) -> None:
    path = tmp_path / "pickups.csv"
    path.write_text(PICKUPS[form], encoding="utf-8")
    stream = load_pickups(path, batch=1)
    assert stream.points.tolist() == [[-73.9549, 40.769], [-74.0345, 40.7267]]
    assert stream.times.tolist() == [1396311060, 1396311420]
    twice = load_pickups([path, str(path)], batch=1)
    assert twice.points[:, 1].tolist() == [40.769, 40.769, 40.7267, 40.7267]
    with pytest.raises(DataError, match=r"entry [34]"):
        load_pickups([path, path], batch=1, unsorted="raise")


def test_times_without_a_zone_do_not_depend_on_the_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pickups.csv"
    path.write_text(PICKUPS["uber"])
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert load_pickups(path, batch=1).times.tolist() == [1396311060, 1396311420]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_files_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("t,lat,lon\n")
    assert load_pickups(path, period=60.0).n_steps == 0
    assert load_gowalla(path, batch=1, deletion=True).initial.shape == (0, 2)
    assert load_pickups([], batch=1).n_steps == 0


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


def test_the_published_circles() -> None:
    """Sizes of the reference run: 7,490 points at t = 0 and 12,490 at t = 10."""
    stream = load_circles(shared_file("data/motion_circles_synthetic.csv.gz"))
    assert len(stream.points) == 74_907
    assert [len(stream.present(t)) for t in (0, 10, 20, 30, 50, 100)] == [7490, 12490, 17490, 22490, 24906, 24906]
    ours = concentric_circles(seed=6)
    for t in (0, 60, 134):
        theirs, made = (np.hypot(*s.present(t).T) for s in (stream, ours))
        assert np.median(theirs) == pytest.approx(np.median(made), abs=0.03)
        assert theirs.std() == pytest.approx(made.std(), rel=0.1)
