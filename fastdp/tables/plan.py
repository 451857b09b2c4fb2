"""Public parameters of a release of a table, and numbers that follow: sums, grid, identity of noise."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import numpy as np

from fastdp import validation
from fastdp.data.column import Nonfinite
from fastdp.errors import ParameterError
from fastdp.integer_grid import make_grid
from fastdp.kinds import Bounds, Flags, Integers, Json, Keys
from fastdp.noise.draws import NoiseName
from fastdp.record import Choice, Flag, Kind, Real, parameter, record
from fastdp.tables import quantiles
from fastdp.tables.beyond import Tail
from fastdp.tables.budget import Budget
from fastdp.tables.calendar import Calendar, Time, most_spans, zone_rules
from fastdp.tables.columns import KeyRow
from fastdp.tables.columns import Keys as KeySet
from fastdp.tables.sums import COUNTS, FIRST_SUMS, ROWS, Measured, Quantity, Released, Statistic
from fastdp.units import ONE_ROW, Column, Person, Rows, Times, Unit, UnitRows

#: Statistics of a column of values.
STATISTICS = ("sum", "mean", "var", "std", "median", "nunique")
#: Those that follow from sums of values.
OF_SUMS = {"sum", "mean", "var", "std"}
#: Percentiles: "p95", "p99.9".
PERCENTILE = re.compile(r"p(\d{1,2}(\.\d{1,6})?|100)")
#: Windows times keys of one release: 8 bytes each, and as much again for the noise.
MAX_CELLS = 2 * 10**8
#: The noise of a release whose persons' rows are chosen ("auto") is that of less variance for so many.
NOMINAL_ROWS = 20
#: Share of the budget that the choice of keys and of a person's rows leave, at least.
LEFT = Fraction(1, 20)
#: Bits of the largest square of a deviation, in steps of a square's resolution.
SQUARE_BITS = 32
#: Ends of the clip by column.
Clips = Mapping[str, tuple[float, float]]
KeyRule = Literal["none", "given", "public", "private"]


@record
class Value:
    """Public bounds of a column of values, and how they are used.

    Parameters
    ----------
    bound : float or (float, float), optional
        Upper bound of a value, from 0, or both bounds, not computed from the table.
    clip : float or (float, float), optional
        Publicly known ends to which values are clipped; then ``bound`` may be omitted.  By default chosen from the
        rows with a share of the column's budget.
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
        if self.bound is None and self.clip is None:
            raise ParameterError(
                "bound = None: expected a public upper bound of a value, such as bound=10.0, or (low, high) where "
                "values may be negative"
            )
        given = [_ends(name, each) for name, each in (("bound", self.bound), ("clip", self.clip)) if each is not None]
        outer, inner = given[0], given[-1]
        if inner[0] < outer[0] or inner[1] > outer[1]:
            raise ParameterError(
                f"clip = {self.clip!r}: expected a clip within bound = {validation.shown(self.bound)}"
            )

    @property
    def ends(self) -> tuple[float, float]:
        """The widest clip."""
        return _ends("clip", self.clip) if self.clip is not None else _ends("bound", self.bound)


def _ends(name: str, given: object) -> tuple[float, float]:
    """Ends of a clip or bound; ParameterError unless numbers in order."""
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
        Share of the budget; unused where counts without windows are released for units of rows, which then choose
        keys.

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
        """Part of the noise's identity."""
        return [self.share, "others"] if self.others else self.share


@dataclass(frozen=True)
class ColumnPlan:
    """One column of values: widest clip, which ``chooses`` narrows, bound, and other fields.

    ``entries``: distinct entries are counted.
    """

    name: str
    low: float
    high: float
    chooses: bool
    weight: float
    nonfinite: Nonfinite
    resolution: float | None
    bound: tuple[float, float] | None = None
    entries: bool = False


