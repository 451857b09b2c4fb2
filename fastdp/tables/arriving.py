"""Rows that arrive in a call of ``Windows``; a single row is read at less cost."""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fastdp.data.calendar import Time, as_instant
from fastdp.data.column import as_arrow, as_column, as_floats
from fastdp.data.times import times_of
from fastdp.errors import DataError
from fastdp.kinds import Floats, Integers
from fastdp.tables.columns import Keys, as_texts, digests_of
from fastdp.tables.plan import TablePlan
from fastdp.tables.rows import column_values, finite_values
from fastdp.units import AWARE_EPOCH, FIRST, LAST, MICROSECOND
from fastdp.units import instant as clock_instant

#: The clock of a call with rows.
_NEVER = int(np.iinfo(np.int64).min)


class Batch(NamedTuple):
    """Input of one call: instants, values (float64[c, n]), keys and persons; or the clock.

    ``keys`` are numbers (-1: unlisted), private ones columns of Arrow; a tuple is one row's.
    """

    times: Integers
    values: Floats
    keys: Any
    digests: Integers
    to: int


@dataclass(frozen=True)
class Arriving:
    """Reads a batch of rows, or the clock."""

    plan: TablePlan
    time: Time
    table: Keys

    def clock(self, to: Any) -> Batch:
        return self._no_rows._replace(to=as_instant("to", to, self._zone))

    def rows(self, times: Any, values: Any, keys: Any, who: Any) -> Batch:
        one = self._one(times, values, keys, who)
        if one is not None:
            return one
        instants, present = times_of(as_arrow(times, "times"), self._zone, self.time)
        n = instants.size
        if present is not None and not present.all():
            raise DataError(f"times[{int(np.argmin(present))}] is missing: expected a time for every row")
        floats, named, digests = self._values(values, n), self._keys(keys, n), self._persons(who, n)
        return Batch(instants, floats, named, digests, _NEVER)

    @cached_property
    def _zone(self) -> tzinfo | None:
        assert self.plan.calendar is not None  # noqa: S101 - there are times
        return self.plan.calendar.zone

    @property
    def _private(self) -> bool:
        return self.plan.key_rule == "private"

    def _one(self, times: Any, values: Any, keys: Any, who: Any) -> Batch | None:
        plan = self.plan
        moment = _instant(times, self.time, self._zone)
        if moment is None or plan.has_entries:
            return None
        numbers = _row(values, self._names, _number)
        entries = _row(keys, plan.by, _name)
        persons = _row(who, () if plan.who is None else (plan.who,), _person)
        if numbers is None or entries is None or persons is None:
            return None
        row = entries if self._private else (self._code(entries, keys),)
        return Batch(
            np.array([moment]), np.array([numbers]).T, row, np.array(persons, np.int64).reshape(-1, 2), _NEVER
        )

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.plan.columns if not self.plan.is_person(each.name))

    def _code(self, entries: tuple[object, ...], keys: Any) -> int:
        code = self._codes.get(entries, -1)
        if code < 0:
            code = int(self._keys(keys, 1)[0])
            if code >= 0:
                self._codes[entries] = code
        return code

    @cached_property
    def _codes(self) -> dict[object, int]:
        return {}

    @cached_property
    def _no_rows(self) -> Batch:
        none: Integers = np.empty(0, np.int64)
        keys: Any = [] if self._private else none
        return Batch(none, np.empty((len(self.plan.columns), 0)), keys, _no_persons(), 0)

    def _values(self, values: Any, n: int) -> Floats:
        columns = self.plan.columns
        found = np.zeros((len(columns), n))
        named = [(into, column) for into, column in zip(found, columns, strict=True) if column.name in self._names]
        given = _columns("values", values, self._names, ", because rows are counted")
        for (into, column), each in zip(named, given, strict=True):
            entries = as_arrow(each, "values") if column.entries else as_floats(as_column(each, "values"))
            _same_length("values", len(entries), n)
            into[:] = column_values(entries, column) if column.entries else finite_values(entries, column)
        return found

    def _keys(self, keys: Any, n: int) -> Any:
        columns = [as_arrow(each, "keys") for each in _columns("keys", keys, self.plan.by, " without by=")]
        for column in columns:
            _same_length("keys", len(column), n)
        return list(map(as_texts, columns)) if self._private else self.table.codes(columns, n)

    def _persons(self, who: Any, n: int) -> Integers:
        wanted = [] if self.plan.who is None else [self.plan.who]
        given = _columns("persons", who, wanted, " without unit=fastdp.Person")
        if not given:
            return _no_persons()
        digests, named = digests_of(as_arrow(given[0], "persons"))
        _same_length("persons", len(digests), n)
        if named is not None and not named.all():
            raise DataError(f"persons[{int(np.argmin(named))}] is missing: expected the person of every row")
        return digests


