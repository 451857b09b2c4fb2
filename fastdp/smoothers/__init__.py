"""Where predictions are made: smoothers work on released block totals only (post-processing)."""

from fastdp.smoothers.smoothers import Exponential, Mean, Median, MovingAverage, Recent, Smoother, SmootherState

__all__ = ["Exponential", "Mean", "Median", "MovingAverage", "Recent", "Smoother", "SmootherState"]
