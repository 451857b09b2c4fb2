"""Columns of numbers, and one of times, from CSV or plain lines.

Arrow's reader takes blocks of lines of numbers; the csv module reads everything else, whose errors name the line.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from fastdp.data.readers import STDIN, TIME, Choose, ValueSource, is_index, is_name, pick_column
from fastdp.errors import DataError
from fastdp.kinds import Floats

DELIMITERS = (",", "\t", ";")
#: Bytes of a block; a text below half of it is not worth loading Arrow.
BLOCK = 2**20
NAN = float("nan")
EXPECTED = "expected seconds, or moments such as 2014-04-01T00:11:00 or 4/1/2014 0:11:00, in one notation in all rows"


def open_text(path: str, choose: Choose, chunk_size: int, *, ragged: bool, live: bool) -> Iterator[ValueSource]:
    """Open a text file or standard input; as :func:`fastdp.data.readers.open_table`.

    Missing cells, and blank lines between values, are NaN: a stream's length is public, so no value may be dropped.
    Errors name line and column.
    """
    with ExitStack() as opened:
        stream: BinaryIO | gzip.GzipFile
        if path == STDIN:
            stream, where, progress = sys.stdin.buffer, "standard input", dict[str, Any]()
        else:
            stream = file = opened.enter_context(Path(path).open("rb"))
            where, progress = path, {"total": Path(path).stat().st_size, "unit": "B", "position": file.tell}
            if path.lower().endswith(".gz"):
                stream = opened.enter_context(gzip.GzipFile(fileobj=file, mode="rb"))
        # A column that is not there is an error now, before a ledger is charged for reading the values.
        table = _Table(_Lines(stream), choose, where, ragged)
        # Closed before the file, and not when it is collected: standard input may be gone then.
        yield ValueSource(where, opened.enter_context(closing(table.chunks(chunk_size, live))), **progress)


def number(cell: str) -> float | None:
    """Read the number in `cell`, also with underscores; None if there is none."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _seconds(parse: Callable[[str], datetime], cell: str) -> float | None:
    try:
        moment = parse(cell)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        return None


class _Times:
    def __init__(self) -> None:
        american = lambda cell: datetime.strptime(cell, "%m/%d/%Y %H:%M:%S")  # noqa: E731
        moments = partial(_seconds, datetime.fromisoformat), partial(_seconds, american)
        self.notations: tuple[Callable[[str], float | None], ...] = (number, *moments)

    def __call__(self, cell: str) -> float | None:
        for notation in self.notations:
            if (seconds := notation(cell)) is not None:
                self.notations = (notation,)
                return seconds
        return None


