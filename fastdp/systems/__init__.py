"""Where a stream is published.  The systems themselves are at the top level, :mod:`fastdp`; here are the baselines.

Names load on first use: a stream of values needs none of the spatial code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.systems.phdstream.baselines import FixedTree, OfflineOnBatch, OfflineOnStream
    from fastdp.systems.w_event import WEvent
    from fastdp.systems.zeros import Zeros

_HOMES = {
    "FixedTree": "fastdp.systems.phdstream.baselines",
    "OfflineOnBatch": "fastdp.systems.phdstream.baselines",
    "OfflineOnStream": "fastdp.systems.phdstream.baselines",
    "WEvent": "fastdp.systems.w_event",
    "Zeros": "fastdp.systems.zeros",
}

__all__ = [
    "FixedTree",
    "OfflineOnBatch",
    "OfflineOnStream",
    "WEvent",
    "Zeros",
]


if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
