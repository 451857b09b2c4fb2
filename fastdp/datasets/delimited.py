"""Columns of delimited text files, found by name; numbers and moments in them."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import DataError
from fastdp.files.columns import listed

#: Months of the American notation, as in "4/1/2014 0:11:00".
_AMERICAN = "%m/%d/%Y %H:%M:%S"


def read_columns(
    path: str | Path, wanted: Mapping[str, Sequence[str]], headerless: Sequence[str] | None = None
) -> tuple[dict[str, list[str]], list[int]]:
    """Read some columns as text.

    Parameters
    ----------
    path : str or Path
        A comma-separated file with a header, possibly compressed by gzip (.gz).
    wanted : mapping of str to sequence of str
        For each column that is asked for, the names it may have in the file, in lower case.
    headerless : sequence of str, optional
        Column names of a tab-separated file without header, if that is accepted too.

    Returns
    -------
    dict of str to list of str, list of int
        The columns, and each row's line in the file.  Empty lines are passed over.

    Raises
    ------
    DataError
        If a column is missing, a row is too short, or the file is no such text.
    """
    try:
        return _read_columns(path, wanted, headerless)
    except (UnicodeDecodeError, csv.Error, EOFError, zlib.error, gzip.BadGzipFile):
        raise DataError(f"{path}: not readable as text in UTF-8, comma-separated") from None


def _read_columns(
    path: str | Path, wanted: Mapping[str, Sequence[str]], headerless: Sequence[str] | None
) -> tuple[dict[str, list[str]], list[int]]:
    opener = gzip.open if Path(path).suffix.lower() == ".gz" else open
    columns: dict[str, list[str]] = {key: [] for key in wanted}
    lines: list[int] = []
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        tabs = headerless is not None and "\t" in first
        names = list(headerless or ()) if tabs else [name.strip().lower() for name in next(csv.reader([first]), [])]
        places = {}
        for key, accepted in wanted.items():
            found = [names.index(name) for name in accepted if name in names]
            if not found:
                raise DataError(
                    f"{path} has the columns {listed(names, len(names))}: expected one of {', '.join(accepted)}"
                )
            places[key] = found[0]
        reader = csv.reader(file, delimiter="\t" if tabs else ",")
        if tabs:
            _take(path, first.rstrip("\r\n").split("\t"), 1, places, columns, lines)
        for row in reader:
            if row:
                _take(path, row, reader.line_num + 1, places, columns, lines)
    return columns, lines


def _take(
    path: str | Path,
    row: list[str],
    line: int,
    places: Mapping[str, int],
    columns: dict[str, list[str]],
    lines: list[int],
) -> None:
    if len(row) <= max(places.values()):
        raise DataError(f"{path}, line {line} has {len(row)} fields: expected at least {max(places.values()) + 1}")
    for key, place in places.items():
        columns[key].append(row[place])
    lines.append(line)


def parse_numbers(texts: Sequence[str], name: str, path: str | Path, lines: Sequence[int]) -> NDArray[np.float64]:
    """Finite numbers, float64[n]; a DataError names the line of one that is none."""
    try:
        numbers = np.array(texts, dtype=np.float64)
    except ValueError:
        numbers = np.array([_number(text) for text in texts])
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if wrong.size:
        raise DataError(
            f"{path}, line {lines[int(wrong[0])]}: {name} is not a finite number ({wrong.size:,} of "
            f"{numbers.size:,} rows); expected finite numbers"
        )
    return numbers


def parse_times(texts: Sequence[str], path: str | Path, lines: Sequence[int]) -> NDArray[np.float64]:
    """Seconds since 1970, float64[n], from such numbers, ISO 8601 (2010-10-19T23:55:27Z) or 4/1/2014 0:11:00.

    Times without a zone count as UTC, so that days are the wall clock's.
    """
    if not texts:
        return np.empty(0)
    if _is_finite(texts[0]):
        return parse_numbers(texts, "time", path, lines)
    american = "/" in texts[0]
    seconds = np.empty(len(texts))
    for k, text in enumerate(texts):
        moment = _moment(text.strip(), american)
        if moment is None:
            raise DataError(
                f"{path}, line {lines[k]}: time is not readable; expected all rows in the notation of the first: "
                "seconds since 1970, ISO 8601 or month/day/year hour:minute:second"
            )
        seconds[k] = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return seconds


def _moment(text: str, american: bool) -> datetime | None:
    try:
        return datetime.strptime(text, _AMERICAN) if american else datetime.fromisoformat(text)
    except ValueError:
        return None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _is_finite(text: str) -> bool:
    return bool(np.isfinite(_number(text)))
