"""PHDStream's tree of cells (2024, Algorithms 5 and 7), stored breadth first.

A step cuts the *step tree*, counts events in its leaves and appends it to the *kept tree*, which the next step reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp.counters.counter import check_rows
from fastdp.errors import ParameterError
from fastdp.kinds import Array, Floats, Integers, Json
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.points.domains import CellParameters, Corners, measures
from fastdp.record import values_of
from fastdp.state import codec
from fastdp.state.codec import expect
from fastdp_kernels.points import cell_codes, privtree, tree_maps

#: Capacity of packed trees, in multiples of their nodes.
PACKED_CAPACITY = 3
#: Least capacity of a step tree, and the fraction (1 / SPARE) by which it exceeds the size of the step before.
MIN_CAPACITY, SPARE = 64, 16
#: A tree's counts stay below this, or sums of them leave 64 bits.
MAX_COUNT = 2**62
#: A node of a kept tree: the fields that a step reads are adjacent.
NODE = np.dtype([("first", np.int64), ("released", np.int64), ("split", np.int64), ("measure", np.float64)])
#: Columns that a descent fills, in the kernel's order.
DESCENT = ("origin", "parent", "first", "code", "ends", "released", "measure", "held", "projected", "score")
_REALS = frozenset({"measure", "held", "projected", "variance", "rate"})
_NONE: Integers = np.empty(0, np.int64)
_NO_REALS: Floats = np.empty(0)


class Tree(NamedTuple):
    """Columns with an entry for each of v cells, or empty."""

    #: int64[max_depth + 2]. First node of each depth.
    starts: Integers = _NONE
    #: `parent`, `first`, `code`, `origin`: int64[v]. Parent, first child (-1 for a leaf), path code, node of the tree
    #: before (-1 if new).
    parent: Integers = _NONE
    first: Integers = _NONE
    code: Integers = _NONE
    origin: Integers = _NONE
    #: int64[v]. Counter increments at the node and below it.
    released: Integers = _NONE
    #: `measure`, `held`, `projected`: float64[v]. Measure of the cell, G and s+.
    measure: Floats = _NO_REALS
    held: Floats = _NO_REALS
    projected: Floats = _NO_REALS
    #: int64[l]. The leaves with a measure above 0.
    leaves: Integers = _NONE
    #: `weight`, `variance`, `rate`: int64[v], float64[v], float64[v]. Counted trees have them: noise variance of the
    #: count and of G, in units of one count's; growth per step.
    weight: Integers = _NONE
    variance: Floats = _NO_REALS
    rate: Floats = _NO_REALS
    #: `split`, `state`: int64[v], int64[v, width]. Kept trees have them: last step that split the node (-1: none);
    #: counters, secret.
    split: Integers = _NONE
    state: Integers = _NONE
    #: `score`, `ends`: int64[v], int64[v, 4]. Score in units of 1 / K, ranges of sorted events; secret, never kept.
    score: Integers = _NONE
    ends: Integers = _NONE

    def __repr__(self) -> str:
        return f"Tree({self.first.size} cells)"

    @property
    def depth(self) -> Integers:
        return np.repeat(np.arange(self.starts.size - 1), np.diff(self.starts))

    @property
    def shown(self) -> Tree:
        return self._replace(score=_NONE, ends=_NONE)

    def bounds(self, plan: CellParameters) -> Corners:
        shape, corners = (self.first.size, plan.domain.dim), (plan.domain.lower, plan.domain.upper)
        index, lower, upper = np.empty(shape, np.int64), np.empty(shape), np.empty(shape)
        cell_codes.decode_tree(self.starts, self.parent, self.first, *corners, plan.fan_out, index, lower, upper)
        return lower, upper


@dataclass(frozen=True)
class KeptTree:
    """Tree between two steps, in arrays shared with the next, filled up to ``stop``.

    Nodes last split before step ``since`` have no children; all trees in these arrays share ``open_ends``.
    """

    fan_out: int
    nodes: NDArray[np.void]
    state: Integers
    root: int
    stop: int
    since: int
    open_ends: dict[int, None]

    @classmethod
    def of(cls, fan_out: int, tree: Tree) -> KeptTree:
        nodes = np.empty(tree.first.size, NODE)
        for name, column in values_of(tree, *(NODE.names or ())).items():
            nodes[name] = column
        return cls(fan_out, nodes, tree.state, 0, nodes.size, -1, {})

    @property
    def tree(self) -> Tree:
        packed = self if self.root == 0 else self.packed()
        nodes = packed.nodes[: packed.stop]
        columns = {name: np.ascontiguousarray(nodes[name]) for name in NODE.names or ()}
        return Tree(**columns, state=packed.state[: packed.stop])

    def enlarged(self, more: int) -> KeptTree:
        return self._copied(self.nodes, slice(self.stop), self.stop, self.stop + more)

    def packed(self) -> KeptTree:
        packed, origin = np.empty(self.stop, NODE), np.empty(self.stop, np.int64)
        count = tree_maps.pack_kept(self.root, self.since, self.fan_out, self.nodes, origin, packed)
        return replace(self, root=0)._copied(packed, origin[:count], count, PACKED_CAPACITY * count)

    def _copied(self, nodes: NDArray[np.void], rows: Integers | slice, count: int, capacity: int) -> KeptTree:
        new, state = np.empty(capacity, NODE), np.empty((capacity, self.state.shape[1]), np.int64)
        new[:count], state[:count] = nodes[:count], self.state[rows]
        return replace(self, nodes=new, state=state, stop=count, open_ends={count: None})

    def append(self, tree: Tree, rows: Integers, step: int, retention: int) -> KeptTree:
        stop = self.stop + tree.first.size
        # Where another tree follows this one already, or the arrays are full, the new one has its own arrays.
        if self.nodes.size < stop or self.open_ends.pop(self.stop, self) is self:
            return self.enlarged(tree.first.size).append(tree, rows, step, retention)
        tree_maps.append_step(step, self.stop, tree.first, tree.origin, tree.released, tree.measure, self.nodes)
        if self.state.shape[1]:
            state, known = self.state[self.stop : stop], tree.origin >= 0
            state[~known], state[known] = 0, self.state[tree.origin[known]]
            state[tree.leaves] = rows
        self.open_ends[stop] = None
        return replace(self, root=self.stop, stop=stop, since=step - retention)


# One step.


def root_only(plan: CellParameters) -> KeptTree:
    """Kept tree before any step; ParameterError for a measure of 0 or infinity."""
    measure = np.ones(1) if plan.uniform else measures(plan, np.zeros(1, np.int64), 0)
    if not (np.isfinite(measure).all() and measure[0] > 0.0):
        raise ParameterError(f"domain has measure {measure[0]}: expected a finite measure above 0")
    none = np.full(1, -1, np.int64)
    state: Integers = np.zeros((1, plan.counter.width), np.int64)
    root = Tree(first=none, released=np.zeros(1, np.int64), split=none, measure=measure, state=state)
    return KeptTree.of(plan.fan_out, root)


def take_step(
    plan: CellParameters, kept: KeptTree, added: Integers, removed: Integers, step: int, key: Key, expected: int = 0
) -> tuple[KeptTree, Tree]:
    """Take one step of Algorithm 7; return next kept tree and step tree, with secret scores."""
    tree, net = counted_leaves(plan, _descend(plan, kept, added, removed, step, key, expected))
    rows: Integers = np.zeros((net.size, plan.counter.width), np.int64)
    if plan.counter.width:
        origin = tree.origin[tree.leaves]
        rows[origin >= 0] = kept.state[origin[origin >= 0]]
    noise = sampler.draws(net.size, plan.cell_distribution, key, StreamId(Purpose.CELL, number=step))
    increments = net + plan.counter.step(rows, noise)
    if plan.counter.settles:
        kept = _close_counters(plan, kept, tree, step, key)
    add_increments(plan.fan_out, tree, increments)
    following = kept.append(tree, rows, step, plan.retention)
    # Counters that are closed are searched for in all nodes, and noise follows their order.
    packs = plan.counter.settles or following.nodes.size < 2 * following.stop - following.root
    return following.packed() if packs else following, tree


def add_increments(fan_out: int, tree: Tree, increments: Integers) -> None:
    """Add `increments` to a tree's leaves and project it."""
    numbers = tree.parent, tree.released, tree.measure, tree.held, tree.projected
    tree_maps.project_counts(tree.leaves, increments, fan_out, np.empty_like(tree.first), numbers)


