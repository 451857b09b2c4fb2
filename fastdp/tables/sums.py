"""Integer sums of windows and keys, their noise, and all that a release shows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastdp.errors import DataError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Array, Flags, Floats, Integers
from fastdp.noise import bulk
from fastdp.noise.gaussian import GaussianDistribution
from fastdp.noise.key import Key
from fastdp.noise.sampler import Distribution
from fastdp.releases.intervals import DrawnNoise
from fastdp.tables.columns import Numbers
from fastdp.tables.consistent import Level
from fastdp.tables.quantiles import BINS, LEVELS, Bins
from fastdp_kernels.tables import window_sums

if TYPE_CHECKING:
    from fastdp.tables.budget import Budget
    from fastdp.tables.choices import Tail
    from fastdp.tables.columns import Keys
    from fastdp.tables.keys import KeyRule
    from fastdp.tables.plan import TablePlan

NOT_FINITE = (
    "value: a row that counts has none, or one that is not a finite number; expected finite values "
    "(Value(nonfinite='drop') leaves such rows out, 'zero' counts them as 0)"
)
#: In place of an entry that is missing: no float of a column of entries.
MISSING_ENTRY = -1.0
#: A released number is known if it is so many standard deviations.
KNOWN = 3.0
#: Column of the rows themselves.
ROWS = "*"
#: Quantities that are sums of values, one of each column, and counts that cells have alone.
FIRST_SUMS, COUNTS = ("total", "deviation"), ("histogram", "distinct")


@dataclass(frozen=True)
class Statistic:
    """One statistic: ``kind`` is "count" (of "*"), "sum", "mean", "p95" and so on."""

    kind: str
    column: str = ROWS

    @property
    def name(self) -> str:
        return self.kind if self.column == ROWS else f"{self.column}_{self.kind}"

    @property
    def rank(self) -> float | None:
        """Rank of a quantile, .95 of "p95"; else None."""
        if self.kind == "median":
            return 0.5
        return float(self.kind[1:]) / 100.0 if self.kind.startswith("p") else None


@dataclass(frozen=True)
class Quantity:
    """One integer sum of each cell, or several counts.

    Values are clipped to [``low``, ``high``] steps of ``grid``, less ``centre``. "count" adds 1 a row, "square" the
    square, in steps of ``resolution``; cells alone have "histogram", of bins from ``low`` to ``high``, and
    "distinct".
    """

    name: str
    column: str = ROWS
    low: float = 0
    high: float = 1
    centre: int = 0
    grid: float = 1.0
    resolution: float = 1.0

    @property
    def sensitivity(self) -> int:
        """Largest change by one row, in steps of ``resolution``."""
        if self.name == "count" or self.counts:
            return 1
        most = int(max(abs(self.low - self.centre), abs(self.high - self.centre)))
        return round(most**2 * self.steps_per_square) if self.name == "square" else most

    @property
    def counts(self) -> bool:
        return self.name in COUNTS

    @property
    def levels(self) -> int:
        return LEVELS if self.name == "histogram" else 1

    @property
    def ends(self) -> tuple[float, float]:
        return self.low * self.grid, self.high * self.grid

    @property
    def steps_per_square(self) -> float:
        """Steps of ``resolution`` in the square of one step of ``grid``: a power of 2."""
        return self.grid**2 / self.resolution

    def add(self, rows: CellRows, values: Floats, first: int, sums: Integers) -> bool:
        """Add rows with these values to `sums`; False if one that counts is not finite."""
        windows, keys = rows.windows, rows.codes
        if self.name == "count":
            window_sums.add_ones(windows, keys, first, sums)
            return True
        low, high = float(self.low), float(self.high)
        given = windows, keys, values, first, 1.0 / self.grid, low, high, self.centre
        if self.name == "square":
            return window_sums.add_squares(*given, self.steps_per_square, sums)
        return window_sums.add_values(*given, sums)

    @property
    def labels(self) -> tuple[str | float, ...]:
        if self.counts:
            return self.name, *(self.ends if self.name == "histogram" else ())
        return self.name, self.low, self.high, self.centre, self.grid, self.resolution


class CellRows(NamedTuple):
    """Rows that count: windows, keys (-1: not released), values float64[c, n]."""

    windows: Integers
    codes: Array
    values: Floats


def _inside(rows: CellRows, first: int, windows: int) -> Flags:
    return (rows.codes >= 0) & (rows.windows >= first) & (rows.windows < first + windows)


class BinCounts:
    """Rows by bin, window and key."""

    def __init__(self, quantity: Quantity, cells: tuple[int, int]) -> None:
        self._bins, self._counts = Bins(*quantity.ends), np.zeros((*cells, BINS), np.int64)

    def add(self, rows: CellRows, values: Floats, first: int) -> None:
        wrong = ~np.isfinite(values)
        if wrong.any() and (wrong & _inside(rows, first, len(self._counts))).any():
            raise DataError(NOT_FINITE)
        self._bins.add((rows.windows, np.where(wrong, -1, rows.codes), values), first, self._counts)

    def numbers(self) -> Integers:
        return self._bins.nodes(self._counts)


class DistinctCounts:
    """Distinct entries, as numbers, by window and key."""

    def __init__(self, _quantity: Quantity, cells: tuple[int, int]) -> None:
        self._counts, self._seen = np.zeros(cells, np.int64), Numbers()

    def add(self, rows: CellRows, values: Floats, first: int) -> None:
        windows, width = self._counts.shape
        cells = (rows.windows - first) * width + rows.codes
        inside = _inside(rows, first, windows) & (values != MISSING_ENTRY) & ~np.isnan(values)
        known = self._seen.size
        numbers = self._seen.of(cells[inside], (values[inside] + 0.0).view(np.int64))
        _, places = np.unique(numbers, return_index=True)
        fresh = cells[inside][places[numbers[places] >= known]]
        self._counts += np.bincount(fresh, minlength=self._counts.size).reshape(self._counts.shape)

    def numbers(self) -> Integers:
        return self._counts[None]


def exact_sums(
    parts: Iterable[CellRows], quantities: Sequence[Quantity], plan: TablePlan, keys: int
) -> list[Integers]:
    """Exact numbers in the plan's windows: sums, int64[n, W, keys], modulo 2^64, then counts of each quantity.

    DataError for NaN or infinity.
    """
    first, place = plan.start or 0, {column.name: i for i, column in enumerate(plan.columns)}
    cells = (plan.stop or 0) - first, keys
    summed = [each for each in quantities if not each.counts]
    counted = [
        (place[each.column], (DistinctCounts if each.name == "distinct" else BinCounts)(each, cells))
        for each in quantities[len(summed) :]
    ]
    sums: Integers = np.zeros((len(summed), *cells), np.int64)
    for rows in parts:
        for at, counts in counted:
            counts.add(rows, rows.values[at], first)
        for quantity, into in zip(summed, sums, strict=True):
            values = rows.values[place[quantity.column]] if quantity.column != ROWS else np.empty(0)
            if not quantity.add(rows, values, first, into):
                raise DataError(NOT_FINITE)
    return [sums, *(each.numbers() for _, each in counted)]


# Everything that a release of a table gives out, before it becomes a frame.


@dataclass(frozen=True, eq=False)
class Measured:
    """Noisy numbers of the nodes of one level with independent noise."""

    level: Level
    #: Sums, or the one whose counts these are.
    quantities: tuple[Quantity, ...]
    #: int64[n, W or 1, K_depth]. Sums in steps of resolution, or counts.
    steps: Integers
    #: Of each quantity, in steps.
    noise: tuple[DrawnNoise, ...]


class Number(NamedTuple):
    """A released number and its noise variance."""

    value: float
    variance: float

    @property
    def known(self) -> bool:
        return self.value > KNOWN * math.sqrt(self.variance)


class RowNumbers(NamedTuple):
    """Released numbers of persons' rows that count, and that were dropped."""

    counted: Number
    dropped: Number

    @property
    def share(self) -> float | None:
        """Estimated share of dropped rows; None if too few count."""
        if not self.counted.known:
            return None
        dropped = self.dropped.value if self.dropped.known else 0.0
        return dropped / (self.counted.value + dropped)


