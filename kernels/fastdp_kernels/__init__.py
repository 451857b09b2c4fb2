"""The compiled core of fastdp: arrays and numbers in, ``out`` filled, numbers or status codes returned.

Arrays are C-contiguous, random words uint64.  Nothing here validates, raises for bad input or draws randomness;
numba, NumPy and the standard library are its only imports.
"""

from __future__ import annotations

from collections.abc import Callable

#: Called with a kernel's name, and the folder of its cache ("" without one), just before it is compiled.
on_compile: Callable[[str, str], None] | None = None
#: True while kernels are compiled for a wheel: they are then kept beside their sources.
ships = False
