"""Reads a source's rows by window and key, in batches; bounds persons' rows by least hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastdp.data.source import Source
from fastdp.data.times import times_of
from fastdp.errors import DataError, argument
from fastdp.kinds import Flags, Floats, Integers
from fastdp.noise.key import Key
from fastdp.noise.words import Words
from fastdp.tables.columns import Entries, Growing, Keys, Numbers, digests_of, floats_of
from fastdp.tables.keys import KeyRule, key_weights, weigh
from fastdp.tables.plan import ColumnPlan, TablePlan
from fastdp.tables.quantities import MISSING_ENTRY, CellRows, not_finite
from fastdp.tables.reach import EntryRows
from fastdp.units import MOST_DROPPED
from fastdp_kernels.tables import person_rows

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes of coded rows that are kept for a second reading.
MOST_HELD = 2**28
#: Reads the rows that count once more.
Reads = Callable[[], Iterator[CellRows]]


class BatchRows(NamedTuple):
    """Rows of a batch that may count, their instants, and persons' digests."""

    rows: CellRows
    times: Integers
    persons: Integers | None


class Part(NamedTuple):
    """Rows that count of a table, or of a part of it, in batches.

    ``sizes``: number of rows of each one's person (and period); ``dropped``: persons' rows that do not count;
    ``all_rows``: for persons' reach.
    """

    read: Reads
    sizes: Integers | None = None
    dropped: int = 0
    all_rows: EntryRows | None = None

    def numbered(self, numbers: Integers) -> Part:
        rows = self.all_rows
        return self._replace(
            read=lambda: (each._replace(codes=numbers[each.codes]) for each in self.read()),
            all_rows=None if rows is None else rows._replace(codes=numbers[rows.codes]),
        )


def read_rows(
    source: Source,
    plan: TablePlan,
    keys: Keys,
    see_times: Callable[[Integers], None] | None = None,
    persons: Entries | None = None,
) -> Iterator[BatchRows]:
    """Rows that may count, by batch; ``keys`` and ``persons`` number them."""
    begin = 0
    for batch in source.batches():
        size, present = batch.num_rows, None
        codes = keys.codes([batch.column(name) for name in plan.by], size)
        times: Integers = np.zeros(size, np.int64)
        if plan.time is not None and plan.calendar is not None:
            times, present = times_of(batch.column(plan.time.column), plan.calendar.zone, plan.time)
        who = None
        if plan.who is not None and persons is not None:
            who, named = persons.of(batch.column(plan.who))
            if named is not None:
                present = named if present is None else present & named
        if present is not None and not present.all() and (plan.time is None or plan.time.missing == "raise"):
            many = f"{np.count_nonzero(~present):,} of the {size:,} rows read with it"
            row = f"row {begin + int(np.argmin(present))} has no time or no person ({many})"
            raise DataError(f"{row}; expected both in every row ({argument('Time', missing='drop')} drops such rows)")
        begin += size
        if see_times is not None:
            see_times(times if present is None else times[present])
        windows = times if plan.calendar is None else plan.calendar.numbers(times)
        listed = [
            np.zeros(size) if plan.is_person(column.name) else column_values(batch.column(column.name), column)
            for column in plan.columns
        ]
        values = np.empty((0, size))
        if listed:
            values = np.stack(listed) if len(listed) > 1 else listed[0][None]
        if (valued := plan.with_values(values)) is not None:
            present = valued if present is None else present & valued
        if who is not None:
            counted = (codes >= 0) & plan.has(windows)
            present = counted if present is None else present & counted
        if present is not None and not present.all():
            windows, times, codes, values = windows[present], times[present], codes[present], values[:, present]
            who = None if who is None else who[present]
        yield BatchRows(CellRows(windows, codes, values), times, who)


def column_values(column: pa.Array, plan: ColumnPlan) -> Floats:
    """Values of a column, or 52 bits of entries."""
    if plan.entries:
        digests, present = digests_of(column)
        numbers = (digests[:, 0] & (2**52 - 1)).astype(np.float64)
        return numbers if present is None else np.where(present, numbers, MISSING_ENTRY)
    return finite_values(floats_of(column), plan)


