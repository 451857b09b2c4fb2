"""Cells that follow released counts: after the first batch nothing but noisy counts of disjoint cells is released.

Which cells are counted, and when, follows from what was released before; a count is all that touches data, and an
event is in one count only.  Where past counts say too little about what comes, PrivTree chooses the cells of a count,
with half of its epsilon; that it does so follows from released counts, too.  Proof: ``docs/phdstream.md``, "Counts
alone".

Counting every p steps in place of every step, a cell's noise grows p times more slowly, and p / 2 steps' change is
missing on average.  That page says how p is chosen, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from fastdp.kinds import Floats, Integers
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.spatial.cells import CellParameters
from fastdp.spatial.decomposition import MIN_CAPACITY, counted_leaves, grow, take_step
from fastdp.spatial.tree import Tree, TreeVersion
from fastdp_kernels.points import adaptive_tree

#: A cell is cut while its estimate exceeds so many standard deviations of its noise; the second if it was before.
SPLIT, KEEP = 4.0, 2.0
#: Less noise counts as so much, in points: nothing is to be seen within two points.
MIN_DEVIATION = 0.5
#: Steps before the second count.
FIRST_PERIOD = 8
#: Largest change of the period from one count to the next.
LARGEST_FACTOR = 1.5
#: The noise to come counts as that of so many steps, this part of those so far, this many at least.
HORIZON_PART, MIN_HORIZON = 0.25, 50
#: What earlier counts keep of their say in the forecasts' weight, and in the period.
WEIGHT_MEMORY, PERIOD_MEMORY = 0.9, 0.5
#: Cells are planted again where more than this part of what came is in cells that it would have cut.
MAX_COARSE = 0.3
#: Where so much of what came was, every batch is counted, in cells that PrivTree chooses, for so many steps.
PROMPT_STEPS = 32
#: Counts below this part of the total are errors' denominators no more (the paper's 0.001).
FLOOR = 0.001
#: Columns of a tree before a count that it follows from, and those that it fills, in the kernel's order.
KNOWN = ("first", "released", "weight", "measure", "projected", "variance", "rate")
FILLED = ("origin", "parent", "first", "code", "ends", *KNOWN[1:])


@dataclass(frozen=True)
class CountParameters:
    """What is fixed and public, beyond the cells.

    Attributes
    ----------
    cells : CellParameters
        The domain and its cuts.
    law : LaplaceDistribution
        Noise of the counts.
    noise : float
        Its variance, in points^2.
    first : int
        Variance of counts with half of epsilon, where PrivTree chose the cells, over ``noise``; a whole number.
    shrink : bool
        Whether estimates are shrunken.
    """

    cells: CellParameters
    law: sampler.LaplaceDistribution
    noise: float
    first: int
    shrink: bool


@dataclass(frozen=True)
class ReleaseSchedule:
    """When to count, and how to forecast.

    Attributes
    ----------
    period : int
        Steps from the last count to the next.
    weight : float
        How much of its own past growth a cell is expected to repeat; for the rest it shares in the whole's growth.
    products, squares : float
        Sums of the regression that ``weight`` comes from.
    costs : float64[k]
        Mean relative error of a cell that each period on the grid promises, averaged over past counts; empty before.
    prompt : int
        Until this step every batch is counted in cells that PrivTree chooses.
    """

    period: int
    weight: float = 0.0
    products: float = 0.0
    squares: float = 0.0
    costs: Floats | None = None
    prompt: int = 0


@dataclass(frozen=True)
class Growth:
    """Released and expected numbers of one count, leaf by leaf.

    Attributes
    ----------
    counts : int64[l]
        Noisy counts of what waited.
    even : float64[l]
        Growth of the whole in equally long time, by the last count, shared out by the estimates.
    own : float64[l]
        Growth of the leaf itself, by the last count.
    estimate : float64[l]
        Estimated points in the leaf before.
    elapsed : int
        Steps since the last count.
    coarse : float
        The part of what came, 0 to 1, that stands out so far in its leaf that past counts should have cut it.
    """

    counts: Integers
    even: Floats
    own: Floats
    estimate: Floats
    elapsed: int
    coarse: float = 0.0


def initial_tree(plan: CountParameters, tree: Tree) -> Tree:
    """The tree after the first batch, which PrivTree released."""
    weight: Integers = np.zeros_like(tree.first)
    _weigh(plan, tree, weight)
    return _estimated(plan, tree, weight, np.zeros(weight.size))


def is_empty(plan: CountParameters, counted: Tree) -> bool:
    """Whether next to no points were released, so that nothing says where those that come will be."""
    least = SPLIT * _deviation(plan) * float(np.sqrt(counted.variance[0]))
    return plan.cells.max_depth > 0 and float(counted.projected[0]) <= least


def count(
    plan: CountParameters, counted: Tree, added: Integers, removed: Integers, step: int, elapsed: int, key: Key
) -> tuple[Tree, Growth]:
    """Choose the cells again, and count in them what waited; changes nothing.

    Parameters
    ----------
    plan : CountParameters
        What is fixed.
    counted : Tree
        The tree after the count before.
    added, removed : int64[n], int64[m]
        Codes of all events since that count, ascending.
    step, elapsed : int
        Number of this step, and how many there were since that count.
    key : Key
        The secret.

    Returns
    -------
    Tree, Growth
        The tree after this count, and what was found.
    """
    tree, net = counted_leaves(plan.cells, _regrow(plan, counted, added, removed))
    leaves = tree.leaves
    counts = net + sampler.draws(net.size, plan.law, key, StreamId(Purpose.CELL, number=step))
    gained, drawn = np.empty_like(tree.first), np.empty_like(tree.first)
    grown = tree.first, gained, drawn, tree.released, tree.weight
    adaptive_tree.add_counts(leaves, counts, 1, plan.cells.fan_out, *grown)
    estimate = tree.projected[leaves]
    coarse = _coarse(plan, tree, leaves, gained, drawn, estimate)
    growth = _growth(counted, counts, estimate, tree.rate[leaves], elapsed, coarse)
    return _estimated(plan, tree, tree.weight, gained / elapsed), growth


def recount(
    plan: CountParameters, counted: Tree, added: Integers, removed: Integers, step: int, elapsed: int, key: Key
) -> tuple[Tree, Growth]:
    """Let PrivTree choose the cells by what waited, and count it in them: one step of PHDStream.

    Parameters and results as :func:`count`.  Growth is reported for the finest cells that both trees have.
    """
    unsplit: Integers = np.full_like(counted.first, -1)
    none: Integers = np.zeros((unsplit.size, plan.cells.counter.width), np.int64)
    kept = TreeVersion.of(plan.cells.fan_out, counted.having(split=unsplit, state=none))
    _, tree, _ = take_step(plan.cells, kept, added, removed, step, key, unsplit.size)
    old = tree.origin
    known = old >= 0
    weight: Integers = np.where(known, counted.weight[old], 0)
    gained = tree.released - np.where(known, counted.released[old], 0)
    drawn = _weigh(plan, tree, weight)
    both = np.flatnonzero(known & ((tree.first < 0) | (counted.first[old] < 0)) & (tree.measure > 0.0))
    estimate, rate = counted.projected[old[both]], counted.rate[old[both]]
    coarse = _coarse(plan, tree, both, gained, drawn, estimate)
    growth = _growth(counted, gained[both], estimate, rate, elapsed, coarse)
    return _estimated(plan, tree, weight, gained / elapsed), growth


def _weigh(plan: CountParameters, tree: Tree, weight: Integers) -> Integers:
    """Add the variances of the counts that PrivTree's leaves have made to ``weight``; returns them alone."""
    nothing: Integers = np.zeros_like(tree.leaves)
    gained, drawn, released = np.empty_like(weight), np.empty_like(weight), np.zeros_like(weight)
    adaptive_tree.add_counts(
        tree.leaves, nothing, plan.first, plan.cells.fan_out, tree.first, gained, drawn, released, weight
    )
    return drawn


