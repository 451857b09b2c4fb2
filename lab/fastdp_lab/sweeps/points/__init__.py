"""Sweeps of streams of points, asked how many points are in boxes at several times."""

from fastdp_lab.sweeps.points.study import POINTS

__all__ = ["POINTS"]
