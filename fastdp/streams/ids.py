"""Ids of a fleet, integers or texts, and their rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fastdp import validation
from fastdp.data.column import as_array, as_column, kind_of
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Indices
from fastdp.noise.key import MAX_STREAMS

Id = int | str
#: Ids of a call that are sorted before they are searched for.
MANY = 2**10
#: Odd, so that multiplying by it permutes 64-bit integers: 2^64 divided by the golden ratio.
_MIX = np.uint64(0x9E3779B97F4A7C15)


def as_ids(ids: Any, rows: int | None = None) -> Indices | list[str]:
    """int64[m] from 0 to 2^32 - 2, or texts; DataError for other ids or another number."""
    listed = isinstance(ids, Sequence) and not isinstance(ids, str)
    if listed and set(map(type, ids)) <= {str}:
        found: Indices | list[str] = list(ids)
    else:
        # NumPy would make texts of the numbers beside a text, and drop a text's last zero characters.
        texts = listed and any(isinstance(each, str) for each in ids)
        array = np.fromiter(ids, object, len(ids)) if texts else as_array(ids)
        if array is None or array.ndim != 1:
            raise DataError(f"ids is a {type(ids).__name__}: expected one row of whole numbers, or of texts")
        if array.dtype.kind in "OUT" and array.size:
            wrong = [i for i, each in enumerate(array.tolist()) if not isinstance(each, str)]
            if wrong:
                raise DataError(f"ids[{wrong[0]}] is no text: expected whole numbers alone, or texts alone")
            found = [str(each) for each in array.tolist()]
        elif not array.size:
            found = np.empty(0, np.int64)
        elif array.dtype.kind in "iu":
            outside = (array < 0) | (array >= MAX_STREAMS)
            if outside.any():
                raise DataError(
                    f"ids[{int(np.argmax(outside))}]: expected whole numbers of at least 0 and below {MAX_STREAMS} "
                    "(larger numbers as texts)"
                )
            found = array.astype(np.int64)
        else:
            raise DataError(f"ids holds {kind_of(array.dtype)}: expected whole numbers, or texts")
    if rows is not None and len(found) != rows:
        raise DataError(f"ids has {len(found)} entries: expected {rows}, one for each value")
    if isinstance(found, list) and not validation.encodes("".join(found)):
        first = next(i for i, each in enumerate(found) if not validation.encodes(each))
        raise DataError(f"ids[{first}]: expected a text that UTF-8 can encode")
    return found


def parts_of(ids: Indices | list[str], n: int) -> Indices:
    """Shard, of `n`, of each id, on every machine."""
    if isinstance(ids, list):
        digests = b"".join(hashlib.blake2b(each.encode(), digest_size=8).digest() for each in ids)
        mixed = np.frombuffer(digests, ">u8").astype(np.uint64)
    else:
        mixed = ids.astype(np.uint64) * _MIX
    return ((mixed >> np.uint64(32)) % np.uint64(n)).astype(np.int64)


class Places:
    """Map from ids to rows: a sorted array, or a dictionary."""

    def __init__(self, ids: Iterable[Id] | Indices = ()) -> None:
        self._texts: dict[str, int] = {}
        self._sorted: Indices = np.empty(0, np.int64)
        self._rows: Indices = np.empty(0, np.int64)
        self.add(ids if isinstance(ids, np.ndarray) else list(ids))

    def __len__(self) -> int:
        return len(self._texts) + self._sorted.size

    @property
    def of_texts(self) -> bool | None:
        """True if ids are texts; None without ids."""
        return bool(self._texts) if len(self) else None

    def find(self, ids: Indices | list[str]) -> Indices:
        """Row of each id, or -1: int64[m]."""
        if isinstance(ids, list):
            return np.fromiter((self._texts.get(each, -1) for each in ids), np.int64, len(ids))
        if not self._sorted.size:
            return np.full(ids.size, -1)
        if ids.size < MANY:
            return self._find(ids)
        # Sorted, so that searches read neighbouring memory.
        order = np.argsort(ids)
        found: Indices = np.empty(ids.size, np.int64)
        found[order] = self._find(ids[order])
        return found

    def _find(self, ids: Indices) -> Indices:
        """:meth:`find` for integers, by binary search."""
        at = np.minimum(np.searchsorted(self._sorted, ids), self._sorted.size - 1)
        return np.where(self._sorted[at] == ids, self._rows[at], -1)

    def add(self, ids: Indices | list[Any]) -> None:
        """Give new ids the next rows; ValueError for known ones."""
        first = len(self)
        if isinstance(ids, list) and ids and isinstance(ids[0], str):
            self._texts.update(zip(ids, range(first, first + len(ids)), strict=True))
            if len(self) != first + len(ids):
                raise ValueError("an id more than once")
            return
        numbers = np.asarray(ids, np.int64)
        order = np.argsort(numbers)
        self.merge(numbers[order], first + order)

    def merge(self, numbers: Indices, rows: Indices) -> None:
        """Add ascending integers with rows; ValueError for known ones."""
        if self._sorted.size:
            at = np.searchsorted(self._sorted, numbers)
            numbers, rows = np.insert(self._sorted, at, numbers), np.insert(self._rows, at, rows)
        if (numbers[1:] == numbers[:-1]).any():
            raise ValueError("an id more than once")
        self._sorted, self._rows = numbers, rows

    def ids(self) -> Indices | list[str]:
        """All ids, by row."""
        if self._texts:
            return list(self._texts)
        out: Indices = np.empty(self._sorted.size, np.int64)
        out[self._rows] = self._sorted
        return out


# Ids of release_many: distinct integers, or names.

#: Numbers of streams as int64[n], or ids of which some are texts.
Ids = Indices | tuple[int | str, ...]


def as_row_ids(ids: object, n: int) -> Ids:
    """`ids` of `n` streams: int64[n], or a tuple with texts; by default 0 .. n - 1."""
    if ids is None:
        return np.arange(n)
    listed = _as_list(ids)
    if listed is not None and any(isinstance(each, str) for each in listed):
        return _as_names(listed, n)
    column = as_column(ids, "ids") if listed is None or n else np.empty(0, np.int64)
    if column.dtype.kind not in "iu" or column.size != n:
        raise ParameterError(
            f"ids has {column.size} entries of {kind_of(column.dtype)}: expected {n} texts or whole numbers, one for "
            "each stream"
        )
    wrong = np.flatnonzero((column < 0) | (column >= MAX_STREAMS))
    if wrong.size:
        raise ParameterError(
            f"ids[{wrong[0]}] = {column[wrong[0]]}: expected a whole number of at least 0 and below {MAX_STREAMS}"
        )
    numbers = column.astype(np.int64)
    distinct, times = np.unique(numbers, return_counts=True)
    if distinct.size < n:
        raise _twice(int(distinct[times > 1][0]))
    return numbers


def _as_list(ids: object) -> list[object] | None:
    """Entries of a column that may hold texts; None for numbers."""
    if isinstance(ids, (list, tuple)):
        return list(ids)
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(ids, method) and getattr(getattr(ids, "dtype", None), "kind", "O") not in "iuf":
            return list(getattr(ids, method)())
    return None


def _as_names(listed: list[object], n: int) -> tuple[int | str, ...]:
    """Ids as a tuple; ParameterError for another number, or duplicates."""
    if len(listed) != n:
        raise ParameterError(f"ids has {len(listed)} entries: expected {n}, one for each stream")
    names: list[int | str] = []
    for i, each in enumerate(listed):
        if isinstance(each, str) and each and validation.encodes(each):
            names.append(str(each))
        elif isinstance(each, str):
            raise ParameterError(
                f"ids[{i}] = {validation.shown(each)}: expected a text that is not empty and that UTF-8 can encode"
            )
        else:
            names.append(validation.integer(f"ids[{i}]", each, 0, MAX_STREAMS - 1))
    seen: set[int | str] = set()
    for name in names:
        if name in seen:
            raise _twice(name)
        seen.add(name)
    return tuple(names)


def _twice(name: object) -> ParameterError:
    """The error for a duplicate id."""
    return ParameterError(
        f"ids has {validation.shown(name)} more than once: expected distinct ids (equal noise reveals differences)"
    )
