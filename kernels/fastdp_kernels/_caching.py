"""Compiled kernels on disk: of this processor, or shipped by a wheel for levels of processors.

A kernel is read from Numba's cache or ``_compiled`` beside its source, else compiled and kept in the former.  An
entry with a wrong digest, or with writers that cannot write the sources, is not used.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import stat
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
    # This processor's, unless Numba's variables name another.
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
    """True if this processor has these instructions (LLVM's names)."""
    return _PROCESSOR.issuperset(features)


def target_has(features: Collection[str]) -> bool:
    """True if the target has these instructions."""
    return _TARGET.issuperset(features)


def _stamp() -> str:
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
    # ``NUMBA_CACHE_DIR`` filled before, as in a read-only image.
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
    # Kernels of a folder that cannot be listed are read by name.
    unlisted = os.access(folder, os.X_OK) and not os.access(folder, os.R_OK)
    if not unlisted and not any(Path(folder).glob("*.nbc")):
        raise OSError(folder)


#: Those who can write the sources may write their compiled kernels.
_SOURCES = Path(__file__).parent.stat()
_WRITERS = stat.S_IWGRP | stat.S_IWOTH


def _check_writers(path: Path, found: os.stat_result) -> None:
    if os.name != "posix":
        return
    if found.st_uid not in (0, os.geteuid(), _SOURCES.st_uid):
        raise PermissionError(
            f"{path}: it belongs to user {found.st_uid}; expected the user who runs fastdp, or root"
        )
    known = _SOURCES.st_mode & (_WRITERS if found.st_gid == _SOURCES.st_gid else stat.S_IWOTH)
    if found.st_mode & _WRITERS & ~known:
        mode = stat.S_IMODE(found.st_mode)
        raise PermissionError(
            f"{path}: group or others can write it (mode {mode:04o}); expected its owner alone (chmod go-w {path})"
        )


def _guarded(locator: type[Any]) -> type[Any]:
    class Guarded(locator):  # type: ignore[misc]
        def ensure_cache_path(self) -> None:
            folder = Path(self.get_cache_path())
            if fastdp_kernels.ships or locator is not _ShippedLocator:
                # Numba would leave the group's access to the umask.
                folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            super().ensure_cache_path()
            try:
                _check_writers(folder, folder.stat())
            except PermissionError as error:
                _warn(UNTRUSTED, error)
                raise

    return Guarded


class _OwnFiles(caching.CompileResultCacheImpl):
    _locator_classes = [  # noqa: RUF012 - Numba's own
        _guarded(locator)
        for locator in (_UserLocator, _ReadOnlyLocator, *caching.CompileResultCacheImpl._locator_classes[1:])
    ]


class _ShippedFiles(caching.CompileResultCacheImpl):
    _locator_classes = [_guarded(_ShippedLocator)]  # noqa: RUF012 - Numba's own


class _Entries(caching.IndexDataCacheFile):
    """Keeps kernels in files: digest of the rest, digest of the origin, pickled kernel."""

    def load(self, key: Any) -> Any:
        """Unpickle the kernel; None if missing, OSError if it cannot be trusted."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                # The open file is asked, not its name, so that it cannot be swapped between check and use.
                _check_writers(path, os.fstat(file.fileno()))
                content = file.read()
        except FileNotFoundError:
            return None
        if _digest(content[_DIGEST:]) != content[:_DIGEST]:
            raise OSError(f"{path}: its digest is wrong")
        if content[_DIGEST : 2 * _DIGEST] != self._origin(key):
            return None
        return pickle.loads(content[2 * _DIGEST :])  # noqa: S301 - see _check_writers

    def save(self, key: Any, data: Any) -> None:
        content = self._origin(key) + self._dump(data)  # type: ignore[no-untyped-call]
        with self._open_for_write(self._path(key)) as file:
            if os.name == "posix":
                os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & ~_WRITERS)
            file.write(_digest(content) + content)

    def _path(self, key: Any) -> Path:
        signature, target, _ = key
        number = int.from_bytes(_digest(repr((signature, target)).encode())[:6])
        return Path(self._data_path(self._data_name(number)))  # type: ignore[no-untyped-call]

    def _origin(self, key: Any) -> bytes:
        return _digest(repr((self._version, _STAMP, self._index_name, key)).encode())


_DIGEST = 32


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()


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
        for level, features in LEVELS.items():
            self._level = level
            if not target_has(features):
                continue
            found = _forgiving(UNREADABLE, self.load_overload, signature, context)
            if found is not None:
                return found
        return None


class KeptKernel:
    """Keeps a compiled kernel on disk, as a dispatcher asks."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = function.__name__
        self._shipped: _ShippedCache | None = _made(_ShippedCache, function)
        self._own: Any = self._shipped if fastdp_kernels.ships else _made(_OwnCache, function)

    @property
    def cache_path(self) -> str:
        return "" if self._own is None else str(self._own.cache_path)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Read the kernel; None if it must be compiled, after ``on_compile`` was called."""
        found = None if self._own is None else _forgiving(UNREADABLE, self._own.load_overload, signature, context)
        if found is None and self._shipped is not None and not fastdp_kernels.ships:
            found = self._shipped.read(signature, context)
        if found is None:
            if self._own is None:
                # Neither NUMBA_CACHE_DIR, nor __pycache__ beside the sources, nor the user's cache can be written.
                _warn(NOT_KEPT, "no folder for them can be written")
            if fastdp_kernels.on_compile is not None:
                fastdp_kernels.on_compile(self._name, self.cache_path)
        return found

    def save_overload(self, signature: Any, compiled: Any) -> None:
        if self._own is not None:
            _forgiving(NOT_KEPT, self._own.save_overload, signature, compiled)


def _made(kind: type[Any], function: Callable[..., Any]) -> Any:
    try:
        cache = kind(function)
    except RuntimeError:
        return None
    cache._cache_file = _Entries(cache.cache_path, cache._impl.filename_base, _STAMP)  # type: ignore[no-untyped-call]
    return cache


def _forgiving(otherwise: str, access: Callable[..., Any], *arguments: Any) -> Any:
    """Access a cache, where a damaged, full or missing one only causes a warning."""
    try:
        return access(*arguments)
    except Exception as error:  # unpickling raises any
        _warn(otherwise, error)
        return None


#: Warnings about the cache, each given once in a process.
NOT_KEPT = (
    "compiled kernels cannot be kept ({}): every process compiles them again, which takes seconds; expected "
    "NUMBA_CACHE_DIR to name a folder that can be written, or that 'fastdp compile' has filled"
)
UNREADABLE = "a compiled kernel cannot be read ({}): a shipped one is, or it is compiled again"
UNTRUSTED = "a folder of compiled kernels is not used ({})"
_warned: set[str] = set()


def _warn(text: str, reason: object) -> None:
    if text in _warned:
        return
    _warned.add(text)
    frame = fastdp_kernels.caller()
    warnings.warn_explicit(text.format(reason), RuntimeWarning, frame.f_code.co_filename, frame.f_lineno)
