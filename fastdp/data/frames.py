"""Many streams in a data frame: a row for each value (long), or a column for each stream (wide); and the way back.

Frames are read through Arrow (the PyCapsule interface), and are given back in the family that they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.data.column import as_column, as_floats, kind_of
from fastdp.data.rows import StreamRows, as_rows
from fastdp.data.source import import_tables, open_source
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Indices

#: Where the classes of frames are defined, and what their families are called.
FAMILIES = {"pandas": "pandas", "polars": "polars", "pyarrow": "pyarrow", "duckdb": "duckdb", "_duckdb": "duckdb"}
ACCEPTED = "a pandas or polars frame, an Arrow table, or a DuckDB relation"


@dataclass(frozen=True, eq=False)
class FrameSource:
    """What a frame was, so that a release can be one too.

    Attributes
    ----------
    family : str
        A value of :data:`FAMILIES`.
    by, time, value : str
        Names of the columns.
    times : Arrow array or None
        The time of each value, stream after stream; by default times are positions.
    starts : int64[n]
        Where the times of each stream begin.
    """

    family: str
    by: str
    time: str
    value: str
    times: Any
    starts: Indices

    def long(self, ids: list[int | str], lengths: Indices, offset: int, columns: Mapping[str, Any]) -> Any:
        """A frame of the family with a row for each value: its stream, its time, and these columns.

        Parameters
        ----------
        ids : list of int or str
            Of the streams.
        lengths : int64[n]
            Values of each stream.
        offset : int
            Position of a stream's first value.
        columns : mapping of str to array
            ``"values"`` takes the value column's name.
        """
        pa = import_tables()[1]
        which = np.repeat(np.arange(lengths.size), lengths)
        ends = np.cumsum(lengths)
        positions = np.arange(which.size) - np.repeat(ends - lengths, lengths) + offset
        named = {self.value if name == "values" else name: pa.array(column) for name, column in columns.items()}
        times = pa.array(positions) if self.times is None else self.times.take(self.starts[which] + positions)
        # Arrow's columns have one type.
        if len(set(map(type, ids))) > 1:
            ids = list(map(str, ids))
        table = pa.table({self.by: pa.array(ids).take(pa.array(which)), self.time: times, **named})
        return in_family(table, self.family)


def in_family(table: Any, family: str) -> Any:
    """An Arrow table as a pandas or polars data frame, a DuckDB relation, or as it is."""
    if family == "pandas":
        return table.to_pandas()
    return import_module(family).from_arrow(table) if family in ("polars", "duckdb") else table


@dataclass(frozen=True, eq=False)
class Streams:
    """Streams, their ids where the input names them, and the frame they came in, if any."""

    rows: StreamRows
    ids: list[Any] | None = None
    source: FrameSource | None = None


def as_streams(streams: Any, offsets: Any, value: str | None, by: str | None, time: str | None) -> Streams:
    """Streams from frames, mappings, and all that :func:`~fastdp.data.rows.as_rows` takes.

    Raises
    ------
    DataError, ParameterError
        If these are no streams of real numbers, or columns are missing.
    """
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


def _family(streams: Any) -> str | None:
    """The family of a two-dimensional frame."""
    for base in type(streams).__mro__:
        family = FAMILIES.get(base.__module__.partition(".")[0])
        if family is not None:
            # Of the class: a lazy frame warns where it is asked for its columns.
            framed = hasattr(type(streams), "columns") and getattr(streams, "ndim", 2) == 2
            return family if framed else None
    return None


def _table(frame: Any, columns: dict[str, str]) -> Any:
    """An Arrow table of the columns that the arguments (by name) ask for."""
    wanted = list(columns.values())
    # The release, as a frame, has columns of these names too.
    own = {"revised"} if "time" in columns else {"revised", "position"}
    if len({*wanted, *own}) < len(wanted) + len(own):
        raise ParameterError(
            f"{', '.join(columns)} = {', '.join(map(repr, wanted))}: expected different columns, none of them called "
            f"{' or '.join(map(repr, sorted(own)))}"
        )
    return open_source(frame, wanted).table()


def _wide(frame: Any, family: str, time: str | None) -> Streams:
    """Each column but the time is a stream, named as the column; rows in their order, or in that of the time."""
    if family == "duckdb" or hasattr(frame, "collect"):
        frame = import_tables()[1].table(frame if family == "duckdb" else frame.collect())
    columns = _columns(frame)
    times, order = None, None
    if time is not None:
        times = _table(frame, {"time": time}).column(0)
        clock = _clock(times, time)
        order = None if bool((clock[1:] >= clock[:-1]).all()) else np.argsort(clock, kind="stable")
        times = (times if order is None else times.take(order)).combine_chunks()
    ids = [name for name, _ in columns if time is None or name != time]
    streams = [column for name, column in columns if time is None or name != time]
    each = [as_column(column, f"streams[{i}]") for i, column in enumerate(streams)]
    source = FrameSource(
        *(family, "stream", "position" if time is None else time, "value", times), np.zeros(len(ids), np.int64)
    )
    return Streams(as_rows(each if order is None else [column[order] for column in each]), ids, source)


def _columns(frame: Any) -> list[tuple[Any, Any]]:
    """Names and columns of a pandas or polars frame, or Arrow table."""
    if hasattr(frame, "iloc"):
        return [(name, frame.iloc[:, i]) for i, name in enumerate(frame.columns)]
    if hasattr(frame, "get_columns"):
        return [(column.name, column) for column in frame.get_columns()]
    return list(zip(frame.schema.names, frame.columns, strict=True))


def _long(frame: Any, family: str, value: str, by: str, time: str | None) -> Streams:
    """A stream's rows in their order, or in that of their times; streams in the order of their first rows."""
    asked = {"value": value, "by": by} | ({} if time is None else {"time": time})
    table = _table(frame, asked)
    codes, ids = _codes(table.column(by), by)
    values = as_floats(as_column(table.column(value), value))
    times = None if time is None else table.column(time)
    order = _order(codes, times, time)
    lengths = np.bincount(codes, minlength=len(ids)).astype(np.int64)
    borders = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    if order is not None:
        values = values[order]
    if times is not None:
        times = times.combine_chunks() if order is None else times.take(order).combine_chunks()
    source = FrameSource(family, by, "position" if time is None else time, value, times, borders[:-1])
    return Streams(as_rows(values, borders), ids, source)


