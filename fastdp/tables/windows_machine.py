"""The step of ``Windows``: rows wait until a public clock closes their windows, which then get noise."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, get_args

import numpy as np

from fastdp.data.calendar import Calendar, Time
from fastdp.data.column import arrow
from fastdp.data.source import Source
from fastdp.errors import DataError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Array, Flags, Integers
from fastdp.noise.key import Key
from fastdp.state import codec
from fastdp.state.codec import COUNT, DERIVED, INT64, Packed
from fastdp.state.machine import Machine, Record, Transition
from fastdp.tables.arguments import PrivateKeys, Value
from fastdp.tables.arriving import Arriving, Batch
from fastdp.tables.columns import Keys as KeySet
from fastdp.tables.columns import digests_of
from fastdp.tables.functions import check_online, make_plan
from fastdp.tables.online import Closing, KeyNoise, OnlineKeys, Waiting, person_cells, row_parts, texts, weights_of
from fastdp.tables.online_reach import Reached
from fastdp.tables.paths import with_path
from fastdp.tables.plan import MAX_CELLS, TablePlan
from fastdp.tables.promise import promise
from fastdp.tables.quantities import COUNTED, MISSING_ENTRY, NEW, CellRows, Quantity
from fastdp.tables.reach import EntryRows
from fastdp.tables.release import TableRelease
from fastdp.tables.released import Measured, Released, released_of, unknown_tails
from fastdp.tables.rows import (
    BatchRows,
    Ends,
    PersonRows,
    check_finite,
    hash_keys,
    hashing_of,
)
from fastdp.tables.shares import Shares, shares_of
from fastdp.tables.statistics import statistic
from fastdp.tables.sums import exact_sums, release
from fastdp.units import Unit, parse_length

log = logging.getLogger("fastdp")
_NO_ROWS = Waiting.none(0, merges=False)


@dataclass(frozen=True)
class WindowsState:
    """State between two calls; ``n_seen``, ``late``, ``waiting``, ``keys`` and ``reached`` are secret.

    ``calls``: calls that changed the state; ``closed``: first open window, by ``clock`` (microseconds); ``late``:
    rows of closed windows; ``waiting``: rows of open ones; ``keys``: private keys; ``reached``: by column.
    """

    n_seen: Annotated[int, COUNT]
    calls: Annotated[int, COUNT]
    clock: Annotated[int, INT64]
    closed: Annotated[int, INT64]
    late: Annotated[int, COUNT]
    # From the log of a file.
    waiting: Annotated[Waiting, DERIVED] = _NO_ROWS
    keys: Annotated[OnlineKeys | None, DERIVED] = None
    reached: Annotated[tuple[Reached, ...], DERIVED] = ()

    def __repr__(self) -> str:
        return f"WindowsState(calls={self.calls}, closed={self.closed})"


@dataclass(frozen=True)
class WindowsMachine(Machine[WindowsState]):
    """Public parameters of :class:`Windows`; times as ISO text."""

    PARTS: ClassVar[codec.Parts] = {kind.__name__: kind for kind in (Time, Value, *get_args(Unit), PrivateKeys)}
    rule: ClassVar[int] = TablePlan.rule

    #: Pairs of a column and a statistic, or its bounds.
    statistics: Any
    time: Time
    unit: Unit
    epsilon: float
    bounds: Any = ()
    by: Any = None
    keys: Any = None
    delta: float = 0.0
    lateness: str | None = None

    @cached_property
    def plan(self) -> TablePlan:
        asked = tuple(statistic(kind, column) for column, kind in self.statistics)
        given = {"epsilon": self.epsilon, "unit": self.unit, "by": self.by, "keys": self.keys, "delta": self.delta}
        plan = make_plan(asked, self.time, bounds=dict(self.bounds), levels=False, **given)
        check_online(plan)
        if plan.by_period:
            return replace(plan, closes="periods")
        # The bound is the clip: nothing is chosen from rows that are not there yet.
        return replace(plan, closes="windows", columns=tuple(replace(each, chooses=False) for each in plan.columns))

    @cached_property
    def shares(self) -> Shares:
        return shares_of(self.plan)

    @cached_property
    def quantities(self) -> list[Quantity]:
        return self.shares.quantities

    @property
    def private(self) -> bool:
        return self.plan.key_rule == "private"

    @cached_property
    def table(self) -> KeySet:
        return KeySet(self.plan.by, () if self.private else self.plan.keys)

    @cached_property
    def appearing(self) -> KeyNoise:
        return KeyNoise.of(self.shares)

    @property
    def calendar(self) -> Calendar:
        assert self.plan.calendar is not None  # noqa: S101 - there are times
        return self.plan.calendar

    @cached_property
    def closing(self) -> Closing:
        return Closing(self.calendar, self.plan.periods if self.plan.by_period else None, self.plan.span[1])

    @cached_property
    def delay(self) -> int | None:
        return None if self.lateness is None else parse_length("lateness", self.lateness)[1]

    def start(self, key: Key) -> WindowsState:
        number = self.plan.start or 0
        keys = OnlineKeys.none(self.plan.by) if self.private else None
        reached = tuple(Reached() for _ in self._reaching)
        return WindowsState(0, 0, self.calendar.edge(number), number, 0, self._none, keys, reached)

    @property
    def _none(self) -> Waiting:
        """No rows, of window, key, instant, person, values; or merged ones."""
        columns = 3 + len(self.quantities) if self.merges else 5 + len(self.plan.columns)
        return Waiting.none(columns, merges=self.merges)

    @cached_property
    def merges(self) -> bool:
        return self.plan.who is None and not any(each.counts for each in self.quantities)

    # The call.

    def read(self, times: Any, values: Any, keys: Any, who: Any, to: Any) -> Batch:
        return self._arriving.clock(to) if to is not None else self._arriving.rows(times, values, keys, who)

    @cached_property
    def _arriving(self) -> Arriving:
        return Arriving(self.plan, self.time, self.table)

    def parts(self, batch: Batch) -> tuple[Array, ...]:
        keys, named = batch.keys, list[Array]()
        if self.private:
            keys = texts(keys) if isinstance(keys, tuple) else keys
            named = [digests_of(each)[0] for each in keys]
        return batch.times, batch.values, *(named or [np.array(keys, np.int64)]), batch.digests, np.array([batch.to])

    def step(self, state: WindowsState, batch: Batch, key: Key) -> Transition[WindowsState]:
        after, first = self._added(state, batch), state.closed
        if after.closed == first:
            return Transition(after, partial(self._nothing, after, key))
        if self.plan.by_period:
            rows = after.waiting.of_first(after.closed - first)
            after = replace(after, waiting=after.waiting.without_first(after.closed - first, len(rows)))
            return Transition(after, partial(self._period, rows, (first, after.closed), key))
        after, exact, table, begins = self._closed(after, first, key)
        made = self._measure(first, exact, key, table, after.reached)
        released, since = {each.quantities[0]: each.steps for each in made[1]}, first - (self.plan.start or 0)
        reached = tuple(each.with_released(released, since) for each in after.reached)
        return Transition(replace(after, reached=reached), partial(self._emit, *made, begins))

    @cached_property
    def _reaching(self) -> dict[str, list[Quantity]]:
        found = dict[str, list[Quantity]]()
        for each in self.quantities:
            if each.name in NEW:
                found.setdefault(each.column, []).append(each)
        return found

    def collect(self, state: WindowsState, batch: Batch, key: Key) -> tuple[WindowsState, KeySet, Integers]:
        """State after the rows, and keys and exact sums of windows that the clock closes, int64[Q, W, K].

        Sums of shards add up if a person's rows are in one shard.  Private keys are those of these rows, with weights
        as first sums; the state then forgets them.
        """
        after, first = self._added(state, batch), state.closed
        if after.closed == first:
            return after, self.table, self.no_sums
        after, exact, table, _ = self._closed(after, first, key, shard=True)
        return after, table, exact[0]

    @cached_property
    def no_sums(self) -> Integers:
        none: Integers = np.zeros((len(self.quantities), 0, self.table.size), np.int64)
        return none

    @property
    def adds_up(self) -> bool:
        """True if sums of shards are those of all rows."""
        return self.plan.online and not any(each.counts for each in self.quantities)

    def publish(self, first: int, sums: Integers, key: Key) -> Released:
        return self._emit(*self._measure(first, [sums], key, self.table), None)

    def appear(
        self, keys: OnlineKeys, window: int, cells: Sequence[tuple[list[list[str]], Integers]], key: Key
    ) -> tuple[OnlineKeys, Released]:
        """Private keys after the next window, and its release; `cells`: by shard."""
        numbers = []
        for names, _ in cells:
            keys, codes = keys.learned([arrow.array(column, "large_string") for column in names])
            numbers.append(codes)
        codes, sums = np.concatenate(numbers), np.concatenate([each for _, each in cells], axis=1)
        weights, span = (np.full_like(codes, window), codes, sums[0]), (window, window + 1)
        keys = keys.after(weights, span, self.plan.start or 0, self.appearing, key)
        table, place = keys.shown
        exact: Integers = np.zeros((len(sums) - 1, 1, table.size), np.int64)
        shown = place[codes] >= 0
        np.add.at(exact[:, 0].T, place[codes[shown]], sums[1:, shown].T)
        return keys, self._emit(*self._measure(window, [exact], key, table), None)

    def _measure(
        self, first: int, exact: list[Integers], key: Key, table: KeySet, reached: Sequence[Reached] = ()
    ) -> tuple[tuple[int, int], tuple[Measured, ...], Key, KeySet]:
        span = first, first + exact[0].shape[1]
        before = {quantity: last[:, :3] for each in reached for quantity, last in each.last.items()}
        return span, release(self.shares, self.quantities, exact, key, span, table, before=before), key, table

    def _added(self, state: WindowsState, batch: Batch) -> WindowsState:
        first, size, keys = state.closed, batch.times.size, state.keys
        if isinstance(batch.keys, tuple):
            clock, late, rows, keys = self._one(state, batch)
        else:
            windows = self.calendar.numbers(batch.times)
            clock, lates = self._clock(state, batch, windows)
            late, valued = int(np.count_nonzero(lates)), self.plan.with_values(batch.values)
            inside = ~lates & (windows < self.closing.stop)
            came = np.flatnonzero(inside if valued is None else inside & valued)
            if keys is None:
                came = came[batch.keys[came] >= 0]
                codes = batch.keys[came]
            elif came.size:
                keys, codes = keys.learned([column.take(came) for column in batch.keys])
            rows = self._rows(batch, came, windows[came], codes) if came.size else None
        waiting = state.waiting
        if rows is not None:
            self._check_far(int(rows[:, 0].max()) + 1 - first)
            waiting = waiting.compact(first).with_rows(rows, first)
        closed = self.closing.next(first, clock) if clock > state.clock or self.plan.by_period else first
        calls = state.calls + bool(size or clock > state.clock or closed > first)
        return WindowsState(
            state.n_seen + size, calls, clock, closed, state.late + late, waiting, keys, state.reached
        )

    def consumed(self, state: WindowsState) -> int:
        return state.calls

    def _one(self, state: WindowsState, batch: Batch) -> tuple[int, int, Integers | None, OnlineKeys | None]:
        """Clock, if the row is late, the row (None: not waiting), and keys."""
        moment, keys = batch.times.item(), state.keys
        calendar, clock = self.calendar, state.clock
        if self.delay is not None:
            clock = max(clock, moment - self.delay)
        closed = state.closed
        if self.delay is not None or self.plan.by_period:
            closed = max(closed, self.closing.number(clock))
        window = calendar.number(moment) if calendar.fixed else int(calendar.numbers(batch.times)[0])
        if window < closed:
            return clock, 1, None, keys
        if window >= self.closing.stop:
            return clock, 0, None, keys
        code = batch.keys[0]
        if keys is not None:
            keys, code = keys.learned_one(batch.keys)
        if code < 0:
            return clock, 0, None, keys
        row = [window, code]
        if self.merges:
            each = CellRows(_FIRST, _FIRST, batch.values)
            row += [1, *exact_sums([each], self.quantities, self._single, 1)[0][:, 0, 0].tolist()]
        else:
            person = batch.digests[0].tolist() if batch.digests.size else (0, 0)
            row += [moment, *person, *batch.values[:, 0].view(np.int64).tolist()]
        return clock, 0, np.array([row]), keys

    def _clock(self, state: WindowsState, batch: Batch, windows: Integers) -> tuple[int, Flags]:
        clock = max(state.clock, batch.to)
        if self.delay is None or not windows.size:
            return clock, windows < max(state.closed, self.closing.number(state.clock))
        reached = np.maximum.accumulate(np.maximum(batch.times - self.delay, clock))
        # A row never closes its own window, so it may count among those before it.
        return int(reached[-1]), windows < np.maximum(state.closed, self.closing.numbers(reached))

    def _rows(self, batch: Batch, came: Integers, windows: Integers, codes: Integers) -> Integers:
        values = np.ascontiguousarray(batch.values[:, came])
        if self.merges:
            found: Integers = np.empty((came.size, 3 + len(self.quantities)), np.int64)
            found[:, 0], found[:, 1], found[:, 2] = windows, codes, 1
            each = CellRows(np.zeros_like(came), np.arange(came.size), values)
            found[:, 3:] = exact_sums([each], self.quantities, self._single, came.size)[0][:, 0].T
            return found
        check_finite(values)
        persons = batch.digests[came] if self.plan.who is not None else np.zeros((came.size, 2), np.int64)
        return np.column_stack((windows, codes, batch.times[came], persons, *values.view(np.int64)))

    @cached_property
    def _single(self) -> TablePlan:
        return replace(self.plan, start=0, stop=1)

    def _closed(
        self, state: WindowsState, first: int, key: Key, shard: bool = False
    ) -> tuple[WindowsState, list[Integers], KeySet, Integers | None]:
        """State without windows from `first` on, exact numbers, shown keys and their begins.

        A `shard` shows all keys of these windows, with weights before the sums.
        """
        plan, span = self.plan, (first, state.closed)
        rows, keys = state.waiting.of_first(span[1] - first), state.keys
        times, digests = np.ascontiguousarray(rows[:, 2]), np.ascontiguousarray(rows[:, 3:5])
        said = _cell_rows(rows)
        words = (self.table if keys is None else keys.table).words()
        table, begins = self.table, None
        if keys is not None:
            if plan.who is None or plan.periods is None:
                cells = said.windows, said.codes, rows[:, 2] if self.merges else np.ones_like(times)
            else:
                cells = person_cells(said, plan.periods.numbers(times), digests, words, weights_of(plan), key)
            if shard:
                table, place = keys.table.select(np.bincount(said.codes, minlength=keys.size) > 0)
            else:
                keys = keys.after(cells, span, plan.start or 0, self.appearing, key)
                table, place = keys.shown
                begins = keys.begins[np.argsort(place)[place.size - table.size :]]
        plan.check_cells(span[1] - first, table.size)
        reached, new = self._newcomers(state, said, digests, span, key)
        if plan.bounds_rows:
            (said,) = _persons(plan, rows, words, key).kept(plan, words).read()
        if keys is not None:
            said = said._replace(codes=place[said.codes])
        of_span = replace(plan, start=first, stop=span[1])
        others = [each for each in self.quantities if each not in new]
        exact = exact_sums([] if self.merges else [said], others, of_span, table.size)
        counts = iter(exact[1:])
        exact[1:] = [new[q] if q in new else next(counts) for q in self.quantities if q.name in COUNTED]
        if self.merges:
            inside = said.codes >= 0
            for into, each in zip(exact[0], rows.T[3:, inside], strict=True):
                np.add.at(into, (said.windows[inside] - first, said.codes[inside]), each)
        waiting = state.waiting.without_first(span[1] - first, len(rows))
        if keys is not None and shard:
            weights = np.zeros((1, span[1] - first, table.size), np.int64)
            np.add.at(weights[0], (cells[0] - first, place[cells[1]]), cells[2])
            exact[0] = np.concatenate([weights, exact[0]])
            left = waiting.of_first(waiting.ends.size).copy()
            kept, left[:, 1] = np.unique(left[:, 1], return_inverse=True)
            keys = OnlineKeys.none(plan.by).learned(keys.table.entries(kept))[0]
            waiting = self._none.with_rows(left, span[1], waiting.ends.size)
        return replace(state, waiting=waiting, keys=keys, reached=reached), exact, table, begins

    def _period(self, rows: Integers, span: tuple[int, int], key: Key) -> Released:
        log.info("%d windows of %s closed", span[1] - span[0], self.calendar.every)
        plan = replace(self.plan, start=span[0], stop=span[1])
        release = TableRelease(replace(self.shares, plan=plan), _NO_SOURCE, key.within("period", span[0]))
        found = release.of_persons(_persons(plan, rows, self.table.words(), release.key), self.table, Ends(plan))
        return replace(found, notes=self.notes)

    def _newcomers(
        self, state: WindowsState, rows: CellRows, digests: Integers, span: tuple[int, int], key: Key
    ) -> tuple[tuple[Reached, ...], dict[Quantity, Integers]]:
        plan, reached, found = self.plan, list[Reached](), dict[Quantity, Integers]()
        for each, (column, listed) in zip(state.reached, self._reaching.items(), strict=True):
            named, windows, codes = digests, rows.windows, rows.codes
            if plan.who is None:
                values = rows.values[plan.place(column)]
                known = values != MISSING_ENTRY
                named = np.column_stack(((values + 0.0).view(np.int64), np.zeros_like(codes)))[known]
                windows, codes = windows[known], codes[known]
            hashes = hash_keys(np.frombuffer(hashing_of(key), np.uint64), named, self.table.words()[codes])
            after, new = each.after(named, EntryRows(codes, windows, codes, hashes), listed, span, plan)
            reached.append(after)
            found |= new
        return tuple(reached), found

    def _check_far(self, windows: int) -> None:
        if windows * max(1, self.table.size) > MAX_CELLS:
            raise DataError(
                "a time lies too far behind the first open window: expected at most 2 * 10^8 open windows and keys, "
                "so that they fit into memory (move the clock with advance)"
            )

    def _nothing(self, state: WindowsState, key: Key) -> Released:
        table = self.table if state.keys is None else state.keys.shown[0]
        wanted = [table, state.closed, key.simulated]
        if self._last[:3] != wanted:
            plan = replace(self.plan, start=state.closed, stop=state.closed)
            exact = exact_sums((), self.quantities, plan, table.size)
            self._last[:] = [*wanted, self._emit(*self._measure(state.closed, exact, key, table), None)]
        found: Released = self._last[3]
        return found

    @cached_property
    def _last(self) -> list[Any]:
        return [None] * 4

    def _emit(
        self, span: tuple[int, int], measured: tuple[Measured, ...], key: Key, table: KeySet, begins: Integers | None
    ) -> Released:
        if span[1] > span[0]:
            log.info("%d windows of %s closed", span[1] - span[0], self.calendar.every)
        tails = unknown_tails(self.plan, self.quantities)
        found = released_of(self.shares, span, table, measured, tails, simulated=key.simulated)
        found = replace(found, notes=self.notes)
        return found if begins is None else found.since(begins - span[0])

    def guarantee(self, key: Key) -> Guarantee:
        shares = self.shares
        if self.plan.by_period:
            nodes = (max(1, self.table.size),) * (len(self.plan.by) + 1)
            first = self.plan.start or 0
            of_first = with_path(shares.settled(first, self.closing.end(first), *nodes))
            shares = replace(of_first, plan=replace(of_first.plan, stop=self.plan.stop))
        return promise(shares, simulated=key.simulated, notes=self.notes)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        found = []
        if self.plan.by_period:
            found.append("each period is a table of its own, whose noisy number of rows chooses its calendar")
        if self.lateness is not None:
            found.append("the latest time of the rows so far is public knowledge: it moves the clock (lateness=)")
        return tuple(found)

    # State files.

    def rekeyed(self, state: WindowsState, key: Key) -> WindowsState:
        keys = None if state.keys is None else state.keys.alone()
        reached = tuple(each.alone() for each in state.reached)
        return replace(state, waiting=state.waiting.alone(), keys=keys, reached=reached)

    def pack(self, state: WindowsState) -> Packed:
        parts = [] if state.keys is None else state.keys.parts(OnlineKeys.none(self.plan.by))
        parts += [part for i, each in enumerate(state.reached) for part in each.parts(Reached(), i)]
        rows = row_parts(state.waiting.of_first(state.waiting.ends.size), _ROWS)
        return {**super().pack(state), "log": [*parts, *rows]}

    def record(self, before: WindowsState, after: WindowsState) -> Record:
        parts = [] if before.keys is None or after.keys is None else after.keys.parts(before.keys)
        for i, (old, new) in enumerate(zip(before.reached, after.reached, strict=True)):
            parts += new.parts(old, i)
        moved = before.waiting.moved != after.waiting.moved
        return Record(
            super().pack(after), [*parts, *row_parts(after.waiting.added_since(before.waiting), _ROWS)], moved
        )

    def unpack(self, packed: Packed, key: Key) -> WindowsState:
        state, begin, found = super().unpack(packed, key), self.start(key), [np.empty(0, np.int64)]
        early = state.closed < begin.closed or state.clock < begin.clock
        if early or (not self.plan.by_period and self.closing.number(state.clock) > state.closed):
            raise ValueError("a clock behind an open window")
        keys, reached = begin.keys, list(begin.reached)
        for part in packed.get("log", ()):
            kind, _, raw = part.partition(b":")
            if kind == _ROWS:
                found.append(codec.unpack(raw, "<i8").astype(np.int64))
            elif keys is not None:
                keys = keys.with_part(part)
            for i, listed in enumerate(self._reaching.values()):
                reached[i] = reached[i].with_part(part, i, listed, self.table.size)
        rows = np.concatenate(found).reshape(-1, self._none.rows.shape[1] - 1)
        size = keys.size if keys is not None else self.table.size
        if rows[:, 1].min(initial=0) < 0 or rows[:, 1].max(initial=-1) >= size:
            raise ValueError("a key out of range")
        rows = rows[rows[:, 0] >= state.closed]
        self._check_far(int(rows[:, 0].max(initial=state.closed)) + 1 - state.closed)
        waiting = begin.waiting.with_rows(rows, state.closed)
        return replace(state, waiting=waiting, keys=keys, reached=tuple(reached))


#: Rows of periods are read already.
_NO_SOURCE = Source("pyarrow", (), None, lambda: iter(()))
#: The place of one row.
_FIRST: Integers = np.zeros(1, np.int64)
#: Kind of a log's part that holds rows.
_ROWS = b"rows"


def _cell_rows(rows: Integers) -> CellRows:
    return CellRows(rows[:, 0], rows[:, 1], np.ascontiguousarray(rows[:, 5:].T).view(np.float64))


def _persons(plan: TablePlan, rows: Integers, words: Integers, key: Key) -> PersonRows:
    found, said = PersonRows(plan, hashing_of(key)), _cell_rows(rows)
    who = found.persons.digests.of(*np.ascontiguousarray(rows[:, 3:5].T))
    found.add(BatchRows(said, np.ascontiguousarray(rows[:, 2]), who), words[said.codes])
    return found
