"""``fastdp.totals``, ``fastdp.counts`` and ``fastdp.means``: private sums of a table by window and key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, ParamSpec, cast

import numpy as np

from fastdp import validation
from fastdp.data.source import Source, arrow_type, check_types, open_source
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Bounds, Duration, Frame, Integers, Json, Keys
from fastdp.ledger import Ledger
from fastdp.ledger.ledger import charge, stream_key
from fastdp.noise.draws import NoiseName
from fastdp.noise.key import Key
from fastdp.tables import choices
from fastdp.tables.calendar import Time
from fastdp.tables.choices import choose_clip, choose_keys, clip_counter, count_rows
from fastdp.tables.columns import KeyNumbers, KeyRow, KeyTable, count_keys, sorted_keys
from fastdp.tables.persons import NOT_FINITE, BatchRows, Kept, PersonRows, exact_sums, mask_of, read_rows, table_sums
from fastdp.tables.plan import TablePlan, Value, make_plan, names_of
from fastdp.tables.sums import Kind, WindowSums, release
from fastdp.tables.table import Table
from fastdp.units import ONE_ROW, Column, Person, Unit

if TYPE_CHECKING:
    import pyarrow as pa

P = ParamSpec("P")
NO_ROWS = "frame has no rows: expected time=fastdp.Time(..., start=, stop=), because it has no first and last window"


def totals(
    frame: Frame,
    value: str | Value,
    time: str | Time,
    every: Duration | None = None,
    by: str | Sequence[str] | None = None,
    keys: Keys | None = None,
    *,
    epsilon: float,
    unit: Unit = ONE_ROW,
    bound: Bounds | None = None,
    clip: Bounds | None = None,
    delta: float = 0.0,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
    ledger: Ledger | None = None,
    stream: str | None = None,
) -> Table:
    """Private totals of a column by window of time, and by key.

    Parameters
    ----------
    frame : table
        A data frame of pandas, polars or pyarrow, a polars LazyFrame, a DuckDB relation, an Arrow stream, or the path
        of a Parquet or CSV file.  Rows may be in any order; lazy tables and files are read in batches.
    value : str or Value
        The column that is summed: numbers; a :class:`fastdp.Value` says more.
    time : str or Time
        The column of times: dates, or datetimes of one time zone or none; with ``every``.  Or a
        :class:`fastdp.Time`, which has the windows' ends, zone and origin too.
    every : str or timedelta, optional
        Length of the windows, where ``time`` is a column: "15min", "1h", "1d" and others, as for
        :class:`fastdp.Time`.
    by : str or list of str, optional
        Key columns: every key has a total in every window.
    keys : list, mapping, "public" or None
        The keys that are released: entries of the column, or tuples for several columns, or a mapping of each column
        to a list, of which all combinations are keys.  Rows with other keys are dropped.  "public": those of all
        rows of the table, dropped ones too, on your word that it is no secret which there are.  None with ``delta``:
        chosen privately.
    epsilon : float
        Privacy loss for one unit over everything that is released.
    unit : Rows or Person
        What one person may change: :class:`fastdp.Rows` or :class:`fastdp.Person`; by default one row.  With a
        Person a hundredth of epsilon is for a noisy share of persons (in each period) with dropped rows
        (:attr:`Table.cut_persons`).
    bound : float or (float, float)
        Public upper bound of a value, from 0, or a lower and an upper one.  It must not be computed from the table.
        Values beyond it count as the bound.
    clip : float or (float, float), optional
        What values are clipped to, if that is known publicly.  By default it is chosen from all rows with a share of
        epsilon, at most a tenth, for sums of a day where windows are shorter, of a week of days, else of a year; not
        for a ``bound`` of two ends, which is the clip itself.  A hundredth of epsilon is for a noisy share of rows
        beyond the clip (:attr:`Table.clipped_rows`).
    delta : float
        Above 0, with ``by`` and without ``keys``: keys are private.  Those of the table are released whose noisy
        count of rows, with a tenth of epsilon, passes a threshold that a unit's own keys pass with probability at
        most ``delta``.  Above 0 in any other release: noise may be Gaussian (:class:`fastdp.Value`), and the release
        is then (epsilon, delta)-DP.
    seed, key
        As for :func:`fastdp.release`.
    ledger : Ledger, optional
        Where the release is reserved before a row is read.
    stream : str, optional
        The table's name, which a ledger needs.  Under one key, tables with different names get independent noise;
        without a name two tables, or two columns, share it up to the first sum in which they differ.

    Returns
    -------
    Table
        A window without rows is released as any other.

    Warns
    -----
    AccuracyWarning
        If there are too few rows to choose a clip well, if most rows lie beyond the clip or it is next to nothing, or
        if more than a tenth of the persons have dropped rows; all by released numbers.

    Raises
    ------
    ParameterError, DataError
        Naming the argument and what is accepted, of data never a value.  With a ledger: parameters, names and types
        of columns are checked before anything is recorded; rows afterwards, so an error about them leaves the budget
        spent.
    BudgetError
        If the ledger's limit leaves less than the release costs, or if an entry has the same noise.

    Notes
    -----
    Privacy: each row is in one window and one key, whose integer sum gets one exact discrete Laplace noise of scale
    k * clip / epsilon for k rows of a unit.  Proof: ``docs/privacy.md``, "Tables".  Noise is bound to the sums that
    it protects: the same secret, parameters and rows give the same output again, altered rows meet independent noise
    from the first sum that differs.

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
    return _release("totals", {**locals()})


