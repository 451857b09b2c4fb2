"""One private step on a tree of cells: split decisions, noisy counts, and the kept tree for the next step.

PrivTree is one such step on an empty tree; PHDStream is a sequence of them.  The step is a pure function of
(kept tree, batch, step number, key).  Readings and proof: ``docs/phdstream.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from fastdp.errors import ParameterError
from fastdp.kinds import Array, Integers
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.spatial.domains import CellParameters, measures
from fastdp.spatial.tree import KeptTree, Tree, columns_of
from fastdp_kernels.points import privtree, tree_maps

#: Room for so many nodes at least, and for this part more than the step before had.
MIN_CAPACITY, SPARE = 64, 16
#: Columns that a descent fills, in the kernel's order.
DESCENT = ("origin", "parent", "first", "code", "ends", "released", "measure", "held", "projected", "score")


def root_only(plan: CellParameters) -> KeptTree:
    """The kept tree before any step, the root alone; ParameterError unless its measure is finite and above 0."""
    measure = np.ones(1) if plan.uniform else measures(plan, np.zeros(1, np.int64), 0)
    if not (np.isfinite(measure).all() and measure[0] > 0.0):
        raise ParameterError(f"domain has measure {measure[0]}: expected a finite measure above 0")
    none = np.full(1, -1, np.int64)
    state: Integers = np.zeros((1, plan.counter.width), np.int64)
    root = Tree(first=none, released=np.zeros(1, np.int64), split=none, measure=measure, state=state)
    return KeptTree.of(plan.fan_out, root)


def take_step(
    plan: CellParameters,
    kept: KeptTree,
    added: Integers,
    removed: Integers,
    step: int,
    key: Key,
    expected: int = 0,
) -> tuple[KeptTree, Tree]:
    """Algorithm 7 for one batch; changes nothing.

    Returns the kept tree for the next step, and this step's tree with the scores of its decisions: secret, for the
    analysis of privacy losses.  Its :attr:`~Tree.shown` is released.  ``added`` and ``removed`` are codes from
    :func:`fastdp.spatial.domains.encode`.  Noise is a function of (key, step, position in the breadth-first order);
    ``expected``, an approximate number of nodes, affects time only.
    """
    tree, net = counted_leaves(plan, _descend(plan, kept, added, removed, step, key, expected))
    rows: Integers = np.zeros((net.size, plan.counter.width), np.int64)
    if plan.counter.width:
        origin = tree.origin[tree.leaves]
        rows[origin >= 0] = kept.state[origin[origin >= 0]]
    noise = sampler.draws(net.size, plan.cell_law, key, StreamId(Purpose.CELL, number=step))
    increments = net + plan.counter.step(rows, noise)
    if plan.counter.settles:
        kept = _settle(plan, kept, tree, step, key)
    add_increments(plan.fan_out, tree, increments)
    following = kept.append(tree, rows, step, plan.retention)
    # Counters that settle are looked for in all nodes, and noise follows their order.
    packs = plan.counter.settles or not following.has_capacity
    return following.packed() if packs else following, tree


def add_increments(fan_out: int, tree: Tree, increments: Integers) -> None:
    """Add counts `increments` of the leaves to a released tree, and project its counts again, in place."""
    numbers = tree.parent, tree.released, tree.measure, tree.held, tree.projected
    tree_maps.project_counts(tree.leaves, increments, fan_out, np.empty_like(tree.first), numbers)


def adjusted(plan: CellParameters, tree: Tree, missing: float) -> Tree:
    """The released tree with `missing` more points, divided equally over its leaves, and projected again.

    This is least squares for leaves with equal noise, which all have except those counted more rarely.
    """
    held, projected, counts = (np.empty(tree.first.size) for _ in range(3))
    numbers = tree.parent, counts, tree.measure, held, projected
    tree_maps.project_with(missing, tree.leaves, plan.fan_out, tree.released, numbers)
    return tree._replace(held=held, projected=projected)


def grow(
    plan: CellParameters,
    capacity: int,
    names: tuple[str, ...],
    root: Mapping[str, object],
    kernel: Callable[..., int],
    given: Callable[[int], tuple[object, ...]],
) -> Tree:
    """A tree from its root down; started again with four times the capacity if ``capacity`` nodes are too few.

    ``names`` are its columns, ``root`` the root's entries.  The kernel gets a range of levels, ``given(capacity)``,
    ``starts`` and the columns, and appends children; it returns a negative number if they do not fit.
    """
    while True:
        columns, arguments = columns_of(names, capacity), given(capacity)
        for name, entry in {"origin": 0, "parent": -1, "code": 0, **root}.items():
            columns[name][0] = entry
        starts: Integers = np.zeros(plan.max_depth + 2, np.int64)
        starts[1:] = 1
        arrays = tuple(columns.values())
        for levels in _walk_down(plan, starts, columns):
            if kernel(*levels, *arguments, starts, arrays) < 0:
                capacity *= 4
                break
        else:
            size = int(starts[-1])
            return Tree(starts=starts, **{name: column[:size] for name, column in columns.items()})


def _walk_down(plan: CellParameters, starts: Integers, columns: Mapping[str, Array]) -> Iterator[tuple[int, int]]:
    """Ranges of levels to decide at once, from the root down; measures of new cells are filled in before each.

    A cut whose children all have measure 0 is undone: rounding may lose a polygon's sliver in a cell, whose children
    could
    then not be counted or sampled.  This depends only on the domain and the decision.
    """
    level, stride = 0, plan.max_depth + 1 if plan.uniform else 1
    while level <= plan.max_depth and starts[level + 1] > starts[level]:
        if not plan.uniform:
            part = slice(starts[level], starts[level + 1])
            fresh = columns["origin"][part] < 0
            if fresh.any():
                columns["measure"][part][fresh] = measures(plan, columns["code"][part][fresh], level)
            if level > 0:
                _take_back(plan.fan_out, level, starts, columns)
                if starts[level + 1] == starts[level]:
                    break
        yield level, level + stride
        level += stride
    starts[level + 1 :] = starts[level]


def _take_back(fan_out: int, level: int, starts: Integers, columns: Mapping[str, Array]) -> None:
    """Drop the families of the last level that have no measure, and close the gaps."""
    begin, end = int(starts[level]), int(starts[level + 1])
    parent, first = columns["parent"], columns["first"]
    barren = ~(columns["measure"][begin:end] > 0.0).reshape(-1, fan_out).any(axis=1)
    if not barren.any():
        return
    first[parent[begin:end:fan_out][barren]] = -1
    kept = begin + np.flatnonzero(np.repeat(~barren, fan_out))
    end = begin + kept.size
    for column in columns.values():
        column[begin:end] = column[kept]
    first[parent[begin:end:fan_out]] = np.arange(begin, end, fan_out)
    starts[level + 1] = end


def _descend(
    plan: CellParameters, kept: KeptTree, added: Integers, removed: Integers, step: int, key: Key, expected: int
) -> Tree:
    """The step tree, cut by the split decisions of one step."""
    rule = plan.fan_out, plan.max_depth, plan.unit, plan.bias, plan.threshold, plan.repaired, plan.uniform
    known = kept.nodes[kept.root]
    root = {name: known[name] for name in ("released", "measure")}
    root |= {"origin": kept.root, "ends": (0, added.size, 0, removed.size)}
    drawn: Integers = np.empty(0, np.int64)

    def given(capacity: int) -> tuple[object, ...]:
        nonlocal drawn
        noise: Integers = np.empty(capacity, np.int64)
        # The same noise and more: the decisions so far come out the same.
        noise[: drawn.size] = drawn
        sampler.fill(noise[drawn.size :], plan.split_law, key, StreamId(Purpose.SPLIT, number=step), drawn.size)
        drawn = noise
        return rule, kept.since, (added, removed), noise, kept.nodes

    return grow(plan, expected + expected // SPARE + MIN_CAPACITY, DESCENT, root, privtree.descend, given)


def counted_leaves(plan: CellParameters, tree: Tree) -> tuple[Tree, Integers]:
    """The tree with its leaves listed, and the batch's additions minus removals in each, int64[l]."""
    leaves: Integers = np.empty(tree.first.size, np.int64)
    net: Integers = np.empty_like(leaves)
    count = privtree.collect_leaves(tree.first, tree.measure, tree.ends, leaves, net)
    tree = tree._replace(leaves=leaves[:count])
    if not plan.uniform:
        _route_strays(plan, tree, net)
    return tree, net[:count]


