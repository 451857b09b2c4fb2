"""Utility analysis of PAK (NDSS 2019): error bounds, the best parameters."""

from fastdp_lab.planning.formulas import (
    exponential_quantile,
    noise_quantile,
    noise_scale,
    outlier_error,
    quantile_criterion,
    reach_criterion,
    recommended_lag,
    sample_quantile,
    sensitivity_criterion,
    smoothing,
    spacing_smooth_sensitivity,
    tree_error,
    underestimate_probability,
)
from fastdp_lab.planning.optimiser import Optimum, optimise_pak

__all__ = [
    "Optimum",
    "exponential_quantile",
    "noise_quantile",
    "noise_scale",
    "optimise_pak",
    "outlier_error",
    "quantile_criterion",
    "reach_criterion",
    "recommended_lag",
    "sample_quantile",
    "sensitivity_criterion",
    "smoothing",
    "spacing_smooth_sensitivity",
    "tree_error",
    "underestimate_probability",
]
