"""Points in space: domains, private decompositions of them, query sets of boxes, counts in boxes, export.

``Polygons``, ``Network`` and GeoParquet need shapely and geopandas (extra ``geo``), imported on use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.spatial.box import Box
    from fastdp.spatial.box_index import CellIndex, PointIndex
    from fastdp.spatial.domain import Domain
    from fastdp.spatial.export import write_cells, write_points
    from fastdp.spatial.network import Network
    from fastdp.spatial.polygons import Polygons
    from fastdp.spatial.privtree import PrivTree
    from fastdp.spatial.queries import BoxQueries as BoxQueries
    from fastdp.spatial.queries import paper_queries, random_boxes, relative_error
    from fastdp.spatial.tree import ReleasedTree

_HOMES = {
    "Box": "fastdp.spatial.box",
    "BoxQueries": "fastdp.spatial.queries",
    "CellIndex": "fastdp.spatial.box_index",
    "Domain": "fastdp.spatial.domain",
    "Network": "fastdp.spatial.network",
    "PointIndex": "fastdp.spatial.box_index",
    "Polygons": "fastdp.spatial.polygons",
    "PrivTree": "fastdp.spatial.privtree",
    "ReleasedTree": "fastdp.spatial.tree",
    "paper_queries": "fastdp.spatial.queries",
    "random_boxes": "fastdp.spatial.queries",
    "relative_error": "fastdp.spatial.queries",
    "write_cells": "fastdp.spatial.export",
    "write_points": "fastdp.spatial.export",
}

__all__ = [
    "Box",
    "CellIndex",
    "Domain",
    "Network",
    "PointIndex",
    "Polygons",
    "PrivTree",
    "ReleasedTree",
    "paper_queries",
    "random_boxes",
    "relative_error",
    "write_cells",
    "write_points",
]


if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
