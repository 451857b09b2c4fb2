"""Streams inside engines that own state, replays and workers: a thin module and an extra for each.

Engines that store bytes by key use :class:`fastdp.engines.job.Job`, ones that run tasks
:class:`fastdp.engines.shards.Shards`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.engines import bytewax, dask, flink, quix, ray, spark
    from fastdp.engines.job import Job

_HOMES = {"fastdp.engines.job": ("Job",)}

__all__ = ["Job", "bytewax", "dask", "flink", "quix", "ray", "spark"]


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES)
