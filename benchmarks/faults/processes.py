"""Children of this process that are killed: at a moment, or before or after one of their system calls."""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

#: Seconds after which a child counts as hung.
TIMEOUT_SECONDS = 60
#: Calls into the system on the way of a value: the profiler sees each one before and after.
STEPS = frozenset(
    ["open", "write", "flush", "fsync", "replace", "rename", "truncate", "ftruncate", "unlink", "flock", "chmod"]
)  # fmt: skip


@dataclass(frozen=True)
class End:
    """How a child ended."""

    killed: bool
    code: int
    answer: Any
    seconds: float


class Countdown:
    """Counts steps, and ends the process at the one that is asked for."""

    def __init__(self, fatal: int | None) -> None:
        self.events = 0
        self._fatal = fatal

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("c_call", "c_return", "c_exception") and getattr(argument, "__name__", "") in STEPS:
            if self.events == self._fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            self.events += 1


def run(
    work: Callable[[], Any],
    *,
    after: float | None = None,
    at_event: int | None = None,
    counting: bool = False,
    log: Path | None = None,
) -> End:
    """Do the work in a forked child, whose modules and kernels are warm.

    Parameters
    ----------
    work : callable
        Its answer must be plain values.
    after : float, optional
        Seconds after which the child is killed.
    at_event : int, optional
        The step's event at which it kills itself.
    counting : bool
        Answer with the number of events instead.
    log : Path, optional
        Receives what the child says on standard error.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    start = time.perf_counter()
    child = os.fork()
    if not child:
        os.close(reading)
        _be_child(work, at_event, counting, writing, log)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        # The pipe has something to say when the child has an answer or has ended.
        if not select.select([pipe], [], [], TIMEOUT_SECONDS if after is None else after)[0]:
            # Of a child that hangs, where it stands goes to the log.
            os.kill(child, signal.SIGABRT if after is None else signal.SIGKILL)
        said = pipe.read()
    status = os.waitpid(child, 0)[1]
    seconds = time.perf_counter() - start
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return End(killed, os.waitstatus_to_exitcode(status), json.loads(said) if said else None, seconds)


def _be_child(work: Callable[[], Any], at_event: int | None, counting: bool, pipe: int, log: Path | None) -> None:
    code = 1
    try:
        with (log or Path(os.devnull)).open("a") as errors:
            os.dup2(errors.fileno(), 2)
        faulthandler.enable(file=2)
        countdown = Countdown(at_event)
        if counting or at_event is not None:
            sys.setprofile(countdown)
        try:
            answer = work()
        finally:
            sys.setprofile(None)
        os.write(pipe, json.dumps(countdown.events if counting else answer).encode())
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        # Nothing of the parent's is flushed or cleaned up twice.
        os._exit(code)
