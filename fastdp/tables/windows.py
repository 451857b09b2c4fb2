"""``fastdp.Windows``: windows of arriving rows, closed by a public clock."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fastdp import validation
from fastdp.data.column import as_column, as_floats
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Array, Bounds, Duration, Flags, Floats, Instant, Integers, Keys
from fastdp.noise.key import Key
from fastdp.state import codec
from fastdp.state.codec import Packed, expect
from fastdp.state.driver import Publisher
from fastdp.state.machine import Machine, Record, Transition, single_caller
from fastdp.tables.arguments import PrivateKeys, Value, check_online, make_plan, names_of, statistics_of, values_of
from fastdp.tables.calendar import Calendar, Time, as_instant
from fastdp.tables.columns import Keys as KeySet
from fastdp.tables.columns import as_arrow, digests_of, times_of
from fastdp.tables.persons import BatchRows, PersonRows, check_finite
from fastdp.tables.plan import OF_SUMS, TablePlan
from fastdp.tables.sums import CellRows, Measured, Quantity, Released, Statistic, exact_sums, release
from fastdp.tables.table import Table
from fastdp.units import LAST, ONE_ROW, Person, Rows, Unit, parse_length
from fastdp_kernels.tables import person_rows

#: Columns of a row that waits before bits of its values: two halves of the person's digest, instant, key.
FACTS = 4
#: Rows of closed windows stay as long as they are no more than the others, or than these.
SPARE = 1024
#: Rows that wait, in one part of a state file's log.
PART_ROWS = 2**20
log = logging.getLogger("fastdp")


@dataclass(frozen=True, eq=False)
class Waiting:
    """Rows of persons in open windows, chosen when their window closes.

    Rows are appended, so states share them and a failed call changes nothing.  ``rows``, int64[capacity, 4 + values +
    1]: the last column is the index of the previous row in the same window (-1: none); the last row the number
    filled, by any state.  ``gone`` counts rows of closed windows, ``ends`` is each open window's last row or -1,
    ``moved`` counts compactions.
    """

    rows: Integers
    size: int
    gone: int
    ends: Integers
    moved: int = 0

    def __repr__(self) -> str:
        return f"Waiting(windows={self.ends.size})"

    @classmethod
    def none(cls, values: int) -> Waiting:
        """A state without rows and open windows."""
        return cls(np.empty((0, FACTS + values + 1), np.int64), 0, 0, np.empty(0, np.int64))

    def widened(self, windows: int) -> Waiting:
        """A copy with at least `windows` open windows, and its own ``ends``."""
        ends: Integers = np.full(max(windows, self.ends.size), -1, np.int64)
        ends[: self.ends.size] = self.ends
        return replace(self, ends=ends)

    def compact(self) -> Waiting:
        """The state without closed windows' rows, if many."""
        live = self.size - self.gone
        if self.gone <= max(live, SPARE):
            return self
        fresh = Waiting.none(self.rows.shape[1] - FACTS - 1).widened(self.ends.size)
        for window in np.flatnonzero(self.ends >= 0).tolist():
            rows = self.rows[person_rows.chained_rows(self.rows, self.ends[window : window + 1])]
            fresh = fresh.with_rows(rows[:, :-1], np.full(len(rows), window))
        return replace(fresh, moved=self.moved + 1)

    def with_rows(self, said: Integers, windows: Integers) -> Waiting:
        """The state with rows `said` in open `windows`; changes ``ends``: call :meth:`widened` first."""
        rows, size = self.rows, self.size + len(said)
        if size >= len(rows) or rows[-1, 0] != self.size:
            # No free rows, or another state has filled them.
            rows = np.empty((2 * size + 2, self.rows.shape[1]), np.int64)
            rows[: self.size] = self.rows[: self.size]
        rows[self.size : size, :-1] = said
        person_rows.link_rows(windows, rows, self.size, self.ends)
        rows[-1, 0] = size
        return replace(self, rows=rows, size=size)

    def of_first(self, windows: int) -> Integers:
        """Rows of the first open windows: int64[n, 4 + values]."""
        return self.rows[person_rows.chained_rows(self.rows, self.ends[:windows]), :-1]

    def without_first(self, windows: int, rows: int) -> Waiting:
        """The state after the first `windows`, with `rows` rows, closed."""
        return replace(self, ends=self.ends[windows:], gone=self.gone + rows)

    def alone(self) -> Waiting:
        """A copy with rows of its own."""
        return replace(self, rows=self.rows[: self.size].copy())


