"""Lines as a domain: roads, rails, rivers, from shapely, geopandas or a street graph (extra ``geo``)."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdp import validation
from fastdp.arrays.kinds import Floats, Integers
from fastdp.spatial.checks import as_boxes, as_points
from fastdp.spatial.geometry import as_corners, as_geometries, draw_pieces, keep_in_cells, load, plane_scales
from fastdp.state import codec

#: Default tolerance of ``contains`` as a part of the bounding box's longer side: the rounding of coordinates.
ROUNDING = 1e-9


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
        If there is no line with a length, or it is not geographic though said to be.
    ImportError
        If shapely is not installed.

    Notes
    -----
    Source: PHDStream Appendix G (road network of Manhattan).
    """

    dim = 2
    rule: ClassVar[int] = 1

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
        scales = plane_scales(low, high, bool(geographic))
        low, high = low - margin, high + margin
        if tolerance is None:
            tolerance = ROUNDING * float(((high - low) * scales).max())
        tolerance = validation.positive("tolerance", tolerance)
        self._settle(starts, coordinates[1:][follows] - starts, low, high, scales, bool(geographic), tolerance)

    def _settle(
        self,
        starts: Floats,
        steps: Floats,
        lower: Floats,
        upper: Floats,
        scales: Floats,
        geographic: bool,
        tolerance: float,
    ) -> None:
        """Take segments."""
        shapely = load("shapely")
        self._starts, self._steps = starts, steps
        self.lower, self.upper, self.geographic = lower, upper, geographic
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
        corners = as_corners(lower, upper)
        network._settle(
            starts, steps, *corners, scales, geographic is True, validation.positive("tolerance", tolerance)
        )
        return network

    def measure(self, lower: ArrayLike, upper: ArrayLike) -> Floats:
        """Length of the lines inside each cell; cells are half-open, those at the domain's upper border closed.

        Parameters
        ----------
        lower, upper : array-like[n, 2]
            The cells.

        Returns
        -------
        float64[n]
            In units of the coordinates, or kilometres.
        """
        low, high = as_boxes(lower, upper, 2, finite=True)
        pieces = self._pieces(low, high)
        lengths = (pieces.leave - pieces.enter) * self._lengths[pieces.segments]
        # Of nothing, bincount makes integers.
        return np.asarray(np.bincount(pieces.cells, weights=lengths, minlength=low.shape[0]), dtype=np.float64)

    def sample(self, lower: ArrayLike, upper: ArrayLike, counts: ArrayLike, generator: np.random.Generator) -> Floats:
        """Points drawn evenly along the lines inside each cell.

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
            If points are requested in a cell that holds no line.
        """
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


def _lines_of_graph(shapely: Any, graph: Any) -> list[Any]:
    """Edges of a street graph as lines."""
    lines = []
    for tail, head, attributes in graph.edges(data=True):
        line = attributes.get("geometry")
        if line is None:
            line = shapely.linestrings([[graph.nodes[end]["x"], graph.nodes[end]["y"]] for end in (tail, head)])
        lines.append(line)
    return lines
