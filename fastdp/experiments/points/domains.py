"""Domains that are no box: areas and lines, synthetic or from GeoJSON (extra ``geo``)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from fastdp.datasets import SpatialStream, made_up_streets
from fastdp.errors import DataError
from fastdp.spatial import Domain, Network, Polygons
from fastdp.spatial.geometry import load

#: Synthetic domains by their name in a specification.
DOMAINS: dict[str, Callable[[], Domain]] = {"streets": made_up_streets}
#: Points farther from every line than this part of the domain's longer side are left out.
REACH = 0.01


def load_domain(source: str, folder: Path) -> tuple[Domain, str]:
    """A domain, and a digest of its file.

    Parameters
    ----------
    source : str
        A name of ``DOMAINS``, or a GeoJSON geometry or collection in degrees: lines make a network, polygons areas.
    folder : Path
        Of files without an absolute path.

    Raises
    ------
    DataError
        If the file is absent or no GeoJSON.
    ImportError
        If shapely is not installed.
    """
    if source in DOMAINS:
        return DOMAINS[source](), source
    shapely = load("shapely")

    try:
        text = (folder / source).read_text(encoding="utf-8")
        geometry = shapely.from_geojson(text)
    except OSError as error:
        raise DataError(f"domain {source}: no such file ({error.strerror})") from None
    except (UnicodeDecodeError, shapely.errors.ShapelyError) as error:
        raise DataError(f"domain {source}: not readable as GeoJSON ({error})") from None
    lines = any("Line" in each.geom_type for each in shapely.get_parts(geometry))
    domain: Domain = Network(geometry, geographic=True) if lines else Polygons(geometry, geographic=True)
    return domain, hashlib.sha256(text.encode()).hexdigest()


def confined(stream: SpatialStream, domain: Domain) -> SpatialStream:
    """The events within a domain; on a network points move to the nearest line if there is one near.

    Each event is treated on its own, so that streams that differ in one event still do.

    Parameters
    ----------
    stream : SpatialStream
        Any events.
    domain : Domain
        Public.
    """
    points = stream.points
    if isinstance(domain, Network):
        points = domain.snap(points)
        near = REACH * float((domain.upper - domain.lower).max())
        kept = np.linalg.norm(points - stream.points, axis=1) <= near
    else:
        kept = domain.contains(points)
    # A removal is at the place of its addition: both stay, or neither.
    number = np.concatenate([[0], np.cumsum(kept)])
    cancels = np.where(stream.cancels >= 0, number[stream.cancels], -1)[kept]
    return replace(
        stream,
        lower=domain.lower,
        upper=domain.upper,
        points=points[kept],
        cancels=cancels,
        times=stream.times[kept],
        cuts=number[stream.cuts],
    )
