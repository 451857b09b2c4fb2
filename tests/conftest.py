"""Before any kernel is imported: a cache folder named by the hash of all kernel sources.

A cached kernel is not recompiled when a helper in another file changes, so a shared cache could test old
code.  Hypothesis runs without deadlines, because first calls compile.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]


def _kernel_cache() -> Path:
    digest = hashlib.sha256()
    for source in sorted((ROOT / "kernels" / "fastdp_kernels").glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return ROOT / ".numba_cache" / digest.hexdigest()[:16]


os.environ.setdefault("NUMBA_CACHE_DIR", str(_kernel_cache()))
# Every word that a publisher draws is checked to be drawn once.
os.environ["FASTDP_DEBUG"] = "1"
settings.register_profile("fastdp", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("fastdp")


@pytest.fixture
def forked_at_sync(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The child that is forked when something is synced for the first time, and lives until the test's end."""
    from fastdp.files import durable

    if not hasattr(os, "fork") or not durable.has_locks():
        pytest.skip("needs fork and flock")
    real, children = os.fsync, []

    def forking(descriptor: int) -> None:
        if not children:
            child = os.fork()
            if not child:
                signal.pause()
                os._exit(0)
            children.append(child)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", forking)
    monkeypatch.setattr(durable, "LOCK_TRIES", 2)
    yield children
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
