"""A table, read once or twice, to noisy sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.arrays.source import Source
from fastdp.errors import AccuracyWarning, DataError, ParameterError, warn
from fastdp.randomness.key import Key
from fastdp.tables import persons
from fastdp.tables.choices import choose_clip, choose_keys, clip_counter, count_rows, noisy_counts
from fastdp.tables.columns import KeyRow, KeyTable, count_keys, sorted_keys
from fastdp.tables.plan import TablePlan, key_digest
from fastdp.tables.rows import NOT_FINITE, Reader, Rows, mask_of
from fastdp.tables.sums import NoisySums, WindowSums

Integers = NDArray[np.int64]
NO_ROWS = "frame has no rows: expected start= and stop=, because it has no first and last window"


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
    reader : Reader
        How its columns are read.
    key : Key
        Of this composition.
    """

    plan: TablePlan
    source: Source
    reader: Reader
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
        if self._is_settled():
            return self._release(plan.settled(plan.start or 0, plan.stop or 0, max(1, len(plan.keys))), self.source)
        source = self.source.twice()
        survey = _Survey(plan)
        # Before anything is dropped: which rows count follows from secrets, such as the rest of a person's rows.
        see_keys = survey.see_keys if plan.key_rule == "public" else None
        for rows in self.reader.rows(source, plan, survey.see_times, see_keys):
            survey.add(rows)
        return self._release(survey.settle(self.key), source, survey)

    def _is_settled(self) -> bool:
        """Whether windows, keys and clip are public parameters, so that one reading is enough."""
        plan = self.plan
        ends = plan.start is not None and plan.stop is not None
        return ends and plan.key_rule in ("none", "given") and not plan.chooses_clip

    def check(self) -> None:
        """What is known without reading a row: an engine adds, and nothing else; an empty table has no windows."""
        if self.source.add is not None and not (self._is_settled() and self.plan.who is None):
            raise ParameterError(
                "expected start=, stop=, keys= where there is by=, clip= (or two bounds), and no who=: on an engine "
                "windows, keys and the clip are public"
            )
        if self.source.rows == 0 and (self.plan.start is None or self.plan.stop is None):
            raise DataError(NO_ROWS)

    def _release(self, plan: TablePlan, source: Source, survey: _Survey | None = None) -> WindowSums:
        keys = list(plan.keys) if survey is None or survey.keys is None else survey.keys
        first, last = plan.start or 0, plan.stop or 0
        clip = None
        if survey is not None and survey.histogram is not None:
            plan = replace(plan, rows=count_rows(plan, survey.histogram.counts, self.key))
            clip = choose_clip(plan, survey.histogram.counts, self.key)
        quantities = plan.quantities(clip)
        table = KeyTable(plan.by, keys)
        found = [persons.no_counts()]
        if source.add is None:
            sums = self.reader.sums(source, plan, quantities, table, found)
        else:
            sums = source.add(plan, quantities, self.reader)
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

    def see_keys(self, columns: list[Any]) -> None:
        """Count the rows of each key."""
        for key, count in count_keys(columns).items():
            self._counts[key] = self._counts.get(key, 0) + count

    def add(self, rows: Rows) -> None:
        """Count what the release depends on."""
        plan = self.plan
        counted = (rows.codes >= 0) & plan.has(rows.windows)
        if plan.key_rule == "private":
            self.see_keys(rows.keys if counted.all() else [column.filter(mask_of(counted)) for column in rows.keys])
        if self.histogram is not None:
            values = rows.values if counted.all() else rows.values[counted]
            if not np.isfinite(values).all():
                raise DataError(NOT_FINITE)
            self.histogram.observe(values)

    def settle(self, key: Key) -> TablePlan:
        """The plan with windows and keys that are known now."""
        plan = self.plan
        if not self._ends and (plan.start is None or plan.stop is None):
            raise DataError(NO_ROWS)
        first = plan.calendar.number(self._ends[0]) if plan.start is None else plan.start
        last = plan.calendar.number(self._ends[1]) + 1 if plan.stop is None else plan.stop
        if plan.key_rule == "public":
            self.keys = sorted_keys(self._counts)
        elif plan.key_rule == "private":
            self.keys = choose_keys(plan, self._counts, key)
        width = len(plan.keys if self.keys is None else self.keys) if plan.by else 1
        return plan.settled(first, max(first, last), width)
