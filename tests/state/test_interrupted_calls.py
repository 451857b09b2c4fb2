"""One call at a time, and interrupts: a call is consumed or not, and what follows is as if there had been none."""

from __future__ import annotations

import contextlib
import linecache
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import StateError
from fastdp.local import Piecewise, SumCollector, collectors
from fastdp.perturbers import Hierarchy
from fastdp.smoothers import Recent
from fastdp.state import atomic_files, state_file
from fastdp.state.driver import Publisher
from fastdp.state.machine import CallGuard, single_caller
from fastdp.streams import adaptive_blocks, fixed_blocks, stream_machine
from fastdp.thresholds import NoisyMax, noisy_max
from fastdp.thresholds import base as thresholds_base
from fastdp.thresholds.renewals import RenewFromPublished
from tests.state.saved_objects import CASES, golden_cut

SOURCES = str(Path(fastdp.__file__).parent)

NAMES = ["tops", "stream_publisher", "pak", "topl", "topl_server", "sums", "tree_counts", "selective_counting"]


class Interrupt:
    """A KeyboardInterrupt at the n-th line, call or return in fastdp's sources once it is armed."""

    def __init__(self, at: int, source: str | tuple[str, ...] = SOURCES) -> None:
        self.left, self.source = at, source

    def arm(self) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            frame.f_trace = self.trace
            frame = frame.f_back
        sys.settrace(self.trace)

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if frame.f_code.co_name == "__del__":
            # Errors in there end in there.
            return None
        if event != "exception" and name.startswith(self.source):
            self.left -= 1
            if not self.left:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self.trace

    def strikes(self, call: Callable[[], object]) -> bool:
        """True if the call lasts so long."""
        before = sys.gettrace()
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_behind_a_write_a_call_is_consumed_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, replay: bool
) -> None:
    """Wherever between the write and the state that takes effect; the digest is the undisturbed one's too."""
    case, cut = CASES[name], golden_cut(CASES[name]) - 1
    whole = case.make()
    whole.keep(tmp_path / "whole")
    outputs = [case.run(whole, chunk) for chunk in case.calls]
    write, at, consumed = Publisher._record, 0, 0
    while consumed < 3:
        at += 1
        path, interrupt = tmp_path / str(at), Interrupt(at)
        publisher = case.make()
        # What draws no noise has another key each time.
        if case.plain:
            publisher._key = whole._key
        publisher.keep(path)
        for chunk in case.calls[: cut + replay]:
            case.run(publisher, chunk)
        if replay:
            publisher = type(publisher).load(path, replay=True, **case.options)
        before = publisher._machine.consumed(publisher._state)

        def armed(self: Publisher, *values: Any, strike: Interrupt = interrupt, **drawn: Any) -> str:
            digest = write(self, *values, **drawn)
            strike.arm()
            return digest

        with monkeypatch.context() as patch:
            patch.setattr(Publisher, "_record", armed)
            if not interrupt.strikes(lambda publisher=publisher: case.run(publisher, case.calls[cut])):
                break
        consumed += publisher._machine.consumed(publisher._state) != before
        begin = cut + (publisher._machine.consumed(publisher._state) != before)
        for chunk, expected in zip(case.calls[begin:], outputs[begin:], strict=True):
            assert np.array_equal(case.run(publisher, chunk), expected), f"interrupted at event {at}"
        assert publisher.digest == whole.digest, f"interrupted at event {at}"
        assert publisher._machine.pack(publisher._state) == whole._machine.pack(whole._state)
    assert at > 2


