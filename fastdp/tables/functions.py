"""``fastdp.aggregate``, ``totals``, ``counts`` and ``means``, and their arguments."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

from fastdp import validation
from fastdp.data.calendar import Calendar, Time
from fastdp.data.column import Nonfinite
from fastdp.data.source import check_column_types, open_source, time_zone_of
from fastdp.errors import ParameterError
from fastdp.guarantee import Account, charge
from fastdp.kinds import Bounds, Duration, Frame, Json, Keys
from fastdp.noise.key import Key, stream_key
from fastdp.record import Choice, Flag, Kind, Real, parameter, record
from fastdp.tables.columns import KeyRow
from fastdp.tables.plan import MOST_ROWS, ColumnPlan, KeyRule, TablePlan
from fastdp.tables.quantities import FIRST_SUMS, ROWS
from fastdp.tables.release import TableRelease
from fastdp.tables.statistics import Statistic, columns_of, needed, statistics_of
from fastdp.tables.table import Table
from fastdp.units import ONE_ROW, Person, Rows, Unit, as_name
from fastdp.validation import refusal

#: Share of the budget that the choice of keys and of a person's rows leave, at least.
LEFT = Fraction(1, 20)


@record
class Value:
    """Public bounds of a column of values, and how they are used.

    Parameters
    ----------
    bound : float or (float, float), optional
        Upper bound of a value, from 0, or both bounds, not computed from the table.
    clip : float or (float, float), optional
        Publicly known ends to which values are clipped; then ``bound`` may be omitted.  By default chosen privately
        from the rows.
    weight : float
        The column's budget relative to others'.
    nonfinite : "raise" or "zero"
        Missing values, NaN and infinity are refused, or count as 0.
    resolution : float, optional
        Step of the integer grid; by default the bound's 2^32th part, or coarser where the noise is.  A cell holds
        2^63 steps: 10^9 rows and more by default.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.Value(10.0, resolution=0.001).nonfinite
    'raise'
    """

    bound: Bounds | None = parameter(Kind(), default=None)
    clip: Bounds | None = parameter(Kind(), default=None)
    weight: float = parameter(Real(above=0.0, most=2.0**20), default=1.0)
    nonfinite: Nonfinite = parameter(Choice(("raise", "zero")), default="raise")
    resolution: float | None = parameter(Real(above=0.0, optional=True), default=None)

    def _check(self) -> None:
        given = [_ends(name, each) for name, each in (("bound", self.bound), ("clip", self.clip)) if each is not None]
        if not given:
            accepted = "a public upper bound of a value, such as bound=10.0, or (low, high)"
            raise refusal("bound", None, f"{accepted} where values may be negative")
        if given[-1][0] < given[0][0] or given[-1][1] > given[0][1]:
            raise refusal("clip", self.clip, f"a clip within bound = {validation.shown(self.bound)}")


def _ends(name: str, given: object) -> tuple[float, float]:
    if not isinstance(given, (tuple, list)):
        return 0.0, validation.positive(name, given)
    low, high = validation.ends(name, given)
    if not low < high:
        raise ParameterError(f"{name} = ({low!r}, {high!r}): expected low below high")
    return low, high


@record
class PrivateKeys:
    """Keys that are chosen privately, with ``delta``: those of the table that enough rows have.

    Parameters
    ----------
    share : float
        Share of the budget; unused where released counts of rows choose keys.
    others : bool
        Release the rows of all other keys as one more key, the last, whose entries are missing.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.PrivateKeys(share=0.3).share
    0.3
    """

    share: float = parameter(Real(above=0.0, below=1.0), default=0.25)
    others: bool = parameter(Flag(), default=False)

    @property
    def named(self) -> float | list[object]:
        """In words of a noise identity."""
        return [self.share, "others"] if self.others else self.share


def values_of(statistics: Sequence[Statistic], bounds: object) -> list[tuple[str, Value]]:
    """Columns of values with bounds; ParameterError without one, or for others."""
    names, _ = columns_of(statistics)
    if isinstance(bounds, Mapping):
        given = dict(bounds)
    elif bounds is not None and len(names) != 1:
        raise refusal("bounds", bounds, f"a mapping of {len(names)} columns with values to bounds")
    else:
        given = dict.fromkeys(names, bounds)
    if unknown := set(given) - set(names):
        raise ParameterError(f"bounds of columns without statistics: {len(unknown)}; expected those of {names}")
    for name in names:
        if given.get(name) is None:
            raise ParameterError(
                f"bounds: column {name!r} has none; expected a public upper bound of its values, such as "
                f"bounds={{{name!r}: 10.0}}, or (low, high) where they may be negative"
            )
    return [(name, each if isinstance(each := given.get(name), Value) else Value(each)) for name in names]


def names_of(name: str, given: object) -> tuple[str, ...]:
    """Column names from one, several or None; ParameterError if repeated or no text."""
    if given is None:
        return ()
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, (list, tuple)) or not all(isinstance(each, str) for each in listed):
        raise refusal(name, given, "the name of a column, or a list of names")
    if len(set(listed)) != len(listed):
        raise refusal(name, given, "each column once")
    return tuple(listed)


def keys_of(
    by: tuple[str, ...], given: Keys | PrivateKeys | None, delta: float
) -> tuple[KeyRule, tuple[KeyRow, ...]]:
    """Source of the keys, and given ones; ParameterError for conflicts."""
    if not by:
        if given is not None:
            raise ParameterError("keys: expected None without by=, the columns that they are of")
        return "none", ()
    if isinstance(given, str):
        return cast("KeyRule", validation.choice("keys", given, ("public",))), ()
    if given is None or isinstance(given, PrivateKeys):
        if delta:
            return "private", ()
        if given is not None:
            raise ParameterError("delta = 0: expected above 0, such as 1e-6, because keys are chosen privately")
        listed = f"the list of keys of {', '.join(map(repr, by))} that are released"
        public = "keys='public' if it is no secret which keys the table has"
        raise refusal("keys", None, f"{listed}, or {public}, or delta > 0 to choose them privately")
    rows = _key_rows(by, given)
    try:
        distinct, odd = len(set(rows)), any(each != each for each in itertools.chain.from_iterable(rows))
    except TypeError:
        raise ParameterError("keys: expected texts, numbers, dates or times, and no lists of them") from None
    if odd:
        raise ParameterError("keys: an entry is NaN, which equals nothing; expected None for rows without an entry")
    if not rows or distinct != len(rows):
        raise ParameterError(f"keys has {len(rows)} entries, {distinct} of them distinct: expected distinct keys")
    return "given", tuple(rows)


def _key_rows(by: tuple[str, ...], given: Keys) -> list[KeyRow]:
    if isinstance(given, Mapping):
        if set(given) != set(by):
            raise ParameterError(f"keys: expected a list for each of {', '.join(map(repr, by))}")
        return list(itertools.product(*(_plain(given[name]) for name in by)))
    listed = _plain(given)
    if len(by) == 1:
        if tuple not in set(map(type, listed)):
            return list(zip(listed, strict=True))
        return [key if isinstance(key, tuple) and len(key) == 1 else (key,) for key in listed]
    if not all(isinstance(key, (tuple, list)) and len(key) == len(by) for key in listed):
        accepted = f"tuples of {len(by)} entries, or a mapping of each column of by= to a list"
        raise ParameterError(f"keys: expected {accepted}, whose combinations are the keys")
    return [tuple(key) for key in listed]


def _plain(given: Any) -> list[Any]:
    convert = next(
        (getattr(given, name) for name in ("tolist", "to_list", "to_pylist") if hasattr(given, name)), None
    )
    try:
        return cast("list[Any]", convert() if convert else list(given))
    except TypeError:
        raise ParameterError(f"keys is a {type(given).__name__}: expected a list of keys") from None


def make_plan(
    statistics: Sequence[Statistic],
    time: Time | None,
    *,
    epsilon: float,
    unit: Unit = ONE_ROW,
    bounds: object = None,
    by: str | Sequence[str] | None = None,
    keys: Keys | PrivateKeys | None = None,
    delta: float = 0.0,
    levels: bool | None = None,
) -> TablePlan:
    """The plan of a release, checked, without reading the table."""
    if not isinstance(unit, (Rows, Person)):
        raise refusal("unit", unit, "fastdp.Rows(k), or fastdp.Person(column, rows=k)")
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
        raise refusal("per", unit.per, "None without time=, or the column of times")
    levels = None if levels is None else validation.flag("levels", levels)
    asked = tuple(statistics), _columns(statistics, bounds), time, unit, calendar, periods, epsilon, delta
    plan = TablePlan(*asked, named, rule, rows, private, levels, start=first, stop=last)
    if 1 - sum(plan.budget.of_all.values()) < LEFT:
        raise refusal("share", plan.private.share if plan.private else 1.0, "at most .9 for keys")
    plan = with_noise(plan)
    if first is not None and last is not None:
        plan.check_cells(last - first, max(1, len(rows)))
        most = (plan.per_window or plan.contributions) * (last - first)
        if plan.periods is None and not plan.chooses_rows and plan.contributions > most:
            has = f"a person has at most {most} rows, {plan.per_window} in each of {last - first} windows"
            raise ParameterError(
                f"rows = {plan.contributions}: {has}; expected at most {most}, because noise grows with rows"
            )
    # Noise that cannot be drawn is refused before any row is read.
    plan.budget.check_sums()
    widest = replace(plan, chosen_rows=MOST_ROWS).budget
    widest.check_sums()
    widest.check_helpers()
    return plan


def _columns(statistics: Sequence[Statistic], bounds: object) -> tuple[ColumnPlan, ...]:
    found = []
    for name, value in values_of(statistics, bounds):
        bound = None if value.bound is None else _ends("bound", value.bound)
        low, high = _ends("clip", value.bound if value.clip is None else value.clip)
        summed = needed(statistics, name)[0] in FIRST_SUMS
        facts = value.clip is None and summed, value.weight, value.nonfinite, value.resolution, bound
        found.append(ColumnPlan(name, low, high, *facts))
    entries = columns_of(statistics)[1]
    return *found, *(ColumnPlan(name, 0.0, 0.0, False, 1.0, "zero", None, entries=True) for name in entries)


def with_noise(plan: TablePlan) -> TablePlan:
    """The plan with the noise of less variance."""
    if not plan.delta:
        return plan
    gaussian = replace(plan, noise="gaussian")
    if gaussian.budget.log_variance() < plan.budget.log_variance():
        return gaussian
    # Laplace noise of sums needs no delta; keys that are chosen do.
    return plan if plan.key_rule == "private" else replace(plan, delta=0.0)


def check_online(plan: TablePlan) -> None:
    """ParameterError unless rows that count are known as windows close."""
    if plan.has_others:
        raise refusal("others", True, "False online, where a key may appear later")
    if plan.who is None:
        return
    if plan.chooses_rows:
        raise refusal("rows", "auto", "a number, because rows that count are known as windows close")
    if plan.periods is None:
        bounded = "the period in which a person's rows are bounded, such as '1d', because windows close one by one"
        raise refusal("per", None, f"{bounded}: a number of rows for life would be used up by the first ones")
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
    ledger: Account | None = None,
    stream: str | None = None,
) -> Table:
    """Private statistics of a table's columns, by window of time and by key, from one budget.

    Parameters
    ----------
    frame : table
        A data frame of pandas, polars or pyarrow, a polars LazyFrame, DuckDB relation, Arrow stream, path of Parquet
        or CSV, or an engine's table (:func:`fastdp.engines.spark.table`, :func:`fastdp.engines.dask.table`).
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
        combinations.  Rows with other keys are dropped. "public": those of all rows, if they are no secret.
        :class:`fastdp.PrivateKeys`, or None with ``delta``: chosen privately.
    epsilon : float
        Privacy loss for one unit over everything that is released.
    unit : Rows or Person
        Rows that one person may change: :class:`fastdp.Rows` or :class:`fastdp.Person`; by default one row.  With a
        Person four hundredths of the budget count its rows and dropped ones (:attr:`Table.dropped_rows`).
    bounds : dict, number, pair or Value
        Public bound of each column of values: a number, from 0, a pair (low, high), or a :class:`fastdp.Value`; of a
        single column alone.  Without a clip, 8 percent of the column's budget choose it; as much, or a hundredth
        beside a given clip, counts rows beyond it (:attr:`Table.clipped_rows`).
    delta : float
        Above 0, with ``by`` and without ``keys``: private keys; a key of one unit alone appears with probability at
        most ``delta``.  Otherwise: Gaussian noise where its variance is smaller.
    levels : bool, optional
        True: totals of all keys, of each prefix of ``by``, and over all windows are measured too
        (:meth:`Table.level`); by default where a cell's variance grows by at most a tenth.
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
        By released numbers: rows past the bound or most beyond the clip, noise as large as the number, over a tenth
        of persons' rows dropped, listed keys without rows, or windows of a wrong clock.

    Raises
    ------
    ParameterError, DataError
        For an argument that is not accepted.  An error about rows leaves a ledger's budget spent; earlier checks do
        not.
    BudgetError
        If the ledger's limit leaves too little, or an entry has the same noise.

    Notes
    -----
    Privacy: each row is in one window and key, whose integer sums get exact noise bound to them (``docs/tables.md``,
    "Proofs").

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
    names = [*named, *([unit.column] if isinstance(unit, Person) else []), *entries]
    if time is None:
        source = open_source(frame, [*values, *names], names)
    else:
        source = open_source(frame, [time.column, *values, *names], names)
        option = "unit" if time.unit else "format" if time.format else None
        zone = time_zone_of(source, time.column, option)
        time = replace(time, zone=time.zone or zone)
    check_column_types(source, values, names)
    options: Json = {"by": by, "keys": keys, "delta": delta, "levels": levels}
    plan = make_plan(asked, time, epsilon=epsilon, unit=unit, bounds=bounds, **options)
    released = TableRelease(plan, source, secret.bind(plan))
    released.check()
    mechanism = {"class": "aggregate", "parameters": plan.describe()}
    with charge(released, ledger, stream, mechanism=mechanism):
        return Table(released.run())


def _timed(time: str | Time | None, every: Duration | None) -> Time | None:
    if time is None or isinstance(time, Time):
        if every is not None:
            because = "or the column of times (time=)" if time is None else "because time is a fastdp.Time"
            raise refusal("every", every, f"None, {because}")
        return time
    if every is None:
        raise refusal("every", None, "the length of the windows, such as '1h', or a fastdp.Time")
    return Time(as_name("time", time), every)


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
    """Private numbers of rows by window of time, and by key: :func:`aggregate` of ``{"*": "count"}``.

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
    """Private means of a column by window of time, and by key: :func:`aggregate` of its means.

    Parameters as of :func:`totals`.  .4 of the column's budget is for the number of rows, .6 for the sum of
    deviations from the middle of the clip.

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
