"""Public parameters of a release of windows, checked, and numbers that follow: budgets, grid, noise key."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import numpy as np

from fastdp import validation
from fastdp.data.column import Nonfinite
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, remainder, square_remainder, zcdp_loss
from fastdp.integer_grid import make_grid
from fastdp.kinds import Bounds, Flags, Integers, Json, Keys
from fastdp.noise.draws import NoiseName, better_noise, checked_noise, l2_square
from fastdp.record import Choice, Real, parameter, record
from fastdp.tables import sums
from fastdp.tables.calendar import Calendar, Time, most_spans, zone_rules
from fastdp.tables.columns import KeyRow
from fastdp.tables.sums import Kind, NoisySums, Quantity, WindowSums
from fastdp.units import ONE_ROW, Column, Person, Rows, Times, Unit, UnitRows
from fastdp.validation import DAY

KINDS = ("totals", "counts", "means")
#: Windows times keys of one release: 8 bytes each, and as much again for the noise.
MAX_CELLS = 2 * 10**8
#: Means: the share of the sums of deviations.  The best one lies between .5 and .61 for means from 0 to .3 theta.
DEVIATION_SHARE = 0.6
#: The same of rho, where noise is Gaussian.
GAUSSIAN_DEVIATION_SHARE = 0.65
#: Shares of epsilon, or of rho where noise is Gaussian: keys (with delta), how many rows lie above the lowest
#: candidate, the clip (both together, at most), how many rows lie beyond the clip, how many persons had rows dropped.
KEY_SHARE, ROW_SHARE, CLIP_SHARE, BEYOND_SHARE, PERSON_SHARE = 0.1, 0.005, 0.1, 0.01, 0.01
#: The clip of windows shorter than the first is chosen for sums over as many as fill it, and so on.
SPANS = (DAY, 7 * DAY, 365 * DAY)
#: So many noise scales of the clip's choice are its target number of rows, and a step of its slope, if CLIP_SHARE
#: allows it.
RESOLVED, RESOLVED_SLOPE = 16.0, 4.0
#: ln of the number of grid steps in the bound, for the choice.
SPAN = 33.0 * math.log(2.0)
KeyRule = Literal["none", "given", "public", "private"]


@record
class Value:
    """The values of a table, where more than their column is to be said.

    Parameters
    ----------
    column : str
        The column that is summed: numbers.
    resolution : float, optional
        Step of the integer grid that values are rounded to; by default the bound's 2^32th part, or coarser where the
        noise is.  A cell holds 2^63 steps: 10^9 rows and more by default.
    nonfinite : "raise" or "zero"
        Handling of values that are missing, NaN or infinite: an error, or they count as 0.
    noise : "laplace" or "gaussian", optional
        Noise of the sums.  Gaussian noise has sigma clip * sqrt(k * j) / x for k rows of a unit, at most j of them
        in one window (``Person.per_window``), x^2 / 2 being the rho that gives (epsilon, delta).  By default
        Laplace; with a ``delta`` that no keys need, the one of less variance, which follows from public parameters:
        Gaussian from 11 windows of a person on at epsilon = 1, delta = 1e-6 (:func:`fastdp.plan`).

    Examples
    --------
    >>> import fastdp
    >>> fastdp.Value("kwh", resolution=0.001).nonfinite
    'raise'
    """

    column: str = parameter(Column())
    resolution: float | None = parameter(Real(above=0.0, optional=True), default=None)
    nonfinite: Nonfinite = parameter(Choice(("raise", "zero")), default="raise")
    noise: NoiseName | None = parameter(Choice(("laplace", "gaussian"), optional=True), default=None)


@dataclass(frozen=True)
class TablePlan:
    """All public parameters of a release of windows.

    Attributes
    ----------
    value : Value or None
        None for counts.
    periods : Calendar or None
        The periods in which a unit's rows are bounded; None: one period.
    bound : (float, float) or None
        The widest clip; None for counts.
    chooses_clip : bool
        Whether the clip's upper end is chosen from the rows.
    start, stop : int or None
        Numbers of the first window, and of the one after the last.
    online : bool
        Whether rows arrive over time and a public clock closes windows.
    cells, rows : int or None
        Windows times keys; released number of rows above the lowest candidate of the clip.
    taken : tuple of str
        Ends of the time taken from the table: "first", "last".
    """

    kind: Kind
    time: Time
    unit: Unit
    value: Value | None
    calendar: Calendar
    periods: Calendar | None
    epsilon: float
    delta: float = 0.0
    bound: tuple[float, float] | None = None
    chooses_clip: bool = False
    by: tuple[str, ...] = ()
    key_rule: KeyRule = "none"
    keys: tuple[KeyRow, ...] = ()
    noise: NoiseName = "laplace"
    start: int | None = None
    stop: int | None = None
    online: bool = False
    cells: int | None = None
    rows: int | None = None
    taken: tuple[str, ...] = ()

    rule: ClassVar[int] = 1

    @property
    def who(self) -> str | None:
        """Column of persons, whose rows are bounded; None without persons."""
        return self.unit.column if isinstance(self.unit, Person) else None

    @property
    def is_public(self) -> bool:
        """True if windows, keys and clip are public parameters, so that one reading is enough."""
        ends = self.start is not None and self.stop is not None
        return ends and self.key_rule in ("none", "given") and not self.chooses_clip

    @property
    def contributions(self) -> int:
        """Most rows of one unit that count in a period."""
        return self.unit.rows if isinstance(self.unit, Person) else self.unit.k

    @property
    def per_window(self) -> int | None:
        """Most rows of one unit in a window; None without such a bound."""
        return self.unit.per_window if isinstance(self.unit, Person) else None

    @property
    def nonfinite(self) -> Nonfinite:
        """Handling of values that are NaN or infinite."""
        return "raise" if self.value is None else self.value.nonfinite

    @property
    def resolution(self) -> float | None:
        """The grid's resolution as given, in units of the input."""
        return None if self.value is None else self.value.resolution

    # Budgets.

    @property
    def gaussian(self) -> bool:
        """True if the sums' noise is Gaussian."""
        return self.noise == "gaussian"

    @property
    def key_delta(self) -> float:
        """Delta of the private choice of keys: all of it, or half with Gaussian noise."""
        return 0.0 if self.key_rule != "private" else self.delta / 2.0 if self.gaussian else self.delta

    @property
    def noise_delta(self) -> float:
        """Delta of Gaussian noise; 0 for Laplace."""
        return self.delta - self.key_delta if self.gaussian else 0.0

    @cached_property
    def loss(self) -> float:
        """Total budget: epsilon, or for Gaussian noise the x whose x^2 / 2 is its rho."""
        return zcdp_loss(self.epsilon, self.noise_delta) if self.gaussian else self.epsilon

    def _share(self, share: float) -> float:
        """A share of the budget, of epsilon or of rho."""
        return self.loss * (math.sqrt(share) if self.gaussian else share)

    def _rest(self, whole: float, *parts: float) -> float:
        """Budget left of the total `whole` after these components."""
        if self.gaussian:
            return square_remainder(whole, *parts)
        for part in parts:
            whole = remainder(whole, part)
        return whole

    @property
    def reports_persons(self) -> bool:
        """True if the number of persons (in each period) with dropped rows is released."""
        return self.who is not None and not self.online

    @property
    def reports_clip(self) -> bool:
        """True if the number of rows beyond the clip is released."""
        return self.bound is not None and not self.online

    @cached_property
    def person_epsilon(self) -> float:
        """Epsilon of the report on persons; unspent online, so that sums equal a table's."""
        return self._share(PERSON_SHARE) if self.who is not None else 0.0

    @cached_property
    def beyond_epsilon(self) -> float:
        """Epsilon of the report on rows beyond the clip; unspent online."""
        return self._share(BEYOND_SHARE) if self.bound is not None else 0.0

    @property
    def beyond_sensitivity(self) -> int:
        """Change by one unit of the counts of rows beyond and within the clip; a replaced value changes both by 1."""
        return max(2, self.contributions)

    @cached_property
    def key_epsilon(self) -> float:
        """Epsilon of the counts that decide which keys are released."""
        return self._share(KEY_SHARE) if self.key_rule == "private" else 0.0

    @cached_property
    def clip_epsilons(self) -> tuple[float, float]:
        """Epsilons of the count of rows above the lowest candidate, and of the choice of the clip.

        The second is at most CLIP_SHARE minus the first, and follows from that number once it is released: pure
        losses may be chosen adaptively, as long as their sum never exceeds epsilon.
        """
        if not self.chooses_clip:
            return 0.0, 0.0
        counting, most = self._share(ROW_SHARE), self._share(CLIP_SHARE - ROW_SHARE)
        if self.rows is None:
            return counting, most
        # As ScaleFree has it: the target is at most half of the rows, and slopes fit below the rest.
        target = min(self.rows_above, self.rows / 2.0)
        slope = 0.5 * (self.rows - target) / SPAN
        return counting, min(most, self.contributions * max(RESOLVED / target, RESOLVED_SLOPE / slope))

    @property
    def rows_above(self) -> float:
        """Rows that should lie above the clip in all windows together, so that noise and clipping err alike.

        The squared error of the sum of g windows with n rows each is 2 g (s theta / eps)^2 + (g n E[(v - theta)+])^2,
        s the sensitivity in clips, least over theta where n p = sqrt(2 / g) s / eps, if p E[(v - theta)+] / theta is
        about p^2, as :class:`fastdp.thresholds.ScaleFree` takes it.
        """
        deviation = self.clips * (math.sqrt(self.square) / self.contributions if self.gaussian else math.sqrt(2.0))
        return max(1, self.cells or 1) * deviation / (self.loss * (1.0 - CLIP_SHARE)) / math.sqrt(self.together)

    @property
    def together(self) -> float:
        """Windows in the sums for which the clip is chosen: hours of a day, days of a week, else those of a year."""
        length = self.calendar.edge(1) - self.calendar.edge(0)
        span = next((span for span in SPANS if length < span), length)
        return max(1.0, min(span / length, (self.stop or 0) - (self.start or 0)))

    @property
    def square(self) -> int:
        """Squared L2 norm of the change by one unit: k rows, at most j of them in one sum."""
        return l2_square(self.contributions, self.per_window)

    @property
    def clips(self) -> float:
        """Change of the sums by one unit, in clips."""
        return self.contributions * (0.5 if self.kind == "means" else 1.0)

    @cached_property
    def sum_epsilon(self) -> float:
        """Budget of the sums, after reports, keys and clip: epsilon, or the x of Gaussian noise."""
        reports = self.person_epsilon, self.beyond_epsilon
        return self._rest(self.loss, *reports, self.key_epsilon, *self.clip_epsilons)

    def settled(self, first: int, last: int, keys: int) -> TablePlan:
        """The plan with the windows [first, last) and the number of keys; ParameterError if they are too many."""
        taken = tuple(end for end, given in (("first", self.start), ("last", self.stop)) if given is None)
        self.check_cells(last - first, keys)
        return replace(self, start=first, stop=last, cells=(last - first) * keys, taken=taken)

    def has(self, windows: Integers) -> Flags:
        """Flags of windows that are released, as far as their ends are public: bool[n]."""
        first = np.iinfo(np.int64).min if self.start is None else self.start
        last = np.iinfo(np.int64).max if self.stop is None else self.stop
        return (windows >= first) & (windows < last)

    # Sums.

    @property
    def value_epsilon(self) -> float:
        """Budget of the sums of values: that of all sums or, for means, the deviations' share."""
        if self.kind != "means":
            return self.sum_epsilon
        return self.sum_epsilon * (math.sqrt(GAUSSIAN_DEVIATION_SHARE) if self.gaussian else DEVIATION_SHARE)

    @cached_property
    def step(self) -> float:
        """The grid's resolution, in units of the input."""
        if self.bound is None:
            return 1.0
        most = max(map(abs, self.bound))
        # Noise of the bound itself fits; that of a smaller clip does too.
        each = self.value_epsilon / self.contributions
        return make_grid(most, self.resolution, each, 1, 1, 2).resolution

    def steps(self, value: float) -> int:
        """A bound as an integer number of steps, rounded towards 0, at least 1 in absolute value unless it is 0.

        10 is a thousand steps of 0.01, although the float 0.01 is slightly larger than a hundredth.
        """
        size = Fraction(abs(value)) / Fraction(self.step)
        whole = round(size)
        whole = whole if abs(size - whole) <= whole * Fraction(1, 2**52) else math.floor(size)
        return (1 if value >= 0 else -1) * (max(1, whole) if size else 0)

    def quantities(self, clip: float | None = None) -> list[Quantity]:
        """Sums of each cell, clipped above at `clip`, or at the bound."""
        k, drawn = self.contributions, (self.noise, self.square)
        found = []
        if self.bound is not None:
            low = self.steps(self.bound[0])
            high = self.steps(self.bound[1] if clip is None else clip)
            means = self.kind == "means"
            centre = (low + high) // 2 if means else 0
            name = "deviation" if means else "total"
            found.append(Quantity(name, low, high, centre, self.step, self.value_epsilon, k, *drawn))
        if self.kind != "totals":
            means = self.kind == "means"
            rest = self._rest(self.sum_epsilon, self.value_epsilon) if means else self.sum_epsilon
            found.append(Quantity("count", 0, 1, 0, 1.0, rest, k, *drawn))
        return found

    def reported(self, quantities: Sequence[Quantity]) -> list[Quantity]:
        """Further sums for the report on the clip: rows beyond it, and all rows unless they are counted already."""
        if not self.reports_clip:
            return []
        first = quantities[0]
        counted = [] if quantities[-1].name == "count" else [replace(first, name="count")]
        return [replace(first, name="beyond"), *counted]

    def clip_of(self, quantities: Sequence[Quantity]) -> tuple[float, float] | None:
        """Ends of the clip, in units of the input; None for counts."""
        if self.bound is None:
            return None
        return quantities[0].low * self.step, quantities[0].high * self.step

    def times_of(self, unit: UnitRows) -> Times | None:
        """The times from `start` to `stop` where both are given and cut no unit; rows at others change nothing."""
        if self.start is None or self.stop is None or self.taken:
            return None
        calendar = self.calendar
        ends = calendar.edge(self.start), calendar.edge(self.stop)
        times = Times(self.time.column, calendar.time_zone, *ends)
        return times if unit.keeps(times) else None

    def guarantee(self, *, simulated: bool) -> Guarantee:
        """Guarantee of everything that is released."""
        return sums.of_everything(self, simulated)

    def released(
        self,
        span: tuple[int, int],
        quantities: Sequence[Quantity],
        keys: dict[str, list[object]],
        columns: dict[str, NoisySums],
        *,
        simulated: bool,
    ) -> WindowSums:
        """Noisy sums of the windows [first, last), with all public facts about them."""
        return WindowSums(
            *(self.kind, self.calendar.edges(*span), self.calendar.time_zone, self.calendar.every, keys, columns),
            clip=self.clip_of(quantities),
            guarantee=self.guarantee(simulated=simulated),
            centre=quantities[0].centre * self.step if self.kind == "means" else 0.0,
        )

    # Noise.

    def identity(self) -> Json:
        """Everything on which noise depends besides secret and rows; the same for a table and for its stream."""
        return {
            "kind": self.kind,
            "every": self._spans(self.calendar),
            "period": None if self.periods is None else self._spans(self.periods),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "bound": self.bound,
            "chooses_clip": self.chooses_clip,
            "resolution": self.resolution,
            "by": list(self.by),
            "key_rule": self.key_rule,
            "keys": key_digest(self.keys),
            "contributions": self.contributions,
            "per_window": self.per_window,
            "who": self.who is not None,
            "start": self.start,
            "nonfinite": self.nonfinite,
            "noise": self.noise,
        }

    def _spans(self, calendar: Calendar) -> list[object]:
        """JSON identity of a calendar without its zone's name; two borders determine its origin."""
        begin = None if self.start is None else self.calendar.edge(self.start)
        return [calendar.every, zone_rules(calendar.zone, begin), calendar.edge(0), calendar.edge(1)]

    def describe(self) -> Json:
        """The public parameters, for a ledger."""
        return {
            **self.identity(),
            "every": self.calendar.every,
            "period": None if self.periods is None else self.periods.every,
            "time_zone": self.calendar.time_zone,
            "bound": None if self.bound is None else list(self.bound),
            "keys": len(self.keys) if self.key_rule == "given" else self.key_rule,
            "who": self.who,
            "stop": self.stop,
        }

    def check_cells(self, windows: int, keys: int) -> None:
        """Raise ParameterError for more windows and keys than fit in memory."""
        if windows * keys > MAX_CELLS:
            raise ParameterError(
                f"{windows:,} windows of {self.calendar.every} and {keys:,} keys: expected at most {MAX_CELLS:,} "
                "cells; use longer windows (every=), fewer keys (keys=), or a shorter time (Time(start=, stop=))"
            )


