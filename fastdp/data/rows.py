"""Many streams from whatever the user has: a matrix, one array with borders, a list of columns, Arrow lists.

Streams are rows.  Float64 rows that lie in one contiguous array are used as they are; others are converted when
requested, some rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.data.column import as_array, as_column, as_floats, is_number, kind_of
from fastdp.errors import DataError
from fastdp.kinds import Floats, Indices

ACCEPTED = (
    "a two-dimensional array (a row is a stream), a one-dimensional one with offsets, a list of columns, or an Array "
    "of lists as Arrow and polars have them"
)


@dataclass(frozen=True)
class StreamRows:
    """Real numbers in rows.

    Attributes
    ----------
    rows : array [n, length], or list of n one-dimensional arrays
        Of any real dtype.  Without rows, they lie in ``flat``.
    flat : array, one-dimensional, or None
        All rows in one array.
    starts, lengths : int64[n]
        Where each row begins in ``flat`` and how long it is.
    """

    rows: NDArray[Any] | Sequence[NDArray[Any]] | None
    flat: NDArray[Any] | None
    starts: Indices
    lengths: Indices

    @property
    def size(self) -> int:
        """How many."""
        return self.lengths.size

    @property
    def shared(self) -> bool:
        """Whether rows are used where they lie."""
        return self.flat is not None and self.flat.dtype == np.float64 and self.flat.flags.c_contiguous

    def take(self, which: Indices, begin: int, end: int | None = None) -> tuple[Floats, Indices]:
        """Values [begin, end) of some rows, and where each row's lie in the array given: float64, contiguous.

        Rows must be long enough for ``end``; without one they are taken to their ends.
        """
        if self.flat is not None:
            if self.shared:
                return as_floats(self.flat), self.starts[which] + begin
            places = zip(self.starts[which].tolist(), self.lengths[which].tolist(), strict=True)
            columns = [self.flat[start : start + count] for start, count in places]
        else:
            assert self.rows is not None  # noqa: S101 - one of both is there
            if isinstance(self.rows, np.ndarray):
                part = np.asarray(self.rows[which, begin:end])
                return as_floats(part.reshape(-1)), np.arange(which.size) * part.shape[1]
            columns = [self.rows[i] for i in which.tolist()]
        cut = [as_floats(column[begin:end]) for column in columns]
        starts: Indices = np.zeros(len(cut), np.int64)
        np.cumsum([part.size for part in cut[:-1]], out=starts[1:])
        return as_floats(np.concatenate(cut) if cut else np.empty(0)), starts


def as_rows(streams: Any, offsets: Any = None) -> StreamRows:
    """Rows from what the user has.

    Parameters
    ----------
    streams : array-like
        As the module's docstring says.
    offsets : int[n + 1], optional
        Borders of the streams in a one-dimensional array, ascending from 0 to its length.

    Raises
    ------
    DataError
        If these are no streams of real numbers; the message says what they are instead.
    """
    if offsets is not None:
        return _cut(as_column(streams, "streams"), _as_borders(offsets))
    if isinstance(streams, np.ndarray) and streams.ndim == 2:
        return _from_matrix(streams)
    if isinstance(streams, (list, tuple)):
        columns = [as_column(stream, f"streams[{i}]") for i, stream in enumerate(streams)]
        lengths = np.array([column.size for column in columns], np.int64)
        return StreamRows(columns, None, np.zeros(lengths.size, np.int64), lengths)
    if hasattr(streams, "__arrow_c_stream__") or hasattr(streams, "__arrow_c_array__"):
        return _from_arrow(streams)
    shape = f" of shape {streams.shape}" if isinstance(streams, np.ndarray) else ""
    raise DataError(f"streams is a {type(streams).__name__}{shape}: expected {ACCEPTED}")


def _from_matrix(matrix: NDArray[Any]) -> StreamRows:
    if matrix.dtype.kind not in "biuf" or isinstance(matrix, np.ma.MaskedArray):
        kind = "masked entries" if isinstance(matrix, np.ma.MaskedArray) else f"{kind_of(matrix.dtype)} entries"
        raise DataError(f"streams holds {kind}: expected {ACCEPTED}, of real numbers")
    matrix = np.asarray(matrix)
    n, length = matrix.shape
    lengths = np.full(n, length, np.int64)
    if matrix.dtype == np.float64 and matrix.flags.c_contiguous and matrix.flags.aligned:
        return StreamRows(None, matrix.reshape(-1), np.arange(n) * length, lengths)
    return StreamRows(matrix, None, np.zeros(n, np.int64), lengths)


def _as_borders(offsets: Any) -> NDArray[Any]:
    borders = as_column(offsets, "offsets")
    if borders.dtype.kind not in "iu":
        raise DataError(f"offsets holds {kind_of(borders.dtype)} entries: expected whole numbers")
    return borders.astype(np.int64)


def _cut(column: NDArray[Any], borders: Indices) -> StreamRows:
    if borders.size == 0 or borders[0] != 0 or borders[-1] != column.size or (np.diff(borders) < 0).any():
        raise DataError(
            f"offsets has {borders.size} entries: expected borders that ascend from 0 to {column.size}, the number "
            "of values, one more than there are streams"
        )
    return StreamRows(None, column, borders[:-1], np.diff(borders))


def _from_arrow(streams: Any) -> StreamRows:
    try:
        import pyarrow as pa
    except ImportError:
        raise DataError(
            f"streams is a {type(streams).__name__}, read through Arrow: expected pyarrow to be installed "
            "(pip install 'fastdp-streams[parquet]'), or NumPy arrays"
        ) from None
    try:
        if hasattr(streams, "__arrow_c_stream__"):
            column = streams if isinstance(streams, pa.ChunkedArray) else pa.chunked_array(streams)
            array = column.combine_chunks()
            array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
        else:
            array = pa.array(streams)
    except Exception:  # whatever a foreign exporter raises
        raise DataError(
            f"streams is a {type(streams).__name__} that Arrow cannot read: expected {ACCEPTED}"
        ) from None
    lists = pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    if not lists and not pa.types.is_fixed_size_list(array.type):
        raise DataError(f"streams holds {kind_of(array.type)} entries: expected {ACCEPTED}")
    if array.null_count:
        raise DataError(f"streams has {array.null_count} missing streams: expected none")
    lengths = np.asarray(array.value_lengths().to_numpy(zero_copy_only=False), np.int64)
    return _cut(as_column(array.flatten(), "streams"), np.concatenate([[0], np.cumsum(lengths)]))


# Numbers of any shape and family as one column, and the way back.

Numbers = NDArray[Any]
Back = Callable[[Numbers], Any]


def as_shaped(values: Any, name: str) -> tuple[Numbers, Back]:
    """The numbers in one column, and what gives as many numbers the form that the values had.

    Parameters
    ----------
    values : number or array-like
        A number, a NumPy array of any shape, (nested) lists, a pandas or polars series or frame, an Arrow array or
        table, or what else :func:`~fastdp.data.column.as_column` takes.
    name : str
        The argument's name, for messages.

    Returns
    -------
    column : array, one-dimensional
        Of a real dtype; integers only where all numbers are integers.
    back : callable
        To a Python number, pandas, polars or pyarrow for what came from there, else to a NumPy array.

    Raises
    ------
    DataError
        If these are no real numbers.
    """
    if is_number(values):
        return as_column([values], name), lambda out: out.reshape(-1)[0].item()
    homes = {base.__module__.partition(".")[0] for base in type(values).__mro__}
    if "pandas" in homes:
        return _from_pandas(values, name)
    if "polars" in homes:
        return _from_polars(values, name)
    if "pyarrow" in homes:
        return _shaped_from_arrow(values, name)
    if isinstance(values, np.ndarray) and values.ndim == 0:
        return as_column(values.reshape(1), name), lambda out: out.reshape(())
    nested = isinstance(values, np.ndarray) or (
        isinstance(values, (list, tuple)) and any(isinstance(entry, (list, tuple, np.ndarray)) for entry in values)
    )
    array = as_array(values) if nested and not isinstance(values, np.ndarray) else values
    if not nested or array is None:
        return as_column(values, name), lambda out: out
    return as_column(array.reshape(-1), name), lambda out: out.reshape(array.shape)


def _joined(columns: list[Numbers]) -> Numbers:
    """Rows one after another."""
    return np.column_stack(columns).reshape(-1) if columns else np.empty(0)


def _from_pandas(values: Any, name: str) -> tuple[Numbers, Back]:
    import pandas as pd

    if isinstance(values, pd.DataFrame):
        columns = [as_column(values.iloc[:, i], f"{name}.iloc[:, {i}]") for i in range(values.shape[1])]
        return _joined(columns), lambda out: pd.DataFrame(
            out.reshape(values.shape), index=values.index, columns=values.columns
        )
    column = as_column(values, name)
    if not isinstance(values, pd.Series):
        return column, lambda out: out
    return column, lambda out: pd.Series(out, index=values.index, name=values.name)


def _from_polars(values: Any, name: str) -> tuple[Numbers, Back]:
    import polars as pl

    if isinstance(values, pl.DataFrame):
        columns = [as_column(column, f"{name}[:, {i}]") for i, column in enumerate(values.get_columns())]
        return _joined(columns), lambda out: pl.DataFrame(
            out.reshape(values.shape), schema=values.columns, orient="row"
        )
    return as_column(values, name), lambda out: pl.Series(values.name, out)


def _shaped_from_arrow(values: Any, name: str) -> tuple[Numbers, Back]:
    import pyarrow as pa

    if isinstance(values, (pa.Table, pa.RecordBatch)):
        columns = [as_column(column, f"{name}.column({i})") for i, column in enumerate(values.columns)]
        names = values.schema.names
        return _joined(columns), lambda out: pa.Table.from_arrays(
            list(map(pa.array, np.ascontiguousarray(out.reshape(values.shape).T))), names=names
        )
    return as_column(values, name), lambda out: pa.array(out)
