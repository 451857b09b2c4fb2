"""Polygons and networks of lines as domains (extra ``geo``)."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp._lazy import imported
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Floats, Integers, Json, Values
from fastdp.points.domains import Corners, Domain, as_boxes, as_points
from fastdp.record import values_of
from fastdp.state import codec
from fastdp.validation import refusal

#: Geometries of shapely, geopandas or networkx, or arrays of them: they have no types.
Geometries: TypeAlias = Any
#: Mean radius of the Earth in kilometres (IUGG).
EARTH_RADIUS = 6371.0088
#: Degrees, a centimetre, by which rounding may carry coordinates beyond the Earth's: Natural Earth's land ends at
#: 180.00000000000006.
TOLERANCE = 1e-7
#: Polygons with more corners are cut in halves until they have fewer: cells then meet small pieces only.
MAX_CORNERS = 256
#: Cells whose polygons are kept for the next step.
MAX_CUTS = 2**14
#: Public attributes of both domains.
CORNERS = ("lower", "upper", "geographic")
#: Default tolerance of ``Network.contains``, from rounding: a fraction of the bounding box's longer side.
ROUNDING = 1e-9


#: Chosen pieces and a generator in, one random point of each piece out.
Draw: TypeAlias = Callable[[Integers, np.random.Generator], Floats]


class Map(ABC):
    """Domain of shapely geometries."""

    rule: ClassVar[int] = 1
    dim = 2
    lower: Floats
    upper: Floats

    @abstractmethod
    def _sizes(self, low: Floats, high: Floats) -> tuple[Integers, Floats]: ...

    @abstractmethod
    def _samplers(self, low: Floats, high: Floats, counts: Integers) -> tuple[Integers, Floats, Draw]: ...

    def measure(self, lower: Values, upper: Values) -> Floats:
        """Area or length inside boxes, in (squared) units or (square) kilometres: float64[n].

        Boxes, array-like[n, 2], are half-open except at the domain's upper border.
        """
        low, high = as_boxes(lower, upper, 2, finite=True)
        cells, sizes = self._sizes(low, high)
        # Of nothing, bincount makes integers.
        return np.asarray(np.bincount(cells, weights=sizes, minlength=low.shape[0]), dtype=np.float64)

    def sample(self, lower: Values, upper: Values, counts: Values, generator: np.random.Generator) -> Floats:
        """Uniform points, box by box: float64[sum of counts, 2]; ParameterError outside the domain."""
        low, high = as_boxes(lower, upper, 2, finite=True)
        numbers = np.asarray(counts, dtype=np.int64)
        cells, sizes, draw = self._samplers(low, high, numbers)
        chosen = draw_pieces(cells, sizes, numbers, generator)
        points, cells = draw(chosen, generator), cells[chosen]
        # Rounding may move a point out of its half-open cell; cells at the domain's upper corner are closed.
        ends = np.where(high == self.upper, high, np.nextafter(high, low))
        return np.clip(points, low[cells], ends[cells])


class Polygons(Map):
    """Covers polygons, measured by area.

    Parameters
    ----------
    geometry : shapely Polygon or MultiPolygon, a list of these, GeoSeries or GeoDataFrame
        Public.  Overlapping polygons count once.
    geographic : bool
        True for degrees, x = longitude, y = latitude; areas are then in square kilometres.  Points are uniform in
        (x, y), as in PHDStream's code.

    Attributes
    ----------
    lower, upper : float64[2]
        Bounding box.
    area : float
        In squared units, or square kilometres.

    Raises
    ------
    ParameterError
        For invalid polygons or coordinates; without shapely.

    Examples
    --------
    >>> import shapely, fastdp
    >>> park = shapely.Polygon([(0, 0), (4, 0), (0, 3)])
    >>> fastdp.points.Polygons(park).area
    6.0
    """

    @validation.plain
    def __init__(self, geometry: Geometries, *, geographic: bool = False) -> None:
        shapely = load("shapely")
        union = shapely.union_all(as_geometries(geometry, "geometry", ("Polygon",)))
        lower, upper = (np.array(corner) for corner in (union.bounds[:2], union.bounds[2:]))
        small = _small_polygons(shapely, union)
        self._set(small, lower, upper, validation.flag("geographic", geographic), float(union.area))

    def _set(self, polygons: Geometries, lower: Floats, upper: Floats, geographic: bool, plane_area: float) -> None:
        self.lower, self.upper, self.geographic = lower, upper, geographic
        self._scale = float(np.prod(plane_scales(lower, upper, geographic)))
        self._plane_area = plane_area
        self.area = self._scale * plane_area
        shapely = load("shapely")
        shapely.prepare(polygons)
        self._tree = shapely.STRtree(polygons)
        self._cuts = dict[bytes, _Cut]()
        self.lower.flags.writeable = self.upper.flags.writeable = False

    def __repr__(self) -> str:
        return f"Polygons(<{self.area:g}{' km^2' if self.geographic else ''}>, geographic={self.geographic})"

    def describe(self) -> Json:
        """The small polygons, because cut again they would differ."""
        shapely = load("shapely")
        raw = shapely.to_wkb(shapely.geometrycollections(self._tree.geometries))
        return {
            "parts": raw,
            **{name: codec.describe(value) for name, value in values_of(self, *CORNERS).items()},
            "plane_area": self._plane_area,
        }

    def identity(self) -> dict[str, object]:
        """The small polygons, uncompressed, because zlib's bytes vary."""
        shapely = load("shapely")
        return {
            **values_of(self, *CORNERS),
            "parts": shapely.to_wkb(shapely.geometrycollections(self._tree.geometries)),
        }

    @classmethod
    def from_description(
        cls, parts: bytes, lower: Json, upper: Json, geographic: bool, plane_area: float
    ) -> Polygons:
        """Restore the domain of :meth:`describe`; ValueError if invalid."""
        shapely = load("shapely")
        try:
            collection = shapely.from_wkb(parts)
        except shapely.errors.ShapelyError as error:
            raise ValueError(f"no polygons: {error}") from None
        small = shapely.get_parts(collection)
        area = object.__new__(cls)
        low, high = (codec.restore(Floats, corner) for corner in (lower, upper))
        if not small.size or not all(polygon.geom_type == "Polygon" and polygon.is_valid for polygon in small):
            raise ValueError("no polygons")
        area._set(small, *checked_corners(low, high), geographic is True, codec.restore(float, plane_area))
        return area

    def _sizes(self, low: Floats, high: Floats) -> tuple[Integers, Floats]:
        cuts = self._cuts_of(low, high)
        cells = np.repeat(np.arange(len(cuts)), [cut.pieces.size for cut in cuts])
        pieces = np.concatenate([np.empty(0, object), *(cut.pieces for cut in cuts)])
        return cells, load("shapely").area(pieces) * self._scale

    def _samplers(self, low: Floats, high: Floats, counts: Integers) -> tuple[Integers, Floats, Draw]:
        asked = np.flatnonzero(counts > 0)
        cuts = self._cuts_of(low[asked], high[asked])
        _triangulate([cut for cut in cuts if cut.areas is None])
        triangles = np.concatenate([np.empty((0, 3, 2)), *(cut.triangles for cut in cuts)])
        areas = [np.empty(0) if cut.areas is None else cut.areas for cut in cuts]

        def draw(chosen: Integers, generator: np.random.Generator) -> Floats:
            along = generator.random((chosen.size, 2))
            # The square's half beyond its diagonal is turned onto the other half.
            along = np.where(along.sum(axis=1, keepdims=True) > 1.0, 1.0 - along, along)
            points: Floats = triangles[chosen, 0] + np.einsum("ij,ijk->ik", along, triangles[chosen, 1:])
            return points

        return np.repeat(asked, [of_cell.size for of_cell in areas]), np.concatenate([np.empty(0), *areas]), draw

    def contains(self, points: Values) -> NDArray[np.bool_]:
        table, shapely = as_points(points, "points", 2), load("shapely")
        known, ends, polygons = self._grid
        squares = (table - self.lower) * (_GRID / (self.upper - self.lower))
        squares = np.clip(squares, 0.0, _GRID - 1.0).astype(np.int64)
        cells = squares[:, 0] * _GRID + squares[:, 1]
        inside: NDArray[np.bool_] = known[cells] & ((table >= self.lower) & (table <= self.upper)).all(axis=1)
        open_ones = np.flatnonzero(~inside)
        counts = (ends[1:] - ends[:-1])[cells[open_ones]]
        near = np.repeat(open_ones, counts)
        first = np.repeat(ends[cells[open_ones]] - (np.cumsum(counts) - counts), counts)
        tested = self._tree.geometries[polygons[first + np.arange(near.size)]]
        inside[near[shapely.intersects_xy(tested, *table[near].T)]] = True
        return inside

    @cached_property
    def _grid(self) -> tuple[NDArray[np.bool_], Integers, Integers]:
        """True for cells inside one polygon; each cell's borders in the list of near polygons, and the list."""
        shapely = load("shapely")
        step = (self.upper - self.lower) / _GRID
        i, j = np.divmod(np.arange(_GRID * _GRID), _GRID)
        low = self.lower + np.column_stack([i, j]) * step
        # Wider than the error of a point's rounded coordinates.
        slack = 1e-6 * step + 1e-12 * np.abs(np.maximum(self.upper, -self.lower))
        corners = np.concatenate([low - slack, low + step + slack], axis=1)
        boxes = shapely.box(*corners.T)
        cells, polygons = self._tree.query(boxes)
        order = np.argsort(cells, kind="stable")
        cells, polygons = cells[order], polygons[order]
        known = np.zeros(boxes.size, np.bool_)
        known[cells[shapely.covers(self._tree.geometries[polygons], boxes[cells])]] = True
        return known, np.searchsorted(cells, np.arange(boxes.size + 1)), polygons

    def _cuts_of(self, low: Floats, high: Floats) -> list[_Cut]:
        names = [corners.tobytes() for corners in np.concatenate([low, high], axis=1)]
        cuts = {name: cut for name in names if (cut := self._cuts.get(name))}
        new = [i for i, name in enumerate(names) if name not in cuts]
        cells, pieces = self._pieces(low[new], high[new])
        ends = np.searchsorted(cells, np.arange(len(new) + 1)).tolist()
        added = {names[i]: _Cut(pieces[a:b]) for i, a, b in zip(new, ends, ends[1:], strict=False)}
        if len(self._cuts) + len(added) > MAX_CUTS:
            self._cuts = {}
        self._cuts |= added
        cuts |= added
        return [cuts[name] for name in names]

    def _pieces(self, low: Floats, high: Floats) -> tuple[Integers, Geometries]:
        shapely = load("shapely")
        boxes = shapely.box(low[:, 0], low[:, 1], high[:, 0], high[:, 1])
        cells, polygons = self._tree.query(boxes, predicate="intersects")
        order = np.argsort(cells, kind="stable")
        cells, polygons = cells[order].astype(np.int64), polygons[order]
        pieces, owner = shapely.get_parts(
            shapely.intersection(boxes[cells], self._tree.geometries[polygons]), return_index=True
        )
        areal = shapely.get_type_id(pieces) == shapely.GeometryType.POLYGON
        return cells[owner[areal]], pieces[areal]


