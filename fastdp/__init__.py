"""fastdp: data streams under differential privacy, exact and fast.

Names load on first use, so that ``import fastdp`` costs no more than this file (numba takes a while).
"""

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
        fleets,
        interop,
        ledger,
        local,
        perturbers,
        plots,
        randomness,
        smoothers,
        spatial,
        tables,
        thresholds,
    )
    from fastdp.auditing.run import audit
    from fastdp.fleets.fleet import Fleet
    from fastdp.guarantee import Guarantee
    from fastdp.ledger.ledger import Ledger
    from fastdp.randomness.key import Key
    from fastdp.randomness.public_draws import discrete_gaussian, discrete_laplace
    from fastdp.releases.batch import ReleasedMany
    from fastdp.releases.plan import Plan, plan
    from fastdp.releases.release import Release
    from fastdp.systems.add_noise import add_noise
    from fastdp.systems.pak.publisher import PAK
    from fastdp.systems.phdstream.adaptive import AdaptivePHDStream
    from fastdp.systems.phdstream.publisher import PHDStream
    from fastdp.systems.release import release
    from fastdp.systems.release_many import release_many
    from fastdp.systems.stream.adaptive import Adaptive
    from fastdp.systems.stream.publisher import StreamPublisher
    from fastdp.systems.stream.tops import ToPS
    from fastdp.systems.topl.publisher import ToPL, ToPLServer
    from fastdp.tables.functions import counts, means, totals
    from fastdp.tables.windows import Windows

_HOMES = {
    "fastdp.auditing.run": ("audit",),
    "fastdp.fleets.fleet": ("Fleet",),
    "fastdp.guarantee": ("Guarantee",),
    "fastdp.ledger.ledger": ("Ledger",),
    "fastdp.randomness.key": ("Key",),
    "fastdp.randomness.public_draws": ("discrete_gaussian", "discrete_laplace"),
    "fastdp.releases.batch": ("ReleasedMany",),
    "fastdp.releases.plan": ("Plan", "plan"),
    "fastdp.releases.release": ("Release",),
    "fastdp.systems.add_noise": ("add_noise",),
    "fastdp.systems.pak.publisher": ("PAK",),
    "fastdp.systems.phdstream.adaptive": ("AdaptivePHDStream",),
    "fastdp.systems.phdstream.publisher": ("PHDStream",),
    "fastdp.systems.release": ("release",),
    "fastdp.systems.release_many": ("release_many",),
    "fastdp.systems.stream.adaptive": ("Adaptive",),
    "fastdp.systems.stream.publisher": ("StreamPublisher",),
    "fastdp.systems.stream.tops": ("ToPS",),
    "fastdp.systems.topl.publisher": ("ToPL", "ToPLServer"),
    "fastdp.tables.functions": ("counts", "means", "totals"),
    "fastdp.tables.windows": ("Windows",),
}

__all__ = [
    "PAK",
    "Adaptive",
    "AdaptivePHDStream",
    "Fleet",
    "Guarantee",
    "Key",
    "Ledger",
    "PHDStream",
    "Plan",
    "Release",
    "ReleasedMany",
    "StreamPublisher",
    "ToPL",
    "ToPLServer",
    "ToPS",
    "Windows",
    "__version__",
    "add_noise",
    "audit",
    "auditing",
    "counters",
    "counts",
    "discrete_gaussian",
    "discrete_laplace",
    "engines",
    "errors",
    "fleets",
    "interop",
    "ledger",
    "local",
    "means",
    "perturbers",
    "plan",
    "plots",
    "randomness",
    "release",
    "release_many",
    "smoothers",
    "spatial",
    "tables",
    "thresholds",
    "totals",
]


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES)