def key_digest(keys: Sequence[KeyRow]) -> bytes:
    """Digest of these keys in this order."""
    return hashlib.sha256(repr(list(keys)).encode()).digest()


# The arguments of ``totals``, ``counts``, ``means`` and ``Windows``.


def names_of(name: str, given: object) -> tuple[str, ...]:
    """Column names from one, several or None; ParameterError if one is repeated or not a text."""
    listed = [] if given is None else [given] if isinstance(given, str) else given
    if not isinstance(listed, (list, tuple)) or not all(isinstance(each, str) for each in listed):
        raise ParameterError(f"{name} = {validation.shown(given)}: expected the name of a column, or a list of names")
    if len(set(listed)) != len(listed):
        raise ParameterError(f"{name} = {validation.shown(given)}: expected each column once")
    return tuple(listed)


def keys_of(by: tuple[str, ...], given: Keys | None, delta: float) -> tuple[KeyRule, tuple[KeyRow, ...]]:
    """Source of the keys, and the given keys; ParameterError if they do not fit `by` and `delta`."""
    if not by:
        if given is not None:
            raise ParameterError("keys: expected None without by=, the columns that they are of")
        return "none", ()
    if isinstance(given, str):
        return cast("KeyRule", validation.choice("keys", given, ("public",))), ()
    if given is None:
        if delta:
            return "private", ()
        raise ParameterError(
            f"keys = None: expected the list of keys of {', '.join(map(repr, by))} that are released, or "
            "keys='public' if it is no secret which keys the table has, or delta > 0 to choose them privately"
        )
    rows = _key_rows(by, given)
    # Their texts too, which name their noise: two NaNs are not equal.
    distinct = min(len(set(rows)), len(set(map(repr, rows))))
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
        if any(isinstance(key, (list, dict, set)) for key in listed):
            raise ParameterError(f"keys: expected entries of {by[0]!r}, texts or numbers, and no lists of them")
        return [tuple(key) if isinstance(key, tuple) and len(key) == 1 else (key,) for key in listed]
    if not all(isinstance(key, (tuple, list)) and len(key) == len(by) for key in listed):
        raise ParameterError(
            f"keys: expected tuples of {len(by)} entries, or a mapping of each column of by= to a list, whose "
            "combinations are the keys"
        )
    return [tuple(key) for key in listed]


