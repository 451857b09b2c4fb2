"""Polygons and networks: measures that add up, even samples, who is inside; files that map programs read."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from fastdp.errors import ParameterError
from fastdp.points import Network, Polygons
from fastdp.points.maps import EARTH_RADIUS, draw_pieces
from tests import stat

shapely = pytest.importorskip("shapely", reason="the extra 'geo' (shapely, geopandas) is not installed")
KM = EARTH_RADIUS * math.pi / 180


def grid(domain, columns: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    xs = np.linspace(domain.lower[0], domain.upper[0], columns + 1)
    ys = np.linspace(domain.lower[1], domain.upper[1], rows + 1)
    lower = np.stack(np.meshgrid(xs[:-1], ys[:-1]), -1).reshape(-1, 2)
    upper = np.stack(np.meshgrid(xs[1:], ys[1:]), -1).reshape(-1, 2)
    return lower, upper


def star(corners: int = 2001):
    """A ragged shape with many corners, and a hole."""
    angles = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    radii = 2 + 0.7 * np.sin(7 * angles) + 0.2 * np.sin(91 * angles)
    outline = np.c_[3 * radii * np.cos(angles), radii * np.sin(angles)]
    return shapely.Polygon(outline, [[(-0.5, -0.5), (0.5, -0.5), (0.2, 0.6)]])


def test_areas_and_lengths_by_hand() -> None:
    """A road along the border of two cells belongs to one of them; the last cells hold the last border."""
    domain = Polygons(shapely.Polygon([(0, 0), (4, 0), (0, 2)]))
    assert (domain.lower.tolist(), domain.upper.tolist(), domain.area) == ([0, 0], [4, 2], 4.0)
    assert domain.measure(*grid(domain, 2, 1)).tolist() == [3.0, 1.0]
    assert domain.measure([[3.0, 1.0]], [[4.0, 2.0]]).tolist() == [0.0]
    assert domain.contains([[0, 0], [1, 1], [2, 1], [2.1, 1], [5, 5]]).tolist() == [True, True, True, False, False]
    roads = [[(0, 0), (4, 0)], [(2, 0), (2, 2)], [(4, 0), (4, 2)], [(0, 2), (4, 2)]]
    domain = Network([shapely.LineString(road) for road in roads])
    assert domain.length == 12.0
    assert domain.measure(*grid(domain, 2, 1)).tolist() == [4.0, 8.0]
    assert domain.measure(*grid(domain, 2, 2)).tolist() == [2.0, 4.0, 2.0, 4.0]
    flat = Network(shapely.LineString([(0, 5), (2, 5)]))
    assert (flat.lower.tolist(), flat.upper.tolist()) == ([0.0, 4.0], [2.0, 6.0])
    assert flat.measure([flat.lower], [flat.upper]).tolist() == [2.0]


@pytest.mark.parametrize("kind", ["polygons", "network"])
def test_measures_add_up_and_equal_shapelys(kind: str) -> None:
    roads = [shapely.LineString(each) for each in np.random.default_rng(5).random((60, 7, 2))]
    domain = Polygons(star()) if kind == "polygons" else Network(roads)
    lower, upper = grid(domain, 13, 17)
    found = domain.measure(lower, upper)
    shape, size = (star(), shapely.area) if kind == "polygons" else (shapely.union_all(roads), shapely.length)
    assert found.sum() == pytest.approx(size(shape), rel=1e-12)
    whole = size(shapely.intersection(shapely.box(*lower.T, *upper.T), shape))
    np.testing.assert_allclose(found, whole, atol=1e-9)


def test_overlaps_and_islands_count_once() -> None:
    squares = [shapely.box(0, 0, 2, 2), shapely.box(1, 0, 3, 2), shapely.box(10, 0, 11, 1)]
    for geometry in (squares, shapely.union_all(squares), np.array(squares, dtype=object)):
        domain = Polygons(geometry)
        assert domain.area == pytest.approx(7.0)
        assert domain.contains([[2.5, 1], [5, 0.5], [10.5, 0.5]]).tolist() == [True, False, True]
    # Features of GeoJSON are collections, and each may be a multi-part geometry.
    nested = shapely.GeometryCollection([shapely.GeometryCollection([shapely.MultiPolygon(squares[1:])]), squares[0]])
    assert Polygons(nested).area == pytest.approx(7.0)
    road = shapely.LineString([(0, 0), (1, 0), (1, 1)])
    assert Network([road, road.reverse()]).length == 2.0


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["polygons", "network"])
def test_samples_are_even(kind: str) -> None:
    """Counts in a finer grid against its measures; a domain with other measures is caught."""
    if kind == "polygons":
        domain, other = Polygons(star()), Polygons(star().convex_hull)
    else:
        generator = np.random.default_rng(1)
        roads = [shapely.LineString(generator.random((4, 2))) for _ in range(40)]
        domain, other = Network(roads), Network(roads[:36])
    lower, upper = grid(domain, 12, 12)
    generator = np.random.default_rng(stat.seed(501))
    counts = generator.multinomial(200_000, domain.measure(lower, upper) / domain.measure(lower, upper).sum())
    points = domain.sample(lower, upper, counts, generator)
    cell = np.repeat(np.arange(counts.size), counts)
    assert np.all((points >= lower[cell]) & (points <= upper[cell]))
    assert domain.contains(points).mean() > 0.9999  # but for the last digit
    fine_lower, fine_upper = grid(domain, 36, 36)
    edges = [np.linspace(domain.lower[a], domain.upper[a], 37) for a in (1, 0)]
    observed = np.histogram2d(points[:, 1], points[:, 0], edges)[0].ravel().astype(np.int64)
    exact, wrong = (d.measure(fine_lower, fine_upper) for d in (domain, other))
    stat.accept(stat.chi_square_p(observed[exact > 0], exact[exact > 0] / exact.sum()))
    seen = (exact > 0) & (wrong > 0)
    stat.reject(stat.chi_square_p(observed[seen], wrong[seen] / wrong[seen].sum()))


def test_nothing_to_sample() -> None:
    for domain in (Polygons(star()), Network(shapely.LineString([(0, 0), (1, 1)]))):
        empty = np.empty((0, 2))
        assert domain.sample(empty, empty, [], np.random.default_rng(3)).shape == (0, 2)
        assert domain.sample([[90, 90]], [[91, 91]], [0], np.random.default_rng(3)).shape == (0, 2)
        assert domain.measure(empty, empty).shape == (0,)
        assert domain.measure([[90, 90]], [[91, 91]]).tolist() == [0.0]
        assert domain.measure(empty, empty).dtype == np.float64
        assert domain.contains(empty).shape == (0,)
        with pytest.raises(ParameterError, match="cell 1"):
            domain.sample([domain.lower, [90, 90]], [domain.upper, [91, 91]], [1, 1], np.random.default_rng(3))


def test_pieces_are_drawn_within_their_cells() -> None:
    weights, counts = np.array([1e-300, 3e-300, 1e300]), np.array([0, 4000, 0, 2])
    chosen = draw_pieces(np.array([1, 1, 3]), weights, counts, np.random.default_rng(4))
    assert (chosen[-2:].tolist(), set(chosen[:-2].tolist())) == ([2, 2], {0, 1})
    assert 900 < np.sum(chosen == 0) < 1100


def test_a_street_graph() -> None:
    def edges(data: bool) -> list:
        assert data
        return [(1, 2, {}), (2, 1, {"geometry": shapely.LineString([(3, 4), (3, 0), (0, 0)])})]

    graph = SimpleNamespace(edges=edges, nodes={1: {"x": 0.0, "y": 0.0}, 2: {"x": 3.0, "y": 4.0}})
    assert Network(graph).length == 12.0


def test_snapping() -> None:
    domain = Network([shapely.LineString([(0, 0), (4, 0)]), shapely.LineString([(4, 0), (4, 4)])])
    points = np.array([[1.0, 0.3], [5.0, 2.0], [-3.0, -1.0], [4.0, 9.0], [2.0, 0.0]])
    assert domain.snap(points).tolist() == [[1, 0], [4, 2], [0, 0], [4, 4], [2, 0]]
    assert domain.contains(points).tolist() == [False, False, False, False, True]
    assert domain.contains(domain.snap(points)).all()
    near = Network(shapely.LineString([(0, 0), (4, 0)]), tolerance=0.5)
    assert near.contains([[1, 0.3], [1, 0.6]]).tolist() == [True, False]


def test_degrees() -> None:
    """A degree of longitude at 60 degrees north is half as long as one of latitude."""
    box = shapely.box(10, 59, 12, 61)
    land = Polygons(box, geographic=True)
    assert land.area == pytest.approx(2 * KM * 2 * KM * 0.5)
    plain = Polygons(box)
    lower, upper = grid(land, 4, 4)
    shares = land.measure(lower, upper) / land.area
    np.testing.assert_allclose(shares, plain.measure(lower, upper) / plain.area)
    cross = [shapely.LineString([(10, 60), (12, 60)]), shapely.LineString([(11, 59), (11, 61)])]
    roads = Network(cross, geographic=True)
    assert roads.length == pytest.approx(3 * KM)
    west, north = roads.measure([[10, 59.5], [10.5, 60.5]], [[10.5, 60.5], [11.5, 61]])
    assert (west, north) == (pytest.approx(KM / 4), pytest.approx(KM / 2))
    # In kilometres this point is nearer to the street that runs east.
    assert roads.snap([[11.3, 60.2]])[0].tolist() == [11.0, 60.2]
    assert Network(cross).snap([[11.3, 60.2]])[0].tolist() == [11.3, 60.0]
    for domain in (Polygons, Network):
        with pytest.raises(ParameterError, match="geographic"):
            domain(
                shapely.box(0, 0, 300, 1) if domain is Polygons else [*cross, shapely.box(0, 0, 300, 1).exterior],
                geographic=True,
            )


def test_a_hair_beyond_the_earth_is_accepted() -> None:
    land = Polygons(shapely.box(170, -90 - 1e-9, 180.00000000000006, 0), geographic=True)
    assert land.upper[0] == 180.00000000000006
    street = shapely.LineString([(-180 - 5e-8, 0), (0, 90 + 5e-8)])
    assert Network(street, geographic=True).lower[0] == -180 - 5e-8
    for wrong in (shapely.box(170, 0, 180.001, 1), shapely.box(0, -90.001, 1, 0)):
        with pytest.raises(ParameterError, match="longitude"):
            Polygons(wrong, geographic=True)


@pytest.mark.parametrize(
    "bad",
    [
        *(None, 3, "POINT (1 2)", [], [None], shapely.Point(1, 2), shapely.Polygon()),
        shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)]),
        shapely.LineString([(0, 0), (0, 0)]),
    ],
)
def test_bad_geometry_is_named(bad) -> None:
    with pytest.raises(ParameterError, match="geometry"):
        Polygons(bad)
    with pytest.raises(ParameterError, match="lines"):
        Network(bad)


def test_without_shapely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shapely", None)
    with pytest.raises(ParameterError, match=r"fastdp-streams\[geo\]"):
        Polygons(SimpleNamespace())


def test_areas_of_a_geopandas_frame() -> None:
    geopandas = pytest.importorskip("geopandas", reason="the extra 'geo' (shapely, geopandas) is not installed")
    cells = geopandas.GeoDataFrame(geometry=[shapely.box(0, 0, 1, 2), shapely.box(1, 0, 3, 2)])
    assert Polygons(cells).area == Polygons(cells.geometry).area == 6.0


def test_points_are_inside_where_the_polygons_cover_them() -> None:
    """Corners and edges of the grid's cells too, and points around them."""
    hole = shapely.Polygon([(0, 0), (8, 0), (8, 8), (0, 8)], [[(2, 2), (6, 2), (6, 6), (2, 6)]])
    area = Polygons([hole, shapely.Point(12.0, 3.0).buffer(2.0)])
    lattice = np.stack(np.meshgrid(np.linspace(0.0, 14.0, 65), np.linspace(0.0, 8.0, 65)), axis=-1).reshape(-1, 2)
    points = np.concatenate(
        [lattice, np.nextafter(lattice, -np.inf), np.random.default_rng(1).uniform(-1, 15, (5000, 2))]
    )
    whole = shapely.union_all(area._tree.geometries)
    assert np.array_equal(area.contains(points), shapely.intersects_xy(whole, *points.T))
