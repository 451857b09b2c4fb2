"""Compiled core of fastdp: kernels take arrays and numbers, fill ``out`` and return numbers or status codes.

Arrays are C-contiguous, random words uint64.  Nothing here validates, raises for bad input or draws randomness.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

#: Called with a kernel's name, and the folder of its cache ("" without one), just before it is compiled.
on_compile: Callable[[str, str], None] | None = None
#: True while kernels are compiled for a wheel: they are then kept beside their sources.
ships = False

#: Those that fastdp is called through.
_OWN = ("fastdp_kernels", "fastdp", "numba", "importlib")
#: Packages whose frames may lie between two of fastdp's.
_BETWEEN = frozenset((*_OWN, "numpy", *sys.stdlib_module_names))


def caller() -> FrameType:
    """Find the frame that called fastdp."""
    found = sys._getframe()
    frame: FrameType | None = found
    while frame is not None and (package := _package(frame)) in _BETWEEN:
        frame = frame.f_back
        if package in _OWN and frame is not None:
            found = frame
    return found


def _package(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0]
