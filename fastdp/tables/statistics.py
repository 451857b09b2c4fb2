"""Statistics of one column, window and key: the numbers that each needs, and its answer.

A new statistic is a class here, and an entry in :data:`KINDS`.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from fastdp.errors import ParameterError
from fastdp.kinds import Flags, Floats, Integers
from fastdp.releases.intervals import DrawnNoise, wider_quantile
from fastdp.tables.quantiles import UNIT, Histogram
from fastdp.tables.quantities import ROWS, Quantity
from fastdp.units import as_name
from fastdp.validation import refusal

#: Means of values beyond the clip are known where rows are so many standard deviations.
CLEAR = 6.0
DROPPED = "no number holds the rows of persons that were dropped"
HIDDEN = "noise hides the sum of all rows"
#: Percentiles: "p95", "p99.9".
PERCENTILE = re.compile(r"p(\d{1,2}(\.\d{1,6})?|100)")
#: Sums and counts in the order in which they get noise.  "first" is the total where a sum is asked for, else the sum
#: of deviations from the middle of the clip.
ORDER = ("total", "deviation", "square", "table", "histogram", "excess", "distinct", "reach", "key reach")


@dataclass(frozen=True, eq=False)
class Answer:
    """Estimates, standard errors and ends (NaN: unknown): float64[q, K] each."""

    estimate: Floats
    std_error: Floats
    low: Floats
    high: Floats
    #: Sentences why ends are missing.
    reasons: tuple[str, ...] = ()

    def without(
        self, why: str, *, low: Flags | bool = False, high: Flags | bool = False, estimate: bool = False
    ) -> Answer:
        """Replace ends, or all estimates, by NaN where flags are true."""
        ends = [name for name, each in (("estimate", estimate), ("low", low), ("high", high)) if np.any(each)]
        if not why or not ends:
            return self
        reason = f"{' and '.join(ends)} {'are' if len(ends) > 1 else 'is'} missing, as {why}"
        least, most = np.where(low, np.nan, self.low), np.where(high, np.nan, self.high)
        known = np.full_like(self.estimate, np.nan) if estimate else self.estimate
        return Answer(known, self.std_error, least, most, (*self.reasons, reason))


@dataclass(frozen=True, eq=False)
class Estimate:
    """Sums over ranges: values, variances and ends of intervals, float64[q, K]."""

    value: Floats
    variance: Floats
    low: Floats
    high: Floats

    @property
    def quantile(self) -> Floats:
        half, deviation = (self.high - self.low) / 2.0, np.sqrt(self.variance)
        out: Floats = np.divide(half, deviation, out=np.zeros_like(half), where=deviation > 0.0)
        return out

    def moved(self, more: Floats, variance: Floats, quantile: float, factor: float = 1.0) -> Estimate:
        """These sums times `factor`, plus `more` with a normal error."""
        value, error = factor * self.value + more, quantile * np.sqrt(variance)
        low, high = (np.hypot(factor * (end - self.value), error) for end in (self.low, self.high))
        return Estimate(value, factor**2 * self.variance + variance, value - low, value + high)

    def answer(self) -> Answer:
        return Answer(self.value, np.sqrt(self.variance), self.low, self.high)


class View(Protocol):
    """Released numbers of windows [start, stop) and a depth; else KeyError."""

    @property
    def starts(self) -> Integers: ...

    @property
    def stops(self) -> Integers: ...

    @property
    def confidence(self) -> float: ...

    @property
    def normal(self) -> float:
        """Quantile of normal errors."""

    @property
    def single(self) -> bool:
        """True if each range is one window of one key."""

    def quantity(self, name: str, column: str) -> Quantity: ...

    def sum(self, name: str, column: str = ROWS) -> Estimate: ...

    def limits(self, column: str) -> tuple[tuple[float, float], tuple[float, float]]:
        """Ends of the clip, and of all values."""

    def has_cells(self, column: str) -> bool:
        """False if the column has one number for the whole table."""

    def drowned(self, column: str) -> bool:
        """True if noise hides a column's number, and its sizes."""

    def total(self, column: str) -> Estimate:
        """Sums about the true values of counted rows (NaN: unknown)."""

    def unclipped(self, part: Estimate, column: str) -> Estimate:
        """The first sum, with the measured sum beyond the clip."""

    def unseen(self, column: str) -> tuple[Floats, Floats, Floats]:
        """Most that lies beyond the clips unseen (NaN: unknown), and a model."""

    def squares(self, column: str, centre: float) -> tuple[Floats, Floats]:
        """Squares that values beyond the clip add, and most of their squared excess."""

    def of_all(self, part: Estimate, column: str) -> Estimate:
        """The sum scaled up for known dropped rows."""

    def unknown(self, column: str) -> tuple[bool, bool]:
        """True for each end beyond which values are unknown."""

    def absent(self) -> str:
        """Reason why rows may be missing, or empty."""

    def dropped(self) -> float:
        """Most dropped rows of persons."""

    def histogram(self, column: str) -> Histogram: ...

    def counts(self, name: str, column: str) -> tuple[Floats, DrawnNoise]:
        """Counts in single windows and keys."""

    def reach(self, column: str) -> tuple[Floats, Floats, DrawnNoise, bool]:
        """Released and noisy numbers so far, and draws in these, float64[3, q, K].

        Then errors, [q, 1], the noise of a draw, and if all keys count.
        """


