"""``fastdp.aggregate``, ``totals``, ``counts`` and ``means``, and their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from fastdp import validation
from fastdp.data.calendar import Calendar, Time
from fastdp.data.source import check_column_types, open_source, time_zone_of
from fastdp.errors import ParameterError, argument
from fastdp.guarantee import Account, charge
from fastdp.kinds import Bounds, Duration, Frame, Json, Keys
from fastdp.noise.key import Key, stream_key
from fastdp.tables.arguments import PrivateKeys, Value, keys_of, names_of
from fastdp.tables.paths import with_path
from fastdp.tables.plan import MOST_ROWS, TablePlan, column_plans
from fastdp.tables.quantities import ROWS
from fastdp.tables.release import TableRelease
from fastdp.tables.shares import MAX_ROWS, Shares, shares_of, with_noise
from fastdp.tables.statistics import Statistic, columns_of, statistics_of
from fastdp.tables.table import Table
from fastdp.units import ONE_ROW, Unit, as_name
from fastdp.validation import refusal


def make_plan(statistics: Sequence[Statistic], time: Time | None, **given: Any) -> TablePlan:
    """Plan of a release, checked, without reading the table."""
    return make_shares(statistics, time, **given).plan


def make_shares(
    statistics: Sequence[Statistic],
    time: Time | None,
    *,
    epsilon: float,
    unit: Unit = ONE_ROW,
    bounds: object = None,
    by: str | Sequence[str] | None = None,
    keys: Keys | PrivateKeys | None = None,
    delta: float = 0.0,
    levels: bool | None = False,
) -> Shares:
    """Plan and shares of a release, checked, without its table."""
    unit = _checked(unit)
    epsilon, delta = validation.positive("epsilon", epsilon), validation.real("delta", delta)
    if not 0.0 <= delta < 1.0:
        raise refusal("delta", delta, "at least 0 and below 1")
    named = names_of("by", by)
    rule, rows = keys_of(named, keys, delta)
    private = None
    if rule == "private":
        private = keys if isinstance(keys, PrivateKeys) else PrivateKeys()
    calendar, periods = None, None
    first, last = (0, 1) if time is None else (None, None)
    if time is not None:
        calendar = Calendar(time.every, time.zone, time.origin)
        first = None if time.start is None else calendar.border("start", time.start)
        last = None if time.stop is None else calendar.border("stop", time.stop)
        if first is not None and last is not None and last <= first:
            raise refusal("stop", time.stop, f"a time after start = {time.start!r}")
        periods = None if unit.per is None else Calendar(unit.per, time.zone, time.origin, "per")
    elif unit.per is not None:
        raise refusal("per", unit.per, "None without windows, or the column of times")
    for each in statistics:
        if each.kind == "reach" and unit.column not in (None, each.column):
            wanted = f"reach of {unit.column!r}, the persons, or a unit of rows"
            raise refusal("statistics", {each.column: "reach"}, wanted)
    levels = None if levels is None else validation.flag("levels", levels)
    asked = tuple(statistics), column_plans(statistics, bounds), time, unit, calendar, periods, epsilon, delta
    shares = with_noise(TablePlan(*asked, named, rule, rows, private, levels, start=first, stop=last))
    plan = shares.plan
    if first is not None and last is not None:
        plan.check_cells(last - first, max(1, len(rows)))
        most = (plan.per_window or plan.contributions) * (last - first)
        if plan.periods is None and not plan.chooses_rows and plan.contributions > most:
            has = f"a person has at most {most} rows, {plan.per_window} in each of {last - first} windows"
            raise ParameterError(
                f"rows = {plan.contributions}: {has}; expected at most {most}, because noise grows with rows"
            )
    plan.check_basis()
    if plan.unit.keys is not None and not named:
        raise refusal("keys", plan.unit.keys, "None in a Person without by=, as there is one key")
    if plan.chooses_rows and not plan.bounds_rows:
        keys_of_reach = "a number, the keys in which a person counts: reach alone drops no rows to choose by"
        raise refusal("rows", "auto", keys_of_reach)
    if plan.contributions > epsilon * MAX_ROWS:
        least = f"at least {plan.contributions / MAX_ROWS:.2g}: noise of {plan.contributions / epsilon:.2g} rows"
        raise refusal("epsilon", epsilon, f"{least} hides any table")
    # Noise that cannot be drawn is refused before any row is read.
    shares.check_sums()
    widest = shares
    if plan.chooses_rows:
        widest = shares_of(replace(plan, chosen_rows=MOST_ROWS))
        widest.check_sums()
    widest.check_helpers()
    return shares


def check_path(shares: Shares) -> None:
    """ParameterError for a requested calendar that does not fit."""
    plan = shares.plan
    if plan.start is not None and plan.stop is not None and plan.asks_calendar:
        with_path(shares.settled(plan.start, plan.stop, *(max(1, len(plan.keys)) for _ in range(len(plan.by) + 1))))


def _checked(unit: Unit) -> Unit:
    if not isinstance(unit, Unit):
        raise refusal("unit", unit, "fastdp.Rows(k), or fastdp.Person(column, rows=k)")
    return unit


def check_online(plan: TablePlan) -> None:
    """ParameterError unless counted rows are known as windows close."""
    if plan.key_rule == "private" and any(each.kind == "reach" for each in plan.statistics):
        raise refusal(
            "keys", plan.private, "a list of keys, as online a private key's first persons are in no number"
        )
    if plan.has_others:
        raise refusal("others", True, "False online, where a key may appear later")
    if not plan.bounds_rows:
        return
    if plan.unit.keys is not None and not plan.by_period:
        whole = argument("Person", basis="calendar", per=...)
        later = "None, because later rows of a person may be in keys of lesser hash"
        raise refusal("keys", plan.unit.keys, f"{later}, or {whole}, whose periods close as a whole")
    if plan.periods is None:
        bounded = "the period in which a person's rows are bounded, such as '1d', because windows close one by one"
        raise refusal("per", None, f"{bounded}: a number of rows for life would be used up by the first ones")
    if plan.asks_calendar:
        _check_periods(plan, plan.periods)
        return
    if plan.chooses_rows:
        raise refusal("rows", "auto", "a number, because rows that count are known as windows close")
    most, k, each = plan.windows_of_unit, plan.contributions, plan.per_window
    windows = f"a period of {plan.periods.every} has up to {most} windows of {cast('Calendar', plan.calendar).every}"
    if most > 1 and each is None:
        counted = f"the rows of a person that count in one window, such as {max(1, k // most)}"
        raise refusal("per_window", None, f"{counted}, because {windows}, which close one by one")
    needed = most * (each or 1)
    if most > 1 and k < needed:
        ways = "or a smaller per_window, longer windows, or a shorter period"
        because = f"{windows} with per_window = {each} rows of a person each"
        raise refusal("rows", k, f"at least {needed}, because {because}; {ways}")


def _check_periods(plan: TablePlan, periods: Calendar) -> None:
    calendar = cast("Calendar", plan.calendar)
    if plan.key_rule == "private":
        raise refusal("keys", plan.private, "a list of keys, because a calendar's windows close with their period")
    if not calendar.divides(periods, calendar.edge(plan.start or 0)):
        whole = f"a length whose periods begin with windows of {calendar.every}, because a calendar's windows close"
        raise refusal("per", plan.unit.per, f"{whole} with their period")
    first = periods.number(calendar.edge(plan.start or 0)) + 1
    span = (calendar.number(periods.edge(number)) for number in (first, first + 1))
    with_path(shares_of(plan.settled(*span, *(max(1, len(plan.keys)) for _ in range(len(plan.by) + 1)))))


@validation.spelled
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
    levels: bool | None = False,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
    ledger: Account | None = None,
    stream: str | None = None,
) -> Table:
    """Private statistics of a table's columns, by window of time and key, from one budget.

    Parameters
    ----------
    frame : table
        A data frame of pandas, polars or pyarrow, a LazyFrame, DuckDB relation, Arrow stream, path of Parquet or CSV
        (:class:`fastdp.Csv`), or an engine's table (:func:`fastdp.engines.spark.table`,
        :func:`fastdp.engines.dask.table`).
    statistics : dict of str to str or list of str
        "sum", "mean", "var" (without Bessel's correction), "std", "median", percentiles such as "p95", "nunique"
        (distinct entries) and "reach" (those so far) of each column; "*": "count", the number of rows.
    time : str or Time, optional
        The column of times (dates, datetimes of one time zone or none, ISO texts), with ``every``; or a
        :class:`fastdp.Time`.  None: one number for all rows.
    every : str or timedelta, optional
        Length of the windows, such as "15min", "1h" or "1d", where ``time`` is a column.
    by : str or list of str, optional
        Key columns: every key has a number in every window.
    keys : list, mapping, "public", PrivateKeys or None
        Released keys: entries, tuples for several columns, or a mapping of each column to a list, for all
        combinations.  Rows with other keys are dropped.  "public": keys of all rows, if they are no secret.
        :class:`fastdp.PrivateKeys`, or None with ``delta``: keys are chosen privately.
    epsilon : float
        Privacy loss of one unit in all.
    unit : Rows or Person
        Rows that one person may change; by default one.  A Person's counted and dropped rows
        (:attr:`Table.dropped_rows`) cost up to 6 percent of the budget.
    bounds : dict, number, pair or Value
        Public bound of each column of values: a number (from 0), a pair (low, high), or a :class:`fastdp.Value`; a
        single column needs no mapping.  Rows by size choose its clip (:attr:`Table.clipped_rows`) for 15 percent of
        its budget; the sum beyond it has 5 percent.  With a given clip rows by size have 1 percent.
    delta : float
        Above 0, noise is Gaussian where its variance is smaller.  With ``by`` and without ``keys``, keys are private:
        a key of one unit alone appears with probability at most ``delta``.
    levels : bool or None
        True: totals of all keys, of each prefix of ``by`` and over all windows are measured too
        (:meth:`Table.level`), while a cell's variance at most doubles, or (None) grows by at most a tenth; False:
        cells alone.
    seed, key
        As for :func:`fastdp.release`.
    ledger : Ledger, optional
        Reserves the release before a row is read.
    stream : str, optional
        The table's name, which a ledger needs.  Under one key, names have independent noise; tables without a name
        share it up to the first sum in which they differ.

    Warns
    -----
    AccuracyWarning
        Where released numbers show rows past the bound, noise as large as most numbers, over a tenth of persons' rows
        dropped, listed keys without rows, or windows of a wrong clock.

    Raises
    ------
    ParameterError, DataError
        For an argument that is not accepted.  Only an error about rows leaves a ledger's budget spent.
    BudgetError
        If the ledger has too little left, or an entry with the same noise.

    Notes
    -----
    Privacy: each row is in one window and key, whose integer sums get exact noise bound to them
    (``docs/tables_proofs.md``).

    Examples
    --------
    >>> import pandas as pd, fastdp
    >>> times = pd.date_range("2024-05-01", periods=96, freq="30min")
    >>> frame = pd.DataFrame({"at": times, "kwh": 0.4, "euro": 2.0})
    >>> table = fastdp.aggregate(
    ...     frame,
    ...     {"kwh": ["sum", "mean"], "euro": "mean", "*": "count"},
    ...     "at", "1d", epsilon=1.0,
    ...     bounds={name: fastdp.Value(clip=5.0) for name in ("kwh", "euro")},
    ...     seed=1,
    ... )
    >>> len(table), table.names
    (2, ['kwh_sum', 'kwh_mean', 'euro_mean', 'count'])
    """
    secret = stream_key(Key.choose(seed, key), stream)
    asked, named = statistics_of(statistics), names_of("by", by)
    time = _timed(time, every)
    values, entries = columns_of(asked)
    who = _checked(unit).column
    names = [*named, *([] if who is None else [who]), *entries]
    if time is None:
        source = open_source(frame, [*values, *names])
    else:
        source = open_source(frame, [time.column, *values, *names])
        option = "unit" if time.unit else "format" if time.format else None
        zone = time_zone_of(source, time.column, option)
        time = replace(time, zone=time.zone or zone)
    check_column_types(source, values, names)
    options: Json = {"by": by, "keys": keys, "delta": delta, "levels": levels}
    shares = make_shares(asked, time, epsilon=epsilon, unit=unit, bounds=bounds, **options)
    check_path(shares)
    released = TableRelease(shares, source, shares.plan.key(secret))
    released.check()
    mechanism = None if ledger is None else {"class": "aggregate", "parameters": shares.plan.describe()}
    with charge(released, ledger, stream, mechanism=mechanism):
        return Table(released.run())


def _timed(time: str | Time | None, every: Duration | None) -> Time | None:
    if time is None or isinstance(time, Time):
        if every is not None:
            because = (
                f"or the column of times ({argument(time=...)})" if time is None else "because time is a fastdp.Time"
            )
            raise refusal("every", every, f"None, {because}")
        return time
    if every is None:
        raise refusal("every", None, "the length of the windows, such as '1h', or a fastdp.Time")
    return Time(as_name("time", time), every)


@validation.spelled
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
    ledger: Account | None = None,
    stream: str | None = None,
) -> Table:
    """Private totals of a column by window of time and key: :func:`aggregate` of its sums, of cells alone.

    Parameters
    ----------
    value : str
        The column that is summed: numbers.
    bound : float, (float, float) or Value
        Its public bound, as for :class:`fastdp.Value`.
    clip : float or (float, float), optional
        Public ends to which values are clipped.
    others
        As for :func:`aggregate`.

    Examples
    --------
    >>> import pandas as pd, fastdp
    >>> times = pd.date_range("2024-05-01", periods=96, freq="30min")
    >>> meter = ["a", "b"] * 48
    >>> frame = pd.DataFrame({"at": times, "meter": meter, "kwh": 0.4})
    >>> table = fastdp.totals(
    ...     frame, "kwh", "at", "1h", by="meter", keys=["a", "b"],
    ...     epsilon=1.0, clip=2.0, seed=1,
    ... )
    >>> table.guarantee.unit
    'one row of the table'
    """
    wanted, bounds = {as_name("value", value): "sum"}, _value(bound, clip)
    given = frame, wanted, time, every, by, keys
    secrets: Json = {"seed": seed, "key": key, "ledger": ledger, "stream": stream}
    return aggregate(*given, epsilon=epsilon, unit=unit, bounds=bounds, delta=delta, levels=False, **secrets)


@validation.spelled
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
    ledger: Account | None = None,
    stream: str | None = None,
) -> Table:
    """Private numbers of rows by window of time and key: :func:`aggregate` of ``{"*": "count"}``.

    Examples
    --------
    >>> import pandas as pd, fastdp
    >>> times = pd.date_range("2024-05-01", periods=96, freq="30min")
    >>> frame = pd.DataFrame({"at": times})
    >>> table = fastdp.counts(frame, "at", "1h", epsilon=1.0, seed=1)
    >>> len(table)
    48
    """
    given = frame, {ROWS: "count"}, time, every, by, keys
    secrets: Json = {"seed": seed, "key": key, "ledger": ledger, "stream": stream}
    return aggregate(*given, epsilon=epsilon, unit=unit, delta=delta, levels=False, **secrets)


@validation.spelled
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
    ledger: Account | None = None,
    stream: str | None = None,
) -> Table:
    """Private means of a column by window of time and key: :func:`aggregate` of its means.

    Parameters as of :func:`totals`.  Of the budget left by persons and keys the column has .6 (.65 of rho), the rows
    the rest.

    Examples
    --------
    >>> import pandas as pd, fastdp
    >>> times = pd.date_range("2024-05-01", periods=2000, freq="1min")
    >>> frame = pd.DataFrame({"at": times, "kwh": 0.4})
    >>> table = fastdp.means(
    ...     frame, "kwh", "at", "1d", epsilon=1.0, clip=2.0, seed=1
    ... )
    >>> abs(float(table.mean(0, 1)[0]) - 0.4) < 0.1
    True
    """
    wanted, bounds = {as_name("value", value): "mean"}, _value(bound, clip)
    given = frame, wanted, time, every, by, keys
    secrets: Json = {"seed": seed, "key": key, "ledger": ledger, "stream": stream}
    return aggregate(*given, epsilon=epsilon, unit=unit, bounds=bounds, delta=delta, levels=False, **secrets)


def _value(bound: Bounds | Value | None, clip: Bounds | None) -> Value:
    if not isinstance(bound, Value):
        return Value(bound, clip)
    if clip is not None:
        raise refusal("clip", clip, "None, because bound is a fastdp.Value")
    return bound
