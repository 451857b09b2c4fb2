"""Sums over windows and keys with error bars, of true values where possible (post-processing).

Errors: of least squares, or the model (``revised``), with shares of what lies beyond the clip and of dropped rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from fastdp.kinds import Floats, Integers
from fastdp.releases.intervals import DrawnNoise
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
from fastdp.tables.quantiles import Bins, Histogram, Parts, places_of
from fastdp.tables.quantities import ROWS, Quantity
from fastdp.tables.released import Released
from fastdp.tables.statistics import COUNTED, LIMITED, TRUE, Answer, Estimate, Statistic
from fastdp.tables.tails import Beyond, parts_of

#: The sum beyond the clip is unknown if more than this share of the whole comes from values above all those whose
#: number stands out of the noise.
UNSEEN = 0.5
#: What noise hides beyond the clip widens intervals if it is at most this share of the whole; else it is unknown.
HIDDEN = 0.1
#: Standard errors, as shares of the rows dropped: of their number in a part of the table, and of the rows of a person
#: beyond the limit up to which they are counted.
UNEVEN, CAPPED = 0.5, 0.3


class Answers:
    """Noisy sums made consistent, and revised: computed once for all ranges."""

    def __init__(self, released: Released, confidence: float) -> None:
        self.released = released
        self.confidence = confidence
        self.normal = float(special.ndtri(0.5 + confidence / 2.0))
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
        leaves, begins = len(self.released.parents), self.released.begins
        view = View(self, starts, stops, leaves if depth is None else depth, revised)
        found = statistic.answer(view)
        if begins is None or view.depth < leaves:
            return found
        listed = found.estimate, found.std_error, found.low, found.high
        estimate, error, low, high = (np.where(starts[:, None] < begins, np.nan, each) for each in listed)
        return Answer(estimate, error, low, high, found.about)

    @cached_property
    def leaves(self) -> list[Integers]:
        """Keys below each node, by depth."""
        parents = self.released.parents
        size = parents[-1].size if parents else 1
        found: list[Integers] = [np.ones(size, np.int64)]
        for depth in range(len(parents) - 1, -1, -1):
            above = parents[depth - 1].size if depth else 1
            found.insert(0, np.bincount(parents[depth], found[0], above).astype(np.int64))
        return found

    def index(self, name: str, column: str) -> int:
        """Place of a sum in the vectors; KeyError for one that was not released."""
        if name == "first":
            name = self.first_of(column)
        found = self.released.index(name, column)
        if found is None:
            raise KeyError(f"{name} of {column!r} was not released: a statistic needs it, but does not say so")
        return found

    def first_of(self, column: str) -> str:
        return "total" if self.released.index("total", column) is not None else "deviation"

    def fit(self, i: int) -> Consistent:
        if i not in self._fits:
            measured: list[tuple[Level, Floats, Variance]] = [
                (each.level, each.steps[i].astype(np.float64), each.noise[i].variance) for each in self.released.sums
            ]
            if self.released.others is not None and self.released.quantities[i].name == "count":
                # In a table of cells alone.
                level, steps, variance = measured[0]
                each = np.full(steps.shape[1], variance)
                each[-1] = self.released.others.variance
                measured = [(level, steps, each)]
            self._fits[i] = consistent(measured, self.released.parents)
        return self._fits[i]

    def revision(self, i: int) -> Revised:
        if i not in self._revisions:
            edges, zone = self.released.edges, self.released.time_zone
            patterns = local_patterns(edges, zone) if self.released.every is not None else []
            self._revisions[i] = revise(self.fit(i), self.released.parents, patterns)
        return self._revisions[i]

    def totals(self, name: str, column: str) -> tuple[Floats, ...]:
        """Revised sums of values in each window and node, by depth."""
        i = self.index(name, column)
        found = self.revision(i).values
        quantity = self.released.quantities[i]
        if quantity.centre:
            counts = self.revision(self.index("count", ROWS)).values
            found = tuple(each + quantity.centre * count for each, count in zip(found, counts, strict=True))
        return tuple(each * quantity.resolution for each in found)

    def parts(self, name: str, column: str) -> list[Floats]:
        """Share of each window and node in all."""
        # Where sums may cancel out, rows say more about the size of a part.
        both = column != ROWS and self.released.tails[column].clip[0] < 0.0
        if both and self.released.index("count") is not None:
            name, column = "count", ROWS
        key = name, column
        if key not in self._parts:
            self._parts[key] = parts_of(self.totals(name, column), self.released.parents)
        return self._parts[key]


@dataclass(frozen=True, eq=False)
class View:
    """Released numbers of windows [start, stop) and the nodes of a depth, to all that a statistic may ask.

    It knows no statistic: see :class:`fastdp.tables.statistics.View`.
    """

    answers: Answers
    starts: Integers
    stops: Integers
    depth: int
    revised: bool

    @property
    def released(self) -> Released:
        return self.answers.released

    @property
    def confidence(self) -> float:
        return self.answers.confidence

    @property
    def normal(self) -> float:
        return self.answers.normal

    @property
    def single(self) -> bool:
        return self.depth == len(self.released.parents) and not (self.stops > self.starts + 1).any()

    @property
    def _begun(self) -> bool:
        return self.released.begins is not None and self.depth < len(self.released.parents)

    @property
    def _lacks(self) -> bool:
        return self.released.has_persons or self._begun

    @property
    def of_rows(self) -> str:
        return COUNTED if self._lacks else TRUE

    def quantity(self, name: str, column: str) -> Quantity:
        return self.released.quantities[self.answers.index(name, column)]

    def limits(self, column: str) -> tuple[tuple[float, float], tuple[float, float]]:
        tail = self.released.tails[column]
        return tail.clip, (-float(tail.edges[0][-1]), float(tail.edges[1][-1]))

    # Counts, and sums as they were released.

    def counts(self, name: str, column: str) -> tuple[Floats, DrawnNoise]:
        each = self.released.counts(name, column)
        return each.steps[0].astype(np.float64)[self.starts], each.noise[0]

    def histogram(self, column: str) -> Histogram:
        released, leaves = self.released, self.answers.leaves
        counts, excess = (released.counts(name, column) for name in ("histogram", "excess"))
        noise, ranks, table = counts.noise[0], excess.quantities[0].ranks, None
        if "table" in released.shares.plan.parts[column]:
            table = released.counts("table", column).steps[:, 0, 0]
        parts = Parts.of_table(table, counts.steps[0].size, noise)
        places = places_of(parts, counts.steps, ranks, noise)
        numbers = parts, counts.steps, noise, ranks, places, excess.steps, excess.noise[0]
        return Histogram(Bins(*counts.quantities[0].ends), *numbers, leaves[self.depth], self._added)

    def _added(self, values: Floats) -> Floats:
        """Sums of keys, along the last axis, to the nodes of the depth."""
        parents = self.released.parents
        for depth in range(len(parents) - 1, self.depth - 1, -1):
            nodes = values.reshape(-1, values.shape[-1])
            values = grouped(nodes, parents[depth], self.answers.leaves[depth].size).reshape(*values.shape[:-1], -1)
        return values

    def sum(self, name: str, column: str = ROWS) -> Estimate:
        i = self.answers.index(name, column)
        exact = self._exact(i)
        if not (self.revised and exact.value.size) or self.released.begins is not None:
            return exact
        revised, resolution = self.answers.revision(i), self.released.quantities[i].resolution
        value = revised.sums(self.depth, self.starts, self.stops) * resolution
        variance = revised.variances(self.depth, self.starts, self.stops) * resolution**2
        # Where windows say little about each other the error is their noise, whose tails are longer than normal ones.
        half = np.sqrt(variance) * np.maximum(exact.quantile, self.normal)
        return Estimate(value, variance, value - half, value + half)

    def _exact(self, i: int) -> Estimate:
        released, depth, lengths = self.released, self.depth, self.stops - self.starts
        fit, quantity, noise = self.answers.fit(i), released.quantities[i], released.sums[0].noise[i]
        sums, variance = fit.sums(depth, self.starts, self.stops), fit.variances(depth, lengths)
        if len(released.sums) == 1:
            draws = (lengths[:, None] * self.answers.leaves[depth]).astype(np.int64)
            half = noise.quantiles(draws.ravel(), self.confidence).reshape(draws.shape)
        else:
            # Of sums of draws with any weights that of one draw is the longest tail.
            one = float(noise.quantiles(np.ones(1, np.int64), self.confidence)[0]) - 1.0
            longest = one / np.sqrt(noise.variance) if noise.variance > 0.0 else 0.0
            half = np.sqrt(variance) * max(longest, self.normal) + 1.0
        # In integer steps: the ends belong to the interval, and rounding must not move them inwards.
        low, high = ((sums + side * half) * quantity.resolution for side in (-1, 1))
        if released.selection is not None and quantity.name == "count" and depth == len(released.parents):
            # Keys were chosen by these counts, in the only window.
            ends = selected_interval(sums.ravel().astype(np.int64), released.selection, self.confidence)
            low, high = (end.reshape(sums.shape) for end in ends)
        if released.others is not None and quantity.name == "count":
            # The last node holds the rows of other keys alone, or with all others: then the sum is never too narrow.
            own = float(released.others.quantiles(np.ones(1, np.int64), self.confidence)[0])
            low[:, -1] = (sums if depth else low)[:, -1] - own
            high[:, -1] = (sums if depth else high)[:, -1] + own
        return Estimate(sums * quantity.resolution, variance * quantity.resolution**2, low, high)

    # True sums.

    def of_all(self, part: Estimate, name: str, column: str) -> tuple[Estimate, str]:
        rows, normal = self.released.rows, self.normal
        about = LIMITED if self.released.has_persons else TRUE
        if not part.value.size or not self._lacks:
            return part, about
        if rows is None or not rows.counted.known or self._begun:
            return part, COUNTED
        ratio = max(rows.dropped.value, 0.0) / rows.counted.value
        relative = (rows.dropped.variance + ratio**2 * rows.counted.variance) / rows.counted.value**2
        own, nothing = self._share(name, column)[0], np.zeros_like(part.value)
        error: Floats = part.value**2 * (relative + (UNEVEN * ratio * (1.0 - own)) ** 2)
        beyond = part.value**2 * (CAPPED * ratio) ** 2
        moved = part.moved(nothing, error + beyond, normal, 1.0 + ratio)
        if column != ROWS and self.quantity(name, column).low < 0:
            return moved, about
        # Rows were dropped, not added; those that no number has would add to a count.  In a sum values may differ.
        least = part.moved(nothing, error, normal, 1.0 + ratio) if column == ROWS else moved
        return moved.within(np.maximum(least.low, part.low), moved.high), about

    def unclipped(self, part: Estimate, column: str) -> Estimate | None:
        if not part.value.size:
            return part
        tail = self.released.tails[column]
        low, high = tail.ends
        if not self._mostly_counted(column, low, high):
            return None
        share, node = self._share("first", column)
        more = (high.excess - low.excess) * share
        moved = part.moved(more, low.variances(share, node) + high.variances(share, node), self.normal)
        # Without values beyond one end the sum is at least, or at most, that of clipped values.
        least = np.maximum(moved.low, part.low) if tail.edges[0].size == 1 else moved.low
        most = np.minimum(moved.high, part.high) if tail.edges[1].size == 1 else moved.high
        return moved.within(least, most)

    def unseen(self, column: str, sums: Floats) -> tuple[Floats, Floats]:
        low, high = self.released.tails[column].ends
        if not sums.size or (low.known and high.known):
            return np.zeros_like(sums), np.zeros_like(sums)
        share = self._share("first", column)[0]
        return low.unseen(share), high.unseen(share)

    def _mostly_counted(self, column: str, low: Beyond, high: Beyond) -> bool:
        """True if at most UNSEEN of the sum is extrapolated, and HIDDEN by noise."""
        whole = float(abs(self.answers.totals("first", column)[0].sum())) + low.excess + high.excess
        hidden = sum(0.0 if each.known else each.hidden for each in (low, high))
        return low.after + high.after <= UNSEEN * whole and hidden <= HIDDEN * whole

    def _share(self, name: str, column: str) -> tuple[Floats, Floats]:
        values = self.answers.parts(self.answers.first_of(column) if name == "first" else name, column)[self.depth]
        return range_sums(values, self.starts, self.stops), values.sum(axis=0)
