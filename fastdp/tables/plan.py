"""Public parameters of a table's release, and the numbers that follow from them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import ClassVar, Literal

import numpy as np

from fastdp.data.calendar import Calendar, Time, most_spans, zone_rules
from fastdp.data.column import Nonfinite
from fastdp.errors import ParameterError, argument
from fastdp.kinds import Flags, Floats, Integers, Json
from fastdp.noise.key import Key
from fastdp.noise.sampler import NoiseName
from fastdp.record import values_of
from fastdp.tables import quantiles
from fastdp.tables.arguments import KeySource, PrivateKeys, ends_of
from fastdp.tables.arguments import values_of as bounds_of
from fastdp.tables.calendar_basis import Basis
from fastdp.tables.columns import KeyRow
from fastdp.tables.keys import counts_suffice
from fastdp.tables.quantities import FIRST_SUMS, ROWS
from fastdp.tables.statistics import Statistic, columns_of, needed
from fastdp.units import Unit
from fastdp.validation import refusal

#: Windows times keys of one release: 8 bytes each, and as much again for the noise.
MAX_CELLS = 2 * 10**8
#: The noise of a release whose persons' rows are chosen ("auto") is that of less variance for so many.
NOMINAL_ROWS = 20
#: Most rows of a person that are chosen.
MOST_ROWS = 10**6
#: Ends of the clip by column.
Clips = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class ColumnPlan:
    """A column's widest clip, which ``chooses`` narrows, bound and other fields.

    ``entries``: distinct entries are counted.
    """

    name: str
    low: float
    high: float
    chooses: bool
    weight: float
    nonfinite: Nonfinite | Literal["drop"]
    resolution: float | None
    bound: tuple[float, float] | None = None
    entries: bool = False
    #: True if the clip is known publicly.
    given: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        return self.low, self.high


@dataclass(frozen=True)
class TablePlan:
    """All public parameters of a table's release."""

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
    key_rule: KeySource = "none"
    keys: tuple[KeyRow, ...] = ()
    private: PrivateKeys | None = None
    #: True: totals of prefixes and over all windows too; None: where they are cheap.
    levels: bool | None = False
    noise: NoiseName = "laplace"
    #: `start`, `stop`: Numbers of the first window, and after the last.
    start: int | None = None
    stop: int | None = None
    #: Spans that a public clock closes, each a release of its own; a table is finished.
    closes: Literal["table", "windows", "periods"] = "table"
    #: `cells`, `nodes`: Windows times keys; key prefixes by depth.
    cells: int | None = None
    nodes: tuple[int, ...] | None = None
    #: With ``Person(rows="auto")``: rows that count, once chosen.
    chosen_rows: int = NOMINAL_ROWS
    #: Of columns with chosen clips: if cells have sums, and if the table has a number of the rest.
    outcomes: Mapping[str, tuple[bool, bool]] = field(default_factory=dict)
    #: Ends of the time taken from the table: "first", "last".
    taken: tuple[str, ...] = ()
    #: Of the numbers that have noise in place of windows, which hold at least so many rows at the clip.
    basis: Basis | None = None
    most_counted: int = 0

    rule: ClassVar[int] = 2

    @property
    def online(self) -> bool:
        return self.closes == "windows"

    @cached_property
    def who(self) -> str | None:
        return self.unit.column

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
        return self.has_public_cells and not self.chooses and self.misfit is not None

    @cached_property
    def asks_calendar(self) -> bool:
        return self.unit.basis not in ("auto", "windows")

    @cached_property
    def misfit(self) -> str | None:
        """Change that a calendar needs; None if it fits."""
        if self.unit.basis == "windows":
            return "a Person with another basis"
        if self.unit.per_window is None:
            return f"{argument(per_window=...)}, the rows of a person that count in one window"
        if self.calendar is None:
            return "windows of time"
        if self.levels is not False or self.has_others or any(each.method != "sum" for each in self.statistics):
            return "sums and counts of cells alone"
        return None

    @cached_property
    def chooses_rows(self) -> bool:
        """True if k, a person's rows, is chosen privately."""
        return self.unit.rows == "auto"

    @cached_property
    def key_share(self) -> float:
        assert self.private is not None  # noqa: S101 - asked for private keys alone
        return self.private.share or (0.25 if self.who is None else 0.5)

    @cached_property
    def selects_cells(self) -> bool:
        """True if the released noisy counts choose private keys."""
        if self.key_rule != "private" or self.calendar is not None or not self.counts_rows or self.levels:
            return False
        # Many rows of a person count less by weights of its keys.
        given = self.epsilon, self.delta, self.contributions, self.key_share
        return self.who is None or (not self.columns and counts_suffice(*given))

    @property
    def has_others(self) -> bool:
        return self.private is not None and self.private.others

    @cached_property
    def contributions(self) -> int:
        return self.unit.rows if isinstance(self.unit.rows, int) else self.chosen_rows

    @cached_property
    def most_keys(self) -> int:
        listed = len(self.keys) if self.key_rule == "given" else MAX_CELLS
        return min(self.contributions, listed, self.unit.keys or listed)

    @property
    def all_keys(self) -> bool:
        """True if entries count in all of their keys."""
        return not self.by or self.who is None or (self.key_rule == "given" and self.most_keys == len(self.keys))

    @cached_property
    def bounds_rows(self) -> bool:
        """True if a statistic depends on persons' counted rows."""
        return self.who is not None and any(each.kind != "reach" for each in self.statistics)

    @property
    def keeps_all(self) -> bool:
        """True if publicly no row of a person is dropped."""
        most, k = self.unit.most, self.contributions
        if most is None or self.chooses_rows or self.unit.keys is not None:
            return False
        return most <= min(k, self.per_window or k)

    def is_person(self, name: str) -> bool:
        """True for the column of persons, asked for reach alone."""
        return name == self.who and self.parts[name][0] == "reach"

    @property
    def per_window(self) -> int | None:
        return self.unit.per_window

    @cached_property
    def windows_of_unit(self) -> int:
        calendar, periods = self.calendar, self.periods
        assert calendar is not None and periods is not None  # noqa: S101, PT018 - there is a clock
        begin = calendar.edge(self.start or 0)
        return most_spans(calendar.every, periods.every, calendar.time_zone, calendar.origin, begin)

    def settled(self, first: int, last: int, *nodes: int) -> TablePlan:
        """Plan with windows [first, last) and numbers of key prefixes."""
        keys = nodes[-1]
        taken = tuple(end for end, given in (("first", self.start), ("last", self.stop)) if given is None)
        self.check_cells(last - first, keys)
        return replace(self, start=first, stop=last, cells=(last - first) * keys, nodes=nodes, taken=taken)

    @property
    def span(self) -> tuple[int, int]:
        return -(2**63) if self.start is None else self.start, 2**63 - 1 if self.stop is None else self.stop

    def has(self, windows: Integers) -> Flags:
        first, last = self.span
        return (windows >= first) & (windows < last)

    # Sums.

    def column(self, name: str) -> ColumnPlan:
        return next(column for column in self.columns if column.name == name)

    def with_values(self, values: Floats) -> Flags | None:
        """Rows, bool[n], with values where columns drop others (None: all)."""
        left = [i for i, each in enumerate(self.columns) if each.nonfinite == "drop"]
        if not left:
            return None
        found: Flags = np.logical_and.reduce(np.isfinite(values[left]), axis=0)
        return found

    def outcome(self, name: str) -> tuple[bool, bool]:
        return self.outcomes.get(name, (True, self.column(name).chooses))

    @cached_property
    def summed(self) -> list[ColumnPlan]:
        return [column for column in self.columns if self.parts[column.name][0] in FIRST_SUMS]

    def place(self, name: str) -> int:
        """Number of a column: noise keys have no names."""
        return [column.name for column in self.columns].index(name)

    @cached_property
    def counts_rows(self) -> bool:
        return any("count" in each.needs for each in self.statistics)

    @cached_property
    def parts(self) -> dict[str, tuple[str, ...]]:
        # Where ends are public, and online, windows say nothing of each other.
        public = tuple(column.name for column in self.columns if column.given or self.online)
        found = _parts(self.statistics, tuple(column.name for column in self.columns), public)
        without = {name: tuple(part for part in each if part != "key reach") for name, each in found.items()}
        return found if self.by else without

    # Noise.

    @property
    def by_period(self) -> bool:
        """True if a period's windows are released together."""
        return self.asks_calendar and self.periods is not None

    def key(self, secret: Key) -> Key:
        own = secret.bind(self)
        return own.within("period", self.start) if self.by_period and self.start is not None else own

    def identity(self) -> Json:
        """All on which noise depends besides secret and rows."""
        numbers = {column.name: i for i, column in enumerate(self.columns)} | {ROWS: -1}
        of_column = ("low", "high", "chooses", "weight", "nonfinite", "resolution")
        plain = ("epsilon", "delta", "key_rule", "levels", "per_window", "noise")
        return {
            **values_of(self, *plain),
            "start": None if self.by_period else self.start,
            "statistics": [[each.kind, numbers[each.column]] for each in self.statistics],
            "columns": [list(values_of(column, *of_column).values()) for column in self.columns],
            "every": None if self.calendar is None else self._spans(self.calendar),
            "period": None if self.periods is None else self._spans(self.periods),
            "by": list(self.by),
            "keys": self._key_digest,
            "share": self._named_share,
            "contributions": self.contributions if not self.chooses_rows else "auto",
            "who": self.who is not None,
            **({"basis": self._named_basis} if self.asks_calendar else {}),
            **({"keeps_all": True} if self.keeps_all else {}),
            **({} if self.unit.keys is None else {"keys of a person": self.unit.keys}),
        }

    @cached_property
    def _key_digest(self) -> bytes:
        return key_digest(self.keys)

    @property
    def _named_basis(self) -> str | list[float]:
        return self.unit.basis if isinstance(self.unit.basis, str) else list(self.unit.basis)

    @property
    def _named_share(self) -> float | list[object] | None:
        if self.private is None:
            return None
        return [self.key_share, "others"] if self.has_others else self.key_share

    def _spans(self, calendar: Calendar) -> list[object]:
        own = self.calendar
        begin = None if self.start is None or own is None or self.by_period else own.edge(self.start)
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

    def check_basis(self) -> None:
        if self.asks_calendar and self.misfit is not None:
            raise self.refused_basis(self.misfit)

    def refused_basis(self, needs: str) -> ParameterError:
        given = self.unit.basis if isinstance(self.unit.basis, str) else None
        return refusal("basis", given, f"'auto' or 'windows'; a calendar needs {needs}")

    def check_cells(self, windows: int, keys: int) -> None:
        if any("histogram" in each.needs for each in self.statistics):
            quantiles.check_bins(windows * keys)
        if windows * keys > MAX_CELLS:
            every = "" if self.calendar is None else f" of {self.calendar.every}"
            raise ParameterError(
                f"{windows:,} windows{every} and {keys:,} keys: expected at most {MAX_CELLS:,} cells; use longer "
                f"windows, fewer keys, or a shorter time ({argument('Time', start=..., stop=...)})"
            )


@lru_cache(maxsize=64)
def _parts(
    statistics: tuple[Statistic, ...], columns: tuple[str, ...], public: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    return {ROWS: ("count",)} | {
        name: tuple(part for part in needed(statistics, name) if part != "table" or name not in public)
        for name in columns
    }


def column_plans(statistics: Sequence[Statistic], bounds: object) -> tuple[ColumnPlan, ...]:
    """Columns of values with bounds, then those of entries."""
    found = []
    for name, value in bounds_of(statistics, bounds):
        bound = None if value.bound is None else ends_of("bound", value.bound)
        low, high = ends_of("clip", value.bound if value.clip is None else value.clip)
        summed = needed(statistics, name)[0] in FIRST_SUMS
        facts = value.clip is None and summed, value.weight, value.nonfinite, value.resolution, bound
        found.append(ColumnPlan(name, low, high, *facts, given=value.clip is not None))
    entries = columns_of(statistics)[1]
    return *found, *(ColumnPlan(name, 0.0, 0.0, False, 1.0, "zero", None, entries=True) for name in entries)


def key_digest(keys: Sequence[KeyRow]) -> bytes:
    """Digest of these keys in this order."""
    return hashlib.sha256(repr(list(keys)).encode()).digest()
