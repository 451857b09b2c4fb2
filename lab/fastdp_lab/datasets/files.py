"""Files of real data sets: transactions, taxi trips, Gowalla check-ins, New York pickups, circles.

Coordinates are x = longitude and y = latitude, in degrees.  The boxes are fixed here, not taken from the data, which
would tell something about them; points outside are left out, as the paper does.  Files end in .csv, .txt or
either with .gz.
"""

from __future__ import annotations

import gzip
import zlib
from collections import defaultdict, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdp import validation
from fastdp.data.readers import Columns, import_pyarrow, read_events, read_table
from fastdp.errors import DataError, ParameterError
from fastdp.spatial.domains import as_box
from fastdp_lab.datasets.events import SpatialStream, cut_events

Floats = NDArray[np.float64]
#: Columns of numbers, in file order.
Table = dict[str, Floats]
#: Longitude and latitude of the whole Earth, of the five boroughs of New York, and the square around the circles.
EARTH = ((-180.0, -90.0), (180.0, 90.0))
NEW_YORK = ((-74.3, 40.45), (-73.65, 40.95))
CIRCLES = ((-1.25, -1.25), (1.25, 1.25))
DAY = 86_400.0

#: Columns of SNAP's files, which have no heading: user, time, latitude, longitude, place.
SNAP = {"x": "3", "y": "2", "time": "1"}


@validation.plain
def load_gowalla(
    path: str | Path,
    *,
    deletion: bool = False,
    lifetime: float = 30 * DAY,
    batch: int | None = None,
    period: float | None = None,
    initial: float = 0.0,
    max_points: int | None = None,
    seed: int | None = None,
    box: tuple[ArrayLike, ArrayLike] = EARTH,
    unsorted: str = "sort",
) -> SpatialStream:
    """Gowalla check-ins.

    Parameters
    ----------
    path : str or Path
        The file of the Stanford Network Analysis Project, tab-separated without header (user, check-in time,
        latitude, longitude, location id), or any with a header that :func:`load_pickups` accepts.
    deletion : bool
        Whether each check-in is taken back when its lifetime is over.
    lifetime : float
        In seconds, 30 days in the paper.  A check-in whose lifetime ends after the last check-in stays.
    batch : int, optional
        Events in a batch.  Either this or ``period``.
    period : float, optional
        Seconds in a batch; a day (86,400) in the paper.
    initial : float
        Share of the events before the first batch, in [0, 1); for the paper's initialisation times after 100 or 150
        days call :meth:`SpatialStream.starting_at` instead.
    max_points : int, optional
        Keep at most this many check-ins, a random sample of those in the box (the paper: about 200,000).
    seed : int, optional
        For a reproducible sample.
    box : two array-like[2]
        South-west and north-east corner.  Check-ins outside are left out.
    unsorted : {"sort", "raise"}
        What to do with a file that is not in the order of time (SNAP's is ordered by user): sort it, equal times
        in the file's order, or raise DataError.

    Returns
    -------
    SpatialStream

    Raises
    ------
    DataError
        If the file is not as described; the message names its line.
    ParameterError
        If an argument is out of its range.
    FileNotFoundError
        If there is no such file.

    Notes
    -----
    Source: PHDStream section 5.1 and Appendix G.
    """
    moments, places = _in_box(*_read_all([path], SNAP, unsorted), box, max_points, seed)
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
    max_points: int | None = None,
    seed: int | None = None,
    box: tuple[ArrayLike, ArrayLike] = NEW_YORK,
    unsorted: str = "sort",
) -> SpatialStream:
    """Pickups of New York taxis or hired cars: places and times where rides begin.

    Parameters
    ----------
    path : str, Path or a sequence of these
        Comma-separated with a header; several files make one stream.  Columns are found by name, in any case: time
        ``t`` (seconds since 1970), ``Date/Time``, ``pickup_datetime``, ``tpep_pickup_datetime`` and the like; place
        ``Lat``, ``Lon``, ``pickup_latitude``, ``pickup_longitude``, ``Start_Lat``, ``Start_Lon`` and the like.  Those
        are the columns of Uber's files of 2014, of the Taxi and Limousine Commission's up to June 2016 (later
        ones have zones instead of places) and of Donovan and Work's.
    batch : int, optional
        Events in a batch.  Either this or ``period``.
    period : float, optional
        Seconds in a batch; six hours (21,600) in the paper.
    initial : float
        Share of the events before the first batch, in [0, 1).
    max_points : int, optional
        Keep at most this many pickups, a random sample of those in the box (the paper: about 100,000).
    seed : int, optional
        For a reproducible sample.
    box : two array-like[2]
        South-west and north-east corner.  Pickups outside, among them the zeros of broken receivers, are left out.
    unsorted : {"sort", "raise"}
        As for :func:`load_gowalla`.

    Returns
    -------
    SpatialStream

    Raises
    ------
    DataError, ParameterError, FileNotFoundError
        As for :func:`load_gowalla`.

    Notes
    -----
    Source: PHDStream section 5.1 and Appendix G.
    """
    paths: list[Any] = list(path) if isinstance(path, (list, tuple)) else [path]
    if not all(isinstance(each, (str, Path)) for each in paths):
        raise ParameterError(f"path = {validation.shown(path)}: expected the path of a file, or a list of paths")
    moments, places = _in_box(*_read_all(paths, None, unsorted), box, max_points, seed)
    return cut_events("pickups", *box, places, times=moments, batch=batch, period=period, initial=initial)


