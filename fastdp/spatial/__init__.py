"""Points in space: domains, private decompositions of them, counts in boxes, export.

``Polygons``, ``Network`` and GeoParquet need shapely and geopandas (extra ``geo``), imported on use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.spatial.box_index import CellIndex
    from fastdp.spatial.domain import Box, Domain
    from fastdp.spatial.export import write_cells, write_points
    from fastdp.spatial.network import Network
    from fastdp.spatial.polygons import Polygons
    from fastdp.spatial.privtree import PrivTree
    from fastdp.spatial.tree import ReleasedTree

_HOMES = {
    "fastdp.spatial.box_index": ("CellIndex",),
    "fastdp.spatial.domain": ("Box", "Domain"),
    "fastdp.spatial.export": ("write_cells", "write_points"),
    "fastdp.spatial.network": ("Network",),
    "fastdp.spatial.polygons": ("Polygons",),
    "fastdp.spatial.privtree": ("PrivTree",),
    "fastdp.spatial.tree": ("ReleasedTree",),
}

__all__ = [
    "Box",
    "CellIndex",
    "Domain",
    "Network",
    "Polygons",
    "PrivTree",
    "ReleasedTree",
    "write_cells",
    "write_points",
]


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES)
