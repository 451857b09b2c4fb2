"""Areas as a domain: land, a city, a park, from shapely or geopandas geometry (extra ``geo``)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdp import validation
from fastdp.arrays.kinds import Floats, Integers
from fastdp.spatial.checks import as_boxes, as_points
from fastdp.spatial.geometry import as_corners, as_geometries, draw_pieces, keep_in_cells, load, plane_scales
from fastdp.state import codec

#: Polygons with more corners are cut in halves until they have fewer: cells then meet small pieces only.
MAX_CORNERS = 256


class Polygons:
    """The area covered by polygons.

    Cells carry the area of the domain inside them, and points are sampled evenly from it.

    Parameters
    ----------
    geometry : shapely Polygon or MultiPolygon, a list of these, GeoSeries or GeoDataFrame
        Public.  Overlapping polygons count once.
    geographic : bool
        Whether coordinates are degrees, x = longitude, y = latitude; areas are then in square kilometres, measured
        in the plane whose degrees have the lengths they have at the middle latitude.  Coordinates are never changed:
        an even density is even in (x, y), also on a domain that spans many latitudes, as in PHDStream's code.

    Attributes
    ----------
    dim : int
        2.
    lower, upper : float64[2]
        Bounding box.
    area : float
        Of the whole domain, in squared units of the coordinates, or square kilometres.

    Raises
    ------
    ParameterError
        If the geometry is no valid polygon, or is not geographic though said to be.
    ImportError
        If shapely is not installed.

    Notes
    -----
    Source: PHDStream Appendices F and G (geometries of the data sets).  A polygon holds its border.
    """

    dim = 2
    rule: ClassVar[int] = 1

    @validation.plain
    def __init__(self, geometry: Any, *, geographic: bool = False) -> None:
        shapely = load("shapely")
        union = shapely.union_all(as_geometries(geometry, "geometry", ("Polygon",)))
        lower, upper = (np.array(corner) for corner in (union.bounds[:2], union.bounds[2:]))
        self._settle(_small_parts(shapely, union), lower, upper, bool(geographic), float(union.area))

    def _settle(self, parts: Any, lower: Floats, upper: Floats, geographic: bool, plane_area: float) -> None:
        """Take small parts that tile the area."""
        self.lower, self.upper, self.geographic = lower, upper, geographic
        self._scale = float(np.prod(plane_scales(lower, upper, geographic)))
        self._plane_area = plane_area
        self.area = self._scale * plane_area
        self._tree = load("shapely").STRtree(parts)
        self.lower.flags.writeable = self.upper.flags.writeable = False

    def __repr__(self) -> str:
        return f"Polygons(<{self.area:g}{' km^2' if self.geographic else ''}>, geographic={self.geographic})"

    def describe(self) -> dict[str, Any]:
        """The small parts, for a state file: whole polygons would be cut again and rounded differently."""
        shapely = load("shapely")
        raw = shapely.to_wkb(shapely.geometrycollections(self._tree.geometries))
        return {
            "parts": codec.pack(np.frombuffer(raw, np.uint8), "u1"),
            **{name: codec.describe(getattr(self, name)) for name in ("lower", "upper", "geographic")},
            "plane_area": self._plane_area,
        }

    def identity(self) -> dict[str, Any]:
        """The same for noise keys, as it is: what a library makes smaller depends on its version."""
        shapely = load("shapely")
        plain = {name: getattr(self, name) for name in ("lower", "upper", "geographic")}
        return {**plain, "parts": shapely.to_wkb(shapely.geometrycollections(self._tree.geometries))}

    @classmethod
    def from_description(cls, parts: str, lower: Any, upper: Any, geographic: bool, plane_area: float) -> Polygons:
        """The area that was described; ValueError if it was not."""
        shapely = load("shapely")
        try:
            whole = shapely.from_wkb(codec.unpack(parts, "u1").tobytes())
        except shapely.errors.ShapelyError as error:
            raise ValueError(f"no polygons: {error}") from None
        small = shapely.get_parts(whole)
        area = object.__new__(cls)
        low, high = (codec.restore(Floats, corner) for corner in (lower, upper))
        if not small.size or not all(part.geom_type == "Polygon" and part.is_valid for part in small):
            raise ValueError("no polygons")
        area._settle(small, *as_corners(low, high), geographic is True, codec.restore(float, plane_area))
        return area

    def measure(self, lower: ArrayLike, upper: ArrayLike) -> Floats:
        """Area of the domain inside each cell.

        Parameters
        ----------
        lower, upper : array-like[n, 2]
            The cells.

        Returns
        -------
        float64[n]
            In squared units of the coordinates, or square kilometres.
        """
        low, high = as_boxes(lower, upper, 2, finite=True)
        shapely = load("shapely")
        cells, pieces = self._pieces(low, high)
        areas: Floats = shapely.area(pieces) * self._scale
        # Of nothing, bincount makes integers.
        return np.asarray(np.bincount(cells, weights=areas, minlength=low.shape[0]), dtype=np.float64)

    def sample(self, lower: ArrayLike, upper: ArrayLike, counts: ArrayLike, generator: np.random.Generator) -> Floats:
        """Points drawn evenly from the part of the domain inside each cell.

        Parameters
        ----------
        lower, upper : array-like[n, 2]
            The cells.
        counts : array-like[n]
            Whole numbers of points.
        generator : numpy.random.Generator
            Where uniform numbers come from.

        Returns
        -------
        float64[sum of counts, 2]
            Cell by cell.

        Raises
        ------
        ParameterError
            If points are requested in a cell that holds none of the domain.

        Notes
        -----
        The pieces inside the cells are cut into triangles, so no draw is rejected, however thin a piece is.
        """
        low, high = as_boxes(lower, upper, 2, finite=True)
        numbers = np.asarray(counts, dtype=np.int64)
        corners, cells = self._triangles(low, high, np.flatnonzero(numbers > 0))
        sides = corners[:, 1:] - corners[:, :1]
        areas = 0.5 * np.abs(sides[:, 0, 0] * sides[:, 1, 1] - sides[:, 0, 1] * sides[:, 1, 0])
        real = areas > 0.0
        corners, sides, cells = corners[real], sides[real], cells[real]
        chosen = draw_pieces(cells, areas[real], numbers, generator)
        along = generator.random((chosen.size, 2))
        # The square's half beyond its diagonal is turned onto the other half.
        along = np.where(along.sum(axis=1, keepdims=True) > 1.0, 1.0 - along, along)
        points = corners[chosen, 0] + np.einsum("ij,ijk->ik", along, sides[chosen])
        return keep_in_cells(points, low[cells[chosen]], high[cells[chosen]], self.upper)

    def contains(self, points: ArrayLike) -> NDArray[np.bool_]:
        """Whether each point lies in the domain or on its border: bool[n] for array-like[n, 2]."""
        table = as_points(points, "points", 2)
        inside = np.zeros(table.shape[0], np.bool_)
        inside[self._tree.query(load("shapely").points(table), predicate="intersects")[0]] = True
        return inside

    def _pieces(self, low: Floats, high: Floats) -> tuple[Integers, Any]:
        """Intersections of cells with parts of the domain: numbers of the cells, ascending, and polygons."""
        shapely = load("shapely")
        boxes = shapely.box(low[:, 0], low[:, 1], high[:, 0], high[:, 1])
        cells, parts = self._tree.query(boxes, predicate="intersects")
        order = np.argsort(cells, kind="stable")
        cells, parts = cells[order].astype(np.int64), parts[order]
        pieces, owner = shapely.get_parts(
            shapely.intersection(boxes[cells], self._tree.geometries[parts]), return_index=True
        )
        areal = shapely.get_type_id(pieces) == shapely.GeometryType.POLYGON
        return cells[owner[areal]], pieces[areal]

    def _triangles(self, low: Floats, high: Floats, asked: Integers) -> tuple[Floats, Integers]:
        """Corners float64[t, 3, 2] of triangles that tile the domain in the requested cells, and their cells."""
        shapely = load("shapely")
        cells, pieces = self._pieces(low[asked], high[asked])
        triangles, owner = shapely.get_parts(shapely.constrained_delaunay_triangles(pieces), return_index=True)
        corners = shapely.get_coordinates(triangles).reshape(-1, 4, 2)[:, :3]
        return corners, asked[cells[owner]]


def _small_parts(shapely: Any, union: Any) -> Any:
    """Polygons with few corners that tile the union, by halving larger ones across their longer side."""
    waiting, done = list(shapely.get_parts(union)), []
    while waiting:
        part = waiting.pop()
        if part.geom_type != "Polygon":
            continue  # the border that a cut has in common with the polygon
        if shapely.get_num_coordinates(part) <= MAX_CORNERS:
            done.append(part)
            continue
        left, bottom, right, top = part.bounds
        wide = right - left >= top - bottom
        middle = 0.5 * (left + right) if wide else 0.5 * (bottom + top)
        first = shapely.box(left, bottom, middle, top) if wide else shapely.box(left, bottom, right, middle)
        second = shapely.box(middle, bottom, right, top) if wide else shapely.box(left, middle, right, top)
        for half in (first, second):
            waiting.extend(shapely.get_parts(shapely.intersection(part, half)))
    return np.array(done, dtype=object)
