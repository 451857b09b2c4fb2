"""One call at a time, in the process that owns the object."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, Concatenate, NoReturn, ParamSpec, Self, TypeVar

from fastdp.errors import StateError
from fastdp.files import process
from fastdp.randomness.drawn_once import ENABLED

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Alone")


class Alone:
    """Refuses two threads at once, and use after a fork: both would give the same noise to different values.

    Every public method that draws noise or reads its place in the stream is :func:`exclusive`.
    """

    #: Whether a fork harms nobody, as there is no noise to repeat.
    _forks: ClassVar[bool] = False

    def __init__(self) -> None:
        self._calls: set[object] = set()
        self._process = process.identity()

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


def exclusive(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method of an :class:`Alone` that never runs twice at once."""

    @functools.wraps(method)
    def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self._forks and process.identity() != self._process:
            raise StateError(
                f"a {type(self).__name__} used in a forked process: expected a publisher made in the process that "
                "uses it (a fork would repeat its noise on other values)"
            )
        drawn = self._key.drawn if ENABLED and hasattr(self, "_key") else None
        mark = None
        call = object()
        # Each of add and discard is one step of the interpreter, and a call that never came in is discarded too: an
        # interrupt anywhere leaves nothing locked, which a lock and a context manager do not achieve.
        try:
            self._calls.add(call)
            if len(self._calls) > 1:
                raise StateError(f"a {type(self).__name__} used by two threads at once: expected one call at a time")
            if drawn is None:
                return method(self, *args, **kwargs)
            mark = drawn.mark
            result = method(self, *args, **kwargs)
            drawn.settle()
            return result
        except BaseException:
            # What a failed call drew, the next one may draw: nothing was released.
            if drawn is not None and mark is not None:
                drawn.forget(mark)
            raise
        finally:
            self._calls.discard(call)

    return guarded
