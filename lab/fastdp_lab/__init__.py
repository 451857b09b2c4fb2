"""The laboratory of fastdp: sweeps, data sets, audits of its mechanisms, couplings, baselines, planning of PAK.

It imports fastdp's public names, noise tables (:mod:`fastdp.noise.given_noise`), and further names that are listed
with reasons in ``tests/packaging/lab_imports.toml``; fastdp never imports it.  Its libraries are the extra ``lab``:
``pip install "fastdp-streams[lab]"``.  Names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp_lab import audit, baselines, datasets, planning, queries, repetitions, sweeps

__all__ = [
    "audit",
    "baselines",
    "datasets",
    "planning",
    "queries",
    "repetitions",
    "sweeps",
]


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, {})
