"""One column of numbers from CSV or plain lines, in batches of lines.

A batch goes through NumPy's C reader when it is as plain as it looks, or as a whole through the csv module
when it has quotes; otherwise (missing cells, something wrong) row by row, which is slower and can name the
line.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from itertools import chain, islice
from operator import itemgetter, methodcaller
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import DataError
from fastdp.files.columns import is_index, is_name, pick_column
from fastdp.files.readers import Source

DELIMITERS = (",", "\t", ";")


def open_text(path: Path, column: str | None, chunk_size: int) -> Iterator[Source]:
    """Open a text file, compressed or not; progress counts the bytes on disk."""
    with ExitStack() as opened:
        file = opened.enter_context(path.open("rb"))
        stream: BinaryIO | gzip.GzipFile = file
        if path.name.lower().endswith(".gz"):
            stream = opened.enter_context(gzip.GzipFile(fileobj=file, mode="rb"))
        # The generator must let go of the file before the file closes.
        chunks = opened.enter_context(closing(read_text(stream, column, chunk_size, str(path))))
        yield Source(str(path), chunks, path.stat().st_size, "B", file.tell)


def read_text(
    stream: BinaryIO | gzip.GzipFile, column: str | None, chunk_size: int, where: str
) -> Generator[NDArray[np.float64], None, None]:
    """Values of one column, ``chunk_size`` lines at a time; the heading is read at once.

    Parameters
    ----------
    stream : binary file
        CSV or plain lines in UTF-8.
    column : str, optional
        A name or zero-based number; needed where there are several columns.
    chunk_size : int
        Lines in a batch.
    where : str
        The input's name, for messages.

    Returns
    -------
    generator of float64[<= chunk_size, but for blank lines that are filled in]
        Missing cells, and blank lines between values, are NaN: a stream's length is public, so no value may
        silently go missing.

    Raises
    ------
    DataError
        Naming the line and the column.
    """
    chunks = _chunks(stream, column, chunk_size, where)
    # A column that is not there is an error now, before a ledger is charged for reading the values.
    next(chunks)
    return chunks


def _chunks(
    stream: BinaryIO | gzip.GzipFile, column: str | None, chunk_size: int, where: str
) -> Generator[NDArray[np.float64], None, None]:
    # Undecodable bytes in other columns do no harm; in the requested column they are text.
    text = io.TextIOWrapper(cast("BinaryIO", stream), encoding="utf-8-sig", errors="surrogateescape")
    try:
        table = _Table(text, column, where)
        yield np.empty(0)
        while (chunk := table.read(chunk_size)) is not None:
            if chunk.size:
                yield chunk
    finally:
        # The stream belongs to the caller, who closes it.
        text.detach()


class _Table:
    """The rows behind the header, if any."""

    def __init__(self, text: Iterator[str], column: str | None, where: str) -> None:
        self._where = where
        self._lines: Iterator[str] = text
        self._line = 0  # lines consumed so far
        self._blank = 0  # blank lines not yet known to lie between values
        self._delimiter, self._width, self._column = ",", 1, 0
        self._label = ""
        self._begin(column)

    def _begin(self, column: str | None) -> None:
        """Find delimiter, header and column from the first row that is not blank."""
        for first in self._lines:
            self._line += 1
            if first.strip():
                break
        else:
            return
        if "\0" in first:
            raise DataError(f"{self._where}: not a UTF-8 text file (it holds zero bytes)")
        # The mark that occurs most; a comma where they agree.
        self._delimiter = max(DELIMITERS, key=first.count)
        taken = [first]
        more = self._recorded(taken)
        try:
            row = [cell.strip() for cell in next(csv.reader(chain([first], more), delimiter=self._delimiter))]
        except csv.Error as error:
            raise DataError(f"{self._where}, line {self._line}: not CSV ({error})") from None
        self._width = len(row)
        header = self._choose(column, row)
        if header:
            self._line += len(taken) - 1
        else:
            self._line -= 1
            self._lines = chain(taken, self._lines)

    def _recorded(self, taken: list[str]) -> Iterator[str]:
        for line in self._lines:
            taken.append(line)
            yield line

    def _choose(self, column: str | None, row: list[str]) -> bool:
        """Settle the column; whether the first row is a header."""
        numeric = [_number(cell) is not None for cell in row]
        named = column is not None and column in row and not is_index(column)
        names = row if named or not any(numeric) else None
        self._column = pick_column(column, names, self._width, self._where)
        cell = row[self._column]
        self._label = f"column {cell!r}" if names is not None and is_name(cell) else f"column {self._column}"
        # An empty cell among numbers, or alone, is a missing value, not a heading.
        return named or (not numeric[self._column] and (cell != "" or (any(row) and not any(numeric))))

    def read(self, count: int) -> NDArray[np.float64] | None:
        """Values of the next lines, or None at the end."""
        lines = list(islice(self._lines, count))
        if not lines:
            return None
        values = self._read_plain(lines)
        if values is None:
            return self._read_rows(lines)
        self._line += len(lines)
        return values

    def _read_plain(self, lines: list[str]) -> NDArray[np.float64] | None:
        """The quick way, or None if the batch is not plain numbers, one a line and as many cells in each."""
        text = "".join(lines)
        if self._blank or text.isspace():
            return None
        if '"' in text:
            return self._read_quoted(lines, text)
        # NumPy overlooks surplus cells behind the requested column.
        if set(map(methodcaller("count", self._delimiter), lines)) != {self._width - 1}:
            return None
        try:
            values = np.loadtxt(
                lines, delimiter=self._delimiter, comments=None, usecols=self._column, ndmin=1, dtype=np.float64
            )
        except ValueError:
            return None
        # NumPy skips blank lines; here they count.
        return values if values.size == len(lines) else None

    def _read_quoted(self, lines: list[str], text: str) -> NDArray[np.float64] | None:
        """Whole rows of quoted cells at once, or None if anything about them wants a closer look."""
        try:
            # Strict, so that quoted text which goes on behind the batch is an error here.
            rows = list(csv.reader(lines, delimiter=self._delimiter, strict=True))
            if "_" in text or set(map(len, rows)) != {self._width}:
                return None
            return np.array(list(map(float, map(itemgetter(self._column), rows))))
        except (csv.Error, ValueError):
            return None

    def _read_rows(self, lines: list[str]) -> NDArray[np.float64]:
        """The careful way: quotes (also around line ends), missing cells, and errors with their line."""
        reader = csv.reader(chain(lines, self._lines), delimiter=self._delimiter)
        values: list[float] = []
        start = 0
        try:
            for row in reader:
                if _is_blank(row):
                    self._blank += 1
                else:
                    values.extend([float("nan")] * self._blank)
                    self._blank = 0
                    values.append(self._value(row, self._line + start + 1))
                start = reader.line_num
                if start >= len(lines):
                    break
        except csv.Error as error:
            raise DataError(f"{self._where}, line {self._line + start + 1}: not CSV ({error})") from None
        self._line += start
        return np.array(values, dtype=np.float64)

    def _value(self, row: list[str], line: int) -> float:
        if len(row) != self._width:
            raise DataError(f"{self._where}, line {line}: {_columns(len(row))}; expected {self._width} as before")
        cell = row[self._column].strip()
        if not cell:
            return float("nan")
        value = _number(cell)
        if value is None:
            # The text stays unsaid: messages end up in logs, which are not private.
            raise DataError(f"{self._where}, line {line}, {self._label}: not a number")
        return value


def _is_blank(row: list[str]) -> bool:
    """A line of nothing but spaces; a quoted empty cell is a missing value instead."""
    return not row or (len(row) == 1 and row[0] != "" and not row[0].strip())


def _columns(count: int) -> str:
    return f"{count} column" + ("" if count == 1 else "s")


def _number(cell: str) -> float | None:
    """The number in a cell, or None; underscores, which Python accepts, are no part of a number in a file."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None
