"""Where predictions are made: smoothers work on released block totals only (post-processing)."""

from fastdp.smoothers.averages import Exponential, Mean, MovingAverage
from fastdp.smoothers.base import Smoother, SmootherState
from fastdp.smoothers.median import Median
from fastdp.smoothers.recent import Recent

__all__ = ["Exponential", "Mean", "Median", "MovingAverage", "Recent", "Smoother", "SmootherState"]
