"""Sums over windows and keys with error bars about the true ones, or NaN.

Errors are of least squares or of a model (``revised``), with shares of the sum beyond the clip and of dropped rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
from scipy import special

from fastdp.kinds import Flags, Floats, Integers
from fastdp.releases.intervals import DrawnNoise
from fastdp.tables.calendar_basis import CalendarFit
from fastdp.tables.consistent import (
    Consistent,
    Level,
    Revised,
    Variance,
    block_parts,
    consistent,
    grouped,
    local_patterns,
    range_sums,
    revise,
)
from fastdp.tables.keys import selected_interval
from fastdp.tables.quantiles import Bins, Histogram, Parts, places_of
from fastdp.tables.quantities import ROWS, Quantity
from fastdp.tables.reach import counter_of
from fastdp.tables.released import Released
from fastdp.tables.sizes import Number, one_sided, parts, two_sided, unseen
from fastdp.tables.statistics import DROPPED, Answer, Estimate, Statistic
from fastdp.tables.tails import Tail
from fastdp.units import Person

#: Standard error of the dropped rows' share in a window, beside that of a key, as a share of it.
BETWEEN = 0.5
#: A window, and in ranges one, stands out if its body lies so many robust deviations above the median of its key's,
#: of at least so many.
OUTLIER, IN_RANGES, FEW_WINDOWS = 2.4, 4.0, 8


class Answers:
    """Noisy sums made consistent and revised, for all ranges."""

    def __init__(self, released: Released, confidence: float, *, planned: bool = False) -> None:
        self.released = released
        self.confidence = confidence
        #: True for plans: no row is dropped.
        self.planned = planned
        self.normal = float(special.ndtri(0.5 + confidence / 2.0))
        self._fits: dict[int, Consistent | CalendarFit] = {}
        self._revisions: dict[int, Revised] = {}
        self._parts: dict[str, list[Floats]] = {}
        self._loud: dict[str, tuple[Integers, Floats, Flags]] = {}
        self._reasons: dict[tuple[str, int], tuple[str, ...]] = {}

    def windows(self, statistic: Statistic, depth: int, *, revised: bool = False) -> Answer:
        starts = np.arange(self.released.edges.size - 1)
        found = self.about(statistic, starts, starts + 1, revised=revised, depth=depth)
        if not revised:
            self._reasons[statistic.name, depth] = found.reasons
        return found

    def reasons(self, statistic: Statistic, depth: int) -> tuple[str, ...]:
        if self.released.edges.size < 2 or not self.released.sizes[depth]:
            return ()
        if (statistic.name, depth) not in self._reasons:
            self.windows(statistic, depth)
        return self._reasons[statistic.name, depth]

    def about(
        self,
        statistic: Statistic,
        starts: Integers,
        stops: Integers,
        *,
        revised: bool = False,
        depth: int | None = None,
    ) -> Answer:
        """Answers about windows [start, stop) of each key, or prefix of ``depth`` columns.

        They are NaN where a key had not appeared by the start.
        """
        leaves, begins = len(self.released.parents), self.released.begins
        view = View(self, starts, stops, leaves if depth is None else depth, revised)
        found = statistic.answer(view)
        if begins is None or view.depth < leaves:
            return found
        early, listed = starts[:, None] < begins, (found.estimate, found.std_error, found.low, found.high)
        estimate, error, low, high = (np.where(early, np.nan, each) for each in listed)
        return Answer(estimate, error, low, high, found.reasons)

    @cached_property
    def leaves(self) -> list[Integers]:
        parents = self.released.parents
        size = parents[-1].size if parents else 1
        found: list[Integers] = [np.ones(size, np.int64)]
        for depth in range(len(parents) - 1, -1, -1):
            above = parents[depth - 1].size if depth else 1
            found.insert(0, np.bincount(parents[depth], found[0], above).astype(np.int64))
        return found

    def index(self, name: str, column: str) -> int:
        """Index of a sum in the vectors; KeyError if not released."""
        if name == "first":
            name = "total" if self.released.index("total", column) is not None else "deviation"
        found = self.released.index(name, column)
        if found is None:
            raise KeyError(f"{name} of {column!r} was not released: a statistic needs it, but does not say so")
        return found

    def fit(self, i: int) -> Consistent | CalendarFit:
        if i not in self._fits and (basis := self.released.shares.plan.basis) is not None:
            cells, left = self.released.sums[0], self.released.residuals[i]
            norm = left.value, left.value + one_sided(self.confidence) * math.sqrt(left.variance)
            self._fits[i] = CalendarFit(basis, cells.steps[i], cells.noise[i], norm, self.released.parents)
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
            self._revisions[i] = revise(cast("Consistent", self.fit(i)), self.released.parents, patterns)
        return self._revisions[i]

    def forget_revisions(self) -> None:
        """Free the memory of revised windows."""
        self._revisions.clear()
        block_parts.cache_clear()

    def parts(self, column: str) -> list[Floats]:
        """Share of each window and node in a column's sum (of rows: "*"), by depth."""
        if column not in self._parts:
            tail, leaf = self.released.tails.get(column), len(self.released.parents)
            starts = np.arange(self.released.edges.size - 1)
            cells = starts.size, self.released.sizes[leaf]
            part = np.full(cells, 1.0 / max(1, math.prod(cells)))
            if self.released.index("count") is not None:
                part = parts(*self._cells("count", ROWS, starts), part)
            if tail is not None and tail.cells and not tail.signed:
                part = parts(*self._body(column, tail.sign), part)
            self._parts[column] = self.by_depth(part)
        return self._parts[column]

    def loud(self, column: str) -> tuple[Integers, Floats, Flags]:
        """Cells that stand out of their key's, most rows beyond the clip in each, and if in ranges too.

        Each such row has the clip in the body; the others are usual.
        """
        if column not in self._loud:
            tail, windows = self.released.tails[column], self.released.edges.size - 1
            found = np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.bool_)
            if windows >= FEW_WINDOWS and self.released.sizes[-1] and tail.cells and tail.sides and not tail.signed:
                over, variance = self._body(column, tail.sign)
                over -= np.median(over, axis=0)
                noise = math.sqrt(variance)
                usual = np.maximum(np.median(np.abs(over), axis=0) / special.ndtri(0.75), noise)
                cells = np.flatnonzero(over > OUTLIER * usual)
                body = over.flat[cells]
                rows = (body + two_sided(self.confidence) * noise) / max(tail.clip[1], -tail.clip[0])
                found = cells, rows, body > IN_RANGES * usual[cells % usual.size]
            self._loud[column] = found
        return self._loud[column]

    def _body(self, column: str, sign: float) -> tuple[Floats, float]:
        """Sums and variance of sizes up to the clip, by cell."""
        starts, q = np.arange(self.released.edges.size - 1), self.released.quantities[self.index("first", column)]
        body, variance = self._cells("first", column, starts)
        if centre := q.centre * q.grid:
            rows, more = self._cells("count", ROWS, starts)
            body, variance = body + centre * rows, variance + centre**2 * more
        return sign * body, variance

    def by_depth(self, cells: Floats) -> list[Floats]:
        found = [cells]
        for depth in range(len(self.released.parents) - 1, -1, -1):
            found.insert(0, grouped(found[0], self.released.parents[depth], self.released.sizes[depth]))
        return found

    def _cells(self, name: str, column: str, starts: Integers) -> tuple[Floats, float]:
        i, leaf = self.index(name, column), len(self.released.parents)
        resolution, fit = self.released.quantities[i].resolution, self.fit(i)
        some = starts if isinstance(fit, CalendarFit) else starts[:1]
        variance = fit.variances(leaf, some, some + 1) * resolution**2
        return fit.sums(leaf, starts, starts + 1) * resolution, float(np.mean(variance)) if variance.size else 0.0


