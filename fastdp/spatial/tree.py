"""One tree of cells as columns: a step cuts it, counts in it, releases it and hands it to the next step.

Cells are stored breadth first, the children of a cell side by side.  The *step tree* is cut by one step, the *counted
tree* is that of the last count.  The *kept tree* is shared memory: each step appends its own tree, and a written node
never changes; later nodes point back to children that their step did not reach.  Full arrays are packed: copied
without unreachable nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp.counters.counter import check_rows
from fastdp.kinds import Array, Floats, Integers, Json
from fastdp.spatial.domains import CellParameters, Corners, measures
from fastdp.state import codec
from fastdp.state.codec import expect
from fastdp_kernels.points import cell_codes, tree_maps

#: Capacity of packed trees, in multiples of their nodes.
ROOM = 3
#: A tree's counts stay below this, or sums of them leave 64 bits.
MAX_COUNT = 2**62
#: A node of a kept tree: the fields that a step reads are adjacent.
NODE = np.dtype([("first", np.int64), ("released", np.int64), ("split", np.int64), ("measure", np.float64)])
#: Columns, beside which cells are cut, of a released tree in a state file, of a counted one, and of a kept one.
RELEASED = ("released", "measure", "held", "projected")
COUNTED = (*RELEASED, "weight", "variance", "rate")
KEPT = ("released", "measure", "split", "state")
_REALS = frozenset({"measure", "held", "projected", "variance", "rate"})
_NONE: Integers = np.empty(0, np.int64)
_NO_REALS: Floats = np.empty(0)


class Tree(NamedTuple):
    """A tree of v cells; unused columns are empty.

    Attributes
    ----------
    starts : int64[max_depth + 2]
        First node of each depth.
    parent, first, code, origin : int64[v]
        Parent, first child (-1 for a leaf), path code, node of the tree before the step (-1 if new).
    released : int64[v]
        Sum of all counter increments at the node and below it.
    measure, held, projected : float64[v]
        Measure of the cell, G and s+ (the estimates, if only counts are made).
    leaves : int64[l]
        The leaves with a measure above 0.
    weight, variance, rate : int64[v], float64[v], float64[v]
        Of counted trees: noise variance at a node and below, and of G, in units of one count's; growth per step.
    split, state : int64[v], int64[v, width]
        Of kept trees: last step that split the node (-1: none); the nodes' counters, secret.
    score, ends : int64[v], int64[v, 4]
        Score in units of 1 / K before the floor, ranges of the sorted events in the node.  Secret: never kept.
    """

    starts: Integers = _NONE
    parent: Integers = _NONE
    first: Integers = _NONE
    code: Integers = _NONE
    origin: Integers = _NONE
    released: Integers = _NONE
    measure: Floats = _NO_REALS
    held: Floats = _NO_REALS
    projected: Floats = _NO_REALS
    leaves: Integers = _NONE
    weight: Integers = _NONE
    variance: Floats = _NO_REALS
    rate: Floats = _NO_REALS
    split: Integers = _NONE
    state: Integers = _NONE
    score: Integers = _NONE
    ends: Integers = _NONE

    def __repr__(self) -> str:
        return f"Tree({self.first.size} cells)"

    @property
    def depth(self) -> Integers:
        """Depth of each node: int64[v]."""
        return np.repeat(np.arange(self.starts.size - 1), np.diff(self.starts))

    @property
    def shown(self) -> Tree:
        """The tree without the input of its decisions, as it is released."""
        return self._replace(score=_NONE, ends=_NONE)

    def bounds(self, plan: CellParameters) -> Corners:
        """Corners of all nodes, lower and upper, float64[v, d] each."""
        shape, corners = (self.first.size, plan.domain.dim), (plan.domain.lower, plan.domain.upper)
        index, lower, upper = np.empty(shape, np.int64), np.empty(shape), np.empty(shape)
        cell_codes.decode_tree(self.starts, self.parent, self.first, *corners, plan.fan_out, index, lower, upper)
        return lower, upper


def columns_of(names: tuple[str, ...], capacity: int) -> dict[str, Array]:
    """Uninitialised columns for `capacity` nodes, by name."""
    return {
        name: np.empty((capacity, 4) if name == "ends" else capacity, np.float64 if name in _REALS else np.int64)
        for name in names
    }


@dataclass(frozen=True)
class KeptTree:
    """The tree between two steps, in arrays that the next step's tree may share.

    Nodes, and the counters ``state``, int64[r, width], are written up to ``stop``; packed trees have ``root`` 0.
    Nodes
    last split before step ``since`` have lost their children.  ``open_ends``, shared by all trees in these arrays,
    are ends
    after which nothing was written yet.
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
        """The first kept tree, from `tree`."""
        nodes = np.empty(tree.first.size, NODE)
        for name in NODE.names or ():
            nodes[name] = getattr(tree, name)
        return cls(fan_out, nodes, tree.state, 0, nodes.size, -1, {})

    @property
    def tree(self) -> Tree:
        """The kept nodes as a tree, breadth first."""
        packed = self if self.root == 0 else self.packed()
        nodes = packed.nodes[: packed.stop]
        columns = {name: np.ascontiguousarray(nodes[name]) for name in NODE.names or ()}
        return Tree(**columns, state=packed.state[: packed.stop])

    @property
    def has_capacity(self) -> bool:
        """True if the next step can append as many nodes as this one has."""
        return self.nodes.size >= 2 * self.stop - self.root

    def enlarged(self, more: int) -> KeptTree:
        """A copy in its own arrays, with capacity for `more` nodes."""
        return self._copied(self.nodes, slice(self.stop), self.stop, self.stop + more)

    def packed(self) -> KeptTree:
        """A copy without unreachable nodes."""
        packed, origin = np.empty(self.stop, NODE), np.empty(self.stop, np.int64)
        count = tree_maps.pack_kept(self.root, self.since, self.fan_out, self.nodes, origin, packed)
        return replace(self, root=0)._copied(packed, origin[:count], count, ROOM * count)

    def _copied(self, nodes: NDArray[np.void], rows: Integers | slice, count: int, room: int) -> KeptTree:
        """A copy of `count` nodes, with the counters `rows`, at the beginning of new arrays of `room` nodes."""
        new, state = np.empty(room, NODE), np.empty((room, self.state.shape[1]), np.int64)
        new[:count], state[:count] = nodes[:count], self.state[rows]
        return replace(self, nodes=new, state=state, stop=count, open_ends={count: None})

    def append(self, tree: Tree, rows: Integers, step: int, retention: int) -> KeptTree:
        """The kept tree after a step with `tree`, whose leaves' counters are `rows`."""
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


