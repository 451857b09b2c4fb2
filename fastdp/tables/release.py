"""A table, read once or twice, to noisy sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastdp.data.source import Source
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Integers
from fastdp.noise.key import Key
from fastdp.tables import choices
from fastdp.tables.choices import choose_clip, choose_keys, clip_counter, count_rows
from fastdp.tables.columns import KeyNumbers, KeyRow, KeyTable, count_keys, sorted_keys
from fastdp.tables.persons import NOT_FINITE, Kept, PersonRows, Reader, Rows, exact_sums, mask_of
from fastdp.tables.plan import TablePlan
from fastdp.tables.sums import WindowSums, release

NO_ROWS = "frame has no rows: expected start= and stop=, because it has no first and last window"


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
        if plan.who is not None:
            return self._release_persons()
        if self._is_settled():
            return self._release(plan.settled(plan.start or 0, plan.stop or 0, max(1, len(plan.keys))), self.source)
        source = self.source.twice()
        survey = _Survey(plan)
        # Before anything is dropped: which rows count follows from secrets, such as the rest of a person's rows.
        see_keys = survey.see_keys if plan.key_rule == "public" else None
        for rows in self.reader.rows(source, plan, survey.see_times, see_keys):
            survey.add(rows)
        return self._release(survey.settle(self.key), source, survey)

    def _release_persons(self) -> WindowSums:
        """Read the table once, bound each person's rows, and release sums of those that count."""
        plan, survey = self.plan, _Survey(self.plan)
        keys = KeyNumbers(plan.by, plan.keys if plan.by else [()])
        found = PersonRows(plan, self.key)
        see_keys = survey.see_keys if plan.key_rule == "public" else None
        for rows in self.reader.rows(self.source, plan, survey.see_times, see_keys):
            given = plan.key_rule in ("none", "given")
            codes = rows.codes.astype(np.int64) if given else keys.codes(rows.keys)
            if not np.isfinite(rows.values).all():
                # Not of the rows that count alone, which the secret chooses.
                raise DataError(NOT_FINITE)
            assert rows.persons is not None  # noqa: S101 - the plan names their column
            found.add(rows.persons, rows.times, rows.windows, codes, keys.words[codes], rows.values)
        first, last = survey.ends()
        plan.check_cells(last - first, 1)
        kept = found.kept()
        survey.see_kept(kept, keys.rows)
        settled = survey.settle(self.key)
        if survey.keys is not None:
            # From the numbers in which keys came to those of the released ones.
            places = {row: place for place, row in enumerate(survey.keys)}
            codes = np.array([places.get(row, -1) for row in keys.rows], np.int64)[kept.codes]
            kept = kept._replace(codes=codes)
        return self._release(settled, self.source, survey, kept)

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

    def _release(
        self, plan: TablePlan, source: Source, survey: _Survey | None = None, kept: Kept | None = None
    ) -> WindowSums:
        keys = list(plan.keys) if survey is None or survey.keys is None else survey.keys
        first, last = plan.start or 0, plan.stop or 0
        clip = None
        if survey is not None and survey.histogram is not None:
            plan = replace(plan, rows=count_rows(plan, survey.histogram.counts, self.key))
            clip = choose_clip(plan, survey.histogram.counts, self.key)
        quantities = plan.quantities(clip)
        every = [*quantities, *plan.reported(quantities)]
        table = KeyTable(plan.by, keys)
        if kept is not None:
            sums = exact_sums([(kept.windows, kept.codes, kept.values)], plan, every, table.size)
        elif source.add is None:
            sums = self.reader.sums(source, plan, every, table)
        else:
            sums = source.add(plan, every, self.reader)
        by_name = {quantity.name: exact for quantity, exact in zip(every, sums, strict=True)}
        released = np.stack([by_name[quantity.name] for quantity in quantities])
        return WindowSums(
            kind=plan.kind,
            edges=plan.calendar.edges(first, last),
            time_zone=plan.calendar.time_zone,
            every=plan.calendar.every,
            keys=table.columns,
            columns=release(quantities, released, self.key, first, table.digests),
            clip=plan.clip_of(quantities),
            guarantee=plan.guarantee(simulated=self.key.simulated),
            family=self.source.family,
            centre=quantities[0].centre * plan.step if plan.kind == "means" else 0.0,
            clipped_rows=self._clipped_rows(plan, by_name) if plan.reports_clip else None,
            kept_persons=None if kept is None else choices.kept_persons(plan, kept.whole, kept.cut, self.key),
        )

    def _clipped_rows(self, plan: TablePlan, sums: dict[str, Integers]) -> float | None:
        return choices.clipped_rows(plan, int(sums["beyond"].sum()), int(sums["count"].sum()), self.key)


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

    def see_kept(self, kept: Kept, keys: list[KeyRow]) -> None:
        """Count what the release depends on, of the rows of persons that count."""
        if self.plan.key_rule == "private":
            sizes = np.bincount(kept.codes, minlength=len(keys)).tolist()
            self._counts = {key: size for key, size in zip(keys, sizes, strict=True) if size}
        if self.histogram is not None:
            self.histogram.observe(kept.values)

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

    def ends(self) -> tuple[int, int]:
        """The first window, and the one behind the last."""
        plan = self.plan
        if not self._ends and (plan.start is None or plan.stop is None):
            raise DataError(NO_ROWS)
        first = plan.calendar.number(self._ends[0]) if plan.start is None else plan.start
        last = plan.calendar.number(self._ends[1]) + 1 if plan.stop is None else plan.stop
        return first, max(first, last)

    def settle(self, key: Key) -> TablePlan:
        """The plan with windows and keys that are known now."""
        plan, (first, last) = self.plan, self.ends()
        if plan.key_rule == "public":
            self.keys = sorted_keys(self._counts)
        elif plan.key_rule == "private":
            self.keys = choose_keys(plan, self._counts, key)
        width = len(plan.keys if self.keys is None else self.keys) if plan.by else 1
        return plan.settled(first, last, width)
