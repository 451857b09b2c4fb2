"""Files and pipes, by their suffix or first bytes, as tables or as numbers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from fastdp import validation
from fastdp.data.column import Module, arrow, as_column, kind_of
from fastdp.data.text import ENDS, STDIN, Csv, TextFile, damage_named, pick
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Array, Floats
from fastdp.record import values_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.dataset import Dataset

    #: Arrow record batches.
    Batches = Iterator[pa.RecordBatch]

arrow_dataset: Any = Module("pyarrow.dataset")
arrow_ipc: Any = Module("pyarrow.ipc")
#: Rows read at a time: a few columns of them stay below some 10 MB.
BATCH = 2**18
ACCEPTED = (
    "a .csv, .tsv or .txt file (also .gz, .bz2), a .parquet or .arrow file, a folder of Parquet files, for numbers "
    "also .npy, or - for standard input"
)
PARQUET, ARROW, NUMPY = (".parquet", ".pq"), (".arrow", ".arrows", ".feather"), ".npy"
#: An Arrow stream begins so.
STREAM = b"\xff\xff\xff\xff"
#: Errors of NumPy on damaged files: headers are parsed as Python literals.
DAMAGE = (ValueError, EOFError, SyntaxError, TokenError, OverflowError, RuntimeError)


@dataclass(frozen=True)
class FileTable:
    """An open table, and ``read``, which returns batches of columns, more than once if ``again``.

    ``hint``: how a text was read, for messages.
    """

    where: str
    schema: pa.Schema
    read: Callable[[Sequence[str]], Batches]
    again: bool = True
    hint: str = ""


def is_source(source: object) -> bool:
    """True for a path or a :class:`Csv`."""
    return isinstance(source, (str, os.PathLike, Csv))


def open_table(source: Any, name: str = "frame") -> FileTable:
    """Open a path, "-" or :class:`Csv`."""
    path = validation.path(name, source.path if isinstance(source, Csv) else source)
    if text := _text(source, path):
        schema = text.schema()
        return FileTable(text.where, schema, lambda names: text.read(schema, names), text.again, text.hint)
    if path == STDIN or path.lower().endswith(ARROW):
        return _open_arrow(path)
    if not is_parquet(path):
        # A text that names no file may be an entry of data.
        shown = f" = {path!r}" if os.path.exists(path) else ""  # noqa: PTH110 - as above
        raise ParameterError(f"{name}{shown}: unknown kind of file; expected {ACCEPTED}")
    with damage_named(path):
        dataset = open_dataset(path)
        return FileTable(path, dataset.schema, lambda names: _named(path, scanned(dataset, names)))


def _text(source: Any, path: str, *, numbers: bool = False) -> TextFile | None:
    stdin: Any = sys.stdin
    binary = path.lower().endswith((*ARROW, NUMPY)) or is_parquet(path)
    if path == STDIN:
        binary = stdin.buffer.peek(len(STREAM))[: len(STREAM)] == STREAM
    if not isinstance(source, Csv):
        text = path.lower().removesuffix(".gz").removesuffix(".bz2").endswith(ENDS) or (path == STDIN and not binary)
        return TextFile(Csv(path), numbers=numbers) if text else None
    if binary:
        given = [name for name, value in values_of(source).items() if value != values_of(Csv(source.path))[name]]
        name = (given or ["path"])[0]
        raise ParameterError(f"{name} is for text files: {path!r} is none", parameter=name)
    return TextFile(source, numbers=numbers)


def is_parquet(path: str) -> bool:
    """True for a Parquet file's suffix, and for a folder."""
    return path.lower().endswith(PARQUET) or os.path.isdir(path)  # noqa: PTH112 - too long a text is no error


def open_dataset(path: str) -> Dataset:
    """Data set of a Parquet file or folder."""
    # In nanoseconds old times of 96 bits would be others.
    kind = arrow_dataset.ParquetFileFormat(
        coerce_int96_timestamp_unit="us", pre_buffer=False, use_buffered_stream=True
    )
    opened = arrow_dataset.dataset(path, format=kind)
    _ = opened.schema.names  # decoded
    return cast("Dataset", opened)


