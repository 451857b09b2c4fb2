"""The machine of ``fastdp.Windows``: rows arrive one after the other, and a public clock closes windows."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp.arrays.column import Nonfinite, as_column, as_floats
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import Guarantee
from fastdp.randomness.key import Key
from fastdp.state.codec import expect
from fastdp.state.machine import Machine, Transition
from fastdp.tables import persons
from fastdp.tables.calendar import LAST, as_instant, parse_length
from fastdp.tables.columns import KeyTable, as_arrow, digests_of, times_of
from fastdp.tables.parameters import make_plan
from fastdp.tables.plan import TablePlan
from fastdp.tables.quantity import Quantity
from fastdp.tables.release import start_key
from fastdp.tables.rows import NOT_FINITE
from fastdp.tables.sums import Kind, NoisySums, WindowSums

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
        return Transition(after, partial(self._emit, first, closed, columns, key))

    def _clock(self, state: WindowsState, batch: Batch, windows: Integers) -> tuple[int, NDArray[np.bool_]]:
        """The clock behind the batch, and which rows are late: row by row, however rows are cut into batches."""
        clock = max(state.clock, batch.to)
        if self.delay is None or not windows.size:
            return clock, windows < state.closed
        reached = np.maximum.accumulate(np.maximum(batch.times - self.delay, clock))
        # A row never closes its own window, so it may count among those before it.
        return int(reached[-1]), windows < np.maximum(state.closed, self.plan.calendar.numbers(reached))

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