@dataclass(frozen=True)
class TablePlan:
    """All public parameters of a release of a table.

    Attributes
    ----------
    time, calendar : Time, Calendar or None
        None: no windows.
    periods : Calendar or None
        Periods in which a unit's rows are bounded; None: one.
    levels : bool or None
        True: totals of prefixes and over all windows too; None: where they are cheap.
    start, stop : int or None
        Numbers of the first window, and after the last.
    online : bool
        True if a public clock closes windows.
    cells, nodes : int, tuple of int or None
        Windows times keys; key prefixes by depth.
    chosen_rows : int
        With ``Person(rows="auto")``: rows that count, once chosen.
    spent : dict of str to float
        Loss of each clip's choice.
    taken : tuple of str
        Ends of the time taken from the table: "first", "last".
    """

    statistics: tuple[Statistic, ...]
    columns: tuple[ColumnPlan, ...]
    time: Time | None
    unit: Unit
    calendar: Calendar | None
    periods: Calendar | None
    epsilon: float
    delta: float = 0.0
    by: tuple[str, ...] = ()
    key_rule: KeyRule = "none"
    keys: tuple[KeyRow, ...] = ()
    private: PrivateKeys | None = None
    levels: bool | None = None
    noise: NoiseName = "laplace"
    start: int | None = None
    stop: int | None = None
    online: bool = False
    cells: int | None = None
    nodes: tuple[int, ...] | None = None
    chosen_rows: int = NOMINAL_ROWS
    spent: Mapping[str, float] = field(default_factory=dict)
    taken: tuple[str, ...] = ()

    rule: ClassVar[int] = 2

    @property
    def who(self) -> str | None:
        """Column of bounded persons, if any."""
        return self.unit.column if isinstance(self.unit, Person) else None

    @property
    def chooses(self) -> list[ColumnPlan]:
        """Columns whose clip is chosen."""
        return [column for column in self.columns if column.chooses]

    @cached_property
    def has_entries(self) -> bool:
        """True if there is a column of entries, of which distinct ones are counted."""
        return any(column.entries for column in self.columns)

    @property
    def is_public(self) -> bool:
        """True if windows, keys and clips are public: one reading is enough."""
        ends = self.start is not None and self.stop is not None
        return ends and self.key_rule in ("none", "given") and not self.chooses

    @property
    def chooses_rows(self) -> bool:
        """True if a person's rows that count are chosen from the rows."""
        return isinstance(self.unit, Person) and self.unit.rows == "auto"

    @property
    def selects_cells(self) -> bool:
        """True if keys are chosen by released counts."""
        whole = self.calendar is None and self.counts_rows and not self.levels
        return self.key_rule == "private" and self.who is None and whole

    @property
    def has_others(self) -> bool:
        """True if the rows of all keys that are not released are one more key."""
        return self.private is not None and self.private.others

    @property
    def contributions(self) -> int:
        """Most rows of one unit that count in a period."""
        if not isinstance(self.unit, Person):
            return self.unit.k
        return self.unit.rows if isinstance(self.unit.rows, int) else self.chosen_rows

    @property
    def per_window(self) -> int | None:
        """Most rows of one unit in a window, if bounded."""
        return self.unit.per_window if isinstance(self.unit, Person) else None

    @cached_property
    def windows_of_unit(self) -> int:
        """Most windows in which a period has rows."""
        calendar, periods = self.calendar, self.periods
        assert calendar is not None and periods is not None  # noqa: S101, PT018 - there is a clock
        begin = calendar.edge(self.start or 0)
        return most_spans(calendar.every, periods.every, calendar.time_zone, calendar.origin, begin)

    @cached_property
    def budget(self) -> Budget:
        """Shares of the budget, and their noise."""
        return Budget(self)

    def settled(self, first: int, last: int, *nodes: int) -> TablePlan:
        """The plan with windows [first, last) and numbers of key prefixes; ParameterError for too many cells."""
        keys = nodes[-1]
        taken = tuple(end for end, given in (("first", self.start), ("last", self.stop)) if given is None)
        self.check_cells(last - first, keys)
        return replace(self, start=first, stop=last, cells=(last - first) * keys, nodes=nodes, taken=taken)

    def has(self, windows: Integers) -> Flags:
        """Flags of released windows, as far as ends are public."""
        first = np.iinfo(np.int64).min if self.start is None else self.start
        last = np.iinfo(np.int64).max if self.stop is None else self.stop
        return (windows >= first) & (windows < last)

    # Sums.

    def column(self, name: str) -> ColumnPlan:
        """The column of values with this name."""
        return next(column for column in self.columns if column.name == name)

    def place(self, name: str) -> int:
        """Number of a column: noise keys have no names."""
        return [column.name for column in self.columns].index(name)

    @property
    def counts_rows(self) -> bool:
        """True if the number of rows is wanted, or needed for means."""
        return any(each.column == ROWS or each.kind in ("mean", "var", "std") for each in self.statistics)

    def parts_of(self, column: str) -> list[str]:
        """Names of a column's sums, and of counts.

        A mean and a variance follow from the total if wanted, else from deviations, of half its sensitivity.
        """
        if column == ROWS:
            return ["count"]
        asked = [each for each in self.statistics if each.column == column]
        kinds = {each.kind for each in asked}
        found = {
            "total" if "sum" in kinds else "deviation": kinds & OF_SUMS,
            "square": kinds & {"var", "std"},
            "histogram": any(each.rank is not None for each in asked),
            "distinct": "nunique" in kinds,
        }
        return [name for name, used in found.items() if used]

    def first_sum(self, column: str) -> str | None:
        """Either "total" or "deviation"; None if the column has neither."""
        name = self.parts_of(column)[0]
        return name if name in FIRST_SUMS else None

    def grid(self, column: ColumnPlan) -> float:
        """Step of a column's grid."""
        loss = self.budget.of(Quantity(self.parts_of(column.name)[0], column.name), self.budget.levels[0])
        # Noise of the bound itself fits; that of a smaller clip does too.
        most = max(abs(column.low), abs(column.high))
        return make_grid(most, column.resolution, loss / self.contributions, 1, 1, 2).resolution

    def quantities(self, clips: Clips | None = None) -> list[Quantity]:
        """Sums of each cell, with values clipped to `clips` or bounds, then counts."""
        sums, counts = [], []
        for column in self.columns:
            names = self.parts_of(column.name)
            counts += [Quantity(name, column.name, column.low, column.high) for name in names if name in COUNTS]
            if self.first_sum(column.name) is None:
                continue
            grid = self.grid(column)
            low, high = (_steps(end, grid) for end in (clips or {}).get(column.name, (column.low, column.high)))
            # A chosen clip may be narrower than a step.
            high = max(high, low + 1)
            middle = (low + high) // 2
            # So that squares stay below 2^32 or so.
            shift = max(0, 2 * max(high - middle, middle - low).bit_length() - SQUARE_BITS)
            steps = {"total": (0, grid), "deviation": (middle, grid), "square": (middle, grid**2 * 2.0**shift)}
            sums += [
                Quantity(name, column.name, low, high, steps[name][0], grid, steps[name][1])
                for name in names
                if name in steps
            ]
        return [*sums, *([Quantity("count")] if self.counts_rows else []), *counts]

    def unknown_tails(self, quantities: Sequence[Quantity]) -> dict[str, Tail]:
        """Tails of which nothing is released."""
        firsts = [q for q in quantities if q.name in FIRST_SUMS]
        return {q.column: Tail.unknown(q.ends, self.column(q.column).bound) for q in firsts}

    def released(
        self,
        span: tuple[int, int],
        keys: KeySet,
        measured: tuple[Measured, ...],
        tails: dict[str, Tail],
        *,
        simulated: bool,
    ) -> Released:
        """Noisy sums of windows [first, last), with all public facts."""
        edges, zone, every = np.array(span, np.int64), None, None
        taken: tuple[str, ...] = ()
        if self.calendar is not None:
            edges, zone, every = self.calendar.edges(*span), self.calendar.time_zone, self.calendar.every
            taken = self.taken
        nodes = tuple(keys.columns(depth) for depth in range(len(self.by) + 1))
        public = edges, zone, every, nodes, keys.parents, self.statistics
        return Released(*public, measured, tails, self.budget.guarantee(simulated=simulated), taken=taken)

    def times_of(self, unit: UnitRows) -> Times | None:
        """Times from `start` to `stop`, if given and no unit is cut."""
        if self.time is None or self.calendar is None or self.start is None or self.stop is None or self.taken:
            return None
        ends = self.calendar.edge(self.start), self.calendar.edge(self.stop)
        times = Times(self.time.column, self.calendar.time_zone, *ends)
        return times if unit.keeps(times) else None

    # Noise.

    def identity(self) -> Json:
        """All on which noise depends besides secret and rows; the same online."""
        numbers = {column.name: i for i, column in enumerate(self.columns)} | {ROWS: -1}
        of_column = ("low", "high", "chooses", "weight", "nonfinite", "resolution")
        plain = ("epsilon", "delta", "key_rule", "levels", "per_window", "start", "noise")
        return {
            **{name: getattr(self, name) for name in plain},
            "statistics": [[each.kind, numbers[each.column]] for each in self.statistics],
            "columns": [[getattr(column, name) for name in of_column] for column in self.columns],
            "every": None if self.calendar is None else self._spans(self.calendar),
            "period": None if self.periods is None else self._spans(self.periods),
            "by": list(self.by),
            "keys": self._key_digest,
            "share": None if self.private is None else self.private.named,
            "contributions": self.contributions if not self.chooses_rows else "auto",
            "who": self.who is not None,
        }

    @cached_property
    def _key_digest(self) -> bytes:
        return key_digest(self.keys)

    def _spans(self, calendar: Calendar) -> list[object]:
        """Identity of a calendar, without its zone's name."""
        own = self.calendar
        begin = None if self.start is None or own is None else own.edge(self.start)
        return [calendar.every, zone_rules(calendar.zone, begin), calendar.edge(0), calendar.edge(1)]

    def describe(self) -> Json:
        """The public parameters, for a ledger."""
        calendar = self.calendar
        return {
            **self.identity(),
            "statistics": [each.name for each in self.statistics],
            "every": None if calendar is None else calendar.every,
            "period": None if self.periods is None else self.periods.every,
            "time_zone": None if calendar is None else calendar.time_zone,
            "keys": len(self.keys) if self.key_rule == "given" else self.key_rule,
            "who": self.who,
            "stop": self.stop,
        }

    def check_cells(self, windows: int, keys: int) -> None:
        """ParameterError for more cells than memory."""
        if any(each.rank is not None for each in self.statistics):
            quantiles.check_bins(windows * keys)
        if windows * keys > MAX_CELLS:
            every = "" if self.calendar is None else f" of {self.calendar.every}"
            raise ParameterError(
                f"{windows:,} windows{every} and {keys:,} keys: expected at most {MAX_CELLS:,} cells; use longer "
                "windows (every=), fewer keys (keys=), or a shorter time (Time(start=, stop=))"
            )


