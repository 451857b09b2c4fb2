"""Integer sums of windows and keys, their noise, and everything that a release shows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastdp.errors import DataError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Array, Floats, Integers
from fastdp.noise import binding
from fastdp.noise.draws import Distribution
from fastdp.noise.gaussian import GaussianDistribution
from fastdp.noise.key import Key
from fastdp.releases.intervals import DrawnNoise
from fastdp.tables.beyond import Tail
from fastdp_kernels.tables import window_sums

if TYPE_CHECKING:
    from fastdp.tables.budget import Budget
    from fastdp.tables.columns import Keys
    from fastdp.tables.keys import KeyRule
    from fastdp.tables.plan import TablePlan
    from fastdp.tables.quantiles import Tally

NOT_FINITE = (
    "value: a row that counts has none, or one that is not a finite number; expected finite values "
    "(Value(nonfinite='zero') makes them count as 0)"
)
#: A released number is known if it is so many standard deviations.
KNOWN = 3.0
#: Column of the rows themselves.
ROWS = "*"


@dataclass(frozen=True)
class Statistic:
    """One statistic of a column: ``kind`` is "count" (of the column "*"), "sum", "mean", "p95" and so on."""

    kind: str
    column: str = ROWS

    @property
    def name(self) -> str:
        """Name of its columns in a frame: "kwh_sum", or "count"."""
        return self.kind if self.column == ROWS else f"{self.column}_{self.kind}"

    @property
    def rank(self) -> float | None:
        """Rank of a quantile: .5 of "median", .95 of "p95"; None for other statistics."""
        if self.kind == "median":
            return 0.5
        return float(self.kind[1:]) / 100.0 if self.kind.startswith("p") else None


@dataclass(frozen=True)
class Quantity:
    """One integer sum of each cell: how a row enters it.

    Values are clipped to [``low``, ``high``] steps of ``grid``, and ``centre`` is subtracted.  "count" adds 1 for
    each row, "beyond" 1 for each that the clip changes, "square" the square, in steps of ``resolution``, which for
    the others is ``grid``.
    """

    name: str
    column: str = ROWS
    low: int = 0
    high: int = 1
    centre: int = 0
    grid: float = 1.0
    resolution: float = 1.0

    @property
    def sensitivity(self) -> int:
        """Largest change of a sum by one row, in steps of ``resolution``."""
        most = max(abs(self.low - self.centre), abs(self.high - self.centre))
        return 1 if self.name in ("count", "beyond") else round(most**2 * self.factor) if self._squares else most

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the clip, in units of the input."""
        return self.low * self.grid, self.high * self.grid

    @property
    def _squares(self) -> bool:
        return self.name == "square"

    @property
    def factor(self) -> float:
        """Squared steps of the grid in one step of the resolution, inverted: a power of 2."""
        return self.grid**2 / self.resolution

    def add(self, rows: CellRows, values: Floats, first: int, sums: Integers) -> bool:
        """Add rows with these values of the column to `sums`; False if a value that counts is not finite."""
        windows, keys = rows.windows, rows.codes
        if self.name == "count":
            window_sums.add_ones(windows, keys, first, sums)
            return True
        low, high = float(self.low), float(self.high)
        if self.name == "beyond":
            outside = np.flatnonzero((values > high * self.grid) | (values < low * self.grid))
            window_sums.add_ones(windows[outside], keys[outside], first, sums)
            return True
        given = windows, keys, values, first, 1.0 / self.grid, low, high, self.centre
        if self._squares:
            return window_sums.add_squares(*given, self.factor, sums) < 0
        return window_sums.add_values(*given, sums) < 0

    @property
    def labels(self) -> tuple[str | float, ...]:
        """Labels for the noise key, so that noise of another scale or clip is independent."""
        return self.name, self.low, self.high, self.centre, self.grid, self.resolution


class CellRows(NamedTuple):
    """Rows that count: windows, keys (-1: not released), and values, float64[c, n], of each column in use."""

    windows: Integers
    codes: Array
    values: Floats


