"""Baselines that are publishers: zeros, and PHDStream's three.  Rivals: :mod:`fastdp_lab.contestants`."""

from fastdp_lab.baselines.points import FixedTree, OfflineOnBatch, OfflineOnStream
from fastdp_lab.baselines.zeros import Zeros

__all__ = ["FixedTree", "OfflineOnBatch", "OfflineOnStream", "Zeros"]
