"""PHDStream with cells chosen from released counts, which get all of epsilon (``docs/points.md``)."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import Annotated, ClassVar, cast

import numpy as np

from fastdp.counters.counter import Simple, event_guarantee, noise_scale
from fastdp.guarantee import Guarantee, parallel
from fastdp.kinds import Floats, Integers
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.points import decomposition
from fastdp.points.decomposition import COUNTED, MAX_COUNT, KeptTree, Tree, check_codes
from fastdp.points.domains import CellParameters, PointParameters
from fastdp.points.phdstream import (
    COUNTER,
    MAX_EVENTS,
    MAX_FRACTION,
    PointMachine,
    PointPublisher,
    PointState,
    TotalCount,
    TotalCounter,
    cell_budgets,
    cells_and_counts,
    composed,
    split_total,
)
from fastdp.record import Flag, Real, Whole, constructor, parameter, record, values_of
from fastdp.releases.intervals import laplace_variance
from fastdp.state.codec import DERIVED
from fastdp_kernels.points import adaptive_tree

#: A cell is cut while its estimate exceeds so many standard deviations of its noise; the second if it was before.
SPLIT, KEEP = 4.0, 2.0
#: Less noise counts as so much, in points: nothing is to be seen within two points.
MIN_DEVIATION = 0.5
#: Longest wait of an event.
MAX_PERIOD = 2**16
#: Largest change of the period from one count to the next.
LARGEST_FACTOR = 1.5
#: The noise to come counts as that of so many steps: this fraction of those so far, at least this many.
HORIZON_FRACTION, MIN_HORIZON = 0.25, 50
#: Growth that a period must allow for in a cell, beside that seen: so many times the cell's share of the total's.
#: Without it a new cluster waits too long where noise is small.
UNSEEN = 2.0
#: Weight that earlier counts keep in the forecasts' weight, and in the period.
WEIGHT_MEMORY, PERIOD_MEMORY = 0.9, 0.5
#: PrivTree chooses the next cells if more than this fraction of the new points is in cells that it would have cut;
#: the second if it chose the last ones.
MAX_COARSE, STILL_COARSE = 0.3, 0.1
#: After that, and the first count, every batch is counted in PrivTree's cells for so many steps; the second where it
#: chose.
TRIAL_STEPS, PROMPT_STEPS = 2, 16
#: Errors are divided by counts, but by no less than this fraction of the total (the paper's 0.001).
FLOOR = 0.001
#: Columns of a tree before a count that it follows from, and those that it fills, in the kernel's order.
KNOWN = ("first", "released", "weight", "measure", "projected", "variance", "rate")
FILLED = ("origin", "parent", "first", "code", "ends", *KNOWN[1:])


# The schedule of counts, and of forecasts: functions of released counts alone.


@dataclass(frozen=True)
class Growth:
    """Growth of leaves between two counts, ``elapsed`` steps apart.

    ``counts``: noisy events; ``even``, ``individual``: forecasts from the total's and each leaf's growth;
    ``estimate``: points before; ``coarse``: fraction of new points in too large leaves.
    """

    counts: Integers
    even: Floats
    individual: Floats
    estimate: Floats
    elapsed: int
    coarse: float = 0.0


@dataclass(frozen=True)
class ReleaseSchedule:
    """The next count is ``period`` steps after the last; until step ``prompt`` PrivTree chooses the cells.

    ``weight``: fraction of its growth that a cell repeats, from the sums ``products`` and ``squares``; ``costs``:
    expected errors of candidate periods.
    """

    period: Annotated[int, Whole(1, MAX_PERIOD)]
    weight: Annotated[float, Real(least=0.0, most=1.0)] = 0.0
    products: Annotated[float, Real()] = 0.0
    squares: Annotated[float, Real(least=0.0)] = 0.0
    costs: Annotated[Floats | None, Real()] = None
    prompt: Annotated[int, Whole(0, 2**62)] = 0

    def check(self, period: int | None, most: int) -> None:
        """Check a loaded schedule with this `period`, None if at most `most`; else ValueError."""
        if self.period > most if period is None else self.period != period:
            raise ValueError("a period out of range")
        if self.costs is not None and not (period is None and self.costs.shape == periods(most).shape):
            raise ValueError("costs out of range")

    def after(self, now: int, jumped: bool, steps: int | None) -> ReleaseSchedule:
        """Schedule after step `now`; if `jumped`, PrivTree chooses cells for `steps`, or one period."""
        prompt = now + (steps or self.period) if jumped else self.prompt
        return replace(self, prompt=prompt, period=1 if steps and now < prompt else self.period)

    def following(
        self, growth: Growth, total: float, n_steps: int, noise: float, most: int | None
    ) -> ReleaseSchedule:
        """Schedule after a count with this `growth` of `total` points and variance `noise`."""
        predicted, observed = growth.individual - growth.even, growth.counts - growth.even
        per_step = 1.0 / growth.elapsed**2
        products = WEIGHT_MEMORY * self.products + per_step * _dot(predicted, observed)
        squares = WEIGHT_MEMORY * self.squares + per_step * _dot(predicted, predicted)
        weight = min(max(products / squares, 0.0), 1.0) if squares > 0.0 else 0.0
        schedule = replace(self, weight=weight, products=products, squares=squares)
        if most is None:
            return schedule
        surprise = per_step * ((observed - weight * predicted) ** 2 + (UNSEEN * growth.even) ** 2)
        relative = 1.0 / np.maximum(growth.estimate, max(FLOOR * total, 1.0))
        relative /= relative.sum()
        grid = periods(most)
        ahead = HORIZON_FRACTION * max(n_steps, MIN_HORIZON) * noise
        costs = np.array([_dot(relative, np.sqrt(ahead / p + surprise * (p * p / 3.0))) for p in grid.tolist()])
        if self.costs is not None:
            costs = PERIOD_MEMORY * self.costs + (1.0 - PERIOD_MEMORY) * costs
        wanted = float(grid[costs.argmin()])
        period = min(max(wanted, growth.elapsed / LARGEST_FACTOR), growth.elapsed * LARGEST_FACTOR)
        return replace(schedule, period=min(max(round(period), 1), most), costs=costs)


@cache
def periods(most: int) -> Integers:
    """Candidate periods up to `most`, about a fifth apart."""
    return np.unique(np.rint(np.geomspace(1, most, 2 + int(6 * np.log(most)))).astype(np.int64))


def _dot(a: Floats, b: Floats) -> float:
    """Sum of products in NumPy's order; BLAS's differs by processor."""
    return float(np.multiply(a, b).sum())


# Counts in cells that follow from earlier counts.


@dataclass(frozen=True)
class CountParameters:
    """``noise`` is the variance of a count, ``first`` its factor for PrivTree's counts."""

    cells: CellParameters
    distribution: sampler.LaplaceDistribution
    noise: float
    first: int
    shrink: bool

    @classmethod
    def of(cls, cells: CellParameters, epsilon: Fraction, shrink: bool) -> CountParameters:
        scale = noise_scale(Simple(), epsilon)
        # Cells are cut by deviations of half a point at least, so that the first counts' is compared with that; it
        # must not grow with a later noise that vanishes, or nothing would ever be cut.
        least, noise = MIN_DEVIATION**2, laplace_variance(scale)
        first = round(max(laplace_variance(cells.cell_distribution.scale), least) / max(noise, least))
        return cls(cells, sampler.laplace_distribution(scale), noise, first, shrink)

    @property
    def deviation(self) -> float:
        return max(float(np.sqrt(self.noise)), MIN_DEVIATION)

    def initial_tree(self, tree: Tree) -> Tree:
        weight: Integers = np.zeros_like(tree.first)
        self._weigh(tree, weight)
        return self._estimated(tree, weight, np.zeros(weight.size), self.shrink)

    def count(
        self, counted: Tree, added: Integers, removed: Integers, step: int, elapsed: int, key: Key
    ) -> tuple[Tree, Growth]:
        """Count in cells that follow from past counts; return the new tree and its growth.

        `added`, `removed`: ascending codes of events since the tree `counted`, `elapsed` steps ago.
        """
        tree, net = decomposition.counted_leaves(self.cells, self._regrow(counted, added, removed))
        leaves = tree.leaves
        counts = net + sampler.draws(net.size, self.distribution, key, StreamId(Purpose.CELL, number=step))
        gained, drawn = self._add(tree, counts, 1, tree.released, tree.weight)
        before = tree.projected[leaves], tree.rate[leaves]
        growth = self._growth(counted, tree, leaves, gained, drawn, *before, elapsed)
        return self._estimated(tree, tree.weight, gained / elapsed, self.shrink), growth

    def recount(
        self, counted: Tree, added: Integers, removed: Integers, step: int, elapsed: int, key: Key
    ) -> tuple[Tree, Growth]:
        """Count in PrivTree's cells; growth is of the finest cells in both trees."""
        unsplit: Integers = np.full_like(counted.first, -1)
        none: Integers = np.zeros((unsplit.size, self.cells.counter.width), np.int64)
        kept = KeptTree.of(self.cells.fan_out, counted._replace(split=unsplit, state=none))
        tree = decomposition.take_step(self.cells, kept, added, removed, step, key, unsplit.size)[1]
        old = tree.origin
        known = old >= 0
        weight: Integers = np.where(known, counted.weight[old], 0)
        gained = tree.released - np.where(known, counted.released[old], 0)
        drawn = self._weigh(tree, weight)
        both = np.flatnonzero(known & ((tree.first < 0) | (counted.first[old] < 0)) & (tree.measure > 0.0))
        before = counted.projected[old[both]], counted.rate[old[both]]
        growth = self._growth(counted, tree, both, gained, drawn, *before, elapsed)
        return self._estimated(tree, weight, gained / elapsed, False), growth

    def adjusted(self, counted: Tree, shrink: bool, missing: float) -> Tree:
        """Divide `missing` points in proportion to noise variance (least squares)."""
        return self._shrunken(counted, counted.released.astype(np.float64), shrink, missing)

    def forecast(self, counted: Tree, weight: float, elapsed: int, shrink: bool, missing: float, more: float) -> Tree:
        """Estimates `elapsed` steps after a count that lacked `missing` points; `more` came than forecast."""
        total, counts = float(counted.projected[0]), counted.released + elapsed * weight * counted.rate
        if total > 0.0:
            even = elapsed * (1.0 - weight) * float(counted.rate[0]) + more
            counts += counted.projected * (even / total)
        return self._shrunken(counted, counts, shrink, missing)

    def _weigh(self, tree: Tree, weight: Integers) -> Integers:
        return self._add(tree, np.zeros_like(tree.leaves), self.first, np.zeros_like(weight), weight)[1]

    def _add(
        self, tree: Tree, counts: Integers, unit: int, released: Integers, weight: Integers
    ) -> tuple[Integers, Integers]:
        gained, drawn = np.empty_like(tree.first), np.empty_like(tree.first)
        sums = gained, drawn, released, weight
        adaptive_tree.add_counts(tree.leaves, counts, unit, self.cells.fan_out, tree.first, sums)
        return gained, drawn

    def _growth(
        self,
        counted: Tree,
        tree: Tree,
        nodes: Integers,
        gained: Integers,
        drawn: Integers,
        estimate: Floats,
        rate: Floats,
        elapsed: int,
    ) -> Growth:
        """Growth in disjoint `nodes`; one is coarse if more points came than replacement explains.

        `gained`, `drawn`: every node's noisy change and number of draws; `estimate`, `rate`: points of `nodes` and
        their growth per step by the last count.
        """
        counts, total = gained[nodes], float(counted.projected[0])
        even = estimate * (elapsed * counted.rate[0] / total) if total > 0.0 else np.zeros(counts.size)
        came = np.maximum(counts, 0)
        deviations = np.sqrt(self.deviation**2 * drawn[nodes] + 2.0 * np.maximum(estimate, 0.0))
        beyond = np.maximum(came - SPLIT * deviations, 0.0)[tree.depth[nodes] < self.cells.max_depth]
        coarse = float(beyond.sum()) / max(float(came.sum()), 1.0)
        return Growth(counts, even, elapsed * rate, estimate, elapsed, coarse)

    def _estimated(self, tree: Tree, weight: Integers, rate: Floats, shrink: bool) -> Tree:
        tree = tree.shown._replace(weight=weight, rate=rate)
        return self._shrunken(tree, tree.released.astype(np.float64), shrink)

    def _shrunken(self, tree: Tree, counts: Floats, shrink: bool, missing: float = 0.0) -> Tree:
        if missing:
            counts += tree.weight * (missing / float(tree.weight[0]))
        held, variance, estimate = (np.empty(counts.size) for _ in range(3))
        inputs = self.cells.fan_out, self.noise, shrink, tree.first, counts, tree.weight, tree.measure
        adaptive_tree.shrink_counts(*inputs, held, variance, estimate)
        return tree._replace(held=held, variance=variance, projected=estimate)

    def _regrow(self, counted: Tree, added: Integers, removed: Integers) -> Tree:
        cells = self.cells
        known = tuple(values_of(counted, *KNOWN).values())
        root = {name: column[0] for name, column in zip(KNOWN[1:], known[1:], strict=True)}
        root["ends"] = 0, added.size, 0, removed.size
        rule = cells.fan_out, cells.max_depth, SPLIT * self.deviation, KEEP * self.deviation, cells.uniform
        inputs = rule, (added, removed), known
        capacity = max(2 * counted.first.size, decomposition.MIN_CAPACITY)
        return decomposition.grow(cells, capacity, FILLED, root, adaptive_tree.regrow, lambda _: inputs)


