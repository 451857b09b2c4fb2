"""Where values come from: every kind of input as a generator of float64 arrays.

Memory stays constant however long the input is (an .npz array alone is loaded whole: it is compressed).
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import DataError

Chunks = Iterator[NDArray[np.float64]]

TEXT = (".csv", ".csv.gz", ".txt", ".txt.gz")
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
def open_source(path: str, column: str | None, chunk_size: int) -> Iterator[Source]:
    """Open an input by its suffix; ``-`` is standard input as text.

    Parameters
    ----------
    path : str
        A file's path, or ``-``.
    column : str, optional
        A column's name or zero-based number.
    chunk_size : int
        At most so many values at a time.

    Raises
    ------
    DataError
        If the input is missing, of an unknown kind, damaged, or holds something else than numbers.
    """
    try:
        yield from _open(path, column, chunk_size)
    except gzip.BadGzipFile:
        raise DataError(f"{path}: not a gzip file, or damaged") from None
    except (BadZipFile, zlib.error, EOFError):
        raise DataError(f"{path}: the file is damaged or incomplete; expected a whole one") from None


def _open(path: str, column: str | None, chunk_size: int) -> Iterator[Source]:
    from fastdp.files import array_readers, parquet_reader, text_reader

    if path == STDIN:
        # Closed with the source, not when it is collected: its stream may be gone then.
        with closing(text_reader.read_text(sys.stdin.buffer, column, chunk_size, "standard input")) as chunks:
            yield Source("standard input", chunks)
        return
    file = Path(path)
    if not file.exists():
        raise DataError(f"{path}: no such file")
    if file.is_dir():
        raise DataError(f"{path}: is a folder; expected a file")
    name = file.name.lower()
    if name.endswith(TEXT):
        yield from text_reader.open_text(file, column, chunk_size)
    elif name.endswith(".npy"):
        yield array_readers.open_npy(file, column, chunk_size)
    elif name.endswith(".npz"):
        yield array_readers.open_npz(file, column, chunk_size)
    elif name.endswith((".parquet", ".pq")):
        yield from parquet_reader.open_parquet(file, column, chunk_size)
    else:
        raise DataError(
            f"{path}: unknown kind of file; expected .csv, .csv.gz, .txt, .txt.gz, .parquet, .npy, .npz, "
            "or - for standard input"
        )