# State files: as few numbers as a tree follows from, checked before kernels read them.


def describe_tree(tree: Tree, names: tuple[str, ...]) -> Json:
    """JSON of the columns `names` of a tree, and of the indices of its cut cells."""
    cut = np.flatnonzero(tree.first >= 0)
    return {"cut": codec.describe(cut), **{name: codec.describe(getattr(tree, name)) for name in names}}


def restore_tree(described: Json, names: tuple[str, ...], plan: CellParameters) -> Tree:
    """Tree restored from :func:`describe_tree`; ValueError if no step can produce it."""
    kinds = {name: Floats if name in _REALS else Integers for name in names}
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
    parent, code = _paths(first, starts, plan)
    _check_measures(columns["measure"], first, starts, code, plan)
    leaves = np.flatnonzero((first < 0) & (columns["measure"] > 0.0))
    return Tree(starts=starts, parent=parent, first=first, code=code, leaves=leaves, **columns)


def _check_measures(measure: Floats, first: Integers, starts: Integers, code: Integers, plan: CellParameters) -> None:
    """Raise ValueError unless each cut cell has a measure, and so has one of its children.

    Children may lose theirs to rounding, so the domain is asked before a tree is refused.
    """
    cut = first >= 0
    cut[0] = True
    if measure[cut].min() <= 0.0:
        raise ValueError("a tree with numbers out of range")
    barren = np.flatnonzero(~measure[1:].reshape(-1, plan.fan_out).any(axis=1))
    for begin in (1 + plan.fan_out * barren).tolist():
        depth = int(np.searchsorted(starts, begin, "right")) - 1
        if measures(plan, code[begin : begin + plan.fan_out], depth).any():
            raise ValueError("a tree with numbers out of range")


def _paths(first: Integers, starts: Integers, plan: CellParameters) -> tuple[Integers, Integers]:
    """Parent and path code of each node: int64[v] each."""
    parent: Integers = np.concatenate([[-1], np.repeat(np.flatnonzero(first >= 0), plan.fan_out)])
    code: Integers = np.zeros(first.size, np.int64)
    for begin, end in zip(starts[1:-1].tolist(), starts[2:].tolist(), strict=True):
        level = np.arange(begin, end)
        code[level] = code[parent[level]] * plan.fan_out + (level - 1) % plan.fan_out
    return parent, code


def shape(cut: Integers, size: int, plan: CellParameters) -> tuple[Integers, Integers]:
    """First child of each node, int64[v], and first node of each depth; ValueError if `cut` cells make no tree."""
    first: Integers = np.full(size, -1, np.int64)
    if cut.ndim != 1 or size != 1 + cut.size * plan.fan_out or (np.diff(cut) <= 0).any():
        raise ValueError("a tree of another shape")
    children = 1 + plan.fan_out * np.arange(cut.size)
    if cut.size and (cut[0] != 0 or (cut >= children).any()):
        raise ValueError("a tree of another shape")
    first[cut] = children
    starts = [0, 1]
    while starts[-1] < size:
        inner = int(np.searchsorted(cut, starts[-1]))
        starts.append(1 + plan.fan_out * inner)
    if len(starts) > plan.max_depth + 2:
        raise ValueError("a tree deeper than max_depth")
    starts += [size] * (plan.max_depth + 2 - len(starts))
    return first, np.array(starts, np.int64)


def check_codes(codes: Integers, plan: CellParameters) -> None:
    """Raise ValueError unless `codes` are ascending codes of cells of the greatest depth."""
    if codes.ndim != 1 or (np.diff(codes) < 0).any():
        raise ValueError("codes out of order")
    if codes.size and not 0 <= codes[0] <= codes[-1] < plan.fan_out**plan.max_depth:
        raise ValueError("codes of no cell")
