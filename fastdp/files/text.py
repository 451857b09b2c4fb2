"""Texts of numbers: their lines, columns and cells."""

from __future__ import annotations

import codecs
import gzip
import io
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import BinaryIO, cast

from fastdp.errors import DataError

#: Bytes of a block; a text below half of it is not worth a reader of blocks.
BLOCK = 2**20


class Lines:
    """The lines of a text as they come; its length says how many are there already."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile) -> None:
        self._stream = cast("io.BufferedReader", stream)
        self._lines, self._rest = deque[str](), b""
        self._begun = self._ended = False

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not self._lines:
            block = self._whole(BLOCK // 16)
            if not block:
                raise StopIteration
            self.decode(block)
        return self._lines.popleft()

    def put_back(self, lines: list[str]) -> None:
        """Lines that are to come once more."""
        self._lines.extendleft(reversed(lines))

    def block(self) -> bytes:
        """Whole lines as they are, about ``BLOCK`` bytes; nothing where fewer are left, or decoded lines wait."""
        block = b"" if self._lines else self._whole(BLOCK, BLOCK // 2)
        if len(block) >= BLOCK // 2:
            return block
        self.decode(block)
        return b""

    def decode(self, block: bytes) -> None:
        """Give out the lines of a block."""
        # Undecodable bytes in a column that is not requested do no harm; in a requested column they are text.
        text = block.decode("utf-8", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n")
        *whole, last = text.split("\n")
        self._lines.extend(f"{line}\n" for line in whole)
        if last:
            self._lines.append(last)

    def _whole(self, size: int, enough: int = 0) -> bytes:
        """Whole lines of what is there, waiting for more only below ``enough`` bytes; nothing at the end."""
        while not self._ended:
            got = self._stream.read1(size)
            self._ended = not got
            self._rest += got
            if got and len(self._rest) < enough:
                continue
            # What ends in \r may go on with \n.
            cut = max(self._rest.rfind(b"\n"), self._rest.rfind(b"\r", 0, -1)) + 1
            block, self._rest = (self._rest, b"") if self._ended else (self._rest[:cut], self._rest[cut:])
            if block:
                marked = not self._begun and block.startswith(codecs.BOM_UTF8)
                self._begun = True
                return block[len(codecs.BOM_UTF8) :] if marked else block
        return b""


MAX_LISTED = 30


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


def number(cell: str) -> float | None:
    """The number in a cell, or None; underscores, which Python accepts, are no part of a number in a file."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


class Times:
    """Seconds since 1970 from cells in one notation; moments without a zone count as UTC, so days are the clock's."""

    EXPECTED = (
        "expected seconds, or moments such as 2014-04-01T00:11:00 or 4/1/2014 0:11:00, in one notation in all rows"
    )

    def __init__(self) -> None:
        self._notations: tuple[Callable[[str], float | None], ...] = (number, _iso, _american)

    @property
    def may_be_numbers(self) -> bool:
        """Whether no cell has been a moment."""
        return self._notations[0] is number

    def are_numbers(self) -> None:
        """Whether or not there was a cell: those that follow are numbers."""
        self._notations = (number,)

    def seconds(self, cell: str) -> float:
        """As a call; ValueError if the cell is no time."""
        found = self(cell)
        if found is None:
            raise ValueError
        return found

    def __call__(self, cell: str) -> float | None:
        """The first cell that is a time settles the notation."""
        for notation in self._notations:
            seconds = notation(cell)
            if seconds is not None:
                self._notations = (notation,)
                return seconds
        return None


def _iso(cell: str) -> float | None:
    try:
        return _seconds(datetime.fromisoformat(cell))
    except ValueError:
        return None


def _american(cell: str) -> float | None:
    try:
        return _seconds(datetime.strptime(cell, "%m/%d/%Y %H:%M:%S"))
    except ValueError:
        return None


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
