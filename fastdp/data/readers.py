"""Where values come from: every kind of input as a generator of float64 arrays.

Memory stays constant however long the input is (an .npz array alone is loaded whole: it is compressed).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fastdp.data.column import as_floats, kind_of
from fastdp.errors import DataError

Chunks = Iterator[NDArray[np.float64]]

#: Which columns are wanted, by what they are, given the names of all.
Choose = Callable[[Sequence[str]], Mapping[str, str | None]]
#: What a column of times is called there.
TIME = "time"

TEXT = (".csv", ".csv.gz", ".txt", ".txt.gz")
PARQUET = (".parquet", ".pq")
ARRAYS = (".npy", ".npz")
STDIN = "-"
MAX_LISTED = 30
#: What NumPy and the archive's reader raise on damaged files; headers are parsed as Python literals.
DAMAGE = (ValueError, EOFError, SyntaxError, TokenError, OverflowError, MemoryError, RuntimeError)


@dataclass(frozen=True)
class Source:
    """An open input.

    Attributes
    ----------
    name : str
        For messages.
    chunks : iterator of float64[n]
        The values in order; missing ones are NaN.
    total : int or None
        Length of the whole input in ``unit``, where it is known beforehand.
    unit : str
        "values", or "B" for text, where only bytes are known beforehand.
    position : callable, optional
        How many bytes were read, for text; None where values are counted.
    """

    name: str
    chunks: Chunks
    total: int | None = None
    unit: str = "values"
    position: Callable[[], int] | None = None


@contextmanager
def open_source(path: str, column: str | None, chunk_size: int, *, live: bool = False) -> Iterator[Source]:
    """Open one column of an input by its suffix; ``-`` is standard input as text.

    Parameters
    ----------
    path : str
        A file's path, or ``-``.
    column : str, optional
        A column's name or zero-based number; needed where there are several.
    chunk_size : int
        Values at a time, about; long texts come in blocks of their lines.
    live : bool
        Whether lines of standard input are given out as they come, without waiting for a whole chunk.

    Raises
    ------
    DataError
        If the input is missing, of an unknown kind, damaged, or holds something else than numbers.
    """
    if path.lower().endswith(ARRAYS):
        with _damage_named(path):
            _check_file(path)
            opened = _open_npy if path.lower().endswith(".npy") else _open_npz
            yield opened(path, column, chunk_size)
        return
    with open_table(path, lambda names: {"value": column}, chunk_size, live=live) as source:
        yield replace(source, chunks=(chunk[:, 0] for chunk in source.chunks))


@contextmanager
def open_table(
    path: str, choose: Choose, chunk_size: int, *, ragged: bool = False, live: bool = False
) -> Iterator[Source]:
    """Open some columns of a text or Parquet file, or of standard input as text; chunks are float64[n, columns].

    Parameters
    ----------
    path : str
        A file's path, or ``-``.
    choose : function of a sequence of str
        Gets the columns' names (none if the first row holds numbers) and returns the columns that are wanted, each a
        name or a zero-based number, by what they are.  What is called ``TIME`` may hold moments, which become
        seconds since 1970.
    chunk_size : int
        As for :func:`open_source`.
    ragged : bool
        Whether blank lines of a text are skipped and rows may have surplus cells, as those of some public data sets.
    live : bool
        As for :func:`open_source`.

    Raises
    ------
    DataError
        As for :func:`open_source`.
    """
    from fastdp.data import parquet_reader, text_reader

    with _damage_named(path):
        if path != STDIN:
            _check_file(path)
        if path == STDIN or path.lower().endswith(TEXT):
            yield from text_reader.open_text(path, choose, chunk_size, ragged=ragged, live=live)
        elif path.lower().endswith(PARQUET):
            yield from parquet_reader.open_parquet(path, choose, chunk_size)
        else:
            raise DataError(
                f"{path}: unknown kind of file; expected .csv, .csv.gz, .txt, .txt.gz, .parquet, .npy, .npz (one "
                "column of numbers), or - for standard input"
            )


@contextmanager
def _damage_named(path: str) -> Iterator[None]:
    try:
        yield
    except gzip.BadGzipFile:
        raise DataError(f"{path}: not a gzip file, or damaged") from None
    except (BadZipFile, zlib.error, EOFError):
        raise DataError(f"{path}: the file is damaged or incomplete; expected a whole one") from None


def _check_file(path: str) -> None:
    if not Path(path).exists():
        raise DataError(f"{path}: no such file")
    if Path(path).is_dir():
        raise DataError(f"{path}: is a folder; expected a file")


def _open_npy(path: str, column: str | None, chunk_size: int) -> Source:
    """Open an .npy file of one row of numbers, of several columns, or of named fields."""
    whole = _loaded(lambda: np.load(path, mmap_mode="r", allow_pickle=False), f"{path}: not a readable .npy file")
    if not isinstance(whole, np.memmap):
        raise DataError(f"{path}: not a readable .npy file (it is an archive; expected the suffix .npz)")
    names, shape = whole.dtype.names, whole.shape
    if len(shape) not in (1, 2) or (names and len(shape) != 1):
        raise DataError(f"{path} has shape {shape}: expected one row of numbers, or columns")
    width = len(names) if names else (*shape, 1)[1]
    if width == 0:
        raise DataError(f"{path} has shape {shape}: expected at least one column")
    index = pick_column(column, names, width, path)
    cut: Any = names[index] if names else (slice(None), index)[: len(shape)]
    _check_numbers(whole[cut], path)
    again: Any = partial(np.memmap, path, whole.dtype, "r", whole.offset, shape, "CF"[not whole.flags.c_contiguous])
    # Mapped for each chunk and copied, so that resident memory does not grow with the file.
    chunks = (np.array(again()[at : at + chunk_size][cut], float) for at in range(0, shape[0], chunk_size))
    return Source(path, chunks, shape[0])


def _open_npz(path: str, column: str | None, chunk_size: int) -> Source:
    """Open one array of an .npz file; ``column`` names it where there are several."""
    # Opened here, because NumPy leaves a damaged archive open.
    with Path(path).open("rb") as file:
        archive = _loaded(lambda: np.load(file, allow_pickle=False), f"{path}: not a readable .npz file")
        if isinstance(archive, np.ndarray):
            raise DataError(f"{path}: not a readable .npz file (it is a single array; expected the suffix .npy)")
        with archive:
            names = archive.files
            if not names:
                raise DataError(f"{path}: holds no array")
            name = names[pick_column(column, names, len(names), path)]
            where = f"{path}, array {name!r}"
            array = _loaded(lambda: archive[name], f"{where}: not readable")
    if not isinstance(array, np.ndarray):
        raise DataError(f"{where}: not a NumPy array")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    _check_numbers(array, where)
    if array.ndim != 1:
        raise DataError(f"{where} has shape {array.shape}: expected one row of numbers")
    floats = as_floats(array)
    return Source(path, (floats[at : at + chunk_size] for at in range(0, array.size, chunk_size)), array.size)


def _loaded(load: Callable[[], Any], fault: str) -> Any:
    try:
        return load()
    except DAMAGE:
        # NumPy's own words would quote the file, and advise to unpickle it, which would be unsafe.
        raise DataError(f"{fault} (damaged, not in NumPy's format, or pickled objects)") from None


def _check_numbers(array: NDArray[Any], where: str) -> None:
    if array.dtype.kind not in "biuf":
        raise DataError(f"{where} holds {kind_of(array.dtype)} entries: expected real numbers")


def pick_column(column: str | None, names: Sequence[str] | None, width: int, where: str) -> int:
    """The zero-based number of the requested column.

    Parameters
    ----------
    column : str, optional
        A name or a zero-based number; a name counts first, so that columns named by numbers are reachable.
    names : sequence of str, optional
        The columns' names, where they have any.
    width : int
        How many columns there are.
    where : str
        The file, for messages.

    Raises
    ------
    DataError
        Listing the columns there are.
    """
    if column is None:
        if width == 1:
            return 0
        raise DataError(f"{where} has {width} columns: expected --column, one of {listed(names, width)}")
    if names is not None and column in names:
        if list(names).count(column) > 1:
            raise DataError(f"--column {column!r}: {where} has several columns of that name; expected a number")
        return list(names).index(column)
    if is_index(column) and int(column) < width:
        return int(column)
    raise DataError(f"--column {column!r}: {where} has no such column; expected one of {listed(names, width)}")


def is_index(column: str) -> bool:
    """Whether the text is a zero-based number."""
    return column.isascii() and column.isdigit()


def listed(names: Sequence[str] | None, width: int) -> str:
    """The columns there are, for a message."""
    shown = range(min(width, MAX_LISTED))
    listed = [str(k) if names is None or not is_name(names[k]) else f"{names[k]!r} ({k})" for k in shown]
    return ", ".join(listed) + (", ..." if width > MAX_LISTED else "")


def is_name(cell: str) -> bool:
    """Whether a cell of a first row may be shown as a column's name: one that begins like a number may be data."""
    return cell[:1].isalpha() or cell.startswith("_")
