"""Range queries for evaluation: workloads, and errors of their answers."""

from fastdp.queries import metrics, workloads

__all__ = ["metrics", "workloads"]
