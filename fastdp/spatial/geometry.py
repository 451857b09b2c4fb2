"""What polygons and networks share: shapely on use, the plane in which lengths are measured, drawing from pieces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastdp._lazy import imported
from fastdp.errors import ParameterError
from fastdp.kinds import Floats, Integers
from fastdp.validation import shown

#: Mean radius of the Earth in kilometres (IUGG).
EARTH_RADIUS = 6371.0088
#: Degrees, a centimetre, by which rounding may carry coordinates beyond the Earth's: Natural Earth's land ends at
#: 180.00000000000006.
TOLERANCE = 1e-7


def load(module: str) -> Any:
    """A module of the extra ``geo``, imported now.

    Raises
    ------
    ParameterError
        If it is not installed; the message says how to get it.
    """
    missing = (
        f"polygons, networks and GeoParquet need {module}, which is not installed: pip install 'fastdp-streams[geo]'"
    )
    return imported(module, ParameterError(missing))


def as_geometries(geometry: Any, name: str, kinds: tuple[str, ...]) -> Any:
    """Parts of a shapely geometry, of a list of them, or of a geopandas series or frame; without Z.

    Parameters
    ----------
    geometry : object
        What the user gave.
    name : str
        The argument's name, for messages.
    kinds : tuple of str
        The simple geometry types that are accepted, such as "Polygon"; multi-part ones are split.

    Returns
    -------
    object[n]
        Valid simple geometries, at least one.
    """
    shapely = load("shapely")
    accepted = f"a shapely geometry of {' or '.join(kinds)} parts, a list of these, or a geopandas series"
    if not isinstance(geometry, shapely.Geometry):
        # A GeoDataFrame's geometry column; a GeoSeries' is itself.
        geometry = getattr(geometry, "geometry", geometry)
        try:
            geometry = np.array(list(geometry), dtype=object)
        except TypeError:
            raise ParameterError(f"{name} = {shown(geometry)}: expected {accepted}") from None
    array = np.atleast_1d(geometry)
    if array.ndim != 1 or not np.all(shapely.is_geometry(array)):
        raise ParameterError(f"{name} = {shown(geometry)}: expected {accepted}")
    parts = simple_parts(shapely.force_2d(array))
    parts = parts[~shapely.is_empty(parts)]
    for part in parts:
        if part.geom_type not in kinds:
            raise ParameterError(f"{name} has a {part.geom_type}: expected {accepted}")
        if not part.is_valid or not np.isfinite(shapely.get_coordinates(part)).all():
            raise ParameterError(
                f"{name} is not valid ({shapely.is_valid_reason(part)}): expected {accepted} "
                "(shapely.make_valid may repair it)"
            )
    if parts.size == 0:
        raise ParameterError(f"{name} is empty: expected {accepted}")
    return parts


def simple_parts(geometries: Any) -> Any:
    """Points, lines and polygons of geometries, however deep in collections: object[n]."""
    shapely = load("shapely")
    parts = shapely.get_parts(geometries)
    # A GeoJSON collection of features holds multi-part geometries.
    while (shapely.get_type_id(parts) >= shapely.GeometryType.MULTIPOINT).any():
        parts = shapely.get_parts(parts)
    return parts


def plane_scales(lower: Floats, upper: Floats, geographic: bool) -> Floats:
    """Factors that bring coordinates into the plane of measurement.

    Parameters
    ----------
    lower, upper : float64[2]
        The domain's bounding box; x is the longitude and y the latitude if ``geographic``.
    geographic : bool
        Whether coordinates are degrees.

    Returns
    -------
    float64[2]
        1 and 1, or kilometres for a degree of longitude and of latitude at the box's middle latitude (the local
        equirectangular projection).  One linear map serves the whole domain, so shares of area do not depend on it;
        lengths of roads in different directions do.
    """
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


def as_corners(lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Corners of a bounding box from a state file; ValueError if they are none."""
    if (
        lower.shape != (2,)
        or upper.shape != (2,)
        or not (np.isfinite([lower, upper]).all() and (lower < upper).all())
    ):
        raise ValueError("no bounding box")
    return lower, upper


def draw_pieces(cells: Integers, weights: Floats, counts: Integers, generator: np.random.Generator) -> Integers:
    """For each cell in turn, ``counts`` of its pieces, drawn in proportion to their weights.

    Parameters
    ----------
    cells : int64[pieces]
        The cell of each piece, ascending.
    weights : float64[pieces]
        Above 0: area or length.
    counts : int64[n]
        How many to draw in each cell.
    generator : numpy.random.Generator
        Where uniform numbers come from.

    Returns
    -------
    int64[sum of counts]
        Numbers of pieces.

    Raises
    ------
    ParameterError
        If points are requested in a cell without pieces.
    """
    starts = np.searchsorted(cells, np.arange(counts.size + 1))
    missing = np.flatnonzero((counts > 0) & (np.diff(starts) == 0))
    if missing.size:
        k = int(missing[0])
        raise ParameterError(f"counts has {counts[k]} for cell {k}: expected 0, nothing of the domain lies in it")
    # Weights as parts of their cell, so that a small cell loses no digits beside a large one.
    shares = weights / np.bincount(cells, weights=weights, minlength=counts.size)[cells]
    ends = np.cumsum(shares)
    before = np.concatenate([[0.0], ends])
    cell = np.repeat(np.arange(counts.size), counts)
    first, last = starts[cell], starts[cell + 1] - 1
    targets = before[first] + generator.random(cell.size) * (before[last + 1] - before[first])
    chosen: Integers = np.clip(np.searchsorted(ends, targets, side="right"), first, last)
    return chosen


def keep_in_cells(points: Floats, lower: Floats, upper: Floats, last: Floats) -> Floats:
    """Points moved by rounding across a border of their half-open cell, moved back.

    Parameters
    ----------
    points, lower, upper : float64[n, d]
        Points and the corners of their cells.
    last : float64[d]
        The domain's upper corner: cells that end there are closed.
    """
    return np.clip(points, lower, np.where(upper == last, upper, np.nextafter(upper, lower)))