#: Cells a side of the grid over the polygons.
_GRID = 64


@dataclass
class _Cut:
    """Polygons inside a cell; after a draw, their triangles, float64[n, 3, 2]."""

    pieces: Geometries
    triangles: Floats = field(default_factory=lambda: np.empty((0, 3, 2)))
    areas: Floats | None = None


def _triangulate(cuts: list[_Cut]) -> None:
    if not cuts:
        return
    shapely = load("shapely")
    pieces, cells = np.concatenate([cut.pieces for cut in cuts]), np.arange(len(cuts) + 1)
    triangles, owner = shapely.get_parts(shapely.constrained_delaunay_triangles(pieces), return_index=True)
    corners = shapely.get_coordinates(triangles).reshape(-1, 4, 2)[:, :3]
    sides = corners[:, 1:] - corners[:, :1]
    areas = 0.5 * np.abs(sides[:, 0, 0] * sides[:, 1, 1] - sides[:, 0, 1] * sides[:, 1, 0])
    owner = np.repeat(cells[:-1], [cut.pieces.size for cut in cuts])[owner][areas > 0.0]
    spanned, areas = np.concatenate([corners[:, :1], sides], axis=1)[areas > 0.0], areas[areas > 0.0]
    ends = np.searchsorted(owner, cells).tolist()
    for cut, a, b in zip(cuts, ends, ends[1:], strict=False):
        cut.triangles, cut.areas = spanned[a:b], areas[a:b]