def _no_persons() -> Integers:
    return np.empty((0, 2), np.int64)


def _columns(name: str, given: Any, wanted: Sequence[str], why: str) -> list[Any]:
    if not wanted and given is not None:
        raise DataError(f"{name} is a {type(given).__name__}: expected None{why}")
    mapped = isinstance(given, Mapping)
    if (mapped or len(wanted) > 1) and not (mapped and set(wanted) <= set(given)):
        raise DataError(
            f"{name} is a {type(given).__name__}: expected a mapping with a column for each of {list(wanted)}"
        )
    if mapped:
        return [given[each] for each in wanted]
    return [[] if given is None else given for _ in wanted]


def _same_length(name: str, found: int, n: int) -> None:
    if found != n:
        raise DataError(f"{name} has {found} entries: expected {n}, one for each of times")


# A single row.

#: Length of the text of a UUID, whose letters may be of either case.
_UUID = 36
#: Texts of times that Arrow and Python read alike.
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d[T ](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.(?:\d{3}){1,2})?)?(?:Z|[+-][01]\d:[0-5]\d)?",
    re.ASCII,
)
#: Whole numbers up to here are floats.
_EXACT = 2**53
_TIMES = np.dtype("M8[us]")
T = TypeVar("T")


def _row(given: Any, names: Sequence[str], read: Callable[[Any], T | None]) -> tuple[T, ...] | None:
    """The only row of these columns, or None."""
    if not names:
        return () if given is None else None
    columns = [given.get(each) for each in names] if type(given) is dict else [given]
    found = [entry for column in columns if (entry := read(column)) is not None]
    return tuple(found) if len(found) == len(columns) == len(names) else None


def _only(column: Any) -> Any:
    """The entry of a list or array of one, or None."""
    listed = type(column) is list or (type(column) is np.ndarray and column.ndim == 1 and column.dtype.kind in "iufM")
    if not listed or len(column) != 1:
        return None
    entry = column[0]
    return entry.item() if isinstance(entry, np.generic) and type(entry) is not np.datetime64 else entry


def _is_int64(entry: Any) -> bool:
    return type(entry) is int and -(2**63) <= entry < 2**63


def _instant(times: Any, time: Time, zone: tzinfo | None) -> int | None:
    """Instant of a datetime or ISO text, or None."""
    entry = _only(times)
    if type(entry) is np.datetime64 and zone is None:
        entry = entry.astype(_TIMES).item()
    if type(entry) is str and time.format is None and _ISO.fullmatch(entry):
        with suppress(ValueError):
            entry = datetime.fromisoformat(entry)
    if type(entry) is not datetime or (entry.tzinfo is not None and zone is None):
        return None
    moment = clock_instant(entry, zone) if entry.tzinfo is None else (entry - AWARE_EPOCH) // MICROSECOND
    return moment if FIRST <= moment <= LAST else None


def _number(values: Any) -> float | None:
    entry = _only(values)
    if type(entry) is int and -_EXACT <= entry <= _EXACT:
        return float(entry)
    return entry if type(entry) is float and math.isfinite(entry) else None


def _name(keys: Any) -> str | int | None:
    entry = _only(keys)
    return entry if type(entry) is str or _is_int64(entry) else None


def _person(persons: Any) -> tuple[int, int] | None:
    """Digest of an integer, or of a text with one spelling."""
    entry = _only(persons)
    if _is_int64(entry):
        text = str(entry)
    elif type(entry) is str and len(entry) != _UUID and entry.isascii():
        text = entry
    else:
        return None
    digest = hashlib.blake2b(text.encode(), digest_size=16, person=b"fastdp person").digest()
    found: tuple[int, int] = struct.unpack("<2q", digest)
    return found
