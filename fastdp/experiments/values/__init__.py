"""Sweeps of streams of values, asked for sums of ranges."""

from fastdp.experiments.values.study import VALUES

__all__ = ["VALUES"]