class Network(Map):
    """Covers lines, measured by length.

    Parameters
    ----------
    lines : shapely LineString or MultiLineString, a list of these, GeoSeries, GeoDataFrame, or a networkx graph
        Public.  A graph's edges have a ``geometry``, or are straight between nodes with ``x`` and ``y`` (as of
        OSMnx).  Coinciding lines count once.
    geographic : bool
        As for :class:`Polygons`; lengths are then in kilometres.
    tolerance : float, optional
        Greatest distance of an accepted point from a line; by default rounding error.  Publishers :meth:`snap`
        accepted points onto the lines.

    Attributes
    ----------
    lower, upper : float64[2]
        Bounding box; a side without extent gets the other's.
    length : float
        In units of the coordinates, or kilometres.

    Raises
    ------
    ParameterError
        If no line has a length; for invalid coordinates; without shapely.

    Examples
    --------
    >>> import shapely, fastdp
    >>> road = shapely.LineString([(0, 0), (3, 4)])
    >>> fastdp.points.Network(road).length
    5.0
    """

    @validation.plain
    def __init__(self, lines: Geometries, *, geographic: bool = False, tolerance: float | None = None) -> None:
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
        self._set(starts, coordinates[1:][follows] - starts, (low, high), scales, bool(geographic), tolerance)

    def _set(
        self, starts: Floats, steps: Floats, corners: Corners, scales: Floats, geographic: bool, tolerance: float
    ) -> None:
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

    def describe(self) -> Json:
        return {name: codec.describe(value) for name, value in self.identity().items()}

    def identity(self) -> dict[str, object]:
        segments = {"starts": self._starts, "steps": self._steps, "scales": self._scales}
        return {**segments, **values_of(self, *CORNERS), "tolerance": self._tolerance}

    @classmethod
    def from_description(cls, geographic: bool, tolerance: float, **arrays: Json) -> Network:
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
        network._set(starts, steps, checked_corners(lower, upper), scales, *checked)
        return network

    def _sizes(self, low: Floats, high: Floats) -> tuple[Integers, Floats]:
        cells, segments, enter, leave = self._pieces(low, high)
        return cells, (leave - enter) * self._lengths[segments]

    def _samplers(self, low: Floats, high: Floats, counts: Integers) -> tuple[Integers, Floats, Draw]:
        cells, segments, enter, leave = self._pieces(low, high)

        def draw(chosen: Integers, generator: np.random.Generator) -> Floats:
            along = enter[chosen] + (leave[chosen] - enter[chosen]) * generator.random(chosen.size)
            points: Floats = self._starts[segments[chosen]] + along[:, None] * self._steps[segments[chosen]]
            return points

        return cells, (leave - enter) * self._lengths[segments], draw

    def contains(self, points: Values) -> NDArray[np.bool_]:
        table = as_points(points, "points", 2)
        scaled = load("shapely").points(table * self._scales)
        inside = np.zeros(table.shape[0], np.bool_)
        inside[self._tree.query(scaled, predicate="dwithin", distance=self._tolerance)[0]] = True
        return inside

    def snap(self, points: Values) -> Floats:
        """Nearest point on the lines to each point: float64[n, 2].

        Points move independently, so adjacent streams stay adjacent.
        """
        table = as_points(points, "points", 2)
        nearest = self._tree.nearest(load("shapely").points(table * self._scales))
        steps = self._steps[nearest] * self._scales
        offsets = (table - self._starts[nearest]) * self._scales
        along = np.clip((offsets * steps).sum(axis=1) / (steps * steps).sum(axis=1), 0.0, 1.0)
        snapped: Floats = np.clip(
            self._starts[nearest] + along[:, None] * self._steps[nearest], self.lower, self.upper
        )
        return snapped

    def _pieces(self, low: Floats, high: Floats) -> tuple[Integers, Integers, Floats, Floats]:
        """Cell, segment and ends in [0, 1] of segments clipped to cells (Liang and Barsky 1984)."""
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
        return cells[inside], segments[inside], enter[inside], leave[inside]


