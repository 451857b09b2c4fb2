"""``fastdp.Windows``: windows of rows that arrive one after the other, closed by a public clock."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.arrays.column import Nonfinite, as_column, as_floats
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import Guarantee
from fastdp.randomness.key import Key
from fastdp.state.codec import expect
from fastdp.state.machine import Machine, Transition
from fastdp.state.publisher import Publisher
from fastdp.state.single_caller import single_caller
from fastdp.tables import persons
from fastdp.tables.calendar import LAST, MICROSECOND, as_instant, parse_length
from fastdp.tables.columns import KeyTable, as_arrow, digests_of, times_of
from fastdp.tables.parameters import make_plan, names_of
from fastdp.tables.plan import Quantity, TablePlan
from fastdp.tables.release import NOT_FINITE, start_key
from fastdp.tables.sums import Kind, NoisySums, WindowSums
from fastdp.tables.table import Table

Integers = NDArray[np.int64]
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
    chains : int64[Q, 4]
        Chain keys of the noise.  Secret.
    persons : int64[g, 6]
        Rows of each person (:mod:`fastdp.tables.persons`).  Secret.
    """

    n_seen: int
    clock: int
    closed: int
    late: int
    sums: Integers
    chains: Integers
    persons: Integers

    def __repr__(self) -> str:
        return f"WindowsState(n_seen={self.n_seen}, closed={self.closed})"


