"""Values from one column of a Parquet file, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from fastdp.arrays.column import as_column, as_floats, kind_of
from fastdp.errors import DataError
from fastdp.files.columns import pick_column
from fastdp.files.readers import Chunks, Source

#: Bytes of a column read ahead; without it a row group's whole column is loaded at once.
BUFFER = 2**20


def import_pyarrow() -> Any:
    """The package that reads and writes Parquet.

    Raises
    ------
    DataError
        Saying how to get it.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError("Parquet files need pyarrow, which is not installed: pip install 'fastdp[parquet]'") from None
    return pyarrow


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Whatever Arrow raises on a damaged file, names that are no text included, is one line that names the file.

    Arrow's own words may quote a value; the operating system's do not.
    """
    arrow = import_pyarrow()
    try:
        yield
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None)
        raise DataError(
            f"{path}: not a readable Parquet file, or damaged" + (f" ({reason})" if reason else "")
        ) from None


def read_table(source: Path | BinaryIO, columns: list[str] | None = None, **options: Any) -> Any:
    """An Arrow table of a whole Parquet file, or of some columns, read by this thread alone.

    A thread of Arrow's pools, pre-buffering included, may be the last owner of a Python file; where Python is ending,
    that aborts the process.
    """
    with import_pyarrow().parquet.ParquetFile(source, pre_buffer=False, **options) as file:
        return file.read(columns, use_threads=False)


def open_parquet(path: Path, column: str | None, chunk_size: int) -> Iterator[Source]:
    """Open one column of a Parquet file; nulls become NaN."""
    arrow = import_pyarrow()
    with damage_named(path):
        table = arrow.parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)
    with table:
        schema = table.schema_arrow
        with damage_named(path):
            names = list(schema.names)
        if not names:
            raise DataError(f"{path}: holds no column")
        name = names[pick_column(column, names, len(names), str(path))]
        if names.count(name) > 1:
            raise DataError(f"{path}: several columns are named {name!r}; expected different names")
        kind = schema.field(name).type
        types = arrow.types
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind)):
            raise DataError(f"{path}, column {name!r}: holds {kind_of(kind)} entries; expected real numbers")
        yield Source(str(path), _batches(table, name, chunk_size, path), table.metadata.num_rows)


def _batches(table: Any, name: str, chunk_size: int, path: Path) -> Chunks:
    batches = iter(table.iter_batches(batch_size=chunk_size, columns=[name], use_threads=False))
    while True:
        with damage_named(path):
            batch = next(batches, None)
        if batch is None:
            return
        yield as_floats(as_column(batch.column(0)))
