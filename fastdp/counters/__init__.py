"""Where running sums get their noise: Simple, Block and Binary Tree counters, and selective counting over them."""

from fastdp.counters.base import Counter, event_guarantee
from fastdp.counters.binary_tree import BinaryTree
from fastdp.counters.block import Block
from fastdp.counters.running import RunningCounts
from fastdp.counters.selective import Selected as Selected
from fastdp.counters.selective import SelectiveCounting, Selector
from fastdp.counters.simple import Simple

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
