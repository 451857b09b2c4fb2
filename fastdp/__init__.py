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
        engines,
        errors,
        experiments,
        fleets,
        interop,
        ledger,
        local,
        perturbers,
        plots,
        randomness,
        smoothers,
        spatial,
        systems,
        tables,
        thresholds,
    )
    from fastdp.auditing.run import audit
    from fastdp.fleets.fleet import Fleet
    from fastdp.guarantee import Guarantee
    from fastdp.ledger.ledger import Ledger
    from fastdp.queries import metrics, workloads
    from fastdp.randomness.gaussian import discrete_gaussian
    from fastdp.randomness.key import Key
    from fastdp.randomness.sampler import discrete_laplace
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
    from fastdp.systems.topl.publisher import ToPL
    from fastdp.systems.topl.server import ToPLServer
    from fastdp.tables.functions import counts, means, totals
    from fastdp.tables.windows import Windows

_HOMES = {
    "PAK": "fastdp.systems.pak.publisher",
    "AdaptivePHDStream": "fastdp.systems.phdstream.adaptive",
    "Adaptive": "fastdp.systems.stream.adaptive",
    "Plan": "fastdp.releases.plan",
    "PHDStream": "fastdp.systems.phdstream.publisher",
    "Fleet": "fastdp.fleets.fleet",
    "Guarantee": "fastdp.guarantee",
    "Key": "fastdp.randomness.key",
    "Ledger": "fastdp.ledger.ledger",
    "Release": "fastdp.releases.release",
    "ReleasedMany": "fastdp.releases.batch",
    "StreamPublisher": "fastdp.systems.stream.publisher",
    "ToPL": "fastdp.systems.topl.publisher",
    "ToPLServer": "fastdp.systems.topl.server",
    "ToPS": "fastdp.systems.stream.tops",
    "Windows": "fastdp.tables.windows",
    "add_noise": "fastdp.systems.add_noise",
    "audit": "fastdp.auditing.run",
    "counts": "fastdp.tables.functions",
    "discrete_gaussian": "fastdp.randomness.gaussian",
    "discrete_laplace": "fastdp.randomness.sampler",
    "means": "fastdp.tables.functions",
    "metrics": "fastdp.queries",
    "plan": "fastdp.releases.plan",
    "release": "fastdp.systems.release",
    "release_many": "fastdp.systems.release_many",
    "totals": "fastdp.tables.functions",
    "workloads": "fastdp.queries",
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
    "analysis",
    "audit",
    "auditing",
    "counters",
    "counts",
    "datasets",
    "discrete_gaussian",
    "discrete_laplace",
    "engines",
    "errors",
    "experiments",
    "fleets",
    "interop",
    "ledger",
    "local",
    "means",
    "metrics",
    "perturbers",
    "plan",
    "plots",
    "randomness",
    "release",
    "release_many",
    "smoothers",
    "spatial",
    "systems",
    "tables",
    "thresholds",
    "totals",
    "workloads",
]


if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
