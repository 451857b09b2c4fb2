"""Places, times and events of a spatial stream, from the columns of a text or Parquet file."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from fastdp.cli.progress import watched
from fastdp.datasets.delimited import parse_times
from fastdp.errors import DataError
from fastdp.files.columns import is_index, listed, pick_column
from fastdp.files.parquet_reader import damage_named, import_pyarrow
from fastdp.files.readers import STDIN, TEXT, open_source
from fastdp.files.text_reader import DELIMITERS

PARQUET = (".parquet", ".pq")
#: Names under which a column is found if none is asked for, in any case.
DEFAULTS = {
    "x": ("x", "lon", "lng", "longitude"),
    "y": ("y", "lat", "latitude"),
    "time": ("time", "t", "timestamp"),
    "event": ("event", "move"),
}
CHUNK = 2**18
#: Zoneless moments count as UTC, as in ``fastdp.datasets``.
MICROSECONDS = 1e6


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
        Seconds since 1970, ascending, where they were asked for.
    names : tuple of two str
        What the file calls x and y.
    """

    points: NDArray[np.float64]
    additions: NDArray[np.bool_]
    times: NDArray[np.float64] | None
    names: tuple[str, str]


def read_events(path: str, columns: dict[str, str | None], *, timed: bool, sort: bool, quiet: bool) -> Events:
    """All events of a file.

    Parameters
    ----------
    path : str
        A .csv, .txt (either may end in .gz too) or .parquet file with a heading.
    columns : dict
        For "x", "y", "time" and "event" the column's name, its zero-based number, or None for the usual names.
        Without a column of events all rows are additions.
    timed : bool
        Whether times are wanted.
    sort : bool
        Whether to bring rows into the order of time; rows out of order are an error otherwise.
    quiet : bool
        No progress bar.

    Raises
    ------
    DataError
        Naming the column and the row, counted from 1 without the heading; never what a cell holds.
    """
    names = _names(path)
    places, labels = _points(path, names, columns)
    read = {column: _numbers(path, column, quiet=quiet) for column in places}
    _check_rows(path, read)
    points = np.stack([read[column] for column in places], axis=1)
    wanted = columns["event"] is not None or _usual(names, "event") is not None
    additions = np.ones(len(points), bool)
    if wanted:
        column = _column(path, names, "event", columns["event"])
        additions = _signs(path, column, _numbers(path, column, quiet=quiet))
        _check_rows(path, read | {column: additions})
    if not timed:
        return Events(points, additions, None, labels)
    column = _column(path, names, "time", columns["time"])
    times = _times(path, column, quiet=quiet)
    _check_rows(path, read | {column: times})
    if sort:
        order = np.argsort(times, kind="stable")
        points, additions, times = points[order], additions[order], times[order]
    back = np.flatnonzero(np.diff(times) < 0)
    if back.size:
        raise DataError(
            f"{path}, column {column!r}: row {back[0] + 2:,} is earlier than the one before it; expected the order "
            "of time, or --sort"
        )
    return Events(points, additions, times, labels)


def heading_of(path: str, columns: dict[str, str | None], *, timed: bool) -> tuple[str, str]:
    """What a file calls x and y, and that it has the columns of :func:`read_events`, before its rows are read."""
    names = _names(path)
    places, labels = _points(path, names, columns)
    if columns["event"] is not None:
        places.append(_column(path, names, "event", columns["event"]))
    for column in places:
        with open_source(path, column, CHUNK):
            # Of the right type, where the file says so.
            pass
    if timed:
        _column(path, names, "time", columns["time"])
    return labels


def _points(path: str, names: list[str], columns: dict[str, str | None]) -> tuple[list[str], tuple[str, str]]:
    """The columns of x and y, and what the file calls them."""
    places = [_column(path, names, kind, columns[kind]) for kind in ("x", "y")]
    x, y = (names[int(c)] if is_index(c) and c not in names and names else c for c in places)
    return places, (x, y)


def _check_rows(path: str, read: dict[str, Any]) -> None:
    """A first row of which some cells are numbers is a heading to one column and an event to another."""
    if len({len(column) for column in read.values()}) > 1:
        found = ", ".join(f"{len(values):,} in column {column!r}" for column, values in read.items())
        raise DataError(f"{path}: rows differ, {found}; expected a first row of names, or numbers in every column")