@dataclass(frozen=True, kw_only=True)
class AdaptiveState(PointState):
    """``counted`` is the tree of step ``last_count``, ``whole`` the count of all points then.

    ``added`` and ``removed`` are secret codes of later events.
    """

    schedule: ReleaseSchedule
    #: Between two counts it follows from the last one.
    tree: Annotated[Tree | None, DERIVED] = None
    counted: Annotated[Tree | None, COUNTED] = None
    last_count: int = 0
    added: tuple[Integers, ...] = field(default=(), repr=False)
    removed: tuple[Integers, ...] = field(default=(), repr=False)
    whole: Annotated[int, Whole(-MAX_COUNT, MAX_COUNT)] = 0
    total: TotalCount = field(default_factory=TotalCount)


@record
class AdaptiveMachine(PointParameters, PointMachine[AdaptiveState]):
    """Transition function of :class:`AdaptivePHDStream`."""

    _: KW_ONLY
    sensitivity: int = parameter(Whole(1, MAX_EVENTS), default=1)
    period: int | None = parameter(Whole(1, MAX_PERIOD), default=None)
    max_period: int = parameter(Whole(1, MAX_PERIOD), default=64)
    shrink: bool = parameter(Flag(), default=True)
    total_share: float = parameter(Real(least=0.0, most=MAX_FRACTION), default=0.05)
    rule: ClassVar[int] = 2

    @cached_property
    def rest(self) -> Fraction:
        return Fraction(split_total(self.epsilon, self.total_share)[1]) / self.sensitivity

    @cached_property
    def plan(self) -> CellParameters:
        cells, counts = (
            Fraction(epsilon) / self.sensitivity for epsilon in cell_budgets(self.epsilon, self.total_share)
        )
        return CellParameters(self.domain, self.fan_out, self.max_depth, cells, counts, Simple())

    @cached_property
    def counting(self) -> CountParameters:
        return CountParameters.of(self.plan, self.rest, self.shrink)

    @cached_property
    def total(self) -> TotalCounter | None:
        return TotalCounter.of_fraction(self.epsilon, self.sensitivity, self.total_share)

    def start(self, key: Key) -> AdaptiveState:
        return AdaptiveState(schedule=ReleaseSchedule(self.period or 1))

    def follow(self, state: AdaptiveState, added: Integers, removed: Integers, key: Key, chain: str) -> AdaptiveState:
        counting, now, schedule, total = self.counting, state.n_steps + 1, state.schedule, state.total
        if self.total is not None:
            total = self.total.step(total, added.size - removed.size, state.n_steps, key)
        planted = state.last_count < schedule.prompt
        if state.counted is None:
            tree = counting.initial_tree(decomposition.take_step(self.plan, self.root, added, removed, 0, key)[1])
            # Nothing shows yet how far cells last.
            schedule = schedule.after(now, self.max_depth > 0, TRIAL_STEPS if self.period is None else None)
        else:
            waiting = (*state.added, added), (*state.removed, removed)
            elapsed = now - state.last_count
            if elapsed < schedule.period:
                tree = self._forecast(state, now, total)
                later = replace(state, n_steps=now, tree=tree, chain=chain, total=total)
                return replace(later, added=waiting[0], removed=waiting[1])
            come, gone = (np.sort(np.concatenate(chunks)) for chunks in waiting)
            made = counting.recount if planted else counting.count
            tree, growth = made(state.counted, come, gone, now - 1, elapsed, key)
            before, most = float(state.counted.projected[0]), self.max_period if self.period is None else None
            schedule = schedule.following(growth, before, now, counting.noise, most)
            least, steps = (STILL_COARSE, PROMPT_STEPS) if planted else (MAX_COARSE, TRIAL_STEPS)
            schedule = schedule.after(now, growth.coarse > least, steps if most else None)
        if self.total is not None:
            tree = counting.adjusted(tree, self.shrink and not planted, self._missing(total.released, now, tree))
        return AdaptiveState(
            n_steps=now,
            tree=tree,
            chain=chain,
            schedule=schedule,
            counted=tree,
            last_count=now,
            whole=total.released,
            total=total,
        )

    def _missing(self, released: int, steps: int, tree: Tree) -> float:
        if self.total is None:
            return 0.0
        return self.total.missing(released, steps, int(tree.released[0]), self.counting.noise * float(tree.weight[0]))

    def _forecast(self, state: AdaptiveState, now: int, total: TotalCount) -> Tree:
        counted, then = cast("Tree", state.counted), state.last_count
        missing, more = self._missing(state.whole, then, counted), 0.0
        if self.total is not None:
            beyond = total.released - state.whole - (now - then) * float(counted.rate[0])
            noise = self.total.variance * COUNTER.draws_between(then, now)
            # James and Stein's estimate: noise alone changes next to nothing.
            more = beyond - math.copysign(min(noise / abs(beyond), abs(beyond)), beyond) if beyond else 0.0
        shrink = self.shrink and then > state.schedule.prompt
        return self.counting.forecast(counted, state.schedule.weight, now - then, shrink, missing, more)

    def restored(self, state: AdaptiveState, key: Key) -> AdaptiveState:
        state.schedule.check(self.period, self.max_period)
        started, elapsed = state.n_steps > 0, state.n_steps - state.last_count
        if (state.counted is None) == started:
            raise ValueError("a release out of range")
        if len(state.added) != elapsed or len(state.removed) != elapsed:
            raise ValueError("batches that do not wait")
        if started != (state.last_count > 0) or not 0 <= elapsed < state.schedule.period:
            raise ValueError("a count out of time")
        if self.total is not None:
            self.total.check(state.total)
            if state.total.steps != state.n_steps:
                raise ValueError("a count of the whole out of time")
        for codes in (*state.added, *state.removed):
            check_codes(codes, self.plan)
        return replace(state, tree=self._forecast(state, state.n_steps, state.total) if elapsed else state.counted)