def _small_polygons(shapely: ModuleType, union: Geometries) -> Geometries:
    waiting, done = list(shapely.get_parts(union)), []
    while waiting:
        polygon = waiting.pop()
        if polygon.geom_type != "Polygon":
            continue  # the border that a cut has in common with the polygon
        if shapely.get_num_coordinates(polygon) <= MAX_CORNERS:
            done.append(polygon)
            continue
        left, bottom, right, top = polygon.bounds
        wide = right - left >= top - bottom
        middle = 0.5 * (left + right) if wide else 0.5 * (bottom + top)
        first = shapely.box(left, bottom, middle, top) if wide else shapely.box(left, bottom, right, middle)
        second = shapely.box(middle, bottom, right, top) if wide else shapely.box(left, middle, right, top)
        for half in (first, second):
            waiting.extend(shapely.get_parts(shapely.intersection(polygon, half)))
    return np.array(done, dtype=object)


def _lines_of_graph(shapely: ModuleType, graph: Geometries) -> Geometries:
    lines = []
    for tail, head, attributes in graph.edges(data=True):
        line = attributes.get("geometry")
        if line is None:
            line = shapely.linestrings([[graph.nodes[end]["x"], graph.nodes[end]["y"]] for end in (tail, head)])
        lines.append(line)
    return lines


