"""fastdp: data streams under differential privacy, exact and fast.

Names load on first use, so that ``import fastdp`` costs no more than this file (numba takes a while).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fastdp._version import __version__

if TYPE_CHECKING:
    from fastdp import (
        analysis,
        datasets,
        errors,
        metrics,
        perturbers,
        plots,
        randomness,
        smoothers,
        thresholds,
        workloads,
    )
    from fastdp.privacy import Guarantee
    from fastdp.randomness.key import Key
    from fastdp.released import Release
    from fastdp.systems.base import Base
    from fastdp.systems.one_call import release
    from fastdp.systems.pak import PAK
    from fastdp.systems.stream_publisher import StreamPublisher
    from fastdp.systems.tops import ToPS

_HOMES = {
    "PAK": "fastdp.systems.pak",
    "Base": "fastdp.systems.base",
    "Guarantee": "fastdp.privacy",
    "Key": "fastdp.randomness.key",
    "Release": "fastdp.released",
    "StreamPublisher": "fastdp.systems.stream_publisher",
    "ToPS": "fastdp.systems.tops",
    "release": "fastdp.systems.one_call",
}
_MODULES = (
    "analysis",
    "datasets",
    "errors",
    "metrics",
    "perturbers",
    "plots",
    "randomness",
    "smoothers",
    "thresholds",
    "workloads",
)

__all__ = [
    "PAK",
    "Base",
    "Guarantee",
    "Key",
    "Release",
    "StreamPublisher",
    "ToPS",
    "__version__",
    "analysis",
    "datasets",
    "errors",
    "metrics",
    "perturbers",
    "plots",
    "randomness",
    "release",
    "smoothers",
    "thresholds",
    "workloads",
]


if not TYPE_CHECKING:
    # Hidden from type checkers, which would otherwise accept any misspelt name.
    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            value = getattr(importlib.import_module(_HOMES[name]), name)
        elif name in _MODULES:
            value = importlib.import_module(f"fastdp.{name}")
        else:
            raise AttributeError(f"module 'fastdp' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