@validation.plain
def load_circles(
    path: str | Path,
    *,
    batch: int | None = 500,
    initial: float = 0.1,
    box: tuple[ArrayLike, ArrayLike] = CIRCLES,
) -> SpatialStream:
    """Concentric circles from a file, as the paper's authors published them.

    Parameters
    ----------
    path : str or Path
        Comma-separated with the columns x, y, move: 1 adds a point, -1 removes an earlier one at the same place.
        In event order.
    batch : int
        Events in a batch.
    initial : float
        Share of the events before the first batch (t0), in [0, 1).
    box : two array-like[2]
        Lower and upper corner; points outside are an error.

    Returns
    -------
    SpatialStream
        Of points at one place the earliest is removed first.

    Raises
    ------
    DataError
        If the file is not as described, or a point is removed that is not there.
    ParameterError, FileNotFoundError
        As for :func:`load_gowalla`.
    """
    events = read_events(_existing(path), {"x": "x", "y": "y", "event": "move"}, ragged=True)
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


def _read_all(paths: Sequence[str | Path], unnamed: Columns | None, unsorted: str) -> tuple[Floats, Floats]:
    """Times float64[n] in seconds since 1970 and places float64[n, 2] of all files, ascending in time.

    ``unnamed`` has the columns of a file without a heading.
    """
    parts = [(np.empty(0), np.empty((0, 2)))]
    for k, path in enumerate(paths):
        file = _existing(path, f"path[{k}]" if len(paths) > 1 else "path")
        events = read_events(file, dict.fromkeys(("x", "y", "time")), unnamed=unnamed, ragged=True)
        times = np.empty(0) if events.times is None else events.times
        parts.append(_in_order(times, events.points, unsorted, file))
    times, places = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return _in_order(times, places, unsorted, ", ".join(map(str, paths)))


def _existing(path: str | Path, name: str = "path") -> str:
    """The path as text; FileNotFoundError if there is no such file."""
    text = validation.path(name, path)
    if not Path(text).exists():
        raise FileNotFoundError(f"{f'path = {text!r}' if name == 'path' else name}: there is no such file")
    return text