class Statistic(ABC):
    """A statistic; all but ``column``, ``kind``, ``needs`` and :meth:`answer` has defaults."""

    column: str
    kind: str
    #: Sums and counts that it is computed from: "count", and of its column "first" or one of :data:`ORDER`.
    needs: ClassVar[tuple[str, ...]]
    #: Windows and keys add up; keys have totals; pictures begin at 0.
    adds_up: ClassVar[bool] = False
    from_zero: ClassVar[bool] = False
    #: :func:`fastdp.plan` needs the number of rows; it knows the value if it has their mean too.
    per_row: ClassVar[bool] = False
    predicted: ClassVar[bool] = False
    #: The method of a table that answers.
    method: ClassVar[str] = "estimate"
    #: Words of titles and of axes, if not its name.
    title: ClassVar[str] = ""
    axis: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Refuse needs that nothing measures."""
        of_column, given = set(cls.needs) - {"count"}, f"{cls.__name__}.needs = {cls.needs}: expected 'first'"
        if not of_column <= {"first", *ORDER} or not (of_column or getattr(cls, "column", None) == ROWS):
            raise TypeError(f"{given} or one of {ORDER}, and 'count'")
        if "square" in of_column and not of_column & {"first", "total"}:
            raise TypeError(f"{given} beside 'square', of whose steps it is")

    @property
    def name(self) -> str:
        return self.kind if self.column == ROWS else f"{self.column}_{self.kind}"

    @abstractmethod
    def answer(self, view: View) -> Answer:
        """Estimate, error and interval."""

    def expected(self, noise: DrawnNoise, confidence: float, draws: int, factor: float) -> tuple[float, float] | None:
        """Standard error and half-width by the noise of counts, or None.

        ``draws``: in a noisy reach; ``factor``: error of a released one over its.
        """
        return None

    def has_level(self, depth: int) -> bool:
        """True if prefixes of so many key columns have numbers."""
        return True


@dataclass(frozen=True)
class Count(Statistic):
    """The number of rows."""

    column: str = ROWS
    kind, needs, title, axis = "count", ("count",), "Counts", "count"
    adds_up = from_zero = predicted = True
    method = "sum"

    def answer(self, view: View) -> Answer:
        return view.of_all(view.sum("count"), ROWS).answer().without(view.absent(), high=True)


@dataclass(frozen=True)
class Sum(Statistic):
    """The sum of values."""

    column: str
    kind, needs, title, axis = "sum", ("total",), "Totals", "total"
    adds_up = from_zero = predicted = True
    method = "sum"

    def answer(self, view: View) -> Answer:
        found, limits = view.of_all(view.total(self.column), self.column), view.limits(self.column)[1]
        known = found.answer().without(view.absent(), low=limits[0] < 0.0, high=limits[1] > 0.0)
        return known.without(HIDDEN, estimate=view.drowned(self.column))


@dataclass(frozen=True)
class Mean(Statistic):
    """The mean value of a row."""

    column: str
    kind, needs, title, axis = "mean", ("first", "count"), "Means", "mean"
    per_row = predicted = True
    method = "mean"

    def answer(self, view: View) -> Answer:
        count, limits = view.sum("count"), view.limits(self.column)[1]
        found = self._of_cells(view, count) if view.has_cells(self.column) else self._of_one(view, count)
        low, high = np.maximum(found.low, limits[0]), np.minimum(found.high, limits[1])
        # Dropped rows may have any values.
        more = view.dropped() / np.maximum(count.low, 1.0)
        low, high = ((end + more * limit) / (1.0 + more) for end, limit in zip((low, high), limits, strict=True))
        return replace(found, low=low, high=high).without(view.absent(), low=True, high=True)

    def _of_cells(self, view: View, count: Estimate) -> Answer:
        first, quantity = view.sum("first", self.column), view.quantity("first", self.column)
        whole, (below, above, model) = view.unclipped(first, self.column), view.unseen(self.column)
        centre, size = quantity.centre * quantity.grid, np.maximum(count.value, 1.0)
        mean = quotient(whole, count, centre, view.limits(self.column)[1], view.normal)
        estimate = np.clip(mean.estimate + model / size, *view.limits(self.column)[1])
        # Of few rows with a share of the sum beyond the clip the error is not normal.
        few = (whole.variance > first.variance) & (count.value <= CLEAR * np.sqrt(count.variance))
        ends = _between(whole.low - below, whole.high + above, count)
        low = np.where(few, centre + ends[0], mean.low - below / size)
        high = np.where(few, centre + ends[1], mean.high + above / size)
        found = Answer(estimate, mean.std_error, np.minimum(low, estimate), np.maximum(high, estimate))
        none = few & (count.low < 1.0)
        return found.without("there may be no row", low=none, high=none)

    def _of_one(self, view: View, count: Estimate) -> Answer:
        total, limits = view.total(self.column), view.limits(self.column)[1]
        low, high = _between(total.low, total.high, count)
        mean, error = (each / np.maximum(count.value, 1.0) for each in (total.value, np.sqrt(total.variance)))
        found = Answer(np.clip(mean, *limits), np.minimum(error, limits[1] - limits[0]), low, high)
        return found.without(HIDDEN, estimate=view.drowned(self.column))


@dataclass(frozen=True)
class Variance(Statistic):
    """The variance of values, without Bessel's correction."""

    column: str
    kind, needs, title, axis = "var", ("first", "square", "count"), "Variances", "variance"
    per_row = True

    def answer(self, view: View) -> Answer:
        count, (clip, limits) = view.sum("count"), view.limits(self.column)
        if not view.has_cells(self.column):
            nothing = np.full(count.value.shape, np.nan)
            found = Answer(nothing, nothing, nothing, nothing)
            return found.without("one number for the table says nothing of squares", low=True, high=True)
        square, first = view.sum("square", self.column), view.sum("first", self.column)
        q, other = view.quantity("square", self.column), view.quantity("first", self.column)
        centre = (q.centre - other.centre) * q.grid
        clipped = dispersion(square, first, count, centre, clip, view.normal)
        # Clipping brings values nearer to each other; deviations add up by Minkowski's inequality.
        size, (more, beyond) = np.maximum(count.value, 1.0), view.squares(self.column, q.centre * q.grid)
        square, limited = replace(square, value=square.value + more), view.unclipped(first, self.column)
        whole = dispersion(square, limited, count, centre, limits, view.normal)
        high = np.square(np.sqrt(clipped.high) + np.sqrt(beyond / size))
        estimate = np.clip(whole.estimate, clipped.low, np.where(np.isnan(high), np.inf, high))
        high = np.minimum(np.maximum(high, estimate), ((limits[1] - limits[0]) / 2.0) ** 2)
        found = Answer(estimate, np.minimum(clipped.std_error, whole.std_error), clipped.low, high)
        found = found.without("values beyond the clip are in no number", high=np.isnan(beyond))
        return found.without(_lost(view), low=True, high=True)


