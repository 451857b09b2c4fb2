"""Benchmarks of fastdp: asv suites (``bench_*``), peers to compare with, and the tables of ``show``.

Importing this package takes fastdp from the checkout if it is not installed, and points numba's cache at a
folder named by a hash of the kernel sources, because numba does not recompile a cached kernel when a helper
in another file has changed.
"""

import importlib.util
import sys
from pathlib import Path

from benchmarks.kernel_cache import choose_folder

ROOT = Path(__file__).resolve().parents[1]
if importlib.util.find_spec("fastdp_kernels") is None:
    sys.path += [str(ROOT), str(ROOT / "kernels")]

choose_folder()
