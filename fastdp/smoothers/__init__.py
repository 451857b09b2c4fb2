"""Predictions from released block totals."""

from fastdp.smoothers.smoothers import Exponential, Mean, Median, MovingAverage, Recent, Smoother, SmootherState

__all__ = ["Exponential", "Mean", "Median", "MovingAverage", "Recent", "Smoother", "SmootherState"]
