"""fastdp: data streams under differential privacy, exact and fast.  Names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names
from fastdp._version import __version__

if TYPE_CHECKING:
    from fastdp import auditing as auditing
    from fastdp import counters as counters
    from fastdp import engines as engines
    from fastdp import errors as errors
    from fastdp import interop as interop
    from fastdp import ledger as ledger
    from fastdp import local as local
    from fastdp import noise as noise
    from fastdp import perturbers as perturbers
    from fastdp import points as points
    from fastdp import smoothers as smoothers
    from fastdp import tables as tables
    from fastdp import thresholds as thresholds
    from fastdp.auditing.run import audit as audit
    from fastdp.data.calendar import Time as Time
    from fastdp.data.text import Csv as Csv
    from fastdp.guarantee import Guarantee as Guarantee
    from fastdp.ledger.ledger import Ledger as Ledger
    from fastdp.local.topl import ToPL as ToPL
    from fastdp.local.topl import ToPLServer as ToPLServer
    from fastdp.noise.key import Key as Key
    from fastdp.noise.public_draws import discrete_gaussian as discrete_gaussian
    from fastdp.noise.public_draws import discrete_laplace as discrete_laplace
    from fastdp.points.adaptive_phdstream import AdaptivePHDStream as AdaptivePHDStream
    from fastdp.points.phdstream import PHDStream as PHDStream
    from fastdp.releases.release import Release as Release
    from fastdp.streams.add_noise import add_noise as add_noise
    from fastdp.streams.array_release import release as release
    from fastdp.streams.array_release import release_many as release_many
    from fastdp.streams.fleet import Fleet as Fleet
    from fastdp.streams.methods import Adaptive as Adaptive
    from fastdp.streams.methods import ToPS as ToPS
    from fastdp.streams.pak import PAK as PAK
    from fastdp.streams.publisher import StreamPublisher as StreamPublisher
    from fastdp.tables.arguments import PrivateKeys as PrivateKeys
    from fastdp.tables.arguments import Value as Value
    from fastdp.tables.functions import aggregate as aggregate
    from fastdp.tables.functions import counts as counts
    from fastdp.tables.functions import means as means
    from fastdp.tables.functions import totals as totals
    from fastdp.tables.planning import Plan as Plan
    from fastdp.tables.planning import plan as plan
    from fastdp.tables.windows import Windows as Windows
    from fastdp.units import Person as Person
    from fastdp.units import Rows as Rows

#: Packages that are public.
_PACKAGES = (
    *("auditing", "counters", "engines", "errors", "interop", "ledger", "local", "noise", "perturbers", "points"),
    *("smoothers", "tables", "thresholds"),
)
#: Public names by the modules that have them.
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
    "fastdp.streams.array_release": ("release", "release_many"),
    "fastdp.data.calendar": ("Time",),
    "fastdp.data.text": ("Csv",),
    "fastdp.tables.arguments": ("PrivateKeys", "Value"),
    "fastdp.tables.functions": ("aggregate", "counts", "means", "totals"),
    "fastdp.tables.planning": ("Plan", "plan"),
    "fastdp.tables.windows": ("Windows",),
    "fastdp.units": ("Person", "Rows"),
}

__all__ = ["__version__", *_PACKAGES, *(name for names in _HOMES.values() for name in names)]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES)
