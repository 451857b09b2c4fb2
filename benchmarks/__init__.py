"""Benchmarks of fastdp: ``python -m benchmarks GROUP ...``.

Importing this package takes fastdp from the checkout if it is not installed, and names numba's cache by a hash of the
kernel sources: numba does not recompile a cached kernel when a helper in another file has changed.
"""

import hashlib
import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE_VARIABLE = "NUMBA_CACHE_DIR"


def choose_cache() -> None:
    """Set numba's cache folder unless the user chose one; numba reads its environment when it is imported."""
    found = importlib.util.find_spec("fastdp_kernels")
    if found is None or found.origin is None or CACHE_VARIABLE in os.environ:
        return
    digest = hashlib.sha256()
    for path in sorted(Path(found.origin).parent.rglob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    os.environ[CACHE_VARIABLE] = str(ROOT / ".numba_cache" / digest.hexdigest()[:16])


if importlib.util.find_spec("fastdp_kernels") is None:
    sys.path += [str(ROOT), str(ROOT / "kernels"), str(ROOT / "lab")]
choose_cache()
