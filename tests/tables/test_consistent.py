from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fastdp.tables.consistent import GROWTH, Level, consistent, level_shares
from tests.oracles import dense

#: Key trees as parents of depths 1, 2, ...: no keys, one column, two with children in any order, three, single nodes.
TREES = {
    "none": [],
    "one": [np.zeros(5, np.int64)],
    "two": [np.zeros(3, np.int64), np.array([2, 0, 1, 2, 2, 0])],
    "three": [np.zeros(2, np.int64), np.array([0, 1, 1]), np.array([1, 2, 0, 1])],
    "chain": [np.zeros(1, np.int64), np.zeros(2, np.int64)],
}


@pytest.mark.parametrize("windows", [1, 2, 7])
@pytest.mark.parametrize("tree", TREES)
def test_least_squares_of_any_measurements(tree, windows):
    parents, rng = TREES[tree], np.random.default_rng(5)
    leaves = len(parents)
    others = [(d, each) for d in range(leaves + 1) for each in (True, False) if (d, each) != (leaves, True)]
    chosen = [those for n in range(len(others) + 1) for those in itertools.combinations(others, n)]
    for those in [chosen[0], chosen[-1], *rng.permutation(np.array(chosen, object))[:8].tolist()]:
        measured = []
        for depth, each in [(leaves, True), *those]:
            size = parents[depth - 1].size if depth else 1
            values = rng.normal(0.0, 10.0, (windows if each else 1, size))
            measured.append((depth, each, values, float(rng.uniform(0.2, 9.0))))
        found = consistent([(Level(d, e), y, v) for d, e, y, v in measured], parents)
        cells, covariance = dense.fitted(measured, parents, windows)
        for depth in range(leaves + 1):
            tree_rows = dense.rows(parents, windows, depth, True)
            np.testing.assert_allclose(found.values[depth].ravel(), tree_rows @ cells, atol=1e-9)
            for start, stop in ((0, 1), (0, windows), (windows // 2, windows)):
                ask = tree_rows.reshape(windows, -1, cells.size)[start:stop].sum(axis=0)
                np.testing.assert_allclose(
                    found.sums(depth, np.array([start]), np.array([stop]))[0], ask @ cells, atol=1e-9
                )
                variances = np.einsum("ij,jk,ik->i", ask, covariance, ask)
                np.testing.assert_allclose(found.variances(depth, np.array([stop - start]))[0], variances, rtol=1e-9)


def test_cells_alone_come_back_unchanged():
    cells = np.random.default_rng(1).integers(-(2**40), 2**40, (50, 6)).astype(float)
    found = consistent([(Level(2, True), cells, 3.0)], TREES["two"])
    np.testing.assert_array_equal(found.values[2], cells)
    np.testing.assert_array_equal(found.values[0][:, 0], cells.sum(axis=1))
    np.testing.assert_allclose(found.variances(0, np.array([1, 9, 50]))[:, 0], [18.0, 162.0, 900.0])


def test_no_windows_and_no_keys():
    for cells, parents in ((np.zeros((0, 5)), TREES["one"]), (np.zeros((4, 0)), [np.zeros(0, np.int64)])):
        whole = Level(0, False), np.full((1, 1), 7.0), 2.0
        found = consistent([(Level(1, True), cells, 3.0), whole], parents)
        assert found.values[1].shape == cells.shape


def listed_shares(windows, nodes, levels, gaussian):
    """Depth, span and share of each level."""
    found = level_shares(windows, nodes, levels, gaussian=gaussian)
    return [(*level, float(share)) for level, share in found.items()]


def deviations(shares, windows, nodes, gaussian):
    """Standard errors of all levels on a balanced tree, in units of the budget's own, by the dense oracle."""
    parents = [np.repeat(np.arange(a), b // a) for a, b in itertools.pairwise(nodes)]
    measured = []
    for depth, each, share in shares:
        size = (windows if each else 1, nodes[depth])
        measured.append((depth, each, np.zeros(size), share ** (-1.0 if gaussian else -2.0)))
    covariance = dense.fitted(measured, parents, windows)[1]
    found = {}
    for depth in range(len(nodes)):
        for each in (True, False) if windows > 1 else (True,):
            ask = dense.rows(parents, windows, depth, each)[0]
            found[depth, each] = math.sqrt(ask @ covariance @ ask)
    return found


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize(("windows", "nodes"), [(1, [1, 8, 96]), (24, [1, 3]), (60, [1]), (6, [1, 4, 8])])
def test_shares_of_all_levels_beat_equal_ones(windows, nodes, gaussian):
    shares = listed_shares(windows, nodes, True, gaussian)
    assert math.isclose(sum(share for *_, share in shares), 1.0)
    assert shares[0][:2] == (len(nodes) - 1, True)
    spans = (True, False) if windows > 1 else (True,)
    listed = [(depth, each) for depth in range(len(nodes)) for each in spans]
    equal = [(*level, 1.0 / len(listed)) for level in listed]
    best, other = (
        np.mean(np.log([*deviations(each, windows, nodes, gaussian).values()])) for each in (shares, equal)
    )
    assert best < other + 1e-9


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize(("windows", "nodes"), [(168, [1]), (30, [1, 8]), (1, [1, 4, 32]), (2, [1, 2])])
def test_unasked_levels_cost_a_cell_a_tenth_at_most(windows, nodes, gaussian):
    shares = listed_shares(windows, nodes, None, gaussian)
    found = deviations(shares, windows, nodes, gaussian)
    assert found[len(nodes) - 1, True] ** 2 <= GROWTH * (1.0 + 1e-9)
    alone = deviations([(len(nodes) - 1, True, 1.0)], windows, nodes, gaussian)
    assert sum(map(math.log, found.values())) <= sum(map(math.log, alone.values())) + 1e-9


def test_cells_alone_where_nothing_else_is_wanted():
    assert level_shares(24, [1, 9], False, gaussian=False) == {Level(1, True): 1}
    assert level_shares(1, [1], True, gaussian=False) == {Level(0, True): 1}
    assert level_shares(24, [1, 0], True, gaussian=False) == {Level(1, True): 1}
    # A column with one value repeats the level before it: no share for both.
    assert {level.depth for level in level_shares(24, [1, 1, 5], True, gaussian=True)} == {1, 2}
