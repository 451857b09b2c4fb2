"""Many streams from matrices, lists, Arrow lists or data frames, and results in the input's form.

Frames have one row per value (long), or one column per stream (wide).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from fastdp.data.calendar import Clock
from fastdp.data.column import (
    FLOAT64,
    arrow,
    as_array,
    as_arrow,
    as_column,
    as_floats,
    exports_arrow,
    homes_of,
    is_in_order,
    is_number,
    kind_of,
    numpy_of,
    open_arrow,
    read_only,
)
from fastdp.data.files import is_source
from fastdp.data.source import FAMILIES, open_source
from fastdp.data.times import times_of
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Array, Floats, Frame, Indices, Integers, Values
from fastdp.units import zone_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Streams in any form that :func:`as_streams` takes.
StreamColumns: TypeAlias = Values | Sequence[Values] | Mapping[Any, Values] | Frame
ACCEPTED_ROWS = (
    "a two-dimensional array (a row is a stream), a one-dimensional one with offsets, a list of columns, or an Array "
    "of lists as Arrow and polars have them"
)
#: Modules that define frames, and their families.
_FAMILY_OF = {**{name: name for name in FAMILIES}, "_duckdb": "duckdb"}
ACCEPTED = "a pandas or polars frame, an Arrow table, or a DuckDB relation"


@dataclass(frozen=True)
class StreamRows:
    """Streams as a matrix, a list, or one float64 array with starts."""

    rows: Array | Sequence[Array]
    starts: Indices | None
    lengths: Indices

    @property
    def size(self) -> int:
        return self.lengths.size

    def take(self, which: Indices, begin: int, end: int | None = None) -> tuple[Floats, Indices]:
        """Values [begin, end) of rows in one float64 array, and starts."""
        if isinstance(self.rows, np.ndarray):
            if self.starts is not None:
                return self.rows, self.starts[which] + begin
            selected = self.rows[which, begin:end]
            return as_floats(selected.reshape(-1)), np.arange(which.size) * selected.shape[1]
        cut = [as_floats(self.rows[i][begin:end]) for i in which.tolist()]
        borders = np.cumsum([0, *(row.size for row in cut)], dtype=np.int64)
        return as_floats(np.concatenate([np.empty(0), *cut])), borders[:-1]


def as_rows(streams: object, offsets: object = None) -> StreamRows:
    """Rows from arrays and lists, or by borders (``offsets``); else DataError."""
    streams = numpy_of(streams)
    if offsets is not None:
        borders = as_column(offsets, "offsets")
        if borders.dtype.kind not in "iu":
            raise DataError(f"offsets holds {kind_of(borders.dtype)} entries: expected whole numbers")
        return _cut(as_column(streams, "streams"), borders.astype(np.int64))
    if isinstance(streams, np.ndarray) and streams.ndim == 2:
        masked = isinstance(streams, np.ma.MaskedArray)
        if streams.dtype.kind not in "biuf" or masked:
            kind = "masked" if masked else kind_of(streams.dtype)
            raise DataError(f"streams holds {kind} entries: expected {ACCEPTED_ROWS}, of real numbers")
        n, length = streams.shape
        lengths, matrix = np.full(n, length, np.int64), np.asarray(streams)
        if is_in_order(matrix, FLOAT64):
            return StreamRows(read_only(matrix.reshape(-1)), np.arange(n) * length, lengths)
        return StreamRows(matrix, None, lengths)
    if isinstance(streams, (list, tuple)):
        columns = [as_column(stream, f"streams[{i}]") for i, stream in enumerate(streams)]
        return StreamRows(columns, None, np.array([column.size for column in columns], np.int64))
    if exports_arrow(streams):
        return _from_arrow(streams)
    shape = f" of shape {streams.shape}" if isinstance(streams, np.ndarray) else ""
    raise DataError(f"streams is a {type(streams).__name__}{shape}: expected {ACCEPTED_ROWS}")


def _cut(column: Array, borders: Indices) -> StreamRows:
    if borders.size == 0 or borders[0] != 0 or borders[-1] != column.size or (np.diff(borders) < 0).any():
        raise DataError(
            f"offsets has {borders.size} entries: expected borders that ascend from 0 to {column.size}, the number "
            "of values, one more than there are streams"
        )
    lengths = np.diff(borders)
    if is_in_order(column, FLOAT64):
        return StreamRows(read_only(column), borders[:-1], lengths)
    return StreamRows(np.split(column, borders[1:-1])[: lengths.size], None, lengths)


def _from_arrow(streams: object) -> StreamRows:
    column = open_arrow(streams, "streams", ACCEPTED_ROWS)
    import pyarrow as pa

    lists = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    if not lists and not pa.types.is_fixed_size_list(column.type):
        raise DataError(f"streams holds {kind_of(column.type)} entries: expected {ACCEPTED_ROWS}")
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if array.null_count:
        raise DataError(f"streams has {array.null_count} missing streams: expected none")
    lengths = np.asarray(array.value_lengths().to_numpy(zero_copy_only=False), np.int64)
    return _cut(as_column(array.flatten(), "streams"), np.concatenate([[0], np.cumsum(lengths)]))


# Frames of streams.


@dataclass(frozen=True, eq=False)
class FrameSource:
    """Library, column names and times of an input frame or series, whose form a release can have too.

    ``times`` of all values, from ``starts``, int64[n], on; without them, positions.  ``by`` is None for one stream.
    """

    family: str
    by: str | None
    time: str
    value: str
    times: Any
    starts: Indices

    @cached_property
    def clock(self) -> Clock | None:
        column = None if self.times is None else as_arrow(self.times, self.time)
        if column is None or not (arrow.types.is_timestamp(column.type) or arrow.types.is_date(column.type)):
            return None
        zone = zone_of(getattr(column.type, "tz", None))
        return times_of(column, zone)[0], zone

    def numbers_before(self, moments: Integers, stream: int, length: int) -> Integers:
        """Number of a stream's values before each moment."""
        times = (
            self.clock[0][int(self.starts[stream]) :][:length] if self.clock is not None else np.empty(0, np.int64)
        )
        return np.searchsorted(times, moments)

    def only(self, stream: int) -> FrameSource:
        return replace(self, by=None, starts=self.starts[stream : stream + 1])

    def long(self, ids: list[int | str], lengths: Indices, offset: int, columns: Mapping[str, Array]) -> Any:
        """A frame with a row for each value: stream, time, and the given columns.

        ``"values"`` gets the input's name; ``lengths``, int64[n]: from position ``offset`` on.
        """
        which = np.repeat(np.arange(lengths.size), lengths)
        positions = np.arange(which.size) - np.repeat(np.cumsum(lengths) - lengths, lengths) + offset
        named = {self.value if name == "values" else name: arrow.array(column) for name, column in columns.items()}
        times = arrow.array(positions)
        if self.times is not None:
            times = as_arrow(self.times, self.time).take(arrow.array(self.starts[which] + positions))
        named = {self.time: times, **named}
        if self.by is not None:
            # Arrow's columns have one type.
            texts = len(set(map(type, ids))) > 1
            named = {self.by: arrow.array(map(str, ids) if texts else ids).take(arrow.array(which)), **named}
        return FAMILIES[self.family](arrow.table(named))


