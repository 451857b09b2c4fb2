"""Sweeps of streams of values, asked for sums of ranges."""

from fastdp_lab.sweeps.values.study import VALUES

__all__ = ["VALUES"]