@dataclass(frozen=True, eq=False)
class Released:
    """Everything that was released of a table; nothing in it is private."""

    #: int64[W + 1]. Borders of the windows: microseconds since 1970-01-01, in UTC, or of the local clock; 0 and 1
    #: without times.
    edges: Integers
    #: Zone of the windows.
    time_zone: str | None
    #: Length of the windows.
    every: str | None
    #: By depth from 0: the first key columns with entries of every prefix; the last are keys.
    nodes: tuple[dict[str, list[object]], ...]
    #: tuple of int64[K_depth]. By depth from 1: each node's number one depth above.
    parents: tuple[Integers, ...]
    #: A mean is centre + deviation / count, or total / count, a variance square / count less the squared mean
    #: deviation.
    statistics: tuple[Statistic, ...]
    #: Sums, the cells' first, and counts.
    measured: tuple[Measured, ...]
    #: Of each column with values.
    tails: dict[str, Tail]
    guarantee: Guarantee = field(repr=False)
    #: With persons, but online.
    rows: RowNumbers | None = None
    #: Ends taken from the table, perhaps within windows: "first", "last".
    taken: tuple[str, ...] = ()
    #: The table's library.
    family: str = "pyarrow"
    #: Noise and threshold of counts that chose keys.
    selection: KeyRule | None = None
    others: DrawnNoise | None = None
    #: int64[K] or None. Each key's first window, before which nothing of it is released; None: 0.
    begins: Integers | None = None

    def since(self, begins: Integers) -> Released:
        """The same without windows of keys before those numbers."""
        early = np.arange(self.edges.size - 1)[:, None] < begins
        if not early.any():
            return self
        measured = tuple(replace(each, steps=np.where(early, 0, each.steps)) for each in self.measured)
        return replace(self, measured=measured, begins=np.maximum(begins, 0))

    @property
    def has_persons(self) -> bool:
        rows = self.guarantee.rows
        return rows is not None and rows.who is not None

    @property
    def keys(self) -> dict[str, list[object]]:
        return self.nodes[-1]

    @property
    def sizes(self) -> tuple[int, ...]:
        return 1, *(parents.size for parents in self.parents)

    @property
    def sums(self) -> tuple[Measured, ...]:
        return tuple(each for each in self.measured if not each.quantities[0].counts)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        return self.sums[0].quantities if self.sums else ()

    def counts(self, name: str, column: str) -> Measured:
        firsts = [(each.quantities[0].name, each.quantities[0].column) for each in self.measured]
        return self.measured[firsts.index((name, column))]

    def index(self, name: str, column: str = ROWS) -> int | None:
        return next((i for i, q in enumerate(self.quantities) if (q.name, q.column) == (name, column)), None)

    def cells(self, name: str, column: str | None = None) -> Integers:
        found = next(i for i, q in enumerate(self.quantities) if q.name == name and column in (None, q.column))
        cells: Integers = self.measured[0].steps[found]
        return cells


