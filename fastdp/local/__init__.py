"""The local model: each user turns one value into one report that is private by itself.

Clients call ``perturb``, the server ``estimate``.  Names load on first use, and a client with a few values
needs NumPy and the standard library only.  Source: ToPS/ToPL section 4 and Appendix E.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.local.client import Announcement, Client
    from fastdp.local.distribution import Distribution as Distribution
    from fastdp.local.encoding import decode, encode
    from fastdp.local.histogram import HistogramCollector
    from fastdp.local.hybrid import Hybrid
    from fastdp.local.log_square_wave import LogSquareWave
    from fastdp.local.piecewise import Piecewise
    from fastdp.local.square_wave import SquareWave
    from fastdp.local.stochastic_rounding import StochasticRounding
    from fastdp.local.sums import SumCollector

_HOMES = {
    "Announcement": "fastdp.local.client",
    "Client": "fastdp.local.client",
    "Distribution": "fastdp.local.distribution",
    "HistogramCollector": "fastdp.local.histogram",
    "Hybrid": "fastdp.local.hybrid",
    "LogSquareWave": "fastdp.local.log_square_wave",
    "Piecewise": "fastdp.local.piecewise",
    "SquareWave": "fastdp.local.square_wave",
    "StochasticRounding": "fastdp.local.stochastic_rounding",
    "SumCollector": "fastdp.local.sums",
    "decode": "fastdp.local.encoding",
    "encode": "fastdp.local.encoding",
}

__all__ = [
    "Announcement",
    "Client",
    "HistogramCollector",
    "Hybrid",
    "LogSquareWave",
    "Piecewise",
    "SquareWave",
    "StochasticRounding",
    "SumCollector",
    "decode",
    "encode",
]


if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
