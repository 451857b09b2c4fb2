"""Utility analysis of PAK (NDSS 2019): the parameters of its smallest error bound (Tables I and II, Figure 7)."""

from fastdp_lab.planning.formulas import exponential_quantile, sample_quantile, sample_sensitivity
from fastdp_lab.planning.optimiser import Optimum, optimise_pak

__all__ = [
    "Optimum",
    "exponential_quantile",
    "optimise_pak",
    "sample_quantile",
    "sample_sensitivity",
]
