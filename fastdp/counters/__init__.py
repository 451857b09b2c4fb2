"""Noise of running sums, and selective counting."""

from fastdp.counters.counter import BinaryTree, Block, Counter, Simple, event_guarantee
from fastdp.counters.running import RunningCounts, SelectiveCounting, Selector
from fastdp.counters.running import Selected as Selected

__all__ = [
    "BinaryTree",
    "Block",
    "Counter",
    "RunningCounts",
    "SelectiveCounting",
    "Selector",
    "Simple",
    "event_guarantee",
]
