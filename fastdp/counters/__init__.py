"""Where running sums get their noise: Simple, Block and Binary Tree counters, and selective counting over them."""

from fastdp.counters.base import Counter, event_guarantee
from fastdp.counters.blocks import BinaryTree, Block, Simple
from fastdp.counters.running import RunningCounts
from fastdp.counters.selective import Selected as Selected
from fastdp.counters.selective import SelectiveCounting, Selector

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
