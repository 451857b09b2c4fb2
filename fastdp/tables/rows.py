"""Batches of a table as the rows that count, and their exact sums by window and key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp.arrays.source import Source
from fastdp.errors import DataError
from fastdp.tables import persons
from fastdp.tables.columns import KeyTable, digests_of, floats_of, times_of
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
    """The rows of a batch that count, so far as is known."""

    windows: Integers
    codes: NDArray[Any]
    values: NDArray[np.float64]
    keys: list[Any]


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
        counts: list[Integers] | None = None,
    ) -> Iterator[Rows]:
        """Batch by batch the rows that count, in both readings the same ones.

        ``see_keys`` gets the key columns of all rows.  Rows without a time or person are dropped or refused; those
        outside [start, stop) and with unknown keys are dropped; of what is left, a person's rows beyond the bounds.
        """
        if table is None:
            table = KeyTable(plan.by, plan.keys) if plan.key_rule == "given" else None
        counts = [persons.no_counts()] if counts is None else counts
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
            if digests is not None:
                counted = (codes >= 0) & plan.has(windows)
                batch, times = batch.filter(mask_of(counted)), times[counted]
                windows, codes = windows[counted], codes[counted]
                periods = np.zeros(len(times), np.int64) if plan.periods is None else plan.periods.numbers(times)
                kept, counts[0] = persons.bound_rows(
                    counts[0], digests[counted], periods, windows, plan.contributions, plan.per_window
                )
                batch, windows, codes = batch.filter(mask_of(kept)), windows[kept], codes[kept]
                by = [batch.column(name) for name in plan.by]
            values = np.empty(0) if self.value is None else floats_of(batch.column(self.value))
            if self.value is not None and plan.nonfinite == "zero":
                values = np.where(np.isfinite(values), values, 0.0)
            yield Rows(windows, codes, values, by)

    def sums(
        self,
        source: Source,
        plan: TablePlan,
        quantities: Sequence[Quantity],
        table: KeyTable,
        counts: list[Integers] | None = None,
    ) -> list[Integers]:
        """The exact sums of every window and key of a settled plan: int64[W, K] for each quantity."""
        first, last = plan.start or 0, plan.stop or 0
        sums = [np.zeros((last - first, table.size), np.int64) for _ in quantities]
        for rows in self.rows(source, plan, table=table, counts=counts):
            for quantity, into in zip(quantities, sums, strict=True):
                if quantity.add((rows.windows, rows.codes, rows.values), first, into) >= 0:
                    raise DataError(NOT_FINITE)
        return sums


def mask_of(flags: NDArray[np.bool_]) -> Any:
    """For a filter of Arrow."""
    import pyarrow

    return pyarrow.array(flags)