def _names(path: str) -> list[str]:
    """The columns' names; none if the first row holds numbers."""
    if path == STDIN:
        raise DataError("standard input: cannot be read for each column anew; expected a file")
    file = Path(path)
    if not file.exists():
        raise DataError(f"{path}: no such file")
    if file.is_dir():
        raise DataError(f"{path}: is a folder; expected a file")
    name = file.name.lower()
    if name.endswith(PARQUET):
        arrow = import_pyarrow()
        with damage_named(file):
            return list(arrow.parquet.read_schema(file).names)
    if not name.endswith(TEXT):
        raise DataError(f"{path}: unknown kind of file; expected .csv, .csv.gz, .txt, .txt.gz or .parquet")
    try:
        row = next(_rows(file), [])
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataError(f"{path}: not a gzip file, or damaged") from None
    return [] if any(_is_number(cell) for cell in row) else row


def _rows(file: Path) -> Iterator[list[str]]:
    """Cells of the rows that are not blank, the heading included."""
    packed = file.name.lower().endswith(".gz")
    with gzip.open(file, "rb") if packed else file.open("rb") as stream:
        text = io.TextIOWrapper(cast("BinaryIO", stream), "utf-8-sig", "replace", newline="")
        first = next((line for line in text if line.strip()), "")
        for row in csv.reader(chain([first], text), delimiter=max(DELIMITERS, key=first.count)):
            if row:
                yield [cell.strip() for cell in row]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _usual(names: list[str], kind: str) -> str | None:
    lowered = [name.lower() for name in names]
    return next((names[lowered.index(name)] for name in DEFAULTS[kind] if name in lowered), None)


def _column(path: str, names: list[str], kind: str, column: str | None) -> str:
    """The column that is asked for, or the one with a usual name."""
    if column is not None:
        if names:
            pick_column(column, names, len(names), path)
        return column
    found = _usual(names, kind)
    if found is None:
        there = f"has the columns {listed(names, len(names))}" if names else "has no heading"
        raise DataError(f"{path} {there}: expected {' or '.join(map(repr, DEFAULTS[kind]))}, or --{kind}")
    return found


def _numbers(path: str, column: str, *, quiet: bool) -> NDArray[np.float64]:
    with open_source(path, column, CHUNK) as source:
        chunks = list(watched(source, quiet=quiet))
    values = np.concatenate(chunks) if chunks else np.empty(0)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise DataError(
            f"{path}, column {column!r}: {bad.size:,} of {values.size:,} rows are missing, NaN or infinite, the "
            f"first is row {bad[0] + 1:,}; expected finite numbers"
        )
    return values


def _signs(path: str, column: str, events: NDArray[np.float64]) -> NDArray[np.bool_]:
    bad = np.flatnonzero(np.abs(events) != 1.0)
    if bad.size:
        raise DataError(
            f"{path}, column {column!r}: {bad.size:,} of {events.size:,} rows are neither 1 (a point appears) nor -1 "
            f"(it disappears), the first is row {bad[0] + 1:,}"
        )
    return events > 0


def _times(path: str, column: str, *, quiet: bool) -> NDArray[np.float64]:
    """Numbers as they are; moments as seconds since 1970."""
    if path.lower().endswith(PARQUET):
        moments = _parquet_moments(path, column)
        return _numbers(path, column, quiet=quiet) if moments is None else moments
    try:
        return _numbers(path, column, quiet=quiet)
    except DataError as error:
        # Only text can be a moment; missing numbers stay missing.
        if not str(error).endswith("not a number"):
            raise
    try:
        rows = _rows(Path(path))
        heading = next(rows)
        place = pick_column(column, heading, len(heading), path)
        texts = [row[place] for row in rows]
        return parse_times(texts, path, range(len(texts)))
    except (DataError, IndexError, csv.Error):
        # The text stays unsaid: messages end up in logs, which are not private.
        raise DataError(
            f"{path}, column {column!r}: expected seconds, or moments such as 2014-04-01T00:11:00 or 4/1/2014 "
            "0:11:00, alike in all rows"
        ) from None


def _parquet_moments(path: str, column: str) -> NDArray[np.float64] | None:
    arrow: Any = import_pyarrow()
    with damage_named(Path(path)), arrow.parquet.ParquetFile(path, pre_buffer=False) as table:
        schema = table.schema_arrow
        name = column if column in schema.names else schema.names[int(column)]
        if not arrow.types.is_timestamp(schema.field(name).type):
            return None
        moments = table.read([name], use_threads=False).column(0)
    if moments.null_count:
        raise DataError(f"{path}, column {name!r}: {moments.null_count:,} rows are missing; expected moments")
    return np.asarray(moments.to_numpy(), "datetime64[us]").astype(np.int64) / MICROSECONDS
