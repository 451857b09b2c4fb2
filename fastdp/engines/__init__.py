"""Streams inside engines that own state, replays and workers.

Other engines that store bytes by key use :meth:`fastdp.engines.job.Job.advance`.
"""

from __future__ import annotations

import builtins
import sys
from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.engines import dask, flink, spark
    from fastdp.engines.job import Job

__all__ = ["Job", "dask", "flink", "spark"]


def _name_print() -> None:
    """Name PyFlink's own ``print``, without which numba does not load."""
    home = sys.modules.get(builtins.print.__module__)
    if not hasattr(home, "print"):
        vars(home)["print"] = builtins.print


_name_print()
_HOMES = {
    "fastdp.engines.job": ("Job",),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES)
