"""Columns of Arrow record batches as arrays for kernels."""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from fastdp.data.column import arrow, as_floats, compute
from fastdp.data.times import PER_SECOND
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Array, Flags, Floats, Integers
from fastdp_kernels.tables import person_rows

if TYPE_CHECKING:
    import pyarrow as pa

# Persons by value: the same ones, whatever types the columns and batches of a table have.
#
# A person is a text: numbers as Python writes them, UUIDs in small letters, times as instants, texts in Unicode's
# normal form C.  Arrow makes the texts in bulk; of equal ones, one is digested.

_UUID = "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
#: Bytes of a UUID, characters of its text, and where its digits stand there.
_BYTES, _LENGTH = 16, 36
_PLACES = np.array([i for i in range(_LENGTH) if i not in (8, 13, 18, 23)])
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
#: Digest of a missing entry of a key.
MISSING = np.frombuffer(hashlib.blake2b(b"", digest_size=16, person=b"fastdp missing").digest(), np.int64)
#: A hash table has at least so many slots, and at most three pairs for four slots.
MIN_SLOTS = 1024
#: Spellings of entries that are not given, of which the digests are kept.
MOST_UNKNOWN = 2**20
#: Arrays of new entries of a column, before they are joined.
MOST_CHUNKS = 64
#: Known texts, as a share of a batch's rows, above which each row is looked up by itself.
FEW = 0.25


def digests_of(column: pa.Array) -> tuple[Integers, Flags | None]:
    """128-bit digest of each row's person, int64[n, 2], and flags of rows with one."""
    entries, places, present = _encoded(*_stored(column))
    return with_missing(entries).take(places, axis=0), present


def _stored(column: pa.Array) -> tuple[pa.Array, Flags | None]:
    """Entries or categories of rows, and flags of rows with one (None: all)."""
    check_single(column, uuids=True)
    # Of UUIDs, Arrow encodes the bytes that they are stored as.
    stored = column.storage if isinstance(column, arrow.ExtensionArray) else column
    stored = stored.cast(arrow.string()) if arrow.types.is_null(stored.type) else stored
    # Arrow takes no entries of views.
    stored = stored.cast(arrow.large_string()) if arrow.types.is_string_view(stored.type) else stored
    return stored, stored.is_valid().to_numpy(zero_copy_only=False) if stored.null_count else None


def _encoded(stored: pa.Array, present: Flags | None) -> tuple[pa.Array, Integers, Flags | None]:
    """Distinct entries, each row's index in them, and such flags."""
    categories = arrow.types.is_dictionary(stored.type)
    coded = stored if categories else stored.dictionary_encode()
    entries, indices = coded.dictionary, coded.indices
    places = (indices if present is None else indices.fill_null(0)).to_numpy()
    if len(entries) and entries.null_count:
        named = entries.is_valid().to_numpy(zero_copy_only=False)[places]
        present = named if present is None else present & named
    if present is not None:
        # In the order of rows, as keys are numbered in a state file, a missing entry too.
        first = int(places[: int(np.argmin(present))].max(initial=-1)) + 1
        entries = arrow.concat_arrays([entries[:first], arrow.nulls(1, entries.type), entries[first:]])
        places = np.where(present, places + (places >= first), first)
    if categories:
        # Of categories only those of rows are entries.
        used = np.flatnonzero(np.bincount(places, minlength=len(entries)))
        entries, places = entries.take(arrow.array(used)), np.searchsorted(used, places)
    return entries, places, present


def _is_number(kind: pa.DataType) -> bool:
    return bool(arrow.types.is_primitive(kind)) and kind.bit_width >= 8


def _is_text(kind: pa.DataType) -> bool:
    types = arrow.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def check_single(column: pa.Array, *, uuids: bool = False) -> None:
    """DataError for lists, structures or extension types."""
    if arrow.types.is_nested(column.type):
        raise DataError("keys and persons: a column holds lists or structures; expected single entries")
    name = getattr(column.type, "extension_name", None)
    if name is not None and not (uuids and name == "arrow.uuid"):
        raise DataError(
            f"keys and persons: a column holds entries of the type {name}; expected texts, numbers, dates or times "
            "(texts of them, for example)"
        )


