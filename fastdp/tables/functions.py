"""``fastdp.totals``, ``fastdp.counts`` and ``fastdp.means``: private sums of a table by window and key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, cast

from fastdp import validation
from fastdp.data.column import Nonfinite
from fastdp.data.source import Source, arrow_type, check_types, open_source
from fastdp.errors import ParameterError
from fastdp.ledger import Ledger
from fastdp.ledger.ledger import charge, stream_key
from fastdp.noise.draws import NoiseName
from fastdp.noise.key import Key
from fastdp.tables.columns import KeyTable
from fastdp.tables.parameters import make_plan, names_of
from fastdp.tables.persons import Missing, Reader
from fastdp.tables.release import TableRelease
from fastdp.tables.sums import Kind
from fastdp.tables.table import Table

P = ParamSpec("P")


@validation.plain
def totals(
    frame: Any,
    value: str,
    time: str,
    every: Any,
    by: Any = None,
    keys: Any = None,
    *,
    epsilon: float,
    bound: Any = None,
    clip: Any = None,
    start: Any = None,
    stop: Any = None,
    origin: Any = None,
    time_zone: str | None = None,
    contributions: int = 1,
    period: Any = None,
    per_window: int | None = None,
    who: str | None = None,
    delta: float = 0.0,
    noise: NoiseName | None = None,
    resolution: float | None = None,
    nonfinite: Nonfinite = "raise",
    missing: Missing = "raise",
    confidence: float = 0.95,
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
    value : str
        The column that is summed: numbers.
    time : str
        The column of times: dates, or datetimes of one time zone or none.
    every : str or timedelta
        Length of the windows, which are half-open: "90s", "15min", "1h" are counted from ``origin``, whatever the
        clock does; "1d", "1w" (from Monday), "1mo", "1y" run from local midnight to local midnight.
    by : str or list of str, optional
        Key columns: every key has a total in every window.
    keys : list, mapping, "public" or None
        The keys that are released: entries of the column, or tuples for several columns, or a mapping of each column
        to a list, of which all combinations are keys.  Rows with other keys are dropped.  "public": those of all
        rows of the table, dropped ones too, on your word that it is no secret which there are.  None with ``delta``:
        chosen privately.
    epsilon : float
        Privacy loss for one unit (by default one row) over everything that is released.
    bound : float or (float, float)
        Public upper bound of a value, from 0, or a lower and an upper one.  It must not be computed from the table.
        Values beyond it count as the bound.
    clip : float or (float, float), optional
        What values are clipped to, if that is known publicly.  By default it is chosen from all rows with a share of
        epsilon, at most a tenth, for sums of a day where windows are shorter, of a week of days, else of a year; not
        for a ``bound`` of two ends, which is the clip itself.  A hundredth of epsilon is for a noisy share of rows
        beyond the clip (:attr:`Table.clipped_rows`).
    start, stop : datetime, date or ISO text, optional
        The first window's beginning and the last one's end: public.  Rows outside are dropped.  By default the first
        and last window of the table, whose place is then public knowledge, as the guarantee says.
    origin : datetime, date or ISO text, optional
        Where a window begins; by default midnight of 1970-01-01 in the zone.
    time_zone : str, optional
        Zone of the windows; by default the time column's.  Times without a zone are taken as clock times in it: the
        first one where the clock shows a time twice, and moved forward where it skips a time.
    contributions : int
        Rows of one unit.  Without ``who`` you vouch for it; with ``who`` the rows of a person with the least keyed
        hashes count, evenly spread over a period, and further ones are dropped.
    period : str or timedelta, optional
        The unit is what someone adds in any one period, such as "1d", aligned as windows are; by default in all.
    per_window : int, optional
        With ``who``: rows of a person that count in one window, those of least hash.
    who : str, optional
        The column of persons, who are then the unit; equal values of other types are one person (``docs/tables.md``).
        The choice depends neither on the order of rows nor on other persons.  A hundredth of epsilon is for a noisy
        share of persons (in each period) with dropped rows (:attr:`Table.cut_persons`).
    delta : float
        Above 0, with ``by`` and without ``keys``: keys are private.  Those of the table are released whose noisy
        count of rows, with a tenth of epsilon, passes a threshold that a unit's own keys pass with probability at
        most ``delta``.  Above 0 in any other release: noise may be Gaussian, and the release
        is then (epsilon, delta)-DP.
    noise : "laplace" or "gaussian", optional
        Of the sums.  Gaussian noise has sigma clip * sqrt(k * j) / x for k rows of a unit, at most j of them in one
        window (``per_window``), x^2 / 2 being the rho that gives (epsilon, delta).  By default Laplace; with a
        ``delta`` that no keys need, the one of less variance, which public parameters tell: Gaussian from 11
        windows of a person on at epsilon = 1, delta = 1e-6 (:func:`fastdp.plan`).
    resolution : float, optional
        Step of the integer grid that values are rounded to; by default the bound's 2^32th part, or coarser where the
        noise is.  A cell holds 2^63 steps: 10^9 rows and more by default.
    nonfinite : "raise" or "zero"
        What values that are missing, NaN or infinite do.
    missing : "raise" or "drop"
        What rows without a time or person do.
    confidence : float
        Of the intervals.
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
    contributions * clip / epsilon.  Proof: ``docs/privacy.md``, "Tables".  Noise is bound to the sums that it
    protects: the same secret, parameters and rows give the same output again, altered rows meet independent noise
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


@validation.plain
def counts(
    frame: Any,
    time: str,
    every: Any,
    by: Any = None,
    keys: Any = None,
    *,
    epsilon: float,
    start: Any = None,
    stop: Any = None,
    origin: Any = None,
    time_zone: str | None = None,
    contributions: int = 1,
    period: Any = None,
    per_window: int | None = None,
    who: str | None = None,
    delta: float = 0.0,
    noise: NoiseName | None = None,
    missing: Missing = "raise",
    confidence: float = 0.95,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
    ledger: Ledger | None = None,
    stream: str | None = None,
) -> Table:
    """Private numbers of rows by window of time, and by key.

    Parameters, errors and privacy are those of :func:`totals`; there is no value, so no bound and no clip, and the
    noise has scale contributions / epsilon.

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
Opens = Callable[[Any, Sequence[str], Sequence[str]], Source]


