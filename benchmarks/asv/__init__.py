"""The quick set under asv, whose own commands (``python -m asv publish``) run in the project's root."""

import sys
from pathlib import Path

# asv imports this folder as a package of its own and hides PYTHONPATH.  Only the benchmarks come from this checkout:
# fastdp is the wheel of the commit that asv measures, where there is one.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import benchmarks  # noqa: F401 - chooses the folder of compiled kernels

del sys.path[0]