def finite_values(values: Floats, plan: ColumnPlan) -> Floats:
    """Values, 0 for non-finite ones that count so."""
    return np.where(np.isfinite(values), values, 0.0) if plan.nonfinite == "zero" else values


def no_rows() -> DataError:
    """The error about a table without rows."""
    wanted = argument("Time", start=..., stop=...)
    return DataError(f"frame has no rows: expected {wanted}, because it has no first and last window")


def check_finite(values: Floats) -> None:
    """DataError for values that are not finite."""
    if not np.isfinite(values).all():
        raise not_finite()


class PersonRows:
    """Collects persons' rows, about 40 bytes each, and selects some."""

    def __init__(self, plan: TablePlan, hashing: bytes, rows: int | None = None) -> None:
        self._plan, size = plan, rows or 0
        self._hashing = np.frombuffer(hashing, np.uint64)[:2]
        self.persons, self._periods = Entries("", persons=True), Numbers()
        self._groups, self._hashes = Growing(np.int64, size), Growing(np.uint64, size)
        self._windows, self._codes = Growing(np.int64, size), Growing(np.int64, size)
        self._values = [Growing(np.float64, size) for _ in plan.columns]

    def add(self, batch: BatchRows, words: Integers) -> None:
        (windows, codes, values), times, persons = batch
        assert persons is not None  # noqa: S101 - the plan names their column
        if not persons.size:
            return
        # Not of the rows that count alone, which the secret chooses.
        check_finite(values)
        groups, digests = persons, self.persons.digests.pairs.take(persons, axis=0)
        if self._plan.periods is not None:
            groups = self._periods.of(persons, self._plan.periods.numbers(times))
        hashes = person_rows.hash_rows(self._hashing, digests, times, words, np.ascontiguousarray(values))
        columns = self._groups, self._hashes, self._windows, self._codes, *self._values
        for column, part in zip(columns, (groups, hashes, windows, codes, *values), strict=True):
            column.add(part)

    @property
    def _size(self) -> int:
        return self.persons.digests.size if self._plan.periods is None else self._periods.size

    def totals(self) -> Integers:
        found: Integers = np.bincount(self._groups.array, minlength=self._size)
        return found

    def sum_key_weights(self, words: Integers, rule: KeyRule, key: Key) -> Integers:
        """Sum of persons' weights by key, int64[K]; dropped rows count too.

        ``words``: 64 bits of each key, int64[K].
        """
        persons, periods = np.arange(self.persons.digests.size), np.zeros(self._size, np.int64)
        if self._plan.periods is not None:
            persons, periods = (np.ascontiguousarray(each) for each in self._periods.pairs.T)
        groups, codes = self._groups.array, self._codes.array
        secret = np.frombuffer(key.derive("keys").reveal(), np.uint64)[:2]
        sums: Integers = np.zeros(words.size, np.int64)
        table, named = key_weights(rule.distribution, rule.most), self.persons.digests.pairs[persons]
        _, keys, weights = weigh(groups, codes, named, periods, words, table, secret)
        np.add.at(sums, keys, weights)
        return sums

    def part(self, plan: TablePlan, words: Integers) -> Part:
        """Rows that count, and those for reach; ``words``: of keys."""
        return self.kept(plan, words)._replace(all_rows=self._all_rows(plan, words))

    def kept(self, plan: TablePlan, words: Integers) -> Part:
        columns = self._groups, self._hashes, self._windows, self._codes
        groups, hashes, windows, codes = (each.array for each in columns)
        first, spans = (int(windows.min()), int(np.ptp(windows)) + 1) if windows.size else (0, 0)
        given = first, spans, plan.contributions, plan.per_window or 0, self._size
        if plan.unit.keys is None:
            flags = person_rows.least_rows(self._hashing, groups, hashes, windows, *given)
        else:
            flags = self._in_few_keys(plan.unit.keys, words)
            of_keys = groups[flags], hashes[flags], windows[flags]
            flags[np.flatnonzero(flags)] = person_rows.least_rows(self._hashing, *of_keys, *given)
        values = np.empty((len(self._values), np.count_nonzero(flags)))
        for into, column in zip(values, self._values, strict=True):
            into[:] = column.array[flags]
        dropped = dropped_rows(groups, flags, self._size, plan.contributions)
        rows, own = CellRows(windows[flags], codes[flags], values), groups[flags]
        return Part(lambda: iter((rows,)), np.bincount(own)[own], dropped)

    def _in_few_keys(self, most: int, words: Integers) -> Flags:
        """Rows in their person's (and period's) `most` keys of least hash."""
        groups, codes = self._groups.array, self._codes.array
        _, first, which = np.unique(groups * words.size + codes, return_index=True, return_inverse=True)
        own = groups[first]
        persons = own if self._plan.periods is None else self._periods.pairs[:, 0].take(own)
        hashes = hash_keys(self._hashing, self.persons.digests.pairs.take(persons, axis=0), words[codes[first]])
        kept: Flags = person_rows.least_rows(
            self._hashing, own, hashes, np.zeros_like(own), 0, 0, most, 0, self._size
        )
        return kept[which]

    def _all_rows(self, plan: TablePlan, words: Integers) -> EntryRows | None:
        if not any(each.kind == "reach" for each in plan.statistics):
            return None
        persons, codes = self._groups.array, self._codes.array
        if plan.periods is not None:
            persons = self._periods.pairs[:, 0].take(persons)
        hashes = np.zeros(codes.size, np.uint64)
        if not plan.all_keys:
            hashes = hash_keys(self._hashing, self.persons.digests.pairs.take(persons, axis=0), words[codes])
        return EntryRows(persons, self._windows.array, codes, hashes)