@dataclass(frozen=True)
class WindowsMachine(Machine[WindowsState]):
    """Windows as a machine; the parameters are those of :class:`Windows`, times as ISO text."""

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
    def delay(self) -> int | None:
        """How far the clock stays behind the latest time seen, in microseconds."""
        return None if self.lateness is None else parse_length("lateness", self.lateness)[1]

    def start(self, key: Key) -> WindowsState:
        """Before any row."""
        number = self.plan.start or 0
        own = start_key(key, number, list(self.plan.keys))
        chains = np.stack([quantity.start_chain(own) for quantity in self.quantities])
        sums: Integers = np.zeros((len(self.quantities), 0, self.table.size), np.int64)
        return WindowsState(0, self.plan.calendar.edge(number), number, 0, sums, chains, persons.no_counts())

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
        if len(by) > 1 and not (isinstance(keys, Mapping) and set(by) <= set(keys)):
            raise DataError(f"keys is a {type(keys).__name__}: expected a mapping with a column for each of {by}")
        columns = [as_arrow(keys[name] if isinstance(keys, Mapping) else keys, "keys") for name in by]
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
        kept, counts = self._bound(state, batch, windows, counted, closed)
        sums = self._extended(state.sums, max(closed, int(windows[kept].max(initial=first - 1)) + 1) - first)
        codes = np.where(kept, batch.codes, -1)
        for quantity, into in zip(self.quantities, sums, strict=True):
            wrong = quantity.add((windows, codes, batch.values), first, into)
            if wrong >= 0:
                raise DataError(NOT_FINITE)
        chains, columns = [], {}
        for quantity, exact, chain in zip(self.quantities, sums, state.chains, strict=True):
            index = (first - (self.plan.start or 0)) * self.table.size
            released, moved = quantity.release(exact[: closed - first], key, chain, index)
            columns[quantity.name] = released
            chains.append(moved)
        after = WindowsState(
            n_seen=state.n_seen + bool(batch.times.size or clock > state.clock),
            clock=clock,
            closed=closed,
            late=state.late + int(np.count_nonzero(late)),
            sums=sums[:, closed - first :].copy(),
            chains=np.stack(chains),
            persons=counts,
        )
        return Transition(after, partial(self._emit, first, closed, columns, key, after.late - state.late))

    def _clock(self, state: WindowsState, batch: Batch, windows: Integers) -> tuple[int, NDArray[np.bool_]]:
        """The clock behind the batch, and which rows are late: row by row, however rows are cut into batches."""
        clock = max(state.clock, batch.to)
        if self.delay is None or not windows.size:
            return clock, windows < state.closed
        reached = np.maximum.accumulate(np.maximum(batch.times - self.delay, clock))
        # Before each row: what the rows before it reached.
        before = np.append(clock, reached[:-1])
        return int(reached[-1]), windows < np.maximum(state.closed, self.plan.calendar.numbers(before))

    def _bound(
        self, state: WindowsState, batch: Batch, windows: Integers, counted: NDArray[np.bool_], closed: int
    ) -> tuple[NDArray[np.bool_], Integers]:
        """Which rows count once each person's are bounded, and the counts of periods that rows can still lie in."""
        if not self.who:
            return counted, state.persons
        plan = self.plan
        periods = np.zeros(windows.size, np.int64) if plan.periods is None else plan.periods.numbers(batch.times)
        found, counts = persons.bound_rows(
            state.persons,
            *(batch.digests[counted], periods[counted], windows[counted]),
            *(plan.contributions, plan.per_window),
        )
        kept = counted.copy()
        kept[counted] = found
        if plan.periods is not None:
            counts = persons.ended(counts, plan.periods.number(plan.calendar.edge(closed)))
        return kept, counts

    def _extended(self, sums: Integers, windows: int) -> Integers:
        """A copy with room for so many windows."""
        try:
            self.plan.check_cells(windows, self.table.size)
        except ParameterError:
            raise DataError(
                "a time lies too far behind the first open window: expected at most 2 * 10^8 open windows and keys, "
                "so that they fit into memory (move the clock with advance)"
            ) from None
        wide: Integers = np.zeros((sums.shape[0], max(windows, sums.shape[1]), sums.shape[2]), np.int64)
        wide[:, : sums.shape[1]] = sums
        return wide

    def _emit(self, first: int, closed: int, columns: dict[str, NoisySums], key: Key, late: int) -> WindowSums:
        """What the closed windows release."""
        plan = self.plan
        if late:
            # How many is private.
            log.info("late rows dropped: Windows.late counts them")
        if closed > first:
            log.info("%d windows of %s closed", closed - first, self.every)
        return WindowSums(
            kind=self.kind,
            edges=plan.calendar.edges(first, closed),
            time_zone=self.time_zone,
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
        """The state for a copy: chains of its own key."""
        own = key.within("behind", state.chains.tobytes())
        return dataclasses.replace(state, chains=self.start(own).chains)

    def check_indices(self, state: WindowsState) -> None:
        """ValueError unless the state has the shape of this machine's."""
        like, calendar = self.start(Key(bytes(32), simulated=True)), self.plan.calendar
        expect(state.sums, np.empty((like.sums.shape[0], state.sums.shape[1], like.sums.shape[2]), np.int64))
        expect(state.chains, like.chains)
        expect(state.persons, np.empty((len(state.persons), persons.WIDTH), np.int64))
        if min(state.n_seen, state.late) < 0 or state.closed < like.closed or state.clock < like.clock:
            raise ValueError("a position out of range")
        if calendar.number(min(state.clock, LAST)) > state.closed:
            raise ValueError("a clock behind an open window")


def _no_persons() -> Integers:
    return np.empty((0, 2), np.int64)


def _same_length(name: str, found: int, n: int) -> None:
    if found != n:
        raise DataError(f"{name} has {found} entries: expected {n}, one for each of times")


def _text(value: Any) -> Any:
    """A public point in time, or a length, as text that a state file holds; anything else as it is."""
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, np.datetime64):
        return str(value)
    return f"{value // MICROSECOND}us" if isinstance(value, timedelta) else value


