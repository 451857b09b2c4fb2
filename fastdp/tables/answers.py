"""Estimates with error bars over windows and keys, of true values where possible (post-processing).

Errors: of least squares, or the model (``revised``), with shares of what lies beyond the clip and of dropped rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import special

from fastdp.errors import ParameterError
from fastdp.kinds import Floats, Integers
from fastdp.tables.choices import Beyond, shares
from fastdp.tables.consistent import (
    Consistent,
    Level,
    Revised,
    Variance,
    consistent,
    grouped,
    local_patterns,
    range_sums,
    revise,
)
from fastdp.tables.keys import selected_interval
from fastdp.tables.quantiles import Bins, Histogram
from fastdp.tables.sums import ROWS, Quantity, Released, Statistic

#: The sum beyond the clip is unknown if more than this share of the whole comes from values above all those whose
#: number stands out of the noise.
UNSEEN = 0.5
#: What noise hides beyond the clip widens intervals if it is at most this share of the whole; else it is unknown.
HIDDEN = 0.1
#: Standard errors, as shares of the rows dropped: of their number in a part of the table, and of the rows of a person
#: beyond the limit up to which they are counted.
UNEVEN, CAPPED = 0.5, 0.3
#: Answers are about all rows and values; about at most five times ``rows`` of a person (others are in no number);
#: about the rows that count; about clipped values, in sums of as many rows as "true" or "capped" are about.
TRUE, LIMITED, COUNTED, CLIPPED = "true", "capped", "counted", "clipped"


@dataclass(frozen=True, eq=False)
class Answer:
    """Estimates, standard errors and interval ends: float64[q, K] each.

    ``about``: "true", or one of those above; ``clipped``: answer about clipped values of rows that count.
    """

    estimate: Floats
    std_error: Floats
    low: Floats
    high: Floats
    about: str = TRUE
    of_clipped: Answer | None = None

    @property
    def clipped(self) -> Answer:
        return self if self.of_clipped is None else self.of_clipped


class _Ask(NamedTuple):
    starts: Integers
    stops: Integers
    depth: int
    revised: bool


@dataclass(frozen=True, eq=False)
class _Part:
    """Sums over ranges: values, variances and half-widths, float64[q, K]."""

    value: Floats
    variance: Floats
    low: Floats
    high: Floats

    @property
    def quantile(self) -> Floats:
        half, deviation = (self.high - self.low) / 2.0, np.sqrt(self.variance)
        out: Floats = np.divide(half, deviation, out=np.zeros_like(half), where=deviation > 0.0)
        return out

    def moved(self, more: Floats, variance: Floats, quantile: float, factor: float = 1.0) -> _Part:
        """These sums times `factor`, and `more`, with a normal error."""
        value, error = factor * self.value + more, quantile * np.sqrt(variance)
        low, high = (np.hypot(factor * (end - self.value), error) for end in (self.low, self.high))
        return _Part(value, factor**2 * self.variance + variance, value - low, value + high)

    def wider(self, below: Floats, above: Floats) -> _Part:
        return _Part(self.value, self.variance, self.low - below, self.high + above)

    def within(self, low: Floats, high: Floats) -> _Part:
        high = np.maximum(low, high)
        return _Part(np.clip(self.value, low, high), self.variance, low, high)

    def answer(self) -> Answer:
        return Answer(self.value, np.sqrt(self.variance), self.low, self.high)


class Answers:
    """Answers about ranges of windows, with intervals."""

    def __init__(self, released: Released, confidence: float) -> None:
        self._released = released
        self._confidence = confidence
        self._normal = float(special.ndtri(0.5 + confidence / 2.0))
        self._fits: dict[int, Consistent] = {}
        self._revisions: dict[int, Revised] = {}
        self._parts: dict[tuple[str, str], list[Floats]] = {}

    def about(
        self,
        statistic: Statistic,
        starts: Integers,
        stops: Integers,
        *,
        revised: bool = False,
        depth: int | None = None,
    ) -> Answer:
        """Answers about windows [start, stop) of each key, or each prefix of ``depth`` columns.

        ``revised`` ones follow from all windows, by a model.  They are NaN where a key had not appeared by the start.
        """
        ask = _Ask(starts, stops, len(self._released.parents) if depth is None else depth, revised)
        found, begins = self._about(statistic, ask), self._released.begins
        if begins is None or ask.depth < len(self._released.parents):
            return found
        listed = found.estimate, found.std_error, found.low, found.high
        estimate, error, low, high = (np.where(starts[:, None] < begins, np.nan, each) for each in listed)
        return Answer(estimate, error, low, high, found.about)

    def _about(self, statistic: Statistic, ask: _Ask) -> Answer:
        """Answers to one statistic, and the `about` that each holds for."""
        kind, column = statistic.kind, statistic.column
        if statistic.rank is not None or kind == "nunique":
            return replace(self._counted(statistic, ask), about=COUNTED if self._lacks(ask) else TRUE)
        if kind in ("count", "sum"):
            name = "count" if kind == "count" else "total"
            part = self._part(name, column, ask)
            return self._about_all(part, name, column, ask)
        name, count = self._first_sum(column), self._part("count", ROWS, ask)
        quantity, tail = self._quantity(name, column), self._released.tails[column]
        first, centre = self._part(name, column, ask), quantity.centre * quantity.grid
        if kind == "mean":
            clipped = self._mean(first, count, centre, tail.clip)
            whole = self._unclipped(first, column, ask)
            limits = -float(tail.edges[0][-1]), float(tail.edges[1][-1])
            if whole is None:
                return replace(clipped, about=CLIPPED)
            mean = self._mean(whole, count, centre, limits)
            below, above = (each / np.maximum(count.value, 1.0) for each in self._unseen(column, ask, whole.value))
            low, high = np.maximum(mean.low - below, limits[0]), np.minimum(mean.high + above, limits[1])
            mean = replace(mean, low=low, high=high)
            return replace(mean, of_clipped=clipped, about=COUNTED if self._lacks(ask) else TRUE)
        square = self._quantity("square", column)
        second = self._part("square", column, ask)
        found = self._variance(second, first, count, (square.centre - quantity.centre) * square.grid, tail.clip)
        return replace(found if kind == "var" else _root(found), about=CLIPPED)

    def _among_persons(self, about: str) -> str:
        return about if self._released.has_persons else TRUE

    def _begun(self, ask: _Ask) -> bool:
        return self._released.begins is not None and ask.depth < len(self._released.parents)

    def _lacks(self, ask: _Ask) -> bool:
        return self._released.has_persons or self._begun(ask)

    # Sums as they were released.

    def _first_sum(self, column: str) -> str:
        return "total" if self._released.index("total", column) is not None else "deviation"

    def _counted(self, statistic: Statistic, ask: _Ask) -> Answer:
        name, parents = "distinct" if statistic.rank is None else "histogram", self._released.parents
        each = self._released.counts(name, statistic.column)
        steps, noise = each.steps.astype(np.float64), each.noise[0]
        if statistic.rank is not None:
            for depth in range(len(parents) - 1, ask.depth - 1, -1):
                nodes = steps.reshape(-1, steps.shape[2])
                steps = grouped(nodes, parents[depth], self._leaves[depth].size).reshape(*steps.shape[:2], -1)
            found = Histogram(Bins(*each.quantities[0].ends), steps, noise, self._leaves[ask.depth])
            estimate, low, high = found.quantiles(statistic.rank, ask.starts, ask.stops, self._confidence)
            return Answer(estimate, (high - low) / (2.0 * self._normal), low, high)
        if ask.depth < len(parents) or (ask.stops > ask.starts + 1).any():
            raise ParameterError("nunique: expected single windows and keys, because an entry may be in several")
        half = noise.quantiles(np.ones(1, np.int64), self._confidence)[0]
        value = steps[0][ask.starts]
        error = np.full(value.shape, math.sqrt(noise.variance))
        value, low, high = (np.maximum(end, 0.0) for end in (value, value - half, value + half))
        return Answer(value, error, low, high)

    def _quantity(self, name: str, column: str) -> Quantity:
        return self._released.quantities[self._index(name, column)]

    def _index(self, name: str, column: str) -> int:
        return self._released.index(name, column) or 0

    def _part(self, name: str, column: str, ask: _Ask) -> _Part:
        i = self._index(name, column)
        exact = self._exact(i, ask)
        if not (ask.revised and exact.value.size) or self._released.begins is not None:
            return exact
        revised, resolution = self._revised(i), self._released.quantities[i].resolution
        value = revised.sums(ask.depth, ask.starts, ask.stops) * resolution
        variance = revised.variances(ask.depth, ask.starts, ask.stops) * resolution**2
        # Where windows say little about each other the error is their noise, whose tails are longer than normal ones.
        half = np.sqrt(variance) * np.maximum(exact.quantile, self._normal)
        return _Part(value, variance, value - half, value + half)

    def _exact(self, i: int, ask: _Ask) -> _Part:
        fit, resolution, lengths = self._fit(i), self._released.quantities[i].resolution, ask.stops - ask.starts
        sums, variance = fit.sums(ask.depth, ask.starts, ask.stops), fit.variances(ask.depth, lengths)
        noise = self._released.sums[0].noise[i]
        if len(self._released.sums) == 1:
            draws = (lengths[:, None] * self._leaves[ask.depth]).astype(np.int64)
            half = noise.quantiles(draws.ravel(), self._confidence).reshape(draws.shape)
        else:
            # Of sums of draws with any weights that of one draw is the longest tail.
            one = float(noise.quantiles(np.ones(1, np.int64), self._confidence)[0]) - 1.0
            longest = one / np.sqrt(noise.variance) if noise.variance > 0.0 else 0.0
            half = np.sqrt(variance) * max(longest, self._normal) + 1.0
        # In integer steps: the ends belong to the interval, and rounding must not move them inwards.
        low, high = ((sums + side * half) * resolution for side in (-1, 1))
        rule, others, leaves = self._released.selection, self._released.others, len(self._released.parents)
        if rule is not None and self._released.quantities[i].name == "count" and ask.depth == leaves:
            # Keys were chosen by these counts, in the only window.
            ends = selected_interval(sums.ravel().astype(np.int64), rule, self._confidence)
            low, high = (end.reshape(sums.shape) for end in ends)
        if others is not None and self._released.quantities[i].name == "count":
            # The last node holds the rows of other keys alone, or with all others: then the sum is never too narrow.
            own = float(others.quantiles(np.ones(1, np.int64), self._confidence)[0])
            low[:, -1] = (sums if ask.depth else low)[:, -1] - own
            high[:, -1] = (sums if ask.depth else high)[:, -1] + own
        return _Part(sums * resolution, variance * resolution**2, low, high)

    @cached_property
    def _leaves(self) -> list[Integers]:
        parents = self._released.parents
        size = parents[-1].size if parents else 1
        found: list[Integers] = [np.ones(size, np.int64)]
        for depth in range(len(parents) - 1, -1, -1):
            above = parents[depth - 1].size if depth else 1
            found.insert(0, np.bincount(parents[depth], found[0], above).astype(np.int64))
        return found

    def _fit(self, i: int) -> Consistent:
        if i not in self._fits:
            measured: list[tuple[Level, Floats, Variance]] = [
                (each.level, each.steps[i].astype(np.float64), each.noise[i].variance) for each in self._released.sums
            ]
            if self._released.others is not None and self._released.quantities[i].name == "count":
                # In a table of cells alone.
                level, steps, variance = measured[0]
                each = np.full(steps.shape[1], variance)
                each[-1] = self._released.others.variance
                measured = [(level, steps, each)]
            self._fits[i] = consistent(measured, self._released.parents)
        return self._fits[i]

    def _revised(self, i: int) -> Revised:
        if i not in self._revisions:
            edges, zone = self._released.edges, self._released.time_zone
            patterns = local_patterns(edges, zone) if self._released.every is not None else []
            self._revisions[i] = revise(self._fit(i), self._released.parents, patterns)
        return self._revisions[i]

    # True sums.

    def _about_all(self, part: _Part, name: str, column: str, ask: _Ask) -> Answer:
        whole = self._unclipped(part, column, ask) if name == "total" else part
        if name == "total" and whole is not None:
            whole = whole.wider(*self._unseen(column, ask, whole.value))
        found = part if whole is None else whole
        scaled = self._scaled(found, name, column, ask)
        known = COUNTED if scaled is None else self._among_persons(LIMITED)
        answer = (found if scaled is None else scaled).answer()
        return replace(answer, about=CLIPPED if whole is None else known, of_clipped=part.answer())

    def _scaled(self, found: _Part, name: str, column: str, ask: _Ask) -> _Part | None:
        """Counts and sums scaled up for dropped rows; None if their number is unknown."""
        rows = self._released.rows
        if not found.value.size or not self._lacks(ask):
            return found
        if rows is None or not rows.counted.known or self._begun(ask):
            return None
        ratio = max(rows.dropped.value, 0.0) / rows.counted.value
        relative = (rows.dropped.variance + ratio**2 * rows.counted.variance) / rows.counted.value**2
        own, nothing = self._share(name, column, ask)[0], np.zeros_like(found.value)
        error: Floats = found.value**2 * (relative + (UNEVEN * ratio * (1.0 - own)) ** 2)
        beyond = found.value**2 * (CAPPED * ratio) ** 2
        moved = found.moved(nothing, error + beyond, self._normal, 1.0 + ratio)
        if name != "count" and self._quantity(name, column).low < 0:
            return moved
        # Rows were dropped, not added; those that no number has would add to a count.  In a sum values may differ.
        least = found.moved(nothing, error, self._normal, 1.0 + ratio) if name == "count" else moved
        return moved.within(np.maximum(least.low, found.low), moved.high)

    def _unclipped(self, part: _Part, column: str, ask: _Ask) -> _Part | None:
        if not part.value.size:
            return part
        low, high = self._released.tails[column].ends
        if not self._mostly_counted(column, low, high):
            return None
        share, node = self._share(self._first_sum(column), column, ask)
        more = (high.excess - low.excess) * share
        moved = part.moved(more, low.variances(share, node) + high.variances(share, node), self._normal)
        # Without values beyond one end the sum is at least, or at most, that of clipped values.
        edges = self._released.tails[column].edges
        least = np.maximum(moved.low, part.low) if edges[0].size == 1 else moved.low
        most = np.minimum(moved.high, part.high) if edges[1].size == 1 else moved.high
        return moved.within(least, most)

    def _unseen(self, column: str, ask: _Ask, sums: Floats) -> tuple[Floats, Floats]:
        low, high = self._released.tails[column].ends
        if not sums.size or (low.known and high.known):
            return np.zeros_like(sums), np.zeros_like(sums)
        share = self._share(self._first_sum(column), column, ask)[0]
        return low.unseen(share), high.unseen(share)

    def _mostly_counted(self, column: str, low: Beyond, high: Beyond) -> bool:
        """True if at most UNSEEN of the sum is extrapolated, and HIDDEN by noise."""
        name = self._first_sum(column)
        whole = float(abs(self._totals(name, column)[0].sum())) + low.excess + high.excess
        hidden = sum(0.0 if each.known else each.hidden for each in (low, high))
        return low.after + high.after <= UNSEEN * whole and hidden <= HIDDEN * whole

    def _totals(self, name: str, column: str) -> tuple[Floats, ...]:
        i = self._index(name, column)
        found = self._revised(i).values
        quantity = self._released.quantities[i]
        if quantity.centre:
            counts = self._revised(self._index("count", ROWS)).values
            found = tuple(each + quantity.centre * count for each, count in zip(found, counts, strict=True))
        return tuple(each * quantity.resolution for each in found)

    def _share(self, name: str, column: str, ask: _Ask) -> tuple[Floats, Floats]:
        # Where sums may cancel out, rows say more about the size of a part.
        both = column != ROWS and self._released.tails[column].clip[0] < 0.0
        if both and self._released.index("count") is not None:
            name, column = "count", ROWS
        key = name, column
        if key not in self._parts:
            self._parts[key] = shares(self._totals(name, column), self._released.parents)
        values = self._parts[key][ask.depth]
        return range_sums(values, ask.starts, ask.stops), values.sum(axis=0)

    # Quotients.

    def _mean(self, deviation: _Part, count: _Part, centre: float, limits: tuple[float, float]) -> Answer:
        low, high = limits
        quantile = np.maximum(np.maximum(deviation.quantile, count.quantile), self._normal)
        size = np.maximum(count.value, 1.0)
        mean = np.clip(deviation.value / size, low - centre, high - centre)
        error = np.sqrt(deviation.variance + mean**2 * count.variance) / size
        clear = count.value**2 - quantile**2 * count.variance
        known = (clear > 0.0) & (count.value > 0.0)
        clear = np.where(known, clear, 1.0)
        inside = count.variance * deviation.value**2 + deviation.variance * clear
        middle, half = deviation.value * count.value / clear, quantile * np.sqrt(np.maximum(inside, 0.0)) / clear
        lower = np.clip(np.where(known, middle - half, low - centre), low - centre, mean)
        upper = np.clip(np.where(known, middle + half, high - centre), mean, high - centre)
        return Answer(centre + mean, np.minimum(error, high - low), centre + lower, centre + upper)

    def _variance(
        self, square: _Part, first: _Part, count: _Part, centre: float, clip: tuple[float, float]
    ) -> Answer:
        """Square / count less the squared mean deviation, by the delta method, within the clip."""
        most, size = ((clip[1] - clip[0]) / 2.0) ** 2, np.maximum(count.value, 1.0)
        mean = first.value / size - centre
        raw = square.value / size - mean**2
        slope = mean**2 + 2.0 * mean * centre - raw
        error = np.sqrt(square.variance + 4.0 * mean**2 * first.variance + slope**2 * count.variance) / size
        quantile = np.maximum(np.maximum(square.quantile, count.quantile), self._normal)
        low, high = (np.clip(raw + side * quantile * error, 0.0, most) for side in (-1, 1))
        return Answer(np.clip(raw, 0.0, most), np.minimum(error, most), low, high)


def _root(answer: Answer) -> Answer:
    estimate, low, high = (np.sqrt(each) for each in (answer.estimate, answer.low, answer.high))
    error = np.minimum(answer.std_error / np.maximum(2.0 * estimate, np.sqrt(answer.std_error)), high - low)
    return Answer(estimate, error, low, high)
