"""Cells that follow released counts: after the first batch nothing but noisy counts of disjoint cells is released.

Which cells are counted, and when, follows from what was released before; a count is all that touches data, and an
event is in one count only.  Where past counts say too little about what comes, PrivTree chooses the cells of a count,
with half of its epsilon; that it does so follows from released counts, too.  Proof: ``docs/phdstream.md``, "Counts
alone".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fastdp.arrays.kinds import Floats, Integers
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId
from fastdp.spatial.cell_parameters import CellParameters
from fastdp.spatial.cells import KeptTree, StepTree
from fastdp.spatial.decomposition import MIN_CAPACITY, route_strays, take_step, walk_down
from fastdp.spatial.release_times import Growth, ReleaseSchedule
from fastdp.spatial.tree_version import TreeVersion
from fastdp_kernels import adaptive_tree, privtree

#: A cell is cut while its estimate exceeds so many standard deviations of its noise; the second if it was before.
SPLIT, KEEP = 4.0, 2.0
#: Less noise counts as so much, in points: nothing is to be seen within two points.
MIN_DEVIATION = 0.5


@dataclass(frozen=True)
class CountParameters:
    """What is fixed and public, beyond the cells.

    Attributes
    ----------
    cells : CellParameters
        The domain and its cuts.
    law : Law
        Noise of the counts.
    noise : float
        Its variance, in points^2.
    first : int
        Variance of counts with half of epsilon, where PrivTree chose the cells, over ``noise``; a whole number.
    shrink : bool
        Whether estimates are shrunken.
    """

    cells: CellParameters
    law: sampler.Law
    noise: float
    first: int
    shrink: bool


@dataclass(frozen=True)
class CountedTree:
    """The tree after a count: released numbers only.

    Attributes
    ----------
    visit : StepTree
        The cells; ``projected`` are the estimates, ``origin`` is of no use between counts.
    weight : int64[v]
        Variance of the noise counted at a node and below, in units of one count's.
    variance : float64[v]
        Variance of the noise in G, in these units.
    rate : float64[v]
        Growth per step, by the last count.
    """

    visit: StepTree
    weight: Integers
    variance: Floats
    rate: Floats


def initial_tree(plan: CountParameters, visit: StepTree) -> CountedTree:
    """The tree after the first batch, which PrivTree released."""
    weight: Integers = np.zeros_like(visit.first)
    _weigh(plan, visit, weight)
    return _estimated(plan, visit, weight, np.zeros(weight.size))


def is_empty(plan: CountParameters, grown: CountedTree) -> bool:
    """Whether next to no points were released, so that nothing says where those that come will be."""
    least = SPLIT * _deviation(plan) * float(np.sqrt(grown.variance[0]))
    return plan.cells.max_depth > 0 and float(grown.visit.projected[0]) <= least


def count(
    plan: CountParameters, grown: CountedTree, added: Integers, removed: Integers, step: int, elapsed: int, key: Key
) -> tuple[CountedTree, Growth]:
    """Choose the cells again, and count in them what waited; changes nothing.

    Parameters
    ----------
    plan : CountParameters
        What is fixed.
    grown : CountedTree
        The tree after the count before.
    added, removed : int64[n], int64[m]
        Codes of all events since that count, ascending.
    step, elapsed : int
        Number of this step, and how many there were since that count.
    key : Key
        The secret.

    Returns
    -------
    CountedTree, Growth
        The tree after this count, and what was found.
    """
    cells = plan.cells
    capacity = max(2 * grown.visit.first.size, MIN_CAPACITY)
    visit, weight, rate, ends = _regrow(plan, grown, added, removed, capacity)
    leaves: Integers = np.empty(visit.first.size, np.int64)
    net: Integers = np.empty_like(leaves)
    size = privtree.collect_leaves(visit.first, visit.measure, ends, leaves, net)
    leaves, net = leaves[:size], net[:size]
    if not cells.uniform:
        route_strays(cells, visit, ends, leaves, net)
    counts = net + sampler.draws(size, plan.law, key, StreamId(Purpose.CELL, number=step))
    gained, drawn = np.empty_like(visit.first), np.empty_like(visit.first)
    adaptive_tree.add_counts(leaves, counts, 1, cells.fan_out, visit.first, gained, drawn, visit.released, weight)
    estimate = visit.projected[leaves]
    coarse = _coarse(plan, visit, leaves, gained, drawn, estimate)
    growth = _growth(grown, counts, estimate, rate[leaves], elapsed, coarse)
    return _estimated(plan, replace(visit, leaves=leaves), weight, gained / elapsed), growth


def recount(
    plan: CountParameters, grown: CountedTree, added: Integers, removed: Integers, step: int, elapsed: int, key: Key
) -> tuple[CountedTree, Growth]:
    """Let PrivTree choose the cells by what waited, and count it in them: one step of PHDStream.

    Parameters and results as :func:`count`.  Growth is reported for the finest cells that both trees have.
    """
    before = grown.visit
    unsplit: Integers = np.full_like(before.first, -1)
    none: Integers = np.zeros((unsplit.size, plan.cells.counter.width), np.int64)
    tree = KeptTree(before.first, before.released, unsplit, before.measure, none)
    residents = TreeVersion.of(plan.cells.fan_out, tree)
    _, visit, _ = take_step(plan.cells, residents, added, removed, step, key, unsplit.size)
    old = visit.origin
    known = old >= 0
    weight: Integers = np.where(known, grown.weight[old], 0)
    gained = visit.released - np.where(known, before.released[old], 0)
    drawn = _weigh(plan, visit, weight)
    both = np.flatnonzero(known & ((visit.first < 0) | (before.first[old] < 0)) & (visit.measure > 0.0))
    estimate, rate = before.projected[old[both]], grown.rate[old[both]]
    coarse = _coarse(plan, visit, both, gained, drawn, estimate)
    return _estimated(plan, visit, weight, gained / elapsed), _growth(
        grown, gained[both], estimate, rate, elapsed, coarse
    )


def _weigh(plan: CountParameters, visit: StepTree, weight: Integers) -> Integers:
    """Add the variances of the counts that PrivTree's leaves have made to ``weight``; returns them alone."""
    nothing: Integers = np.zeros_like(visit.leaves)
    gained, drawn, released = np.empty_like(weight), np.empty_like(weight), np.zeros_like(weight)
    adaptive_tree.add_counts(
        visit.leaves, nothing, plan.first, plan.cells.fan_out, visit.first, gained, drawn, released, weight
    )
    return drawn


