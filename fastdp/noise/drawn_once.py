"""A check that a publisher draws no word twice, for tests and with ``FASTDP_DEBUG=1`` in the environment.

Equal words on different values reveal their difference, so an index that wraps or stands still breaks the guarantee
without any other sign.  The check follows the key of one composition through all keys derived of it.  Another object
with the same key has a check of its own: it may repeat a release on purpose.
"""

from __future__ import annotations

import contextlib
import os
import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextvars import ContextVar

ENABLED = os.environ.get("FASTDP_DEBUG") == "1"
#: Secret and stream number; then purpose, level, number and refinement, or the chain key that noise began from.
Where = tuple[object, ...]


class DrawnTwiceError(AssertionError):
    """Words were drawn for a second time."""


class DrawnWords:
    """Ranges of words drawn so far, and how to forget those of a call that failed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Disjoint ranges [start, stop) of each place, ascending.
        self._runs: dict[Where, list[tuple[int, int]]] = {}
        self._calls: list[tuple[Where, int, int]] = []

    @property
    def mark(self) -> int:
        """For :meth:`forget`: where the record stands."""
        return len(self._calls)

    def add(self, where: Where, start: int, stop: int) -> None:
        """Record a range; :class:`DrawnTwiceError` if any of it was drawn before."""
        if stop <= start:
            return
        repeats = _repeats.get()
        if repeats is not None:
            # Among themselves repeated draws differ; those that are no repetition count as any other.
            repeats._add(where, start, stop)
            with contextlib.suppress(DrawnTwiceError):
                self._add(where, start, stop)
            return
        self._add(where, start, stop)

    def _add(self, where: Where, start: int, stop: int) -> None:
        with self._lock:
            runs = self._runs.setdefault(where, [])
            at = bisect_right(runs, (start, stop))
            before, behind = runs[at - 1 : at] if at else [], runs[at : at + 1]
            if (before and before[0][1] > start) or (behind and behind[0][0] < stop):
                # The secret is the first entry: it stays out of the message.
                raise DrawnTwiceError(f"words {start} to {stop} of {where[1:]} were drawn before")
            joins_before, joins_behind = bool(before) and before[0][1] == start, bool(behind) and behind[0][0] == stop
            joined = before[0][0] if joins_before else start, behind[0][1] if joins_behind else stop
            runs[at - joins_before : at + joins_behind] = [joined]
            self._calls.append((where, start, stop))

    def settle(self) -> None:
        """A call was completed: nothing before now will be forgotten."""
        with self._lock:
            self._calls.clear()

    def forget(self, mark: int) -> None:
        """Take back what was recorded since a mark: the call failed, nothing of it was released."""
        with self._lock:
            for where, start, stop in reversed(self._calls[mark:]):
                runs = self._runs[where]
                at = bisect_right(runs, (start, float("inf"))) - 1
                begin, end = runs[at]
                runs[at : at + 1] = [run for run in ((begin, start), (stop, end)) if run[0] < run[1]]
            del self._calls[mark:]


#: What was drawn within :func:`repeating`.
_repeats: ContextVar[DrawnWords | None] = ContextVar("repeats", default=None)


@contextlib.contextmanager
def repeating() -> Iterator[None]:
    """Draws within the block may repeat earlier ones, on the same values; but not each other."""
    token = _repeats.set(DrawnWords())
    try:
        yield
    finally:
        _repeats.reset(token)
