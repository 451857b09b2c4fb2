"""Public parameters of a release of a table, and numbers that follow: sums, grid, identity of noise."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from fastdp.data.calendar import Calendar, Time, most_spans, zone_rules
from fastdp.data.column import Nonfinite
from fastdp.errors import ParameterError
from fastdp.integer_grid import make_grid
from fastdp.kinds import Flags, Integers, Json
from fastdp.noise.sampler import NoiseName
from fastdp.record import values_of
from fastdp.tables import quantiles
from fastdp.tables.budget import Budget
from fastdp.tables.choices import Tail
from fastdp.tables.columns import KeyRow
from fastdp.tables.columns import Keys as KeySet
from fastdp.tables.quantities import COUNTS, FIRST_SUMS, ROWS, Quantity
from fastdp.tables.released import Measured, Released
from fastdp.tables.statistics import Statistic, needed
from fastdp.units import Person, Times, Unit, UnitRows

if TYPE_CHECKING:
    from fastdp.tables.functions import PrivateKeys

#: Windows times keys of one release: 8 bytes each, and as much again for the noise.
MAX_CELLS = 2 * 10**8
#: The noise of a release whose persons' rows are chosen ("auto") is that of less variance for so many.
NOMINAL_ROWS = 20
#: Most rows of a person that are chosen.
MOST_ROWS = 10**6
#: Bits of the largest square of a deviation, in steps of a square's resolution, for up to :data:`FINE_ROWS` rows of a
#: unit; of more rows the noise, which grows with them, needs no finer steps, and must fit.
SQUARE_BITS, FINE_ROWS = 32, 32
#: Ends of the clip by column.
Clips = Mapping[str, tuple[float, float]]
KeyRule = Literal["none", "given", "public", "private"]


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

    @property
    def ends(self) -> tuple[float, float]:
        return self.low, self.high


@dataclass(frozen=True)
class TablePlan:
    """All public parameters of a release of a table."""

    statistics: tuple[Statistic, ...]
    columns: tuple[ColumnPlan, ...]
    #: `time`, `calendar`: None: no windows.
    time: Time | None
    unit: Unit
    calendar: Calendar | None
    #: Periods in which a unit's rows are bounded; None: one.
    periods: Calendar | None
    epsilon: float
    delta: float = 0.0
    by: tuple[str, ...] = ()
    key_rule: KeyRule = "none"
    keys: tuple[KeyRow, ...] = ()
    private: PrivateKeys | None = None
    #: True: totals of prefixes and over all windows too; None: where they are cheap.
    levels: bool | None = None
    noise: NoiseName = "laplace"
    #: `start`, `stop`: Numbers of the first window, and after the last.
    start: int | None = None
    stop: int | None = None
    #: True if a public clock closes windows.
    online: bool = False
    #: `cells`, `nodes`: Windows times keys; key prefixes by depth.
    cells: int | None = None
    nodes: tuple[int, ...] | None = None
    #: With ``Person(rows="auto")``: rows that count, once chosen.
    chosen_rows: int = NOMINAL_ROWS
    #: Loss of each clip's choice.
    spent: Mapping[str, float] = field(default_factory=dict)
    #: Ends of the time taken from the table: "first", "last".
    taken: tuple[str, ...] = ()

    rule: ClassVar[int] = 2

    @property
    def who(self) -> str | None:
        return self.unit.column if isinstance(self.unit, Person) else None

    @property
    def chooses(self) -> list[ColumnPlan]:
        return [column for column in self.columns if column.chooses]

    @cached_property
    def has_entries(self) -> bool:
        return any(column.entries for column in self.columns)

    @property
    def has_public_cells(self) -> bool:
        return self.start is not None and self.stop is not None and self.key_rule in ("none", "given")

    @property
    def is_public(self) -> bool:
        return self.has_public_cells and not self.chooses

    @property
    def chooses_rows(self) -> bool:
        """True if k, the number of rows of a person that count, is chosen privately."""
        return isinstance(self.unit, Person) and self.unit.rows == "auto"

    @property
    def selects_cells(self) -> bool:
        """True if private keys are chosen by the noisy counts that are released."""
        whole = self.calendar is None and self.counts_rows and not self.levels
        return self.key_rule == "private" and self.who is None and whole

    @property
    def has_others(self) -> bool:
        return self.private is not None and self.private.others

    @property
    def contributions(self) -> int:
        if not isinstance(self.unit, Person):
            return self.unit.k
        return self.unit.rows if isinstance(self.unit.rows, int) else self.chosen_rows

    @property
    def per_window(self) -> int | None:
        return self.unit.per_window if isinstance(self.unit, Person) else None

    @cached_property
    def windows_of_unit(self) -> int:
        calendar, periods = self.calendar, self.periods
        assert calendar is not None and periods is not None  # noqa: S101, PT018 - there is a clock
        begin = calendar.edge(self.start or 0)
        return most_spans(calendar.every, periods.every, calendar.time_zone, calendar.origin, begin)

    @cached_property
    def budget(self) -> Budget:
        return Budget(self)

    def settled(self, first: int, last: int, *nodes: int) -> TablePlan:
        """The plan with windows [first, last) and numbers of key prefixes; ParameterError for too many cells."""
        keys = nodes[-1]
        taken = tuple(end for end, given in (("first", self.start), ("last", self.stop)) if given is None)
        self.check_cells(last - first, keys)
        return replace(self, start=first, stop=last, cells=(last - first) * keys, nodes=nodes, taken=taken)

    def has(self, windows: Integers) -> Flags:
        first = np.iinfo(np.int64).min if self.start is None else self.start
        last = np.iinfo(np.int64).max if self.stop is None else self.stop
        return (windows >= first) & (windows < last)

    # Sums.

    def column(self, name: str) -> ColumnPlan:
        return next(column for column in self.columns if column.name == name)

    def place(self, name: str) -> int:
        """Number of a column: noise keys have no names."""
        return [column.name for column in self.columns].index(name)

    @property
    def counts_rows(self) -> bool:
        return any("count" in each.needs for each in self.statistics)

    @cached_property
    def parts(self) -> dict[str, list[str]]:
        """Names of the measured sums, by column."""
        return {ROWS: ["count"]} | {each.name: needed(self.statistics, each.name) for each in self.columns}

    def first_sum(self, column: str) -> str | None:
        name = self.parts[column][0]
        return name if name in FIRST_SUMS else None

    def grid(self, column: ColumnPlan) -> float:
        loss = self.budget.loss_of(Quantity(self.parts[column.name][0], column.name), self.budget.levels[0])
        # Noise of the bound itself fits; that of a smaller clip does too.
        most = max(abs(column.low), abs(column.high))
        return make_grid(most, column.resolution, loss / self.contributions, 1, 1, 2).resolution

    @property
    def square_bits(self) -> int:
        """Bits that the largest square of a deviation has at most."""
        return SQUARE_BITS - max(0, (self.contributions // FINE_ROWS).bit_length())

    def quantities(self, clips: Clips | None = None) -> list[Quantity]:
        sums, counts = [], []
        for column in self.columns:
            names = self.parts[column.name]
            counts += [Quantity(name, column.name, column.low, column.high) for name in names if name in COUNTS]
            if self.first_sum(column.name) is None:
                continue
            grid = self.grid(column)
            low, high = (_steps(end, grid) for end in (clips or {}).get(column.name, column.ends))
            # A chosen clip may be narrower than a step.
            high = max(high, low + 1)
            middle = (low + high) // 2
            shift = max(0, 2 * max(high - middle, middle - low).bit_length() - self.square_bits)
            steps = {"total": (0, grid), "deviation": (middle, grid), "square": (middle, grid**2 * 2.0**shift)}
            sums += [
                Quantity(name, column.name, low, high, steps[name][0], grid, steps[name][1])
                for name in names
                if name in steps
            ]
        return [*sums, *([Quantity("count")] if self.counts_rows else []), *counts]

    def unknown_tails(self, quantities: Sequence[Quantity]) -> dict[str, Tail]:
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
        edges, zone, every = np.array(span, np.int64), None, None
        taken: tuple[str, ...] = ()
        if self.calendar is not None:
            edges, zone, every = self.calendar.edges(*span), self.calendar.time_zone, self.calendar.every
            taken = self.taken
        nodes = tuple(keys.columns(depth) for depth in range(len(self.by) + 1))
        public = edges, zone, every, nodes, keys.parents, self.statistics
        return Released(*public, measured, tails, self.budget.guarantee(simulated=simulated), taken=taken)

    def times_of(self, unit: UnitRows) -> Times | None:
        """Public times outside which no row of the unit counts; None if they are not public."""
        if self.time is None or self.calendar is None or self.start is None or self.stop is None or self.taken:
            return None
        ends = self.calendar.edge(self.start), self.calendar.edge(self.stop)
        times = Times(self.time.column, self.calendar.time_zone, *ends)
        return times if unit.keeps(times) else None

    # Noise.

    def identity(self) -> Json:
        """All on which noise depends besides secret and rows."""
        numbers = {column.name: i for i, column in enumerate(self.columns)} | {ROWS: -1}
        of_column = ("low", "high", "chooses", "weight", "nonfinite", "resolution")
        plain = ("epsilon", "delta", "key_rule", "levels", "per_window", "start", "noise")
        return {
            **values_of(self, *plain),
            "statistics": [[each.kind, numbers[each.column]] for each in self.statistics],
            "columns": [list(values_of(column, *of_column).values()) for column in self.columns],
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
        own = self.calendar
        begin = None if self.start is None or own is None else own.edge(self.start)
        return [calendar.every, zone_rules(calendar.zone, begin), calendar.edge(0), calendar.edge(1)]

    def describe(self) -> Json:
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
        if any("histogram" in each.needs for each in self.statistics):
            quantiles.check_bins(windows * keys)
        if windows * keys > MAX_CELLS:
            every = "" if self.calendar is None else f" of {self.calendar.every}"
            raise ParameterError(
                f"{windows:,} windows{every} and {keys:,} keys: expected at most {MAX_CELLS:,} cells; use longer "
                "windows (every=), fewer keys (keys=), or a shorter time (Time(start=, stop=))"
            )


def _steps(value: float, grid: float) -> int:
    """A bound in steps, rounded towards 0, at least 1 in size unless 0."""
    size = Fraction(abs(value)) / Fraction(grid)
    whole = round(size)
    whole = whole if abs(size - whole) <= whole * Fraction(1, 2**52) else math.floor(size)
    return (1 if value >= 0 else -1) * (max(1, whole) if size else 0)


def key_digest(keys: Sequence[KeyRow]) -> bytes:
    """Digest of these keys in this order."""
    return hashlib.sha256(repr(list(keys)).encode()).digest()
