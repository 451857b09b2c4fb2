"""Columns of Arrow record batches as arrays for kernels."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from fastdp.data.column import as_floats
from fastdp.data.source import import_tables
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Array, Flags, Floats, Integers
from fastdp.tables.calendar import localised
from fastdp.units import FIRST, LAST
from fastdp.validation import DAY
from fastdp_kernels.noise import blake2b

if TYPE_CHECKING:
    import pyarrow as pa

# Persons by value: the same ones, whatever types the columns and batches of a table have.
#
# A person is a text: numbers as Python writes them, UUIDs in small letters, times as instants, texts in Unicode's
# normal form C.  Arrow makes the texts, and a kernel their digests, both in bulk.

#: RFC 7693: 16 bytes, no key, one node; and the purpose of the digests.
_BLOCK = np.frombuffer(struct.pack("<BBBBIQBB14x16s16s", 16, 0, 1, 1, 0, 0, 0, 0, b"", b"fastdp person"), np.uint64)
_UUID = "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
#: Bytes of a UUID, characters of its text, and where its digits stand there.
_BYTES, _LENGTH = 16, 36
_PLACES = np.array([i for i in range(_LENGTH) if i not in (8, 13, 18, 23)])
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def digests_of(column: pa.Array) -> tuple[Integers, Flags | None]:
    """Person of each row as a 128-bit digest, int64[n, 2], and flags of rows that have a person (None: all)."""
    _, arrow = import_tables()
    check_single(column, uuids=True)
    # Of UUIDs, Arrow encodes the bytes that they are stored as.
    stored = column.storage if isinstance(column, arrow.ExtensionArray) else column
    coded = stored if arrow.types.is_dictionary(stored.type) else stored.dictionary_encode()
    entries, indices, present = coded.dictionary, coded.indices, None
    if indices.null_count:
        present = indices.is_valid().to_numpy(zero_copy_only=False)
        indices = indices.fill_null(0)
    places = indices.to_numpy()
    if not len(entries):
        return np.zeros((places.size, 2), np.int64), present
    if entries.null_count:
        named = entries.is_valid().to_numpy(zero_copy_only=False)[places]
        present = named if present is None else present & named
    return _digests(_texts(entries)).take(places, axis=0), present


def check_single(column: pa.Array, *, uuids: bool = False) -> None:
    """Raise DataError for a column of lists or structures, or of an extension type."""
    _, arrow = import_tables()
    if arrow.types.is_nested(column.type):
        raise DataError("keys and persons: a column holds lists or structures; expected single entries")
    name = getattr(column.type, "extension_name", None)
    if name is not None and not (uuids and name == "arrow.uuid"):
        raise DataError(
            f"keys and persons: a column holds entries of the type {name}; expected texts, numbers, dates or times "
            "(texts of them, for example)"
        )


def _texts(entries: pa.Array) -> pa.LargeStringArray:
    """Entries as texts that are equal if they name one person; arbitrary where an entry is missing."""
    _, arrow = import_tables()
    import pyarrow.compute as compute

    if isinstance(entries, arrow.ExtensionArray):
        check_single(entries, uuids=True)
        entries = entries.storage
    kind, types, text = entries.type, arrow.types, arrow.large_string()
    if types.is_floating(kind):
        numbers = entries.cast(arrow.float64()).fill_null(0.0).to_numpy()
        if ((np.abs(numbers) < 2.0**63) & (numbers == np.floor(numbers))).all():
            return entries.cast(arrow.float64()).cast(arrow.int64()).cast(text)
    if types.is_integer(kind):
        return entries.cast(text)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        plain = entries.cast(text)
        if not compute.all(compute.string_is_ascii(plain), skip_nulls=True).as_py():
            plain = compute.utf8_normalize(plain, form="NFC")
        uuids = compute.match_substring_regex(plain, _UUID)
        return compute.if_else(uuids, compute.ascii_lower(plain), plain)
    if types.is_fixed_size_binary(kind) and kind.byte_width == _BYTES:
        return _uuids(entries)
    if types.is_timestamp(kind):
        return _instants(entries)
    # Few columns of persons are of other types.
    return arrow.array([_text(entry) for entry in entries.to_pylist()], text)


def _text(entry: object) -> str:
    """Text of one entry: decimals without trailing zeros, 16 bytes as a UUID; other types get distinct texts."""
    if isinstance(entry, (float, Decimal)) and math.isfinite(entry):
        digits = f"{Decimal(repr(entry)) if isinstance(entry, float) else entry:f}"
        return str(int(entry)) if entry == int(entry) else digits.rstrip("0")
    if isinstance(entry, bytes) and len(entry) == _BYTES:
        return str(UUID(bytes=entry))
    return f"\0{type(entry).__name__} {entry!r}"


def _uuids(entries: pa.FixedSizeBinaryArray) -> pa.LargeStringArray:
    """UUID texts of entries of 16 bytes."""
    _, arrow = import_tables()
    n = len(entries)
    raw = np.frombuffer(entries.buffers()[1], np.uint8)[entries.offset * _BYTES :][: n * _BYTES].reshape(n, _BYTES)
    texts = np.full((n, _LENGTH), ord("-"), np.uint8)
    texts[:, _PLACES] = _DIGITS[np.stack([raw >> 4, raw & 15], axis=2).reshape(n, -1)]
    ends = np.arange(0, _LENGTH * (n + 1), _LENGTH, dtype=np.int64)
    return arrow.LargeStringArray.from_buffers(n, arrow.py_buffer(ends), arrow.py_buffer(texts))


def _instants(entries: pa.TimestampArray) -> pa.LargeStringArray:
    """Points in time as texts of seconds and nanoseconds; those with a zone differ from those without."""
    _, arrow = import_tables()
    import pyarrow.compute as compute

    each = _PER_SECOND[entries.type.unit]
    seconds, parts = np.divmod(entries.cast(arrow.int64()).fill_null(0).to_numpy(), each)
    texts = [arrow.array(number).cast(arrow.large_string()) for number in (seconds, parts * (10**9 // each))]
    known = "\0time " if entries.type.tz is None else "\0instant "
    return compute.binary_join_element_wise(
        arrow.scalar(known, arrow.large_string()), *texts, arrow.scalar(" ", arrow.large_string())
    )


def _digests(texts: pa.LargeStringArray) -> Integers:
    """Digests of texts: int64[n, 2]."""
    found: Integers = np.empty((len(texts), 2), np.int64)
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int64)[texts.offset :][: len(texts) + 1]
    blake2b.digest_texts(_BLOCK, offsets, np.frombuffer(data or b"\0", np.uint8), found)
    return found


#: A key: its entry in each key column.
KeyRow = tuple[Any, ...]
_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}


def times_of(column: pa.Array, zone: tzinfo | None) -> tuple[Integers, Flags | None]:
    """Instants of dates or timestamps, int64[n] in microseconds, and flags of those present (None: all)."""
    _, arrow = import_tables()
    kind, present = column.type, None
    if column.null_count:
        present = column.is_valid().to_numpy(zero_copy_only=False)
    if arrow.types.is_timestamp(kind):
        numbers: Integers = column.cast(arrow.int64()).fill_null(0).to_numpy()
        unit, aware = kind.unit, kind.tz is not None
        if aware and zone is None:
            raise DataError("time has a zone: expected zone=, the zone of the windows")
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


def as_arrow(values: Any, name: str) -> pa.Array:
    """A list, array or series as one Arrow array; DataError if it is none."""
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
        # Arrow gives all entries the type of the first one, so one row would change the others.
        listed = isinstance(found, (list, tuple)) or getattr(getattr(found, "dtype", None), "kind", None) == "O"
        if name == "times" and listed:
            # NaT is no datetime that has or lacks a zone.
            zoned = {each.tzinfo is None for each in found if isinstance(each, datetime) and each == each}
            if len(zoned) > 1:
                raise TypeError
        return found if isinstance(found, arrow.Array) else arrow.array(found, from_pandas=True)
    except Exception:  # Arrow's words may quote an entry
        raise DataError(f"{name} is a {type(values).__name__}: expected a column of one type") from None


def floats_of(column: pa.Array) -> Floats:
    """Values as float64[n]; missing ones are NaN."""
    _, arrow = import_tables()
    if column.type != arrow.float64():
        column = column.cast(arrow.float64(), safe=False)
    return as_floats(column.to_numpy(zero_copy_only=False))


class KeyTable:
    """The released keys, distinct, with an entry for each key column; finds the key of a row."""

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
        self._sets: dict[pa.DataType, pa.Array] = {}

    @property
    def columns(self) -> dict[str, list[object]]:
        """Key column's name to its entries, one for each key."""
        return {name: [row[i] for row in self.rows] for i, name in enumerate(self.names)}

    @cached_property
    def digests(self) -> NDArray[np.uint64]:
        """128-bit digest of each key, independent of its index: uint64[size, 2]."""
        return _digests_of(self.rows if self.names else [()], 16).view(np.uint64).reshape(-1, 2)

    def check_type(self, name: str, kind: pa.DataType) -> None:
        """Raise ParameterError unless the entries of key column `name` can have this Arrow type."""
        self._codes(self.names.index(name), import_tables()[1].nulls(0, kind))

    def codes(self, columns: Sequence[pa.Array]) -> Array:
        """Index of each row's key, -1 if it is not listed: int32[n] or int64[n]."""
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

    def _codes(self, i: int, column: pa.Array) -> Array:
        _, arrow = import_tables()
        import pyarrow.compute as compute

        check_single(column)
        if arrow.types.is_dictionary(column.type):
            # The last entry, -1, is for rows without an entry.
            of_entries = np.append(self._codes(i, column.dictionary), self._codes(i, arrow.nulls(1, arrow.null())))
            places = column.indices.fill_null(len(column.dictionary)).to_numpy()
            coded: Array = of_entries[places]
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
        codes: Array = found.fill_null(-1).to_numpy()
        return codes


