"""Rules that choose the threshold theta."""

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names
from fastdp.thresholds.base import Chooser, Fixed, Threshold
from fastdp.thresholds.base import ThresholdTask as ThresholdTask
from fastdp.thresholds.noisy_max import NoisyMax
from fastdp.thresholds.quantile import PAKQuantile, SmoothQuantile, TruePercentile
from fastdp.thresholds.scale_free import ScaleFree

if TYPE_CHECKING:
    from fastdp.local.square_wave import SquareWave

__all__ = [
    "Chooser",
    "Fixed",
    "NoisyMax",
    "PAKQuantile",
    "ScaleFree",
    "SmoothQuantile",
    "SquareWave",
    "Threshold",
    "TruePercentile",
]

if not TYPE_CHECKING:
    # The local model's rule, which stands beside its siblings by name and loads on first use.
    __getattr__, __dir__ = lazy_names(__name__, __all__, {"fastdp.local.square_wave": ("SquareWave",)})
