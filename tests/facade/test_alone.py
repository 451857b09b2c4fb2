"""One call at a time: threads, forks, re-entrance, and interrupts that leave nothing locked."""

from __future__ import annotations

import contextlib
import linecache
import sys
import threading

import pytest

from fastdp.alone import Alone, exclusive
from fastdp.errors import StateError


class Thing(Alone):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    @exclusive
    def work(self, action=None) -> int:
        """Counts."""
        if action is not None:
            action()
        self.count += 1
        return self.count


def test_a_second_call_is_refused_while_the_first_goes_on() -> None:
    thing = Thing()

    def again() -> None:
        with pytest.raises(StateError, match="two threads at once"):
            thing.work()

    def elsewhere() -> None:
        thread = threading.Thread(target=again)
        thread.start()
        thread.join()

    assert thing.work(again) == 1
    assert thing.work(elsewhere) == 2
    assert thing.work() == 3


def test_calls_never_overlap() -> None:
    thing, inside, most = Thing(), [], []

    def action() -> None:
        inside.append(1)
        most.append(len(inside))
        inside.pop()

    def many() -> None:
        for _ in range(3000):
            with contextlib.suppress(StateError):
                thing.work(action)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert max(most) == 1
    assert thing.work() == thing.count


def test_interrupts_on_any_line_leave_nothing_locked() -> None:
    """But for the line that ends a call: it is one step of the interpreter, which looks for signals behind it."""
    left = [0]

    def interrupt(frame, event, _argument):
        code = frame.f_code
        if event == "line" and code.co_name in ("guarded", "work"):
            if "discard" in linecache.getline(code.co_filename, frame.f_lineno):
                return interrupt
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
        return interrupt

    survived = 0
    for skipped in range(40):
        thing, left[0] = Thing(), skipped
        sys.settrace(interrupt)
        try:
            thing.work()
        except KeyboardInterrupt:
            survived += 1
        finally:
            sys.settrace(None)
        assert thing.work() >= 1
        if left[0] >= 0:
            break
    assert survived > 5
