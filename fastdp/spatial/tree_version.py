"""The tree between two steps, as a value whose versions share memory: a step appends what it visited and no more.

A node never changes once it is written.  A later version has nodes of its own behind it, which point back to children
that it did not visit.  Full arrays are packed: written again, breadth first, without the nodes that no version needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastdp.arrays.kinds import Integers
from fastdp.spatial.cells import KeptTree, StepTree
from fastdp_kernels import tree_maps

#: Packed trees have room for so many times their nodes.
ROOM = 3
#: A node: what a step reads of it lies together.  Fields as of :class:`fastdp.spatial.cells.KeptTree`.
FIELDS = ("first", "released", "split", "measure")
NODE = np.dtype(list(zip(FIELDS, (np.int64, np.int64, np.int64, np.float64), strict=True)))
Nodes = NDArray[np.void]


@dataclass(frozen=True)
class TreeVersion:
    """One step's tree within arrays that the next step's shares.

    Attributes
    ----------
    fan_out : int
        Children of a node.
    nodes : NODE[r]
        With room behind ``stop``.
    state : int64[r, width]
        The nodes' counters.
    root, stop : int
        The root, and the end of what this version and those before it have written.  Packed trees have root 0.
    since : int
        Nodes that no step since this one has split have lost their children.
    open_ends : dict of int
        Ends of versions behind which nothing was written yet; shared by all versions in these arrays.
    """

    fan_out: int
    nodes: Nodes
    state: Integers
    root: int
    stop: int
    since: int
    open_ends: dict[int, None]

    @classmethod
    def of(cls, fan_out: int, tree: KeptTree) -> TreeVersion:
        """The first version."""
        nodes = np.empty(tree.first.size, NODE)
        columns = tree.first, tree.released, tree.split_at, tree.measure
        for name, column in zip(FIELDS, columns, strict=True):
            nodes[name] = column
        return cls(fan_out, nodes, tree.state, 0, nodes.size, -1, {})

    @property
    def tree(self) -> KeptTree:
        """The nodes that are kept, breadth first."""
        packed = self if self.root == 0 else self.packed()
        nodes = packed.nodes[: packed.stop]
        first, released, split_at, measure = (np.ascontiguousarray(nodes[name]) for name in FIELDS)
        return KeptTree(first, released, split_at, measure, packed.state[: packed.stop])

    @property
    def has_room(self) -> bool:
        """Whether the next step can append as many nodes as this one's."""
        return self.nodes.size >= 2 * self.stop - self.root

    def roomy(self, more: int) -> TreeVersion:
        """The same version in arrays of its own, with room for so many nodes."""
        return self._copied(self.nodes, slice(self.stop), self.stop, self.stop + more)

    def packed(self) -> TreeVersion:
        """The same tree without the nodes that were left."""
        packed, origin = np.empty(self.stop, NODE), np.empty(self.stop, np.int64)
        count = tree_maps.pack_kept(self.root, self.since, self.fan_out, self.nodes, origin, packed)
        return replace(self, root=0)._copied(packed, origin[:count], count, ROOM * count)

    def _copied(self, nodes: Nodes, rows: Integers | slice, count: int, room: int) -> TreeVersion:
        """So many nodes, with these rows of the counters, at the beginning of new arrays."""
        new, state = np.empty(room, NODE), np.empty((room, self.state.shape[1]), np.int64)
        new[:count], state[:count] = nodes[:count], self.state[rows]
        return replace(self, nodes=new, state=state, stop=count, open_ends={count: None})

    def append(self, visit: StepTree, rows: Integers, step: int, retention: int) -> TreeVersion:
        """The version after a step that visited these nodes and left these rows of its leaves' counters."""
        stop = self.stop + visit.first.size
        # Where another version follows this one already, or there is no room, the new one has arrays of its own.
        if self.nodes.size < stop or self.open_ends.pop(self.stop, self) is self:
            return self.roomy(visit.first.size).append(visit, rows, step, retention)
        tree_maps.append_visited(
            step, self.stop, visit.first, visit.origin, visit.released, visit.measure, self.nodes
        )
        if self.state.shape[1]:
            state, known = self.state[self.stop : stop], visit.origin >= 0
            state[~known], state[known] = 0, self.state[visit.origin[known]]
            state[visit.leaves] = rows
        self.open_ends[stop] = None
        return replace(self, root=self.stop, stop=stop, since=step - retention)