@dataclass(frozen=True)
class Deviation(Variance):
    """The standard deviation of values."""

    kind, title, axis = "std", "Standard deviations", "standard deviation"

    def answer(self, view: View) -> Answer:
        found = super().answer(view)
        estimate, low, high = (np.sqrt(each) for each in (found.estimate, found.low, found.high))
        error = found.std_error / np.maximum(2.0 * estimate, np.sqrt(found.std_error))
        error = np.where(high - low < error, high - low, error)
        return Answer(estimate, error, low, high, found.reasons)


@dataclass(frozen=True)
class Quantile(Statistic):
    """The value below which a share of the rows lies."""

    column: str
    kind: str
    rank: float
    needs = ("excess", "histogram", "table")

    def answer(self, view: View) -> Answer:
        histogram, given = view.histogram(self.column), (view.starts, view.stops, view.confidence)
        estimate, low, high = histogram.quantiles(self.rank, *given)
        (below, above), bins = view.unknown(self.column), histogram.bins
        found = Answer(
            estimate, (high - low) / (2.0 * view.normal), np.minimum(low, estimate), np.maximum(high, estimate)
        )
        beyond = "the bin at an end has the values beyond it, which a public bound of all values limits"
        found = found.without(beyond, low=below & (found.low <= bins.low), high=above & (found.high >= bins.high))
        return found.without(_lost(view), low=True, high=True)

    def expected(self, noise: DrawnNoise, confidence: float, draws: int, factor: float) -> tuple[float, float]:
        """Errors in rows between the quantile and the true one."""
        error = math.sqrt(noise.variance) / UNIT
        return error, wider_quantile(confidence) * error


