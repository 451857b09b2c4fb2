"""Utility analysis of PAK (NDSS 2019): error bounds, light tails, best parameters, time lag.

For planning and evaluation, not for release.  A function that takes a sample looks at it without privacy: it is for
public or simulated data.
"""

from fastdp_lab.planning.light_tail import LightTail, TailSearch, check_light_tail, search_p_max
from fastdp_lab.planning.pak_formulas import (
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
from fastdp_lab.planning.pak_optimiser import Optimum, optimise_pak

__all__ = [
    "LightTail",
    "Optimum",
    "TailSearch",
    "check_light_tail",
    "exponential_quantile",
    "noise_quantile",
    "noise_scale",
    "optimise_pak",
    "outlier_error",
    "quantile_criterion",
    "reach_criterion",
    "recommended_lag",
    "sample_quantile",
    "search_p_max",
    "sensitivity_criterion",
    "smoothing",
    "spacing_smooth_sensitivity",
    "tree_error",
    "underestimate_probability",
]