@dataclass(frozen=True, eq=False)
class View:
    """Released numbers of windows [start, stop) and nodes of a depth: see :class:`fastdp.tables.statistics.View`."""

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

    def quantity(self, name: str, column: str) -> Quantity:
        return self.released.quantities[self.answers.index(name, column)]

    def limits(self, column: str) -> tuple[tuple[float, float], tuple[float, float]]:
        tail = self.released.tails.get(column)
        if tail is None:
            own = self.released.shares.plan.column(column)
            return own.ends, own.bound or own.ends
        return tail.clip, tail.ends

    def has_cells(self, column: str) -> bool:
        return self.released.tails[column].cells

    def drowned(self, column: str) -> bool:
        tail, one = self.released.tails[column], self.released.shares.plan.cells == 1
        # A sum of both signs may be near 0 though its interval is narrow.
        if self.answers.planned or (tail.cells and (tail.beyond.signed or not one)):
            return False
        value, variance = tail.beyond.value, tail.beyond.variance
        if tail.cells:
            found = self.total(column)
            value, variance = float(found.value.max(initial=0.0)), float(found.variance.max(initial=0.0))
        return not Number(max(abs(value), sum(each.total for each in tail.sides)), variance).known

    def unknown(self, column: str) -> tuple[bool, bool]:
        tail = self.released.tails.get(column)
        if tail is not None:
            return tail.unknown
        # Of quantiles alone: beyond a clip.
        clip, bound = (own := self.released.shares.plan.column(column)).ends, own.bound
        return clip[0] != 0.0 and (bound is None or bound[0] < clip[0]), bound is None or bound[1] > clip[1]

    # Counts, and sums as they were released.

    def counts(self, name: str, column: str) -> tuple[Floats, DrawnNoise]:
        each = self.released.counts(name, column)
        return each.steps[0].astype(np.float64)[self.starts], each.noise[0]

    def reach(self, column: str) -> tuple[Floats, Floats, DrawnNoise, bool]:
        by_key, plan = self.depth > 0, self.released.shares.plan
        each, counter, before = self.released.counts("key reach" if by_key else "reach", column), counter_of(plan), 0
        if plan.calendar is not None:
            before = plan.calendar.number(int(self.released.edges[0])) - (plan.start or 0)
        found = each.steps.astype(np.float64)[:, self.stops - 1]
        errors = counter.factor * np.sqrt(counter.most_draws(before + self.stops) * each.noise[0].variance)
        return found, errors[:, None], each.noise[0], not by_key or plan.all_keys

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
        parents = self.released.parents
        for depth in range(len(parents) - 1, self.depth - 1, -1):
            nodes = values.reshape(-1, values.shape[-1])
            values = grouped(nodes, parents[depth], self.answers.leaves[depth].size).reshape(*values.shape[:-1], -1)
        return values

    def sum(self, name: str, column: str = ROWS) -> Estimate:
        i = self.answers.index(name, column)
        exact = self._exact(i)
        # Numbers of a calendar are all windows' already.
        of_all = self.released.begins is None and self.released.shares.plan.basis is None
        if not (self.revised and exact.value.size and of_all):
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
        given = depth, self.starts, self.stops
        sums, variance = fit.sums(*given), fit.variances(*given)
        if isinstance(fit, Consistent) and len(released.sums) == 1:
            draws = (lengths[:, None] * self.answers.leaves[depth]).astype(np.int64)
            half = noise.quantiles(draws.ravel(), self.confidence).reshape(draws.shape)
        else:
            # Of sums of draws with any weights that of one draw is the longest tail.
            one = float(noise.quantiles(np.ones(1, np.int64), self.confidence)[0]) - 1.0
            longest = one / np.sqrt(noise.variance) if noise.variance > 0.0 else 0.0
            half = np.sqrt(variance) * max(longest, self.normal) + 1.0
        if isinstance(fit, CalendarFit):
            # The part in no column, as if it were normal: windows and ranges are covered on average.
            usual, most = fit.errors(*given)
            variance, half = variance + usual**2, np.hypot(half, self.normal * most)
            if quantity.column != ROWS:
                # Of many rows steps are so long that their roundings count, half a step each in the same direction.
                plan, cells = released.shares.plan, lengths[:, None] * self.answers.leaves[depth]
                half = half + 0.5 * plan.most_counted / max(1, plan.cells or 1) * cells
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

    def total(self, column: str) -> Estimate:
        tail, share = self.released.tails[column], self._share(column)[0]
        sign, none = tail.sign, np.zeros_like(share)
        part = self.sum("total", column) if tail.cells else Estimate(none, none, none, none)
        below, above = (part.value - part.low, part.high - part.value)[:: int(sign)]
        given = (sign * part.value, below, above), share, self._loud(column), self.confidence
        value, variance, low, high = tail.beyond.interval(*given)
        low, high = (low, high) if sign > 0.0 else (-high, -low)
        return Estimate(sign * value, part.variance + variance, *self._known(tail, low, high))

    @staticmethod
    def _known(tail: Tail, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        below, above = tail.unknown
        return np.where(below, np.nan, low), np.where(above, np.nan, high)

    def unclipped(self, part: Estimate, column: str) -> Estimate:
        tail, share = self.released.tails[column], self._share(column)[0]
        variance = tail.beyond.variances(share)
        return part.moved(tail.sign * share * tail.beyond.value, variance, two_sided(self.confidence))

    def unseen(self, column: str) -> tuple[Floats, Floats, Floats]:
        tail, share = self.released.tails[column], self._share(column)[0]
        down, up = tail.beyond.unseen(share, self.confidence)
        up = np.maximum(up, tail.beyond.loud(self._loud(column), self.confidence))
        below, above = self._known(tail, *(down, up)[:: int(tail.sign)])
        return below, above, tail.sign * share * tail.beyond.modelled

    def squares(self, column: str, centre: float) -> tuple[Floats, Floats]:
        tail, share = self.released.tails[column], self._share(column)[0]
        more, most, deviations = 0.0, 0.0, one_sided(self.confidence)
        for side, sign in zip(tail.sides, tail.signs, strict=True):
            clip = tail.clip[1] if sign > 0.0 else -tail.clip[0]
            sums, squares, _ = side.beyond(clip)
            more += 2.0 * (clip - sign * centre) * sums + squares
            most += side.hidden(clip, deviations, 2)
        longest = max(
            end - clip for end, clip in zip((-tail.ends[0], tail.ends[1]), (-tail.clip[0], tail.clip[1]), strict=True)
        )
        span = self.released.shares.plan.contributions * longest**2 or 1.0
        return share * more, np.where(any(tail.unknown), np.nan, unseen(share, most, span, self.confidence))

    def absent(self) -> str:
        released, rows = self.released, self.released.rows
        if self.answers.planned:
            return ""
        if released.begins is not None and self.depth < len(released.parents):
            return "a key's rows before its first window are in no number"
        plan = released.shares.plan
        if not isinstance(plan.unit, Person) or plan.keeps_all:
            return ""
        if rows is None:
            return DROPPED
        # Dropped rows are known of up to so many.
        known = plan.unit.known_rows(plan.contributions)
        if plan.unit.most is not None and plan.unit.most <= known:
            return ""
        # Files have it too, of Python and of the command line: no name of a parameter is spelled here.
        return f"a person's rows beyond {known:,} are in no number; a public most, up to that, gives both ends"

    def dropped(self) -> float:
        rows = self.released.rows
        if rows is None or self.released.shares.plan.keeps_all:
            return 0.0
        return max(rows.dropped.value, 0.0) + one_sided(self.confidence) * math.sqrt(rows.dropped.variance)

    def of_all(self, part: Estimate, column: str) -> Estimate:
        rows = self.released.rows
        if rows is None or self.released.shares.plan.keeps_all:
            return part
        kept = max(rows.counted.value, math.sqrt(rows.counted.variance))
        # Noise is no estimate.
        known = rows.counted.known and rows.dropped.known
        ratio = rows.dropped.value / kept if known else 0.0
        error = math.sqrt(rows.dropped.variance + ratio**2 * rows.counted.variance) / kept if known else 0.0
        share, node = self._share(column)
        within = np.divide(share, node, out=np.zeros_like(share), where=node > 0.0)
        uneven = np.hypot(ratio * (1.0 - node), BETWEEN * ratio * (1.0 - within))
        variance = (part.value * np.hypot(error, uneven)) ** 2
        moved = part.moved(np.zeros_like(part.value), variance, two_sided(self.confidence), 1.0 + ratio)
        # The rows that count are some of all; of dropped ones the number is known, in the whole table alone.
        whole = (share >= 1.0 - 1e-9) & (column == ROWS and self.released.shares.plan.key_rule != "private")
        low = np.where(whole, np.maximum(part.low, moved.low), part.low)
        # All dropped rows may lie in these windows, and have any values.
        ends, most = (0.0, 1.0) if column == ROWS else self.limits(column)[1], self.dropped()
        low, high = low + most * min(ends[0], 0.0), part.high + most * max(ends[1], 0.0)
        return replace(moved, low=np.minimum(low, moved.value), high=np.maximum(high, moved.value))

    def _loud(self, column: str) -> Floats:
        (cells, rows, in_ranges), single = self.answers.loud(column), self.stops == self.starts + 1
        most = np.zeros((self.released.edges.size - 1, self.released.sizes[-1]))
        most.flat[cells] = np.where(in_ranges, rows, 0.0)
        found = range_sums(self.answers.by_depth(most)[self.depth], self.starts, self.stops)
        if self.depth == len(self.released.parents):
            most.flat[cells] = rows
            found[single] = most[self.starts[single]]
        return found

    def _share(self, column: str) -> tuple[Floats, Floats]:
        values = self.answers.parts(column)[self.depth]
        return range_sums(values, self.starts, self.stops), np.broadcast_to(
            values.sum(axis=0), (self.starts.size, values.shape[1])
        )