@dataclass(frozen=True)
class Distinct(Statistic):
    """The number of distinct entries."""

    column: str
    kind, needs, axis = "nunique", ("distinct",), "distinct entries"
    from_zero = True

    def answer(self, view: View) -> Answer:
        if not view.single:
            raise ParameterError("nunique: expected single windows and keys, because an entry may be in several")
        value, noise = view.counts("distinct", self.column)
        error, half = np.full(value.shape, math.sqrt(noise.variance)), noise.quantiles(_ONE, view.confidence)[0]
        value, low, high = (np.maximum(end, 0.0) for end in (value, value - half, value + half))
        # A dropped row may have an entry of its own.
        found = Answer(value, error, low, high + view.dropped())
        return found.without(DROPPED if view.absent() else "", high=True)

    def expected(self, noise: DrawnNoise, confidence: float, draws: int, factor: float) -> tuple[float, float]:
        return math.sqrt(noise.variance), float(noise.quantiles(_ONE, confidence)[0])

    def has_level(self, depth: int) -> bool:
        return False


@dataclass(frozen=True)
class Reach(Statistic):
    """The number of distinct entries from the first window to the end of each."""

    column: str
    kind, needs, axis = "reach", ("reach", "key reach"), "distinct entries so far"
    from_zero = True

    def answer(self, view: View) -> Answer:
        (value, noisy, draws), errors, noise, all_keys = view.reach(self.column)
        half = noise.quantiles(draws.ravel().astype(np.int64), view.confidence).reshape(draws.shape)
        low, high = np.minimum(np.maximum(noisy - half, 0.0), value), np.maximum(noisy + half, value)
        found = Answer(value, np.broadcast_to(errors, value.shape), low, high)
        return found.without("a person may have more keys than those in which it counts", high=not all_keys)

    def expected(self, noise: DrawnNoise, confidence: float, draws: int, factor: float) -> tuple[float, float]:
        return factor * math.sqrt(draws * noise.variance), float(noise.quantiles(np.array([draws]), confidence)[0])

    def has_level(self, depth: int) -> bool:
        return depth == 0


def _lost(view: View) -> str:
    return view.absent() or DROPPED * (view.dropped() > 0.0)


#: Number of draws of one cell.
_ONE: Integers = np.ones(1, np.int64)
#: Statistics by name; those of percentiles are :class:`Quantile` too.
KINDS: dict[str, Callable[[str], Statistic]] = {
    "sum": Sum,
    "mean": Mean,
    "var": Variance,
    "std": Deviation,
    "median": lambda column: Quantile(column, "median", 0.5),
    "nunique": Distinct,
    "reach": Reach,
}


def statistic(kind: object, column: str) -> Statistic:
    """A statistic by its name, else ParameterError."""
    if column == ROWS:
        if kind == Count.kind:
            return Count()
        raise refusal("statistics", kind, f"'count' of {ROWS!r}, the rows")
    if isinstance(kind, str):
        if kind in KINDS:
            return KINDS[kind](column)
        if PERCENTILE.fullmatch(kind):
            return Quantile(column, kind, float(kind[1:]) / 100.0)
    listed = " or ".join(map(repr, KINDS))
    raise refusal("statistics", kind, f"{listed}, a percentile such as p95, or a list of them ('count' is of '*')")


