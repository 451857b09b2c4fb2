"""Sweeps of streams of points, asked how many points are in boxes at several times."""

from fastdp.experiments.points.study import POINTS

__all__ = ["POINTS"]