def _deviation(plan: CountParameters) -> float:
    """What one count's noise counts as, in points."""
    return max(float(np.sqrt(plan.noise)), MIN_DEVIATION)


def _growth(counted: Tree, counts: Integers, estimate: Floats, rate: Floats, elapsed: int, coarse: float) -> Growth:
    total = float(counted.projected[0])
    even = estimate * (elapsed * counted.rate[0] / total) if total > 0.0 else np.zeros(counts.size)
    return Growth(counts, even, elapsed * rate, estimate, elapsed, coarse)


def _coarse(
    plan: CountParameters, tree: Tree, nodes: Integers, gained: Integers, drawn: Integers, estimate: Floats
) -> float:
    """The part of what came, by these disjoint nodes' counts, that alone would have had its node cut.

    Where all points are replaced, as many come as go but for what chance does to either, by the estimate before.
    """
    came = np.maximum(gained[nodes], 0)
    deviations = np.sqrt(_deviation(plan) ** 2 * drawn[nodes] + 2.0 * np.maximum(estimate, 0.0))
    beyond = np.maximum(came - SPLIT * deviations, 0.0)[tree.depth[nodes] < plan.cells.max_depth]
    return float(beyond.sum()) / max(float(came.sum()), 1.0)


def adjusted(plan: CountParameters, counted: Tree, missing: float) -> Tree:
    """The tree with so many points more, shared out over its counts by their noise: least squares."""
    return _shrunken(plan, counted, counted.released.astype(np.float64), missing)


def forecast(plan: CountParameters, counted: Tree, pace: ReleaseSchedule, elapsed: int, missing: float = 0.0) -> Tree:
    """What to publish so many steps after a count: growth goes on, a part of it cell by cell."""
    total = float(counted.projected[0])
    even = counted.projected * (counted.rate[0] / total) if total > 0.0 else np.zeros(counted.first.size)
    rate = even + pace.weight * (counted.rate - even)
    return _shrunken(plan, counted, counted.released + elapsed * rate, missing)


def _estimated(plan: CountParameters, tree: Tree, weight: Integers, rate: Floats) -> Tree:
    """The tree after a count."""
    tree = tree.shown.having(weight=weight, rate=rate)
    return _shrunken(plan, tree, tree.released.astype(np.float64))


