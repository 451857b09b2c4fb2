"""Batches of a table as the rows that count, and their exact sums by window and key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp.data.source import Source
from fastdp.errors import DataError
from fastdp.tables.columns import KeyTable, floats_of, times_of
from fastdp.tables.names import digests_of
from fastdp.tables.plan import TablePlan
from fastdp.tables.quantity import Quantity

Integers = NDArray[np.int64]
#: What rows without a time or person do.
Missing = Literal["raise", "drop"]
NOT_FINITE = (
    "value: a row that counts has none, or one that is not a finite number; expected finite values (nonfinite='zero' "
    "makes them count as 0)"
)


class Rows(NamedTuple):
    """The rows of a batch that may count; with persons only such.

    Attributes
    ----------
    windows, times : int64[n]
        Numbers of windows, and instants.
    codes : int[n]
        Keys, where they are given.
    values : float64[n or 0]
        What is summed, if anything is.
    keys : list of Arrow arrays
        The key columns.
    persons : int64[n, 2] or None
        Digests.
    """

    windows: Integers
    times: Integers
    codes: NDArray[Any]
    values: NDArray[np.float64]
    keys: list[Any]
    persons: Integers | None


class Reader(NamedTuple):
    """How the columns of a table are read; all of it is public.

    Attributes
    ----------
    time, value : str, str or None
        Columns.
    missing : "raise" or "drop"
        What rows without a time or person do.
    """

    time: str
    value: str | None
    missing: Missing

    def rows(
        self,
        source: Source,
        plan: TablePlan,
        see_times: Callable[[Integers], None] | None = None,
        see_keys: Callable[[list[Any]], None] | None = None,
        table: KeyTable | None = None,
    ) -> Iterator[Rows]:
        """Batch by batch the rows that may count, in both readings the same ones.

        ``see_keys`` gets the key columns of all rows.  Rows without a time or person are dropped or refused; with
        persons, those outside [start, stop) and with unknown keys are dropped too (how many count is known later).
        """
        if table is None:
            table = KeyTable(plan.by, plan.keys) if plan.key_rule == "given" else None
        begin = 0
        for batch in source.batches():
            if see_keys is not None:
                see_keys([batch.column(name) for name in plan.by])
            times, present = times_of(batch.column(self.time), plan.calendar.zone)
            digests = None
            if plan.who is not None:
                digests, named = digests_of(batch.column(plan.who))
                present = named if present is None else present if named is None else present & named
            if present is not None:
                if self.missing == "raise" and not present.all():
                    raise DataError(
                        f"row {begin + int(np.argmin(present))} has no time or no person "
                        f"({np.count_nonzero(~present):,} of the {len(times):,} rows read with it); expected both in "
                        "every row (missing='drop' drops such rows)"
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
            values = np.empty(0) if self.value is None else floats_of(batch.column(self.value))
            if self.value is not None and plan.nonfinite == "zero":
                values = np.where(np.isfinite(values), values, 0.0)
            yield Rows(windows, times, codes, values, by, digests)

    def sums(
        self, source: Source, plan: TablePlan, quantities: Sequence[Quantity], table: KeyTable
    ) -> list[Integers]:
        """The exact sums of every window and key of a settled plan without persons: int64[W, K] for each quantity."""
        rows = self.rows(source, plan, table=table)
        return exact_sums(((each.windows, each.codes, each.values) for each in rows), plan, quantities, table.size)


def exact_sums(
    parts: Iterable[tuple[Integers, NDArray[Any], NDArray[np.float64]]],
    plan: TablePlan,
    quantities: Sequence[Quantity],
    keys: int,
) -> list[Integers]:
    """The exact sums of rows (windows, keys, values) of a settled plan: int64[W, keys] for each quantity."""
    first, last = plan.start or 0, plan.stop or 0
    sums = [np.zeros((last - first, keys), np.int64) for _ in quantities]
    for rows in parts:
        for quantity, into in zip(quantities, sums, strict=True):
            if quantity.add(rows, first, into) >= 0:
                raise DataError(NOT_FINITE)
    return sums


def mask_of(flags: NDArray[np.bool_]) -> Any:
    """For a filter of Arrow."""
    import pyarrow

    return pyarrow.array(flags)
