"""Methods that papers compare with: zeros, w-event privacy, and PHDStream's three baselines."""

from fastdp_lab.baselines.points import FixedTree, OfflineOnBatch, OfflineOnStream
from fastdp_lab.baselines.w_event import WEvent
from fastdp_lab.baselines.zeros import Zeros

__all__ = ["FixedTree", "OfflineOnBatch", "OfflineOnStream", "WEvent", "Zeros"]
