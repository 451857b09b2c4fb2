"""fastdp: data streams under differential privacy, exact and fast.

Names load on first use, so that ``import fastdp`` costs no more than this file (numba takes a while).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names
from fastdp._version import __version__

if TYPE_CHECKING:
    from fastdp import (
        analysis,
        auditing,
        counters,
        datasets,
        errors,
        experiments,
        ledger,
        local,
        metrics,
        perturbers,
        plots,
        plots_spatial,
        randomness,
        renewals,
        smoothers,
        spatial,
        thresholds,
        workloads,
    )
    from fastdp.auditing.run import audit
    from fastdp.ledger.ledger import Ledger
    from fastdp.privacy import Guarantee
    from fastdp.randomness.key import Key
    from fastdp.released import Release
    from fastdp.systems.adaptive_phdstream import AdaptivePHDStream
    from fastdp.systems.base import Base
    from fastdp.systems.one_call import release
    from fastdp.systems.pak import PAK
    from fastdp.systems.phdstream import PHDStream
    from fastdp.systems.stream_publisher import StreamPublisher
    from fastdp.systems.topl import ToPL
    from fastdp.systems.topl_server import ToPLServer
    from fastdp.systems.tops import ToPS

_HOMES = {
    "PAK": "fastdp.systems.pak",
    "AdaptivePHDStream": "fastdp.systems.adaptive_phdstream",
    "PHDStream": "fastdp.systems.phdstream",
    "Base": "fastdp.systems.base",
    "Guarantee": "fastdp.privacy",
    "Key": "fastdp.randomness.key",
    "Ledger": "fastdp.ledger.ledger",
    "Release": "fastdp.released",
    "StreamPublisher": "fastdp.systems.stream_publisher",
    "ToPL": "fastdp.systems.topl",
    "ToPLServer": "fastdp.systems.topl_server",
    "ToPS": "fastdp.systems.tops",
    "audit": "fastdp.auditing.run",
    "release": "fastdp.systems.one_call",
}
_MODULES = (
    "analysis",
    "auditing",
    "counters",
    "datasets",
    "errors",
    "experiments",
    "ledger",
    "local",
    "metrics",
    "perturbers",
    "plots",
    "plots_spatial",
    "randomness",
    "renewals",
    "smoothers",
    "spatial",
    "thresholds",
    "workloads",
)

__all__ = [
    "PAK",
    "AdaptivePHDStream",
    "Base",
    "Guarantee",
    "Key",
    "Ledger",
    "PHDStream",
    "Release",
    "StreamPublisher",
    "ToPL",
    "ToPLServer",
    "ToPS",
    "__version__",
    "analysis",
    "audit",
    "auditing",
    "counters",
    "datasets",
    "errors",
    "experiments",
    "ledger",
    "local",
    "metrics",
    "perturbers",
    "plots",
    "plots_spatial",
    "randomness",
    "release",
    "renewals",
    "smoothers",
    "spatial",
    "thresholds",
    "workloads",
]


if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES, _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