def _plain(given: Any) -> list[Any]:
    """Python's entries of a list, array or series; ParameterError for anything else."""
    convert = next(
        (getattr(given, name) for name in ("tolist", "to_list", "to_pylist") if hasattr(given, name)), None
    )
    try:
        listed = convert() if convert else list(given)
        hash(tuple(tuple(key) if isinstance(key, list) else key for key in listed))
    except TypeError:
        raise ParameterError(f"keys is a {type(given).__name__}: expected a list of keys") from None
    return cast("list[Any]", listed)


def check_bound(bound: Bounds | None, clip: Bounds | None) -> tuple[tuple[float, float], bool]:
    """The widest clip, and True if its upper end is chosen from the rows; ParameterError if neither is given."""
    if bound is None and clip is None:
        raise ParameterError(
            "bound = None: expected a public upper bound of a value, such as bound=10.0, or (low, high) where values "
            "may be negative"
        )
    given, name = (bound, "bound") if clip is None else (clip, "clip")
    if isinstance(given, (tuple, list)):
        low, high = validation.ends(name, given)
        if not low < high:
            raise ParameterError(f"{name} = ({low!r}, {high!r}): expected low below high")
        ends, chooses = (low, high), False
    else:
        ends, chooses = (0.0, validation.positive(name, given)), clip is None
    if bound is not None and clip is not None:
        outer, _ = check_bound(bound, None)
        if ends[0] < outer[0] or ends[1] > outer[1]:
            raise ParameterError(f"clip = {clip!r}: expected a clip within bound = {validation.shown(bound)}")
    return ends, chooses