def source_of(values: Any) -> FrameSource | None:
    """Form of a finished series, Arrow array, frame of one column, or file; else None.

    The times are pandas' index, or xarray's coordinate, if they ascend.
    """
    if "xarray" in homes_of(values):
        values = values.to_series()
    framed = _family(values)
    family = framed or _library(values)
    if family is None and not is_source(values):
        return None
    name, index = getattr(values, "name", None), cast("Any", getattr(values, "index", None))
    if framed is not None:
        (name,) = values.column_names if framed == "pyarrow" else values.columns
    time, times = "position", None
    if getattr(getattr(index, "dtype", None), "kind", "") == "M" and index.is_monotonic_increasing:
        time, times = str(index.name or "time"), index
    value = "value" if not isinstance(name, str) or name in ("revised", time) else name
    return FrameSource(family or "pyarrow", None, time, value, times, np.zeros(1, np.int64))


@dataclass(frozen=True, eq=False)
class Streams:
    """Streams, their ids, and the form of their frame."""

    rows: StreamRows
    ids: list[Any] | None = None
    source: FrameSource | None = None


def as_streams(streams: object, offsets: object, value: str | None, by: str | None, time: str | None) -> Streams:
    """Streams from frames, mappings, and inputs of :func:`as_rows`; else an error."""
    family = _family(streams)
    if (value is None) is not (by is None):
        missing, there = ("value", "by") if value is None else ("by", "value")
        raise ParameterError(f"{missing} = None: expected the name of a column, because {there} is given")
    if family is None and (by is not None or time is not None):
        raise ParameterError(f"streams is a {type(streams).__name__}: expected {ACCEPTED}, because columns are named")
    if offsets is not None or family is None:
        if by is not None or time is not None:
            raise ParameterError("offsets: expected None where columns of a frame are named")
        if isinstance(streams, Mapping) and offsets is None:
            columns = [as_column(stream, f"streams[{i}]") for i, stream in enumerate(streams.values())]
            return Streams(as_rows(columns), list(streams))
        return Streams(as_rows(streams, offsets))
    return _wide(streams, family, time) if by is None else _long(streams, family, str(value), by, time)