def counts(
    frame: Frame,
    time: str | Time,
    every: Duration | None = None,
    by: str | Sequence[str] | None = None,
    keys: Keys | None = None,
    *,
    epsilon: float,
    unit: Unit = ONE_ROW,
    delta: float = 0.0,
    noise: NoiseName | None = None,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
    ledger: Ledger | None = None,
    stream: str | None = None,
) -> Table:
    """Private numbers of rows by window of time, and by key.

    Parameters, errors and privacy are those of :func:`totals`; there is no value, so no bound and no clip, and the
    noise has scale k / epsilon for k rows of a unit.  ``noise`` is "laplace" or "gaussian", as of
    :class:`fastdp.Value`.

    Returns
    -------
    Table
        A window without rows is released as any other.

    Examples
    --------
    >>> import pandas as pd, fastdp
    >>> frame = pd.DataFrame({"at": pd.date_range("2024-05-01", periods=96, freq="30min")})
    >>> table = fastdp.counts(frame, "at", "1h", epsilon=1.0, seed=1)
    >>> len(table)
    48
    """
    return _release("counts", {**locals()})


#: Opens a table: the frame, names of its columns in use, and which of them name keys and persons.
Opens = Callable[[Frame, Sequence[str], Sequence[str]], Source]


def like(
    function: Callable[P, Table], opens: Opens = open_source
) -> Callable[[Callable[[], None]], Callable[P, Table]]:
    """A decorator: the function gets the parameters of `function` and opens tables with `opens`.

    The decorated function keeps its name, which is the kind of release, and its documentation.
    """

    def decorate(named: Callable[[], None]) -> Callable[P, Table]:
        kind, parameters = cast("Kind", named.__name__), signature(function)

        @wraps(function)
        def release(*args: P.args, **kwargs: P.kwargs) -> Table:
            try:
                given = parameters.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{kind}() {error}") from None
            given.apply_defaults()
            return _release(kind, given.arguments, opens)

        for name in ("__module__", "__doc__", "__name__", "__qualname__"):
            setattr(release, name, getattr(named, name))
        return release

    return decorate


def _release(kind: Kind, given: Json, opens: Opens = open_source) -> Table:
    """A released table: parameters are checked, the budget is reserved, then rows are read."""
    frame, ledger, stream = given.pop("frame"), given.pop("ledger"), given.pop("stream")
    secret = stream_key(Key.choose(given.pop("seed"), given.pop("key")), stream)
    time, value = _timed(given.pop("time"), given.pop("every")), given.pop("value", None)
    if kind != "counts" and not isinstance(value, Value):
        value = Value(Column().check("value", value))
    by, unit = names_of("by", given["by"]), given["unit"]
    named = [*by, *([unit.column] if isinstance(unit, Person) else [])]
    columns = [time.column, *by, *([] if value is None else [value.column]), *named[len(by) :]]
    source = opens(frame, columns, named)
    zone = check_types(source, time.column, None if value is None else value.column, named)
    plan = make_plan(kind, replace(time, zone=time.zone or zone), value, **given)
    if plan.key_rule == "given":
        table = KeyTable(by, plan.keys)
        for name in by:
            if (type_of := arrow_type(source, name)) is not None:
                table.check_type(name, type_of)
    release = TableRelease(plan, source, secret.bind(plan))
    release.check()
    mechanism = {"class": kind, "parameters": plan.describe()}
    with charge(release, ledger, stream, mechanism=mechanism):
        return Table(release.run())


def _timed(time: str | Time, every: Duration | None) -> Time:
    """A :class:`Time` from ``time`` and ``every``; ParameterError unless exactly one of them gives the length."""
    if not isinstance(time, Time):
        if every is None:
            raise ParameterError("every = None: expected the length of the windows, such as '1h', or a fastdp.Time")
        return Time(Column().check("time", time), every)
    if every is not None:
        raise ParameterError(f"every = {validation.shown(every)}: expected None, because time is a fastdp.Time")
    return time


@like(totals)
def means() -> None:
    """Private means of a column by window of time, and by key.

    Parameters, errors and privacy are those of :func:`totals`.  Released are, with .4 and .6 of the budget, the
    number of rows and the sum of their deviations from the middle of the clip, which has half the sensitivity of a
    total.

    Returns
    -------
    Table
        A window without rows is released as any other.

    Examples
    --------
    >>> import pandas as pd, fastdp
    >>> frame = pd.DataFrame({"at": pd.date_range("2024-05-01", periods=2000, freq="1min"), "kwh": 0.4})
    >>> table = fastdp.means(frame, "kwh", "at", "1d", epsilon=1.0, clip=2.0, seed=1)
    >>> abs(float(table.mean(0, 1)[0]) - 0.4) < 0.1
    True
    """


