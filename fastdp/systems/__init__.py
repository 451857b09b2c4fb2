"""Where a stream is published: publishers composed of a threshold, a perturber and a smoother, and their kin.

Names load on first use: a stream of values needs none of the spatial code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.systems.pak.publisher import PAK
    from fastdp.systems.phdstream.adaptive import AdaptivePHDStream
    from fastdp.systems.phdstream.baselines import FixedTree, OfflineOnBatch, OfflineOnStream
    from fastdp.systems.phdstream.publisher import PHDStream
    from fastdp.systems.stream.publisher import StreamPublisher
    from fastdp.systems.stream.tops import ToPS
    from fastdp.systems.topl.publisher import ToPL
    from fastdp.systems.topl.server import ToPLServer
    from fastdp.systems.zeros import Zeros

_HOMES = {
    "AdaptivePHDStream": "fastdp.systems.phdstream.adaptive",
    "PAK": "fastdp.systems.pak.publisher",
    "FixedTree": "fastdp.systems.phdstream.baselines",
    "OfflineOnBatch": "fastdp.systems.phdstream.baselines",
    "OfflineOnStream": "fastdp.systems.phdstream.baselines",
    "PHDStream": "fastdp.systems.phdstream.publisher",
    "StreamPublisher": "fastdp.systems.stream.publisher",
    "ToPL": "fastdp.systems.topl.publisher",
    "ToPLServer": "fastdp.systems.topl.server",
    "ToPS": "fastdp.systems.stream.tops",
    "Zeros": "fastdp.systems.zeros",
}

__all__ = [
    "PAK",
    "AdaptivePHDStream",
    "FixedTree",
    "OfflineOnBatch",
    "OfflineOnStream",
    "PHDStream",
    "StreamPublisher",
    "ToPL",
    "ToPLServer",
    "ToPS",
    "Zeros",
]


if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