def exact_sums(parts: Iterable[CellRows], quantities: Sequence[Quantity], plan: TablePlan, keys: int) -> Integers:
    """Exact sums of rows in the plan's windows, int64[n, W, keys], modulo 2^64; DataError for NaN or infinity."""
    first = plan.start or 0
    sums: Integers = np.zeros((len(quantities), (plan.stop or 0) - first, keys), np.int64)
    place = {column.name: i for i, column in enumerate(plan.columns)}
    for rows in parts:
        for quantity, into in zip(quantities, sums, strict=True):
            values = rows.values[place[quantity.column]] if quantity.column != ROWS else np.empty(0)
            if not quantity.add(rows, values, first, into):
                raise DataError(NOT_FINITE)
    return sums


# Everything that a release of a table gives out, before it becomes a frame.


class Level(NamedTuple):
    """Sums of prefixes of ``depth`` key columns (0: all keys), in each window or over all windows."""

    depth: int
    each: bool


@dataclass(frozen=True, eq=False)
class Measured:
    """Noisy sums of one level with independent noise.

    Attributes
    ----------
    depth, each
        As of :class:`Level`.
    steps : int64[n, W or 1, K_depth]
        Sums of n quantities, in steps of their resolutions.
    noise : tuple of DrawnNoise
        Noise of each quantity, in steps.
    """

    depth: int
    each: bool
    steps: Integers
    noise: tuple[DrawnNoise, ...]


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Noisy counts of one column in each cell, int64[n, W, K], with independent noise: of nodes of bins, or distinct.

    ``ends`` are the first and last border of the bins; None for numbers of distinct entries.
    """

    column: str
    ends: tuple[float, float] | None
    steps: Integers
    noise: DrawnNoise


class Number(NamedTuple):
    """A released number and the variance of its noise."""

    value: float
    variance: float


@dataclass(frozen=True)
class RowNumbers:
    """Released numbers of persons' rows that count and that were dropped, at most ``capped`` of each person."""

    counted: float
    dropped: float
    counted_variance: float
    dropped_variance: float
    capped: int

    @property
    def share(self) -> float | None:
        """Estimated share of rows that were dropped; None if the rows that count are too few to tell."""
        if self.counted <= KNOWN * math.sqrt(self.counted_variance):
            return None
        dropped = self.dropped if self.dropped > KNOWN * math.sqrt(self.dropped_variance) else 0.0
        return dropped / (self.counted + dropped)


