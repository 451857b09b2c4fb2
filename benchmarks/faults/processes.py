"""Children of this process that are killed: at a moment, or before or after one of their system calls."""

import faulthandler
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.faults.subjects import Subject
from fastdp.ledger import Ledger

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
    """Do the work in a forked child, whose modules and kernels are warm; its answer must be plain values.

    It is killed after so many seconds, or kills itself at an event of a step; ``counting`` answers with the number of
    events instead, and ``log`` receives standard error.
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


#: Kills of one run at most, before it is left to end.
MAX_KILLS = 3
#: Files that an ended run leaves: inputs, outputs, state; no parts.
OUTPUTS = {"out", "out.csv", "out.npy", "out.parquet", "out.csv.json", "out.npy.json"}
BUDGET = {"budget", "budget-wal", "budget-shm"}
LEFT = {"in.csv", "in.npy", "in.parquet", "key", "state", "kept", *BUDGET, *OUTPUTS}
#: What a run begins with besides its input.
SECRETS = ("state", "key", *BUDGET)


@dataclass
class Score:
    """Outcome of the kills."""

    at_random: int = 0
    at_steps: int = 0
    survived: int = 0
    events: int = 0
    compared: int = 0
    different: int = 0
    notes: list[str] | None = None

    @property
    def kills(self) -> int:
        return self.at_random + self.at_steps

    def note(self, text: str) -> None:
        self.notes = [*(self.notes or ()), text]


@dataclass
class Trial:
    """One folder from its first start to its end."""

    subject: Subject
    folder: Path
    n: int

    def __post_init__(self) -> None:
        self.subject.prepare(self.folder, self.n)
        self.seen: list[bytes] = []

    def start(self, **how: float | int | bool) -> End:
        end = run(partial(self.subject.run, self.folder), log=self.folder / "log", **how)  # type: ignore[arg-type]
        visible = self.subject.published(self.folder)
        if visible is not None:
            self.seen.append(visible)
        return end

    def finish(self) -> bytes:
        """Run to the end; the log holds why if that fails."""
        end = self.start()
        said = (self.folder / "log").read_text()
        if end.code:
            raise RuntimeError(f"{self.subject.name}: a restart failed: {said[:1500]} ... {said[-500:]}")
        (self.folder / "log").unlink()
        return self.seen[-1]


def differences(one: bytes, two: bytes) -> int:
    """Bytes that differ, those missing included."""
    return sum(a != b for a, b in zip(one, two, strict=False)) + abs(len(one) - len(two)) if one != two else 0


def judge(subject: Subject, n: int, kills: int, seed: int) -> Score:
    """Half of the kills at random moments of the whole run, half at system calls."""
    chance = random.Random(seed)
    score = Score()
    with _trial(subject, n) as trial:
        trial.finish()
    with _trial(subject, n) as trial:
        span = trial.start().seconds
    with _trial(subject, n) as trial:
        score.events = int(trial.start(counting=True).answer)
    while score.at_random < kills // 2:
        delays = [chance.uniform(0.0, 1.05 * span) for _ in range(MAX_KILLS)]
        with _trial(subject, n) as trial:
            ends = [trial.start(after=delay) for delay in delays]
            struck = sum(end.killed for end in ends)
            score.at_random += struck
            # The first span may have been measured in a busy moment.
            span = min([span, *(end.seconds for end in ends[:1] if not end.killed)])
            _conclude(trial, struck, score)
    # Spread evenly, from a random beginning: opening, writing, syncing and renaming each get their share.
    wanted = kills - score.at_random
    begin = chance.random()
    for number in range(max(wanted, 0)):
        with _trial(subject, n) as trial:
            event = int((number + begin) * score.events / wanted)
            struck = trial.start(at_event=min(event, score.events - 1)).killed
            score.at_steps += struck
            _conclude(trial, struck, score)
    return score


@contextmanager
def _trial(subject: Subject, n: int) -> Iterator[Trial]:
    """A trial in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="fastdp-faults-") as folder:
        yield Trial(subject, Path(folder), n)


def _conclude(trial: Trial, struck: int, score: Score) -> None:
    exposed = [path.name for path in _parts(trial.folder) if path.stat().st_mode & 0o077 and path.stat().st_size]
    whole = trial.finish()
    different = sum(
        differences(seen, whole[: len(seen)]) if trial.subject.streams else differences(seen, whole)
        for seen in trial.seen
    )
    parts, described = [path.name for path in _parts(trial.folder)], _metadata(trial.folder)
    # The same folder, never disturbed, with the same secrets: the noise depends on them.  Not another
    # one, because a state file says where it lives.
    with tempfile.TemporaryDirectory(prefix="fastdp-faults-") as scratch:
        secrets = [shutil.move(trial.folder / name, scratch) for name in SECRETS if (trial.folder / name).exists()]
        shutil.rmtree(trial.folder)
        trial.folder.mkdir()
        twin = Trial(trial.subject, trial.folder, trial.n)
        for secret in secrets:
            shutil.copy(secret, trial.folder)
        undisturbed = twin.finish()
    different += differences(whole, undisturbed) + differences(described, _metadata(trial.folder))
    score.compared += sum(map(len, trial.seen)) + len(undisturbed)
    score.different += different
    charges = _charges(trial.folder)
    faults = ((exposed, "parts that others can read"), (parts, "parts left"), (charges, "not charged just once"))
    for wrong, what in faults:
        if wrong:
            score.note(f"{what}: {', '.join(wrong)}")
    if not (different or exposed or parts or charges):
        score.survived += struck


def _metadata(folder: Path) -> bytes:
    """Description beside an output that holds none."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("out.*.json")))


def _parts(folder: Path) -> Iterator[Path]:
    """Files that are neither an input nor an output."""
    whole = LEFT | {"log"}
    yield from (path for path in folder.iterdir() if path.name not in whole)
    yield from (path for path in (folder / "out").glob("*") if not path.match("batch_*.csv"))


def _charges(folder: Path) -> list[str]:
    """Reservations of an ended release, unless there is no ledger, or one that was charged once."""
    if not (folder / "budget").exists():
        return []
    states = [entry.state for entry in Ledger(folder / "budget").entries()]
    return [] if states == ["spent"] else states
