"""Domains from GeoJSON; synthetic points, which are private, to GeoJSON and GeoParquet (extra ``geo``)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from fastdp import validation
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Values
from fastdp.spatial.domains import Domain, as_points
from fastdp.spatial.maps import Geometries, Network, Polygons, load, simple_parts

#: The next step for files of another form.
_CONVERT = "geopandas.read_file(...).to_crs(4326).to_file('domain.geojson') converts other formats"


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
    shapely = load("shapely")
    broken = ~shapely.is_valid(parts)
    pieces = simple_parts(shapely.make_valid(parts[broken]))
    areas = pieces[shapely.get_type_id(pieces) == shapely.GeometryType.POLYGON]
    return np.concatenate([parts[~broken], areas])


@validation.plain
def write_points(path: str | Path, points: Values) -> None:
    """Write points, array-like[n, 2] (longitude, latitude on a map).

    Parameters
    ----------
    path : str or Path
        Ends in .geojson, .json, .parquet or .geoparquet, which needs geopandas.
    """
    places = as_points(points, "points", 2)
    suffix = Path(validation.path("path", path)).suffix.lower()
    if suffix in (".parquet", ".geoparquet"):
        load("geopandas").GeoDataFrame(geometry=load("shapely").points(places)).to_parquet(path)
    elif suffix in (".geojson", ".json"):
        shapes = ({"type": "Point", "coordinates": place} for place in places.tolist())
        features = [{"type": "Feature", "geometry": shape, "properties": {}} for shape in shapes]
        text = json.dumps({"type": "FeatureCollection", "features": features})
        Path(path).write_text(text + "\n", encoding="utf-8")
    else:
        raise ParameterError(f"path = {str(path)!r}: expected a suffix among .geojson, .json, .parquet, .geoparquet")