def _shrunken(plan: CountParameters, tree: Tree, counts: Floats, missing: float = 0.0) -> Tree:
    if missing:
        counts = counts + tree.weight * (missing / float(tree.weight[0]))
    held, variance, estimate = (np.empty(counts.size) for _ in range(3))
    given = plan.cells.fan_out, plan.noise, plan.shrink, tree.first, counts, tree.weight, tree.measure
    adaptive_tree.shrink_counts(*given, held, variance, estimate)
    return tree.having(held=held, variance=variance, projected=estimate)


def _regrow(plan: CountParameters, counted: Tree, added: Integers, removed: Integers) -> Tree:
    """The cells that follow from the counts so far."""
    cells, deviation = plan.cells, _deviation(plan)
    known = [getattr(counted, name) for name in KNOWN]
    root = {name: column[0] for name, column in zip(KNOWN[1:], known[1:], strict=True)}
    root["ends"] = 0, added.size, 0, removed.size
    decided_by = cells.fan_out, cells.max_depth, SPLIT * deviation, KEEP * deviation, cells.uniform
    capacity, tree = max(2 * counted.first.size, MIN_CAPACITY), None
    while tree is None:
        tree = grow(cells, capacity, FILLED, root, adaptive_tree.regrow, *decided_by, added, removed, *known)
        capacity *= 4
    return tree


# When cells are counted next, and how much of a cell's own growth goes on: functions of released counts alone.


@cache
def periods(most: int) -> Integers:
    """The periods that are considered, 1 to ``most``, in steps of a fifth or so."""
    return np.unique(np.rint(np.geomspace(1, most, 2 + int(6 * np.log(most)))).astype(np.int64))


def check_pace(pace: ReleaseSchedule, period: int | None, most: int) -> None:
    """ValueError for a pace that no count leaves, of a stream whose period is given or at most ``most``."""
    if not (1 <= pace.period <= most if period is None else pace.period == period):
        raise ValueError("a period out of range")
    if not (0.0 <= pace.weight <= 1.0 and math.isfinite(pace.products) and 0.0 <= pace.squares < math.inf):
        raise ValueError("a pace out of range")
    if not 0 <= pace.prompt < 2**62:
        raise ValueError("a pace out of range")
    if pace.costs is not None and not (
        period is None and pace.costs.shape == periods(most).shape and np.isfinite(pace.costs).all()
    ):
        raise ValueError("costs out of range")


def after_jump(pace: ReleaseSchedule, jumped: bool, now: int) -> tuple[ReleaseSchedule, bool]:
    """The pace, and whether PrivTree chooses the next cells, after a count that found a jump or did not.

    A stream that jumped may do so again: for a while every batch is counted as :class:`fastdp.PHDStream` would.
    """
    if jumped:
        pace = replace(pace, prompt=now + PROMPT_STEPS)
    return (pace, False) if now >= pace.prompt else (replace(pace, period=1), True)


def following_pace(
    pace: ReleaseSchedule, growth: Growth, total: float, n_steps: int, noise: float, most: int | None
) -> ReleaseSchedule:
    """The pace after a count.

    Parameters
    ----------
    pace : ReleaseSchedule
        Before.
    growth : Growth
        What the count found.
    total : float
        Estimated points in all, before.
    n_steps : int
        Steps so far.
    noise : float
        Variance of one count's noise.
    most : int, optional
        Longest period; None for one that stays.

    Notes
    -----
    A count's noise is new, so that the products below, of this count and the one before, have no bias from noise.
    """
    moved, found = growth.own - growth.even, growth.counts - growth.even
    per_step = 1.0 / growth.elapsed**2
    products = WEIGHT_MEMORY * pace.products + per_step * _dot(moved, found)
    squares = WEIGHT_MEMORY * pace.squares + per_step * _dot(moved, moved)
    weight = min(max(products / squares, 0.0), 1.0) if squares > 0.0 else 0.0
    pace = replace(pace, weight=weight, products=products, squares=squares)
    if most is None:
        return pace
    surprise = per_step * (found - weight * moved) ** 2
    relative = 1.0 / np.maximum(growth.estimate, max(FLOOR * total, 1.0))
    relative /= relative.sum()
    grid = periods(most)
    ahead = HORIZON_PART * max(n_steps, MIN_HORIZON) * noise
    costs = np.array([_dot(relative, np.sqrt(ahead / p + surprise * (p * p / 3.0))) for p in grid.tolist()])
    if pace.costs is not None:
        costs = PERIOD_MEMORY * pace.costs + (1.0 - PERIOD_MEMORY) * costs
    wanted = float(grid[costs.argmin()])
    period = min(max(wanted, growth.elapsed / LARGEST_FACTOR), growth.elapsed * LARGEST_FACTOR)
    return replace(pace, period=min(max(round(period), 1), most), costs=costs)


def _dot(a: Floats, b: Floats) -> float:
    """Sum of products in NumPy's own order: BLAS adds in another one on each kind of processor."""
    return float(np.multiply(a, b).sum())