class _Lines:
    def __init__(self, stream: BinaryIO | gzip.GzipFile) -> None:
        self._stream = cast("io.BufferedReader", stream)
        self._rest, self._begun, self._ended = b"", False, False
        self.waiting = deque[str]()
        self.number = 0  # of lines given out so far

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not self.waiting:
            if not (block := self.block(BLOCK // 16)):
                raise StopIteration
            self.decode(block)
        self.number += 1
        return self.waiting.popleft()

    def skip(self, count: int) -> None:
        self.number += count
        for _ in range(count):
            self.waiting.popleft()

    def decode(self, block: bytes) -> None:
        # Undecodable bytes in a column that is not requested do no harm; in a requested column they are text.
        self.waiting.extend(io.StringIO(block.decode("utf-8", "surrogateescape"), newline=None))

    def block(self, size: int, enough: int = 0) -> bytes:
        while not self._ended:
            got = self._stream.read1(size)
            self._ended = not got
            self._rest += got
            if got and len(self._rest) < enough:
                continue
            # What ends in \r may go on with \n.
            cut = len(self._rest) if self._ended else max(self._rest.rfind(b"\n"), self._rest.rfind(b"\r", 0, -1)) + 1
            block, self._rest = self._rest[:cut], self._rest[cut:]
            if block:
                begun, self._begun = self._begun, True
                return block if begun else block.removeprefix(codecs.BOM_UTF8)
        return b""


class _Table:
    def __init__(self, lines: _Lines, choose: Choose, where: str, ragged: bool) -> None:
        self._lines, self._where, self._ragged = lines, where, ragged
        self._blank = 0  # blank lines not yet known to lie between values
        self._times = _Times()
        self._columns = list[tuple[int, Callable[[str], float | None], str]]()
        self._delimiter, self._width = ",", 1
        self._rows = iter(list[list[str]]())
        self._first = np.empty((0, 1))
        self._begin(choose)

    def _begin(self, choose: Choose) -> None:
        first = next((line for line in self._lines if line.strip()), None)
        if first is None:
            choose(())
            return
        if "\0" in first:
            raise DataError(f"{self._where}: not a UTF-8 text file (it holds zero bytes)")
        line = self._lines.number
        # The mark that occurs most; a comma where they agree.
        self._delimiter = max(DELIMITERS, key=first.count)
        self._rows = csv.reader(chain([first], self._lines), delimiter=self._delimiter)
        try:
            row = [cell.strip() for cell in next(self._rows)]
        except csv.Error as error:
            raise DataError(f"{self._where}, line {line}: not CSV ({error})") from None
        self._width = len(row)
        if not self._choose(choose, row):
            self._first = np.array([self._values(row, line)])

    def _choose(self, choose: Choose, row: Sequence[str]) -> bool:
        numeric = any(number(cell) is not None for cell in row)
        wanted = choose(() if numeric else row)
        named = any(column in row and not is_index(column) for column in wanted.values() if column is not None)
        names = row if named or not numeric else None
        headings = set()
        for kind, column in wanted.items():
            # A first row that names none of the columns may be one of data.
            index = pick_column(column, names if named or column is None else None, self._width, self._where)
            cell, convert = row[index], self._times if kind == TIME else number
            label = f"column {cell!r}" if names is not None and is_name(cell) else f"column {index}"
            self._columns.append((index, convert, label))
            # An empty cell among numbers, or alone, is a missing value, not a heading.
            headings.add(named or (convert(cell) is None and (cell != "" or (any(row) and not numeric))))
        if len(headings) > 1:
            raise DataError(
                f"{self._where}: the first row has names in some of the columns and numbers in others; expected a "
                "first row of names, or numbers in every column"
            )
        return headings.pop()

    def chunks(self, count: int, live: bool) -> Generator[Floats, None, None]:
        values: Floats | None = self._first
        while values is not None:
            if len(values):
                yield values
            block = b"" if live or self._lines.waiting else self._lines.block(BLOCK, BLOCK // 2)
            values = self._by_arrow(block)
            if values is None:
                self._lines.decode(block)
                values = self._by_columns(count)
            if values is None:
                values = self._by_rows(count)

    def _by_arrow(self, block: bytes) -> Floats | None:
        # Arrow overlooks a quote that continues after the block, and a byte order mark.
        odd = b'"' in block or block.startswith(codecs.BOM_UTF8)
        if len(block) < BLOCK // 2 or odd or self._blank or self._times.notations[0] is not number:
            return None
        try:
            from pyarrow import csv as arrow
        except ImportError:
            return None
        names = [str(index) for index in range(self._width)]
        wanted = [names[index] for index, _, _ in self._columns]
        floats = dict.fromkeys(wanted, "float64")
        try:
            table = arrow.read_csv(
                io.BytesIO(block),
                arrow.ReadOptions(use_threads=False, column_names=names, block_size=len(block) + 1),
                arrow.ParseOptions(delimiter=self._delimiter, quote_char=False),
                arrow.ConvertOptions(column_types=floats, include_columns=list(floats), null_values=[""]),
            )
        except ValueError:  # surplus cells, or no number
            return None
        # Arrow skips blank lines; here they count, and a line of spaces is not a missing value.
        ends = block.count(b"\n") + (b"\r" in block and block.count(b"\r") - block.count(b"\r\n"))
        lines = ends + (not block.endswith((b"\n", b"\r")))
        if table.num_rows != lines or (self._width == 1 and table.column(0).null_count):
            return None
        self._times.notations = (number,)
        self._lines.number += lines
        return np.column_stack([table.column(name).to_numpy() for name in wanted])

    def _by_columns(self, count: int) -> Floats | None:
        lines, known = list(islice(self._lines.waiting, count)), self._times.notations
        text = "".join(lines)
        if self._blank or "_" in text or text.isspace():
            return None
        try:
            # Strict, so that quoted text that continues after these lines is an error here.
            rows = list(csv.reader(lines, delimiter=self._delimiter, strict=True))
            if set(map(len, rows)) == {self._width}:
                columns = [(float if convert is number else convert, index) for index, convert, _ in self._columns]
                values = [list(map(convert, map(itemgetter(index), rows))) for convert, index in columns]
                if not any(None in column for column in values):
                    self._lines.skip(len(lines))
                    return np.array(values, np.float64).T
        except (csv.Error, ValueError):
            pass
        self._times.notations = known
        return None

    def _by_rows(self, count: int) -> Floats | None:
        values, line = list[list[float]](), self._lines.number + 1
        try:
            for row in self._rows:
                # A line of nothing but spaces is blank; a quoted empty cell is a missing value instead.
                if not row or (len(row) == 1 and row[0] != "" and not row[0].strip()):
                    self._blank += not self._ragged
                else:
                    values += [[NAN] * len(self._columns)] * self._blank
                    values.append(self._values(row, line))
                    self._blank = 0
                line = self._lines.number + 1
                if len(values) >= count or not self._lines.waiting:
                    break
            else:
                return None
        except csv.Error as error:
            raise DataError(f"{self._where}, line {line}: not CSV ({error})") from None
        return np.array(values).reshape(-1, len(self._columns))

    def _values(self, row: Sequence[str], line: int) -> list[float]:
        if len(row) != self._width and not (self._ragged and len(row) > max(index for index, _, _ in self._columns)):
            columns = f"{len(row)} column" + "s" * (len(row) != 1)
            raise DataError(f"{self._where}, line {line}: {columns}; expected {self._width} as before")
        values = []
        for index, convert, label in self._columns:
            cell = row[index].strip()
            value = convert(cell) if cell else NAN
            if value is None:
                # The text stays unsaid: messages end up in logs, which are not private.
                fault = "not a number" if convert is number else f"not a time; {EXPECTED}"
                raise DataError(f"{self._where}, line {line}, {label}: {fault}")
            values.append(value)
        return values
