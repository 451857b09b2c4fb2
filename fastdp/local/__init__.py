"""The local model: each user sends one report, private by itself (ToPS section 4).

Names load on first use: a client needs NumPy and the standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.local.client import Announcement, Client
    from fastdp.local.collectors import HistogramCollector, SumCollector
    from fastdp.local.distribution import Distribution as Distribution
    from fastdp.local.encoding import decode, encode
    from fastdp.local.mechanisms import Hybrid, LogSquareWave, Piecewise, SquareWave, StochasticRounding

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


_HOMES = {
    "fastdp.local.client": ("Announcement", "Client"),
    "fastdp.local.collectors": ("HistogramCollector", "SumCollector"),
    "fastdp.local.distribution": ("Distribution",),
    "fastdp.local.encoding": ("decode", "encode"),
    "fastdp.local.mechanisms": ("Hybrid", "LogSquareWave", "Piecewise", "SquareWave", "StochasticRounding"),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES)
