"""Ids of a fleet, integers or texts, and their rows."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from fastdp import validation
from fastdp.data.column import as_array, kind_of
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Indices
from fastdp.noise.key import MAX_STREAMS

Id = int | str
#: Ids of a call that are sorted before they are searched for.
MANY = 2**10
#: Odd, so that multiplying by it permutes 64-bit integers: 2^64 divided by the golden ratio.
_MIX = np.uint64(0x9E3779B97F4A7C15)


def as_ids(ids: Any, rows: int | None = None) -> Indices | list[str]:
    """Check ids: int64[m] from 0 to 2^32 - 2, or texts, as many as `rows`."""
    listed = isinstance(ids, Sequence) and not isinstance(ids, str)
    if listed and set(map(type, ids)) <= {str}:
        checked: Indices | list[str] = list(ids)
    else:
        # NumPy would make texts of the numbers beside a text, and drop a text's last zero characters.
        texts = listed and any(isinstance(entry, str) for entry in ids)
        array = np.fromiter(ids, object, len(ids)) if texts else as_array(ids)
        if array is None or array.ndim != 1:
            raise DataError(f"ids is a {type(ids).__name__}: expected one row of whole numbers, or of texts")
        if array.dtype.kind in "OUT" and array.size:
            wrong = [i for i, entry in enumerate(array.tolist()) if not isinstance(entry, str)]
            if wrong:
                raise DataError(f"ids[{wrong[0]}] is no text: expected whole numbers alone, or texts alone")
            checked = [str(entry) for entry in array.tolist()]
        elif not array.size:
            checked = np.empty(0, np.int64)
        elif array.dtype.kind in "iu":
            outside = (array < 0) | (array >= MAX_STREAMS)
            if outside.any():
                raise DataError(
                    f"ids[{int(np.argmax(outside))}]: expected whole numbers of at least 0 and below {MAX_STREAMS} "
                    "(larger numbers as texts)"
                )
            checked = array.astype(np.int64)
        else:
            raise DataError(f"ids holds {kind_of(array.dtype)}: expected whole numbers, or texts")
    if rows is not None and len(checked) != rows:
        raise DataError(f"ids has {len(checked)} entries: expected {rows}, one for each")
    if isinstance(checked, list) and not validation.encodes("".join(checked)):
        first = next(i for i, entry in enumerate(checked) if not validation.encodes(entry))
        raise DataError(f"ids[{first}]: expected a text that UTF-8 can encode")
    return checked


def shards_of(ids: Indices | list[str], n: int) -> Indices:
    """Shard of each id among `n`, on every machine."""
    if isinstance(ids, list):
        digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in ids)
        mixed = np.frombuffer(digests, ">u8").astype(np.uint64)
    else:
        mixed = ids.astype(np.uint64) * _MIX
    return ((mixed >> np.uint64(32)) % np.uint64(n)).astype(np.int64)


class RowIndex:
    """Map from ids to rows."""

    def __init__(self, ids: Iterable[Id] | Indices = ()) -> None:
        self._texts: dict[str, int] = {}
        self._sorted: Indices = np.empty(0, np.int64)
        self._rows: Indices = np.empty(0, np.int64)
        self.add(ids if isinstance(ids, np.ndarray) else list(ids))

    def __len__(self) -> int:
        return len(self._texts) + self._sorted.size

    @property
    def of_texts(self) -> bool | None:
        return bool(self._texts) if len(self) else None

    def find(self, ids: Indices | list[str]) -> Indices:
        if isinstance(ids, list):
            return np.fromiter(map(self._texts.get, ids, repeat(-1)), np.int64, len(ids))
        if not self._sorted.size:
            return np.full(ids.size, -1)
        if ids.size < MANY:
            return self._find(ids)
        # Sorted, so that searches read neighbouring memory.
        order = np.argsort(ids)
        rows: Indices = np.empty(ids.size, np.int64)
        rows[order] = self._find(ids[order])
        return rows

    def _find(self, ids: Indices) -> Indices:
        at = np.minimum(np.searchsorted(self._sorted, ids), self._sorted.size - 1)
        return np.where(self._sorted[at] == ids, self._rows[at], -1)

    def add(self, ids: Indices | list[Any]) -> None:
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
        if self._sorted.size:
            at = np.searchsorted(self._sorted, numbers)
            numbers, rows = np.insert(self._sorted, at, numbers), np.insert(self._rows, at, rows)
        if (numbers[1:] == numbers[:-1]).any():
            raise ValueError("an id more than once")
        self._sorted, self._rows = numbers, rows

    def ids(self) -> Indices | list[str]:
        if self._texts:
            return list(self._texts)
        out: Indices = np.empty(self._sorted.size, np.int64)
        out[self._rows] = self._sorted
        return out


def distinct_ids(ids: Any, n: int) -> Indices | tuple[str, ...]:
    """Check the distinct ids of `n` streams, by default 0 .. n - 1."""
    if ids is None:
        return np.arange(n)
    checked = as_ids(ids, n)
    names = checked if isinstance(checked, list) else checked.tolist()
    if len(set(names)) < n:
        twice = next(name for name, times in Counter(names).items() if times > 1)
        raise ParameterError(
            f"ids has {validation.shown(twice)} more than once: expected distinct ids (equal noise reveals "
            "differences)"
        )
    return tuple(checked) if isinstance(checked, list) else checked