# Shared by polygons and networks.


def load(module: str) -> ModuleType:
    """Import a module of the extra ``geo``; else ParameterError."""
    missing = (
        f"polygons, networks and GeoParquet need {module}, which is not installed: pip install 'fastdp-streams[geo]'"
    )
    library: ModuleType = imported(module, ParameterError(missing))
    return library


def as_geometries(geometry: Geometries, name: str, kinds: tuple[str, ...]) -> Geometries:
    """Check geometries of these kinds and split them, without Z."""
    shapely = load("shapely")
    accepted = f"a shapely geometry of {' or '.join(kinds)} parts, a list of these, or a geopandas series"
    if not isinstance(geometry, shapely.Geometry):
        # A GeoDataFrame's geometry column; a GeoSeries' is itself.
        geometry = getattr(geometry, "geometry", geometry)
        try:
            geometry = np.array(list(geometry), dtype=object)
        except TypeError:
            raise refusal(name, geometry, accepted) from None
    array = np.atleast_1d(geometry)
    if array.ndim != 1 or not np.all(shapely.is_geometry(array)):
        raise refusal(name, geometry, accepted)
    simple = simple_geometries(shapely.force_2d(array))
    simple = simple[~shapely.is_empty(simple)]
    for shape in simple:
        if shape.geom_type not in kinds:
            raise ParameterError(f"{name} has a {shape.geom_type}: expected {accepted}")
        if not shape.is_valid or not np.isfinite(shapely.get_coordinates(shape)).all():
            raise ParameterError(
                f"{name} is not valid ({shapely.is_valid_reason(shape)}): expected {accepted} "
                "(shapely.make_valid may repair it)"
            )
    if simple.size == 0:
        raise ParameterError(f"{name} is empty: expected {accepted}")
    return simple


def simple_geometries(geometries: Geometries) -> Geometries:
    """Split nested geometries into points, lines and polygons: object[n]."""
    shapely = load("shapely")
    simple = shapely.get_parts(geometries)
    # A GeoJSON collection of features holds multi-part geometries.
    while (shapely.get_type_id(simple) >= shapely.GeometryType.MULTIPOINT).any():
        simple = shapely.get_parts(simple)
    return simple


