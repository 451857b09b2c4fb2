"""Integers of a cell: their sensitivity, noise labels, and how rows are added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastdp.errors import DataError, argument
from fastdp.kinds import Array, Flags, Floats, Integers
from fastdp.noise.gaussian import GaussianDistribution
from fastdp.noise.sampler import Distribution
from fastdp.releases.intervals import DrawnNoise
from fastdp.tables.columns import Numbers
from fastdp.tables.counter import SINGLE, Counter
from fastdp.tables.quantiles import BINS, LEVELS, Bins, excess_sensitivity
from fastdp_kernels.tables import window_sums

#: In place of an entry that is missing: no float of a column of entries.
MISSING_ENTRY = -1.0
#: Column of the rows themselves.
ROWS = "*"
#: Quantities that are sums of values, one of each column, and counts that cells have alone.
FIRST_SUMS = ("total", "deviation")
#: New entries of all keys, and of each key that they count in.
NEW = ("reach", "key reach")
#: Counts with ends; of these and others, the rows themselves, from one of which those of quantiles follow.
BINNED, COUNTED = ("table", "histogram", "excess"), ("histogram", "distinct", *NEW)
COUNTS = (*BINNED, "distinct", *NEW)


@dataclass(frozen=True)
class Quantity:
    """One integer sum of each cell, or several counts.

    Values are clipped to [``low``, ``high``] steps of ``grid``, less ``centre``.  "count" adds 1 a row, "square" the
    square in steps of ``resolution``.  Cells alone have "distinct", and by bins from ``low`` to ``high`` "histogram"
    and "excess", of ``ranks``; "table" counts all cells' nodes; "reach" and "key reach" count new entries, in sums of
    a ``counter``.
    """

    name: str
    column: str = ROWS
    low: float = 0
    high: float = 1
    centre: int = 0
    grid: float = 1.0
    resolution: float = 1.0
    ranks: tuple[float, ...] = ()
    counter: Counter = SINGLE

    @property
    def sensitivity(self) -> int:
        """Largest change by one row, in steps of ``resolution``."""
        if self.name == "excess":
            return excess_sensitivity(self.ranks)
        if self.name == "count" or self.counts:
            return 1
        most = int(max(abs(self.low - self.centre), abs(self.high - self.centre)))
        return round(most**2 * self.steps_per_square) if self.name == "square" else most

    @property
    def counts(self) -> bool:
        return self.name in COUNTS

    @property
    def layers(self) -> int:
        """Numbers that hold one row, of a cell or the table."""
        return LEVELS if self.name == "table" else 1

    @property
    def ends(self) -> tuple[float, float]:
        return self.low * self.grid, self.high * self.grid

    @property
    def steps_per_square(self) -> float:
        """Steps of ``resolution`` in a squared step of ``grid``."""
        return self.grid**2 / self.resolution

    def add(self, rows: CellRows, values: Floats, first: int, sums: Integers) -> bool:
        """Add rows' values to `sums`; False if one is not finite."""
        windows, keys = rows.windows, rows.codes
        if self.name == "count":
            window_sums.add_ones(windows, keys, first, sums)
            return True
        low, high, factor = float(self.low), float(self.high), self.steps_per_square if self.name == "square" else 0.0
        given = windows, keys, values, first, 1.0 / self.grid, low, high, self.centre
        return window_sums.add_values(*given, factor, sums)

    @property
    def labels(self) -> tuple[str | float, ...]:
        if self.counts:
            numbers = self.ends if self.name in BINNED else map(float, self.counter if self.name in NEW else ())
            return self.name, *numbers, *self.ranks
        return self.name, self.low, self.high, self.centre, self.grid, self.resolution


class CellRows(NamedTuple):
    """Counted rows: windows, keys (-1: not released), values float64[c, n]."""

    windows: Integers
    codes: Array
    values: Floats


def not_finite() -> DataError:
    """The error about a missing value, NaN or infinity."""
    how = argument("Value", nonfinite="drop")
    return DataError(
        "value: a row that counts has none, or one that is not a finite number; expected finite values "
        f"({how} leaves such rows out, 'zero' counts them as 0)"
    )


def _inside(rows: CellRows, first: int, windows: int) -> Flags:
    return (rows.codes >= 0) & (rows.windows >= first) & (rows.windows < first + windows)


class BinCounts:
    """Rows by fine bin, window and key."""

    def __init__(self, quantity: Quantity, cells: tuple[int, int]) -> None:
        self._bins, self._counts = Bins(*quantity.ends), np.zeros((*cells, BINS), np.int64)

    def add(self, rows: CellRows, values: Floats, first: int) -> None:
        wrong = ~np.isfinite(values)
        if wrong.any() and (wrong & _inside(rows, first, len(self._counts))).any():
            raise not_finite()
        self._bins.add((rows.windows, np.where(wrong, -1, rows.codes), values), first, self._counts)

    def numbers(self) -> Integers:
        return np.ascontiguousarray(self._counts.transpose(2, 0, 1))


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


def drawn(noise: Distribution) -> DrawnNoise:
    """Scale or sigma of a distribution."""
    return DrawnNoise(noise.sigma, True) if isinstance(noise, GaussianDistribution) else DrawnNoise(noise.scale)
