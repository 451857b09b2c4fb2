"""Points: domains, private decompositions, counts in boxes, export; maps need the extra ``geo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.points.domains import Box, Domain
    from fastdp.points.maps import Network, Polygons, write_points
    from fastdp.points.released_tree import PrivTree, ReleasedTree

__all__ = [
    "Box",
    "Domain",
    "Network",
    "Polygons",
    "PrivTree",
    "ReleasedTree",
    "write_points",
]


_HOMES = {
    "fastdp.points.domains": ("Box", "Domain"),
    "fastdp.points.maps": ("Network", "Polygons", "write_points"),
    "fastdp.points.released_tree": ("PrivTree", "ReleasedTree"),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES)
