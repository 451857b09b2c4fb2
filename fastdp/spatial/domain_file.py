"""A domain from a file: areas or lines in GeoJSON (extra ``geo``)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from fastdp.errors import DataError, ParameterError
from fastdp.spatial.domain import Domain
from fastdp.spatial.geometry import load, simple_parts
from fastdp.spatial.network import Network
from fastdp.spatial.polygons import Polygons

#: The next step for files of another form.
_CONVERT = "geopandas.read_file(...).to_crs(4326).to_file('domain.geojson') converts other formats"


def read_domain(path: str | Path) -> tuple[Domain, str]:
    """A domain, and a digest of its file.

    Parameters
    ----------
    path : str or Path
        A GeoJSON geometry, feature or collection; coordinates are degrees, longitude first (RFC 7946).  Polygons make
        an area, lines a network.  The file must be public.  Polygons whose border crosses itself are repaired
        (``shapely.make_valid``): published maps have some.

    Returns
    -------
    domain : Polygons or Network
        Geographic.
    digest : str
        SHA-256 of the text.

    Raises
    ------
    DataError
        If the file is absent, no GeoJSON, or holds no valid area or network.
    ImportError
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
        parts = _repaired(shapely, parts)
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


def _repaired(shapely: Any, parts: Any) -> Any:
    """The parts, with areas in place of polygons that are not valid."""
    broken = ~shapely.is_valid(parts)
    pieces = simple_parts(shapely.make_valid(parts[broken]))
    areas = pieces[shapely.get_type_id(pieces) == shapely.GeometryType.POLYGON]
    return np.concatenate([parts[~broken], areas])