def adjusted(plan: CellParameters, tree: Tree, missing: float) -> Tree:
    """Divide `missing` points equally over the leaves (least squares) and project the tree."""
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
    inputs_of: Callable[[int], tuple[object, ...]],
) -> Tree:
    """Grow a tree with columns `names` from its `root` entries down.

    The kernel gets levels, ``inputs_of(capacity)``, ``starts`` and columns; a negative result means that children do
    not fit.
    """
    while True:
        arguments = inputs_of(capacity)
        columns: dict[str, Array] = {
            name: np.empty((capacity, 4) if name == "ends" else capacity, np.float64 if name in _REALS else np.int64)
            for name in names
        }
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
    """Measure cells and yield ranges of levels to decide; undo a cut whose children measure 0."""
    level, stride = 0, plan.max_depth + 1 if plan.uniform else 1
    while level <= plan.max_depth and starts[level + 1] > starts[level]:
        if not plan.uniform:
            nodes = slice(starts[level], starts[level + 1])
            fresh = columns["origin"][nodes] < 0
            if fresh.any():
                columns["measure"][nodes][fresh] = measures(plan, columns["code"][nodes][fresh], level)
            if level > 0:
                _undo_cuts(plan.fan_out, level, starts, columns)
                if starts[level + 1] == starts[level]:
                    break
        yield level, level + stride
        level += stride
    starts[level + 1 :] = starts[level]


