"""A table, read once or twice, to noisy sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp.arrays.source import Source
from fastdp.errors import AccuracyWarning, DataError, warn
from fastdp.randomness.key import Key
from fastdp.tables import persons
from fastdp.tables.choices import choose_clip, choose_keys, clip_counter, count_rows, noisy_counts
from fastdp.tables.columns import (
    KeyRow,
    KeyTable,
    count_keys,
    digests_of,
    floats_of,
    sorted_keys,
    times_of,
)
from fastdp.tables.plan import TablePlan, key_digest
from fastdp.tables.sums import NoisySums, WindowSums

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


def start_key(key: Key, first: int, keys: list[KeyRow]) -> Key:
    """The key of the sums' noise: that of these windows' beginning and these keys."""
    return key.within("table", first, key_digest(keys))


@dataclass(frozen=True)
class TableRelease:
    """One release: plan, table, key.  A ledger reads guarantee, fingerprint and parameters from it.

    Attributes
    ----------
    plan : TablePlan
        Public parameters.
    source : Source
        The table.
    time, value : str, str or None
        Columns.
    missing : "raise" or "drop"
        What rows without a time or person do.
    key : Key
        Of this composition.
    """

    plan: TablePlan
    source: Source
    time: str
    value: str | None
    missing: Missing
    key: Key

    @property
    def guarantee(self) -> Any:
        """What the release promises."""
        return self.plan.guarantee(simulated=self.key.simulated)

    @property
    def noise_fingerprint(self) -> str | None:
        """As of a publisher."""
        return None if self.key.simulated else self.key.fingerprint()

    def run(self) -> WindowSums:
        """Read the table and release it."""
        plan = self.plan
        known = plan.start is not None and plan.stop is not None and plan.key_rule in ("none", "given")
        self.check_rows()
        if known and not plan.chooses_clip:
            return self._release(plan.settled(plan.start or 0, plan.stop or 0, max(1, len(plan.keys))), self.source)
        source = self.source.twice()
        survey = _Survey(plan)
        for rows in self._rows(source, plan, survey.see_times):
            survey.add(rows)
        return self._release(survey.settle(self.key), source, survey)

    def check_rows(self) -> None:
        """An empty table has no first and last window; how many rows are there is known without reading them."""
        if self.source.rows == 0 and (self.plan.start is None or self.plan.stop is None):
            raise DataError("frame has no rows: expected start= and stop=, because it has no first and last window")

    def _release(self, plan: TablePlan, source: Source, survey: _Survey | None = None) -> WindowSums:
        keys = list(plan.keys) if survey is None or survey.keys is None else survey.keys
        first, last = plan.start or 0, plan.stop or 0
        clip = None
        if survey is not None and survey.histogram is not None:
            plan = replace(plan, rows=count_rows(plan, survey.histogram.counts, self.key))
            clip = choose_clip(plan, survey.histogram.counts, self.key)
        quantities = plan.quantities(clip)
        width = len(keys) if plan.by else 1
        sums = [np.zeros((last - first, width), np.int64) for _ in quantities]
        table = KeyTable(plan.by, keys)
        found = [persons.no_counts()]
        for rows in self._rows(source, plan, table=table, counts=found):
            for quantity, into in zip(quantities, sums, strict=True):
                if quantity.add((rows.windows, rows.codes, rows.values), first, into) >= 0:
                    raise DataError(NOT_FINITE)
        own = start_key(self.key, first, keys)
        columns: dict[str, NoisySums] = {}
        for quantity, exact in zip(quantities, sums, strict=True):
            columns[quantity.name], _ = quantity.release(exact, self.key, quantity.start_chain(own), 0)
        return WindowSums(
            kind=plan.kind,
            edges=plan.calendar.edges(first, last),
            time_zone=plan.calendar.time_zone,
            every=plan.calendar.every,
            keys=table.columns,
            columns=columns,
            clip=plan.clip_of(quantities),
            guarantee=plan.guarantee(simulated=self.key.simulated),
            family=self.source.family,
            centre=quantities[0].centre * plan.step if plan.kind == "means" else 0.0,
            kept_persons=self._report_persons(plan, found[0]) if plan.reports_persons else None,
        )

    def _report_persons(self, plan: TablePlan, counts: Integers) -> float:
        """The released share of persons all of whose rows count; a warning where most had rows dropped."""
        whole, cut = persons.whole_and_cut(counts)
        noisy = noisy_counts([whole, cut], 1, plan.person_epsilon, self.key, "persons").tolist()
        kept, lost = (max(0, count) for count in noisy)
        # Below some noise scales nothing is known.
        if lost > kept and kept + lost > 8.0 / plan.person_epsilon:
            warn(
                f"contributions = {plan.contributions}: an estimated {lost / (kept + lost):.0%} of the persons have "
                "more rows, which are dropped, so that sums are far too low; expected a larger contributions=, or a "
                "period=",
                AccuracyWarning,
            )
        return kept / (kept + lost) if kept + lost else 1.0

    # Reading.

    def _rows(
        self,
        source: Source,
        plan: TablePlan,
        see_times: Callable[[Integers], None] | None = None,
        table: KeyTable | None = None,
        counts: list[Integers] | None = None,
    ) -> Iterator[Rows]:
        """Batch by batch the rows that count, in both readings the same ones.

        Rows without a time or person are dropped or refused; those outside [start, stop) and with unknown keys are
        dropped; of what is left, a person's rows beyond the bounds.
        """
        if table is None:
            table = KeyTable(plan.by, plan.keys) if plan.key_rule == "given" else None
        counts = [persons.no_counts()] if counts is None else counts
        begin = 0
        for batch in source.batches():
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
                batch, times = batch.filter(_mask(present)), times[present]
                digests = None if digests is None else digests[present]
            begin += batch.num_rows
            if see_times is not None:
                see_times(times)
            windows = plan.calendar.numbers(times)
            by = [batch.column(name) for name in plan.by]
            codes = table.codes(by) if table is not None and plan.by else np.zeros(len(times), np.int32)
            if digests is not None:
                counted = codes >= 0
                if plan.start is not None:
                    counted &= windows >= plan.start
                if plan.stop is not None:
                    counted &= windows < plan.stop
                batch, times = batch.filter(_mask(counted)), times[counted]
                windows, codes = windows[counted], codes[counted]
                periods = np.zeros(len(times), np.int64) if plan.periods is None else plan.periods.numbers(times)
                kept, counts[0] = persons.bound_rows(
                    counts[0], digests[counted], periods, windows, plan.contributions, plan.per_window
                )
                batch, windows, codes = batch.filter(_mask(kept)), windows[kept], codes[kept]
                by = [batch.column(name) for name in plan.by]
            values = np.empty(0) if self.value is None else floats_of(batch.column(self.value))
            if self.value is not None and plan.nonfinite == "zero":
                values = np.where(np.isfinite(values), values, 0.0)
            yield Rows(windows, codes, values, by)


def _mask(flags: NDArray[np.bool_]) -> Any:
    import pyarrow

    return pyarrow.array(flags)


class _Survey:
    """What the first reading collects: ends of the time, keys, a histogram of values."""

    def __init__(self, plan: TablePlan) -> None:
        self.plan = plan
        self.histogram = clip_counter(plan) if plan.chooses_clip else None
        self.keys: list[KeyRow] | None = None
        self._counts: dict[KeyRow, int] = {}
        self._ends: list[int] = []

    def see_times(self, times: Integers) -> None:
        """Extend the span of time."""
        if times.size:
            both = [*self._ends, int(times.min()), int(times.max())]
            self._ends = [min(both), max(both)]

    def add(self, rows: Rows) -> None:
        """Count what the release depends on."""
        plan = self.plan
        counted = rows.codes >= 0
        if plan.start is not None:
            counted &= rows.windows >= plan.start
        if plan.stop is not None:
            counted &= rows.windows < plan.stop
        if plan.key_rule in ("public", "private"):
            columns = rows.keys if counted.all() else [column.filter(_mask(counted)) for column in rows.keys]
            for key, count in count_keys(columns).items():
                self._counts[key] = self._counts.get(key, 0) + count
        if self.histogram is not None:
            values = rows.values if counted.all() else rows.values[counted]
            if not np.isfinite(values).all():
                raise DataError(NOT_FINITE)
            self.histogram.observe(values)

    def settle(self, key: Key) -> TablePlan:
        """The plan with windows and keys that are known now."""
        plan = self.plan
        if not self._ends and (plan.start is None or plan.stop is None):
            raise DataError("frame has no rows: expected start= and stop=, because it has no first and last window")
        first = plan.calendar.number(self._ends[0]) if plan.start is None else plan.start
        last = plan.calendar.number(self._ends[1]) + 1 if plan.stop is None else plan.stop
        if plan.key_rule == "public":
            self.keys = sorted_keys(self._counts)
        elif plan.key_rule == "private":
            self.keys = choose_keys(plan, self._counts, key)
        width = len(plan.keys if self.keys is None else self.keys) if plan.by else 1
        return plan.settled(first, max(first, last), width)