def _deviation(plan: CountParameters) -> float:
    """What one count's noise counts as, in points."""
    return max(float(np.sqrt(plan.noise)), MIN_DEVIATION)


def _growth(
    grown: CountedTree, counts: Integers, estimate: Floats, rate: Floats, elapsed: int, coarse: float
) -> Growth:
    total = float(grown.visit.projected[0])
    even = estimate * (elapsed * grown.rate[0] / total) if total > 0.0 else np.zeros(counts.size)
    return Growth(counts, even, elapsed * rate, estimate, elapsed, coarse)


def _coarse(
    plan: CountParameters, visit: StepTree, nodes: Integers, gained: Integers, drawn: Integers, estimate: Floats
) -> float:
    """The part of what came, by these disjoint nodes' counts, that alone would have had its node cut.

    Where all points are replaced, as many come as go but for what chance does to either, by the estimate before.
    """
    came = np.maximum(gained[nodes], 0)
    deviations = np.sqrt(_deviation(plan) ** 2 * drawn[nodes] + 2.0 * np.maximum(estimate, 0.0))
    beyond = np.maximum(came - SPLIT * deviations, 0.0)[visit.depth[nodes] < plan.cells.max_depth]
    return float(beyond.sum()) / max(float(came.sum()), 1.0)


def adjusted(plan: CountParameters, grown: CountedTree, missing: float) -> CountedTree:
    """The tree with so many points more, shared out over its counts by their noise: least squares."""
    counts = _with(missing, grown.visit.released.astype(np.float64), grown.weight)
    visit, variance = _shrunken(plan, grown.visit, counts, grown.weight)
    return replace(grown, visit=visit, variance=variance)


