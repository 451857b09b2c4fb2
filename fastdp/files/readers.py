"""Where values come from: every kind of input as a generator of float64 arrays.

Memory stays constant however long the input is (an .npz array alone is loaded whole: it is compressed).
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

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
        At most so many values at a time.
    live : bool
        Whether lines of standard input are given out as they come, without waiting for a whole chunk.

    Raises
    ------
    DataError
        If the input is missing, of an unknown kind, damaged, or holds something else than numbers.
    """
    from fastdp.files import array_readers

    file = Path(path)
    if file.name.lower().endswith(ARRAYS):
        _check_file(path)
        opened = array_readers.open_npy if file.name.lower().endswith(".npy") else array_readers.open_npz
        with _damage_named(path):
            yield opened(file, column, chunk_size)
        return
    with open_table(path, lambda names: {"value": column}, chunk_size, live=live) as source:
        chunks = (chunk[:, 0] for chunk in source.chunks)
        yield replace(source, chunks=chunks)


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
        At most so many rows at a time.
    ragged : bool
        Whether blank lines of a text are skipped and rows may have surplus cells, as those of some public data sets.
    live : bool
        As for :func:`open_source`.

    Raises
    ------
    DataError
        As for :func:`open_source`.
    """
    with _damage_named(path):
        yield from _open(path, choose, chunk_size, ragged=ragged, live=live)


@contextmanager
def _damage_named(path: str) -> Iterator[None]:
    try:
        yield
    except gzip.BadGzipFile:
        raise DataError(f"{path}: not a gzip file, or damaged") from None
    except (BadZipFile, zlib.error, EOFError):
        raise DataError(f"{path}: the file is damaged or incomplete; expected a whole one") from None


def _open(path: str, choose: Choose, chunk_size: int, *, ragged: bool, live: bool) -> Iterator[Source]:
    from fastdp.files import parquet_reader, text_reader

    if path == STDIN:
        # Closed with the source, not when it is collected: its stream may be gone then.
        read = text_reader.read_text(sys.stdin.buffer, choose, chunk_size, "standard input", live=live)
        with closing(read) as chunks:
            yield Source("standard input", chunks)
        return
    _check_file(path)
    file = Path(path)
    name = file.name.lower()
    if name.endswith(TEXT):
        yield from text_reader.open_text(file, choose, chunk_size, ragged=ragged)
    elif name.endswith(PARQUET):
        yield from parquet_reader.open_parquet(file, choose, chunk_size)
    else:
        raise DataError(
            f"{path}: unknown kind of file; expected .csv, .csv.gz, .txt, .txt.gz, .parquet, .npy, .npz (one column "
            "of numbers), or - for standard input"
        )


def _check_file(path: str) -> None:
    if not Path(path).exists():
        raise DataError(f"{path}: no such file")
    if Path(path).is_dir():
        raise DataError(f"{path}: is a folder; expected a file")