class Batch(NamedTuple):
    """Input of one call: instants, values (float64[c, n]), keys (-1: unlisted), persons; or the clock."""

    times: Integers
    values: Floats
    codes: Integers
    digests: Integers
    to: int


@dataclass(frozen=True)
class WindowsState:
    """State between two calls; ``late``, ``sums`` and ``waiting`` are secret.

    ``n_seen``: calls that changed something; ``clock``, microseconds; ``closed``: first open window; ``late``: rows
    after theirs closed.  With persons, ``waiting`` holds rows; else ``sums``, int64[Q, open windows, K].
    """

    n_seen: int
    clock: int
    closed: int
    late: int
    sums: Integers
    waiting: Waiting

    def __repr__(self) -> str:
        return f"WindowsState(n_seen={self.n_seen}, closed={self.closed})"


@dataclass(frozen=True)
class WindowsMachine(Machine[WindowsState]):
    """Public parameters of :class:`Windows`; times as ISO text."""

    PARTS: ClassVar[codec.Parts] = {kind.__name__: kind for kind in (Time, Value, Rows, Person)}
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
        """Public parameters, whose clips are the bounds; ParameterError for conflicts."""
        asked = tuple(Statistic(kind, column) for column, kind in self.statistics)
        given = {"epsilon": self.epsilon, "unit": self.unit, "by": self.by, "keys": self.keys, "delta": self.delta}
        plan = make_plan(asked, self.time, bounds=dict(self.bounds), levels=False, **given)
        check_online(plan)
        # The bound is the clip: nothing is chosen from rows that are not there yet.
        return replace(plan, online=True, columns=tuple(replace(each, chooses=False) for each in plan.columns))

    @cached_property
    def quantities(self) -> list[Quantity]:
        """Sums of each cell, with noise."""
        return self.plan.quantities()

    @cached_property
    def table(self) -> KeySet:
        """Released keys, which find a row's key."""
        return KeySet(self.plan.by, self.plan.keys)

    @property
    def calendar(self) -> Calendar:
        """The windows."""
        assert self.plan.calendar is not None  # noqa: S101 - there are times
        return self.plan.calendar

    @cached_property
    def delay(self) -> int | None:
        """Microseconds by which the clock follows the latest time; None: only ``advance`` moves it."""
        return None if self.lateness is None else parse_length("lateness", self.lateness)[1]

    def start(self, key: Key) -> WindowsState:
        """State before any row."""
        number = self.plan.start or 0
        sums: Integers = np.zeros((len(self.quantities), 0, self.table.size), np.int64)
        return WindowsState(0, self.calendar.edge(number), number, 0, sums, Waiting.none(len(self.plan.columns)))

    # The call.

    def read(self, *batch: Any) -> Batch:
        """Rows as arrays, or a clock; DataError if not accepted."""
        times, values, keys, who, to = batch
        zone = self.calendar.zone
        if to is not None:
            moment = as_instant("to", to, zone)
            none: Integers = np.empty(0, np.int64)
            return Batch(none, np.empty((len(self.plan.columns), 0)), none, _no_persons(), moment)
        instants, present = times_of(as_arrow(times, "times"), zone, self.time)
        n = instants.size
        if present is not None and not present.all():
            raise DataError(f"times[{int(np.argmin(present))}] is missing: expected a time for every row")
        floats = self._values(values, n)
        codes = self._codes(keys, n)
        digests = self._persons(who, n)
        return Batch(instants, floats, codes, digests, int(np.iinfo(np.int64).min))

    def _values(self, values: Any, n: int) -> Floats:
        columns = self.plan.columns
        if not columns:
            if values is not None:
                raise DataError(f"values is a {type(values).__name__}: expected None, because rows are counted")
            return np.empty((0, n))
        names = [column.name for column in columns]
        mapped = isinstance(values, Mapping)
        if (mapped or len(names) > 1) and not (mapped and set(names) <= set(values)):
            raise DataError(
                f"values is a {type(values).__name__}: expected a mapping with a column for each of {names}"
            )
        found = np.empty((len(names), n))
        for into, column in zip(found, columns, strict=True):
            given = values[column.name] if mapped else values
            floats = as_floats(as_column([] if given is None else given, "values"))
            _same_length("values", floats.size, n)
            into[:] = np.where(np.isfinite(floats), floats, 0.0) if column.nonfinite == "zero" else floats
        return found

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
        return self.table.codes(columns)

    def _persons(self, who: Any, n: int) -> Integers:
        if self.plan.who is None:
            if who is not None:
                raise DataError(f"persons is a {type(who).__name__}: expected None without unit=fastdp.Person")
            return _no_persons()
        digests, named = digests_of(as_arrow([] if who is None else who, "persons"))
        _same_length("persons", len(digests), n)
        if named is not None and not named.all():
            raise DataError(f"persons[{int(np.argmin(named))}] is missing: expected the person of every row")
        return digests

    def parts(self, batch: Batch) -> tuple[Array, ...]:
        return (*batch[:4], np.array([batch.to]))

    def step(self, state: WindowsState, batch: Batch, key: Key) -> Transition[WindowsState]:
        after, sums = self.collect(state, batch, key)
        return Transition(after, partial(self._emit, *self._measure(state.closed, sums, key)))

    def collect(self, state: WindowsState, batch: Batch, key: Key) -> tuple[WindowsState, Integers]:
        """State after the rows are added, and exact sums of the windows that the clock closes, int64[Q, W, K].

        Sums of shards add up to those of all rows, if a person's rows are in one shard.
        """
        calendar, first = self.calendar, state.closed
        windows = calendar.numbers(batch.times)
        clock, late = self._clock(state, batch, windows)
        counted = (batch.codes >= 0) & ~late
        closed = max(first, calendar.number(min(clock, LAST)))
        open_to = max(closed, int(windows[counted].max(initial=first - 1)) + 1)
        self._check_far(max(open_to - first, state.sums.shape[1], state.waiting.ends.size))
        check_finite(batch.values[:, counted])
        waiting = state.waiting
        if self.plan.who is not None:
            sums, waiting = self._close(waiting, batch, counted, (windows, first, closed, open_to), key)
        else:
            sums = _wide(state.sums, open_to - first)
            rows = CellRows(windows, np.where(counted, batch.codes, -1), batch.values)
            sums = sums + self._added(rows, (first, first + sums.shape[1]))
        after = WindowsState(
            n_seen=state.n_seen + bool(batch.times.size or clock > state.clock),
            clock=clock,
            closed=closed,
            late=state.late + int(np.count_nonzero(late)),
            sums=sums[:, closed - first :].copy(),
            waiting=waiting,
        )
        return after, sums[:, : closed - first]

    def publish(self, first: int, sums: Integers, key: Key) -> Released:
        """The release of windows from number `first` on, from the exact sums of :meth:`collect`."""
        return self._emit(*self._measure(first, sums, key))

    def _measure(self, first: int, sums: Integers, key: Key) -> tuple[tuple[int, int], tuple[Measured, ...], Key]:
        span = first, first + sums.shape[1]
        return span, release(self.plan.budget, self.quantities, [sums], key, span, self.table), key

    def _clock(self, state: WindowsState, batch: Batch, windows: Integers) -> tuple[int, Flags]:
        """Clock after the batch, and flags of late rows, row by row."""
        clock = max(state.clock, batch.to)
        if self.delay is None or not windows.size:
            return clock, windows < state.closed
        reached = np.maximum.accumulate(np.maximum(batch.times - self.delay, clock))
        # A row never closes its own window, so it may count among those before it.
        return int(reached[-1]), windows < np.maximum(state.closed, self.calendar.numbers(reached))

    def _close(
        self, waiting: Waiting, batch: Batch, counted: Flags, span: tuple[Integers, int, int, int], key: Key
    ) -> tuple[Integers, Waiting]:
        """Exact sums of windows that close, from rows of least hash, and waiting rows."""
        windows, first, closed, open_to = span
        waiting = waiting.compact().widened(open_to - first)
        if counted.any():
            bits = np.ascontiguousarray(batch.values[:, counted]).view(np.int64)
            said = (*batch.digests[counted].T, batch.times[counted], batch.codes[counted], *bits)
            waiting = waiting.with_rows(np.column_stack(said), windows[counted] - first)
        sums: Integers = np.zeros((len(self.quantities), closed - first, self.table.size), np.int64)
        rows = waiting.of_first(closed - first)
        if len(rows):
            times, codes, *values = (np.ascontiguousarray(column) for column in rows.T[2:])
            floats = np.array(values, np.int64).reshape(len(values), len(rows)).view(np.float64)
            found = PersonRows(self.plan, key)
            said = CellRows(self.calendar.numbers(times), codes, floats)
            persons = found.persons.digests.of(*rows[:, :2].T.copy())
            found.add(BatchRows(said, times, persons), self.table.words()[codes])
            sums = self._added(found.kept(self.plan).rows, (first, closed))
        return sums, waiting.without_first(closed - first, len(rows))

    def _added(self, rows: CellRows, span: tuple[int, int]) -> Integers:
        """Exact sums of rows in windows [first, last)."""
        plan = replace(self.plan, start=span[0], stop=span[1])
        return exact_sums([rows], self.quantities, plan, self.table.size)[0]

    def _check_far(self, windows: int) -> None:
        """DataError for more open windows than memory."""
        try:
            self.plan.check_cells(windows, self.table.size)
        except ParameterError:
            raise DataError(
                "a time lies too far behind the first open window: expected at most 2 * 10^8 open windows and keys, "
                "so that they fit into memory (move the clock with advance)"
            ) from None

    def _emit(self, span: tuple[int, int], measured: tuple[Measured, ...], key: Key) -> Released:
        if span[1] > span[0]:
            log.info("%d windows of %s closed", span[1] - span[0], self.calendar.every)
        tails = self.plan.unknown_tails(self.quantities)
        found = self.plan.released(span, self.table, measured, tails, simulated=key.simulated)
        return replace(found, guarantee=self.guarantee(key))

    def guarantee(self, key: Key) -> Guarantee:
        """Guarantee of everything that is ever released."""
        whole = self.plan.budget.guarantee(simulated=key.simulated)
        if self.lateness is None:
            return whole
        step = "the latest time of the rows so far is public knowledge: it moves the clock (lateness=)"
        return replace(whole, derivation=(*whole.derivation, step))

    # State files.

    def rekeyed(self, state: WindowsState, key: Key) -> WindowsState:
        return replace(state, waiting=state.waiting.alone())

    def pack(self, state: WindowsState) -> Packed:
        live = state.waiting.of_first(state.waiting.ends.size)
        return {**self._small(state), **({"log": _parts(live)} if self.plan.who is not None else {})}

    def record(self, before: WindowsState, after: WindowsState) -> Record:
        old, new = before.waiting, after.waiting
        came = new.rows[old.size if old.moved == new.moved else old.size - old.gone : new.size, :-1]
        return Record(self._small(after), _parts(came), old.moved != new.moved)

    def _small(self, state: WindowsState) -> Packed:
        names = [each.name for each in dataclasses.fields(state) if each.name != "waiting"]
        return {"n_seen": state.n_seen, "state": {name: codec.describe(getattr(state, name)) for name in names}}

    def unpack(self, packed: Packed, key: Key) -> WindowsState:
        values = len(self.plan.columns)
        none = {"waiting": codec.describe(Waiting.none(values))}
        state = super().unpack({**packed, "state": {**packed["state"], **none}}, key)
        parts = [codec.unpack(part, "<i8") for part in packed.get("log", ())]
        rows = np.concatenate([np.empty(0, np.int64), *parts]).reshape(-1, FACTS + values).astype(np.int64)
        if rows[:, 3].min(initial=0) < 0 or rows[:, 3].max(initial=0) >= self.table.size:
            raise ValueError("a key out of range")
        places = self.calendar.numbers(rows[:, 2]) - state.closed
        rows, places = rows[places >= 0], places[places >= 0]
        self._check_far(int(places.max(initial=-1)) + 1)
        waiting = state.waiting.widened(int(places.max(initial=-1)) + 1).with_rows(rows, places)
        return replace(state, waiting=waiting)

    def check_indices(self, state: WindowsState) -> None:
        like, calendar = self.start(Key(bytes(32), simulated=True)), self.calendar
        expect(state.sums, np.empty((like.sums.shape[0], state.sums.shape[1], like.sums.shape[2]), np.int64))
        if min(state.n_seen, state.late) < 0 or state.closed < like.closed or state.clock < like.clock:
            raise ValueError("a position out of range")
        if calendar.number(min(state.clock, LAST)) > state.closed:
            raise ValueError("a clock behind an open window")


