"""Domains that are no box: areas and lines, synthetic or from GeoJSON (extra ``geo``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from fastdp.spatial import Domain, Network
from fastdp.spatial.map_files import read_domain
from fastdp_lab.datasets import SpatialStream, made_up_streets

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
        If the file is absent or no GeoJSON of an area or a network.
    ImportError
        If shapely is not installed.
    """
    if source in DOMAINS:
        return DOMAINS[source](), source
    return read_domain(folder / source)


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
