"""Where a stream is published: publishers composed of a threshold, a perturber and a smoother, and their kin.

Names load on first use: a stream of values needs none of the spatial code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.systems.adaptive_phdstream import AdaptivePHDStream
    from fastdp.systems.base import Base
    from fastdp.systems.one_call import release
    from fastdp.systems.pak import PAK
    from fastdp.systems.phdstream import PHDStream
    from fastdp.systems.spatial_baselines import FixedTree, OfflineOnBatch, OfflineOnStream
    from fastdp.systems.stream_publisher import StreamPublisher
    from fastdp.systems.topl import ToPL
    from fastdp.systems.topl_server import ToPLServer
    from fastdp.systems.tops import ToPS

_HOMES = {
    "AdaptivePHDStream": "fastdp.systems.adaptive_phdstream",
    "PAK": "fastdp.systems.pak",
    "Base": "fastdp.systems.base",
    "FixedTree": "fastdp.systems.spatial_baselines",
    "OfflineOnBatch": "fastdp.systems.spatial_baselines",
    "OfflineOnStream": "fastdp.systems.spatial_baselines",
    "PHDStream": "fastdp.systems.phdstream",
    "StreamPublisher": "fastdp.systems.stream_publisher",
    "ToPL": "fastdp.systems.topl",
    "ToPLServer": "fastdp.systems.topl_server",
    "ToPS": "fastdp.systems.tops",
    "release": "fastdp.systems.one_call",
}

__all__ = [
    "PAK",
    "AdaptivePHDStream",
    "Base",
    "FixedTree",
    "OfflineOnBatch",
    "OfflineOnStream",
    "PHDStream",
    "StreamPublisher",
    "ToPL",
    "ToPLServer",
    "ToPS",
    "release",
]


if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
