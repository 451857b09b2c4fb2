"""Before any kernel is imported: a cache folder named by the hash of all kernel sources.

A cached kernel is not recompiled when a helper in another file changes, so a shared cache could test old
code.  Hypothesis runs without deadlines, because first calls compile.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]


def _kernel_cache() -> Path:
    digest = hashlib.sha256()
    for source in sorted((ROOT / "kernels" / "fastdp_kernels").glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return ROOT / ".numba_cache" / digest.hexdigest()[:16]


os.environ.setdefault("NUMBA_CACHE_DIR", str(_kernel_cache()))
settings.register_profile("fastdp", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("fastdp")
