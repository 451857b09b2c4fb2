"""Points: domains, private trees of cells, counts in boxes; maps need the extra ``geo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.points.domains import Box, Domain
    from fastdp.points.maps import Network, Polygons
    from fastdp.points.released_tree import PrivTree, ReleasedTree
    from fastdp.points.replaying import SyntheticPoints, replay

__all__ = [
    "Box",
    "Domain",
    "Network",
    "Polygons",
    "PrivTree",
    "ReleasedTree",
    "SyntheticPoints",
    "replay",
]


_HOMES = {
    "fastdp.points.domains": ("Box", "Domain"),
    "fastdp.points.maps": ("Network", "Polygons"),
    "fastdp.points.released_tree": ("PrivTree", "ReleasedTree"),
    "fastdp.points.replaying": ("SyntheticPoints", "replay"),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES)