def dropped_rows(groups: Integers, kept: Flags, size: int, contributions: int) -> int:
    """Dropped rows, at most 4 k of each person and period."""
    dropped = np.bincount(groups, ~kept, minlength=size)
    return int(np.minimum(dropped, MOST_DROPPED * contributions).sum())


def hashing_of(key: Key) -> bytes:
    """128 bits under which rows of persons are chosen."""
    return key.derive("rows").reveal()[:16]


def hash_keys(hashing: Words, persons: Integers, words: Integers) -> Words:
    """Hash of a person and key, uint64[n], for order within windows."""
    none = np.zeros_like(words), np.ascontiguousarray(words), np.empty((0, words.size))
    found: Words = person_rows.hash_rows(hashing, persons, none[0], none[1], none[2])
    return found


def read_persons(
    source: Source, plan: TablePlan, keys: Keys, hashing: bytes, see_times: Callable[[Integers], None] | None = None
) -> PersonRows:
    """Rows of persons, chosen by :func:`hashing_of` a key."""
    found = PersonRows(plan, hashing, source.rows)
    for batch in read_rows(source, plan, keys, see_times, found.persons):
        found.add(batch, keys.words()[batch.rows.codes])
    return found


class HeldRows:
    """Rows that are read again, from memory if they fit."""

    def __init__(self, once: Reads) -> None:
        self.once, self._held = once, list[CellRows]()

    def again(self) -> Iterator[CellRows]:
        if self._held:
            yield from self._held
            return
        held, size = list[CellRows](), 0
        for rows in self.once():
            size += sum(part.nbytes for part in rows)
            if size <= MOST_HELD:
                held.append(rows)
            yield rows
        self._held = held if size <= MOST_HELD else []


class Ends:
    """First and last window, given or of the rows."""

    def __init__(self, plan: TablePlan) -> None:
        self._plan = plan
        self._ends: list[int] = []

    def see(self, times: Integers) -> None:
        if times.size:
            both = [*self._ends, int(times.min()), int(times.max())]
            self._ends = [min(both), max(both)]

    def found(self) -> tuple[int, int]:
        plan, calendar = self._plan, self._plan.calendar
        if calendar is None or (plan.start is not None and plan.stop is not None):
            return plan.start or 0, plan.stop or 0
        if not self._ends:
            raise no_rows()
        first = calendar.number(self._ends[0]) if plan.start is None else plan.start
        last = calendar.number(self._ends[1]) + 1 if plan.stop is None else plan.stop
        return first, max(first, last)