def scanned(dataset: Dataset, columns: Sequence[str]) -> Batches:
    """Batches of columns of a data set."""
    # Few batches are read ahead, so that memory stays small.
    ahead: Any = {"batch_size": BATCH, "batch_readahead": 2, "fragment_readahead": 1}
    return iter(dataset.scanner(list(columns), **ahead).to_batches())


def _named(path: str, batches: Iterable[Any], names: Sequence[str] | None = None) -> Batches:
    with damage_named(path):
        for batch in batches:
            yield batch if names is None else batch.select(list(names))


def _open_arrow(path: str) -> FileTable:
    with damage_named(path):
        if path == STDIN:
            stream = arrow_ipc.open_stream(sys.stdin.buffer)
            return FileTable("standard input", stream.schema, lambda names: _named(path, stream, names), again=False)
        with Path(path).open("rb") as file:
            whole = file.read(6) == b"ARROW1"
        opened = (arrow_ipc.open_file if whole else arrow_ipc.open_stream)(arrow.memory_map(path))
        schema = opened.schema

    def read(names: Sequence[str]) -> Batches:
        mapped = arrow.memory_map(path)
        found: Any = arrow_ipc.open_file(mapped) if whole else arrow_ipc.open_stream(mapped)
        batches = map(found.get_batch, range(found.num_record_batches)) if whole else found
        return _named(path, batches, names)

    return FileTable(path, schema, read)


# Numbers of one column.


def read_numbers(source: Any, column: str | None = None) -> Any:
    """All numbers of a column of a path, "-" or :class:`Csv`; any other object unchanged.

    ``column``: name, or zero-based number.  Missing numbers are NaN; .npy is mapped into memory.
    """
    if not is_source(source):
        return source
    path = validation.path("values", source.path if isinstance(source, Csv) else source)
    if path.lower().endswith(NUMPY) and not isinstance(source, Csv):
        return _array(path, column)
    if text := _text(source, path, numbers=True):
        with damage_named(text.where):
            return _joined(text.numbers(column))
    table = open_table(source, name="values")
    index = pick(column, table.schema.names, table.where)
    name, kind = table.schema.names[index], table.schema.types[index]
    if table.schema.names.count(name) > 1:
        raise ParameterError(f"{table.where}: several columns are named {name!r}; expected distinct names")
    with damage_named(table.where):
        found = arrow.chunked_array([batch.column(0) for batch in table.read([name])], kind)
        return as_column(found, f"{table.where}, column {name!r}")


def _joined(chunks: Iterator[Floats]) -> Floats:
    # Memory doubles: a request that is too large fails while there is some left for the error.
    values, size = np.empty(0), 0
    for chunk in chunks:
        if size + chunk.size > values.size:
            values.resize(max(size + chunk.size, 2 * values.size), refcheck=False)
        values[size : size + chunk.size] = chunk
        size += chunk.size
    values.resize(size, refcheck=False)
    return values


def _array(path: str, column: str | None) -> Array:
    with damage_named(path):
        with Path(path).open("rb") as file:
            # NumPy leaves a damaged archive open.
            packed = file.read(2) == b"PK"
        try:
            array = None if packed else np.load(path, mmap_mode="r", allow_pickle=False)
        except DAMAGE:
            # NumPy's own words would quote the file, and advise to unpickle it, which would be unsafe.
            raise DataError(
                f"{path}: not a readable .npy file (damaged, another format, or pickled objects)"
            ) from None
    if array is None or not 1 <= array.ndim <= 2:
        raise DataError(f"{path}: holds no array of one or two dimensions; expected numbers, or columns of them")
    names = array.dtype.names or [str(i) for i in range(1 if array.ndim == 1 else array.shape[1])]
    index = pick(column, names, path)
    found: Array = array[names[index]] if array.dtype.names else array if array.ndim == 1 else array[:, index]
    if found.dtype.kind not in "biuf" or found.ndim != 1:
        raise DataError(f"{path} holds {kind_of(found.dtype)} entries: expected real numbers")
    return found


def live_numbers(stream: BinaryIO, column: str | None = None, csv: Csv | None = None) -> Iterator[Floats]:
    """Numbers of a pipe's lines, as they arrive."""
    yield from TextFile(Csv(STDIN) if csv is None else csv, numbers=True, stream=stream).numbers(column)
