"""The tree between two steps, as a value whose versions share memory: a step appends what it visited and no more.

A node never changes once it is written.  A later version has nodes of its own behind it, which point back to children
that it did not visit.  Full arrays are packed: written again, breadth first, without the nodes that no version needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.spatial.cells import Integers, KeptTree, StepTree
from fastdp_kernels import tree_maps

#: New arrays have room for so many times their nodes.
ROOM = 3


@dataclass(frozen=True)
class TreeVersion:
    """One step's tree within arrays that the next step's shares.

    Attributes
    ----------
    fan_out : int
        Children of a node.
    nodes : KeptTree
        Arrays with room behind ``stop``.
    root, stop : int
        The root, and the end of what this version and those before it have written.  Packed trees have root 0.
    since : int
        Nodes that no step since this one has split have lost their children.
    open_ends : dict of int
        Ends of versions behind which nothing was written yet; shared by all versions in these arrays.
    """

    fan_out: int
    nodes: KeptTree
    root: int
    stop: int
    since: int
    open_ends: dict[int, None]

    @classmethod
    def of(cls, fan_out: int, tree: KeptTree) -> TreeVersion:
        """The first version, in the tree's own arrays."""
        return cls(fan_out, tree, 0, tree.first.size, -1, {})

    @property
    def tree(self) -> KeptTree:
        """The nodes that are kept, breadth first, in arrays of their number."""
        packed = self if self.root == 0 else self.packed()
        return KeptTree(*(array[: packed.stop] for array in _arrays(packed.nodes)))

    @property
    def has_room(self) -> bool:
        """Whether the next step can append as many nodes as this one's."""
        return self.nodes.first.size >= 2 * self.stop - self.root

    def roomy(self, more: int = 0) -> TreeVersion:
        """The same version in arrays of its own, with room for so many nodes and a few steps."""
        nodes = _with_room(self.nodes, slice(self.stop), self.stop, more)
        return replace(self, nodes=nodes, open_ends={self.stop: None})

    def packed(self) -> TreeVersion:
        """The same tree without the nodes that were left."""
        nodes = self.nodes
        first: Integers = np.empty(self.stop, np.int64)
        origin: Integers = np.empty(self.stop, np.int64)
        count = tree_maps.list_kept(self.root, self.since, self.fan_out, nodes.first, nodes.split_at, first, origin)
        kept = _with_room(nodes, origin[:count], count)
        kept.first[:count] = first[:count]
        return replace(self, nodes=kept, root=0, stop=count, open_ends={count: None})

    def append(self, visit: StepTree, rows: Integers, step: int, retention: int) -> TreeVersion:
        """The version after a step that visited these nodes and left these rows of its leaves' counters."""
        stop = self.stop + visit.first.size
        # Where another version follows this one already, or there is no room, the new one has arrays of its own.
        if self.nodes.first.size < stop or self.open_ends.pop(self.stop, self) is self:
            return self.roomy(visit.first.size).append(visit, rows, step, retention)
        nodes, here = self.nodes, slice(self.stop, stop)
        tree_maps.append_visited(
            step,
            self.stop,
            nodes.first,
            nodes.split_at,
            visit.first,
            visit.origin,
            nodes.first[here],
            nodes.split_at[here],
        )
        nodes.released[here], nodes.measure[here] = visit.released, visit.measure
        if nodes.state.shape[1]:
            state, known = nodes.state[here], visit.origin >= 0
            state[~known], state[known] = 0, nodes.state[visit.origin[known]]
            state[visit.leaves] = rows
        self.open_ends[stop] = None
        return replace(self, root=self.stop, stop=stop, since=step - retention)


def _arrays(nodes: KeptTree) -> tuple[NDArray[Any], ...]:
    return nodes.first, nodes.released, nodes.split_at, nodes.measure, nodes.state


def _with_room(nodes: KeptTree, which: Integers | slice, count: int, more: int = 0) -> KeptTree:
    """So many nodes at the beginning of new arrays."""
    arrays = []
    for before in _arrays(nodes):
        array = np.empty((ROOM * (count + more), *before.shape[1:]), before.dtype)
        array[:count] = before[which]
        arrays.append(array)
    return KeptTree(*arrays)