def _parts(rows: Integers) -> list[str]:
    """Rows as texts of a log, each small enough for a state file."""
    return [codec.pack(rows[i : i + PART_ROWS], "<i8") for i in range(0, len(rows), PART_ROWS)]


def _wide(sums: Integers, windows: int) -> Integers:
    wide: Integers = np.zeros((sums.shape[0], max(windows, sums.shape[1]), sums.shape[2]), np.int64)
    wide[:, : sums.shape[1]] = sums
    return wide


def _no_persons() -> Integers:
    return np.empty((0, 2), np.int64)


def _same_length(name: str, found: int, n: int) -> None:
    if found != n:
        raise DataError(f"{name} has {found} entries: expected {n}, one for each of times")


class Windows(Publisher[WindowsState]):
    """Statistics of windows online: a window is released when the clock passes its end.

    Parameters
    ----------
    statistics : dict of str to str or list of str
        As for :func:`fastdp.aggregate`, of columns named in :meth:`add`.
    time : Time
        The windows, with ``start``, before which rows are late.
    epsilon : float
        Privacy loss for one unit over everything that is ever released.
    by : str or list of str, optional
        Names of the key columns.
    keys : list or mapping
        The released keys: texts, integers or bools; rows with others are dropped.
    unit : Rows or Person
        As for :func:`fastdp.aggregate`.  Rows of a :class:`fastdp.Person` wait until their window closes; then those
        of least keyed hash count.  It needs ``per``; if that has rows in several windows, also ``per_window``, and
        ``rows`` of at least ``per_window`` times these.
    bounds : dict, number, pair or Value
        Public clips of the columns: a bound is the clip.
    delta : float
        Above 0: noise is Gaussian where its variance is smaller.
    lateness : str or timedelta, optional
        Fixed length ("10min") by which the clock follows the latest time seen, then public knowledge.  By default
        :meth:`advance` alone moves it.
    seed, key
        As for :func:`fastdp.aggregate`.

    Notes
    -----
    Privacy: as of :func:`fastdp.aggregate`; a late row changes nothing.  Output does not depend on batches, and
    equals ``fastdp.aggregate``'s with the same key and parameters on rows that are not late.  Shares of clipped and
    dropped rows are not released; their budget is unspent.  Files, copies, replays: ``docs/state.md``.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> time = fastdp.Time("at", "1h", start="2024-05-01")
    >>> windows = fastdp.Windows({"kwh": "sum"}, time, epsilon=1.0, bounds=10.0, seed=1)
    >>> times = np.arange("2024-05-01T00:00", "2024-05-01T03:00", 60, "datetime64[s]")
    >>> len(windows.add(times, np.full(times.size, 2.0)))
    0
    >>> len(windows.advance("2024-05-01T02:30"))
    2
    """

    _MACHINE: ClassVar[Any] = WindowsMachine
    _machine: WindowsMachine
    #: The library that the last rows came from.
    _family = "pyarrow"

    @validation.plain
    def __init__(
        self,
        statistics: Mapping[str, str | Sequence[str]],
        time: Time,
        *,
        epsilon: float,
        by: str | Sequence[str] | None = None,
        keys: Keys | None = None,
        unit: Unit = ONE_ROW,
        bounds: Mapping[str, Bounds | Value] | Bounds | Value | None = None,
        delta: float = 0.0,
        lateness: Duration | None = None,
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        if not isinstance(time, Time):
            raise ParameterError(f"time = {validation.shown(time)}: expected a fastdp.Time with start=")
        if by is not None and (keys is None or isinstance(keys, (str, PrivateKeys))):
            raise ParameterError("keys: expected the list of keys, because windows close before all rows are there")
        if time.start is None:
            raise ParameterError("start = None: expected where the first window begins, such as '2024-05-01'")
        asked = statistics_of(statistics)
        if not {each.kind for each in asked} <= OF_SUMS | {"count"}:
            raise ParameterError("statistics: expected no quantiles and no nunique, because windows close one by one")
        time = replace(time, start=_text(time.start), stop=None, origin=_text(time.origin))
        pairs = [[each.column, each.kind] for each in asked]
        machine = WindowsMachine(
            *(pairs, time, unit, epsilon, values_of(asked, bounds), by, keys, delta, _fixed(lateness))
        )
        plan = machine.plan
        # As a state file holds them.
        listed = [list(row) if len(plan.by) > 1 else row[0] for row in plan.keys] if plan.by else None
        named = list(names_of("by", by)) if plan.by else None
        machine = replace(machine, by=named, keys=listed)
        self._begin(machine, Key.choose(seed, key).bind(machine.plan))

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of everything that is ever released."""
        return self._machine.guarantee(self._key)

    @property
    def n_seen(self) -> int:
        """Calls that added rows or moved the clock, for a restart."""
        return self._state.n_seen

    @property
    def late(self) -> int:
        """Rows after their window was closed: for the operator, never to be published."""
        return self._state.late

    @single_caller
    def add(self, times: Any, values: Any = None, keys: Any = None, persons: Any = None) -> Table:
        """Add rows; returns the windows that they close (with ``lateness``), possibly none.

        Parameters
        ----------
        times : array-like of datetimes or dates, [n]
            In any order; other times as ``Time`` says.
        values : array-like of numbers, [n], or mapping of column names to them, optional
            Of the columns of ``statistics``; None for counts.
        keys : array-like, [n], or mapping of column names to them, optional
            With ``by``.
        persons : array-like, [n], optional
            With a :class:`fastdp.Person`.

        Raises
        ------
        DataError
            For rows that are not accepted; nothing is consumed.
        """
        home = type(times).__module__.partition(".")[0]
        self._family = home if home in ("pandas", "polars") else "pyarrow"
        return self._table(self._machine.read(times, values, keys, persons, None))

    @single_caller
    def advance(self, to: Instant) -> Table:
        """Move the public clock to a datetime, date or ISO text, and release the windows that end by then."""
        return self._table(self._machine.read(None, None, None, None, to))

    def _table(self, batch: Batch) -> Table:
        found: Released = self._call(batch)
        return Table(replace(found, family=self._family))


def _text(value: Instant | None) -> Any:
    """ISO text of a point in time; other values unchanged."""
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    return str(value) if isinstance(value, np.datetime64) else value


def _fixed(lateness: Duration | None) -> str | None:
    """Text of a fixed length; ParameterError for calendar units."""
    text, microseconds = (None, 1) if lateness is None else parse_length("lateness", lateness)[:2]
    if not microseconds:
        raise ParameterError(f"lateness = {validation.shown(lateness)}: expected a fixed length such as '10min'")
    return text
