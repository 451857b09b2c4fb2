"""Rules that choose the threshold theta."""

from fastdp.thresholds.base import Chooser, Fixed, Threshold
from fastdp.thresholds.base import ThresholdTask as ThresholdTask
from fastdp.thresholds.noisy_max import NoisyMax
from fastdp.thresholds.quantile import PAKQuantile, SmoothQuantile, TruePercentile
from fastdp.thresholds.scale_free import ScaleFree
from fastdp.thresholds.square_wave import SquareWave

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
