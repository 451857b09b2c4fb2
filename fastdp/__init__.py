"""fastdp: data streams under differential privacy, exact and fast.  Names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names
from fastdp._version import __version__

if TYPE_CHECKING:
    from fastdp import (
        auditing,
        counters,
        engines,
        errors,
        interop,
        ledger,
        local,
        noise,
        perturbers,
        points,
        smoothers,
        tables,
        thresholds,
    )
    from fastdp.auditing.run import audit
    from fastdp.data.calendar import Time
    from fastdp.data.text import Csv
    from fastdp.guarantee import Guarantee
    from fastdp.ledger.ledger import Ledger
    from fastdp.local.topl import ToPL, ToPLServer
    from fastdp.noise.key import Key
    from fastdp.noise.public_draws import discrete_gaussian, discrete_laplace
    from fastdp.points.adaptive_phdstream import AdaptivePHDStream
    from fastdp.points.phdstream import PHDStream
    from fastdp.releases.release import Release
    from fastdp.streams.add_noise import add_noise
    from fastdp.streams.fleet import Fleet
    from fastdp.streams.methods import Adaptive, ToPS
    from fastdp.streams.pak import PAK
    from fastdp.streams.publisher import StreamPublisher
    from fastdp.streams.release import release, release_many
    from fastdp.tables.arguments import PrivateKeys, Value
    from fastdp.tables.functions import aggregate, counts, means, totals
    from fastdp.tables.planning import Plan, plan
    from fastdp.tables.windows import Windows
    from fastdp.units import Person, Rows

__all__ = [
    "PAK",
    "Adaptive",
    "AdaptivePHDStream",
    "Csv",
    "Fleet",
    "Guarantee",
    "Key",
    "Ledger",
    "PHDStream",
    "Person",
    "Plan",
    "PrivateKeys",
    "Release",
    "Rows",
    "StreamPublisher",
    "Time",
    "ToPL",
    "ToPLServer",
    "ToPS",
    "Value",
    "Windows",
    "__version__",
    "add_noise",
    "aggregate",
    "audit",
    "auditing",
    "counters",
    "counts",
    "discrete_gaussian",
    "discrete_laplace",
    "engines",
    "errors",
    "interop",
    "ledger",
    "local",
    "means",
    "noise",
    "perturbers",
    "plan",
    "points",
    "release",
    "release_many",
    "smoothers",
    "tables",
    "thresholds",
    "totals",
]


_HOMES = {
    "fastdp.auditing.run": ("audit",),
    "fastdp.guarantee": ("Guarantee",),
    "fastdp.ledger.ledger": ("Ledger",),
    "fastdp.local.topl": ("ToPL", "ToPLServer"),
    "fastdp.noise.key": ("Key",),
    "fastdp.noise.public_draws": ("discrete_gaussian", "discrete_laplace"),
    "fastdp.releases.release": ("Release",),
    "fastdp.points.adaptive_phdstream": ("AdaptivePHDStream",),
    "fastdp.points.phdstream": ("PHDStream",),
    "fastdp.streams.add_noise": ("add_noise",),
    "fastdp.streams.fleet": ("Fleet",),
    "fastdp.streams.methods": ("Adaptive", "ToPS"),
    "fastdp.streams.pak": ("PAK",),
    "fastdp.streams.publisher": ("StreamPublisher",),
    "fastdp.streams.release": ("release", "release_many"),
    "fastdp.data.calendar": ("Time",),
    "fastdp.data.text": ("Csv",),
    "fastdp.tables.arguments": ("PrivateKeys", "Value"),
    "fastdp.tables.functions": ("aggregate", "counts", "means", "totals"),
    "fastdp.tables.planning": ("Plan", "plan"),
    "fastdp.tables.windows": ("Windows",),
    "fastdp.units": ("Person", "Rows"),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES)