def _with(missing: float, counts: Floats, weight: Integers) -> Floats:
    return counts + weight * (missing / float(weight[0])) if missing else counts


def forecast(
    plan: CountParameters, grown: CountedTree, pace: ReleaseSchedule, elapsed: int, missing: float = 0.0
) -> StepTree:
    """What to publish so many steps after a count: growth goes on, a part of it cell by cell."""
    visit = grown.visit
    total = float(visit.projected[0])
    even = visit.projected * (grown.rate[0] / total) if total > 0.0 else np.zeros(visit.first.size)
    rate = even + pace.weight * (grown.rate - even)
    counts = _with(missing, visit.released + elapsed * rate, grown.weight)
    return _shrunken(plan, visit, counts, grown.weight)[0]


def _estimated(plan: CountParameters, visit: StepTree, weight: Integers, rate: Floats) -> CountedTree:
    visit, variance = _shrunken(plan, visit, visit.released.astype(np.float64), weight)
    return CountedTree(visit, weight, variance, rate)


def _shrunken(plan: CountParameters, visit: StepTree, counts: Floats, weight: Integers) -> tuple[StepTree, Floats]:
    held, variance, estimate = (np.empty(counts.size) for _ in range(3))
    adaptive_tree.shrink_counts(
        plan.cells.fan_out,
        plan.noise,
        plan.shrink,
        visit.first,
        counts,
        weight,
        visit.measure,
        held,
        variance,
        estimate,
    )
    return replace(visit, held=held, projected=estimate), variance


def _regrow(
    plan: CountParameters, grown: CountedTree, added: Integers, removed: Integers, capacity: int
) -> tuple[StepTree, Integers, Floats, Integers]:
    cells, before = plan.cells, grown.visit
    numbers: list[Integers] = [np.empty(capacity, np.int64) for _ in range(6)]
    old, parent, first, code, released, weight = numbers
    measure, estimate, variance, rate = (np.empty(capacity) for _ in range(4))
    ends: Integers = np.empty((capacity, 4), np.int64)
    old[0], parent[0], code[0], ends[0] = 0, -1, 0, (0, added.size, 0, removed.size)
    released[0], weight[0], measure[0] = before.released[0], grown.weight[0], before.measure[0]
    estimate[0], variance[0], rate[0] = before.projected[0], grown.variance[0], grown.rate[0]
    starts: Integers = np.zeros(cells.max_depth + 2, np.int64)
    starts[1:] = 1
    further = ends, released, weight, estimate, variance, rate
    deviation = _deviation(plan)
    decided_by = cells.fan_out, cells.max_depth, SPLIT * deviation, KEEP * deviation, cells.uniform, added, removed
    known = before.first, before.released, grown.weight, before.measure, before.projected, grown.variance, grown.rate
    tree = starts, old, parent, first, code, ends, released, weight, measure, estimate, variance, rate
    for level, stop in walk_down(cells, starts, parent, first, old, code, measure, further):
        size = adaptive_tree.regrow(level, stop, *decided_by, *known, *tree)
        if size < 0:
            return _regrow(plan, grown, added, removed, 4 * capacity)
    size = int(starts[-1])
    visit = StepTree(
        starts,
        parent[:size].copy(),
        first[:size].copy(),
        code[:size].copy(),
        old[:size].copy(),
        released[:size].copy(),
        measure[:size].copy(),
        np.empty(0),
        estimate[:size].copy(),
        np.empty(0, np.int64),
    )
    return visit, weight[:size].copy(), rate[:size].copy(), ends[:size]
