"""Columns of numbers, and one of times, from CSV or plain lines, in batches of lines.

A batch that is as plain as it looks goes through Arrow's reader, where that is installed, or NumPy's, and one with
quotes as a whole through the csv module.  Otherwise (missing cells, times, something wrong) it is read row by row:
slower, but errors name the line.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from itertools import chain, islice
from operator import itemgetter, methodcaller
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import DataError
from fastdp.files.readers import TIME, Choose, Source
from fastdp.files.text import Lines, Times, is_index, is_name, number, pick_column

DELIMITERS = (",", "\t", ";")


def open_text(path: Path, choose: Choose, chunk_size: int, *, ragged: bool) -> Iterator[Source]:
    """Open a text file, compressed or not; progress counts the bytes on disk."""
    with ExitStack() as opened:
        file = opened.enter_context(path.open("rb"))
        stream: BinaryIO | gzip.GzipFile = file
        if path.name.lower().endswith(".gz"):
            stream = opened.enter_context(gzip.GzipFile(fileobj=file, mode="rb"))
        # The generator must let go of the file before the file closes.
        chunks = opened.enter_context(closing(read_text(stream, choose, chunk_size, str(path), ragged=ragged)))
        yield Source(str(path), chunks, path.stat().st_size, "B", file.tell)


def read_text(
    stream: BinaryIO | gzip.GzipFile,
    choose: Choose,
    chunk_size: int,
    where: str,
    *,
    ragged: bool = False,
    live: bool = False,
) -> Generator[NDArray[np.float64], None, None]:
    """Rows of the columns, ``chunk_size`` lines at a time; the heading is read at once.

    Parameters
    ----------
    stream : binary file
        CSV or plain lines in UTF-8.
    choose : function
        As for :func:`fastdp.files.readers.open_table`.
    chunk_size : int
        Lines in a batch.
    where : str
        The input's name, for messages.
    ragged, live : bool
        As for :func:`fastdp.files.readers.open_table`.

    Returns
    -------
    generator of float64[n, columns]
        Of about ``chunk_size`` rows.  Missing cells, and blank lines between values, are NaN: a stream's length is
        public, so no value may silently go missing.

    Raises
    ------
    DataError
        Naming the line and the column.
    """
    chunks = _chunks(stream, choose, chunk_size, where, ragged, live)
    # A column that is not there is an error now, before a ledger is charged for reading the values.
    next(chunks)
    return chunks


def _chunks(
    stream: BinaryIO | gzip.GzipFile, choose: Choose, chunk_size: int, where: str, ragged: bool, live: bool
) -> Generator[NDArray[np.float64], None, None]:
    table = _Table(Lines(stream), choose, where, ragged, live)
    yield np.empty((0, 1))
    while (chunk := table.read(chunk_size)) is not None:
        if chunk.size:
            yield chunk


class _Table:
    """The rows behind the header, if any."""

    def __init__(self, lines: Lines, choose: Choose, where: str, ragged: bool, live: bool) -> None:
        self._lines, self._where, self._ragged, self._live = lines, where, ragged, live
        self._line = 0  # lines consumed so far
        self._blank = 0  # blank lines not yet known to lie between values
        self._delimiter, self._width = ",", 1
        self._columns, self._labels = list[int](), list[str]()
        self._cells: list[Callable[[str], float | None]] = []
        self._times = Times()
        self._begin(choose)

    def _begin(self, choose: Choose) -> None:
        """Find delimiter, header and columns from the first row that is not blank."""
        first = next((line for line in self._counted() if line.strip()), None)
        if first is None:
            choose(())
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
        header = self._choose(choose, row)
        if header:
            self._line += len(taken) - 1
        else:
            self._line -= 1
            self._lines.put_back(taken)

    def _counted(self) -> Iterator[str]:
        for line in self._lines:
            self._line += 1
            yield line

    def _recorded(self, taken: list[str]) -> Iterator[str]:
        for line in self._lines:
            taken.append(line)
            yield line

    def _choose(self, choose: Choose, row: list[str]) -> bool:
        """Settle the columns; whether the first row is a header."""
        numeric = any(number(cell) is not None for cell in row)
        wanted = choose(() if numeric else row)
        named = any(column in row and not is_index(column) for column in wanted.values() if column is not None)
        names = row if named or not numeric else None
        headings = set()
        for kind, column in wanted.items():
            place = pick_column(column, names, self._width, self._where)
            cell, convert = row[place], self._times if kind == TIME else number
            self._columns.append(place)
            self._cells.append(convert)
            self._labels.append(f"column {cell!r}" if names is not None and is_name(cell) else f"column {place}")
            # An empty cell among numbers, or alone, is a missing value, not a heading.
            headings.add(named or (convert(cell) is None and (cell != "" or (any(row) and not numeric))))
        if len(headings) > 1:
            raise DataError(
                f"{self._where}: the first row has names in some of the columns and numbers in others; expected a "
                "first row of names, or numbers in every column"
            )
        return headings.pop()

    def read(self, count: int) -> NDArray[np.float64] | None:
        """Values of the next lines, or None at the end."""
        if not self._live and (block := self._lines.block()):
            values = self._read_block(block)
            if values is not None:
                return values
            self._lines.decode(block)
        # The first may have to be waited for, further ones not.
        lines = list(islice(self._lines, 1))
        lines += islice(self._lines, min(count - 1, len(self._lines)))
        if not lines:
            return None
        values = self._read_plain(lines)
        if values is None:
            return self._read_rows(lines)
        self._line += len(lines)
        return values

    def _read_block(self, block: bytes) -> NDArray[np.float64] | None:
        """The quickest way, if Arrow is installed; None if anything about the block is not plain."""
        if self._blank or b'"' in block or not self._times.may_be_numbers:
            return None
        try:
            from pyarrow import csv as arrow
        except ImportError:
            return None
        names = [str(place) for place in range(self._width)]
        wanted = [names[place] for place in self._columns]
        try:
            table = arrow.read_csv(
                io.BytesIO(block),
                arrow.ReadOptions(use_threads=False, column_names=names, block_size=len(block) + 1),
                arrow.ParseOptions(delimiter=self._delimiter, quote_char=False),
                arrow.ConvertOptions(
                    include_columns=list(dict.fromkeys(wanted)),
                    column_types=dict.fromkeys(wanted, "float64"),
                    null_values=[],
                ),
            )
        except ValueError:  # surplus cells, or what is no number
            return None
        # Arrow skips blank lines; here they count.
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        if table.num_rows != lines:
            return None
        self._times.are_numbers()
        self._line += lines
        return np.column_stack([column.to_numpy() for column in table.select(wanted).columns])

    def _read_plain(self, lines: list[str]) -> NDArray[np.float64] | None:
        """The quick way, or None if the batch is not plain numbers, one a line and as many cells in each."""
        text = "".join(lines)
        if self._blank or text.isspace():
            return None
        if '"' in text or not self._times.may_be_numbers:
            return self._read_cells(lines, text)
        # NumPy overlooks surplus cells behind the column that it is asked for.
        if set(map(methodcaller("count", self._delimiter), lines)) != {self._width - 1}:
            return None
        try:
            values = np.loadtxt(
                lines, delimiter=self._delimiter, comments=None, usecols=self._columns, ndmin=2, dtype=np.float64
            )
        except ValueError:
            return None
        # NumPy skips blank lines; here they count.
        if len(values) != len(lines):
            return None
        self._times.are_numbers()
        return values

    def _read_cells(self, lines: list[str], text: str) -> NDArray[np.float64] | None:
        """Whole rows of quoted cells or moments at once, or None if anything about them wants a closer look."""
        try:
            # Strict, so that quoted text which goes on behind the batch is an error here.
            rows = list(csv.reader(lines, delimiter=self._delimiter, strict=True))
            if "_" in text or set(map(len, rows)) != {self._width}:
                return None
            cells = [map(itemgetter(column), rows) for column in self._columns]
            values = [
                list(map(float if convert is number else self._times.seconds, column))
                for convert, column in zip(self._cells, cells, strict=True)
            ]
        except (csv.Error, ValueError):
            return None
        return np.array(values).T

    def _read_rows(self, lines: list[str]) -> NDArray[np.float64]:
        """The careful way: quotes (also around line ends), missing cells, and errors with their line."""
        reader = csv.reader(chain(lines, self._lines), delimiter=self._delimiter)
        values: list[list[float]] = []
        missing = [float("nan")] * len(self._columns)
        start = 0
        try:
            for row in reader:
                if _is_blank(row):
                    self._blank += not self._ragged
                else:
                    values.extend([missing] * self._blank)
                    self._blank = 0
                    values.append(self._values(row, self._line + start + 1))
                start = reader.line_num
                if start >= len(lines):
                    break
        except csv.Error as error:
            raise DataError(f"{self._where}, line {self._line + start + 1}: not CSV ({error})") from None
        self._line += start
        return np.array(values, dtype=np.float64).reshape(-1, len(self._columns))

    def _values(self, row: list[str], line: int) -> list[float]:
        if len(row) != self._width and not (self._ragged and len(row) > max(self._columns)):
            raise DataError(f"{self._where}, line {line}: {_columns(len(row))}; expected {self._width} as before")
        return [
            self._value(row[column].strip(), convert, line, label)
            for column, convert, label in zip(self._columns, self._cells, self._labels, strict=True)
        ]

    def _value(self, cell: str, convert: Callable[[str], float | None], line: int, label: str) -> float:
        if not cell:
            return float("nan")
        value = convert(cell)
        if value is None:
            # The text stays unsaid: messages end up in logs, which are not private.
            what = "not a number" if convert is number else f"not a time; {Times.EXPECTED}"
            raise DataError(f"{self._where}, line {line}, {label}: {what}")
        return value


def _is_blank(row: list[str]) -> bool:
    """A line of nothing but spaces; a quoted empty cell is a missing value instead."""
    return not row or (len(row) == 1 and row[0] != "" and not row[0].strip())


def _columns(count: int) -> str:
    return f"{count} column" + ("" if count == 1 else "s")
