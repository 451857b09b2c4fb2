"""Values from columns of a Parquet file, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fastdp._optional import imported
from fastdp.data.column import as_column, as_floats, kind_of
from fastdp.data.readers import TIME, Choose, Chunks, Source, pick_column
from fastdp.errors import DataError

#: Bytes of a column read ahead; without it a row group's whole column is loaded at once.
BUFFER = 2**20


def import_pyarrow() -> Any:
    """The package that reads and writes Parquet.

    Raises
    ------
    DataError
        Saying how to get it.
    """
    told = "Parquet files need pyarrow, which is not installed: pip install 'fastdp-streams[parquet]'"
    imported("pyarrow.parquet", DataError(told))
    return imported("pyarrow", DataError(told))


@contextmanager
def damage_named(path: str) -> Iterator[None]:
    """Whatever Arrow raises on a damaged file, names that are no text included, is one line that names the file.

    Arrow's own words may quote a value; the operating system's do not.
    """
    arrow = import_pyarrow()
    try:
        yield
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = f" ({told})" if (told := getattr(error, "strerror", None)) else ""
        raise DataError(f"{path}: not a readable Parquet file, or damaged{reason}") from None


def read_table(source: Path | BinaryIO, columns: list[str] | None = None, **options: Any) -> Any:
    """An Arrow table of a whole Parquet file, or of some columns, read by this thread alone.

    A thread of Arrow's pools, pre-buffering included, may be the last owner of a Python file; where Python is ending,
    that aborts the process.
    """
    with import_pyarrow().parquet.ParquetFile(source, pre_buffer=False, **options) as file:
        return file.read(columns, use_threads=False)


def open_parquet(path: str, choose: Choose, chunk_size: int) -> Iterator[Source]:
    """Open some columns of a Parquet file; nulls become NaN."""
    arrow = import_pyarrow()
    with damage_named(path):
        table = arrow.parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)
    with table:
        schema = table.schema_arrow
        with damage_named(path):
            names = list(schema.names)
        if not names:
            raise DataError(f"{path}: holds no column")
        chosen = {kind: names[pick_column(c, names, len(names), path)] for kind, c in choose(names).items()}
        for kind, name in chosen.items():
            if names.count(name) > 1:
                raise DataError(f"{path}: several columns are named {name!r}; expected different names")
            _check_type(path, name, schema.field(name).type, moments=kind == TIME)
        yield Source(path, _batches(table, list(chosen.values()), chunk_size, path), table.metadata.num_rows)


def _check_type(path: str, name: str, kind: Any, *, moments: bool) -> None:
    types = import_pyarrow().types
    accepted = [types.is_integer, types.is_floating, types.is_boolean, types.is_null]
    if not any(fits(kind) for fits in [*accepted, *[types.is_timestamp] * moments]):
        wanted = "real numbers or moments" if moments else "real numbers"
        raise DataError(f"{path}, column {name!r}: holds {kind_of(kind)} entries; expected {wanted}")


def _batches(table: Any, names: list[str], chunk_size: int, path: str) -> Chunks:
    batches = table.iter_batches(batch_size=chunk_size, columns=list(dict.fromkeys(names)), use_threads=False)
    while True:
        with damage_named(path):
            batch = next(batches, None)
            if batch is None:
                return
            columns = [_numbers(batch.column(name)) for name in names]
        yield np.stack(columns, axis=1)


def _numbers(column: Any) -> NDArray[np.float64]:
    """Numbers as they are, moments as seconds since 1970."""
    if not import_pyarrow().types.is_timestamp(column.type):
        return as_floats(as_column(column))
    moments = np.asarray(column.to_numpy(zero_copy_only=False), "datetime64[us]")
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 1e6)
