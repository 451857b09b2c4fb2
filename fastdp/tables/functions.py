"""``fastdp.aggregate``, ``totals``, ``counts`` and ``means``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypedDict

import numpy as np

from fastdp import validation
from fastdp.data.source import Source, arrow_type, check_types, open_source
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Bounds, Duration, Frame, Integers, Keys
from fastdp.ledger import Ledger
from fastdp.ledger.ledger import charge, stream_key
from fastdp.noise.draws import noise_distribution
from fastdp.noise.key import Key
from fastdp.tables import choices, columns
from fastdp.tables.arguments import PrivateKeys, Value, entries_of, make_plan, names_of, statistics_of
from fastdp.tables.beyond import count_tail, tail_edges
from fastdp.tables.calendar import Time
from fastdp.tables.keys import choose_keys
from fastdp.tables.persons import Kept, PersonRows, check_finite, read_rows
from fastdp.tables.plan import MOST_ROWS, Clips, TablePlan
from fastdp.tables.sums import (
    FIRST_SUMS,
    ROWS,
    CellRows,
    Number,
    Quantity,
    Released,
    RowNumbers,
    drawn,
    exact_sums,
    release,
)
from fastdp.tables.table import Table
from fastdp.units import ONE_ROW, Column, Person, Unit

NO_ROWS = "frame has no rows: expected time=fastdp.Time(..., start=, stop=), because it has no first and last window"


class Secrets(TypedDict):
    """Arguments about noise and ledger."""

    seed: int | str | None
    key: Key | bytes | None
    ledger: Ledger | None
    stream: str | None


def aggregate(
    frame: Frame,
    statistics: Mapping[str, str | Sequence[str]],
    time: str | Time | None = None,
    every: Duration | None = None,
    by: str | Sequence[str] | None = None,
    keys: Keys | PrivateKeys | None = None,
    *,
    epsilon: float,
    unit: Unit = ONE_ROW,
    bounds: Mapping[str, Bounds | Value] | Bounds | Value | None = None,
    delta: float = 0.0,
    levels: bool | None = None,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
    ledger: Ledger | None = None,
    stream: str | None = None,
) -> Table:
    """Private statistics of a table's columns, by window of time and by key, from one budget.

    Parameters
    ----------
    frame : table
        A data frame of pandas, polars or pyarrow, a polars LazyFrame, a DuckDB relation, an Arrow stream, the path of
        a Parquet or CSV file, or an engine's table (:func:`fastdp.engines.spark.table`,
        :func:`fastdp.engines.dask.table`). Rows may be in any order; lazy tables and files are read in batches.
    statistics : dict of str to str or list of str
        "sum", "mean", "var" (of the rows, without Bessel's correction), "std", "median", percentiles such as "p95",
        and "nunique" (distinct entries) of each column; "*": "count", the number of rows.
    time : str or Time, optional
        The column of times (dates, datetimes of one time zone or none, ISO texts), with ``every``; or a
        :class:`fastdp.Time`.  By default there is one number for all rows.
    every : str or timedelta, optional
        Length of the windows, where ``time`` is a column: "15min", "1h", "1d" and others.
    by : str or list of str, optional
        Key columns: every key has a number in every window.
    keys : list, mapping, "public", PrivateKeys or None
        Released keys: entries, or tuples for several columns, or a mapping of each column to a list, for all
        combinations.  Rows with other keys are dropped.  "public": those of all rows, on your word that they are no
        secret. :class:`fastdp.PrivateKeys`, or None with ``delta``: chosen privately.
    epsilon : float
        Privacy loss for one unit over everything that is released.
    unit : Rows or Person
        Rows that one person may change: :class:`fastdp.Rows` or :class:`fastdp.Person`; by default one row.  With a
        Person four hundredths of the budget are for numbers of rows that count and that are dropped
        (:attr:`Table.dropped_rows`).
    bounds : dict, number, pair or Value
        Public bound of each column of values: a number, from 0, a pair (low, high), or a :class:`fastdp.Value`; of a
        single column alone.  Without a clip, 8 percent of the column's budget choose it, at both ends of a pair, for
        sums of a day of shorter windows, of a week of days, else of a year.  As much, or a hundredth beside a given
        clip, is for numbers of rows beyond it (:attr:`Table.clipped_rows`).
    delta : float
        Above 0, with ``by`` and without ``keys``: private keys, whose noisy count of rows (with a Person, sum of
        weights) passes a threshold that a unit's own keys pass with probability at most ``delta``.  Above 0
        otherwise: Gaussian noise where its variance is smaller, and an (epsilon, delta)-DP release.
    levels : bool, optional
        True: totals of all keys, of each prefix of ``by``, and over all windows are measured too
        (:meth:`Table.level`), about equally accurate.  By default where a cell's variance grows by at most a tenth;
        False: never.  All numbers add up.
    seed, key
        As for :func:`fastdp.release`.
    ledger : Ledger, optional
        Reserves the release before a row is read.
    stream : str, optional
        The table's name, which a ledger needs.  Under one key, other names get independent noise; without a name
        tables share it up to the first sum in which they differ.

    Warns
    -----
    AccuracyWarning
        By released numbers: too few rows to choose a clip well, most rows beyond it, a clip next to nothing, or more
        than a tenth of persons' rows dropped.

    Raises
    ------
    ParameterError, DataError
        For an argument that is not accepted.  Parameters, names and types are checked before a ledger records; an
        error about rows leaves the budget spent.
    BudgetError
        If the ledger's limit leaves too little, or an entry has the same noise.

    Notes
    -----
    Privacy: each row is in one window and key, whose integer sums get exact discrete Laplace or Gaussian noise, bound
    to them: the same secret, parameters and rows give the same output, altered rows independent noise from the first
    sum that differs. Proof: ``docs/tables.md``, "Proofs".  Columns and their sums divide the budget by weight; all
    means share the number of rows. A window without rows is released as any other.

    Examples
    --------
    >>> import pandas as pd, fastdp
    >>> frame = pd.DataFrame({"at": pd.date_range("2024-05-01", periods=96, freq="30min"), "kwh": 0.4, "euro": 2.0})
    >>> wanted = {"kwh": ["sum", "mean"], "euro": "mean", "*": "count"}
    >>> bounds = {"kwh": fastdp.Value(clip=2.0), "euro": fastdp.Value(clip=5.0)}
    >>> table = fastdp.aggregate(frame, wanted, "at", "1d", epsilon=1.0, bounds=bounds, seed=1)
    >>> len(table), table.names
    (2, ['kwh_sum', 'kwh_mean', 'euro_mean', 'count'])
    """
    secret = stream_key(Key.choose(seed, key), stream)
    asked, named = statistics_of(statistics), names_of("by", by)
    time = _timed(time, every)
    entries = entries_of(asked)
    values = list(dict.fromkeys(each.column for each in asked if each.column not in (ROWS, *entries)))
    names = [*named, *([unit.column] if isinstance(unit, Person) else []), *entries]
    source = open_source(frame, [*([] if time is None else [time.column]), *values, *names], names)
    how = None if time is None else "unit" if time.unit else "format" if time.format else None
    zone = check_types(source, None if time is None else time.column, values, names, how)
    timed = None if time is None else replace(time, zone=time.zone or zone)
    plan = make_plan(
        *(asked, timed), epsilon=epsilon, unit=unit, bounds=bounds, by=by, keys=keys, delta=delta, levels=levels
    )
    released = TableRelease(plan, source, secret.bind(plan))
    released.check()
    mechanism = {"class": "aggregate", "parameters": plan.describe()}
    with charge(released, ledger, stream, mechanism=mechanism):
        return Table(released.run())


def _timed(time: str | Time | None, every: Duration | None) -> Time | None:
    """A :class:`Time`; ParameterError unless exactly one argument gives the length."""
    if time is None:
        if every is not None:
            raise ParameterError(f"every = {validation.shown(every)}: expected None, or the column of times (time=)")
        return None
    if not isinstance(time, Time):
        if every is None:
            raise ParameterError("every = None: expected the length of the windows, such as '1h', or a fastdp.Time")
        return Time(Column().check("time", time), every)
    if every is not None:
        raise ParameterError(f"every = {validation.shown(every)}: expected None, because time is a fastdp.Time")
    return time


def totals(
    frame: Frame,
    value: str,
    time: str | Time | None = None,
    every: Duration | None = None,
    by: str | Sequence[str] | None = None,
    keys: Keys | PrivateKeys | None = None,
    *,
    epsilon: float,
    unit: Unit = ONE_ROW,
    bound: Bounds | Value | None = None,
    clip: Bounds | None = None,
    delta: float = 0.0,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
    ledger: Ledger | None = None,
    stream: str | None = None,
) -> Table:
    """Private totals of a column by window of time, and by key: :func:`aggregate` of its sums, of cells alone.

    Parameters
    ----------
    value : str
        The column that is summed: numbers.
    bound : float, (float, float) or Value
        Its public bound, as for :class:`fastdp.Value`.
    clip : float or (float, float), optional
        Publicly known ends to which values are clipped.
    others
        As for :func:`aggregate`.

    Examples
    --------
    >>> import pandas as pd, fastdp
    >>> frame = pd.DataFrame({
    ...     "at": pd.date_range("2024-05-01", periods=96, freq="30min"), "meter": ["a", "b"] * 48, "kwh": 0.4
    ... })
    >>> table = fastdp.totals(frame, "kwh", "at", "1h", by="meter", keys=["a", "b"], epsilon=1.0, clip=2.0, seed=1)
    >>> table.guarantee.unit
    'one row of the table'
    """
    wanted, bounds = {Column().check("value", value): "sum"}, _value(bound, clip)
    given = frame, wanted, time, every, by, keys
    secrets: Secrets = {"seed": seed, "key": key, "ledger": ledger, "stream": stream}
    return aggregate(*given, epsilon=epsilon, unit=unit, bounds=bounds, delta=delta, levels=False, **secrets)


def counts(
    frame: Frame,
    time: str | Time | None = None,
    every: Duration | None = None,
    by: str | Sequence[str] | None = None,
    keys: Keys | PrivateKeys | None = None,
    *,
    epsilon: float,
    unit: Unit = ONE_ROW,
    delta: float = 0.0,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
    ledger: Ledger | None = None,
    stream: str | None = None,
) -> Table:
    """Private numbers of rows by window of time, and by key: :func:`aggregate` of ``{"*": "count"}``.

    Examples
    --------
    >>> import pandas as pd, fastdp
    >>> frame = pd.DataFrame({"at": pd.date_range("2024-05-01", periods=96, freq="30min")})
    >>> table = fastdp.counts(frame, "at", "1h", epsilon=1.0, seed=1)
    >>> len(table)
    48
    """
    given = frame, {ROWS: "count"}, time, every, by, keys
    secrets: Secrets = {"seed": seed, "key": key, "ledger": ledger, "stream": stream}
    return aggregate(*given, epsilon=epsilon, unit=unit, delta=delta, levels=False, **secrets)


def means(
    frame: Frame,
    value: str,
    time: str | Time | None = None,
    every: Duration | None = None,
    by: str | Sequence[str] | None = None,
    keys: Keys | PrivateKeys | None = None,
    *,
    epsilon: float,
    unit: Unit = ONE_ROW,
    bound: Bounds | Value | None = None,
    clip: Bounds | None = None,
    delta: float = 0.0,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
    ledger: Ledger | None = None,
    stream: str | None = None,
) -> Table:
    """Private means of a column by window of time, and by key: :func:`aggregate` of its means.

    Parameters as of :func:`totals`.  .4 of the column's budget is for the number of rows, .6 for the sum of
    deviations from the middle of the clip.

    Examples
    --------
    >>> import pandas as pd, fastdp
    >>> frame = pd.DataFrame({"at": pd.date_range("2024-05-01", periods=2000, freq="1min"), "kwh": 0.4})
    >>> table = fastdp.means(frame, "kwh", "at", "1d", epsilon=1.0, clip=2.0, seed=1)
    >>> abs(float(table.mean(0, 1)[0]) - 0.4) < 0.1
    True
    """
    wanted, bounds = {Column().check("value", value): "mean"}, _value(bound, clip)
    given = frame, wanted, time, every, by, keys
    secrets: Secrets = {"seed": seed, "key": key, "ledger": ledger, "stream": stream}
    return aggregate(*given, epsilon=epsilon, unit=unit, bounds=bounds, delta=delta, levels=False, **secrets)


def _value(bound: Bounds | Value | None, clip: Bounds | None) -> Value:
    """A :class:`Value`; ParameterError if bound and clip are in the bound."""
    if not isinstance(bound, Value):
        return Value(bound, clip)
    if clip is not None:
        raise ParameterError(f"clip = {validation.shown(clip)}: expected None, because bound is a fastdp.Value")
    return bound


# A table, read once or twice, to noisy sums.

#: Reads the rows that count once more.
Reads = Callable[[], Iterator[CellRows]]
#: Bytes of coded rows that are kept for a second reading.
MOST_HELD = 2**28
#: An end of a range, in steps, beyond all values.
FAR = 2**50


class _Persons(NamedTuple):
    """Rows of persons that count, sums of weights for each key if it is chosen by them, the rows' released number."""

    kept: Kept
    weights: Integers | None
    counted: Number


@dataclass(frozen=True)
class TableRelease:
    """One release under the key of its composition, with the facts for a ledger."""

    plan: TablePlan
    source: Source
    key: Key

    @cached_property
    def _keys(self) -> columns.Keys:
        """The given keys, or none yet."""
        return columns.Keys(self.plan.by, self.plan.keys if self.plan.key_rule == "given" else None)

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of everything that the release shows."""
        return self.plan.budget.guarantee(simulated=self.key.simulated)

    @property
    def noise_fingerprint(self) -> str | None:
        """Fingerprint of the key; None in a simulation."""
        return None if self.key.simulated else self.key.fingerprint()

    def check(self) -> None:
        """Refuse, before rows are read, wrong types of keys, choices on an engine, windows of no rows."""
        plan = self.plan
        if plan.key_rule == "given":
            for name in plan.by:
                if (type_of := arrow_type(self.source, name)) is not None:
                    self._keys.check_type(name, type_of)
        if self.source.add is not None and any(q.counts for q in plan.quantities()):
            raise ParameterError("statistics: expected no quantiles and no nunique, because an engine adds up sums")
        if self.source.add is not None and not (plan.is_public and plan.who is None):
            raise ParameterError(
                "expected Time(start=, stop=), keys= where there is by=, clip= (or two bounds) of each column, no "
                "Person: on an engine windows, keys and clips are public"
            )
        if self.source.rows == 0 and (plan.start is None or plan.stop is None):
            raise DataError(NO_ROWS)

    def run(self) -> Released:
        """Released sums; the table is read once, or twice for windows, keys or clip."""
        plan, keys = self.plan, self._keys
        if self.source.add is not None:
            settled = plan.settled(plan.start or 0, plan.stop or 0, *keys.sizes)
            return self._release(settled, keys, None, None, {})
        ends = _Ends(plan)
        if plan.who is not None:
            return self._of_persons(keys, ends)
        source = self.source if plan.is_public else self.source.twice()
        read = _Coded(lambda: (each.rows for each in read_rows(source, plan, keys, ends.see)))
        return self._choose(keys, ends, read.once if plan.is_public else read.again, None)

    def _of_persons(self, keys: columns.Keys, ends: _Ends) -> Released:
        """Released sums of bounded persons, perhaps by a chosen number."""
        plan, key, found = self.plan, self.key, PersonRows(self.plan, self.key, self.source.rows)
        for batch in read_rows(self.source, plan, keys, ends.see, found.persons):
            found.add(batch, keys.words()[batch.rows.codes])
        first, last = ends.found()
        plan.check_cells(last - first, 1)
        if plan.chooses_rows:
            budget = plan.budget.helper("dropped"), plan.noise, plan.budget.helper("auto")
            rows = choices.choose_rows(found.totals(), MOST_ROWS, *budget, key)
            # Noise for other numbers of rows shares no word.
            plan, key = replace(plan, chosen_rows=rows), key.within("auto rows", rows)
        weights = None
        if plan.key_rule == "private":
            weights = found.weights(keys.words(), plan.budget.key_rule(), self.key)
        own, kept = replace(self, plan=plan, key=key), found.kept(plan)
        persons = _Persons(kept, weights, own._counted(plan, kept.rows.codes.size))
        return own._choose(keys, ends, lambda: iter((kept.rows,)), persons)

    def _choose(self, keys: columns.Keys, ends: _Ends, read: Reads, persons: _Persons | None) -> Released:
        """Released sums, with windows, keys and clips from a first reading unless they are public."""
        plan, counts = self.plan, np.zeros(0, np.int64)
        if plan.is_public:
            settled = plan.settled(plan.start or 0, plan.stop or 0, *keys.sizes)
            return self._release(settled, keys, read(), persons, {})
        counters = {column.name: choices.ValueCounts((column.low, column.high)) for column in plan.chooses}
        for rows in read():
            counted = (rows.codes >= 0) & plan.has(rows.windows)
            seen = np.bincount(rows.codes[counted], minlength=keys.size)
            counts = seen + np.pad(counts, (0, seen.size - counts.size))
            for place, column in enumerate(plan.columns):
                if column.chooses:
                    values = rows.values[place] if counted.all() else rows.values[place][counted]
                    check_finite(values)
                    if persons is None:
                        counters[column.name].observe(values)
                    else:
                        counters[column.name].weigh(values, persons.kept.sizes[counted])
        numbers: Integers | None = None
        published = None
        if plan.key_rule in ("public", "private"):
            counts = np.pad(counts, (0, keys.size - counts.size))
            noisy, chosen = counts, np.ones(keys.size, np.bool_)
            if plan.key_rule == "private":
                exact = counts if persons is None or persons.weights is None else persons.weights
                exact = np.where(keys.missing(), 0, exact) if plan.has_others else exact
                noisy, chosen = choose_keys(exact, keys, plan.budget.key_rule(), self.key)
            keys, numbers = keys.chosen(chosen, others=plan.has_others)
            if plan.selects_cells:
                published = np.empty(keys.size, np.int64)
                published[numbers[chosen]] = noisy[chosen]
                if plan.has_others:
                    given = plan.contributions, plan.budget.helper("others"), plan.noise, self.key.within("others")
                    published[-1] = int(choices.noisy_number(int(counts[~chosen].sum()), *given).value)
        plan = plan.settled(*ends.found(), *keys.sizes)
        clips: dict[str, tuple[float, float]] = {}
        for column in plan.chooses:
            task = plan.budget.task(column.name)
            number = None if persons is None else persons.counted
            clip = choices.choose_clip(task, counters[column.name], self._key_of(plan, column.name), number)
            plan = replace(plan, spent={**plan.spent, column.name: clip.epsilon})
            clips[column.name] = clip.low, clip.high
        again = read() if numbers is None else (rows._replace(codes=numbers[rows.codes]) for rows in read())
        return self._release(plan, keys, again, persons, clips, published)

    def _key_of(self, plan: TablePlan, column: str) -> Key:
        return self.key.within("column", plan.place(column))

    def _release(
        self,
        plan: TablePlan,
        keys: columns.Keys,
        rows: Iterator[CellRows] | None,
        persons: _Persons | None,
        clips: Clips,
        published: Integers | None = None,
    ) -> Released:
        """Exact sums of windows and keys, and noisy ones; `published` counts have noise."""
        span, budget = (plan.start or 0, plan.stop or 0), plan.budget
        quantities = plan.quantities(clips)
        beyond = _Beyond(plan, [q for q in quantities if q.name in FIRST_SUMS], rows is None)
        if rows is None:
            assert self.source.add is not None  # noqa: S101 - an engine adds
            sums = self.source.add(plan, [*quantities, *beyond.quantities])
            beyond.take([int(each.sum()) for each in sums[len(quantities) :]])
            exact = [sums[: len(quantities)]]
        else:
            exact = exact_sums(beyond.watched(rows), quantities, plan, keys.size)
        tails, row_numbers = {}, None
        if budget.helper("counted"):
            counted = self._counted(plan, beyond.rows) if persons is None else persons.counted
            tails = {
                q.column: choices.release_tail(
                    budget.task(q.column), q.ends, edges, counts, counted, self._key_of(plan, q.column)
                )
                for q, edges, counts in zip(beyond.firsts, beyond.edges, beyond.counts, strict=True)
            }
            if persons is not None:
                row_numbers = RowNumbers(counted, self._dropped(plan, persons.kept.dropped, counted))
        measured = release(budget, quantities, exact, self.key, span, keys, published)
        found = plan.released(span, keys, measured, tails, simulated=self.key.simulated)
        selection = budget.key_rule() if plan.selects_cells else None
        others = None
        if budget.helper("others"):
            others = drawn(noise_distribution(plan.noise, plan.contributions, 1, budget.helper("others")))
        return replace(found, family=self.source.family, rows=row_numbers, selection=selection, others=others)

    def _counted(self, plan: TablePlan, rows: int) -> Number:
        """Released number of rows that count."""
        given = plan.contributions, plan.budget.helper("counted"), plan.noise, self.key
        return choices.release_counted(rows, *given)

    def _dropped(self, plan: TablePlan, dropped: int, counted: Number) -> Number:
        """Released number of persons' rows that are dropped."""
        where = "a larger rows=, or a per=" + ("" if plan.periods is None else f" shorter than {plan.periods.every}")
        given = plan.contributions, plan.budget.helper("dropped"), plan.noise, self.key, where
        return choices.release_dropped(dropped, counted, *given)


class _Coded:
    """Rows that count, which a second reading has from memory if they fit."""

    def __init__(self, once: Reads) -> None:
        self.once, self._held = once, list[CellRows]()

    def again(self) -> Iterator[CellRows]:
        """The rows of one of several readings."""
        if self._held:
            yield from self._held
            return
        held, size = list[CellRows](), 0
        for rows in self.once():
            size += sum(part.nbytes for part in rows)
            if size <= MOST_HELD:
                held.append(rows)
            yield rows
        self._held = held if size <= MOST_HELD else []


class _Beyond:
    """Exact numbers of rows in released cells, and in bins beyond each column's clip (on engines one at each end)."""

    def __init__(self, plan: TablePlan, firsts: list[Quantity], on_engine: bool) -> None:
        self._plan, self.firsts, self.rows = plan, firsts, 0
        bounds = [None if on_engine else plan.column(q.column).bound for q in firsts]
        self.edges = [tail_edges(q.ends, bound) for q, bound in zip(firsts, bounds, strict=True)]
        self.counts: list[Integers] = [np.zeros(low.size + high.size - 2, np.int64) for low, high in self.edges]

    def watched(self, batches: Iterator[CellRows]) -> Iterator[CellRows]:
        plan = self._plan
        places = [plan.place(q.column) for q in self.firsts]
        for rows in batches:
            if places:
                counted = (rows.codes >= 0) & plan.has(rows.windows)
                self.rows += int(np.count_nonzero(counted))
                for place, edges, counts in zip(places, self.edges, self.counts, strict=True):
                    counts += count_tail(rows.values[place][counted], edges)
            yield rows

    @property
    def quantities(self) -> list[Quantity]:
        """Sums of an engine: rows below and above each clip, and all."""
        found = []
        for q in self.firsts:
            found += [replace(q, name="beyond", high=FAR), replace(q, name="beyond", low=-FAR)]
        return [*found, *([Quantity("count")] if found else [])]

    def take(self, sums: list[int]) -> None:
        if sums:
            *beyond, self.rows = sums
            self.counts = [np.array(pair, np.int64) for pair in zip(beyond[::2], beyond[1::2], strict=True)]


class _Ends:
    """Range of all times, and windows from public ends or it."""

    def __init__(self, plan: TablePlan) -> None:
        self._plan = plan
        self._ends: list[int] = []

    def see(self, times: Integers) -> None:
        """Extend the range of times."""
        if times.size:
            both = [*self._ends, int(times.min()), int(times.max())]
            self._ends = [min(both), max(both)]

    def found(self) -> tuple[int, int]:
        """Numbers of the first window and after the last; DataError without rows."""
        plan, calendar = self._plan, self._plan.calendar
        if calendar is None or (plan.start is not None and plan.stop is not None):
            return plan.start or 0, plan.stop or 0
        if not self._ends:
            raise DataError(NO_ROWS)
        first = calendar.number(self._ends[0]) if plan.start is None else plan.start
        last = calendar.number(self._ends[1]) + 1 if plan.stop is None else plan.stop
        return first, max(first, last)