def _library(values: object) -> str | None:
    return next((_FAMILY_OF[home] for home in homes_of(values) if home in _FAMILY_OF), None)


def _family(streams: object) -> str | None:
    # Of the class: a lazy frame warns where it is asked for its columns.
    framed = hasattr(type(streams), "columns") and getattr(streams, "ndim", 2) == 2
    return _library(streams) if framed else None


def _table(frame: Frame, columns: dict[str, str]) -> pa.Table:
    wanted = list(columns.values())
    # The release, as a frame, has columns of these names too.
    reserved = {"revised"} if "time" in columns else {"revised", "position"}
    if len({*wanted, *reserved}) < len(wanted) + len(reserved):
        raise ParameterError(
            f"{', '.join(columns)} = {', '.join(map(repr, wanted))}: expected different columns, none of them called "
            f"{' or '.join(map(repr, sorted(reserved)))}"
        )
    return open_source(frame, wanted).table()


def _wide(frame: Any, family: str, time: str | None) -> Streams:
    if family == "duckdb" or hasattr(frame, "collect"):
        frame = arrow.table(frame if family == "duckdb" else frame.collect())
    times, order = None, None
    if time is not None:
        times = _table(frame, {"time": time}).column(0)
        clock = _clock(times, time)
        order = None if bool((clock[1:] >= clock[:-1]).all()) else np.argsort(clock, kind="stable")
        times = (times if order is None else times.take(order)).combine_chunks()
    columns = [named for named in _columns(frame) if time is None or named[0] != time]
    streams = [as_column(column, f"streams[{i}]") for i, (_, column) in enumerate(columns)]
    names = family, "stream", "position" if time is None else time, "value"
    source = FrameSource(*names, times, np.zeros(len(columns), np.int64))
    rows = as_rows(streams if order is None else [stream[order] for stream in streams])
    return Streams(rows, [name for name, _ in columns], source)


def _columns(frame: Any) -> list[tuple[Any, Any]]:
    if hasattr(frame, "iloc"):
        return [(name, frame.iloc[:, i]) for i, name in enumerate(frame.columns)]
    if hasattr(frame, "get_columns"):
        return [(column.name, column) for column in frame.get_columns()]
    return list(zip(frame.schema.names, frame.columns, strict=True))


