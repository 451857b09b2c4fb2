"""``fastdp.plan``: accuracy of a release from public numbers, by the formulas of a real one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fastdp import validation
from fastdp.data.calendar import Time
from fastdp.errors import ParameterError, argument
from fastdp.kinds import Bounds, Duration, Json
from fastdp.noise.sampler import NoiseName, noise_distribution
from fastdp.notebook import as_html
from fastdp.releases.intervals import checked_confidence
from fastdp.tables.answers import Answers
from fastdp.tables.arguments import PrivateKeys, Value
from fastdp.tables.choices import Sizes, choose_clips, expected_sizes, moved_by_tail, tail_of, ways_of
from fastdp.tables.columns import Keys as KeySet
from fastdp.tables.functions import make_shares
from fastdp.tables.paths import MOST_WINDOWS, with_path
from fastdp.tables.plan import MAX_CELLS, TablePlan
from fastdp.tables.quantities import COUNTS, ROWS, Quantity, drawn
from fastdp.tables.reach import counter_of
from fastdp.tables.released import Measured, Released, released_of, unknown_tails
from fastdp.tables.shares import MAX_ROWS, Shares, shares_of
from fastdp.tables.sizes import Choice, Number
from fastdp.tables.statistics import Statistic, statistics_of
from fastdp.tables.sums import vectors
from fastdp.tables.tails import Tail
from fastdp.units import ONE_ROW, Person, Rows, Unit
from fastdp.validation import DAY, check_mean, refusal

if TYPE_CHECKING:
    from fastdp.streams.array_plan import ArrayShares

#: Longer spans that are shown, in microseconds.
SPANS = {"day": DAY, "week": 7 * DAY, "year": 365 * DAY}
#: Exponential values of a scale so many times the bound are nearly all past it.
FAR = 2.0**20
#: Values of a finished array.
MAX_SIZE = 2**50
#: Values of both signs may be so many times their mean.
CANCEL = 10.0
#: Windows that are worked out for each key; more behave like these.
MAX_WINDOWS, MAX_KEYS = 2**14, 2**10
#: Range of the search for an epsilon, and its steps.
EPSILONS, BISECTIONS = (2.0**-10, 2.0**5), 30
#: A delta that may buy less noise.
WITH_DELTA = 1e-6


@dataclass(frozen=True)
class Expected:
    """Error of one statistic in one window and key.

    Attributes
    ----------
    std_error, half_width : float
        Standard error, and half of the interval's width.
    value : float or None
        The expected number, if given.
    longer : dict of str to float
        Half-widths over a day, a week, a year.
    in_rows : bool
        True of a quantile, whose errors are rows.
    drowned : str
        Reason and remedies, if the interval is as wide as the expected number; else empty.
    """

    std_error: float
    half_width: float
    value: float | None = None
    longer: Mapping[str, float] = field(default_factory=dict)
    in_rows: bool = False
    drowned: str = ""


@dataclass(frozen=True)
class Plan:
    """Errors and shares of a release at an epsilon (:func:`plan`); ``print`` shows them as lines.

    Attributes
    ----------
    epsilon, confidence : float
        Privacy loss of one unit, confidence of the intervals.
    unit, every : str
        The protected unit, and the windows' length (None: all rows).
    noise : "laplace" or "gaussian"
        Noise of the sums.
    errors : dict of str to Expected
        By statistic.
    shares : Shares or ArrayShares
        Cost of each number; ``print`` shows a table.
    size : int or None
        Values of a finished array.
    ways : dict of str to float
        Of a :class:`fastdp.Person` with ``per_window``: the first statistic's standard error by noise in windows, and
        by a calendar, with and without delta.

    Examples
    --------
    >>> import fastdp
    >>> print(fastdp.plan({"*": "count"}, epsilon=1.0).shares)
    purpose  of          level        loss  share  a unit moves
    sums     count of *  each window  1     1.000  1
    """

    epsilon: float
    confidence: float
    unit: str
    every: str | None
    noise: NoiseName
    errors: Mapping[str, Expected]
    shares: Shares | ArrayShares
    size: int | None = None
    ways: Mapping[str, float] = field(default_factory=dict)

    @property
    def half_width(self) -> float:
        """Half-width of the first statistic's interval."""
        return next(iter(self.errors.values())).half_width

    @property
    def _title(self) -> tuple[str, str]:
        noise = f"{self.noise} noise, {100 * self.confidence:.10g} % intervals"
        rows = "All rows" if self.every is None else f"One window of {self.every} and key"
        if self.size is not None:
            rows = f"Finished array of {self.size:,} values"
        return f"epsilon = {self.epsilon:.4g} for {self.unit}, {noise}", rows

    def __str__(self) -> str:
        lines = list(self._title)
        for name, each in self.errors.items():
            expected = "" if each.value is None else f" of {each.value:.4g}"
            rows = " rows from the true one" if each.in_rows else ""
            lines.append(f"  {name}: +- {each.half_width:.4g}{rows}{expected}, standard error {each.std_error:.4g}")
            lines += [f"    over a {span}: +- {width:.4g}" for span, width in each.longer.items()]
            if each.drowned:
                lines.append(f"    {each.drowned}")
        lines += [f"  {way}: standard error {error:.4g}" for way, error in self.ways.items()]
        return "\n".join([*lines, f"Shares of {'rho' if self.noise == 'gaussian' else 'epsilon'}:", f"{self.shares}"])

    def _repr_html_(self) -> str:
        spans = list(dict.fromkeys(span for each in self.errors.values() for span in each.longer))
        heads = "", "+-", "of", "standard error", *(f"+- over a {span}" for span in spans)
        rows, notes = [], []
        for name, each in self.errors.items():
            expected = "" if each.value is None else f"{each.value:.4g}"
            longer = (f"{each.longer[span]:.4g}" if span in each.longer else "" for span in spans)
            half_width = f"{each.half_width:.4g}{' rows' if each.in_rows else ''}"
            rows.append((name, half_width, expected, f"{each.std_error:.4g}", *longer))
            notes += [f"{name}: {each.drowned}"] if each.drowned else []
        notes += [f"{way}: standard error {error:.4g}" for way, error in self.ways.items()]
        return f"<div>{as_html('. '.join(self._title), heads, rows, notes=notes)}{self.shares._repr_html_()}</div>"


