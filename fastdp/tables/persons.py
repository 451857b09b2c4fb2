"""Bound on the rows of a person: those with the least keyed hashes count.

A row's hash covers its person, instant, key, value, and its number among the person's equal rows.  So the choice
follows from this person's rows and the secret alone: adding or removing all rows of one person in one period leaves
every other row's choice unchanged, and order and batches have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp.data.source import Source
from fastdp.errors import DataError
from fastdp.kinds import Array, Flags, Floats, Integers
from fastdp.noise.key import Key
from fastdp.tables.columns import KeyTable, digests_of, floats_of, times_of
from fastdp.tables.plan import TablePlan
from fastdp.tables.sums import Quantity
from fastdp_kernels.tables import person_rows

if TYPE_CHECKING:
    import pyarrow as pa

Words = NDArray[np.uint64]
#: A hash table has at least so many slots, and at most three pairs for four slots.
MIN_SLOTS = 1024


class Kept(NamedTuple):
    """Windows, keys and values (if any) of rows that count; numbers of persons without and with dropped rows."""

    windows: Integers
    codes: Integers
    values: Floats
    whole: int
    cut: int


class Numbers:
    """A hash table that numbers pairs of integers in order of arrival.

    Its key is secret, so that no user can choose persons that collide.
    """

    def __init__(self, key: Words) -> None:
        self._key = key
        self._slots: Integers = np.full(MIN_SLOTS, -1, np.int64)
        self._pairs: Integers = np.empty((MIN_SLOTS, 2), np.int64)
        self.size = 0

    def of(self, first: Integers, second: Integers) -> Integers:
        """Number of each pair (`first`, `second`): int64[n]."""
        needed = self.size + first.size
        if 4 * needed > 3 * self._slots.size:
            slots = 1 << (2 * needed - 1).bit_length()
            pairs: Integers = np.empty((slots, 2), np.int64)
            pairs[: self.size] = self._pairs[: self.size]
            self._pairs, self._slots = pairs, np.full(slots, -1, np.int64)
            person_rows.place_pairs(self._key, pairs, self.size, self._slots)
        found, self.size = person_rows.number_pairs(self._key, first, second, self._slots, self._pairs, self.size)
        return found


class PersonRows:
    """Collects rows of persons and, after the last one, selects those that count.

    It holds about 40 bytes for each row: equal rows can be numbered only when all have arrived.
    """

    def __init__(self, plan: TablePlan, key: Key) -> None:
        self._plan = plan
        secret = np.frombuffer(key.derive("rows").reveal(), np.uint64)
        self._hashing = secret[:2]
        self._persons, self._periods = Numbers(secret[2:]), Numbers(secret[2:])
        kinds = np.int64, np.uint64, np.int64, np.int64, np.float64
        self._columns: list[list[Array]] = [[np.empty(0, kind)] for kind in kinds]

    def add(
        self,
        persons: Integers,
        times: Integers,
        windows: Integers,
        codes: Integers,
        words: Integers,
        values: Floats,
    ) -> None:
        """Add rows: digests, instants, windows, keys, the keys' words in the hash, values (empty for counts)."""
        groups = self._persons.of(np.ascontiguousarray(persons[:, 0]), np.ascontiguousarray(persons[:, 1]))
        if self._plan.periods is not None:
            groups = self._periods.of(groups, self._plan.periods.numbers(times))
        hashes = person_rows.hash_rows(self._hashing, persons, times, words, values)
        for column, part in zip(self._columns, (groups, hashes, windows, codes, values), strict=True):
            column.append(part)

    def kept(self) -> Kept:
        """The rows that count of each person and period; the collected rows are released from memory."""
        groups, hashes, windows, codes, values = (_taken(column) for column in self._columns)
        plan = self._plan
        size = self._persons.size if plan.periods is None else self._periods.size
        first, spans = (int(windows.min()), int(np.ptp(windows)) + 1) if windows.size else (0, 0)
        flags, cut = person_rows.least_rows(
            self._hashing, groups, hashes, windows, first, spans, plan.contributions, plan.per_window or 0, size
        )
        values = values[flags] if values.size else values
        return Kept(windows[flags], codes[flags], values, size - cut, cut)