def _steps(value: float, grid: float) -> int:
    """A bound in steps, rounded towards 0, at least 1 in size unless 0; 10 is a thousand steps of 0.01."""
    size = Fraction(abs(value)) / Fraction(grid)
    whole = round(size)
    whole = whole if abs(size - whole) <= whole * Fraction(1, 2**52) else math.floor(size)
    return (1 if value >= 0 else -1) * (max(1, whole) if size else 0)


def key_digest(keys: Sequence[KeyRow]) -> bytes:
    """Digest of these keys in this order."""
    return hashlib.sha256(repr(list(keys)).encode()).digest()


# The arguments of ``aggregate`` and ``Windows``.


def statistics_of(given: object) -> tuple[Statistic, ...]:
    """Statistics from a mapping; else ParameterError."""
    if not isinstance(given, Mapping) or not given:
        raise ParameterError(
            f"statistics = {validation.shown(given)}: expected a mapping of columns to statistics, such as "
            "{'kwh': ['sum', 'mean'], '*': 'count'}"
        )
    found = []
    for number, (column, named) in enumerate(given.items()):
        listed = [named] if isinstance(named, str) else named
        if not isinstance(listed, (list, tuple)) or not listed or not all(_is_statistic(column, x) for x in listed):
            # Of a mapping that holds data no entry is shown.
            accepted = ("count",) if isinstance(column, str) and column == ROWS else STATISTICS
            more = ", a percentile such as p95" if len(accepted) > 1 else ""
            raise ParameterError(
                f"statistics, entry {number}: expected {' or '.join(map(repr, accepted))}{more}, or a list of them "
                "('count' is of '*', the rows)"
            )
        found += [Statistic(kind, Column().check("statistics", column)) for kind in dict.fromkeys(listed)]
    return tuple(found)