# Between open() and the block that closes it the file is closed by being collected.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("impatient")
def test_a_kept_traceback_keeps_no_lock(tmp_path: Path) -> None:
    """As a debugger, a notebook, and the block that handles the interrupt do: the next call goes on."""
    at, kept = 0, None
    while not at or kept is not None:
        at += 1
        publisher = CASES["simple_counts"].make()
        publisher.keep(tmp_path / str(at))
        interrupt = Interrupt(at, (state_file.__file__, atomic_files.__file__, contextlib.__file__))
        before, kept = sys.gettrace(), None
        try:
            interrupt.arm()
            publisher.step([1, 2, 3])
        except KeyboardInterrupt as error:
            kept = error
        finally:
            sys.settrace(before)
        try:
            publisher.step([1, 2, 3])
        except StateError as error:
            # A write that took place without the call's end; nothing else.
            assert "not as this publisher left it" in str(error), str(error)  # noqa: PT017 - most calls raise nothing
    assert at > 100


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("where", ["call", "signal handler", "thread"])
def test_a_lock_in_use_is_not_taken_for_an_abandoned_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """By any other owner: the call that has it, a function that interrupts this call, or another thread."""
    publisher = CASES["simple_counts"].make()
    publisher.keep(tmp_path / "kept")
    real, found = os.fsync, []

    def ask() -> None:
        other = atomic_files.Hold(tmp_path)
        found.append(atomic_files.lock(other.descriptor))
        other.release()

    def syncing(descriptor: int) -> None:
        if where == "call":
            ask()
        elif where == "thread":
            asking = threading.Thread(target=ask)
            asking.start()
            asking.join()
        else:
            before = signal.signal(signal.SIGUSR1, lambda *_: ask())
            signal.raise_signal(signal.SIGUSR1)
            signal.signal(signal.SIGUSR1, before)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", syncing)
    publisher.step([1, 2, 3])
    assert found == [False]


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("name", ["tops", "adaptive", "refined"])
def test_an_interrupt_within_the_holdout_loses_nothing(tmp_path: Path, name: str, kept: bool) -> None:
    """Wherever it comes: the call is consumed or not."""
    values = np.random.default_rng(1).gamma(2.0, 20.0, 400)
    parts = {"threshold": NoisyMax(step=1.0), "perturber": Hierarchy(fan_out=4, prune=1), "smoother": Recent()}
    options: dict[str, Any] = {"epsilon": 1.0, "bound": 100, "holdout": 64, "max_range": 64, "seed": 1}
    make: Callable[[], Any] = {
        "tops": lambda: fastdp.ToPS(**options),
        "adaptive": lambda: fastdp.Adaptive(threshold=NoisyMax(), **options),
        "refined": lambda: fastdp.StreamPublisher(**parts, renewal=RenewFromPublished(0.5), **options),
    }[name]
    begin, end = (100, 120) if name == "refined" else (20, 40)
    whole = make().publish(values)
    at = 0
    while True:
        at += 1
        publisher = make()
        files = tuple(
            each.__file__ for each in (stream_machine, fixed_blocks, adaptive_blocks, noisy_max, thresholds_base)
        )
        interrupt = Interrupt(at, files)
        publisher.publish(values[:begin])
        if kept:
            publisher.keep(tmp_path / f"{name}{at}")

        def publish(publisher: Any = publisher, strike: Interrupt = interrupt) -> None:
            strike.arm()
            publisher.publish(values[begin:end])

        if not interrupt.strikes(publish):
            break
        rest = publisher.publish(values[publisher.n_seen :])
        assert np.array_equal(rest, whole[whole.size - rest.size :]), f"interrupted at event {at}"
    assert at > 10


def test_reports_and_their_sums_come_together() -> None:
    """One without the other would make every later estimate, file and merger wrong."""
    mechanism = Piecewise(1.0, 0.0, 64.0)
    reports = mechanism.perturb(np.arange(100) % 64.0, seed=1)
    counts, at = set(), 0
    while True:
        at += 1
        collector, interrupt = SumCollector(mechanism, 3), Interrupt(at, (collectors.__file__,))
        collector.add(reports, 0)

        def add(collector: SumCollector = collector, strike: Interrupt = interrupt) -> None:
            strike.arm()
            collector.add(reports, 1)

        if not interrupt.strikes(add):
            break
        first, second = collector.totals[:2]
        assert np.array_equal(second, first) or not second.any()
        consumed = collector.n_reports
        counts.add(consumed)
        # What was consumed stays, and once.
        collector.add(reports, 2)
        assert np.array_equal(collector.totals[1], first if consumed == 200 else 0 * first), f"event {at}"
        assert np.array_equal(collector.totals[2], first)
    assert counts == {100, 200}
    assert at > 10


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
from pathlib import Path
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
folder = atomic_files.Hold(Path(sys.argv[1]))
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
