"""Plots of streams and points (extra ``plot``)."""

from fastdp.plots.points import counters_compared, errors_over_time, points_and_cells
from fastdp.plots.streams import bin_means, truth_and_releases

__all__ = ["bin_means", "counters_compared", "errors_over_time", "points_and_cells", "truth_and_releases"]
