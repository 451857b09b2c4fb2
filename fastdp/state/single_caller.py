"""One call at a time, in the process that owns the object."""

from __future__ import annotations

import functools
from collections.abc import Callable
from os import getpid
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from fastdp.data.durable import identity, token
from fastdp.errors import StateError
from fastdp.noise.drawn_once import ENABLED

P = ParamSpec("P")
R = TypeVar("R")


class CallGuard:
    """Refuses two threads at once, and use after a fork: both would give the same noise to different values.

    An object has one as ``_guard``; every public method that draws noise or reads its place in the stream is a
    :func:`single_caller`.

    Parameters
    ----------
    forks : bool
        Whether a fork harms nothing, as there is no noise to repeat.
    """

    __slots__ = ("calls", "forks", "number", "token")

    def __init__(self, *, forks: bool = False) -> None:
        self.calls: set[object] = set()
        self.number, self.token = identity()
        self.forks = forks


class Guarded(Protocol):
    """An object with methods that never run twice at once."""

    _guard: CallGuard


S = TypeVar("S", bound=Guarded)


def single_caller(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method that runs in one thread at a time, in the process that made its object."""

    @functools.wraps(method)
    def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        guard = self._guard
        # identity(), in place: a short call would notice.
        if (token[0] is not guard.token or getpid() != guard.number) and not guard.forks:
            raise StateError(
                f"a {type(self).__name__} used in a forked process: expected a publisher made in the process that "
                "uses it (a fork would repeat its noise on other values)"
            )
        drawn = getattr(self, "_key").drawn if ENABLED and hasattr(self, "_key") else None  # noqa: B009
        mark, call, calls = None, object(), guard.calls
        # Each of add and discard is one step of the interpreter, and a call that never came in is discarded too: an
        # interrupt anywhere leaves nothing locked, which a lock and a context manager do not achieve.
        try:
            calls.add(call)
            if len(calls) > 1:
                raise StateError(
                    f"{type(self).__name__}.{method.__name__} was called from two threads at once; "
                    "expected one call at a time"
                )
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
            calls.discard(call)

    return guarded