def _long(frame: Frame, family: str, value: str, by: str, time: str | None) -> Streams:
    table = _table(frame, {"value": value, "by": by} | ({} if time is None else {"time": time}))
    codes, ids = _codes(table.column(by), by)
    values = as_floats(as_column(table.column(value), value))
    times = None if time is None else table.column(time)
    clock = np.zeros(0) if times is None else _clock(times, str(time))
    if bool((clock[1:] < clock[:-1]).any() or (codes[1:] < codes[:-1]).any()):
        order = np.lexsort((clock, codes)) if times is not None else np.argsort(codes, kind="stable")
        values, times = values[order], None if times is None else times.take(order)
    lengths = np.bincount(codes, minlength=len(ids)).astype(np.int64)
    borders = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    names = family, by, "position" if time is None else time, value
    source = FrameSource(*names, None if times is None else times.combine_chunks(), borders[:-1])
    return Streams(as_rows(values, borders), ids, source)


def _codes(column: pa.ChunkedArray, by: str) -> tuple[Indices, list[int | str]]:
    kind = column.type.value_type if arrow.types.is_dictionary(column.type) else column.type
    texts = arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or arrow.types.is_string_view(kind)
    if not texts and not arrow.types.is_integer(kind):
        raise DataError(
            f"{by} holds {kind_of(kind)} entries: expected texts or whole numbers, the ids of the streams"
        )
    # Decoded first: a dictionary may have entries of no row, in any order.
    column = column.cast(arrow.large_string() if texts else kind)
    if column.null_count:
        raise DataError(f"{by}: {column.null_count} of {len(column)} rows have no id; expected one in every row")
    encoded = column.combine_chunks().dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()


def _clock(times: pa.ChunkedArray, time: str) -> Array:
    kind = times.type
    if times.null_count:
        raise DataError(f"{time}: {times.null_count} of {len(times)} rows have no time; expected one in every row")
    if arrow.types.is_temporal(kind):
        times = times.cast(arrow.int32() if arrow.types.is_date32(kind) else arrow.int64())
    elif not (arrow.types.is_integer(kind) or arrow.types.is_floating(kind)):
        raise DataError(f"{time} holds {kind_of(kind)} entries: expected timestamps, dates or numbers")
    clock: Array = times.to_numpy()
    if clock.dtype.kind == "f" and not np.isfinite(clock).all():
        raise DataError(f"{time}: a row has no time; expected one in every row")
    return clock


# Numbers of any shape and family as one column, and the way back.

Back = Callable[[Array], Any]


def as_shaped(values: Any, name: str) -> tuple[Array, Back]:
    """The numbers as one column, and a function that gives as many the input's form.

    `values`: a number, (nested) lists, an array of any shape (the result is NumPy's), a series, frame, Arrow array or
    table, or as for :func:`~fastdp.data.column.as_column`; DataError unless real.  The column is integer only if all
    numbers are.
    """
    if is_number(values):
        return as_column([values], name), lambda out: out.reshape(-1)[0].item()
    values = numpy_of(values)
    if _family(values) not in (None, "duckdb") and hasattr(values, "shape"):
        columns = [as_column(column, f"{name}, column {i}") for i, (_, column) in enumerate(_columns(values))]
        joined = np.column_stack(columns).reshape(-1) if columns else np.empty(0)
        return joined, lambda out: _like(values, out.reshape(values.shape))
    array = values if isinstance(values, np.ndarray) else None
    if isinstance(values, (list, tuple)) and any(isinstance(each, (list, tuple, np.ndarray)) for each in values):
        array = as_array(values)
    if array is None:
        return as_column(values, name), lambda out: _like(values, out)
    return as_column(array.reshape(-1), name), lambda out: out.reshape(array.shape)


def _like(values: Any, out: Array) -> Any:
    homes = homes_of(values)
    if "pandas" in homes and hasattr(values, "iloc"):
        made = import_module("pandas")
        named = {"name": values.name} if out.ndim == 1 else {"columns": values.columns}
        return (made.Series if out.ndim == 1 else made.DataFrame)(out, index=values.index, **named)
    if "polars" in homes:
        made = import_module("polars")
        return made.Series(values.name, out) if out.ndim == 1 else made.DataFrame(out, values.columns, orient="row")
    if "pyarrow" not in homes:
        return out
    columns = list(map(arrow.array, np.ascontiguousarray(out.T))) if out.ndim == 2 else []
    return arrow.array(out) if out.ndim == 1 else arrow.Table.from_arrays(columns, names=values.schema.names)
