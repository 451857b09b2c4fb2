"""Streams inside engines that own state, replays and workers: one thin module and one extra for each engine.

A new adapter is a module here: on :class:`fastdp.engines.job.Job` if the engine stores bytes by key, on
:class:`fastdp.engines.shards.Shards` if it only runs tasks.  It needs an extra in ``pyproject.toml``, a section of
``docs/engines.md``, an example, and a test that runs the engine.
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