def _in_order(moments: Floats, places: Floats, unsorted: str, source: str) -> tuple[Floats, Floats]:
    backwards = np.flatnonzero(np.diff(moments) < 0)
    if validation.choice("unsorted", unsorted, ("sort", "raise")) == "raise" and backwards.size:
        raise DataError(
            f"{source}: entry {int(backwards[0]) + 2} is earlier than the one before it: expected the order of time "
            "(unsorted='sort' sorts)"
        )
    order = np.argsort(moments, kind="stable")
    return moments[order], places[order]


def seeded(seed: int | None) -> np.random.Generator:
    """A generator: for equal seeds an equal one."""
    return np.random.default_rng(None if seed is None else validation.integer("seed", seed, 0))


def _in_box(moments: Floats, places: Floats, box: Any, max_points: int | None, seed: int | None) -> Any:
    low, high = as_box("box", box)
    kept = np.flatnonzero(np.all((places >= low) & (places <= high), axis=1))
    if max_points is not None and kept.size > validation.integer("max_points", max_points, 0):
        kept = np.sort(seeded(seed).choice(kept, max_points, replace=False))
    return moments[kept], places[kept]


def with_removals(moments: Floats, places: Floats, lifetime: float) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Additions, and removals a lifetime later, in one order of time; at equal times removals come first.

    Parameters
    ----------
    moments : float64[n]
        When points appear, in seconds, ascending.
    places : float64[n, d]
        The points.
    lifetime : float
        In seconds; a point whose lifetime ends after the last addition stays.

    Returns
    -------
    times, points, cancels
        Of all events, as :func:`fastdp_lab.datasets.cut_events` takes them.
    """
    ended = np.flatnonzero(moments + lifetime <= moments[-1:])
    times, source = np.concatenate([moments[ended] + lifetime, moments]), np.append(ended, np.arange(moments.size))
    order = np.argsort(times, kind="stable")
    # The inverse of an order says where each event went.
    cancels = np.append(np.argsort(order)[ended.size + ended], np.full(moments.size, -1))
    return times[order], places[source[order]], cancels[order]


def transaction_lengths(path: Path) -> Table:
    """Items per transaction of a file with one transaction a line (FIMI).

    Parameters
    ----------
    path : Path
        Items are whole numbers separated by spaces or commas; a comma at the end is ignored.

    Returns
    -------
    {"values": float64[lines]}
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
    """Distances and fares of a Parquet file of New York taxi trips, in order of pickup.

    Returns
    -------
    {"distance": float64[n], "fare": float64[n]}
        In 0.01 mile and in cents; trips without one of the two, or with a negative one, are left out.
    """
    arrow, names = import_pyarrow(), ["tpep_pickup_datetime", "trip_distance", "fare_amount"]
    try:
        table = read_table(path, names)
        moments, distance, fare = (
            table.column(name).cast(kind)
            for name, kind in zip(names, ("timestamp[us]", *["float64"] * 2), strict=True)
        )
    except (KeyError, ValueError, OSError, arrow.ArrowException):
        raise DataError(
            f"{path}: expected a Parquet file with moments in {names[0]} and numbers in {names[1]}, {names[2]}"
        ) from None
    order = np.argsort(moments.to_numpy(), kind="stable")
    distance, fare = (np.rint(100.0 * column.to_numpy()[order]) for column in (distance, fare))
    kept = (distance >= 0.0) & (fare >= 0.0)
    return {"distance": distance[kept], "fare": fare[kept]}


def check_ins(path: Path) -> Table:
    """Check-ins of SNAP's location networks, in order of time.

    Parameters
    ----------
    path : Path
        User, time (2010-10-19T23:55:27Z), latitude, longitude and place, separated by tabs.

    Returns
    -------
    {"t": float64[n], "lat": float64[n], "lon": float64[n]}
        Seconds since 1970, and degrees.
    """
    moments, places = _read_all([path], SNAP, "sort")
    return {"t": moments, "lat": places[:, 1], "lon": places[:, 0]}