def _is_statistic(column: object, name: object) -> bool:
    if column == ROWS or not isinstance(name, str):
        return name == "count"
    return name in STATISTICS or PERCENTILE.fullmatch(name) is not None


def entries_of(statistics: Sequence[Statistic]) -> list[str]:
    """Columns of which only distinct entries are counted."""
    columns = {each.column: {x.kind for x in statistics if x.column == each.column} for each in statistics}
    return [column for column, kinds in columns.items() if kinds == {"nunique"}]


def values_of(statistics: Sequence[Statistic], bounds: object) -> list[tuple[str, Value]]:
    """Columns of values with bounds; ParameterError without one, or for others."""
    names = [each.column for each in statistics if each.column not in (ROWS, *entries_of(statistics))]
    names = list(dict.fromkeys(names))
    if isinstance(bounds, Mapping):
        given = dict(bounds)
    elif bounds is not None and len(names) != 1:
        raise ParameterError(
            f"bounds = {validation.shown(bounds)}: expected a mapping of {len(names)} columns with values to bounds"
        )
    else:
        given = dict.fromkeys(names, bounds)
    if unknown := set(given) - set(names):
        raise ParameterError(f"bounds of {len(unknown)} columns without statistics: expected those of {names}")
    return [(name, each if isinstance(each := given.get(name), Value) else Value(each)) for name in names]


