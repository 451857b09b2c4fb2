"""Areas (land, a city) and lines (roads, rivers) as domains, from shapely, geopandas or a street graph (``geo``)."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdp import validation
from fastdp.kinds import Floats, Integers
from fastdp.spatial.boxes import as_boxes, as_points
from fastdp.spatial.geometry import as_corners, as_geometries, draw_pieces, keep_in_cells, load, plane_scales
from fastdp.state import codec

#: Polygons with more corners are cut in halves until they have fewer: cells then meet small pieces only.
MAX_CORNERS = 256
#: Default tolerance of ``Network.contains`` as a part of the bounding box's longer side: the rounding of coordinates.
ROUNDING = 1e-9
Corners = tuple[Floats, Floats]


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
        If the geometry is no valid polygon, or is not geographic though said to be; if shapely is not installed.

    Notes
    -----
    Source: PHDStream Appendices F and G (geometries of the data sets).  A polygon holds its border.
    """

    rule: ClassVar[int] = 1
    dim = 2

    @validation.plain
    def __init__(self, geometry: Any, *, geographic: bool = False) -> None:
        shapely = load("shapely")
        union = shapely.union_all(as_geometries(geometry, "geometry", ("Polygon",)))
        lower, upper = (np.array(corner) for corner in (union.bounds[:2], union.bounds[2:]))
        self._settle(
            _small_parts(shapely, union), lower, upper, validation.flag("geographic", geographic), float(union.area)
        )

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


class _Pieces(NamedTuple):
    """Parts of segments inside cells: from ``enter`` to ``leave`` as parts of the segment; cells ascend."""

    cells: Integers
    segments: Integers
    enter: Floats
    leave: Floats