@validation.plain
def plan(
    statistics: Mapping[str, str | Sequence[str]] | None = None,
    *,
    size: int | None = None,
    epsilon: float | None = None,
    half_width: float | None = None,
    bounds: Mapping[str, Bounds | Value] | Bounds | Value | None = None,
    every: Duration | None = None,
    windows: int = 1,
    keys: int | PrivateKeys = 1,
    unit: Unit = ONE_ROW,
    delta: float = 0.0,
    levels: bool | None = False,
    rows: float | None = None,
    mean: float | Mapping[str, float] | None = None,
    confidence: float = 0.95,
) -> Plan:
    """Accuracy of a release of a table or finished array, before any data.

    Parameters
    ----------
    statistics, bounds, every, unit, delta, levels
        As for :func:`fastdp.aggregate`.
    size : int, optional
        In place of statistics: number of values of a finished array (:func:`fastdp.release`), with ``bounds``,
        ``delta``, ``mean`` and a unit of consecutive values alone.
    epsilon : float, optional
        Privacy loss of one unit.
    half_width : float, optional
        In place of ``epsilon``, which follows: half-width of the first statistic's interval in one window and key.
    windows : int
        Number of windows.
    keys : int or PrivateKeys
        Number of keys; :class:`fastdp.PrivateKeys`, with ``delta``, if chosen privately.
    rows : float, optional
        Rows expected in each window and key, for means and variances.
    mean : float or dict of str to float, optional
        Value expected of a row, within the bound, by column: with the expected rows, errors are those of the clip
        that exponential values would get, and the plan says where noise hides them.
    confidence : float
        Of the intervals, above 0, at most 1 - 10^-9.

    Raises
    ------
    ParameterError
        For an argument out of range, both or none of ``epsilon`` and ``half_width`` or of ``statistics`` and
        ``size``, or noise that hides even the expected numbers of all rows.

    Notes
    -----
    Without ``rows`` and ``mean`` values are clipped at the bound or given clip; a chosen clip is smaller, and so are
    errors.

    Examples
    --------
    >>> import fastdp
    >>> clip = fastdp.Value(clip=2.0)
    >>> wanted = fastdp.plan(
    ...     {"kwh": "sum"}, epsilon=1.0, bounds=clip, every="1h", windows=168
    ... )
    >>> print(wanted)
    epsilon = 1 for one row of the table, laplace noise, 95 % intervals
    One window of 1h and key
      kwh_sum: +- 6.052, standard error 2.857
        over a day: +- 27.56
        over a week: +- 72.62
    Shares of epsilon:
    purpose  of            level        loss  share  a unit moves
    sums     total of kwh  each window  0.99  0.990  1
    sizes    kwh                        0.01  0.010  1
    """
    confidence = checked_confidence(confidence)
    if (epsilon is None) == (half_width is None):
        raise ParameterError("epsilon, half_width: expected one of the two, the other follows from it")
    if size is not None:
        size = validation.integer("size", size, 1, MAX_SIZE)
        of_tables: dict[str, object] = {"statistics": statistics, "every": every, "rows": rows}
        of_tables |= {"levels": levels or None, "windows": None if windows == 1 else windows}
        for name, value in {**of_tables, "keys": None if keys == 1 else keys}.items():
            if value is not None:
                beside = f"{argument(size=...)}, which is of an array without windows and keys"
                raise ParameterError(f"{name}: expected none beside {beside}", parameter=name)
        if not isinstance(unit, Rows) or unit.per is not None:
            kind = type(unit).__name__
            raise ParameterError(
                f"unit is a {kind}: expected a number of consecutive values, without a person or period, beside "
                f"{argument(size=...)}",
                parameter="unit",
            )
        # Loaded when an array is planned: tables stand without streams.
        from fastdp.streams.array_plan import largest_epsilon

        planned = partial(_planned_array, size, bounds, unit.k, delta, mean, confidence)
        return _settled(planned, epsilon, half_width, largest_epsilon(size))
    if statistics is None:
        raise ParameterError(
            f"statistics: expected {argument(statistics=...)} of a table, or {argument(size=...)} of a finished "
            "array",
            parameter="statistics",
        )
    windows = validation.integer("windows", windows, 1, MAX_CELLS)
    asked = statistics_of(statistics)
    listed: PrivateKeys | list[int] | None = keys if isinstance(keys, PrivateKeys) else None
    if not isinstance(keys, PrivateKeys) and validation.integer("keys", keys, 1, MAX_CELLS) > 1:
        listed = list(range(min(keys, MAX_KEYS)))
    if rows is not None and validation.positive("rows", rows) > MAX_ROWS:
        raise refusal("rows", rows, f"at most {MAX_ROWS:g}")
    if mean is not None:
        for each in mean.values() if isinstance(mean, Mapping) else [mean]:
            validation.real("mean", each)
    time = None if every is None else Time("time", every, start="2001-01-01")

    by = None if listed is None else "key"
    given: Json = {"unit": unit, "bounds": bounds, "by": by, "keys": listed, "delta": delta, "levels": levels}

    def at(number: float, **changed: Any) -> Plan:
        made = make_shares(asked, time, epsilon=number, **given | changed)
        of_keys = 1 if isinstance(keys, PrivateKeys) else keys
        return _planned(made, windows, of_keys, rows, mean, confidence, beside=bool(changed))

    def with_ways(found: Plan) -> Plan:
        if not isinstance(unit, Person) or unit.per_window is None or windows == 1:
            return found
        ways = {}
        for changed in [{}] if delta else [{}, {"delta": WITH_DELTA}]:
            for basis in ("windows", "calendar" if isinstance(unit.basis, str) else unit.basis):
                try:
                    way = at(found.epsilon, unit=replace(unit, basis=basis), **changed)
                except ParameterError:  # a calendar does not fit the statistics
                    continue
                numbers = cast("Shares", way.shares).plan.basis
                name = "noise in each window" if numbers is None else f"noise in {numbers}"
                ways[name + "".join(f", with {argument(**changed)}" for _ in changed)] = way
        return replace(found, ways={name: next(iter(way.errors.values())).std_error for name, way in ways.items()})

    return with_ways(_settled(at, epsilon, half_width))


