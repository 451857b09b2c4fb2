"""Files of real data sets, and streams of points that appear and disappear, cut into batches.

Coordinates are x = longitude and y = latitude, in degrees.  Boxes are fixed here, not taken from the data, which
would tell something about them; points outside are left out, as the paper does.  Files end in .csv, .txt or either
with .gz. Options of the loaders:

* ``batch`` or ``period``: events in a batch (the last one may have fewer), or its length in seconds, counted from the
  first event; batches may be empty;
* ``initial``: share of the events before the first batch, in [0, 1), the paper's t0: rounded down to whole events, or
  up to whole periods;
* ``box``: south-west and north-east corner.

Events are sorted by time.
"""

from __future__ import annotations

import gzip
import zlib
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastdp import Csv, validation
from fastdp.data.column import entry_at
from fastdp.data.events import Events, open_events
from fastdp.data.source import open_source
from fastdp.errors import DataError, FastDPError, ParameterError
from fastdp.kinds import Array, Floats, Integers
from fastdp.points.batches import Batch, Cuts
from fastdp.points.domains import as_box, as_corners, as_points

#: Columns of numbers, in file order.
Table = dict[str, Floats]
#: Longitude and latitude of the whole Earth, of the five boroughs of New York, and the square around the circles.
EARTH = ((-180.0, -90.0), (180.0, 90.0))
NEW_YORK = ((-74.3, 40.45), (-73.65, 40.95))
CIRCLES = ((-1.25, -1.25), (1.25, 1.25))
DAY = 86_400.0

#: Columns of SNAP's files, which have no heading: user, time, latitude, longitude, place.
SNAP = {"x": "3", "y": "2", "time": "1"}
#: Times of events, as files have them.
NOTATIONS: tuple[dict[str, Any], ...] = ({}, {"unit": "s"}, {"format": "%m/%d/%Y %H:%M:%S"})


@validation.plain
def load_gowalla(
    path: str | Path,
    *,
    deletion: bool = False,
    lifetime: float = 30 * DAY,
    batch: int | None = None,
    period: float | None = None,
    initial: float = 0.0,
    box: tuple[ArrayLike, ArrayLike] = EARTH,
) -> PointStream:
    """Gowalla check-ins (PHDStream section 5.1 and Appendix G).

    Parameters
    ----------
    path : str or Path
        SNAP's file, tab-separated without header (user, check-in time, latitude, longitude, location id), or any with
        a header that :func:`load_pickups` accepts.
    deletion, lifetime
        Whether each check-in is taken back when its lifetime in seconds is over, 30 days in the paper.  One whose
        lifetime ends after the last check-in stays.
    batch, period, initial, box
        See the module.  The paper: a day, about 200,000 points; for its initialisation times after 100 or 150 days
        call :meth:`PointStream.starting_at`.
    """
    moments, places = _in_box(*_read_all([path], SNAP), box)
    name, cancels = "Gowalla", np.full(moments.size, -1)
    if deletion:
        moments, places, cancels = with_removals(moments, places, validation.positive("lifetime", lifetime))
        name = "Gowalla with deletion"
    return cut_events(name, *box, places, cancels=cancels, times=moments, batch=batch, period=period, initial=initial)


def load_pickups(
    path: str | Path | Sequence[str | Path],
    *,
    batch: int | None = None,
    period: float | None = None,
    initial: float = 0.0,
    box: tuple[ArrayLike, ArrayLike] = NEW_YORK,
) -> PointStream:
    """Pickups of New York taxis or hired cars: places and times where rides begin (section 5.1).

    Parameters
    ----------
    path : str, Path or a sequence of these
        Comma-separated with a header; several files make one stream.  Columns are found by name, in any case: time
        ``t`` (seconds since 1970), ``Date/Time``, ``pickup_datetime``, ``tpep_pickup_datetime`` and the like; place
        ``Lat``, ``Lon``, ``pickup_latitude``, ``Start_Lat`` and the like: those of Uber's files of 2014, of the Taxi
        and Limousine Commission's up to June 2016 (later ones have zones) and of Donovan and Work's.
    batch, period, initial, box
        See the module.  The paper: six hours, about 100,000 points.
    """
    paths: list[Any] = list(path) if isinstance(path, (list, tuple)) else [path]
    if not all(isinstance(each, (str, Path)) for each in paths):
        raise ParameterError(f"path = {validation.shown(path)}: expected the path of a file, or a list of paths")
    moments, places = _in_box(*_read_all(paths, None), box)
    return cut_events("pickups", *box, places, times=moments, batch=batch, period=period, initial=initial)