class Network:
    """The set of points on lines.

    Cells carry the length of line inside them, and points are sampled evenly along it.

    Parameters
    ----------
    lines : shapely LineString or MultiLineString, a list of these, GeoSeries, GeoDataFrame, or a networkx graph
        Public.  A graph's edges are their attribute ``geometry`` or the straight line between nodes with the
        attributes ``x`` and ``y`` (as OSMnx writes them).  Lines that lie on one another count once, say the two
        directions of a street.
    geographic : bool
        Whether coordinates are degrees, x = longitude, y = latitude; lengths and distances are then in kilometres,
        measured in the plane whose degrees have the lengths they have at the middle latitude.  Coordinates are
        never changed.
    tolerance : float, optional
        Greatest distance from a line at which :meth:`contains` accepts a point; by default the rounding of
        coordinates.  Measured positions are off the lines by more: bring them there by :meth:`snap`.

    Attributes
    ----------
    dim : int
        2.
    lower, upper : float64[2]
        Bounding box; a side without extent is widened to that of the other.
    length : float
        Of all lines, in units of the coordinates, or kilometres.

    Raises
    ------
    ParameterError
        If there is no line with a length, or it is not geographic though said to be; if shapely is not installed.

    Notes
    -----
    Source: PHDStream Appendix G (road network of Manhattan).
    """

    rule: ClassVar[int] = 1
    dim = 2

    @validation.plain
    def __init__(self, lines: Any, *, geographic: bool = False, tolerance: float | None = None) -> None:
        shapely = load("shapely")
        if hasattr(lines, "edges") and hasattr(lines, "nodes"):
            lines = _lines_of_graph(shapely, lines)
        union = shapely.union_all(as_geometries(lines, "lines", ("LineString", "LinearRing")))
        coordinates, line = shapely.get_coordinates(shapely.get_parts(union), return_index=True)
        follows = (line[1:] == line[:-1]) & (coordinates[1:] != coordinates[:-1]).any(axis=1)
        starts = coordinates[:-1][follows]
        low, high = coordinates.min(axis=0), coordinates.max(axis=0)
        flat = high == low
        margin = np.where(flat, 0.5 * (high - low).max(), 0.0)
        scales = plane_scales(low, high, validation.flag("geographic", geographic))
        low, high = low - margin, high + margin
        if tolerance is None:
            tolerance = ROUNDING * float(((high - low) * scales).max())
        tolerance = validation.positive("tolerance", tolerance)
        self._settle(starts, coordinates[1:][follows] - starts, (low, high), scales, bool(geographic), tolerance)

    def _settle(
        self, starts: Floats, steps: Floats, corners: Corners, scales: Floats, geographic: bool, tolerance: float
    ) -> None:
        """Take segments."""
        shapely = load("shapely")
        self._starts, self._steps = starts, steps
        (self.lower, self.upper), self.geographic = corners, geographic
        self._scales, self._tolerance = scales, tolerance
        self._lengths = np.hypot(*(steps * scales).T)
        self.length = float(self._lengths.sum())
        self._tree = shapely.STRtree(shapely.linestrings(np.stack([starts, starts + steps], axis=1) * scales))
        self.lower.flags.writeable = self.upper.flags.writeable = False

    def __repr__(self) -> str:
        return f"Network(<{self.length:g}{' km' if self.geographic else ''}>, geographic={self.geographic})"

    def describe(self) -> dict[str, Any]:
        """The segments, for a state file: lines would be joined and cut again, in another order."""
        return {name: codec.describe(value) for name, value in self.identity().items()}

    def identity(self) -> dict[str, Any]:
        """The same for noise keys, as it is: what a library makes smaller depends on its version."""
        names = ("starts", "steps", "lower", "upper", "scales", "geographic", "tolerance")
        return {name: getattr(self, name if hasattr(self, name) else f"_{name}") for name in names}

    @classmethod
    def from_description(cls, geographic: bool, tolerance: float, **arrays: Any) -> Network:
        """The lines that were described; ValueError if they were not."""
        starts, steps, lower, upper, scales = (
            codec.restore(Floats, arrays.pop(name)) for name in ("starts", "steps", "lower", "upper", "scales")
        )
        if arrays or starts.ndim != 2 or starts.shape[1] != 2 or steps.shape != starts.shape or not starts.size:
            raise ValueError("no segments")
        if not (
            np.isfinite(starts).all() and np.isfinite(steps).all() and scales.shape == (2,) and (scales > 0).all()
        ):
            raise ValueError("segments out of range")
        network = object.__new__(cls)
        checked = geographic is True, validation.positive("tolerance", tolerance)
        network._settle(starts, steps, as_corners(lower, upper), scales, *checked)
        return network

    def measure(self, lower: ArrayLike, upper: ArrayLike) -> Floats:
        """Length of the lines inside each cell, as :meth:`Polygons.measure`.

        Cells are half-open, those at the domain's upper border closed.
        """
        low, high = as_boxes(lower, upper, 2, finite=True)
        pieces = self._pieces(low, high)
        lengths = (pieces.leave - pieces.enter) * self._lengths[pieces.segments]
        # Of nothing, bincount makes integers.
        return np.asarray(np.bincount(pieces.cells, weights=lengths, minlength=low.shape[0]), dtype=np.float64)

    def sample(self, lower: ArrayLike, upper: ArrayLike, counts: ArrayLike, generator: np.random.Generator) -> Floats:
        """Points drawn evenly along the lines inside each cell, as :meth:`Polygons.sample`."""
        low, high = as_boxes(lower, upper, 2, finite=True)
        numbers = np.asarray(counts, dtype=np.int64)
        pieces = self._pieces(low, high)
        weights = (pieces.leave - pieces.enter) * self._lengths[pieces.segments]
        chosen = draw_pieces(pieces.cells, weights, numbers, generator)
        enter, leave = pieces.enter[chosen], pieces.leave[chosen]
        along = enter + (leave - enter) * generator.random(chosen.size)
        segment, cell = pieces.segments[chosen], pieces.cells[chosen]
        points = self._starts[segment] + along[:, None] * self._steps[segment]
        return keep_in_cells(points, low[cell], high[cell], self.upper)

    def contains(self, points: ArrayLike) -> NDArray[np.bool_]:
        """Whether each point lies on a line, up to the tolerance: bool[n] for array-like[n, 2]."""
        table = as_points(points, "points", 2)
        places = load("shapely").points(table * self._scales)
        inside = np.zeros(table.shape[0], np.bool_)
        inside[self._tree.query(places, predicate="dwithin", distance=self._tolerance)[0]] = True
        return inside

    def snap(self, points: ArrayLike) -> Floats:
        """The place on the lines that is nearest to each point.

        Each point moves on its own, so a stream and its neighbour stay neighbours: use it before publishing.

        Parameters
        ----------
        points : array-like[n, 2]
            Say, positions by satellite.

        Returns
        -------
        float64[n, 2]
        """
        table = as_points(points, "points", 2)
        nearest = self._tree.nearest(load("shapely").points(table * self._scales))
        steps = self._steps[nearest] * self._scales
        offsets = (table - self._starts[nearest]) * self._scales
        along = np.clip((offsets * steps).sum(axis=1) / (steps * steps).sum(axis=1), 0.0, 1.0)
        places: Floats = np.clip(
            self._starts[nearest] + along[:, None] * self._steps[nearest], self.lower, self.upper
        )
        return places

    def _pieces(self, low: Floats, high: Floats) -> _Pieces:
        """Clip segments to cells (Liang and Barsky, ACM TOG 3(1), 1984)."""
        shapely = load("shapely")
        boxes = shapely.box(*(low * self._scales).T, *(high * self._scales).T)
        cells, segments = self._tree.query(boxes)
        order = np.argsort(cells, kind="stable")
        cells, segments = cells[order].astype(np.int64), segments[order].astype(np.int64)
        begin, end = low[cells], high[cells]
        start, step = self._starts[segments], self._steps[segments]
        with np.errstate(divide="ignore", invalid="ignore"):
            first, second = (begin - start) / step, (end - start) / step
        still = step == 0.0
        # A line along a border belongs to one of the two cells, as points on it do.
        beside = still & ((start < begin) | ((start >= end) & ~((start == end) & (end == self.upper))))
        enter = np.where(still, 0.0, np.minimum(first, second)).max(axis=1)
        leave = np.where(still, 1.0, np.maximum(first, second)).min(axis=1)
        enter, leave = np.maximum(enter, 0.0), np.minimum(leave, 1.0)
        inside = (leave > enter) & ~beside.any(axis=1)
        return _Pieces(cells[inside], segments[inside], enter[inside], leave[inside])


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


def _lines_of_graph(shapely: Any, graph: Any) -> list[Any]:
    """Edges of a street graph as lines."""
    lines = []
    for tail, head, attributes in graph.edges(data=True):
        line = attributes.get("geometry")
        if line is None:
            line = shapely.linestrings([[graph.nodes[end]["x"], graph.nodes[end]["y"]] for end in (tail, head)])
        lines.append(line)
    return lines