def make_plan(
    kind: Kind,
    time: Time,
    value: Value | None,
    *,
    epsilon: float,
    unit: Unit = ONE_ROW,
    bound: Bounds | None = None,
    clip: Bounds | None = None,
    by: str | Sequence[str] | None = None,
    keys: Keys | None = None,
    delta: float = 0.0,
    noise: NoiseName | None = None,
) -> TablePlan:
    """The plan of a release, its parameters checked; the table is not read."""
    if not isinstance(unit, (Rows, Person)):
        raise ParameterError(
            f"unit = {validation.shown(unit)}: expected fastdp.Rows(k), or fastdp.Person(column, rows=k)"
        )
    epsilon = validation.positive("epsilon", epsilon)
    delta = validation.real("delta", delta)
    if not 0.0 <= delta < 1.0:
        raise ParameterError(f"delta = {delta!r}: expected at least 0 and below 1")
    columns = names_of("by", by)
    rule, rows = keys_of(columns, keys, delta)
    calendar = Calendar(time.every, time.zone, time.origin)
    first = None if time.start is None else calendar.border("start", time.start)
    last = None if time.stop is None else calendar.border("stop", time.stop)
    if first is not None and last is not None and last <= first:
        raise ParameterError(f"stop = {time.stop!r}: expected a time behind start = {time.start!r}")
    ends, chooses = (None, False) if kind == "counts" else check_bound(bound, clip)
    periods = None if unit.per is None else Calendar(unit.per, time.zone, time.origin, "per")
    plan = TablePlan(
        *(kind, time, unit, value, calendar, periods, epsilon, delta, ends, chooses, columns, rule, rows),
        start=first,
        stop=last,
    )
    drawn = _noise_of(noise if value is None else value.noise, plan)
    # Laplace noise of sums needs no delta; keys that are chosen do.
    plan = replace(plan, noise=drawn, delta=delta if drawn == "gaussian" or rule == "private" else 0.0)
    if first is not None and last is not None:
        plan.check_cells(last - first, max(1, len(rows)))
        _check_per_window(plan, last - first)
    # Laws that cannot be drawn are refused before any row is read.
    for quantity in plan.quantities():
        _ = quantity.distribution
    return plan


