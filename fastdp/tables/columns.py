"""Columns of Arrow record batches as the arrays that kernels take."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from datetime import datetime, tzinfo
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.data.column import as_floats
from fastdp.data.source import import_tables
from fastdp.durations import DAY
from fastdp.errors import DataError, ParameterError
from fastdp.tables.calendar import FIRST, LAST, localised
from fastdp.tables.names import check_single

Integers = NDArray[np.int64]
#: A key: its entry in each key column.
KeyRow = tuple[Any, ...]
_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}


def times_of(column: Any, zone: tzinfo | None) -> tuple[Integers, NDArray[np.bool_] | None]:
    """Instants of a column of dates or timestamps, and which are there (None: all).

    Clock times are taken as they stand without ``zone``, and as its instants with one; timestamps that have a zone
    are instants already.
    """
    _, arrow = import_tables()
    kind, present = column.type, None
    if column.null_count:
        present = column.is_valid().to_numpy(zero_copy_only=False)
    if arrow.types.is_timestamp(kind):
        numbers: Integers = column.cast(arrow.int64()).fill_null(0).to_numpy()
        unit, aware = kind.unit, kind.tz is not None
        if aware and zone is None:
            raise DataError("time has a zone: expected time_zone=, the zone of the windows")
        times = numbers // 1_000 if unit == "ns" else numbers
        factor = _PER_UNIT.get(unit, 1)
    elif arrow.types.is_date(kind):
        times = column.cast(arrow.date32()).cast(arrow.int32()).fill_null(0).to_numpy().astype(np.int64)
        factor, aware = DAY, False
    else:
        raise DataError("time holds no dates or datetimes in every part of the table: expected one type")
    if times.size and not FIRST // factor <= times.min() <= times.max() <= LAST // factor:
        raise DataError("time: an entry lies outside the years 1 to 9999; expected times that a calendar has")
    times = times * factor if factor > 1 else times
    return (times if zone is None or aware else localised(times, zone)), present


def as_arrow(values: Any, name: str) -> Any:
    """A list, array or series as one Arrow array; DataError for what is none."""
    _, arrow = import_tables()
    try:
        found = values.to_arrow() if hasattr(values, "to_arrow") else values
        if isinstance(found, arrow.ChunkedArray):
            found = found.combine_chunks()
        if isinstance(found, (list, tuple)) and found and isinstance(found[0], np.generic):
            found = np.asarray(found)
        if isinstance(found, np.ndarray) and found.dtype.kind == "M":
            # Arrow has no minutes and hours.
            found = found.astype("datetime64[us]")
        # Arrow takes all entries for what the first one is, so that one row would move the others.
        listed = isinstance(found, (list, tuple)) or getattr(getattr(found, "dtype", None), "kind", None) == "O"
        if name == "times" and listed:
            # NaT is no datetime that has or lacks a zone.
            zoned = {each.tzinfo is None for each in found if isinstance(each, datetime) and each == each}
            if len(zoned) > 1:
                raise TypeError
        return found if isinstance(found, arrow.Array) else arrow.array(found, from_pandas=True)
    except Exception:  # Arrow's words may quote an entry
        raise DataError(f"{name} is a {type(values).__name__}: expected a column of one type") from None


def floats_of(column: Any) -> NDArray[np.float64]:
    """Values as float64, missing ones as NaN."""
    _, arrow = import_tables()
    if column.type != arrow.float64():
        column = column.cast(arrow.float64(), safe=False)
    return as_floats(column.to_numpy(zero_copy_only=False))


class KeyTable:
    """The released keys, and which of them a row has.

    Parameters
    ----------
    names : sequence of str
        The key columns.
    rows : sequence of tuples
        The keys, one entry for each column, distinct.
    """

    def __init__(self, names: Sequence[str], rows: Sequence[KeyRow]) -> None:
        self.names, self.rows = tuple(names), list(rows)
        self.size = len(self.rows) if self.names else 1
        #: Distinct entries of each column, and the key of each combination of them (-1: none).
        self._entries = [list(dict.fromkeys(row[i] for row in self.rows)) for i in range(len(self.names))]
        place = [{entry: i for i, entry in enumerate(entries)} for entries in self._entries]
        radix = [len(entries) for entries in self._entries]
        self._combined = {
            tuple(place[i][entry] for i, entry in enumerate(row)): number for number, row in enumerate(self.rows)
        }
        self._dense: Integers | None = None
        if len(self.names) > 1 and np.prod(radix, dtype=np.float64) <= 2**24:
            self._dense = np.full(int(np.prod(radix, dtype=np.int64)), -1, np.int64)
            for where, number in self._combined.items():
                self._dense[np.ravel_multi_index(where, radix)] = number
        self._sets: dict[Any, Any] = {}

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Column by column."""
        return {name: [row[i] for row in self.rows] for i, name in enumerate(self.names)}

    @cached_property
    def digests(self) -> NDArray[np.uint64]:
        """128 bits that name each key, wherever it stands: uint64[size, 2]."""
        return _digests_of(self.rows if self.names else [()], 16).view(np.uint64).reshape(-1, 2)

    def check_type(self, name: str, kind: Any) -> None:
        """ParameterError unless the entries of a key column can have this Arrow type."""
        self._codes(self.names.index(name), import_tables()[1].nulls(0, kind))

    def codes(self, columns: Sequence[Any]) -> NDArray[Any]:
        """The number of each row's key, -1 for a row with another one: int32 or int64[n]."""
        each = [self._codes(i, column) for i, column in enumerate(columns)]
        if len(each) == 1:
            return each[0]
        known = np.logical_and.reduce([codes >= 0 for codes in each])
        stacked = tuple(np.where(known, codes, 0).astype(np.int64) for codes in each)
        if not self.rows:
            return np.full(known.size, -1)
        if self._dense is not None:
            radix = [len(entries) for entries in self._entries]
            found: Integers = self._dense[np.ravel_multi_index(stacked, radix)]
        else:
            rows = zip(*(codes.tolist() for codes in stacked), strict=True)
            found = np.fromiter((self._combined.get(row, -1) for row in rows), np.int64, known.size)
        return np.where(known, found, -1)

    def _codes(self, i: int, column: Any) -> NDArray[Any]:
        _, arrow = import_tables()
        import pyarrow.compute as compute

        check_single(column)
        if arrow.types.is_dictionary(column.type):
            # -1 stands behind all others, for rows without an entry.
            of_entries = np.append(self._codes(i, column.dictionary), self._codes(i, arrow.nulls(1, arrow.null())))
            places = column.indices.fill_null(len(column.dictionary)).to_numpy()
            coded: NDArray[Any] = of_entries[places]
            return coded
        entries = self._entries[i]
        if arrow.types.is_null(column.type):
            return np.full(len(column), entries.index(None) if None in entries else -1, np.int32)
        if column.type not in self._sets:
            try:
                self._sets[column.type] = arrow.array(entries, column.type)
                if not entries:
                    self._sets[column.type] = arrow.nulls(0, column.type)
            except Exception:  # keys are public, but Arrow's words are long
                raise ParameterError(
                    f"keys: entries of {self.names[i]!r} are no {column.type}: expected the type of the column"
                ) from None
        if arrow.types.is_floating(column.type):
            # Arrow distinguishes -0.0 from 0.0.
            column = compute.add(column, arrow.scalar(0.0, column.type))
        found = compute.index_in(column, value_set=self._sets[column.type])
        codes: NDArray[Any] = found.fill_null(-1).to_numpy()
        return codes