@validation.plain
def load_circles(
    path: str | Path, *, batch: int | None = 500, initial: float = 0.1, box: tuple[ArrayLike, ArrayLike] = CIRCLES
) -> PointStream:
    """Concentric circles from a file, as the paper's authors published them.

    Parameters
    ----------
    path : str or Path
        Comma-separated with the columns x, y, move, in event order: 1 adds a point, -1 removes the earliest one at
        the same place.
    batch, initial, box
        See the module; points outside the box are an error.
    """
    events = open_events(_existing(path), "x", "y", event="move").read()
    places, cancels = events.points, np.full(len(events.points), -1)
    there: dict[Any, deque[int]] = defaultdict(deque)
    for i, (place, addition) in enumerate(zip(map(tuple, places.tolist()), events.additions, strict=True)):
        if addition:
            there[place].append(i)
        elif there[place]:
            cancels[i] = there[place].popleft()
        else:
            raise DataError(f"{path}, row {i + 1}: wrong move; expected -1 at the place of a point that is there")
    name = "circles with deletion" if np.any(cancels >= 0) else "circles"
    return cut_events(name, *as_box("box", box), places, cancels=cancels, batch=batch, initial=initial)


def _read_all(paths: Sequence[str | Path], unnamed: dict[str, str] | None) -> tuple[Floats, Floats]:
    """Times float64[n] in seconds since 1970 and places float64[n, 2] of all files, ascending in time.

    ``unnamed`` has the columns of a file without a heading.
    """
    parts = [(np.empty(0), np.empty((0, 2)))]
    for k, path in enumerate(paths):
        file = _existing(path, f"path[{k}]" if len(paths) > 1 else "path")
        try:
            events = _read_events(file, {})
        except FastDPError:
            if unnamed is None:
                raise
            events = _read_events(Csv(file, header=False), unnamed)
        times = np.empty(0) if events.times is None else events.times / 1e6
        parts.append((times, events.points))
    times, places = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(times, kind="stable")
    return times[order], places[order]


def _read_events(source: Any, columns: dict[str, Any]) -> Events:
    errors = []
    for notation in NOTATIONS:
        try:
            return open_events(source, **columns, timed=True, **notation).read()
        except FastDPError as error:
            errors.append(error)
    raise errors[0]


def _existing(path: str | Path, name: str = "path") -> str:
    """The path as text; FileNotFoundError if there is no such file, by place in a list, which may be a column."""
    text = validation.path(name, path)
    if not Path(text).exists():
        raise FileNotFoundError(f"{f'path = {text!r}' if name == 'path' else name}: there is no such file")
    return text


def seeded(seed: int | None) -> np.random.Generator:
    """A generator: for equal seeds an equal one."""
    return np.random.default_rng(None if seed is None else validation.integer("seed", seed, 0))


def _in_box(moments: Floats, places: Floats, box: Any) -> tuple[Floats, Floats]:
    low, high = as_box("box", box)
    kept = np.all((places >= low) & (places <= high), axis=1)
    return moments[kept], places[kept]


def with_removals(moments: Floats, places: Floats, lifetime: float) -> tuple[Floats, Floats, Integers]:
    """Times, points and cancels of additions, and of removals a lifetime later; at equal times removals come first.

    A point whose lifetime ends after the last addition stays.
    """
    ended = np.flatnonzero(moments + lifetime <= moments[-1:])
    times, source = np.concatenate([moments[ended] + lifetime, moments]), np.append(ended, np.arange(moments.size))
    order = np.argsort(times, kind="stable")
    # The inverse of an order says where each event went.
    cancels = np.append(np.argsort(order)[ended.size + ended], np.full(moments.size, -1))
    return times[order], places[source[order]], cancels[order]