def check_key(column: pa.Array, *, uuids: bool = False) -> None:
    """DataError for bytes too."""
    check_single(column, uuids=uuids)
    types, kind = arrow.types, column.type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    fixed = types.is_fixed_size_binary(kind) and not (uuids and kind.byte_width == _BYTES)
    if fixed or types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        raise DataError(
            "keys: entries are bytes, which equal no text; expected texts, numbers, dates or times (of a CSV file in "
            "UTF-8: iconv converts others)"
        )


def texts_of(entries: pa.Array) -> pa.LargeStringArray:
    """Entries as digested texts, equal for one person."""
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
    if _is_text(kind):
        plain = entries.cast(text)
        if not compute.all(compute.string_is_ascii(plain), skip_nulls=True).as_py():
            try:
                plain = compute.utf8_normalize(plain, form="NFC")
            except arrow.ArrowInvalid:
                raise DataError("keys and persons: a text is not UTF-8; expected texts in UTF-8") from None
        uuids = compute.match_substring_regex(plain, _UUID)
        return compute.if_else(uuids, compute.ascii_lower(plain), plain)
    if types.is_fixed_size_binary(kind) and kind.byte_width == _BYTES:
        return _uuids(entries)
    if types.is_timestamp(kind):
        return _instants(entries)
    # Few columns of persons are of other types.
    return arrow.array([_text(entry) for entry in entries.to_pylist()], text)


def as_texts(column: pa.Array) -> pa.LargeStringArray:
    """Keys as texts; NaN and infinity are missing."""
    check_key(column, uuids=True)
    types = arrow.types
    column = column.dictionary_decode() if types.is_dictionary(column.type) else column
    kind = column.type
    if types.is_timestamp(kind):
        column = column.cast(arrow.timestamp("us", kind.tz and "UTC"), safe=False)
    shows = types.is_temporal(kind) or types.is_boolean(kind)
    texts = column.cast(arrow.large_string()) if shows else texts_of(column)
    known = compute.is_finite(column) if types.is_floating(kind) else column.is_valid()
    return compute.if_else(known, texts, arrow.scalar(None, texts.type))


def one_spelling(entries: pa.Array) -> pa.Array:
    """Entries in form C, small letters of UUIDs, no negative zero."""
    types, kind = arrow.types, entries.type
    if types.is_floating(kind):
        return compute.add(entries, arrow.scalar(0.0, kind))
    return texts_of(entries).cast(kind) if _is_text(kind) else entries


def _text(entry: object) -> str:
    if isinstance(entry, (float, Decimal)) and math.isfinite(entry):
        digits = f"{Decimal(repr(entry)) if isinstance(entry, float) else entry:f}"
        return str(int(entry)) if entry == int(entry) else digits.rstrip("0")
    if isinstance(entry, bytes) and len(entry) == _BYTES:
        return str(UUID(bytes=entry))
    return f"\0{type(entry).__name__} {entry!r}"


def _uuids(entries: pa.FixedSizeBinaryArray) -> pa.LargeStringArray:
    n = len(entries)
    raw = np.frombuffer(entries.buffers()[1], np.uint8)[entries.offset * _BYTES :][: n * _BYTES].reshape(n, _BYTES)
    texts = np.full((n, _LENGTH), ord("-"), np.uint8)
    texts[:, _PLACES] = _DIGITS[np.stack([raw >> 4, raw & 15], axis=2).reshape(n, 2 * _BYTES)]
    ends = np.arange(0, _LENGTH * (n + 1), _LENGTH, dtype=np.int64)
    return arrow.LargeStringArray.from_buffers(n, arrow.py_buffer(ends), arrow.py_buffer(texts))