class Windows(Publisher[WindowsState]):
    """Totals, counts or means of windows online: a window is released when the clock passes its end.

    Parameters
    ----------
    every : str or timedelta
        Length of the windows, as for :func:`fastdp.totals`.
    epsilon : float
        Privacy loss for one unit (by default one row) over everything that is ever released.
    start : datetime, date or ISO text
        Where the first window begins; rows before it are late.
    bound : float or (float, float), optional
        What values are clipped to, public: from 0, or from a lower end.
    counts : bool
        True: rows are counted, and there is no bound.
    means : bool
        True: means in place of totals.
    by : str or list of str, optional
        Names of the key columns.
    keys : list or mapping
        The keys that are released: texts, whole numbers or bools.  Rows with other keys are dropped.
    lateness : str or timedelta, optional
        A fixed length ("10min"): the clock stands at the latest time seen, less this.  By default :meth:`advance`
        alone moves it.  The latest time seen is then public knowledge, and whether a row is late depends on it.
    contributions, period, per_window
        As for :func:`fastdp.totals`.
    who : bool
        True: each row comes with its person, whose rows beyond the bounds are dropped.
    origin, time_zone, resolution, nonfinite, seed, key
        As for :func:`fastdp.totals`.

    Notes
    -----
    Privacy: as of :func:`fastdp.totals`; a late row changes nothing that is released.  Rows cut into other batches
    give the same output, bit for bit, and so does ``fastdp.totals`` with the same key and parameters on a table of
    rows that are not late.  State files, copies, replays: ``docs/state.md``.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> windows = fastdp.Windows("1h", epsilon=1.0, bound=10.0, start="2024-05-01", seed=1)
    >>> times = np.arange("2024-05-01T00:00", "2024-05-01T03:00", 60, "datetime64[s]")
    >>> windows.add(times, np.full(times.size, 2.0)).sums.edges.size
    1
    >>> windows.advance("2024-05-01T02:30").sums.edges.size
    3
    """

    _MACHINE: ClassVar[Any] = WindowsMachine
    _machine: WindowsMachine
    #: The library that the last rows came from.
    _family = "pyarrow"

    def __init__(
        self,
        every: Any,
        epsilon: float,
        start: Any,
        bound: Any = None,
        *,
        counts: bool = False,
        means: bool = False,
        by: Any = None,
        keys: Any = None,
        lateness: Any = None,
        contributions: int = 1,
        period: Any = None,
        per_window: int | None = None,
        who: bool = False,
        origin: Any = None,
        time_zone: str | None = None,
        resolution: float | None = None,
        nonfinite: Nonfinite = "raise",
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        counting, averaging = validation.flag("counts", counts), validation.flag("means", means)
        if counting and (averaging or bound is not None):
            raise ParameterError("counts = True: expected neither means=True nor a bound, because rows are counted")
        if (keys is None and by is not None) or isinstance(keys, str):
            raise ParameterError("keys: expected the list of keys, because windows close before all rows are there")
        if lateness is not None and not parse_length("lateness", _text(lateness))[1]:
            raise ParameterError(f"lateness = {validation.shown(lateness)}: expected a fixed length such as '10min'")
        if start is None:
            raise ParameterError("start = None: expected where the first window begins, such as '2024-05-01'")
        machine = WindowsMachine(
            kind="counts" if counting else "means" if averaging else "totals",
            every=_text(every),
            epsilon=epsilon,
            begin=_text(start),
            bound=list(bound) if isinstance(bound, tuple) else bound,
            resolution=resolution,
            by=by,
            keys=keys,
            origin=_text(origin),
            time_zone=time_zone,
            contributions=contributions,
            period=_text(period),
            per_window=per_window,
            who=validation.flag("who", who),
            lateness=_text(lateness),
            nonfinite=nonfinite,
        )
        plan = machine.plan
        # As a state file holds them.
        listed = [list(row) if len(plan.by) > 1 else row[0] for row in plan.keys] if plan.by else None
        named = list(names_of("by", by)) if plan.by else None
        machine = dataclasses.replace(machine, by=named, keys=listed)
        self._begin(machine, Key.choose(seed, key).bind("Windows", machine.plan.composition()))

    @property
    def guarantee(self) -> Guarantee:
        """Of everything that is ever released."""
        return self._machine.guarantee(self._key)

    @property
    def n_seen(self) -> int:
        """Calls so far that added rows or moved the clock: after a restart, where the input goes on."""
        return self._state.n_seen

    @property
    def late(self) -> int:
        """Rows so far that came after their window was closed: for the operator, never to be published."""
        return self._state.late

    @single_caller
    def add(self, times: Any, values: Any = None, keys: Any = None, persons: Any = None) -> Table:
        """Add rows; gives the windows that they close (with ``lateness``), with no rows if there are none.

        Parameters
        ----------
        times : array-like of datetimes or dates, [n]
            In any order.
        values : array-like of numbers, [n], optional
            What is summed; None for counts.
        keys : array-like, [n], or mapping of column names to them, optional
            With ``by``.
        persons : array-like, [n], optional
            With ``who=True``.

        Raises
        ------
        DataError
            For rows that are not accepted; nothing is consumed then.
        """
        home = type(times).__module__.partition(".")[0]
        self._family = home if home in ("pandas", "polars") else "pyarrow"
        return self._table(self._machine.read(times, values, keys, persons, None))

    @single_caller
    def advance(self, to: Any) -> Table:
        """Move the public clock to a datetime, date or ISO text, and release the windows that end up to there."""
        return self._table(self._machine.read(None, None, None, None, to))

    def _table(self, batch: Batch) -> Table:
        sums: WindowSums = self._call(batch)
        return Table(dataclasses.replace(sums, family=self._family))