class KeyNumbers:
    """Keys numbered in order of arrival, after the given ones, with 64 bits of each for the hash of a row."""

    def __init__(self, names: Sequence[str], rows: Sequence[KeyRow]) -> None:
        self._names = names
        self._numbers = {row: number for number, row in enumerate(rows)}
        #: Of each key 64 bits that follow from its entries, wherever it stands.
        self.words = _digests_of(rows, 8)

    @property
    def rows(self) -> list[KeyRow]:
        """The keys in the order of their numbers."""
        return list(self._numbers)

    def codes(self, columns: Sequence[pa.Array]) -> Integers:
        """Number of each row's key, int64[n]; new keys are added."""
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


def count_keys(columns: Sequence[pa.Array]) -> dict[KeyRow, int]:
    """Number of rows of each key; the order has no meaning."""
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


def _one_of_equals(entry: object) -> object:
    """`entry`, with one object for all NaNs and one zero, so that equal keys are counted together in every batch."""
    if not isinstance(entry, float):
        return entry
    return math.nan if math.isnan(entry) else entry + 0.0


def sorted_keys(keys: Iterable[KeyRow]) -> list[KeyRow]:
    """Keys in an order that depends on them alone: NaN and missing entries last."""

    def place(entry: Any) -> tuple[int, object]:
        return (2, 0) if entry is None else (1, 0) if entry is math.nan else (0, entry)

    return sorted(keys, key=lambda row: tuple(map(place, row)))
