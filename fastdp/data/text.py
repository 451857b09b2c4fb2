"""Text: CSV in blocks of whole lines that Arrow parses, and plain numbers from a live pipe."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import os
import re
import sys
import zlib
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np

from fastdp import validation
from fastdp.data.column import Module, arrow
from fastdp.errors import DataError, ParameterError, argument
from fastdp.kinds import Floats
from fastdp.record import Checked, Choice, Flag, Kind, Text, parameter, record
from fastdp.validation import refusal

if TYPE_CHECKING:
    import pyarrow as pa

    #: Arrow record batches.
    Batches = Iterator[pa.RecordBatch]

arrow_csv: Any = Module("pyarrow.csv")
#: Bytes that are parsed together; no line, or quoted text of several lines, is longer.
BLOCK = 2**20
#: Numbers in less text are not worth loading Arrow.
MIN_ARROW = 2**16
STDIN = "-"
ENDS = (".csv", ".tsv", ".txt")
PACKED: Mapping[str, Callable[[BinaryIO], Any]] = {".gz": gzip.open, ".bz2": bz2.open}
SEPARATORS = (",", ";", "\t")
#: Spellings of a missing entry.
NULLS = ["", "NA", "N/A", "n/a", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NULL", "null"]
#: Truth values, as Arrow reads them, which are numbers where a column has no others.
TRUTHS = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}
#: A number: decimal digits of ASCII, without separators; the sign may be a plus.
NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan)", re.ASCII | re.IGNORECASE)
#: Arrow would take 0x10 for 16.
HEXADECIMAL = re.compile(rb"0[xX]")
MAX_LISTED = 20
#: Parquet, gzip, bzip2, zip, Arrow's files and NumPy's begin so.
BINARY = re.compile(rb"PAR1\x15|\x1f\x8b|BZh\d1AY|PK\x03\x04|ARROW1\0|\x93NUMPY")


@record
class Csv:
    """A CSV file and its format, for every function that takes a path.

    Parameters
    ----------
    path : str or Path
        File that ends in .csv, .tsv or .txt, also packed (.gz, .bz2); "-" is standard input.
    separator : str, optional
        One character; by default the most frequent of comma, semicolon and tab in the first row.
    decimal : "." or ","
        Decimal sign of numbers, which have no other marks: 1,000, 1_000 and 0x10 are texts.
    encoding : str, optional
        Python's name, such as "latin-1"; by default UTF-8, or UTF-16 with a byte order mark.
    comment : str, optional
        Lines that begin with this text are skipped.
    header : bool, optional
        Whether the first row names the columns; else they are "0", "1" and so on.  By default it does, unless a
        single column of numbers is asked for and the first row has a number.
    types : dict of str to str, optional
        Types of columns by Arrow's names, such as string; others follow from the first rows.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.Csv("visits.csv", separator=";", decimal=",").decimal
    ','
    """

    path: str | os.PathLike[str] = parameter(Checked(validation.path))
    separator: str | None = parameter(Text(1, optional=True), default=None)
    decimal: Literal[".", ","] = parameter(Choice((".", ",")), default=".")
    encoding: str | None = parameter(Text(optional=True), default=None)
    comment: str | None = parameter(Text(optional=True), default=None)
    header: bool | None = parameter(Flag(optional=True), default=None)
    types: Mapping[str, str] | None = parameter(Kind(optional=True), default=None)

    def _check(self) -> None:
        if self.separator is not None and (self.separator in '"\r\n' or not self.separator.isascii()):
            raise refusal("separator", self.separator, "one character such as ';', no quote or end of a line")
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except LookupError:
                known = "a name of Python's, such as 'latin-1' or 'cp1252'"
                raise refusal("encoding", self.encoding, known) from None


@contextmanager
def damage_named(where: str) -> Iterator[None]:
    """Turn readers' errors, which may quote a row, into one with the file's name."""
    try:
        yield
    except (DataError, ParameterError):
        raise
    except FileNotFoundError:
        raise ParameterError(f"{where}: no such file") from None
    except IsADirectoryError:
        raise ParameterError(f"{where}: is a folder; expected a file") from None
    except MemoryError:
        raise DataError(f"{where}: does not fit into memory; expected fewer rows, or shorter ones") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataError(f"{where}: not a gzip or bzip2 file, or damaged; expected a whole one") from None
    except (OSError, ValueError, NotImplementedError, KeyError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise DataError(
            f"{where}: damaged, or not of the kind that its name says ({reason}); expected a whole file"
        ) from None


def pick(column: str | None, names: Sequence[str], where: str, kind: str = "column") -> int:
    """Index of the column with this name or number; else ParameterError."""
    if column is None and len(names) == 1:
        return 0
    if column is not None and list(names).count(column) == 1:
        return list(names).index(column)
    if column is not None and column.isdecimal() and column not in names and int(column) < len(names):
        return int(column)
    many = "several columns of that name" if column in names else f"{len(names)} columns"
    raise ParameterError(f"{kind} = {column!r}: {where} has {many}; expected one of {listed(names)}")


def not_utf8() -> str:
    """Words of an error about a text in another encoding."""
    return f"not in UTF-8; expected {argument('Csv(path', encoding='latin-1')}, or the encoding that it is in"


def listed(names: Sequence[str]) -> str:
    """Columns and their numbers, without names like numbers, which may be data."""
    shown = [f"{name!r} ({i})" if name[:1].isalpha() or name[:1] == "_" else str(i) for i, name in enumerate(names)]
    return ", ".join(shown[:MAX_LISTED]) + (", ..." if len(names) > MAX_LISTED else "")


def number(cell: str, decimal: str) -> float | None:
    """The number in `cell` (NaN: missing), or None."""
    if cell in NULLS:
        return float("nan")
    if decimal != ".":
        cell = cell.replace(".", "_").replace(decimal, ".")
    return float(cell) if NUMBER.fullmatch(cell) else None


def _count(block: bytes) -> int:
    return block.count(b"\n") + (block.count(b"\r") - block.count(b"\r\n") if b"\r" in block else 0)


class TextFile:
    """An open CSV; ``names`` of its columns.

    ``numbers``: without a heading if the first row has a number.  A live ``stream`` is answered line by line.
    """

    def __init__(self, csv: Csv, *, numbers: bool = False, stream: BinaryIO | None = None) -> None:
        self.csv, self.again, self._live = csv, csv.path != STDIN and stream is None, stream
        self.where = str(csv.path) if self.again else "standard input"
        signs = "".join(SEPARATORS) + (csv.separator or "")
        #: Quoted text; the second quote is missing where it goes on.
        self._quoted = re.compile(rb'(?:\A|(?<=[\r\n%s]))"[^"]*+(?:""[^"]*+)*+"?' % re.escape(signs.encode()))
        said = re.escape((csv.comment or "").encode())
        self._comment = re.compile(rb"(?m)^%s[^\r\n]*(?:\r\n|\r|\n|\Z)" % said) if said else None
        with damage_named(self.where):
            self._opened = self._blocks()
            block, line = next(self._opened, (b"", 1))
            lines = block.splitlines(keepends=True)
            skipped = self._read_heading(lines, numbers=numbers)
        #: Rows of the first block.
        self._first = b"".join(lines[skipped:]), line + skipped
        #: Whether the column of numbers holds truth values; None before its first entry.
        self._truths: bool | None = None

    def _read_heading(self, lines: Sequence[bytes], *, numbers: bool) -> int:
        """Read separator and names; return the lines above the rows."""
        begin = next((i for i, line in enumerate(lines) if line.strip() and not self._is_comment(line)), len(lines))
        first = _decoded(lines[begin]) if begin < len(lines) else ""
        if "\0" in first:
            raise DataError(
                f"{self.where}: holds zero bytes; expected UTF-8, or {argument('Csv(path', encoding='utf-16')}"
            )
        # The mark that occurs most; a comma where they agree.
        usual = (sign for sign in SEPARATORS if sign != self.csv.decimal)
        self.separator = self.csv.separator or max(usual, key=first.count)
        rows = csv.reader(map(_decoded, lines[begin:]), delimiter=self.separator)
        try:
            row = [cell.strip() for cell in next(rows, [])]
        except csv.Error:
            raise DataError(f"{self.where}, line {begin + 1}: not CSV; expected a row of one separator") from None
        heading = self.csv.header
        if heading is None:
            cells = [cell for cell in row if cell] or row
            # An empty cell among numbers, or alone, is a missing value.
            heading = not numbers or all(
                cell not in TRUTHS and number(cell, self.csv.decimal) is None for cell in cells
            )
        if heading and not all(map(validation.encodes, row)):
            raise DataError(f"{self.where}, line {begin + 1}: names {not_utf8()}")
        self.named = heading
        self.names = row if heading else [str(i) for i in range(len(row))]
        return begin + (rows.line_num if heading else 0)

    def _is_comment(self, line: bytes) -> bool:
        return self._comment is not None and self._comment.match(line) is not None

    # Blocks.

    def _pieces(self, file: Any) -> Iterator[bytes]:
        read = file.read if self._live is None else file.read1
        piece = read(BLOCK)
        if not self.again and BINARY.match(piece):
            raise DataError(f"{self.where}: is binary; a pipe takes text or an Arrow stream; unpack with zcat")
        marked = piece.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        encoding = codecs.lookup(self.csv.encoding or ("utf-16" if marked else "utf-8"))
        decoder = None if encoding.name == "utf-8" else encoding.incrementaldecoder()
        piece = piece.removeprefix(codecs.BOM_UTF8)
        try:
            while piece:
                yield piece if decoder is None else decoder.decode(piece).encode()
                piece = read(BLOCK)
            yield from () if decoder is None else (decoder.decode(b"", final=True).encode(),)
        except UnicodeDecodeError:
            raise DataError(f"{self.where}: not in {encoding.name}; expected another encoding=") from None
        yield b""

    def _blocks(self) -> Any:
        with ExitStack() as opened, damage_named(self.where):
            file: Any = sys.stdin.buffer if self._live is None else self._live
            if self.again:
                file = opened.enter_context(Path(self.csv.path).open("rb"))
                if unpack := PACKED.get(Path(self.csv.path).suffix.lower()):
                    file = opened.enter_context(unpack(file))
            rest, line = b"", 1
            for piece in self._pieces(file):
                rest += piece
                cut = self._cut(rest) if piece else len(rest)
                block, rest = rest[:cut], rest[cut:]
                if block:
                    yield block, line
                line += _count(block)
                if len(rest) > BLOCK:
                    raise DataError(
                        f"{self.where}, line {line}: longer than {BLOCK:,} bytes, or a quote that does not end; "
                        "expected shorter lines"
                    )

    def _cut(self, text: bytes) -> int:
        """End of the last whole line."""
        end = len(text)
        if b'"' in text:
            quoted = deque(self._quoted.finditer(text), maxlen=1)
            if quoted and quoted[0].end() == end:
                end = quoted[0].start()
        # A line that ends in \r may go on with \n.
        return max(text.rfind(b"\n", 0, end), text.rfind(b"\r", 0, min(end, len(text) - 1))) + 1

    def blocks(self) -> Iterator[tuple[bytes, int]]:
        """Blocks of whole rows, with the line of the first."""
        opened, self._opened = self._opened, None
        if opened is None:
            if not self.again:
                raise DataError(f"{self.where}: has been read; expected a file, to read it twice")
            opened = self._blocks()
            next(opened, None)
        with closing(opened):
            if self._first[0]:
                yield self._first
            yield from opened

    def _rows(self, block: bytes, line: int) -> Iterator[tuple[list[str], int, bytes]]:
        """Rows with line and text; DataError for other widths."""
        lines, before = block.splitlines(keepends=True), 0
        lines = [b"" if self._is_comment(each) else each for each in lines]
        rows = csv.reader(map(_decoded, lines), delimiter=self.separator)
        try:
            for row in rows:
                if row and len(row) != len(self.names):
                    many = f"{len(row)} column{'s' * (len(row) != 1)}"
                    raise DataError(
                        f"{self.where}, line {line + before}: {many}; expected {len(self.names)} as before (the "
                        f"separator is {self.separator!r})"
                    )
                if text := b"".join(lines[before : rows.line_num]):
                    yield row, line + before, text
                before = rows.line_num
        except csv.Error:
            raise DataError(f"{self.where}, line {line + before}: not CSV; expected rows of one separator") from None

    def _parsed(self, block: bytes, types: Mapping[int, Any], *, blank: bool = False) -> Any:
        """Arrow table of some columns; ``blank``: an empty line is an entry."""
        if self._comment is not None:
            block = self._comment.sub(b"", block)
        named = {str(i): kind for i, kind in types.items()}
        if not block.strip(b"\r\n" * (not blank)):
            return arrow.table({name: arrow.nulls(0, kind or arrow.null()) for name, kind in named.items()})
        found = arrow_csv.read_csv(
            arrow.BufferReader(block),
            arrow_csv.ReadOptions(
                use_threads=False, column_names=list(map(str, range(len(self.names)))), block_size=len(block) + 1
            ),
            arrow_csv.ParseOptions(
                delimiter=self.separator, newlines_in_values=b'"' in block, ignore_empty_lines=not blank
            ),
            arrow_csv.ConvertOptions(
                include_columns=list(named),
                column_types={name: kind for name, kind in named.items() if kind is not None},
                null_values=NULLS,
                decimal_point=self.csv.decimal,
            ),
        )
        for i, kind in types.items() if HEXADECIMAL.search(block) else ():
            whole = arrow.types.is_integer(found.schema.field(str(i)).type)
            if whole and not self._is_parsed(block, i, arrow.float64()):
                if kind is not None:
                    raise ValueError
                return self._parsed(block, {**types, i: arrow.string()}, blank=blank)
        return found

    # Columns of any types.

    def _types(self) -> dict[int, Any]:
        found = {}
        for name, alias in (self.csv.types or {}).items():
            try:
                index = pick(name, self.names, self.where)
            except ParameterError:
                raise refusal("types", name, f"one of the columns {listed(self.names)}") from None
            try:
                found[index] = arrow.type_for_alias(alias)
            except ValueError:
                known = "names of Arrow's types, such as 'string', 'int64', 'float64' or 'timestamp[us]'"
                raise refusal("types", alias, known) from None
        return found

    def schema(self) -> pa.Schema:
        """Names and types of all columns, by the first block."""
        if not self.names:
            raise DataError(f"{self.where}: empty; expected a first row of names")
        types = dict.fromkeys(range(len(self.names))) | self._types()
        found = self._table(*self._first, types).schema
        # Bytes that are no UTF-8 are refused where they are in use.
        kinds = [arrow.string() if kind == arrow.binary() else kind for kind in found.types]
        return arrow.schema(list(zip(self.names, kinds, strict=True)))

    @property
    def hint(self) -> str:
        """How the text was read."""
        how = argument("Csv(path", separator=..., decimal=..., types=...)
        return f" (the separator is {self.separator!r}; {how} sets how it is read)"

    def read(self, schema: pa.Schema, columns: Sequence[str]) -> Batches:
        """Batches of columns, at first of the schema's types."""
        indices = [self.names.index(name) for name in columns]
        # Without a column, rows still have a number.
        types = {i: schema.types[i] for i in indices or (0,)}
        for block, line in self.blocks():
            table = self._table(block, line, types)
            types = dict(zip(types, table.schema.types, strict=True))
            for batch in table.to_batches():
                found = batch.select([str(i) for i in indices])
                yield found.rename_columns(list(columns)) if columns else found

    def _is_parsed(self, block: bytes, index: int, kind: Any) -> bool:
        with suppress(ValueError):
            return self._parsed(block, {index: kind}) is not None
        return False

    def _table(self, block: bytes, line: int, types: Mapping[int, Any]) -> pa.Table:
        with suppress(ValueError):
            return self._parsed(block, types)
        wider = dict(types)
        for i, kind in types.items():
            if not self._is_parsed(block, i, kind):
                with suppress(ValueError):
                    wider[i] = self._parsed(block, {i: None}).schema.types[0]
                if wider[i] == kind or not _is_wider(wider[i], kind):
                    raise self._fault(block, line, i, kind)
        return self._parsed(block, wider)

    def _fault(self, block: bytes, line: int, index: int, kind: Any) -> DataError:
        """An error with the first line of another type."""
        rows = [each for each in self._rows(block, line) if each[0]]

        def fails(last: int) -> bool:
            return not self._is_parsed(b"".join(text for *_, text in rows[: last + 1]), index, kind)

        first = bisect_left(range(len(rows)), True, key=fails)
        if first == len(rows):
            return DataError(f"{self.where}, after line {line}: not CSV; expected rows of one separator")
        row, at, _ = rows[first]
        wanted = f"no {kind}; expected one type, or {argument('Csv(path', types={'column': 'string'})}"
        if not validation.encodes(row[index]):
            wanted = f"entry {not_utf8()}"
        return DataError(f"{self.where}, line {at}, {self._label(index)}: {wanted}")

    def _label(self, index: int) -> str:
        name = self.names[index]
        return f"column {name!r}" if self.named and name[:1].isalpha() else f"column {index}"

    # Numbers.

    def numbers(self, column: str | None) -> Iterator[Floats]:
        """Chunks of a column; missing entries are NaN."""
        if not self.names:
            return
        self._types()
        index, blank, alone = pick(column, self.names, self.where), 0, len(self.names) == 1
        for block, line in self.blocks():
            body = block.rstrip() if alone else block
            if body and blank:
                yield np.full(blank, np.nan)
            if body:
                yield self._floats(body, line, index, alone=alone)
            blank = max(0, _count(block[len(body) :]) + (-1 if body else blank))

    def _floats(self, block: bytes, line: int, index: int, *, alone: bool) -> Floats:
        # Arrow does not take truth values, nor say the line of another text.
        with suppress(ValueError):
            if len(block) >= MIN_ARROW and not self._truths:
                found: Floats = self._parsed(block, {index: arrow.float64()}, blank=alone).column(0).to_numpy()
                if self._truths is None and not np.isnan(found).all():
                    self._truths = False
                return found
        values = []
        for row, at, _ in self._rows(block, line):
            if row or alone:
                cell = row[index].strip() if row else ""
                if self._truths is None and cell not in NULLS:
                    self._truths = cell in TRUTHS
                truth = self._truths and cell not in NULLS
                value = TRUTHS.get(cell) if truth else number(cell, self.csv.decimal)
                if value is None:
                    # The text stays unsaid: messages end up in logs, which are not private.
                    raise DataError(f"{self.where}, line {at}, {self._label(index)}: not a number")
                values.append(value)
        return np.array(values, np.float64)


def _decoded(line: bytes) -> str:
    # Bytes that are no UTF-8 do no harm in a column that is not in use.
    return line.decode("utf-8", "surrogateescape")


def _is_wider(found: pa.DataType, before: pa.DataType) -> bool:
    """True for a type that holds earlier entries too."""
    types = arrow.types
    if types.is_temporal(found) and types.is_temporal(before):
        return getattr(found, "tz", None) == getattr(before, "tz", None)
    return bool(types.is_null(before) or (types.is_integer(before) and types.is_floating(found)))
