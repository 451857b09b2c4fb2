"""A folder for compiled kernels that no edit of their sources can make stale.

Imports neither numba nor fastdp: it must run before numba reads its environment.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"
CACHES = Path(__file__).resolve().parents[1] / ".numba_cache"


def kernel_folder() -> Path | None:
    """Where fastdp_kernels lies; None if it cannot be imported."""
    found = importlib.util.find_spec("fastdp_kernels")
    return None if found is None or found.origin is None else Path(found.origin).parent


def choose_folder() -> None:
    """Set NUMBA_CACHE_DIR to a folder named by all kernel sources, unless the user chose one."""
    sources = kernel_folder()
    if sources is None or VARIABLE in os.environ:
        return
    digest = hashlib.sha256()
    for path in sorted(sources.rglob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    os.environ[VARIABLE] = str(CACHES / digest.hexdigest()[:16])
