"""Range queries for evaluation: workloads, and errors of their answers."""

from fastdp_lab.queries import boxes, metrics, workloads

__all__ = ["boxes", "metrics", "workloads"]
