"""One call at a time, in the process that owns the object."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Self

from fastdp.errors import StateError


class Alone:
    """Refuses two threads at once, and use after a fork: both would give the same noise to different values."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __copy__(self) -> Self:
        raise self._no_copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        raise self._no_copy()

    def __reduce__(self) -> NoReturn:
        raise self._no_copy()

    def _no_copy(self) -> StateError:
        return StateError(
            f"a {type(self).__name__} cannot be copied or pickled: its noise would meet other values; "
            "expected a new one"
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Enter every public call that draws noise or reads its place in the stream."""
        if os.getpid() != self._process:
            raise StateError(
                f"a {type(self).__name__} used in a forked process: expected a publisher made in the process that "
                "uses it (a fork would repeat its noise on other values)"
            )
        if not self._lock.acquire(blocking=False):
            raise StateError(f"a {type(self).__name__} used by two threads at once: expected one call at a time")
        try:
            yield
        finally:
            self._lock.release()
