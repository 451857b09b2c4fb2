"""Where a stream is perturbed: noise on integer sums, level by level."""

from fastdp.perturbers.hierarchy import Hierarchy, HierarchyPlan

__all__ = ["Hierarchy", "HierarchyPlan"]