def transaction_lengths(path: Path) -> Table:
    """Items per transaction of a file with one transaction a line (FIMI): "values".

    Items are whole numbers separated by spaces or commas; a comma at the end is ignored.
    """
    lengths, opened = [], gzip.open if path.suffix == ".gz" else open
    try:
        # Bytes that are no text are no number either.
        with opened(path, "rt", encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                items = line.replace(",", " ").split()
                if not all(item.isdigit() for item in items):
                    raise DataError(f"{path}, line {number}: expected whole numbers separated by spaces or commas")
                if line.strip():
                    lengths.append(len(items))
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataError(f"{path}: not a gzip file, or damaged") from None
    return {"values": np.array(lengths, np.float64)}


def trip_columns(path: Path) -> Table:
    """Distances in 0.01 mile and fares in cents of a Parquet file of New York taxi trips, in order of pickup.

    Trips without one of the two, or with a negative one, are left out.
    """
    names = ["tpep_pickup_datetime", "trip_distance", "fare_amount"]
    try:
        table = open_source(path, names).table()
        moments, distance, fare = (
            table.column(name).cast(kind)
            for name, kind in zip(names, ("timestamp[us]", *["float64"] * 2), strict=True)
        )
    except ValueError:
        raise DataError(
            f"{path}: expected a Parquet file with moments in {names[0]} and numbers in {names[1]}, {names[2]}"
        ) from None
    order = np.argsort(moments.to_numpy(), kind="stable")
    distance, fare = (np.rint(100.0 * column.to_numpy()[order]) for column in (distance, fare))
    kept = (distance >= 0.0) & (fare >= 0.0)
    return {"distance": distance[kept], "fare": fare[kept]}


def check_ins(path: Path) -> Table:
    """Check-ins of SNAP's location networks, in order of time: "t" in seconds since 1970, "lat" and "lon"."""
    moments, places = _read_all([path], SNAP)
    return {"t": moments, "lat": places[:, 1], "lon": places[:, 0]}


@dataclass(frozen=True)
class PointStream:
    """Events (additions and removals of points) in order, and where the batches begin.

    Made by :func:`cut_events`.

    Parameters
    ----------
    name : str
        For tables and pictures.
    lower, upper : float64[d]
        A public box that holds all points.
    points : float64[n, d]
        The point of each event.
    cancels : int64[n]
        -1 for an addition; for a removal the number of the earlier addition that it takes back.
    times : float64[n]
        When events happen, ascending: seconds since 1970 for real data, else the events' numbers.
    cuts : int64[T + 1]
        Events before cuts[0] make up the initial set; batch t, counted from 1, is cuts[t - 1] to cuts[t].
    """

    name: str
    lower: Floats
    upper: Floats
    points: Floats
    cancels: Integers
    times: Floats
    cuts: Integers

    def __repr__(self) -> str:
        return f"PointStream({self.name!r}: {len(self.points)} events, {self.n_steps} batches)"

    @property
    def n_steps(self) -> int:
        """Number of batches after the initial set."""
        return len(self.cuts) - 1

    @property
    def initial(self) -> Floats:
        """Points present before the first batch, float64[m, d]: PHDStream's first step (section 5.2)."""
        return self.present(0)

    @property
    def batches(self) -> Iterator[Batch]:
        """Batches in turn: points added, points removed, float64[., d] each; either may be empty."""
        for begin, end in zip(self.cuts[:-1], self.cuts[1:], strict=True):
            points, removal = self.points[begin:end], self.cancels[begin:end] >= 0
            yield points[~removal], points[removal]

    def present(self, t: int) -> Floats:
        """Points present after batch t, float64[m, d], in the order of their addition; t = 0 is the initial set.

        The truth that releases are compared with: for evaluation, never for release.
        """
        t = validation.integer("t", t, 0, self.n_steps)
        cancels = self.cancels[: self.cuts[t]]
        there = cancels < 0
        there[cancels[~there]] = False
        return self.points[: self.cuts[t]][there]

    def starting_at(self, t: int) -> PointStream:
        """The same events, with the first t batches in the initial set: the paper's initialisation time."""
        t = validation.integer("t", t, 0, self.n_steps)
        return replace(self, cuts=self.cuts[t:])


def cut_events(
    name: str,
    lower: ArrayLike,
    upper: ArrayLike,
    points: ArrayLike,
    *,
    cancels: ArrayLike | None = None,
    times: ArrayLike | None = None,
    batch: int | None = None,
    period: float | None = None,
    origin: float | None = None,
    initial: float = 0.0,
) -> PointStream:
    """Cut events into an initial set and batches.

    Parameters
    ----------
    name : str
        The stream's name.
    lower, upper : array-like[d]
        A public box that holds all points.
    points : array-like[n, d]
        The point of each event, in order.
    cancels, times : array-like[n], optional
        See :class:`PointStream`; by default all events are additions, and times the events' numbers.
    batch, period, initial
        See the module.
    origin : float, optional
        With ``period``: a public time from which periods are counted, forwards and backwards, in place of the first
        event, which otherwise moves all borders: no release of private points should let it do that.
    """
    low, high = as_corners(lower, upper)
    table = as_points(points, "points", low.size)
    n = table.shape[0]
    outside = np.any((table < low) | (table > high), axis=1)
    if outside.any():
        raise DataError(
            f"{entry_at('points', outside, 'a point outside the box')}; expected points from {low} to {high}"
        )
    taken = np.full(n, -1) if cancels is None else _converted(cancels, np.int64)
    _check_removals(taken, table)
    moments = np.arange(n, dtype=np.float64) if times is None else _converted(times, np.float64)
    if moments.shape != (n,) or not np.all(np.isfinite(moments)) or np.any(np.diff(moments) < 0):
        raise DataError(f"times of {name}: expected {n} finite numbers that do not descend")
    size = batch if period is None else validation.positive("period", period)
    if size is None or (batch is not None and period is not None):
        raise ParameterError("batch, period: expected exactly one of the two")
    return PointStream(name, low, high, table, taken, moments, Cuts(size, initial).of(moments, origin))


def _converted(values: ArrayLike, dtype: type[Any]) -> Array:
    """A copy as numbers of a type, empty where that fails: NumPy's error would quote an entry."""
    try:
        with np.errstate(invalid="ignore"):
            return np.array(values, dtype=dtype)
    except Exception:  # whatever a foreign __array__ raises
        return np.empty((0, 0), dtype)


def _check_removals(cancels: Integers, points: Floats) -> None:
    removals = np.flatnonzero(cancels >= 0)
    if cancels.shape != (len(points),) or np.any(cancels < -1) or np.any(cancels[removals] >= removals):
        raise DataError(f"cancels: expected {len(points)} whole numbers, -1 or the number of an earlier event")
    targets = cancels[removals]
    if np.any(cancels[targets] >= 0) or np.unique(targets).size < targets.size:
        raise DataError("cancels: expected each removal to take back an addition of its own")
    if not np.array_equal(points[targets], points[removals]):
        raise DataError("points: expected a removal at the place of the addition that it takes back")