# A table, read once or twice, to noisy sums.


@dataclass(frozen=True)
class TableRelease:
    """One release of a table under the key of its composition.

    A ledger reads guarantee, fingerprint and parameters from it.
    """

    plan: TablePlan
    source: Source
    key: Key

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of everything that the release shows."""
        return self.plan.guarantee(simulated=self.key.simulated)

    @property
    def noise_fingerprint(self) -> str | None:
        """Fingerprint of the key, as for a publisher; None in a simulation."""
        return None if self.key.simulated else self.key.fingerprint()

    def run(self) -> WindowSums:
        """The released sums; reads the table once, or twice if windows, keys or the clip depend on it."""
        plan = self.plan
        if plan.who is not None:
            return self._release_persons()
        if plan.is_public:
            return self._release(plan.settled(plan.start or 0, plan.stop or 0, max(1, len(plan.keys))), self.source)
        source = self.source.twice()
        survey = _Survey(plan)
        # Before anything is dropped: which rows count follows from secrets, such as the rest of a person's rows.
        see_keys = survey.see_keys if plan.key_rule == "public" else None
        for rows in read_rows(source, plan, survey.see_times, see_keys):
            survey.add(rows)
        return self._release(survey.settle(self.key), source, survey)

    def _release_persons(self) -> WindowSums:
        """Released sums of the rows that count after each person's rows are bounded; reads the table once."""
        plan, survey = self.plan, _Survey(self.plan)
        keys = KeyNumbers(plan.by, plan.keys if plan.by else [()])
        found = PersonRows(plan, self.key)
        see_keys = survey.see_keys if plan.key_rule == "public" else None
        for rows in read_rows(self.source, plan, survey.see_times, see_keys):
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

    def check(self) -> None:
        """Refuse, before rows are read, non-public choices on an engine, and an empty table without windows."""
        if self.source.add is not None and not (self.plan.is_public and self.plan.who is None):
            raise ParameterError(
                "expected Time(start=, stop=), keys= where there is by=, clip= (or two bounds), no Person: on an "
                "engine windows, keys and the clip are public"
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
            sums = table_sums(source, plan, every, table)
        else:
            sums = source.add(plan, every)
        by_name = {quantity.name: exact for quantity, exact in zip(every, sums, strict=True)}
        released = np.stack([by_name[quantity.name] for quantity in quantities])
        clipped = None
        if plan.reports_clip:
            beyond, rows = int(by_name["beyond"].sum()), int(by_name["count"].sum())
            clipped = choices.clipped_rows(plan, beyond, rows, self.key)
        persons = None if kept is None else choices.kept_persons(plan, kept.whole, kept.cut, self.key)
        columns = release(quantities, released, self.key, first, table.digests)
        found = plan.released((first, last), quantities, table.columns, columns, simulated=self.key.simulated)
        return replace(found, family=self.source.family, clipped_rows=clipped, kept_persons=persons)


class _Survey:
    """Facts collected in the first reading: range of times, keys, a histogram of values."""

    def __init__(self, plan: TablePlan) -> None:
        self.plan = plan
        self.histogram = clip_counter(plan) if plan.chooses_clip else None
        self.keys: list[KeyRow] | None = None
        self._counts: dict[KeyRow, int] = {}
        self._ends: list[int] = []

    def see_times(self, times: Integers) -> None:
        """Extend the range of times."""
        if times.size:
            both = [*self._ends, int(times.min()), int(times.max())]
            self._ends = [min(both), max(both)]

    def see_keys(self, columns: list[pa.Array]) -> None:
        """Count the rows of each key."""
        for key, count in count_keys(columns).items():
            self._counts[key] = self._counts.get(key, 0) + count

    def see_kept(self, kept: Kept, keys: list[KeyRow]) -> None:
        """Count keys and values of the persons' rows that count."""
        if self.plan.key_rule == "private":
            sizes = np.bincount(kept.codes, minlength=len(keys)).tolist()
            self._counts = {key: size for key, size in zip(keys, sizes, strict=True) if size}
        if self.histogram is not None:
            self.histogram.observe(kept.values)

    def add(self, rows: BatchRows) -> None:
        """Count keys and values of a batch's rows that count."""
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
        """Number of the first window, and of the one after the last; DataError for a table without rows."""
        plan = self.plan
        if not self._ends and (plan.start is None or plan.stop is None):
            raise DataError(NO_ROWS)
        first = plan.calendar.number(self._ends[0]) if plan.start is None else plan.start
        last = plan.calendar.number(self._ends[1]) + 1 if plan.stop is None else plan.stop
        return first, max(first, last)

    def settle(self, key: Key) -> TablePlan:
        """The plan with the windows and number of keys that the survey found."""
        plan, (first, last) = self.plan, self.ends()
        if plan.key_rule == "public":
            self.keys = sorted_keys(self._counts)
        elif plan.key_rule == "private":
            self.keys = choose_keys(plan, self._counts, key)
        width = len(plan.keys if self.keys is None else self.keys) if plan.by else 1
        return plan.settled(first, last, width)