def _codes(column: Any, by: str) -> tuple[Indices, list[Any]]:
    """The number of each row's stream, and the streams' ids: texts or whole numbers."""
    pa = import_tables()[1]
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if not texts and not pa.types.is_integer(kind):
        raise DataError(
            f"{by} holds {kind_of(kind)} entries: expected texts or whole numbers, the ids of the streams"
        )
    if column.null_count:
        raise DataError(f"{by}: {column.null_count} of {len(column)} rows have no id; expected one in every row")
    if pa.types.is_dictionary(column.type):
        return _categories(column.unify_dictionaries().combine_chunks())
    plain = column.cast(pa.large_string() if texts else kind)
    encoded = plain.combine_chunks().dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()


def _categories(encoded: Any) -> tuple[Indices, list[Any]]:
    """The same of a dictionary, which may hold ids that do not occur."""
    ids = encoded.dictionary.to_pylist()
    used, firsts, codes = np.unique(encoded.indices.to_numpy(), return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    place: Indices = np.empty(used.size, np.int64)
    place[order] = np.arange(used.size)
    return place[codes], [ids[code] for code in used[order].tolist()]


def _order(codes: Indices, times: Any, time: str | None) -> Indices | None:
    """The order in which rows of one stream lie together, in that of time; None if they do already."""
    sorted_codes = bool((codes[1:] >= codes[:-1]).all())
    if times is None:
        return None if sorted_codes else np.argsort(codes, kind="stable")
    clock = _clock(times, str(time))
    if bool((clock[1:] >= clock[:-1]).all()):
        return None if sorted_codes else np.argsort(codes, kind="stable")
    return np.lexsort((clock, codes))


def _clock(times: Any, time: str) -> NDArray[Any]:
    """Times as numbers in their order."""
    pa = import_tables()[1]
    kind = times.type
    if times.null_count:
        raise DataError(f"{time}: {times.null_count} of {len(times)} rows have no time; expected one in every row")
    if pa.types.is_date32(kind):
        times = times.cast(pa.int32())
    elif pa.types.is_temporal(kind):
        times = times.cast(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise DataError(f"{time} holds {kind_of(kind)} entries: expected timestamps, dates or numbers")
    clock: NDArray[Any] = times.to_numpy()
    if clock.dtype.kind == "f" and not np.isfinite(clock).all():
        raise DataError(f"{time}: a row has no time; expected one in every row")
    return clock
