"""The one place that names the compiler.

``kernel`` compiles without the interpreter lock, with an on-disk cache and without ``fastmath`` (noise
must not depend on a compiler's liberties).  ``inline`` marks the small pieces kernels are made of.
``bits_of`` and ``double_of`` read the same 64 bits as a float or as an integer.  ``plus`` and ``minus``
wrap modulo 2^64: plain ``+`` on signed integers is undefined where it overflows (Numba marks it ``nsw``), and
LLVM does make use of that.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import caching
from numba.extending import intrinsic

import fastdp_kernels

F = TypeVar("F", bound=Callable[..., Any])


def _fingerprint_of_sources() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


_SOURCES = _fingerprint_of_sources()


class _ReadOnlyLocator(caching.UserProvidedCacheLocator):
    """``NUMBA_CACHE_DIR`` that was filled before, as in an image whose files cannot be written any more."""

    def ensure_cache_path(self) -> None:
        if not any(Path(self.get_cache_path()).glob("*.nbi")):  # type: ignore[no-untyped-call]
            raise OSError


class _KernelCacheImpl(caching.CompileResultCacheImpl):
    _locator_classes = [  # noqa: RUF012 - Numba's own
        caching.UserProvidedCacheLocator,
        _ReadOnlyLocator,
        *caching.CompileResultCacheImpl._locator_classes[1:],
    ]


class _KernelCache(caching.FunctionCache):
    _impl_class = _KernelCacheImpl


def kernel(function: F) -> F:
    """Compile an entry point of the core; type checkers keep seeing the plain signature.

    Numba's cache on disk looks at the kernel's own file only; a helper or constant that changed in another
    one would go unnoticed.  So the cache's stamp is made of all kernel sources.
    """
    dispatcher: Any = numba.njit(nogil=True, error_model="numpy")(function)
    try:
        dispatcher._cache = _KernelCache(function)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        # Neither NUMBA_CACHE_DIR, nor __pycache__ beside the sources, nor the user's cache can be written.
        _warn_of_cache(str(error))
    cache = dispatcher._cache
    cache_file = getattr(cache, "_cache_file", None)
    if cache_file is not None and hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = _SOURCES
    cache.load_overload = _telling(_forgiving(cache.load_overload), function.__name__, cache.cache_path or "")
    cache.save_overload = _forgiving(cache.save_overload)
    return cast("F", dispatcher)


def _telling(load: Callable[..., Any], name: str, folder: str) -> Callable[..., Any]:
    """What is not in the cache is compiled next."""

    def attempt(*arguments: Any) -> Any:
        found = load(*arguments)
        if found is None and fastdp_kernels.on_compile is not None:
            fastdp_kernels.on_compile(name, folder)
        return found

    return attempt


def _forgiving(access: Callable[..., Any]) -> Callable[..., Any]:
    """A cache that fills up, or is taken away, must not stop a publisher: it compiles for itself."""

    def attempt(*arguments: Any) -> Any:
        try:
            return access(*arguments)
        except OSError as error:
            _warn_of_cache(str(error))
            return None

    return attempt


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


def inline(function: F) -> F:
    """Compile a piece that kernels call; LLVM inlines it (Numba's own inlining, on its IR, is left out)."""
    return cast("F", numba.njit(nogil=True, error_model="numpy", inline="never")(function))


if TYPE_CHECKING:

    def bits_of(x: float) -> np.int64:
        """The IEEE-754 bits of a float64 as an int64."""

    def double_of(bits: np.int64) -> float:
        """The float64 whose IEEE-754 bits are the given int64."""

    def plus(a: np.int64, b: np.int64) -> np.int64:
        """Sum modulo 2^64."""

    def minus(a: np.int64, b: np.int64) -> np.int64:
        """Difference modulo 2^64."""

else:

    def _reinterpret(target: ir.Type) -> Callable[..., Any]:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], target)

        return generate

    @intrinsic
    def bits_of(_typing: Any, _x: Any) -> Any:
        """The IEEE-754 bits of a float64 as an int64."""
        return types.int64(types.float64), _reinterpret(ir.IntType(64))

    @intrinsic
    def double_of(_typing: Any, _bits: Any) -> Any:
        """The float64 whose IEEE-754 bits are the given int64."""
        return types.float64(types.int64), _reinterpret(ir.DoubleType())

    def _wrapping(operation: str) -> Callable[..., Any]:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return getattr(builder, operation)(*arguments)

        return generate

    @intrinsic
    def plus(_typing: Any, _a: Any, _b: Any) -> Any:
        """Sum modulo 2^64."""
        return types.int64(types.int64, types.int64), _wrapping("add")

    @intrinsic
    def minus(_typing: Any, _a: Any, _b: Any) -> Any:
        """Difference modulo 2^64."""
        return types.int64(types.int64, types.int64), _wrapping("sub")
