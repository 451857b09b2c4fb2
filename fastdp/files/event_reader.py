"""Places, times and kinds of events, from the columns of a text or Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import DataError
from fastdp.files.readers import ARRAYS, STDIN, Source, open_table
from fastdp.files.text import is_index, listed

#: Names under which a column is found if none is asked for, in any case; the later ones are of public data sets.
DEFAULTS = {
    "x": ("x", "lon", "lng", "longitude", "pickup_longitude", "start_lon"),
    "y": ("y", "lat", "latitude", "pickup_latitude", "start_lat"),
    "time": (
        "time",
        "t",
        "timestamp",
        "date/time",
        "pickup_datetime",
        "tpep_pickup_datetime",
        "lpep_pickup_datetime",
        "trip_pickup_datetime",
        "check-in time",
    ),
    "event": ("event", "move"),
}
CHUNK = 2**16
#: Which columns are asked for: of each kind a name, a zero-based number, or None for the usual names.
Columns = Mapping[str, str | None]


@dataclass(frozen=True)
class Events:
    """A file's rows, in its order.

    Attributes
    ----------
    points : float64[n, 2]
        Finite.
    additions : bool[n]
        Whether a row adds its point; it removes it otherwise.
    times : float64[n] or None
        Seconds since 1970, where they were asked for.
    names : tuple of two str
        What the file calls x and y.
    """

    points: NDArray[np.float64]
    additions: NDArray[np.bool_]
    times: NDArray[np.float64] | None
    names: tuple[str, str]


def read_events(
    path: str,
    columns: Columns,
    *,
    unnamed: Columns | None = None,
    ragged: bool = False,
    watch: Callable[[Source], Iterable[NDArray[np.float64]]] = attrgetter("chunks"),
) -> Events:
    """All events of a file.

    Parameters
    ----------
    path : str
        A .csv, .txt (either may end in .gz too) or .parquet file with a heading.
    columns : mapping
        Which columns are "x", "y", and, where they are wanted, "time" and "event".  Without a column of events all
        rows are additions.
    unnamed : mapping, optional
        The columns of a file without a heading.
    ragged : bool
        As for :func:`fastdp.files.readers.open_table`.
    watch : function
        The chunks of an open file, with a progress bar for example.

    Raises
    ------
    DataError
        Naming the column and the row, counted from 1 without the heading, or the line; never what a cell holds.
    """
    choice = _Choice(path, columns, unnamed)
    with open_table(_file(path), choice, CHUNK, ragged=ragged) as source:
        parts = list(watch(source))
    table = np.concatenate([np.empty((0, len(choice.chosen))), *parts])
    read = dict(zip(choice.chosen, table.T, strict=True))
    for kind, column in choice.chosen.items():
        _refuse(path, column, ~np.isfinite(read[kind]), "missing, NaN or infinite", "expected finite numbers")
    additions = np.ones(len(table), bool)
    if "event" in read:
        what = "neither 1 (a point appears) nor -1 (it disappears)"
        _refuse(path, choice.chosen["event"], np.abs(read["event"]) != 1.0, what, "expected one of these")
        additions = read["event"] > 0
    return Events(np.stack([read["x"], read["y"]], axis=1), additions, read.get("time"), choice.labels)


def heading_of(path: str, columns: Columns) -> tuple[str, str]:
    """What a file calls x and y, and that it has the columns of :func:`read_events`, before its rows are read."""
    choice = _Choice(path, columns, None)
    with open_table(_file(path), choice, CHUNK):
        return choice.labels


def _file(path: str) -> str:
    if path == STDIN:
        raise DataError("standard input holds no events; expected a file")
    if path.lower().endswith(ARRAYS):
        raise DataError(f"{path}: holds no named columns; expected .csv, .csv.gz, .txt, .txt.gz or .parquet")
    return path


class _Choice:
    """Finds the columns among a file's names."""

    def __init__(self, path: str, columns: Columns, unnamed: Columns | None) -> None:
        self._path, self._columns, self._unnamed = path, columns, unnamed
        self.chosen: dict[str, str] = {}
        self.labels = ("x", "y")

    def __call__(self, names: Sequence[str]) -> dict[str, str]:
        columns = self._columns if names or self._unnamed is None else self._unnamed
        for kind, column in columns.items():
            found = self._usual(names, kind) if column is None else column
            if found is not None:
                self.chosen[kind] = found
            elif kind != "event":
                there = f"has the columns {listed(names, len(names))}" if names else "has no heading"
                raise DataError(
                    f"{self._path} {there}: expected {' or '.join(map(repr, DEFAULTS[kind]))}, or --{kind}"
                )
        x, y = (
            names[int(c)] if is_index(c) and c not in names and int(c) < len(names) else c
            for c in (self.chosen["x"], self.chosen["y"])
        )
        self.labels = x, y
        return self.chosen

    @staticmethod
    def _usual(names: Sequence[str], kind: str) -> str | None:
        lowered = [name.lower() for name in names]
        return next((names[lowered.index(name)] for name in DEFAULTS[kind] if name in lowered), None)


def _refuse(path: str, column: str, wrong: NDArray[np.bool_], what: str, expected: str) -> None:
    bad = np.flatnonzero(wrong)
    if bad.size:
        raise DataError(
            f"{path}, column {column!r}: {bad.size:,} of {wrong.size:,} rows are {what}, the first is row "
            f"{bad[0] + 1:,}; {expected}"
        )