def _undo_cuts(fan_out: int, level: int, starts: Integers, columns: Mapping[str, Array]) -> None:
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
    rule = plan.fan_out, plan.max_depth, plan.unit, plan.bias, plan.threshold, plan.repaired, plan.uniform
    known = kept.nodes[kept.root]
    root = {name: known[name] for name in ("released", "measure")}
    root |= {"origin": kept.root, "ends": (0, added.size, 0, removed.size)}
    drawn: Integers = np.empty(0, np.int64)

    def inputs_of(capacity: int) -> tuple[object, ...]:
        nonlocal drawn
        noise: Integers = np.empty(capacity, np.int64)
        # The same noise and more: the decisions so far come out the same.
        noise[: drawn.size], fresh = drawn, noise[drawn.size :]
        sampler.fill(fresh, plan.split_distribution, key, StreamId(Purpose.SPLIT, number=step), drawn.size)
        drawn = noise
        return rule, kept.since, (added, removed), noise, kept.nodes

    return grow(plan, expected + expected // SPARE + MIN_CAPACITY, DESCENT, root, privtree.descend, inputs_of)


def counted_leaves(plan: CellParameters, tree: Tree) -> tuple[Tree, Integers]:
    """Return the tree with its leaves, and their additions minus removals."""
    leaves: Integers = np.empty(tree.first.size, np.int64)
    net: Integers = np.empty_like(leaves)
    count = privtree.collect_leaves(tree.first, tree.measure, tree.ends, leaves, net)
    tree = tree._replace(leaves=leaves[:count])
    if not plan.uniform:
        _route_strays(plan, tree, net)
    return tree, net[:count]


def _route_strays(plan: CellParameters, tree: Tree, net: Integers) -> None:
    strays = np.diff(tree.ends[:, :2])[:, 0] - np.diff(tree.ends[:, 2:])[:, 0]
    barren = (tree.first < 0) & (tree.measure <= 0.0) & (strays != 0)
    for node in np.flatnonzero(barren).tolist():
        begin, at = int(tree.first[tree.parent[node]]), node
        while begin >= 0:
            family = np.flatnonzero(tree.measure[begin : begin + plan.fan_out] > 0.0) + begin
            at = int(family[np.abs(family - at).argmin()])
            begin = int(tree.first[at])
        net[np.searchsorted(tree.leaves, at)] += strays[node]


def _close_counters(plan: CellParameters, kept: KeptTree, tree: Tree, step: int, key: Key) -> KeptTree:
    kept = kept.enlarged(tree.first.size)
    nodes, state = kept.nodes[: kept.stop], kept.state[: kept.stop]
    left = state[:, 0] > 0
    origin = tree.origin[tree.leaves]
    left[origin[origin >= 0]] = False
    closed = np.flatnonzero(left)
    stream = StreamId(Purpose.CELL, level=1, number=step)
    rows = state[closed]
    increments = plan.counter.settle(rows, sampler.draws(closed.size, plan.cell_distribution, key, stream))
    state[closed] = rows
    first, released = (np.ascontiguousarray(nodes[name]) for name in ("first", "released"))
    changed = np.empty_like(released), first, released, tree.origin, tree.released
    tree_maps.settle_kept(closed, increments, plan.fan_out, *changed)
    nodes["released"] = released
    return kept


# State files: as few numbers as a tree follows from, checked before kernels read them.


@dataclass(frozen=True)
class Columns(codec.Form):
    """Form of a tree in a state: its columns `names` and the cut cells."""

    names: tuple[str, ...]
    kept: bool = False

    def describe(self, value: Tree | KeptTree) -> Json:
        tree = value.tree if isinstance(value, KeptTree) else value
        cut = np.flatnonzero(tree.first >= 0)
        columns = {name: codec.describe(column) for name, column in values_of(tree, *self.names).items()}
        return {"cut": codec.describe(cut), **columns}

    def restore(self, described: Json, machine: Any) -> Tree | KeptTree:
        """Tree of :meth:`describe`; ValueError if impossible."""
        plan: CellParameters = machine.plan
        kinds = {name: Floats if name in _REALS else Integers for name in self.names}
        columns = {name: codec.restore(kind, described[name]) for name, kind in kinds.items()}
        size = columns["released"].size
        first, starts = shape(codec.restore(Integers, described["cut"]), size, plan)
        for name, column in columns.items():
            expect(column, np.empty((size, plan.counter.width) if name == "state" else size, column.dtype))
            low, high = (-MAX_COUNT, MAX_COUNT) if name == "released" else (-np.inf, np.inf)
            if name in ("measure", "weight", "variance"):
                low = 0
            if not (np.isfinite(column) & (column >= low) & (column <= high)).all():
                raise ValueError("a tree with numbers out of range")
        if "state" in columns:
            check_rows(plan.counter, columns["state"])
        parent: Integers = np.concatenate([[-1], np.repeat(np.flatnonzero(first >= 0), plan.fan_out)])
        code: Integers = np.zeros(first.size, np.int64)
        for begin, end in zip(starts[1:-1].tolist(), starts[2:].tolist(), strict=True):
            level = np.arange(begin, end)
            code[level] = code[parent[level]] * plan.fan_out + (level - 1) % plan.fan_out
        _check_measures(columns["measure"], first, starts, code, plan)
        leaves = np.flatnonzero((first < 0) & (columns["measure"] > 0.0))
        tree = Tree(starts=starts, parent=parent, first=first, code=code, leaves=leaves, **columns)
        return KeptTree.of(plan.fan_out, tree) if self.kept else tree


#: Columns of a released, a counted and a kept tree in a state.
RELEASED = Columns(("released", "measure", "held", "projected"))
COUNTED = Columns((*RELEASED.names, "weight", "variance", "rate"))
KEPT = Columns(("released", "measure", "split", "state"), kept=True)


def _check_measures(measure: Floats, first: Integers, starts: Integers, code: Integers, plan: CellParameters) -> None:
    cut = first >= 0
    cut[0] = True
    if measure[cut].min() <= 0.0:
        raise ValueError("a tree with numbers out of range")
    barren = np.flatnonzero(~measure[1:].reshape(-1, plan.fan_out).any(axis=1))
    for begin in (1 + plan.fan_out * barren).tolist():
        depth = int(np.searchsorted(starts, begin, "right")) - 1
        if measures(plan, code[begin : begin + plan.fan_out], depth).any():
            raise ValueError("a tree with numbers out of range")


def shape(cut: Integers, size: int, plan: CellParameters) -> tuple[Integers, Integers]:
    """First children and first nodes by depth; ValueError if `cut` makes no tree."""
    first: Integers = np.full(size, -1, np.int64)
    if cut.ndim != 1 or size != 1 + cut.size * plan.fan_out or (np.diff(cut) <= 0).any():
        raise ValueError("a tree of another shape")
    children = 1 + plan.fan_out * np.arange(cut.size)
    if cut.size and (cut[0] != 0 or (cut >= children).any()):
        raise ValueError("a tree of another shape")
    first[cut] = children
    starts = [0, 1]
    while starts[-1] < size:
        starts.append(1 + plan.fan_out * int(np.searchsorted(cut, starts[-1])))
    if len(starts) > plan.max_depth + 2:
        raise ValueError("a tree deeper than max_depth")
    starts += [size] * (plan.max_depth + 2 - len(starts))
    return first, np.array(starts, np.int64)


def check_codes(codes: Integers, plan: CellParameters) -> None:
    """ValueError unless `codes` are ascending codes of the smallest cells."""
    if codes.ndim != 1 or (np.diff(codes) < 0).any():
        raise ValueError("codes out of order")
    if codes.size and not 0 <= codes[0] <= codes[-1] < plan.fan_out**plan.max_depth:
        raise ValueError("codes of no cell")
