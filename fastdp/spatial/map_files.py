"""Domains from GeoJSON; cells and points, which are private releases, to GeoJSON and GeoParquet (extra ``geo``)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np

from fastdp import validation
from fastdp.data.column import as_array
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Array, Json, Values
from fastdp.spatial.domains import Domain, as_boxes, as_points
from fastdp.spatial.maps import Geometries, Network, Polygons, load, simple_parts

#: The next step for files of another form.
_CONVERT = "geopandas.read_file(...).to_crs(4326).to_file('domain.geojson') converts other formats"
_KINDS = {".geojson": "json", ".json": "json", ".parquet": "parquet", ".geoparquet": "parquet"}


def read_domain(path: str | Path) -> tuple[Domain, str]:
    """Read a domain from a GeoJSON file, and a digest of its text.

    Parameters
    ----------
    path : str or Path
        Public; geometry, feature or collection in degrees, longitude first (RFC 7946).  Polygons make an area,
        repaired by ``shapely.make_valid``; lines make a network.

    Returns
    -------
    domain : Polygons or Network
        Geographic.
    digest : str
        SHA-256 of the text.

    Raises
    ------
    DataError
        If the file is absent, no GeoJSON, or without a valid area or network.
    ParameterError
        If shapely is not installed.
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
    parts = simple_parts(geometry)
    kinds = {str(part.geom_type) for part in parts if not part.is_empty}
    if kinds == {"Polygon"}:
        parts = _repaired(parts)
    if kinds not in ({"Polygon"}, {"LineString"}) or not parts.size:
        raise DataError(
            f"domain {path}: holds {', '.join(sorted(kinds)) or 'nothing'}; expected polygons with an area and "
            "nothing else, or lines and nothing else"
        )
    try:
        domain: Domain = Polygons(parts, geographic=True) if "Polygon" in kinds else Network(parts, geographic=True)
    except ParameterError as error:
        raise DataError(f"domain {path}: {error} ({_CONVERT})") from None
    return domain, hashlib.sha256(text.encode()).hexdigest()


def _repaired(parts: Geometries) -> Geometries:
    """The geometries, with invalid polygons replaced by valid areas."""
    shapely = load("shapely")
    broken = ~shapely.is_valid(parts)
    pieces = simple_parts(shapely.make_valid(parts[broken]))
    areas = pieces[shapely.get_type_id(pieces) == shapely.GeometryType.POLYGON]
    return np.concatenate([parts[~broken], areas])


@validation.plain
def write_cells(
    path: str | Path,
    lower: Values,
    upper: Values,
    counts: Values,
    *,
    columns: Mapping[str, Values] | None = None,
    crs: str | None = None,
) -> None:
    """Write cells as rectangles with their counts.

    Parameters
    ----------
    path : str or Path
        Ends in .geojson, .json, .parquet or .geoparquet.
    lower, upper : array-like[n, 2]
        Corners; x = longitude, y = latitude on a map.
    counts : array-like[n]
        Column ``count``.
    columns : mapping of str to array-like[n], optional
        More columns.
    crs : str, optional
        For GeoParquet; GeoJSON has "OGC:CRS84" only.

    Raises
    ------
    ParameterError
        For another suffix or a column of another length; without geopandas.
    """
    low, high = as_boxes(lower, upper, 2, finite=True)
    table = _columns({"count": counts}, low.shape[0], "counts") | _columns(columns or {}, low.shape[0])
    if _kind(path) == "json":
        # Counterclockwise and closed (RFC 7946 section 3.1.6).
        rings = np.stack(
            [low, np.c_[high[:, 0], low[:, 1]], high, np.c_[low[:, 0], high[:, 1]], low], axis=1
        ).tolist()
        _write_json(path, [{"type": "Polygon", "coordinates": [ring]} for ring in rings], table)
    else:
        _write_parquet(path, load("shapely").box(*low.T, *high.T), table, crs)


@validation.plain
def write_points(
    path: str | Path, points: Values, *, columns: Mapping[str, Values] | None = None, crs: str | None = None
) -> None:
    """Write points, array-like[n, 2] (longitude, latitude on a map); as :func:`write_cells` otherwise."""
    places = as_points(points, "points", 2)
    table = _columns(columns or {}, places.shape[0])
    if _kind(path) == "json":
        _write_json(path, [{"type": "Point", "coordinates": place} for place in places.tolist()], table)
    else:
        _write_parquet(path, load("shapely").points(places), table, crs)


def _kind(path: str | Path) -> str:
    suffix = Path(validation.path("path", path)).suffix.lower()
    if suffix not in _KINDS:
        raise ParameterError(f"path = {str(path)!r}: expected a suffix among {', '.join(_KINDS)}")
    return _KINDS[suffix]


def _columns(columns: Mapping[str, Values], rows: int, name: str = "columns[{}]") -> dict[str, Array]:
    table = {each: as_array(column) for each, column in columns.items()}
    for k, column in enumerate(table.values()):
        if column is None:
            raise ParameterError(f"{name.format(k)} is no array: expected ({rows},) entries")
        if column.shape != (rows,):
            raise ParameterError(f"{name.format(k)} has shape {column.shape}: expected ({rows},)")
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            raise ParameterError(f"{name.format(k)} has numbers that are not finite: expected finite numbers")
    return cast("dict[str, Array]", table)


def _write_json(path: str | Path, shapes: list[Json], table: dict[str, Array]) -> None:
    columns = {name: column.tolist() for name, column in table.items()}
    features = [
        {"type": "Feature", "geometry": shape, "properties": {name: column[i] for name, column in columns.items()}}
        for i, shape in enumerate(shapes)
    ]
    try:
        text = json.dumps({"type": "FeatureCollection", "features": features}, allow_nan=False)
    except TypeError:
        raise ParameterError(
            "columns: expected numbers, texts and bools for GeoJSON, or a path of .parquet"
        ) from None
    Path(path).write_text(text + "\n", encoding="utf-8")


def _write_parquet(path: str | Path, shapes: Geometries, table: dict[str, Array], crs: str | None) -> None:
    load("geopandas").GeoDataFrame(table, geometry=shapes, crs=crs).to_parquet(path)
