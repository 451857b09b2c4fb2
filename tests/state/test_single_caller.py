"""One call at a time: threads, forks, re-entrance, and interrupts that leave nothing locked."""

from __future__ import annotations

import contextlib
import linecache
import os
import shutil
import subprocess
import sys
import threading

import pytest

from fastdp.errors import StateError
from fastdp.state.machine import CallGuard, single_caller


class Thing:
    def __init__(self) -> None:
        self._guard = CallGuard()
        self.count = 0

    @single_caller
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


#: The first process of a PID namespace forks into another one, where the child is the first as well.
FORKS = """
import ctypes, os, sys
from fastdp.state.machine import CallGuard, single_caller
from fastdp.errors import StateError
from fastdp.state import atomic_files

class Thing:
    def __init__(self):
        self._guard = CallGuard()

    @single_caller
    def work(self):
        return 1

thing, number = Thing(), os.getpid()
folder = atomic_files.Hold(os.open(sys.argv[1], os.O_RDONLY))
assert atomic_files.lock(folder.descriptor)
if sys.argv[2] == "namespace" and ctypes.CDLL(None).unshare(0x20000000):
    sys.exit(77)
# Foreign code forks without Python's hooks.
child = ctypes.PyDLL(None).fork() if sys.argv[2] == "foreign" else os.fork()
if not child:
    folder.release()
    try:
        thing.work()
    except StateError as error:
        os._exit((20 if "forked" in str(error) else 30) + (os.getpid() == number))
    os._exit(40)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert thing.work() == 1
atomic_files.LOCK_TRIES = 1
assert not atomic_files.lock(os.open(sys.argv[1], os.O_RDONLY)), "the child gave its parent's lock back"
sys.exit(status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("where", ["process", "namespace", "foreign"])
def test_a_forked_child_is_refused_even_with_its_parents_number(where: str, tmp_path) -> None:
    start: list[str] = []
    if where == "namespace":
        start = [shutil.which("unshare") or "unshare", "--pid", "--fork"]
        try:
            subprocess.run([*start, "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no new PID namespace here: {error}")
    command = [*start, sys.executable, "-c", FORKS, str(tmp_path), where]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("no second PID namespace here")
    assert done.returncode == {"process": 20, "namespace": 21, "foreign": 20}[where], done.stderr
