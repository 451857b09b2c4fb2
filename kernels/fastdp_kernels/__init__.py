"""The compiled core of fastdp.

Every function here takes C-contiguous arrays and numbers, fills ``out`` and returns numbers or status
codes.  It never validates, allocates policy, raises for bad input or draws its own randomness: random
words come in as uint64.  The facade, :mod:`fastdp`, does all of that.

This package imports only numba, NumPy and the standard library (import-linter proves it).
"""

from __future__ import annotations

from collections.abc import Callable

#: Called with a kernel's name, and the folder of its cache ("" without one), just before it is compiled.
on_compile: Callable[[str, str], None] | None = None
#: True while kernels are compiled for a wheel: they are then kept beside their sources.
ships = False