class AdaptivePHDStream(PointPublisher[AdaptiveState]):
    """Releases synthetic points as PHDStream does, with less error while their shape lasts.

    PrivTree chooses the first cells.  Later cells follow from released counts, which then get all of epsilon; they
    are counted every few steps and forecast in between.  For many batches and releases that may lag
    (``docs/points.md``, "Counts alone").

    Parameters
    ----------
    domain, epsilon, max_depth, fan_out, sensitivity, outside
        As for :class:`fastdp.PHDStream`.
    period : int, optional
        Steps between counts, 1 to 65,536; by default chosen at every count.
    max_period : int
        Longest period that may be chosen.
    shrink : bool
        True moves the estimates of a cell's children towards equal counts, by as much as noise suggests.
    total_share : float
        Fraction of epsilon, 0 to 0.5, for a count of all points at every step, to which the others are adjusted.
    seed, key
        As for :func:`fastdp.release`.

    Notes
    -----
    Privacy: as for :class:`fastdp.PHDStream`.  Events of one period are kept in memory.  The first batch should hold
    all points so far.  After an interrupt compare ``n_steps``.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> domain = fastdp.points.Box((0, 0), (1, 1))
    >>> stream = fastdp.AdaptivePHDStream(domain, epsilon=1.0, seed=1)
    >>> points = np.random.default_rng(1).random((1000, 2))
    >>> stream.step(points, np.empty((0, 2))).shape[1]  # synthetic points
    2
    >>> abs(stream.total - 1000) < 200
    True
    """

    _MACHINE: ClassVar[type] = AdaptiveMachine
    _machine: AdaptiveMachine
    sensitivity: int
    period: int | None
    max_period: int
    shrink: bool
    total_share: float

    @constructor(AdaptiveMachine)
    def __init__(self, machine: AdaptiveMachine, seed: int | str | None, key: Key | bytes | None) -> None:
        self._begin(machine, machine.bind(Key.choose(seed, key)))

    @property
    def next_count(self) -> int:
        """Step of the next count, from 1; public."""
        state = self._state
        return state.last_count + (state.schedule.period if state.n_steps else 1)

    @property
    def guarantee(self) -> Guarantee:
        total, rest = split_total(self.epsilon, self.total_share)
        once = "an event waits until its cell is counted and is in that count only"
        follows = "cells, times of counts, and which of them PrivTree prepares, follow from past releases"
        alone = event_guarantee(rest, follows, once)
        where = cells_and_counts(*cell_budgets(self.epsilon, self.total_share), "where PrivTree chooses, ")
        cells = parallel(where, alone.of("other counts"))
        return replace(composed(cells, total, self.sensitivity), simulated=self._key.simulated)
