"""One private step on a tree of cells: split decisions, noisy counts, and the tree that the next step begins with.

PrivTree is one such step on an empty tree; PHDStream is one after the other.  The step is a pure function of
(resident tree, batch, step number, key).  Readings and proof: ``docs/phdstream.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.arrays.kinds import Floats, Integers
from fastdp.errors import ParameterError
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId
from fastdp.spatial.cell_parameters import CellParameters
from fastdp.spatial.cells import KeptTree, SplitScores, StepTree, measures
from fastdp.spatial.tree_version import TreeVersion
from fastdp_kernels import privtree, tree_maps

#: Room for so many visited nodes at least, and for this part more than the step before visited.
MIN_CAPACITY, SPARE = 64, 16


def root_only(plan: CellParameters) -> TreeVersion:
    """The tree before any step."""
    whole = np.ones(1) if plan.uniform else measures(plan, np.zeros(1, np.int64), 0)
    if not (np.isfinite(whole).all() and whole[0] > 0.0):
        raise ParameterError(f"domain has measure {whole[0]}: expected a finite measure above 0")
    none = np.full(1, -1, np.int64)
    state: Integers = np.zeros((1, plan.counter.width), np.int64)
    return TreeVersion.of(plan.fan_out, KeptTree(none, np.zeros(1, np.int64), none, whole, state))


def take_step(
    plan: CellParameters,
    residents: TreeVersion,
    added: Integers,
    removed: Integers,
    step: int,
    key: Key,
    expected: int = 0,
) -> tuple[TreeVersion, StepTree, SplitScores]:
    """Algorithm 7 for one batch; changes nothing.

    Parameters
    ----------
    plan : CellParameters
        What is fixed.
    residents : TreeVersion
        The tree after the step before.
    added, removed : int64[n], int64[m]
        Codes from :func:`encode`.
    step : int
        Number of the step; noise is a function of (key, step, place in the breadth-first order).
    key : Key
        The secret.
    expected : int
        About how many nodes will be visited; a wrong guess costs time only.
    """
    capacity = expected + expected // SPARE + MIN_CAPACITY
    none: Integers = np.empty(0, np.int64)
    visit, evidence = _grow(plan, residents, added, removed, step, key, capacity, none)
    leaves: Integers = np.empty(visit.first.size, np.int64)
    net: Integers = np.empty_like(leaves)
    count = privtree.collect_leaves(visit.first, visit.measure, evidence.ends, leaves, net)
    leaves, net = leaves[:count], net[:count]
    if not plan.uniform:
        route_strays(plan, visit, evidence.ends, leaves, net)
    rows: Integers = np.zeros((count, plan.counter.width), np.int64)
    if plan.counter.width:
        origin = visit.origin[leaves]
        rows[origin >= 0] = residents.state[origin[origin >= 0]]
    noise = sampler.draws(count, plan.cell_law, key, StreamId(Purpose.CELL, number=step))
    increments = net + plan.counter.step(rows, noise)
    if plan.counter.settles:
        residents = _settle(plan, residents, visit, leaves, step, key)
    visit = replace(visit, leaves=leaves)
    add_increments(plan.fan_out, visit, increments)
    following = residents.append(visit, rows, step, plan.retention)
    # What is settled is looked for in all nodes, and noise follows their order.
    return following.packed() if plan.counter.settles or not following.has_room else following, visit, evidence


def add_increments(fan_out: int, visit: StepTree, increments: Integers) -> None:
    """Add what its leaves counted to a released tree, and project the counts again, in place."""
    numbers = visit.parent, visit.released, visit.measure, visit.held, visit.projected
    tree_maps.project_counts(visit.leaves, increments, fan_out, np.empty_like(visit.first), *numbers)


def adjusted(plan: CellParameters, visit: StepTree, missing: float) -> StepTree:
    """The released tree with so many points more, shared out over its leaves alike, and projected again.

    Least squares for leaves with the same noise: which they have, but for those that were counted more rarely.
    """
    held, projected, counts = (np.empty(visit.first.size) for _ in range(3))
    tree_maps.project_with(
        missing, visit.leaves, plan.fan_out, counts, visit.parent, visit.released, visit.measure, held, projected
    )
    return replace(visit, held=held, projected=projected)


def walk_down(
    plan: CellParameters,
    starts: Integers,
    parent: Integers,
    first: Integers,
    origin: Integers,
    code: Integers,
    measure: Floats,
    further: Sequence[NDArray[Any]],
) -> Iterator[tuple[int, int]]:
    """Ranges of levels to decide at once, from the root down; measures of new cells are filled in before each.

    Arrays as in ``fastdp_kernels.privtree.descend``, which appends levels between one range and the next; ``further``
    are those others that have an entry for each appended node.  In the end ``starts[-1]`` is the number of nodes.

    A cut whose parts have measure 0, all of them, is taken back: rounding may lose the sliver of a polygon that a
    cell holds, and then none of its parts could be counted in or sampled from.  That follows from the domain and the
    decision alone.
    """
    level, stride = 0, plan.max_depth + 1 if plan.uniform else 1
    while level <= plan.max_depth and starts[level + 1] > starts[level]:
        if not plan.uniform:
            part = slice(starts[level], starts[level + 1])
            fresh = origin[part] < 0
            if fresh.any():
                found = measure[part]
                found[fresh] = measures(plan, code[part][fresh], level)
            if level > 0:
                _take_back(plan.fan_out, level, starts, parent, first, measure, (origin, code, *further))
                if starts[level + 1] == starts[level]:
                    break
        yield level, level + stride
        level += stride
    starts[level + 1 :] = starts[level]


def _take_back(
    fan_out: int,
    level: int,
    starts: Integers,
    parent: Integers,
    first: Integers,
    measure: Floats,
    further: Sequence[NDArray[Any]],
) -> None:
    """Drop the families of the last level that have no measure, and close the gaps."""
    begin, end = int(starts[level]), int(starts[level + 1])
    barren = ~(measure[begin:end] > 0.0).reshape(-1, fan_out).any(axis=1)
    if not barren.any():
        return
    first[parent[begin:end:fan_out][barren]] = -1
    kept = begin + np.flatnonzero(np.repeat(~barren, fan_out))
    end = begin + kept.size
    for column in (parent, measure, *further):
        column[begin:end] = column[kept]
    first[parent[begin:end:fan_out]] = np.arange(begin, end, fan_out)
    starts[level + 1] = end


def _grow(
    plan: CellParameters,
    residents: TreeVersion,
    added: Integers,
    removed: Integers,
    step: int,
    key: Key,
    capacity: int,
    drawn: Integers,
) -> tuple[StepTree, SplitScores]:
    noise: Integers = np.empty(capacity, np.int64)
    noise[: drawn.size] = drawn
    sampler.fill(noise[drawn.size :], plan.split_law, key, StreamId(Purpose.SPLIT, number=step), drawn.size)
    numbers: list[Integers] = [np.empty(capacity, np.int64) for _ in range(6)]
    old, parent, first, code, released, score = numbers
    ends: Integers = np.empty((capacity, 4), np.int64)
    measure, held, projected = np.empty(capacity), np.empty(capacity), np.empty(capacity)
    root = residents.nodes[residents.root]
    old[0], parent[0], code[0] = residents.root, -1, 0
    released[0], measure[0] = root["released"], root["measure"]
    ends[0] = 0, added.size, 0, removed.size
    starts: Integers = np.zeros(plan.max_depth + 2, np.int64)
    starts[1:] = 1
    decided_by = plan.fan_out, plan.max_depth, plan.unit, plan.bias, plan.threshold, plan.repaired, plan.uniform
    known = residents.since, added, removed, noise, residents.nodes
    tree = starts, old, parent, first, code, ends, released, measure, held, projected, score
    for level, stop in walk_down(plan, starts, parent, first, old, code, measure, (ends, released)):
        size = privtree.descend(level, stop, *decided_by, *known, *tree)
        if size < 0:
            # The same noise and more: the decisions so far come out the same.
            return _grow(plan, residents, added, removed, step, key, 4 * capacity, noise)
    size = int(starts[-1])
    visit = StepTree(
        starts,
        parent[:size],
        first[:size],
        code[:size],
        old[:size],
        released[:size],
        measure[:size],
        held[:size],
        projected[:size],
        np.empty(0, np.int64),
    )
    return visit, SplitScores(score[:size], ends[:size])


def route_strays(plan: CellParameters, visit: StepTree, ends: Integers, leaves: Integers, net: Integers) -> None:
    """Count what lies in a leaf without any of the domain in a leaf of its nearest sibling that has some.

    Such a point lies on the domain's border, or within a network's tolerance of it.  Where it is counted follows from
    the released tree and the point alone, so an event still enters one counter.
    """
    strays = (ends[:, 1] - ends[:, 0]) - (ends[:, 3] - ends[:, 2])
    barren = (visit.first < 0) & (visit.measure <= 0.0) & (strays != 0)
    for node in np.flatnonzero(barren).tolist():
        begin, at = int(visit.first[visit.parent[node]]), node
        while begin >= 0:
            family = np.flatnonzero(visit.measure[begin : begin + plan.fan_out] > 0.0) + begin
            at = int(family[np.abs(family - at).argmin()])
            begin = int(visit.first[at])
        net[np.searchsorted(leaves, at)] += strays[node]


def _settle(
    plan: CellParameters, residents: TreeVersion, visit: StepTree, leaves: Integers, step: int, key: Key
) -> TreeVersion:
    """Counters with open noise at nodes that are no leaves now take it back (``docs/phdstream.md``)."""
    residents = residents.roomy(visit.first.size)
    nodes, state = residents.nodes[: residents.stop], residents.state[: residents.stop]
    left = state[:, 0] > 0
    origin = visit.origin[leaves]
    left[origin[origin >= 0]] = False
    settled = np.flatnonzero(left)
    noise = sampler.draws(settled.size, plan.cell_law, key, StreamId(Purpose.CELL, level=1, number=step))
    rows = state[settled]
    increments = plan.counter.settle(rows, noise)
    state[settled] = rows
    first, released = (np.ascontiguousarray(nodes[name]) for name in ("first", "released"))
    tree_maps.settle_residents(
        settled,
        increments,
        plan.fan_out,
        np.empty_like(released),
        first,
        released,
        visit.origin,
        visit.released,
    )
    nodes["released"] = released
    return residents