class KeyNumbers:
    """Keys as they come, numbered, and what the hash of a row sees of each.

    Parameters
    ----------
    names : sequence of str
        The key columns.
    rows : sequence of tuples
        The first keys.
    """

    def __init__(self, names: Sequence[str], rows: Sequence[KeyRow]) -> None:
        self._names = names
        self._numbers = {row: number for number, row in enumerate(rows)}
        #: Of each key 64 bits that follow from its entries, wherever it stands.
        self.words = _digests_of(rows, 8)

    @property
    def rows(self) -> list[KeyRow]:
        """The keys in the order of their numbers."""
        return list(self._numbers)

    def codes(self, columns: Sequence[Any]) -> Integers:
        """The number of each row's key: int64[n]."""
        listed, known = list(count_keys(columns)), len(self._numbers)
        numbers = [self._numbers.setdefault(row, len(self._numbers)) for row in listed]
        self.words = np.concatenate([self.words, _digests_of(self.rows[known:], 8)])
        if not listed:
            return np.empty(0, np.int64)
        found: Integers = np.array(numbers, np.int64)[KeyTable(self._names, listed).codes(columns)]
        return found


def _digests_of(rows: Sequence[KeyRow], size: int) -> Integers:
    raw = (hashlib.blake2b(repr(row).encode(), digest_size=size, person=b"fastdp key").digest() for row in rows)
    return np.frombuffer(b"".join(raw), np.int64)


def count_keys(columns: Sequence[Any]) -> dict[KeyRow, int]:
    """How many rows each key has, in no order that matters."""
    _, arrow = import_tables()
    for column in columns:
        check_single(column)
    names = [str(i) for i in range(len(columns))]
    plain = [c.dictionary_decode() if arrow.types.is_dictionary(c.type) and len(columns) > 1 else c for c in columns]
    if len(columns) == 1:
        counted = plain[0].value_counts()
        listed, sizes = [counted.field("values")], counted.field("counts")
    else:
        grouped = arrow.table(plain, names).group_by(names).aggregate([([], "count_all")])
        listed, sizes = [grouped[name] for name in names], grouped["count_all"]
    found: dict[KeyRow, int] = {}
    rows = zip(*(map(_one_of_equals, column.to_pylist()) for column in listed), strict=True)
    # Arrow counts some entries apart that are equal in Python.
    for key, size in zip(rows, sizes.to_pylist(), strict=True):
        found[key] = found.get(key, 0) + size
    return found


def _one_of_equals(entry: Any) -> Any:
    """One object for all NaNs, and one zero: else a key's rows were counted in parts, by where batches begin."""
    if not isinstance(entry, float):
        return entry
    return math.nan if math.isnan(entry) else entry + 0.0


def sorted_keys(keys: Any) -> list[KeyRow]:
    """Keys in an order that is theirs alone, whatever rows they come from: NaN and missing entries last."""

    def place(entry: Any) -> tuple[int, Any]:
        return (2, 0) if entry is None else (1, 0) if entry is math.nan else (0, entry)

    return sorted(keys, key=lambda row: tuple(map(place, row)))
