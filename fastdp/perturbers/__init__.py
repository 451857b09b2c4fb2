"""Noise of a stream's sums, by level or block."""

from fastdp.perturbers.base import HierarchyShape as HierarchyShape
from fastdp.perturbers.base import Perturber
from fastdp.perturbers.blocks import Blocks, Flat, WindowTree, tree_for_window
from fastdp.perturbers.hierarchy import Hierarchy
from fastdp.perturbers.toeplitz import Toeplitz

__all__ = ["Blocks", "Flat", "Hierarchy", "Perturber", "Toeplitz", "WindowTree", "tree_for_window"]
