"""The machine of ``fastdp.Windows``: rows arrive one after the other, and a public clock closes windows."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp.data.column import Nonfinite, as_column, as_floats
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Integers
from fastdp.noise.key import Key
from fastdp.state import codec
from fastdp.state.codec import Packed, expect
from fastdp.state.machine import Machine, Record, Transition
from fastdp.tables.calendar import LAST, as_instant, parse_length
from fastdp.tables.columns import KeyNumbers, KeyTable, as_arrow, digests_of, times_of
from fastdp.tables.parameters import check_online, make_plan
from fastdp.tables.persons import NOT_FINITE, PersonRows
from fastdp.tables.plan import TablePlan
from fastdp.tables.sums import Kind, NoisySums, Quantity, WindowSums, release
from fastdp.tables.waiting import COLUMNS, Waiting

#: Rows that wait, in one part of a state file's log.
PART_ROWS = 2**20
log = logging.getLogger("fastdp")


class Batch(NamedTuple):
    """One call: rows, or how far the clock is.

    Attributes
    ----------
    times : int64[n]
        Instants.
    values : float64[n or 0]
        What is summed, if anything is.
    codes : int64[n]
        Keys; -1 for unknown ones.
    digests : int64[n or 0, 2]
        Persons.
    to : int
        Where the public clock stands at least.
    """

    times: Integers
    values: NDArray[np.float64]
    codes: Integers
    digests: Integers
    to: int


@dataclass(frozen=True)
class WindowsState:
    """Everything that lives between two calls.

    Attributes
    ----------
    n_seen : int
        Calls that changed something.
    clock : int
        Windows that end up to here are closed.
    closed : int
        Number of the first open window.
    late : int
        Rows that came after their window was closed.  Secret.
    sums : int64[Q, open windows, K]
        Exact sums.  Secret.
    waiting : Waiting
        With persons, rows of open windows; sums have none then.  Secret.
    """

    n_seen: int
    clock: int
    closed: int
    late: int
    sums: Integers
    waiting: Waiting = field(default_factory=Waiting.none)

    def __repr__(self) -> str:
        return f"WindowsState(n_seen={self.n_seen}, closed={self.closed})"


@dataclass(frozen=True)
class WindowsMachine(Machine[WindowsState]):
    """Windows as a machine; the parameters are those of :class:`Windows`, times as ISO text."""

    rule: ClassVar[int] = TablePlan.rule

    kind: Kind
    every: str
    epsilon: float
    begin: str
    bound: Any = None
    resolution: float | None = None
    by: Any = None
    keys: Any = None
    origin: str | None = None
    time_zone: str | None = None
    contributions: int = 1
    period: str | None = None
    per_window: int | None = None
    who: bool = False
    lateness: str | None = None
    nonfinite: Nonfinite = "raise"

    @cached_property
    def plan(self) -> TablePlan:
        """The public parameters, checked."""
        named = (each.name for each in dataclasses.fields(self))
        own = ("kind", "begin", "bound", "who", "lateness")
        given = {name: getattr(self, name) for name in named if name not in own}
        plan = make_plan(self.kind, bound=self.bound, start=self.begin, who="persons" if self.who else None, **given)
        check_online(plan)
        # The bound is the clip: nothing is chosen from rows that are not there yet.
        return dataclasses.replace(plan, online=True, chooses_clip=False)

    @cached_property
    def quantities(self) -> list[Quantity]:
        """What is summed."""
        return self.plan.quantities()

    @cached_property
    def table(self) -> KeyTable:
        """The keys."""
        return KeyTable(self.plan.by, self.plan.keys)

    @cached_property
    def words(self) -> Integers:
        """What the hash of a row sees of each key."""
        return KeyNumbers(self.plan.by, self.plan.keys if self.plan.by else [()]).words

    @cached_property
    def delay(self) -> int | None:
        """How far the clock stays behind the latest time seen, in microseconds."""
        return None if self.lateness is None else parse_length("lateness", self.lateness)[1]

    def start(self, key: Key) -> WindowsState:
        """Before any row."""
        number = self.plan.start or 0
        sums: Integers = np.zeros((len(self.quantities), 0, self.table.size), np.int64)
        return WindowsState(0, self.plan.calendar.edge(number), number, 0, sums)

    # The call.

    def read(self, *batch: Any) -> Batch:
        """Rows as arrays, or the clock."""
        times, values, keys, who, to = batch
        zone = self.plan.calendar.zone
        if to is not None:
            moment = as_instant("to", to, zone)
            none: Integers = np.empty(0, np.int64)
            return Batch(none, np.empty(0), none, _no_persons(), moment)
        instants, present = times_of(as_arrow(times, "times"), zone)
        n = instants.size
        if present is not None and not present.all():
            raise DataError(f"times[{int(np.argmin(present))}] is missing: expected a time for every row")
        floats = self._values(values, n)
        codes = self._codes(keys, n)
        digests = self._persons(who, n)
        return Batch(instants, floats, codes, digests, int(np.iinfo(np.int64).min))

    def _values(self, values: Any, n: int) -> NDArray[np.float64]:
        if self.kind == "counts":
            if values is not None:
                raise DataError(f"values is a {type(values).__name__}: expected None, because rows are counted")
            return np.empty(0)
        floats = as_floats(as_column([] if values is None else values, "values"))
        _same_length("values", floats.size, n)
        return np.where(np.isfinite(floats), floats, 0.0) if self.nonfinite == "zero" else floats

    def _codes(self, keys: Any, n: int) -> Integers:
        by = self.plan.by
        if not by:
            if keys is not None:
                raise DataError(f"keys is a {type(keys).__name__}: expected None without by=")
            return np.zeros(n, np.int64)
        mapped = isinstance(keys, Mapping)
        if (mapped or len(by) > 1) and not (mapped and set(by) <= set(keys)):
            raise DataError(f"keys is a {type(keys).__name__}: expected a mapping with a column for each of {by}")
        columns = [as_arrow(keys[name] if mapped else keys, "keys") for name in by]
        for column in columns:
            _same_length("keys", len(column), n)
        return self.table.codes(columns).astype(np.int64)

    def _persons(self, who: Any, n: int) -> Integers:
        if not self.who:
            if who is not None:
                raise DataError(f"persons is a {type(who).__name__}: expected None without who=True")
            return _no_persons()
        digests, named = digests_of(as_arrow([] if who is None else who, "persons"))
        _same_length("persons", len(digests), n)
        if named is not None and not named.all():
            raise DataError(f"persons[{int(np.argmin(named))}] is missing: expected the person of every row")
        return digests

    def parts(self, batch: Batch) -> tuple[NDArray[Any], ...]:
        """All that the step depends on besides state and key."""
        return (*batch[:4], np.array([batch.to]))

    def step(self, state: WindowsState, batch: Batch, key: Key) -> Transition[WindowsState]:
        """Add rows to open windows, and release those that the clock closes."""
        calendar, first = self.plan.calendar, state.closed
        windows = calendar.numbers(batch.times)
        clock, late = self._clock(state, batch, windows)
        counted = (batch.codes >= 0) & ~late
        closed = max(first, calendar.number(min(clock, LAST)))
        open_to = max(closed, int(windows[counted].max(initial=first - 1)) + 1)
        self._check_far(max(open_to - first, state.sums.shape[1], state.waiting.ends.size))
        if not np.isfinite(batch.values[counted] if batch.values.size else batch.values).all():
            raise DataError(NOT_FINITE)
        waiting = state.waiting
        if self.who:
            sums, waiting = self._close(waiting, batch, counted, (windows, first, closed, open_to), key)
        else:
            sums = _wide(state.sums, open_to - first)
            self._add((windows, np.where(counted, batch.codes, -1), batch.values), first, sums)
        columns = release(self.quantities, sums[:, : closed - first], key, first, self.table.digests)
        after = WindowsState(
            n_seen=state.n_seen + bool(batch.times.size or clock > state.clock),
            clock=clock,
            closed=closed,
            late=state.late + int(np.count_nonzero(late)),
            sums=sums[:, closed - first :].copy(),
            waiting=waiting,
        )
        return Transition(after, partial(self._emit, first, closed, columns, key))

    def _clock(self, state: WindowsState, batch: Batch, windows: Integers) -> tuple[int, NDArray[np.bool_]]:
        """The clock behind the batch, and which rows are late: row by row, however rows are cut into batches."""
        clock = max(state.clock, batch.to)
        if self.delay is None or not windows.size:
            return clock, windows < state.closed
        reached = np.maximum.accumulate(np.maximum(batch.times - self.delay, clock))
        # A row never closes its own window, so it may count among those before it.
        return int(reached[-1]), windows < np.maximum(state.closed, self.plan.calendar.numbers(reached))

    def _close(
        self,
        waiting: Waiting,
        batch: Batch,
        counted: NDArray[np.bool_],
        span: tuple[Integers, int, int, int],
        key: Key,
    ) -> tuple[Integers, Waiting]:
        """The exact sums of windows that close now, of the rows of least hash, and the rows that still wait."""
        windows, first, closed, open_to = span
        waiting = waiting.compact().widened(open_to - first)
        if counted.any():
            bits = batch.values[counted].view(np.int64) if batch.values.size else np.zeros(counted.sum(), np.int64)
            said = (*batch.digests[counted].T, batch.times[counted], batch.codes[counted], bits)
            waiting = waiting.with_rows(np.column_stack(said), windows[counted] - first)
        sums: Integers = np.zeros((len(self.quantities), closed - first, self.table.size), np.int64)
        rows = waiting.of_first(closed - first)
        if len(rows):
            times, codes, values = (np.ascontiguousarray(column) for column in rows.T[2:])
            found = PersonRows(self.plan, key)
            values = np.empty(0) if self.kind == "counts" else values.view(np.float64)
            found.add(rows[:, :2], times, self.plan.calendar.numbers(times), codes, self.words[codes], values)
            kept = found.kept()
            self._add((kept.windows, kept.codes, kept.values), first, sums)
        return sums, waiting.without_first(closed - first, len(rows))

    def _add(self, rows: tuple[Integers, Integers, NDArray[np.float64]], first: int, sums: Integers) -> None:
        for quantity, into in zip(self.quantities, sums, strict=True):
            quantity.add(rows, first, into)

    def _check_far(self, windows: int) -> None:
        """DataError for more open windows than fit."""
        try:
            self.plan.check_cells(windows, self.table.size)
        except ParameterError:
            raise DataError(
                "a time lies too far behind the first open window: expected at most 2 * 10^8 open windows and keys, "
                "so that they fit into memory (move the clock with advance)"
            ) from None

    def _emit(self, first: int, closed: int, columns: dict[str, NoisySums], key: Key) -> WindowSums:
        """What the closed windows release."""
        plan = self.plan
        if closed > first:
            log.info("%d windows of %s closed", closed - first, self.every)
        return WindowSums(
            kind=self.kind,
            edges=plan.calendar.edges(first, closed),
            time_zone=plan.calendar.time_zone,
            every=plan.calendar.every,
            keys=self.table.columns,
            columns=columns,
            clip=plan.clip_of(self.quantities),
            guarantee=self.guarantee(key),
            centre=self.quantities[0].centre * plan.step if self.kind == "means" else 0.0,
        )

    def guarantee(self, key: Key) -> Guarantee:
        """Of everything that is ever released."""
        whole = self.plan.guarantee(simulated=key.simulated)
        if self.lateness is None:
            return whole
        step = "the latest time of the rows so far is public knowledge: it moves the clock (lateness=)"
        return dataclasses.replace(whole, derivation=(*whole.derivation, step))

    # State files.

    def rekeyed(self, state: WindowsState, key: Key) -> WindowsState:
        """The state for a copy: rows that wait of its own."""
        return dataclasses.replace(state, waiting=state.waiting.alone())

    def pack(self, state: WindowsState) -> Packed:
        """The state as JSON, rows that wait as the parts of a log."""
        live = state.waiting.of_first(state.waiting.ends.size)
        return {**self._small(state), **({"log": _parts(live)} if self.who else {})}

    def record(self, before: WindowsState, after: WindowsState) -> Record:
        """The state without rows that wait, the rows that came, and whether those of closed windows were left out."""
        old, new = before.waiting, after.waiting
        came = new.rows[old.size if old.moved == new.moved else old.size - old.gone : new.size, :COLUMNS]
        return Record(self._small(after), _parts(came), old.moved != new.moved)

    def _small(self, state: WindowsState) -> Packed:
        names = [each.name for each in dataclasses.fields(state) if each.name != "waiting"]
        return {"n_seen": state.n_seen, "state": {name: codec.describe(getattr(state, name)) for name in names}}

    def unpack(self, packed: Packed, key: Key) -> WindowsState:
        """The state that was packed, rows that wait read from the parts of the log."""
        none = {"waiting": codec.describe(Waiting.none())}
        state = super().unpack({**packed, "state": {**packed["state"], **none}}, key)
        parts = [codec.unpack(part, "<i8") for part in packed.get("log", ())]
        rows = np.concatenate([np.empty(0, np.int64), *parts]).reshape(-1, COLUMNS).astype(np.int64)
        if rows[:, 3].min(initial=0) < 0 or rows[:, 3].max(initial=0) >= self.table.size:
            raise ValueError("a key out of range")
        places = self.plan.calendar.numbers(rows[:, 2]) - state.closed
        rows, places = rows[places >= 0], places[places >= 0]
        self._check_far(int(places.max(initial=-1)) + 1)
        waiting = state.waiting.widened(int(places.max(initial=-1)) + 1).with_rows(rows, places)
        return dataclasses.replace(state, waiting=waiting)

    def check_indices(self, state: WindowsState) -> None:
        """ValueError unless the state has the shape of this machine's."""
        like, calendar = self.start(Key(bytes(32), simulated=True)), self.plan.calendar
        expect(state.sums, np.empty((like.sums.shape[0], state.sums.shape[1], like.sums.shape[2]), np.int64))
        if min(state.n_seen, state.late) < 0 or state.closed < like.closed or state.clock < like.clock:
            raise ValueError("a position out of range")
        if calendar.number(min(state.clock, LAST)) > state.closed:
            raise ValueError("a clock behind an open window")


def _parts(rows: Integers) -> list[str]:
    """Rows as texts of a log, none of which is larger than a state file holds."""
    return [codec.pack(rows[i : i + PART_ROWS], "<i8") for i in range(0, len(rows), PART_ROWS)]


def _wide(sums: Integers, windows: int) -> Integers:
    """A copy with room for so many windows."""
    wide: Integers = np.zeros((sums.shape[0], max(windows, sums.shape[1]), sums.shape[2]), np.int64)
    wide[:, : sums.shape[1]] = sums
    return wide


def _no_persons() -> Integers:
    return np.empty((0, 2), np.int64)


def _same_length(name: str, found: int, n: int) -> None:
    if found != n:
        raise DataError(f"{name} has {found} entries: expected {n}, one for each of times")