def _noise_of(noise: NoiseName | None, plan: TablePlan) -> NoiseName:
    """The noise of the sums: the given one, or with a delta for it the one of less variance."""
    delta, private = plan.delta, plan.key_rule == "private"
    noise = None if noise is None else checked_noise(noise)
    if noise == "gaussian" and not delta:
        raise ParameterError("delta = 0: expected above 0, such as 1e-9, because noise = 'gaussian'")
    if noise == "laplace" and delta and not private:
        raise ParameterError(
            f"delta = {delta!r}: expected 0, because Laplace noise needs none and no keys are chosen privately"
        )
    if noise is not None or not delta or private:
        return noise or "laplace"
    return better_noise(plan.epsilon, delta, plan.contributions, plan.per_window)


def _check_per_window(plan: TablePlan, windows: int) -> None:
    """Raise ParameterError for more rows of a person than windows allow, which would enlarge the noise needlessly."""
    if plan.per_window is None or plan.periods is not None:
        return
    most = plan.per_window * windows
    if plan.contributions > most:
        raise ParameterError(
            f"rows = {plan.contributions}: a person has at most {most} rows, {plan.per_window} in each of "
            f"{windows} windows; expected at most {most}, because noise grows with rows"
        )


def check_online(plan: TablePlan) -> None:
    """Raise ParameterError unless a person's rows that count are known as each window closes."""
    if plan.who is None:
        return
    if plan.periods is None:
        raise ParameterError(
            "per = None: expected the period in which a person's rows are bounded, such as '1d', because windows "
            "close one by one: a number of rows for life would be used up by the first ones"
        )
    calendar, period = plan.calendar, plan.periods.every
    begin = calendar.edge(plan.start or 0)
    most = most_spans(calendar.every, period, calendar.time_zone, calendar.origin, begin)
    if most > 1 and plan.per_window is None:
        raise ParameterError(
            f"per_window = None: expected the rows of a person that count in one window, such as "
            f"{max(1, plan.contributions // most)}, because a period of {period} has up to {most} windows of "
            f"{calendar.every}, which close one by one"
        )
    needed = most * (plan.per_window or 1)
    if most > 1 and plan.contributions < needed:
        raise ParameterError(
            f"rows = {plan.contributions}: expected at least {needed}, because a period of {period} has up "
            f"to {most} windows of {calendar.every} with per_window = {plan.per_window} rows of a person each; or a "
            "smaller per_window, longer windows, or a shorter period"
        )