def _instants(entries: pa.TimestampArray) -> pa.LargeStringArray:
    each = PER_SECOND[entries.type.unit]
    seconds, parts = np.divmod(entries.cast(arrow.int64()).fill_null(0).to_numpy(), each)
    texts = [arrow.array(number).cast(arrow.large_string()) for number in (seconds, parts * (10**9 // each))]
    known = "\0time " if entries.type.tz is None else "\0instant "
    return compute.binary_join_element_wise(
        arrow.scalar(known, arrow.large_string()), *texts, arrow.scalar(" ", arrow.large_string())
    )


def _bytes_of(texts: pa.LargeStringArray) -> tuple[Integers, NDArray[np.uint8]]:
    _, ends, data = texts.buffers()
    return np.frombuffer(ends, np.int64)[texts.offset :][: len(texts) + 1], np.frombuffer(data or b"\0", np.uint8)


def _digested(offsets: Integers, data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """BLAKE2b of each text ``data[offsets[i]:offsets[i + 1]]``: uint64[n, 2]."""
    texts = data[int(offsets[0]) : int(offsets[-1])].tobytes()
    ends, digest = (offsets - offsets[0]).tolist(), partial(hashlib.blake2b, digest_size=16, person=b"fastdp person")
    found = bytearray().join([digest(texts[begin:end]).digest() for begin, end in pairwise(ends)])
    return np.frombuffer(found, np.uint64).reshape(-1, 2)


def with_missing(entries: pa.Array) -> Integers:
    """Digests of entries, missing ones too: int64[n, 2]."""
    found = _digested(*_bytes_of(texts_of(entries))).view(np.int64)
    if entries.null_count:
        found[entries.is_null().to_numpy(zero_copy_only=False)] = MISSING
    return found


def _spelling(entries: pa.Array, key: NDArray[np.uint64]) -> tuple[Integers, Integers]:
    """Two numbers of each entry, equal for one spelling."""
    kind, size = entries.type, len(entries)
    if _is_text(kind):
        first, second = np.empty(size, np.int64), np.empty(size, np.int64)
        person_rows.hash_texts(key, *_bytes_of(entries.cast(arrow.large_string())), first, second)
    elif _is_number(kind):
        bits = np.frombuffer(entries.buffers()[1], f"i{kind.bit_width // 8}")[entries.offset :][:size]
        first, second = bits.astype(np.int64, copy=False), np.zeros(size, np.int64)
    else:
        first, second = with_missing(entries).T.copy()
    if entries.null_count:
        missing = entries.is_null().to_numpy(zero_copy_only=False)
        first, second = (np.where(missing, *pair) for pair in zip(MISSING.tolist(), (first, second), strict=True))
    return first, second


class Growing:
    """An array that grows by doubling its memory."""

    def __init__(self, kind: type, size: int = 0) -> None:
        self._held: Array = np.empty(size, kind)
        self.size = 0

    @property
    def array(self) -> Array:
        return self._held[: self.size]

    def add(self, part: Array) -> None:
        end = self.size + part.size
        if end > self._held.size:
            wider: Array = np.empty(max(end, 2 * self._held.size), self._held.dtype)
            wider[: self.size] = self.array
            self._held = wider
        self._held[self.size : end] = part
        self.size = end


class Numbers:
    """Numbers pairs of integers; a secret key prevents chosen collisions."""

    def __init__(self) -> None:
        self._key = np.frombuffer(os.urandom(16), np.uint64)
        self._slots: Integers = np.full(MIN_SLOTS, -1, np.int64)
        self._pairs: Integers = np.empty((MIN_SLOTS, 2), np.int64)
        self.size = 0

    @property
    def pairs(self) -> Integers:
        return self._pairs[: self.size]

    def of(self, first: Integers, second: Integers, *, learns: bool = True) -> Integers:
        """Number of each pair, int64[n]; new ones are added, or -1."""
        needed = self.size + (first.size if learns else 0)
        if 4 * needed > 3 * self._slots.size:
            slots: Integers = np.full(1 << (2 * needed - 1).bit_length(), -1, np.int64)
            pairs: Integers = np.empty((3 * slots.size // 4, 2), np.int64)
            held = self.pairs.T.copy()
            person_rows.number_pairs(self._key, held[0], held[1], slots, pairs, 0, True)
            self._pairs, self._slots = pairs, slots
        given = self._slots, self._pairs, self.size, learns
        found, self.size = person_rows.number_pairs(self._key, first, second, *given)
        return found


#: A key: its entry in each key column.
KeyRow = tuple[Any, ...]


def floats_of(column: pa.Array) -> Floats:
    """Values as float64[n]; missing ones are NaN."""
    if column.type != arrow.float64():
        types, kind = arrow.types, column.type
        numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
        if not (numbers or types.is_boolean(kind) or types.is_null(kind)):
            raise DataError("value: entries are no numbers; expected numbers in every row")
        column = column.cast(arrow.float64(), safe=False)
    return as_floats(column.to_numpy(zero_copy_only=False))


def _firsts(numbers: Integers, before: int) -> Integers:
    new = np.flatnonzero(numbers >= before)
    return new[np.diff(np.maximum.accumulate(numbers[new]), prepend=before - 1) > 0]


class Entries:
    """Entries of a column by number, whatever their spelling: given ones, or those of rows as they arrive.

    Attributes
    ----------
    digests : Numbers
        Digest of each entry, a missing one too.
    values : list of pyarrow.Array
        The entries in one spelling; empty for ``persons``.
    """

    def __init__(self, name: str, given: list[object] | None = None, *, persons: bool = False) -> None:
        self._name, self._given, self._persons = name, given, persons
        self.digests, self.values = Numbers(), list[Any]()
        self._key = np.frombuffer(os.urandom(16), np.uint64)
        self._spelled: dict[Any, _Spelled] = {}
        if given is not None:
            self.values.append(_listed(name, given))
            # In this order, as for a column of another type.
            self.digests.of(*with_missing(self.values[0]).T.copy())
            if self.digests.size < len(given):
                raise ParameterError(
                    f"keys: {self.digests.size} entries of {name!r} are distinct: expected {len(given)}"
                )

    def of(self, column: pa.Array) -> tuple[Integers, Flags | None]:
        """Number of each row's entry (-1: not given), and flags of rows with one."""
        if not self._persons:
            check_key(column)
        kind = column.type.value_type if arrow.types.is_dictionary(column.type) else column.type
        table = self.of_type(kind)
        (entries, present), places = _stored(column), None
        many = _is_text(entries.type) and table.spellings.size > FEW * len(column)
        if not (many or _is_number(entries.type)):
            entries, places, present = _encoded(entries, present)
        before = table.spellings.size
        found = table.spellings.of(*_spelling(entries, self._key))
        if table.spellings.size > before:
            others = entries.take(arrow.array(_firsts(found, before)))
            table.numbers.add(self._numbers(others))
            if self._given is not None and table.spellings.size > len(self._given) + MOST_UNKNOWN:
                del self._spelled[_text_or(kind)]
        numbers = table.numbers.array.take(found)
        return numbers if places is None else numbers[places], present

    def of_type(self, kind: pa.DataType, *, refuses: bool = False) -> _Spelled:
        """Numbers of a type's spellings; ``refuses``: ParameterError for unfit given ones."""
        kind = _text_or(kind)
        if kind not in self._spelled:
            table = self._spelled[kind] = _Spelled(Numbers(), Growing(np.int64))
            try:
                listed = arrow.array(self._given or [], kind)
                if not arrow.types.is_floating(kind) and listed.to_pylist() != (self._given or []):
                    # Arrow cuts fractions and hours off, and takes clock times for UTC.
                    raise TypeError
                table.numbers.add(_firsts(table.spellings.of(*_spelling(listed, self._key)), 0))
            except Exception:  # keys are public, but Arrow's words are long
                if refuses:
                    raise ParameterError(
                        f"keys: entries of {self._name!r} are no {kind}: expected the type of the column"
                    ) from None
        return self._spelled[kind]

    def _numbers(self, entries: pa.Array) -> Integers:
        before = self.digests.size
        numbers = self.digests.of(*with_missing(entries).T.copy(), learns=self._given is None)
        if self.digests.size > before and not self._persons:
            # In one spelling: that of the first row would depend on this row alone.
            found = one_spelling(entries.take(arrow.array(_firsts(numbers, before))))
            if all(each.null_count == len(each) for each in self.values):
                # A missing entry has no type.
                self.values = [arrow.nulls(len(each), found.type) for each in self.values]
            self.values.append(found)
            if len(self.values) > MOST_CHUNKS:
                self.values = [arrow.concat_arrays(self.values)]
        return numbers

    def missing(self) -> int:
        kind = self.values[0].type if self.values else arrow.null()
        return int(self.of(arrow.nulls(1, kind))[0][0])

    def take(self, numbers: Integers) -> pa.Array:
        entries = arrow.chunked_array(self.values) if self.values else arrow.nulls(0)
        found = entries.take(arrow.array(numbers))
        return found.combine_chunks() if self.values else found


@dataclass(frozen=True)
class _Spelled:
    spellings: Numbers
    numbers: Growing


def _text_or(kind: pa.DataType) -> pa.DataType:
    return arrow.large_string() if _is_text(kind) else kind


#: Held while keys are looked up, which adds spellings: copies of a publisher, and shards in threads, share them.
_CODES = threading.Lock()


class Keys:
    """Keys by number, given or as rows arrive, as paths of nodes."""

    def __init__(self, names: Sequence[str], rows: Sequence[KeyRow] | None = None) -> None:
        self.names, self._learns = tuple(names), True
        #: Of each column its given entries, which columns of other types are matched with.
        listed = [[row[i] for row in rows or ()] for i in range(len(self.names))]
        self._entries = [
            Entries(name, None if rows is None else list(dict.fromkeys(entries)))
            for name, entries in zip(names, listed, strict=True)
        ]
        self._nodes = [Numbers() for _ in names]
        self._named: NDArray[np.uint64] = np.empty((0, 2), np.uint64)
        if rows is not None:
            self.codes([_listed(name, entries) for name, entries in zip(names, listed, strict=True)])
            self._learns = False

    @property
    def size(self) -> int:
        return self.sizes[-1]

    @property
    def sizes(self) -> tuple[int, ...]:
        return 1, *(each.size for each in self._nodes)

    def codes(self, columns: Sequence[pa.Array], rows: int = 0) -> Integers:
        """Number of each row's key, int64[n] (-1: not given); new keys are added.

        ``rows``: their number, without key columns.
        """
        node: Integers = np.zeros(len(columns[0]) if columns else rows, np.int64)
        with _CODES:
            for i, column in enumerate(columns):
                entry, _ = self._entries[i].of(column)
                if i:
                    # Of given keys an unknown entry, or one that is not below the node, has the number -1.
                    node = self._nodes[i].of(node, entry, learns=self._learns)
                else:
                    # Below the root an entry's node has its number.
                    new = np.arange(self._nodes[0].size, self._entries[0].digests.size)
                    self._nodes[0].of(np.zeros_like(new), new)
                    node = entry
        return node

    def check_type(self, name: str, kind: pa.DataType) -> None:
        check_key(arrow.nulls(0, kind))
        if not self._learns:
            self._entries[self.names.index(name)].of_type(kind, refuses=True)

    def words(self) -> Integers:
        """64 bits of each key for hashes of rows: int64[K]."""
        return self.named()[:, 0].view(np.int64)

    def named(self) -> NDArray[np.uint64]:
        if len(self._named) < self.size:
            self._named = np.concatenate([self._named, self.digests(first=len(self._named))])
        return self._named

    def digests(self, depth: int | None = None, first: int = 0) -> NDArray[np.uint64]:
        """128-bit digests of a depth's nodes from `first` on: uint64[n, 2]."""
        numbers = self._path(len(self.names) if depth is None else depth, first)
        entries = [each.digests.pairs.take(path, axis=0) for each, path in zip(self._entries, numbers, strict=False)]
        size = len(numbers[0]) if numbers else 1
        joined = np.concatenate([np.empty((size, 0), np.int64), *entries], axis=1)
        offsets: Integers = np.arange(size + 1, dtype=np.int64) * (joined.shape[1] * 8)
        data = np.ascontiguousarray(joined).view(np.uint8).reshape(-1)
        return _digested(offsets, data)

    def _path(self, depth: int, first: int = 0) -> list[Integers]:
        if not depth:
            return []
        node, found = np.arange(first, self._nodes[depth - 1].size), list[Integers]()
        for each in reversed(self._nodes[:depth]):
            above, entry = each.pairs.take(node, axis=0).T
            node = above
            found.append(entry)
        return found[::-1]

    def columns(self, depth: int | None = None) -> dict[str, list[object]]:
        """Entries by key column, one for each node of a depth."""
        paths = self._path(len(self.names) if depth is None else depth)
        return {
            name: entries.take(path).to_pylist()
            for name, entries, path in zip(self.names, self._entries, paths, strict=False)
        }

    @property
    def parents(self) -> tuple[Integers, ...]:
        """Each node's number one depth above, by depth."""
        return tuple(each.pairs[:, 0].copy() for each in self._nodes)

    def added(self, sums: Integers, depth: int) -> Integers:
        """Sums [statistic, window, key] of the ancestors at `depth`, modulo 2^64."""
        for parents in reversed(self.parents[depth:]):
            order = np.argsort(parents, kind="stable")
            starts = np.searchsorted(parents[order], np.arange(int(parents.max(initial=-1)) + 1))
            sums = np.add.reduceat(sums[:, :, order], starts, axis=2) if starts.size else sums[:, :, :0]
        return sums if depth or not self.names or sums.shape[2] else np.zeros((*sums.shape[:2], 1), np.int64)

    def entries(self, which: Integers) -> list[pa.Array]:
        paths = self._path(len(self.names))
        return [entries.take(path[which]) for entries, path in zip(self._entries, paths, strict=True)]

    def missing(self) -> Flags:
        found: Flags = np.zeros(self.size, np.bool_)
        for entries, path in zip(self._entries, self._path(len(self.names)), strict=True):
            found |= (entries.digests.pairs == MISSING).all(axis=1)[path]
        return found

    def select(self, flags: Flags, *, others: bool = False) -> tuple[Keys, Integers]:
        """Select keys by flags, bool[K], and sort them by entries, missing ones last.

        Returns them and the K keys' new numbers, int64[K] (-1: not selected).  With ``others`` a last key with
        missing entries stands for all that are not selected.
        """
        which = np.flatnonzero(flags)
        paths = [path[which] for path in self._path(len(self.names))]
        columns = [entries.take(path) for entries, path in zip(self._entries, paths, strict=True)]
        table = arrow.table(columns, [str(i) for i in range(len(columns))])
        order = compute.sort_indices(table, [(name, "ascending") for name in table.column_names]).to_numpy()
        found = Keys(self.names)
        found._entries, found._learns = self._entries, False
        node: Integers = np.zeros(which.size + others, np.int64)
        for nodes, entries, path in zip(found._nodes, self._entries, paths, strict=True):
            last = [entries.missing()] if others else []
            node = nodes.of(node, np.append(path[order], last).astype(np.int64))
        place: Integers = np.full(self.size, which.size if others else -1, np.int64)
        place[which[order]] = np.arange(which.size)
        return found, place


def _listed(name: str, entries: list[object]) -> pa.Array:
    try:
        found = arrow.array(entries)
    except Exception:  # keys are public, but Arrow's words are long
        raise ParameterError(
            f"keys: entries of {name!r} have several types, or are beyond int64: expected those of the column"
        ) from None
    return found.cast(arrow.string()) if arrow.types.is_null(found.type) else found
