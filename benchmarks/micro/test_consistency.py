"""Consistency of 2^20 leaves, fan-out 16: kernel, careful NumPy, OpenDP, and a copy of the nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.peers import numpy_tops, open_dp
from benchmarks.tree import Tree, make_tree

pytestmark = pytest.mark.benchmark(group="consistency: 2^20 leaves, fan-out 16")
LEAVES = 2**20


@pytest.fixture(scope="module")
def tree() -> Tree:
    return make_tree(16, LEAVES)


def test_fastdp(per_item: Any, tree: Tree) -> None:
    own = tree.copy()
    expected = numpy_tops.make_consistent(tree.float_levels(), 16)
    own.make_consistent()
    # Rounding: at most one step a level on the way up and one on the way down.
    assert np.abs(own.nodes[:LEAVES] - expected).max() < 2 * own.plan.levels
    per_item(own.make_consistent, LEAVES)


def test_numpy_float(per_item: Any, tree: Tree) -> None:
    levels = tree.float_levels()
    assert per_item(lambda: numpy_tops.make_consistent(levels, 16), LEAVES).size == LEAVES


@pytest.mark.skipif(not open_dp.INSTALLED, reason=open_dp.MISSING)
def test_opendp(per_item: Any, tree: Tree) -> None:
    nodes = tree.breadth_first()
    postprocessor = open_dp.consistent_leaves(16)
    assert len(per_item(lambda: postprocessor(nodes), LEAVES, rounds=3)) == LEAVES


def test_copyto(per_item: Any, tree: Tree) -> None:
    out = np.empty_like(tree.nodes)
    per_item(lambda: np.copyto(out, tree.nodes), LEAVES)
    assert np.array_equal(out, tree.nodes)
