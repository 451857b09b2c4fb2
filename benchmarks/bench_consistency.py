"""Online consistency of a noise tree: time a tree, by fan-out and leaf count (linear in the leaves)."""

from __future__ import annotations

import numpy as np

from benchmarks.tree import make_tree


class Consistency:
    params = ((2, 4, 16), (2**12, 2**14, 2**16, 2**18, 2**20))
    param_names = ("fan_out", "leaves")
    timeout = 120

    def setup(self, fan_out: int, leaves: int) -> None:
        self.tree = make_tree(fan_out, leaves)
        self.tree.make_consistent()

    def time_make_consistent(self, fan_out: int, leaves: int) -> None:
        self.tree.make_consistent()


class Copy:
    """The memory limit: the same nodes copied once."""

    params = ((2**12, 2**14, 2**16, 2**18, 2**20),)
    param_names = ("leaves",)

    def setup(self, leaves: int) -> None:
        self.nodes = make_tree(16, leaves).nodes
        self.out = np.empty_like(self.nodes)
        np.copyto(self.out, self.nodes)

    def time_copyto(self, leaves: int) -> None:
        np.copyto(self.out, self.nodes)
