"""Keys, words, and exact samplers, loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.noise.key import Key
    from fastdp.noise.pooled import Gaussian, Laplace
    from fastdp.noise.public_draws import discrete_gaussian, discrete_laplace, geometric

__all__ = ["Gaussian", "Key", "Laplace", "discrete_gaussian", "discrete_laplace", "geometric"]


_HOMES = {
    "fastdp.noise.key": ("Key",),
    "fastdp.noise.pooled": ("Gaussian", "Laplace"),
    "fastdp.noise.public_draws": ("discrete_gaussian", "discrete_laplace", "geometric"),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES)