def names_of(name: str, given: object) -> tuple[str, ...]:
    """Column names from one, several or None; ParameterError if repeated or no text."""
    listed = [] if given is None else [given] if isinstance(given, str) else given
    if not isinstance(listed, (list, tuple)) or not all(isinstance(each, str) for each in listed):
        raise ParameterError(f"{name} = {validation.shown(given)}: expected the name of a column, or a list of names")
    if len(set(listed)) != len(listed):
        raise ParameterError(f"{name} = {validation.shown(given)}: expected each column once")
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
        raise ParameterError(
            f"keys = None: expected the list of keys of {', '.join(map(repr, by))} that are released, or "
            "keys='public' if it is no secret which keys the table has, or delta > 0 to choose them privately"
        )
    rows = _key_rows(by, given)
    try:
        distinct = len(set(rows))
        if set(map(type, itertools.chain.from_iterable(rows))) != {str}:
            # Their texts too, which name their noise: two NaNs are not equal.
            distinct = min(distinct, len(set(map(repr, rows))))
    except TypeError:
        raise ParameterError("keys: expected texts, numbers, dates or times, and no lists of them") from None
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
        types = set(map(type, listed))
        if types & {list, dict, set}:
            raise ParameterError(f"keys: expected entries of {by[0]!r}, texts or numbers, and no lists of them")
        if tuple not in types:
            return list(zip(listed, strict=True))
        return [key if isinstance(key, tuple) and len(key) == 1 else (key,) for key in listed]
    if not all(isinstance(key, (tuple, list)) and len(key) == len(by) for key in listed):
        raise ParameterError(
            f"keys: expected tuples of {len(by)} entries, or a mapping of each column of by= to a list, whose "
            "combinations are the keys"
        )
    return [tuple(key) for key in listed]