def _route_strays(plan: CellParameters, tree: Tree, net: Integers) -> None:
    """Count the points of a leaf outside the domain in a leaf of its nearest sibling inside it.

    Such a point is within tolerance of the border; released tree and point alone determine its leaf, so an event
    still
    enters one counter.
    """
    strays = np.diff(tree.ends[:, :2])[:, 0] - np.diff(tree.ends[:, 2:])[:, 0]
    barren = (tree.first < 0) & (tree.measure <= 0.0) & (strays != 0)
    for node in np.flatnonzero(barren).tolist():
        begin, at = int(tree.first[tree.parent[node]]), node
        while begin >= 0:
            family = np.flatnonzero(tree.measure[begin : begin + plan.fan_out] > 0.0) + begin
            at = int(family[np.abs(family - at).argmin()])
            begin = int(tree.first[at])
        net[np.searchsorted(tree.leaves, at)] += strays[node]


def _settle(plan: CellParameters, kept: KeptTree, tree: Tree, step: int, key: Key) -> KeptTree:
    """Take back the open noise of counters at nodes that are no longer leaves (``docs/phdstream.md``)."""
    kept = kept.enlarged(tree.first.size)
    nodes, state = kept.nodes[: kept.stop], kept.state[: kept.stop]
    left = state[:, 0] > 0
    origin = tree.origin[tree.leaves]
    left[origin[origin >= 0]] = False
    settled = np.flatnonzero(left)
    noise = sampler.draws(settled.size, plan.cell_law, key, StreamId(Purpose.CELL, level=1, number=step))
    rows = state[settled]
    increments = plan.counter.settle(rows, noise)
    state[settled] = rows
    first, released = (np.ascontiguousarray(nodes[name]) for name in ("first", "released"))
    changed = np.empty_like(released), first, released, tree.origin, tree.released
    tree_maps.settle_kept(settled, increments, plan.fan_out, *changed)
    nodes["released"] = released
    return kept
