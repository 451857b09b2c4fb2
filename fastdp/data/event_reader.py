"""Places, times and kinds of events, from the columns of a text or Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from fastdp.data.readers import ARRAYS, STDIN, Source, is_index, listed, open_table
from fastdp.errors import DataError

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
        As for :func:`fastdp.data.readers.open_table`.
    watch : function
        The chunks of an open file, with a progress bar for example.

    Raises
    ------
    DataError
        Naming the column and the row, counted from 1 without the heading, or the line; never what a cell holds.
    """
    choice = _Choice(path, columns, unnamed)
    with choice.opened(ragged=ragged) as source:
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
    choice = _Choice(path, columns)
    with choice.opened(ragged=False):
        return choice.labels


@dataclass
class _Choice:
    """Finds the columns among a file's names."""

    path: str
    columns: Columns
    unnamed: Columns | None = None
    chosen: dict[str, str] = field(default_factory=dict)
    labels: tuple[str, str] = ("x", "y")

    def opened(self, *, ragged: bool) -> AbstractContextManager[Source]:
        if self.path == STDIN:
            raise DataError("standard input holds no events; expected a file")
        if self.path.lower().endswith(ARRAYS):
            raise DataError(f"{self.path}: holds no named columns; expected .csv, .csv.gz, .txt, .txt.gz or .parquet")
        return open_table(self.path, self, CHUNK, ragged=ragged)

    def __call__(self, names: Sequence[str]) -> dict[str, str]:
        lowered = [name.lower() for name in names]
        for kind, column in (self.columns if names or self.unnamed is None else self.unnamed).items():
            usual = (names[lowered.index(name)] for name in DEFAULTS[kind] if name in lowered)
            found = next(usual, None) if column is None else column
            if found is not None:
                self.chosen[kind] = found
            elif kind != "event":
                there = f"has the columns {listed(names, len(names))}" if names else "has no heading"
                raise DataError(
                    f"{self.path} {there}: expected {' or '.join(map(repr, DEFAULTS[kind]))}, or --{kind}"
                )
        x, y = (
            names[int(c)] if is_index(c) and c not in names and int(c) < len(names) else c
            for c in (self.chosen["x"], self.chosen["y"])
        )
        self.labels = x, y
        return self.chosen


def _refuse(path: str, column: str, wrong: NDArray[np.bool_], what: str, expected: str) -> None:
    bad = np.flatnonzero(wrong)
    if bad.size:
        raise DataError(
            f"{path}, column {column!r}: {bad.size:,} of {wrong.size:,} rows are {what}, the first is row "
            f"{bad[0] + 1:,}; {expected}"
        )