def _settled(
    at: Callable[[float], Plan], epsilon: float | None, half_width: float | None, most: float = math.inf
) -> Plan:
    """Plan at this epsilon, or at the least with this half-width."""
    if epsilon is not None:
        return at(validation.positive("epsilon", epsilon))
    wanted, (low, high) = validation.positive("half_width", half_width), EPSILONS
    high = max(low, min(high, most))
    # A width that is missing is none.
    if not at(high).half_width <= wanted:
        raise refusal("half_width", half_width, f"a width that an epsilon up to {high:g} can give")

    def suffices(number: float) -> bool:
        try:
            return at(number).half_width <= wanted
        except ParameterError:
            # So small an epsilon hides any table.
            return False

    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return at(high)


def _planned_array(
    size: int,
    bounds: Mapping[str, Bounds | Value] | Bounds | Value | None,
    contributions: int,
    delta: float,
    mean: float | Mapping[str, float] | None,
    confidence: float,
    epsilon: float,
) -> Plan:
    """Errors of an array's total and of a partial sum, at their widest."""
    from fastdp.streams.array_plan import PART, plan_array

    if isinstance(bounds, Value) and bounds == Value(bounds.bound):
        bounds = bounds.bound
    if isinstance(bounds, tuple) and bounds[0] == 0:
        bounds = bounds[1]
    if isinstance(bounds, (Mapping, tuple, Value)):
        only = f"one number beside {argument(size=...)}: the bound of a value, from 0"
        raise ParameterError(f"bounds: expected {only}", parameter="bounds")
    if isinstance(mean, Mapping):
        raise ParameterError(f"mean: expected one number beside {argument(size=...)}", parameter="mean")
    if mean is not None:
        mean = validation.real("mean", mean)
    unit, shares = plan_array(
        size, epsilon, bounds, contributions=contributions, delta=delta, mean=mean, confidence=confidence
    )
    errors = {}
    for k, (name, count) in enumerate((("total", size), (f"sum of 1/{PART} of the values", -(-size // PART)))):
        widest = max(shares.outcomes, key=lambda outcome: outcome.half_widths[k])
        half, value = float(widest.half_widths[k]), None if mean is None else mean * count
        hidden = value is not None and not half < value
        drowned = "noise is as large as the number: expected more values, or a larger epsilon" if hidden else ""
        errors[name] = Expected(float(widest.errors[k]), half, value, drowned=drowned)
    return Plan(epsilon, confidence, unit, None, "gaussian" if delta else "laplace", errors, shares, size)


def _planned(
    shares: Shares,
    windows: int,
    of_keys: int,
    rows: float | None,
    mean: float | Mapping[str, float] | None,
    confidence: float,
    *,
    beside: bool = False,
) -> Plan:
    """Errors of a release; ``beside`` another they may hide all numbers."""
    plan, first = shares.plan, shares.plan.start or 0
    # Noise in each window and key is that of the first ones; a calendar's depends on all.
    by_calendar = plan.misfit is None and windows <= MOST_WINDOWS
    windows = windows if by_calendar else min(windows, MAX_WINDOWS)
    shown = plan.keys[: max(1, MAX_WINDOWS * MAX_KEYS // windows)]
    keys = KeySet(plan.by, shown if plan.key_rule == "given" else [(0,)] * len(plan.by))
    nodes = [1, of_keys][: len(keys.sizes)] if by_calendar else keys.sizes
    shares = with_path(shares.settled(first, first + windows, *nodes), rows)
    plan = shares.plan
    names = ROWS, *(column.name for column in plan.columns)
    means = {name: mean.get(name) if isinstance(mean, Mapping) else mean for name in names}
    for column in plan.columns:
        if column.bound is not None and (given := means[column.name]) is not None:
            check_mean(given, *column.bound)
    scales = {each.name: _scale_of(means[each.name], shares.task(each.name).ends) for each in plan.chooses}
    shares, tails = _expected_tails(shares, rows or 0.0, scales)
    clips = {name: tail.clip for name, tail in tails.items()}
    quantities = [q for q in shares.quantities_at(clips) if not q.counts]
    inside = {name: each or 0.0 for name, each in means.items()}
    inside |= {name: _below(scales[name], tail.choice.clip) for name, tail in tails.items()}
    try:
        cells = np.array([_steps(q, rows or 0.0, inside[q.column]) for q in quantities], np.int64)
    except OverflowError:
        raise refusal("rows", rows, "fewer, so that sums in steps fit 64-bit integers") from None
    exact = np.ascontiguousarray(np.broadcast_to(cells[:, None, None], (len(cells), windows, keys.size)))
    measured = tuple(
        Measured(level, group, sums, tuple(drawn(shares.distribution(q, level)) for q in group))
        for level, group, sums in vectors(shares, quantities, [exact], keys)
    )
    span, unknown = (first, first + windows), unknown_tails(plan, quantities, expected=True)
    released = released_of(shares, span, keys, measured, unknown | tails, simulated=False)
    if plan.basis is not None:
        left = math.sqrt(plan.basis.rest * windows * keys.size)
        released = replace(released, residuals=tuple(Number(left * float(each), 0.0) for each in cells))
    answers, errors = Answers(released, confidence, planned=True), {}
    for each in plan.statistics:
        if each.needs[0] in COUNTS:
            names = each.needs if each.kind == "reach" else each.needs[:1]
            counter = counter_of(plan)
            draws = int(counter.most_draws(np.array([windows]))[0])
            for own in (q for q in reversed(shares.quantities) if q.column == each.column and q.name in names):
                noise = drawn(shares.distribution(own, shares.level_of(own)))
                if (counted := each.expected(noise, confidence, draws, counter.factor)) is not None:
                    of = " of all keys" if own.name == "reach" and plan.by else ""
                    errors[each.name + of] = Expected(*counted, in_rows=own.name == "excess")
            if each.name in errors:
                continue
        known = rows is not None and (each.column == ROWS or means[each.column] is not None)
        if rows is None and each.per_row:
            raise refusal("rows", None, f"the rows of a window and key, which the error of {each.name} needs")
        found = _expected(released, answers, each, known and each.predicted)
        if found.value is not None and not found.half_width < _size(plan, each, found.value, rows or 0.0):
            tail, far = tails.get(each.column), None
            if tail is not None and answers.normal * found.std_error < abs(found.value):
                far = tail.far(confidence)
            ways = f"noise is as large as the number: expected {ways_of(shares, each.column, tail)}"
            found = replace(found, drowned=far or ways)
        errors[each.name] = found
    if plan.key_rule != "private" and not beside:
        # Of how many keys all rows are is not known then.
        _check_whole(released, answers, errors, rows or 0.0)
    every = None if plan.calendar is None else plan.calendar.every
    return Plan(plan.epsilon, confidence, released.guarantee.unit, every, plan.noise, errors, shares)


def _size(plan: TablePlan, statistic: Statistic, value: float, rows: float) -> float:
    """Size beside which an error is large; signed values may cancel."""
    if statistic.column == ROWS:
        return abs(value)
    column = plan.column(statistic.column)
    low, high = column.bound or column.ends
    if low >= 0.0 or high <= 0.0:
        return abs(value)
    most = (high - low) / 2.0 * (rows if statistic.adds_up else 1.0)
    return min(most, CANCEL * abs(value)) if value else most


def _check_whole(released: Released, answers: Answers, errors: Mapping[str, Expected], rows: float) -> None:
    """ParameterError for noise that hides all numbers, even their sum."""
    told, span, plan = "", (np.array([0]), np.array([released.edges.size - 1])), released.shares.plan
    for each in released.statistics:
        expected = errors[each.name]
        if not expected.drowned:
            return
        whole = answers.about(each, *span, depth=0)
        value, error = float(whole.estimate[0, 0]), answers.normal * float(whole.std_error[0, 0])
        if error < _size(plan, each, value, rows * (plan.cells or 1)):
            return
        told = told or f"{each.name} of all rows would be {value:.4g} +- {error:.4g}; {expected.drowned}"
    raise ParameterError(f"epsilon = {plan.epsilon:.4g}: {told}", parameter="epsilon")


def _expected_tails(shares: Shares, rows: float, scales: Mapping[str, float]) -> tuple[Shares, dict[str, Tail]]:
    chosen: dict[str, tuple[Sizes, Choice]] = {}
    for column in shares.plan.chooses:
        if rows and (scale := scales[column.name]):
            task = shares.task(column.name)
            sizes = expected_sizes(task, rows * (shares.plan.cells or 1), scale)
            chosen[column.name] = sizes, choose_clips(task, sizes)
    outcomes = {name: (choice.cells, choice.tail) for name, (_, choice) in chosen.items()}
    shares, found = shares_of(replace(shares.plan, outcomes=outcomes)), {}
    for name, (sizes, choice) in chosen.items():
        task, number = shares.task(name), None
        if choice.tail:
            loss, all_rows = shares.helper("tail", name), rows * (shares.plan.cells or 1)
            noise = noise_distribution(shares.plan.noise, moved_by_tail(task, choice), 1, loss)
            inner, outer = (_below(scales[name], each) for each in (choice.clip, choice.second))
            number = Number(all_rows * (outer - inner), drawn(noise).variance * task.grid**2)
        found[name] = tail_of(shares, name, sizes, choice, number)
    return shares, found


def _scale_of(mean: float | None, ends: tuple[float, float]) -> float:
    """Scale of exponential values, clipped at the bound, with this mean."""
    most = ends[1] if (mean or 0.0) > 0.0 else -ends[0]
    if not mean or most <= 0.0:
        return mean or 0.0
    low, high = abs(mean), max(abs(mean), FAR * most)
    for _ in range(2 * BISECTIONS):
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (middle, high) if _below(middle, most) < abs(mean) else (low, middle)
    return math.copysign(high, mean)


def _below(scale: float, clip: float) -> float:
    return -scale * math.expm1(-clip / abs(scale)) if scale else 0.0


def _steps(q: Quantity, rows: float, mean: float) -> int:
    low, high = q.ends
    value = min(max(mean, low), high) - q.centre * q.grid
    if q.name == "square":
        value = value**2 + mean**2
    return round(rows * (1.0 if q.name == "count" else value) / q.resolution)


def _expected(released: Released, answers: Answers, statistic: Statistic, known: bool) -> Expected:
    windows, each = released.edges.size - 1, int(released.edges[1] - released.edges[0])

    def over(first: int, count: int) -> tuple[float, float, float]:
        found = answers.about(statistic, np.array([first]), np.array([first + count]))
        half = (found.high - found.low) / 2.0
        return float(found.estimate[0, 0]), float(found.std_error[0, 0]), float(half[0, 0])

    longer = {name: span // each for name, span in SPANS.items() if released.every is not None and span > each}
    widths = {name: over(0, count)[2] for name, count in longer.items() if 1 < count <= windows}
    value, error, half = over(windows // 2, 1)
    return Expected(error, half, value if known else None, widths)