def _plain(given: Any) -> list[Any]:
    """Python's entries of a list, array or series; else ParameterError."""
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
        raise ParameterError(
            f"unit = {validation.shown(unit)}: expected fastdp.Rows(k), or fastdp.Person(column, rows=k)"
        )
    epsilon, delta = validation.positive("epsilon", epsilon), validation.real("delta", delta)
    if not 0.0 <= delta < 1.0:
        raise ParameterError(f"delta = {delta!r}: expected at least 0 and below 1")
    named = names_of("by", by)
    rule, rows = keys_of(named, keys, delta)
    private = (keys if isinstance(keys, PrivateKeys) else PrivateKeys()) if rule == "private" else None
    calendar, periods = None, None
    first, last = (0, 1) if time is None else (None, None)
    if time is not None:
        calendar = Calendar(time.every, time.zone, time.origin)
        first = None if time.start is None else calendar.border("start", time.start)
        last = None if time.stop is None else calendar.border("stop", time.stop)
        if first is not None and last is not None and last <= first:
            raise ParameterError(f"stop = {time.stop!r}: expected a time behind start = {time.start!r}")
        periods = None if unit.per is None else Calendar(unit.per, time.zone, time.origin, "per")
    elif unit.per is not None:
        raise ParameterError(f"per = {unit.per!r}: expected None without time=, or the column of times")
    levels = None if levels is None else Flag().check("levels", levels)
    asked = tuple(statistics), _columns(statistics, bounds), time, unit, calendar, periods, epsilon, delta
    plan = TablePlan(*asked, named, rule, rows, private, levels, start=first, stop=last)
    if 1 - sum(plan.budget.of_all.values()) < LEFT:
        raise ParameterError(f"share = {plan.private.share if plan.private else 1.0!r}: expected at most .9 for keys")
    plan = with_noise(plan)
    if first is not None and last is not None:
        plan.check_cells(last - first, max(1, len(rows)))
        _check_per_window(plan, last - first)
    # Laws that cannot be drawn are refused before any row is read.
    for quantity, level in itertools.product(plan.quantities(), plan.budget.levels):
        plan.budget.distribution(quantity, level)
    return plan


def _columns(statistics: Sequence[Statistic], bounds: object) -> tuple[ColumnPlan, ...]:
    """The columns of values, whose clip is chosen for sums alone, and those of entries."""
    summed = {each.column for each in statistics if each.kind in OF_SUMS}
    found = []
    for name, value in values_of(statistics, bounds):
        bound = None if value.bound is None else _ends("bound", value.bound)
        facts = value.clip is None and name in summed, value.weight, value.nonfinite, value.resolution, bound
        low, high = value.ends
        found.append(ColumnPlan(name, low, high, *facts))
    entries = [ColumnPlan(name, 0.0, 0.0, False, 1.0, "zero", None, entries=True) for name in entries_of(statistics)]
    return (*found, *entries)


def with_noise(plan: TablePlan) -> TablePlan:
    """The plan with the noise of less variance."""
    if not plan.delta:
        return plan
    gaussian = replace(plan, noise="gaussian")
    if gaussian.budget.log_variance() < plan.budget.log_variance():
        return gaussian
    # Laplace noise of sums needs no delta; keys that are chosen do.
    return plan if plan.key_rule == "private" else replace(plan, delta=0.0)


def _check_per_window(plan: TablePlan, windows: int) -> None:
    """ParameterError for more rows of a person than windows allow."""
    if plan.per_window is None or plan.periods is not None or plan.chooses_rows:
        return
    most = plan.per_window * windows
    if plan.contributions > most:
        raise ParameterError(
            f"rows = {plan.contributions}: a person has at most {most} rows, {plan.per_window} in each of "
            f"{windows} windows; expected at most {most}, because noise grows with rows"
        )


def check_online(plan: TablePlan) -> None:
    """ParameterError unless rows that count are known as windows close."""
    if plan.has_others:
        raise ParameterError("others = True: expected False online, where a key may appear later")
    if plan.who is None:
        return
    if plan.chooses_rows:
        raise ParameterError("rows = 'auto': expected a number, because rows that count are known as windows close")
    if plan.periods is None:
        raise ParameterError(
            "per = None: expected the period in which a person's rows are bounded, such as '1d', because windows "
            "close one by one: a number of rows for life would be used up by the first ones"
        )
    calendar, period, most = cast("Calendar", plan.calendar), plan.periods.every, plan.windows_of_unit
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
