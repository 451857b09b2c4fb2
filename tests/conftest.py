"""Before any kernel is imported: a cache folder named by the hash of all kernel sources.

A cached kernel is not recompiled when a helper in another file changes, so a shared cache could test old
code.  Hypothesis runs without deadlines, because first calls compile.  Fresh keys follow from a test's name.
"""

from __future__ import annotations

import atexit
import hashlib
import itertools
import os
import secrets
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]


def _kernel_cache() -> Path:
    digest = hashlib.sha256()
    for source in sorted((ROOT / "kernels" / "fastdp_kernels").rglob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return ROOT / ".numba_cache" / digest.hexdigest()[:16]


os.environ.setdefault("NUMBA_CACHE_DIR", str(_kernel_cache()))
# Every word that a publisher draws is checked to be drawn once.
os.environ["FASTDP_DEBUG"] = "1"
# A busy machine draws slowly.
settings.register_profile(
    "fastdp",
    max_examples=20,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# pytest --hypothesis-profile=thorough
settings.register_profile("thorough", settings.get_profile("fastdp"), max_examples=100)
settings.load_profile("fastdp")


def _silence_stderr() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


# First here and so last at exit: DuckDB's bindings list their own objects after the test runner's closing line.
atexit.register(_silence_stderr)


class FreshKeys:
    """In the place of the module ``secrets`` where keys are made: no test fails because of an unlucky key.

    FASTDP_FRESH_SEEDS=1 takes them from the operating system.  A forked child always does: under keys of its
    parent's it would repeat its noise.
    """

    compare_digest = staticmethod(secrets.compare_digest)

    def __init__(self) -> None:
        self.begin("")

    def begin(self, test: str) -> None:
        self.test, self.drawn = test, itertools.count()

    def token_bytes(self, size: int) -> bytes:
        """As ``secrets.token_bytes``, from the test's name and a count of the keys that it made."""
        return hashlib.shake_256(f"{self.test} {next(self.drawn)}".encode()).digest(size)


FRESH_KEYS = FreshKeys()
if os.environ.get("FASTDP_FRESH_SEEDS") != "1":
    from fastdp.noise import key

    key.secrets = FRESH_KEYS
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: setattr(key, "secrets", secrets))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test has the same keys alone and among others; wider fixtures have those of the test that made them."""
    FRESH_KEYS.begin(item.nodeid)


TOPS = {"epsilon": 1.0, "bound": 50, "holdout": 40, "max_range": 64, "fan_out": 4, "prune": 1, "seed": 7}
PARTS = {"epsilon": 1.0, "bound": 50, "max_range": 64, "seed": 7}


@pytest.fixture(scope="session")
def make() -> Callable[..., Any]:
    """Small :class:`fastdp.ToPS` publishers."""
    import fastdp

    def build(**options: Any) -> fastdp.ToPS:
        given = TOPS | options
        rule = {name: given.pop(name) for name in ("c", "noise") if name in given}
        if rule:
            given["threshold"] = fastdp.thresholds.NoisyMax(fan_out=given["fan_out"], **rule)
        return fastdp.ToPS(**given)

    return build


@pytest.fixture(scope="session")
def compose() -> Callable[..., Any]:
    """Small :class:`fastdp.StreamPublisher` publishers."""
    import fastdp

    parts = {"threshold": fastdp.thresholds.Fixed(50.0), "perturber": fastdp.perturbers.Hierarchy(fan_out=4, prune=0)}
    return lambda **options: fastdp.StreamPublisher(**(PARTS | parts | options))


@pytest.fixture(scope="session")
def stream() -> np.ndarray:
    """Whole numbers from 0 to 49, which every real dtype holds exactly; longer than hold-out and trees."""
    numbers = np.random.default_rng(3).integers(0, 50, 211).astype(np.float64)
    numbers.flags.writeable = False
    return numbers


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock in use is tried once."""
    from fastdp.state import atomic_files

    monkeypatch.setattr(atomic_files, "LOCK_TRIES", 1)


@pytest.fixture
def one_key_for_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of local reports does not follow from the domain of values."""
    monkeypatch.setattr("fastdp.local.mechanisms.Mechanism._words", b"one for all domains")


@pytest.fixture
def unknown_narwhals(monkeypatch: pytest.MonkeyPatch) -> None:
    """No attribute of the package has been asked for yet."""
    from fastdp.data import column, source

    monkeypatch.setattr(source, "narwhals", column.Module("narwhals.stable.v2"))


@pytest.fixture
def forked_at_sync(impatient: None) -> Iterator[list[int]]:
    """The child that is forked when something is synced for the first time, and lives until the test's end."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    real, children = os.fsync, []

    def forking(descriptor: int) -> None:
        if not children:
            child = os.fork()
            if not child:
                signal.pause()
                os._exit(0)
            children.append(child)
        real(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", forking)
        yield children
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