def statistics_of(given: object) -> tuple[Statistic, ...]:
    """Statistics from a mapping; else ParameterError."""
    if not isinstance(given, Mapping) or not given:
        accepted = "a mapping of columns to statistics, such as {'kwh': ['sum', 'mean'], '*': 'count'}"
        raise refusal("statistics", given, accepted)
    found = []
    for number, (column, named) in enumerate(given.items()):
        listed = [named] if isinstance(named, str) else named
        try:
            if not isinstance(listed, (list, tuple)) or not listed:
                raise refusal("statistics", None, "names")
            found += [statistic(kind, as_name("statistics", column)) for kind in dict.fromkeys(listed)]
        except (ParameterError, TypeError):
            # Of a mapping that holds data no entry is shown.
            more = f"{' or '.join(map(repr, KINDS))}, a percentile such as p95, or a list of them"
            accepted = "'count'" if isinstance(column, str) and column == ROWS else more
            raise ParameterError(
                f"statistics, entry {number}: expected {accepted} ('count' is of '*', the rows)"
            ) from None
    return tuple(found)


def columns_of(statistics: Sequence[Statistic]) -> tuple[list[str], list[str]]:
    """Columns of values, and those whose distinct entries are counted."""
    listed = dict.fromkeys(each.column for each in statistics if each.column != ROWS)
    values = {each.column for each in statistics if not {"distinct", "reach"} & {*each.needs}}
    return [name for name in listed if name in values], [name for name in listed if name not in values]


def needed(statistics: Sequence[Statistic], column: str) -> list[str]:
    """Sums and counts of a column, in their noise's order."""
    names = {name for each in statistics if each.column == column for name in each.needs}
    if "first" in names and "total" not in names:
        names.add("deviation")
    return [name for name in ORDER if name in names]


def ranks_of(statistics: Sequence[Statistic], column: str) -> tuple[float, ...]:
    """Ranks of a column's quantiles, rising."""
    listed = {each.rank for each in statistics if isinstance(each, Quantile) and each.column == column}
    return tuple(sorted(listed))


def _between(low: Floats, high: Floats, count: Estimate) -> tuple[Floats, Floats]:
    least, most = (np.maximum(end, 1.0) for end in (count.low, count.high))
    return np.minimum(low / least, low / most), np.maximum(high / least, high / most)


def quotient(part: Estimate, count: Estimate, centre: float, limits: tuple[float, float], normal: float) -> Answer:
    """A sum by the number of rows, plus `centre` (Fieller's interval)."""
    low, high = limits
    quantile = np.maximum(np.maximum(part.quantile, count.quantile), normal)
    size = np.maximum(count.value, 1.0)
    mean = np.clip(part.value / size, low - centre, high - centre)
    error = np.sqrt(part.variance + mean**2 * count.variance) / size
    clear = count.value**2 - quantile**2 * count.variance
    known = (clear > 0.0) & (count.value > 0.0)
    clear = np.where(known, clear, 1.0)
    inside = count.variance * part.value**2 + part.variance * clear
    middle, half = part.value * count.value / clear, quantile * np.sqrt(np.maximum(inside, 0.0)) / clear
    lower = np.clip(np.where(known, middle - half, low - centre), low - centre, mean)
    upper = np.clip(np.where(known, middle + half, high - centre), mean, high - centre)
    return Answer(centre + mean, np.minimum(error, high - low), centre + lower, centre + upper)


def dispersion(
    square: Estimate, first: Estimate, count: Estimate, centre: float, clip: tuple[float, float], normal: float
) -> Answer:
    """Square / count less the squared mean, by the delta method."""
    most, size = ((clip[1] - clip[0]) / 2.0) ** 2, np.maximum(count.value, 1.0)
    mean = first.value / size - centre
    raw = square.value / size - mean**2
    slope = mean**2 + 2.0 * mean * centre - raw
    error = np.sqrt(square.variance + 4.0 * mean**2 * first.variance + slope**2 * count.variance) / size
    quantile = np.maximum(np.maximum(square.quantile, count.quantile), normal)
    low, high = (np.clip(raw + side * quantile * error, 0.0, most) for side in (-1, 1))
    return Answer(np.clip(raw, 0.0, most), np.minimum(error, most), low, high)
