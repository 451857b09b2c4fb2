"""Compiled kernels on disk: those of this processor, and those that a wheel brings for levels of processors.

A kernel is looked up in Numba's cache, then in ``_compiled`` beside its source, which a wheel's build fills (``fastdp
compile --level``); else it is compiled and kept in the former.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite.binding
import numpy as np
from numba import config
from numba.core import caching

import fastdp_kernels

_V3 = frozenset({"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"})
#: Instructions of a level of processors, by LLVM's names; the highest level first.
LEVELS = {
    "x86-64-v4": _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": _V3,
}


def _features_of_processor() -> frozenset[str]:
    try:
        found = llvmlite.binding.get_host_cpu_features()
    except RuntimeError:
        return frozenset()
    return frozenset(name for name, present in found.items() if present)


def _features_of_target() -> frozenset[str]:
    """Instructions of the target: this processor, unless Numba's variables name another."""
    name, features = getattr(config, "CPU_NAME", None), getattr(config, "CPU_FEATURES", None)
    if features:
        return frozenset(each[1:] for each in features.split(",") if each.startswith("+"))
    found = frozenset(LEVELS.get(name, ())) if name else _PROCESSOR
    if features is None and not getattr(config, "ENABLE_AVX", True):
        # As Numba does, for kernels that it compiles.
        return frozenset(each for each in found if not each.startswith("avx"))
    return found


_PROCESSOR = _features_of_processor()
_TARGET = _features_of_target()


def processor_has(*features: str) -> bool:
    """True if this processor has instructions, by LLVM's names."""
    return _PROCESSOR.issuperset(features)


def target_has(features: Collection[str]) -> bool:
    """True if the target has instructions."""
    return _TARGET.issuperset(features)


def _stamp() -> str:
    """Digest of all sources, with NumPy's major version, whose arrays kernels read."""
    digest = hashlib.sha256(np.__version__.partition(".")[0].encode())
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


_STAMP = _stamp()

if TYPE_CHECKING:
    _UserLocator = caching.UserProvidedCacheLocator
    _TreeLocator = caching.InTreeCacheLocator
else:
    # Their names began with an underscore up to Numba 0.61.
    _UserLocator = getattr(caching, "UserProvidedCacheLocator", None) or caching._UserProvidedCacheLocator
    _TreeLocator = getattr(caching, "InTreeCacheLocator", None) or caching._InTreeCacheLocator


class _ReadOnlyLocator(_UserLocator):
    """``NUMBA_CACHE_DIR`` filled before, as in a read-only image."""

    def ensure_cache_path(self) -> None:
        _check_filled(self.get_cache_path())  # type: ignore[no-untyped-call]


class _ShippedLocator(_TreeLocator):
    def get_cache_path(self) -> str:
        return str(Path(self._py_file).with_name("_compiled"))

    def ensure_cache_path(self) -> None:
        if fastdp_kernels.ships:
            super().ensure_cache_path()  # type: ignore[no-untyped-call]
        else:
            _check_filled(self.get_cache_path())


def _check_filled(folder: str) -> None:
    if not any(Path(folder).glob("*.nbi")):
        raise OSError(folder)


class _OwnFiles(caching.CompileResultCacheImpl):
    _locator_classes = [  # noqa: RUF012 - Numba's own
        _UserLocator,
        _ReadOnlyLocator,
        *caching.CompileResultCacheImpl._locator_classes[1:],
    ]


class _ShippedFiles(caching.CompileResultCacheImpl):
    _locator_classes = [_ShippedLocator]  # noqa: RUF012 - Numba's own


class _OwnCache(caching.FunctionCache):
    _impl_class = _OwnFiles


class _ShippedCache(caching.FunctionCache):
    _impl_class = _ShippedFiles
    #: The level whose kernels are read; None to write those of the target.
    _level: str | None = None

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        signature, target, code = super()._index_key(signature, codegen)  # type: ignore[no-untyped-call]
        return signature, target if self._level is None else (target[0], self._level, ""), code

    def read(self, signature: Any, context: Any) -> Any:
        """The kernel of the target's highest level, or None."""
        for level, features in LEVELS.items():
            self._level = level
            if not target_has(features):
                continue
            found = self.load_overload(signature, context)  # type: ignore[no-untyped-call]
            if found is not None:
                return found
        return None


class KeptKernel:
    """A compiled kernel as a dispatcher asks for it: see the module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = function.__name__
        self._shipped: _ShippedCache | None = _made(_ShippedCache, function)
        self._own: Any = self._shipped if fastdp_kernels.ships else _made(_OwnCache, function)

    @property
    def cache_path(self) -> str:
        return "" if self._own is None else str(self._own.cache_path)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The compiled kernel; None if it is compiled next, which is told."""
        found = None if self._own is None else _forgiving(self._own.load_overload, signature, context)
        if found is None and self._shipped is not None and not fastdp_kernels.ships:
            found = _forgiving(self._shipped.read, signature, context)
        if found is None:
            if self._own is None:
                # Neither NUMBA_CACHE_DIR, nor __pycache__ beside the sources, nor the user's cache can be written.
                _warn_of_cache("no folder for them can be written")
            if fastdp_kernels.on_compile is not None:
                fastdp_kernels.on_compile(self._name, self.cache_path)
        return found

    def save_overload(self, signature: Any, compiled: Any) -> None:
        if self._own is not None:
            _forgiving(self._own.save_overload, signature, compiled)


def _made(kind: type[Any], function: Callable[..., Any]) -> Any:
    """Numba cache stamped with a hash of all kernel sources (Numba's own: of one file); None without a folder."""
    try:
        cache = kind(function)
    except RuntimeError:
        return None
    cache._cache_file._source_stamp = _STAMP
    return cache


def _forgiving(access: Callable[..., Any], *arguments: Any) -> Any:
    """A cache that fills up, or is taken away, must not stop a publisher: it compiles for itself."""
    try:
        return access(*arguments)
    except OSError as error:
        _warn_of_cache(str(error))
        return None


_warned: list[str] = []
#: Packages whose frames lie between the caller and a warning.
_BETWEEN = ("fastdp_kernels", "fastdp", "numba", "importlib")


def _warn_of_cache(reason: str) -> None:
    """Warn once in a process, at the caller's line, that it will compile for itself."""
    if not _warned:
        _warned.append(reason)
        frame = sys._getframe()
        while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
            frame = frame.f_back
        warnings.warn_explicit(
            f"compiled kernels cannot be kept ({reason}): every process compiles them again, which takes seconds; "
            "expected NUMBA_CACHE_DIR to name a folder that can be written",
            RuntimeWarning,
            frame.f_code.co_filename,
            frame.f_lineno,
        )