def on_engine(
    function: Callable[P, Table], opens: Opens, documentation: str, kind: Kind | None = None
) -> Callable[P, Table]:
    """A function of this module with another way to open a table, and documentation with its name as {kind}."""
    named, parameters = cast("Kind", kind or function.__name__), signature(function)

    @wraps(function)
    def release(*args: P.args, **kwargs: P.kwargs) -> Table:
        given = parameters.bind(*args, **kwargs)
        given.apply_defaults()
        return _release(named, given.arguments, opens)

    release.__module__, release.__doc__ = opens.__module__, documentation.replace("{kind}", named)
    release.__name__ = release.__qualname__ = named
    return release


def _release(kind: Kind, given: dict[str, Any], opens: Opens = open_source) -> Table:
    """Check everything public, reserve, read, release."""
    frame, time, value = given.pop("frame"), given.pop("time"), given.pop("value", None)
    confidence, missing = validation.real("confidence", given.pop("confidence")), given.pop("missing")
    if not 0.0 < confidence < 1.0:
        raise ParameterError(f"confidence = {confidence!r}: expected a number between 0 and 1")
    validation.choice("missing", missing, ("raise", "drop"))
    ledger, stream = given.pop("ledger"), given.pop("stream")
    secret = stream_key(Key.choose(given.pop("seed"), given.pop("key")), stream)
    by, who = names_of("by", given["by"]), given["who"]
    columns = [time, *by, *(each for each in (value, who) if each is not None)]
    named = [*by, *([] if who is None else [who])]
    source = opens(frame, columns, named)
    zone = check_types(source, time, value, named)
    plan = make_plan(kind, **{**given, "time_zone": given["time_zone"] or zone})
    if plan.key_rule == "given":
        table = KeyTable(by, plan.keys)
        for name in by:
            if (type_of := arrow_type(source, name)) is not None:
                table.check_type(name, type_of)
    release = TableRelease(plan, source, Reader(time, value, missing), secret.bind(plan))
    release.check()
    mechanism = {"class": kind, "parameters": plan.describe()}
    with charge(release, ledger, stream, mechanism=mechanism):
        return Table(release.run(), confidence)


def _alike(function: Callable[P, Table]) -> Callable[[Callable[[], None]], Callable[P, Table]]:
    """Another function of this module, named and documented by the one that is decorated, with equal parameters."""

    def decorate(named: Callable[[], None]) -> Callable[P, Table]:
        made = on_engine(function, open_source, named.__doc__ or "", cast("Kind", named.__name__))
        made.__module__ = __name__
        return validation.plain(made)

    return decorate


@_alike(totals)
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
