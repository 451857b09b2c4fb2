"""Versions of the tree between two steps, beside trees that are built again at every step."""

from __future__ import annotations

import numpy as np
import pytest

from fastdp import PHDStream
from fastdp.noise.key import repeating
from fastdp.spatial import Box
from fastdp.spatial.tree import ROOM, KeptTree, Tree

FAN_OUT = 3


class Node:
    """A cell that is kept: its number, the last step that split it, its counter, and its children."""

    def __init__(self, released: int, split_at: int, state: int, children: list[Node]) -> None:
        self.released, self.split_at, self.state, self.children = released, split_at, state, children


def listed(root: Node) -> Tree:
    """Breadth first."""
    nodes = [root]
    first = []
    for node in nodes:
        first.append(len(nodes) if node.children else -1)
        nodes += node.children
    columns = [[node.released for node in nodes], [node.split_at for node in nodes]]
    released, split_at = (np.array(column, np.int64) for column in columns)
    state = np.array([[node.state] for node in nodes], np.int64)
    columns = {"released": released, "split": split_at, "measure": released / 4.0, "state": state}
    return Tree(first=np.array(first, np.int64), **columns)


def random_visit(generator: np.random.Generator, version: KeptTree, fan_out: int) -> Tree:
    """A tree whose cells are cut at random, with the kept nodes that it finds."""
    nodes, first, origin = version.nodes, [-1], [version.root]
    for i, o in enumerate(origin):
        if len(first) < 60 and generator.random() < 0.6:
            first[i] = len(first)
            kept = nodes["first"][o] if o >= 0 and nodes["split"][o] >= version.since else -1
            first += [-1] * fan_out
            origin += [int(kept) + j if kept >= 0 else -1 for j in range(fan_out)]
    released = generator.integers(-50, 50, len(first))
    leaves = np.flatnonzero(np.array(first) < 0)
    arrays = [np.array(column, np.int64) for column in (first, origin)]
    return Tree(first=arrays[0], origin=arrays[1], released=released, measure=released / 4.0, leaves=leaves)


def followed(old: Node | None, visit: Tree, rows: dict[int, int], i: int, step: int, retention: int) -> Node:
    """What is kept of the cell that was visited as number ``i``."""
    before = old.children if old is not None else []
    state = rows.get(i, old.state if old is not None else 0)
    split_at = old.split_at if old is not None else -1
    if visit.first[i] < 0:
        kept = Node(int(visit.released[i]), split_at, state, before)
        return pruned(kept, step, retention)
    begin = int(visit.first[i])
    pairs = zip(before or [None] * FAN_OUT, range(begin, begin + FAN_OUT), strict=True)
    children = [followed(child, visit, rows, at, step, retention) for child, at in pairs]
    return Node(int(visit.released[i]), step, state, children)


def pruned(node: Node, step: int, retention: int) -> Node:
    """Without the children of nodes that were split too long ago."""
    alive = step - node.split_at <= retention
    children = [pruned(child, step, retention) for child in node.children] if alive else []
    return Node(node.released, node.split_at, node.state, children)


@pytest.mark.parametrize("retention", [0, 2, 10**9])
@pytest.mark.parametrize("seed", range(6))
def test_a_version_holds_what_a_tree_built_again_holds(seed: int, retention: int) -> None:
    generator = np.random.default_rng(seed)
    naive = Node(0, -1, 0, [])
    version = KeptTree.of(FAN_OUT, listed(naive))
    history = [(naive, version)]
    for step in range(25):
        # Now and then an older version is followed by another one, and a tree is packed.
        if generator.random() < 0.2:
            naive, version = history[generator.integers(len(history))]
        visit = random_visit(generator, version, FAN_OUT)
        rows = generator.integers(1, 9, (visit.leaves.size, 1))
        by_leaf = dict(zip(visit.leaves.tolist(), rows[:, 0].tolist(), strict=True))
        naive = followed(naive, visit, by_leaf, 0, step, retention)
        version = version.append(visit, rows, step, retention)
        if generator.random() < 0.2:
            version = version.packed()
        history.append((naive, version))
    for tree, kept in history:
        wanted, found = listed(tree), kept.tree
        for name in ("first", "released", "split", "measure", "state"):
            assert np.array_equal(getattr(found, name), getattr(wanted, name)), name


@pytest.mark.parametrize("counter", ["simple", "block", "binary"])
def test_a_state_is_a_value(counter: str) -> None:
    """A state may be stepped from twice, and is what it was after others have followed it."""
    stream = PHDStream(Box((0, 0), (1, 1)), 1.0, counter, max_depth=8, retention=3, seed=1)
    generator = np.random.default_rng(2)
    machine, key, state = stream._machine, stream._key, stream._state
    kept = []
    for _ in range(12):
        batch = machine.read(generator.random((60, 2)), None)
        kept.append((state, machine.pack(state), batch))
        state = machine.step(state, batch, key).state
    last = machine.pack(state)
    for before, described, batch in reversed(kept):
        with repeating():
            again = machine.step(before, batch, key).state
        assert machine.pack(again) == last
        assert machine.pack(before) == described
        last = described


def test_room_is_used_again() -> None:
    """Arrays do not grow with the steps."""
    stream = PHDStream(Box((0, 0), (1, 1)), 1.0, max_depth=10, retention=2, seed=1)
    generator = np.random.default_rng(3)
    most = 0
    for _ in range(120):
        stream.advance(generator.random((20, 2)), generator.random((20, 2)))
        most = max(most, stream.n_nodes)
        assert stream._state.kept.nodes.size <= ROOM * most