def plane_scales(lower: Floats, upper: Floats, geographic: bool) -> Floats:
    """Factors of coordinates, float64[2]: 1, or kilometres at the middle latitude."""
    if not geographic:
        return np.ones(2)
    greatest = np.array([180.0, 90.0]) + TOLERANCE
    if (lower < -greatest).any() or (upper > greatest).any():
        raise ParameterError(
            f"geographic = True with coordinates from {lower.tolist()} to {upper.tolist()}: "
            "expected x in [-180, 180] (longitude) and y in [-90, 90] (latitude)"
        )
    degree = EARTH_RADIUS * math.pi / 180.0
    return np.array([degree * math.cos(math.radians(0.5 * (lower[1] + upper[1]))), degree])


def checked_corners(lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Check corners of a state file; else ValueError."""
    if (
        lower.shape != (2,)
        or upper.shape != (2,)
        or not (np.isfinite([lower, upper]).all() and (lower < upper).all())
    ):
        raise ValueError("no bounding box")
    return lower, upper


def draw_pieces(cells: Integers, weights: Floats, counts: Integers, generator: np.random.Generator) -> Integers:
    """Draw indices of pieces by `weights`, ``counts`` for each of the ascending `cells`; else ParameterError."""
    starts = np.searchsorted(cells, np.arange(counts.size + 1))
    missing = np.flatnonzero((counts > 0) & (np.diff(starts) == 0))
    if missing.size:
        k = int(missing[0])
        raise ParameterError(f"counts has {counts[k]} for cell {k}: expected 0, nothing of the domain lies in it")
    # Weights as fractions of their cell's, so that a small cell loses no digits beside a large one.
    fractions = weights / np.bincount(cells, weights=weights, minlength=counts.size)[cells]
    ends = np.cumsum(fractions)
    before = np.concatenate([[0.0], ends])
    cell = np.repeat(np.arange(counts.size), counts)
    first, last = starts[cell], starts[cell + 1] - 1
    targets = before[first] + generator.random(cell.size) * (before[last + 1] - before[first])
    chosen: Integers = np.clip(np.searchsorted(ends, targets, side="right"), first, last)
    return chosen


# Domains from GeoJSON.

#: The next step for files of another form.
_CONVERT = "geopandas.read_file(...).to_crs(4326).to_file('domain.geojson') converts other formats"


def read_domain(path: str | Path) -> tuple[Domain, str]:
    """Read a domain from a GeoJSON file; return it with the SHA-256 of the text.

    Parameters
    ----------
    path : str or Path
        Public; in degrees, longitude first (RFC 7946).  Polygons, repaired by ``shapely.make_valid``, make a
        :class:`Polygons`, lines a :class:`Network`.

    Raises
    ------
    DataError
        If the file is absent, not GeoJSON, or holds something else.
    ParameterError
        Without shapely.
    """
    shapely = load("shapely")
    try:
        text = Path(path).read_text(encoding="utf-8")
        geometry = shapely.from_geojson(text)
    except OSError as error:
        raise DataError(f"domain {path}: cannot be read ({error.strerror}); expected a GeoJSON file") from None
    except (UnicodeDecodeError, shapely.errors.ShapelyError) as error:
        raise DataError(
            f"domain {path}: not readable as GeoJSON ({error}); expected polygons or lines in longitude and latitude "
            f"({_CONVERT})"
        ) from None
    shapes = simple_geometries(geometry)
    kinds = {str(shape.geom_type) for shape in shapes if not shape.is_empty}
    if kinds == {"Polygon"}:
        shapes = _repaired(shapes)
    if kinds not in ({"Polygon"}, {"LineString"}) or not shapes.size:
        raise DataError(
            f"domain {path}: holds {', '.join(sorted(kinds)) or 'nothing'}; expected polygons with an area and "
            "nothing else, or lines and nothing else"
        )
    try:
        domain: Domain = Polygons(shapes, geographic=True) if "Polygon" in kinds else Network(shapes, geographic=True)
    except ParameterError as error:
        raise DataError(f"domain {path}: {error} ({_CONVERT})") from None
    return domain, hashlib.sha256(text.encode()).hexdigest()


def _repaired(shapes: Geometries) -> Geometries:
    shapely = load("shapely")
    broken = ~shapely.is_valid(shapes)
    pieces = simple_geometries(shapely.make_valid(shapes[broken]))
    areas = pieces[shapely.get_type_id(pieces) == shapely.GeometryType.POLYGON]
    return np.concatenate([shapes[~broken], areas])