def _taken(column: list[Array]) -> Array:
    """All chunks as one array; the list is emptied."""
    whole = np.concatenate(column)
    column.clear()
    return whole


# Batches of a table as the rows that count, and their exact sums by window and key.

NOT_FINITE = (
    "value: a row that counts has none, or one that is not a finite number; expected finite values "
    "(Value(nonfinite='zero') makes them count as 0)"
)


class BatchRows(NamedTuple):
    """Rows of a batch that may count; codes if keys are given, digests if there are persons."""

    windows: Integers
    times: Integers
    codes: Array
    values: Floats
    keys: list[pa.Array]
    persons: Integers | None


def read_rows(
    source: Source,
    plan: TablePlan,
    see_times: Callable[[Integers], None] | None = None,
    see_keys: Callable[[list[pa.Array]], None] | None = None,
    table: KeyTable | None = None,
) -> Iterator[BatchRows]:
    """Rows that may count, batch by batch; the same ones in each reading.

    ``see_keys`` gets the key columns of all rows.  Rows without a time or person are dropped or refused; with
    persons, those outside [start, stop) and with unknown keys are dropped too.
    """
    if table is None:
        table = KeyTable(plan.by, plan.keys) if plan.key_rule == "given" else None
    begin = 0
    for batch in source.batches():
        if see_keys is not None:
            see_keys([batch.column(name) for name in plan.by])
        times, present = times_of(batch.column(plan.time.column), plan.calendar.zone)
        digests = None
        if plan.who is not None:
            digests, named = digests_of(batch.column(plan.who))
            present = named if present is None else present if named is None else present & named
        if present is not None:
            if plan.time.missing == "raise" and not present.all():
                raise DataError(
                    f"row {begin + int(np.argmin(present))} has no time or no person "
                    f"({np.count_nonzero(~present):,} of the {len(times):,} rows read with it); expected both in "
                    "every row (Time(missing='drop') drops such rows)"
                )
            batch, times = batch.filter(mask_of(present)), times[present]
            digests = None if digests is None else digests[present]
        begin += batch.num_rows
        if see_times is not None:
            see_times(times)
        windows = plan.calendar.numbers(times)
        by = [batch.column(name) for name in plan.by]
        codes = table.codes(by) if table is not None and plan.by else np.zeros(len(times), np.int32)
        if digests is not None and not (counted := (codes >= 0) & plan.has(windows)).all():
            batch, times, digests = batch.filter(mask_of(counted)), times[counted], digests[counted]
            windows, codes = windows[counted], codes[counted]
            by = [batch.column(name) for name in plan.by]
        values = np.empty(0) if plan.value is None else floats_of(batch.column(plan.value.column))
        if plan.nonfinite == "zero":
            values = np.where(np.isfinite(values), values, 0.0)
        yield BatchRows(windows, times, codes, values, by, digests)


def table_sums(source: Source, plan: TablePlan, quantities: Sequence[Quantity], table: KeyTable) -> list[Integers]:
    """Exact sums of every window and key for a plan without persons: int64[W, K] for each quantity."""
    rows = read_rows(source, plan, table=table)
    return exact_sums(((each.windows, each.codes, each.values) for each in rows), plan, quantities, table.size)


def exact_sums(
    parts: Iterable[tuple[Integers, Array, Floats]],
    plan: TablePlan,
    quantities: Sequence[Quantity],
    keys: int,
) -> list[Integers]:
    """Exact sums of rows (windows, keys, values): int64[W, keys] for each quantity; DataError for NaN or infinity."""
    first, last = plan.start or 0, plan.stop or 0
    sums = [np.zeros((last - first, keys), np.int64) for _ in quantities]
    for rows in parts:
        for quantity, into in zip(quantities, sums, strict=True):
            if quantity.add(rows, first, into) >= 0:
                raise DataError(NOT_FINITE)
    return sums


def mask_of(flags: Flags) -> pa.BooleanArray:
    """`flags` as an Arrow boolean array, for ``filter``."""
    import pyarrow

    return pyarrow.array(flags)
