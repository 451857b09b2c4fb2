"""Persons by value: who a row belongs to, whatever types the columns and batches of a table have.

A person is a text: numbers as Python writes them, UUIDs in small letters, times as instants, texts in Unicode's
normal form C.  Arrow makes the texts, and a kernel their digests, both in bulk.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from fastdp.data.source import import_tables
from fastdp.errors import DataError
from fastdp_kernels import blake2b

Integers = NDArray[np.int64]
#: RFC 7693: 16 bytes, no key, one node; and what the digests are for.
_BLOCK = np.frombuffer(struct.pack("<BBBBIQBB14x16s16s", 16, 0, 1, 1, 0, 0, 0, 0, b"", b"fastdp person"), np.uint64)
_UUID = "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
#: Bytes of a UUID, characters of its text, and where its digits stand there.
_BYTES, _LENGTH = 16, 36
_PLACES = np.array([i for i in range(_LENGTH) if i not in (8, 13, 18, 23)])
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def digests_of(column: Any) -> tuple[Integers, NDArray[np.bool_] | None]:
    """Who a row belongs to, as 128-bit digests: int64[n, 2]; and which rows say so (None: all)."""
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


def check_single(column: Any, *, uuids: bool = False) -> None:
    """DataError for a column of lists or structures, or of a type that is not Arrow's own."""
    _, arrow = import_tables()
    if arrow.types.is_nested(column.type):
        raise DataError("keys and persons: a column holds lists or structures; expected single entries")
    name = getattr(column.type, "extension_name", None)
    if name is not None and not (uuids and name == "arrow.uuid"):
        raise DataError(
            f"keys and persons: a column holds entries of the type {name}; expected texts, numbers, dates or times "
            "(texts of them, for example)"
        )


def _texts(entries: Any) -> Any:
    """The entries as texts, equal where they name one person; anything where one is missing."""
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


def _text(entry: Any) -> str:
    """One entry as text: decimals without zeros at their end, 16 bytes as a UUID; other types stay apart."""
    if isinstance(entry, (float, Decimal)) and math.isfinite(entry):
        digits = f"{Decimal(repr(entry)) if isinstance(entry, float) else entry:f}"
        return str(int(entry)) if entry == int(entry) else digits.rstrip("0")
    if isinstance(entry, bytes) and len(entry) == _BYTES:
        return str(UUID(bytes=entry))
    return f"\0{type(entry).__name__} {entry!r}"


def _uuids(entries: Any) -> Any:
    """The texts of 16 bytes each."""
    _, arrow = import_tables()
    n = len(entries)
    raw = np.frombuffer(entries.buffers()[1], np.uint8)[entries.offset * _BYTES :][: n * _BYTES].reshape(n, _BYTES)
    texts = np.full((n, _LENGTH), ord("-"), np.uint8)
    texts[:, _PLACES] = _DIGITS[np.stack([raw >> 4, raw & 15], axis=2).reshape(n, -1)]
    ends = np.arange(0, _LENGTH * (n + 1), _LENGTH, dtype=np.int64)
    return arrow.LargeStringArray.from_buffers(n, arrow.py_buffer(ends), arrow.py_buffer(texts))


def _instants(entries: Any) -> Any:
    """Points in time as seconds and nanoseconds; with a zone they are others than without one."""
    _, arrow = import_tables()
    import pyarrow.compute as compute

    each = _PER_SECOND[entries.type.unit]
    seconds, parts = np.divmod(entries.cast(arrow.int64()).fill_null(0).to_numpy(), each)
    texts = [arrow.array(number).cast(arrow.large_string()) for number in (seconds, parts * (10**9 // each))]
    known = "\0time " if entries.type.tz is None else "\0instant "
    return compute.binary_join_element_wise(
        arrow.scalar(known, arrow.large_string()), *texts, arrow.scalar(" ", arrow.large_string())
    )


def _digests(texts: Any) -> Integers:
    """Of a LargeStringArray: int64[n, 2]."""
    found: Integers = np.empty((len(texts), 2), np.int64)
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int64)[texts.offset :][: len(texts) + 1]
    blake2b.digest_texts(_BLOCK, offsets, np.frombuffer(data or b"\0", np.uint8), found)
    return found
