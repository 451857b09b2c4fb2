"""The mechanisms of this package, each ready to run many trials."""

from __future__ import annotations

from fastdp.auditing.mechanisms.local import LocalTrials, ToPLTrials
from fastdp.auditing.mechanisms.noise import (
    BinaryTreeTrials,
    Count,
    HierarchyTrials,
    NodesTrials,
    OneTreeTrials,
    draw_noise,
)
from fastdp.auditing.mechanisms.spatial import (
    Coin,
    CounterTrials,
    SelectiveTrials,
    SettlingTrials,
    SpatialTrials,
    SplitTrials,
)
from fastdp.auditing.mechanisms.streams import (
    ManyTrials,
    PublisherTrials,
    RepeatedTrials,
    ReplayTrials,
    RevisedTrials,
    StreamTrials,
)
from fastdp.auditing.mechanisms.thresholds import NoisyMaxTrials, SmoothQuantileTrials

__all__ = [
    "BinaryTreeTrials",
    "Coin",
    "Count",
    "CounterTrials",
    "HierarchyTrials",
    "LocalTrials",
    "ManyTrials",
    "NodesTrials",
    "NoisyMaxTrials",
    "OneTreeTrials",
    "PublisherTrials",
    "RepeatedTrials",
    "ReplayTrials",
    "RevisedTrials",
    "SelectiveTrials",
    "SettlingTrials",
    "SmoothQuantileTrials",
    "SpatialTrials",
    "SplitTrials",
    "StreamTrials",
    "ToPLTrials",
    "draw_noise",
]
