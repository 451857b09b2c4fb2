"""Files of real spatial streams: Gowalla check-ins, New York pickups, circles.

Coordinates are x = longitude and y = latitude, in degrees.  The boxes are fixed here, not taken from the data, which
would tell something about them; points outside are left out, as the paper does.  Files end in .csv, .txt or
either with .gz.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdp import validation
from fastdp.errors import DataError, ParameterError
from fastdp.files.event_reader import Columns, read_events
from fastdp.spatial.boxes import as_box
from fastdp.spatial.events import SpatialStream, cut_events

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
    moments, places = _in_order(*read_places(path, unnamed=SNAP), unsorted, str(path))
    moments, places = _in_box(moments, places, box, max_points, seed)
    cancels = np.full(moments.size, -1)
    name = "Gowalla"
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
    names = [f"path[{k}]" for k in range(len(paths))] if len(paths) > 1 else ["path"]
    parts = [_in_order(*read_places(p, None, name), unsorted, str(p)) for p, name in zip(paths, names, strict=False)]
    moments = np.concatenate([part[0] for part in parts]) if parts else np.empty(0)
    places = np.concatenate([part[1] for part in parts]) if parts else np.empty((0, 2))
    moments, places = _in_order(moments, places, unsorted, ", ".join(str(part) for part in paths))
    moments, places = _in_box(moments, places, box, max_points, seed)
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
    columns = {"x": "x", "y": "y", "event": "move"}
    events = read_events(_existing(path), columns, ragged=True)
    places = events.points
    cancels = np.full(len(places), -1)
    there: dict[tuple[float, float], list[int]] = {}
    for i, (x, y) in enumerate(map(tuple, places.tolist())):
        if events.additions[i]:
            there.setdefault((x, y), []).append(i)
        elif there.get((x, y)):
            cancels[i] = there[x, y].pop(0)
        else:
            raise DataError(f"{path}, row {i + 1}: wrong move; expected -1 at the place of a point that is there")
    name = "circles with deletion" if np.any(cancels >= 0) else "circles"
    return cut_events(name, *as_box("box", box), places, cancels=cancels, batch=batch, initial=initial)


def read_places(
    path: str | Path, unnamed: Columns | None = None, name: str = "path"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times float64[n] in seconds since 1970 and places float64[n, 2], in the file's order.

    ``unnamed`` has the columns of a file without a heading.
    """
    columns = {"x": None, "y": None, "time": None}
    events = read_events(_existing(path, name), columns, unnamed=unnamed, ragged=True)
    return np.empty(0) if events.times is None else events.times, events.points


def _existing(path: str | Path, name: str = "path") -> str:
    """The path as text; FileNotFoundError if there is no such file."""
    text = validation.path(name, path)
    if not Path(text).exists():
        raise FileNotFoundError(f"{f'path = {text!r}' if name == 'path' else name}: there is no such file")
    return text


def _in_order(
    moments: NDArray[np.float64], places: NDArray[np.float64], unsorted: str, source: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    unsorted = validation.choice("unsorted", unsorted, ("sort", "raise"))
    backwards = np.flatnonzero(np.diff(moments) < 0)
    if not backwards.size:
        return moments, places
    if unsorted == "raise":
        raise DataError(
            f"{source}: entry {int(backwards[0]) + 2} is earlier than the one before it: expected the order of time "
            "(unsorted='sort' sorts)"
        )
    order = np.argsort(moments, kind="stable")
    return moments[order], places[order]


def _in_box(
    moments: NDArray[np.float64],
    places: NDArray[np.float64],
    box: tuple[ArrayLike, ArrayLike],
    max_points: int | None,
    seed: int | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low, high = as_box("box", box)
    kept = np.flatnonzero(np.all((places >= low) & (places <= high), axis=1))
    if max_points is not None and kept.size > validation.integer("max_points", max_points, 0):
        generator = np.random.default_rng(None if seed is None else validation.integer("seed", seed, 0))
        kept = np.sort(generator.choice(kept, max_points, replace=False))
    return moments[kept], places[kept]


def with_removals(
    moments: NDArray[np.float64], places: NDArray[np.float64], lifetime: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
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
    n = moments.size
    over = moments + lifetime
    ended = np.flatnonzero(over <= moments[-1]) if n else np.empty(0, np.int64)
    times = np.concatenate([over[ended], moments])
    source = np.concatenate([ended, np.arange(n)])
    order = np.argsort(times, kind="stable")
    position = np.empty(n, np.int64)
    addition = order >= ended.size
    position[source[order[addition]]] = np.flatnonzero(addition)
    cancels = np.where(addition, -1, position[source[order]])
    return times[order], places[source[order]], cancels
