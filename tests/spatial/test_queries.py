"""Query sets have the paper's sizes, areas and distributions; the relative error is the printed formula."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fastdp.errors import ParameterError
from fastdp.spatial import CellIndex
from fastdp_lab.queries.boxes import PointIndex, paper_queries, random_boxes, relative_error
from tests import stat

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


def test_seeds() -> None:
    first, same, other = (random_boxes(LOWER, UPPER, 50, 0.1, 0.2, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.lower, same.lower)
    assert np.array_equal(first.upper, same.upper)
    assert not np.array_equal(first.lower, other.lower)
    assert not np.array_equal(*(random_boxes(LOWER, UPPER, 50, 0.1, 0.2).lower for _ in range(2)))
    assert len(random_boxes(LOWER, UPPER, 0, 0.1, 0.2)) == 0


def test_relative_error_by_hand() -> None:
    # Denominators 10, 20, 5 (0.001 of 5,000), 5.
    assert relative_error([10, 20, 0, 4], [13, 18, 1, 4], 5000) == pytest.approx((0.3 + 0.1 + 0.2 + 0.0) / 4)
    # No floor of one point, unlike the published code.
    assert relative_error([0], [1], 100) == pytest.approx(10.0)


def test_cells_answer_as_their_points_on_average() -> None:
    """Box counts from cells are the expectation of those of points spread evenly in the cells."""
    generator = np.random.default_rng(stat.seed(512))
    edges = np.linspace(0, 1, 9)
    low = np.stack(np.meshgrid(edges[:-1], edges[:-1]), -1).reshape(-1, 2)
    contents = generator.integers(0, 2000, 64)
    points = np.repeat(low, contents, axis=0) + generator.random((contents.sum(), 2)) / 8
    queries = random_boxes([0, 0], [1, 1], 400, 0.01, 0.1, seed=5)
    cells = CellIndex(low, low + 0.125, contents)
    expected = cells.count(queries.lower, queries.upper)
    counted = PointIndex(points).count(queries.lower, queries.upper)
    # A count is a sum of independent yes and no: its variance is at most the expectation.
    assert np.all(np.abs(counted - expected) <= 7 * np.sqrt(expected) + 7)
    shifted = cells.count(queries.lower + 0.02, queries.upper + 0.02)
    assert np.any(np.abs(shifted - expected) > 7 * np.sqrt(expected) + 7), "the comparison must be able to fail"


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("lower", lambda: random_boxes([0, 0], [0, 1], 5, 0.1, 0.2)),
        ("lower", lambda: random_boxes([0, np.nan], [1, 1], 5, 0.1, 0.2)),
        ("count", lambda: random_boxes([0, 0], [1, 1], -1, 0.1, 0.2)),
        ("low", lambda: random_boxes([0, 0], [1, 1], 5, 0.0, 0.2)),
        ("low, high", lambda: random_boxes([0, 0], [1, 1], 5, 0.3, 1.2)),
        ("placement", lambda: random_boxes([0], [1], 5, 0.1, 0.2, placement="outside")),
        ("seed", lambda: paper_queries([0], [1], seed=-1)),
        ("total", lambda: relative_error([0], [1], 0)),
        ("truth", lambda: relative_error([-1], [1], 10)),
    ],
)
def test_bad_arguments_are_named(name: str, call) -> None:
    with pytest.raises(ParameterError, match=name):
        call()