@dataclass(frozen=True, eq=False)
class Released:
    """Everything that was released of a table; nothing in it is private.

    Attributes
    ----------
    edges : int64[W + 1]
        Borders of the windows: microseconds since 1970-01-01, in UTC, or of the local clock if there is no zone;
        0 and 1 without times.
    time_zone : str or None
        Zone of the windows; None if times without a zone were taken unchanged.
    every : str or None
        Length of the windows; None without times.
    nodes : tuple of dict
        For each depth from 0 on: the first key columns, each with its entry in every key prefix; the last are keys.
    parents : tuple of int64[K_depth]
        For each depth from 1 on: each node's number one depth above.
    statistics, quantities
        Statistics that were asked for, and the sums they follow from: a mean is centre + deviation / count, or
        total / count, a variance square / count less the squared mean deviation.
    measured : tuple of Measured
        The first are the cells.
    tails : dict of str to Tail
        Of each column with values.
    rows : RowNumbers or None
        With persons.
    counted : tuple of CellCounts
        Histograms and numbers of distinct entries.
    taken : tuple of str
        Ends of the time taken from the table, whose windows it may cover in part: "first", "last".
    family : str
        The library that the table came from.
    selection : KeyRule or None
        Where keys were chosen by the counts of the cells: noise and threshold of these.
    begins : int64[K] or None
        Number of the first window of each key, before which nothing of it is released; None: of all 0.
    """

    edges: Integers
    time_zone: str | None
    every: str | None
    nodes: tuple[dict[str, list[object]], ...]
    parents: tuple[Integers, ...]
    statistics: tuple[Statistic, ...]
    quantities: tuple[Quantity, ...]
    measured: tuple[Measured, ...]
    tails: dict[str, Tail]
    guarantee: Guarantee = field(repr=False)
    rows: RowNumbers | None = None
    counted: tuple[CellCounts, ...] = ()
    taken: tuple[str, ...] = ()
    family: str = "pyarrow"
    selection: KeyRule | None = None
    begins: Integers | None = None

    def since(self, begins: Integers) -> Released:
        """The same, but for windows of keys before those numbers, in which they are 0."""
        early = np.arange(self.edges.size - 1)[:, None] < begins
        if not early.any():
            return self
        measured = tuple(replace(each, steps=np.where(early, 0, each.steps)) for each in self.measured)
        counted = tuple(replace(each, steps=np.where(early, 0, each.steps)) for each in self.counted)
        return replace(self, measured=measured, counted=counted, begins=np.maximum(begins, 0))

    @property
    def keys(self) -> dict[str, list[object]]:
        """Key column's name to its entry in each released key; empty without ``by``."""
        return self.nodes[-1]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of nodes of each depth."""
        return 1, *(parents.size for parents in self.parents)

    def index(self, name: str, column: str = ROWS) -> int | None:
        """Number of a quantity; None if it was not released."""
        return next((i for i, q in enumerate(self.quantities) if (q.name, q.column) == (name, column)), None)

    def cells(self, name: str, column: str | None = None) -> Integers:
        """Noisy sums of each window and key, int64[W, K]; of the only column that has it by default."""
        found = [i for i, q in enumerate(self.quantities) if q.name == name and column in (None, q.column)]
        cells: Integers = self.measured[0].steps[found[0]]
        return cells


def release(
    budget: Budget,
    quantities: Sequence[Quantity],
    sums: Integers,
    key: Key,
    span: tuple[int, int],
    keys: Keys,
    published: Integers | None = None,
) -> tuple[Measured, ...]:
    """Noisy sums of every level, from exact sums of the cells, int64[n, W, K], in windows [first, last).

    Noise of a node is bound to all its sums.  Sums and noise are taken modulo 2^64, which is post-processing of the
    exact noisy sum: privacy does not depend on the number of rows.  ``published`` counts, by which keys were chosen,
    int64[K], replace those of the cells.
    """
    found = []
    for level in budget.levels:
        exact = keys.added(sums, level.depth)
        if not level.each:
            exact = exact.sum(axis=1, keepdims=True)
        laws = [budget.distribution(quantity, level) for quantity in quantities]
        labels = [(*q.labels, budget.of(q.name, q.column, level)) for q in quantities]
        if not quantities:
            # Quantiles and distinct entries alone have no sums.
            found.append(Measured(*level, exact, ()))
            continue
        own = key.within("sums", *level, *(() if level.each else span), *itertools.chain(*labels))
        noisy = binding.draw_cells(np.ascontiguousarray(exact), laws, own, span[0], keys.digests(level.depth))
        noisy += exact
        if published is not None:
            noisy[[q.name for q in quantities].index("count")] = published
        noisy.flags.writeable = False
        found.append(Measured(*level, noisy, tuple(map(drawn, laws))))
    return tuple(found)


def release_counts(
    budget: Budget, tallies: Sequence[Tally], key: Key, first: int, keys: Keys
) -> tuple[CellCounts, ...]:
    """Noisy counts of cells in windows from number `first` on; noise of a cell is bound to all its counts."""
    found = []
    for tally in tallies:
        law, exact = budget.counts_distribution(tally.name, tally.column), tally.nodes()
        labels = tally.name, budget.plan.place(tally.column), *(tally.ends or ())
        own = key.within("counts", *labels, budget.of(tally.name, tally.column, budget.levels[0]))
        noisy = binding.draw_cells(exact, [law] * len(exact), own, first, keys.digests())
        noisy += exact
        noisy.flags.writeable = False
        found.append(CellCounts(tally.column, tally.ends, noisy, drawn(law)))
    return tuple(found)


def drawn(noise: Distribution) -> DrawnNoise:
    """Scale or sigma of a distribution."""
    return DrawnNoise(noise.sigma, True) if isinstance(noise, GaussianDistribution) else DrawnNoise(noise.scale)
