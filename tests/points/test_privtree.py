"""Domains, PrivTree and what it releases; boxes that the laboratory asks for."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from fastdp.errors import DataError, ParameterError, StateError
from fastdp.points import Box, PrivTree, ReleasedTree, decomposition
from fastdp.points.phdstream import PHDStream
from fastdp_lab.queries import paper_queries, random_boxes
from tests import stat
from tests.domains import HalfBox, Plain
from tests.noise_values import bound_key, unbound_key

SQUARE = Box([-1.0, 0.0], [1.0, 4.0])


def points_of(n: int, seed: int = 1) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.column_stack([generator.uniform(-1, 1, n), np.minimum(generator.exponential(0.3, n), 1.9)])


def test_box_is_a_domain() -> None:
    assert (SQUARE.dim, SQUARE.lower.tolist(), SQUARE.upper.tolist()) == (2, [-1, 0], [1, 4])
    lower, upper = np.array([[-5.0, 1.0], [0.0, 0.0], [2.0, 0.0]]), np.array([[0.0, 2.0], [1.0, 9.0], [3.0, 1.0]])
    assert SQUARE.measure(lower, upper).tolist() == [1.0, 4.0, 0.0]
    assert SQUARE.contains(np.array([[1.0, 4.0], [-1.0, 0.0], [1.1, 1.0]])).tolist() == [True, True, False]
    assert Box(0, 1).dim == 1
    for bad in (([0, 0], [1]), ([0], [math.inf]), ([], []), ([-1e308], [1e308]), ("a", "b")):
        with pytest.raises(ParameterError, match=r"lower|upper"):
            Box(*bad)


def test_privtree_finds_the_dense_part() -> None:
    points = points_of(20_000)
    tree = PrivTree(SQUARE, 1.0, seed=3).fit(points)
    assert isinstance(tree, ReleasedTree)
    assert tree.total == pytest.approx(20_000, abs=1000)
    assert tree.counts.sum() == pytest.approx(tree.total)
    assert tree.n_leaves > 100
    dense = tree.lower[:, 1] < 0.5
    assert tree.depths[dense].mean() > tree.depths[~dense].mean() + 2
    volumes = np.prod(tree.upper - tree.lower, axis=1)
    assert volumes.sum() == pytest.approx(8.0)
    assert np.allclose(volumes, 8.0 / 2.0**tree.depths)
    assert "cells, total" in repr(tree)
    with pytest.raises(ValueError, match="read-only"):
        tree.counts[0] = 1.0


def test_privtree_is_the_first_step_of_a_stream() -> None:
    points = points_of(3000)
    stream = PHDStream(SQUARE, 0.7, total_share=0.0, key=unbound_key(4))
    stream.advance(points)
    tree = PrivTree(SQUARE, 0.7, key=unbound_key(4)).fit(points)
    assert np.array_equal(tree.counts, stream.tree.counts)
    assert np.array_equal(tree.lower, stream.tree.lower)


def test_privtree_fits_once_and_says_what_it_promises() -> None:
    mechanism = PrivTree(SQUARE, 0.7, seed=4)
    with pytest.raises(DataError, match="outside"):
        mechanism.fit([[9.0, 9.0]])
    mechanism.fit([])
    with pytest.raises(StateError, match="has been fitted"):
        mechanism.fit(points_of(10))
    guarantee = mechanism.guarantee
    assert (guarantee.epsilon, guarantee.unit, guarantee.arithmetic) == (0.7, "one point", "exact")
    assert guarantee.simulated


@pytest.mark.parametrize("fan_out", [2, 3])
def test_counts_of_boxes(fan_out: int) -> None:
    tree = PrivTree(SQUARE, 2.0, fan_out=fan_out, max_depth=12, seed=5).fit(points_of(5000))
    generator = np.random.default_rng(6)
    low = generator.uniform([-1.5, -0.5], [1.0, 4.0], (300, 2))
    high = low + generator.exponential(0.5, (300, 2))
    inside = np.minimum(tree.upper, high[:, None]) - np.maximum(tree.lower, low[:, None])
    expected = (np.maximum(inside, 0) / (tree.upper - tree.lower)).prod(axis=2) @ tree.counts
    assert np.allclose(tree.count(low, high), expected, rtol=1e-9, atol=1e-9)
    for corners in (([-1, 0], [1, 4]), ([-9, -9], [9, 9])):
        assert tree.count(*corners) == pytest.approx(tree.total)
    for low_corner, high_corner, words in (
        ([0.5] * 2, [0.4] * 2, "expected lower <= upper"),
        ([0, 0, 0], [1, 1, 1], "lower"),
        ([[0, 0]], [[1, 1], [1, 1]], "upper has 2 rows"),
        ([0, math.nan], [1, 1], "lower"),
    ):
        with pytest.raises(DataError, match=words):
            tree.count(low_corner, high_corner)
    line = PrivTree(Box(0, 1), 1.0, seed=1).fit(np.linspace(0, 1, 500))
    assert line.count(0, 1) == pytest.approx(line.total)
    assert line.count([0, 0.5], [0.5, 1]).sum() == pytest.approx(line.total)


def test_counts_are_the_expectation_of_sampled_points() -> None:
    tree = PrivTree(SQUARE, 1.0, seed=7).fit(points_of(2000))
    low, high = np.array([-0.31, 0.1]), np.array([0.47, 0.93])
    generator = np.random.default_rng(stat.seed(82))
    runs, hits, sizes = 400, [], []
    for _ in range(runs):
        sample = tree.sample(generator)
        hits.append(np.count_nonzero(((sample >= low) & (sample < high)).all(axis=1)))
        sizes.append(len(sample))
    inside = np.minimum(tree.upper, high) - np.maximum(tree.lower, low)
    part = np.prod(np.maximum(inside, 0) / (tree.upper - tree.lower), axis=1)
    variance = np.sum(tree.counts * part * (1 - part) + 0.25 * part**2)
    z = (np.mean(hits) - tree.count(low, high)) / math.sqrt(variance / runs)
    # The rounding's variance is at most 1/4 a cell: z is no more than standard normal.
    stat.accept(math.erfc(abs(z) / math.sqrt(2)))
    wrong = (np.mean(hits) - 1.03 * tree.count(low, high)) / math.sqrt(variance / runs)
    stat.reject(math.erfc(abs(wrong) / math.sqrt(2)))
    spread = math.sqrt(0.25 * tree.n_leaves / runs)
    stat.accept(math.erfc(abs(np.mean(sizes) - tree.total) / spread / math.sqrt(2)))
    stat.reject(math.erfc(abs(np.mean(sizes) + 0.25 * tree.n_leaves - tree.total) / spread / math.sqrt(2)))


def test_a_general_domain_that_is_a_box_gives_the_same() -> None:
    one, other = (PHDStream(domain, 1.0, "block", key=bound_key(8)) for domain in (SQUARE, Plain(SQUARE)))
    for points in np.array_split(points_of(3000), 5):
        assert np.array_equal(one.step(points), other.step(points))
    low, high = np.array([[-0.3, 0.1], [0.0, 0.0]]), np.array([[0.5, 0.7], [1.0, 1.0]])
    assert np.allclose(one.count(low, high), other.count(low, high))


def test_shares_go_by_measure() -> None:
    below = Plain(HalfBox([-1.0, 0.0], [1.0, 4.0], 1.9))
    stream = PHDStream(below, 1.0, seed=9, max_depth=10)
    for points in np.array_split(points_of(5000), 5):
        assert below.contains(stream.step(points)).all()
        assert (stream.tree.lower[:, 1] < 1.9).all(), "cells without a part of the domain are no leaves"
        assert stream.tree.counts.sum() == pytest.approx(stream.total)
    assert stream.total == pytest.approx(5000, abs=400)
    assert stream.count([-1, 0], [1, 4]) == pytest.approx(stream.total)
    # The cut leaf's count lies below the line.
    assert stream.count([-1, 1.8], [1, 4]) == pytest.approx(stream.count([-1, 1.8], [1, 1.9]))
    with pytest.raises(DataError, match=r"^added\[0\]: a point outside the domain \(1 of 1 entries\)"):
        stream.step([[0.0, 2.0]])
    with pytest.raises(ParameterError, match="measure"):
        PHDStream(Plain(HalfBox([0.0, 0.0], [1.0, 1.0], -1.0)), 1.0)


def test_data_frames_are_points() -> None:
    import pandas as pd
    import polars as pl

    points = points_of(200)
    expected = PrivTree(SQUARE, 1.0, seed=3).fit(points).counts
    for frame in (pd.DataFrame(points), pl.DataFrame(points), points.tolist(), points.astype(object), points[::-1]):
        assert np.array_equal(PrivTree(SQUARE, 1.0, seed=3).fit(frame).counts, expected)


LOWER, UPPER = np.array([-74.0, 40.0]), np.array([-70.0, 41.0])


def shares(queries, lower=LOWER, upper=UPPER) -> np.ndarray:
    return np.prod((queries.upper - queries.lower) / (upper - lower), axis=1)


def test_the_papers_sets() -> None:
    sets = paper_queries(LOWER, UPPER, seed=1)
    for (name, queries), size, low in zip(sets.items(), (10_000, 5_000, 1_000), (1e-4, 1e-3, 1e-2), strict=True):
        assert (queries.name, len(queries)) == (name, size)
        parts = shares(queries)
        assert np.all((parts >= low * (1 - 1e-9)) & (parts < 10 * low))
        assert np.all((queries.lower >= LOWER) & (queries.upper <= UPPER))
    assert list(sets) == ["small", "medium", "large"]
    assert not np.array_equal(sets["medium"].lower[:10], sets["large"].lower[:10])


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_distributions_of_sides_and_places(dim: int) -> None:
    """Sides are uniform between the roots of the limits, places where the box fits."""
    low, high = 0.05, 0.4
    queries = random_boxes(np.zeros(dim), np.ones(dim), 60_000, low, high, seed=stat.seed(511))
    sides = queries.upper - queries.lower
    least, most = low ** (1 / dim), high ** (1 / dim)
    for axis in range(dim):
        uniform = (sides[:, axis] - least) / (most - least)
        stat.accept(stats.kstest(uniform, "uniform").pvalue)
        stat.accept(stats.kstest(queries.lower[:, axis] / (1 - sides[:, axis]), "uniform").pvalue)
        stat.reject(stats.kstest(queries.lower[:, axis] / (1 - least), "uniform").pvalue)
        stat.reject(stats.kstest(uniform**1.1, "uniform").pvalue)


def test_clipped_boxes_as_in_the_published_code() -> None:
    queries = random_boxes(LOWER, UPPER, 20_000, 0.01, 0.1, placement="clipped", seed=2)
    assert np.all((queries.lower >= LOWER) & (queries.upper <= UPPER) & (queries.lower < queries.upper))
    cut = np.any(queries.upper == UPPER, axis=1)
    parts = shares(queries)
    assert 0.1 < cut.mean() < 0.5
    assert parts[cut].min() < parts[~cut].max()
    assert np.all((parts[~cut] >= 0.01 * (1 - 1e-9)) & (parts[~cut] < 0.1))
    assert np.all(queries.lower <= LOWER + 0.9 * (UPPER - LOWER) + 1e-12)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("lower", lambda: random_boxes([0, np.nan], [1, 1], 5, 0.1, 0.2)),
        ("low, high", lambda: random_boxes([0, 0], [1, 1], 5, 0.3, 1.2)),
        ("placement", lambda: random_boxes([0], [1], 5, 0.1, 0.2, placement="outside")),
        ("seed", lambda: paper_queries([0], [1], seed=-1)),
    ],
)
def test_bad_arguments_are_named(name: str, call) -> None:
    with pytest.raises(ParameterError, match=name):
        call()


def test_points_of_a_leaf_outside_count_in_the_nearest_sibling_inside() -> None:
    """On either side of it: here cells 1 and 3 are inside, and the strays are in cell 4 or 2."""
    for stray, leaves in ((4, [0, 3]), (2, [3, 0])):
        ends, none = np.zeros((5, 4), np.int64), np.full(5, -1)
        ends[stray] = 0, 3, 0, 0
        tree = decomposition.Tree(
            parent=np.array([-1, 0, 0, 0, 0]),
            first=np.array([1, *none[1:]]),
            ends=ends,
            leaves=np.array([1, 3]),
            measure=np.array([2.0, 1.0, 0.0, 1.0, 0.0]),
        )
        net = np.zeros(2, np.int64)
        decomposition._route_strays(SimpleNamespace(fan_out=4), tree, net)
        assert net.tolist() == leaves