def vectors(
    budget: Budget, quantities: Sequence[Quantity], exact: Sequence[Integers], keys: Keys
) -> Iterator[tuple[Level, tuple[Quantity, ...], Integers]]:
    """Vectors that get noise together: all sums of each level, and each cell's counts."""
    sums = tuple(each for each in quantities if not each.counts)
    for level in budget.levels if sums else ():
        added = keys.added(exact[0], level.depth)
        yield level, sums, added if level.each else added.sum(axis=1, keepdims=True)
    for quantity, counts in zip(quantities[len(sums) :], exact[1:], strict=True):
        yield budget.levels[0], (quantity,), counts


def release(
    budget: Budget,
    quantities: Sequence[Quantity],
    exact: Sequence[Integers],
    key: Key,
    span: tuple[int, int],
    keys: Keys,
    published: Integers | None = None,
) -> tuple[Measured, ...]:
    """Noisy numbers of every level, from exact ones in windows [first, last) (:func:`exact_sums`).

    Noise is bound to a node's full vector.  ``published`` counts, by which keys were chosen, replace those of the
    cells.
    """
    found = []
    for level, group, sums in vectors(budget, quantities, exact, keys):
        distributions = [budget.distribution(quantity, level) for quantity in group]
        labels = [(*q.labels, budget.loss_of(q, level)) for q in group]
        if group[0].counts:
            name, *others = labels[0]
            own = key.within("counts", name, budget.plan.place(group[0].column), *others)
        else:
            own = key.within("sums", *level, *(() if level.each else span), *itertools.chain(*labels))
        each = distributions * (len(sums) // len(distributions))
        noisy = bulk.draw_cell_noise(np.ascontiguousarray(sums), each, own, span[0], keys.digests(level.depth))
        noisy += sums
        if published is not None and group[-1].name == "count":
            noisy[-1] = published
        noisy.flags.writeable = False
        found.append(Measured(level, group, noisy, tuple(map(drawn, distributions))))
    return tuple(found)


def drawn(noise: Distribution) -> DrawnNoise:
    """Scale or sigma of a distribution."""
    return DrawnNoise(noise.sigma, True) if isinstance(noise, GaussianDistribution) else DrawnNoise(noise.scale)
