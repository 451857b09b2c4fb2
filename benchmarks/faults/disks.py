"""Disks that are full, and folders that may not be written.

Each case shows one clear error, a state as it was, and a run that goes on afterwards.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from benchmarks.faults import processes
from benchmarks.faults.subjects import CHUNK, SECRET, make_tops, release, values, write_input, write_key
from fastdp.errors import FastDPError
from fastdp.streams.methods import ToPS

#: Bytes of the small disk, and of the largest file under a limit.
SMALL = 64 * 1024
LEAST = 256


def _release_files(place: Path) -> None:
    os.chdir(place)
    release("in.csv", "-o", "out.csv", "--key-file", "key")


def _write_inputs(place: Path) -> None:
    write_input(place / "in.csv", values(N))
    write_key(place / "key")


def _undisturbed_release() -> bytes:
    with folder() as place:
        _write_inputs(place)
        processes.run(lambda: _release_files(place))
        return (place / "out.csv").read_bytes()


def release_without_room(name: str, begin: Callable[[], None], end: Callable[[], None]) -> Fault:
    """A release whose output does not fit, and the same command with room."""
    with folder() as place:
        _write_inputs(place)
        before = contents(place)

        def work() -> list[object]:
            begin()
            said = complaint(lambda: _release_files(place))
            end()
            intact = contents(place) == before
            _release_files(place)
            return [said, intact]

        said, intact = processes.run(work).answer
        return Fault(name, "release", said, intact, (place / "out.csv").read_bytes() == _undisturbed_release())


def release_on_a_full_disk() -> Fault:
    name, who = "full disk (tmpfs of 64 KiB)", "release"
    with folder() as place, small_disk(SMALL) as disk:
        if disk is None:
            return Fault(name, who, "no permission to mount one", True, True, True)
        _write_inputs(place)
        (place / "out.csv").symlink_to(disk / "out.csv")

        def work() -> list[object]:
            said = complaint(lambda: _release_files(place))
            intact = not list(disk.iterdir())
            subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
            _release_files(place)
            return [said, intact]

        said, intact = processes.run(work).answer
        return Fault(name, who, said, intact, (disk / "out.csv").read_bytes() == _undisturbed_release())


def release_to_a_full_device() -> Fault:
    """Standard output fails in the middle; the state lets the same command publish everything once."""
    with folder() as place:
        _write_inputs(place)

        def to(out: str) -> None:
            os.chdir(place)
            with Path(out).open("wb") as file:
                os.dup2(file.fileno(), 1)
                sys.stdout = os.fdopen(1, "w", closefd=False)
                release("in.csv", "-o", "-", "--key-file", "key", "--state", "state")
                sys.stdout.flush()

        said = processes.run(lambda: complaint(lambda: to("/dev/full"))).answer
        state = (place / "state").exists()
        processes.run(lambda: to("out.csv"))
        same = (place / "out.csv").read_bytes() == _undisturbed_release()
        return Fault("full device (/dev/full)", "release -o - --state", said, state, same)


def publisher_meets(
    name: str, begin: Callable[[Path], None], end: Callable[[Path], None], *, replaces: bool = False
) -> Fault:
    """A publisher that keeps its state while something is wrong with the folder, for one chunk.

    A record is appended to the file; a publisher that was just loaded ``replaces`` it.
    """
    stream = values(N)
    with folder() as place:
        home = place / "home"
        home.mkdir()
        if os.geteuid() == 0:
            os.chown(home, OTHER_USER, OTHER_USER)
            place.chmod(0o755)

        def work() -> list[object]:
            drop_root()
            publisher = make_tops()
            publisher.keep(home / "kept", SECRET)
            parts = [publisher.publish(stream[: 2 * CHUNK])]
            if replaces:
                publisher = ToPS.load(home / "kept", SECRET)
            before = contents(home)
            begin(home)
            said = complaint(lambda: publisher.publish(stream[2 * CHUNK : 3 * CHUNK]))
            end(home)
            intact = contents(home) == before
            parts.append(publisher.publish(stream[2 * CHUNK : 4 * CHUNK]))
            # And from the file.
            parts.append(ToPS.load(home / "kept", SECRET).publish(stream[4 * CHUNK :]))
            whole = make_tops().publish(stream)
            return [said, intact, bool(np.array_equal(np.concatenate(parts), whole))]

        answer = processes.run(work, log=place / "log").answer
        if answer is None:
            raise RuntimeError(f"{name}: {(place / 'log').read_text()}")
        return Fault(name, "ToPS with keep()", *answer)


def _failing(function: str) -> tuple[Callable[[Path], None], Callable[[Path], None]]:
    """The system call fails as a broken disk has it."""
    original = getattr(os, function)

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(5, "Input/output error")

    return lambda home: setattr(os, function, fail), lambda home: setattr(os, function, original)


def release_in_a_read_only_folder() -> Fault:
    with folder() as place:
        place.chmod(0o755)
        _write_inputs(place)
        (place / "in.csv").chmod(0o644)
        if os.geteuid() == 0:
            os.chown(place / "key", OTHER_USER, OTHER_USER)
        place.chmod(0o555)
        before = contents(place)

        def work() -> str:
            drop_root()
            return complaint(lambda: _release_files(place))

        said = processes.run(work).answer
        intact = contents(place) == before
        place.chmod(0o755)
        processes.run(lambda: _release_files(place))
        same = (place / "out.csv").exists() and (place / "out.csv").read_bytes() == _undisturbed_release()
        return Fault("read-only folder", "release", said, intact, same)


OTHER_USER = 65_534


@dataclass(frozen=True)
class Fault:
    """Outcome of one case."""

    name: str
    who: str
    said: str
    intact: bool
    goes_on: bool
    skipped: bool = False

    @property
    def good(self) -> bool:
        return self.skipped or (self.intact and self.goes_on and self.said != "" and "\n" not in self.said)

    def row(self) -> list[str]:
        if self.skipped:
            return [self.name, self.who, f"not tried: {self.said}", "-", "-"]
        said = re.sub(r"/[^ ']*/fastdp-faults-\w+", "...", self.said)
        after = "goes on, output as undisturbed" if self.goes_on else "DOES NOT GO ON"
        return [self.name, self.who, said or "NOTHING", "intact" if self.intact else "CHANGED", after]


def complaint(work: Callable[[], object]) -> str:
    """The one line that the work ends with; anything else than an error for users passes through."""
    try:
        work()
    except click.ClickException as error:
        return error.format_message()
    except FastDPError as error:
        return str(error)
    return ""


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fastdp-faults-") as name:
        yield Path(name)


@contextlib.contextmanager
def small_disk(size: int) -> Iterator[Path | None]:
    """A disk of so many bytes; None where it may not be mounted."""
    with folder() as place:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, check=False
        )
        if mounted.returncode:
            yield None
            return
        try:
            yield place
        finally:
            os.chdir("/")
            subprocess.run(["umount", str(place)], check=True)


def limited_file(size: int) -> None:
    """No file of this process grows beyond the size; Python ignores the signal, and the write fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def unlimited_file() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def drop_root() -> None:
    """Permissions mean nothing to root."""
    if os.geteuid() == 0:
        os.setgid(OTHER_USER)
        os.setuid(OTHER_USER)


def contents(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}


N = 20_000


def state_of_another_user() -> Fault:
    stream = values(N)
    name, who = "state file of another user", "ToPS.load"
    if os.geteuid() != 0:
        return Fault(name, who, "needs two users", True, True, True)
    with folder() as place:
        place.chmod(0o755)
        publisher = make_tops()
        publisher.keep(place / "kept", SECRET)
        first = publisher.publish(stream[: 2 * CHUNK])
        before = contents(place)

        def work() -> str:
            drop_root()
            return complaint(lambda: ToPS.load(place / "kept", SECRET))

        said = processes.run(work).answer
        intact = contents(place) == before
        rest = ToPS.load(place / "kept", SECRET).publish(stream[2 * CHUNK :])
        same = np.array_equal(np.concatenate([first, rest]), make_tops().publish(stream))
        return Fault(name, who, said, intact, bool(same))


def wrong_clock() -> Fault:
    """Files dated decades away: nothing depends on the clock."""
    stream = values(N)
    parts = []
    with folder() as place:
        for number, moment in enumerate((0, 4_102_444_800)):
            publisher = ToPS.load(place / "kept", SECRET) if number else make_tops()
            if not number:
                publisher.keep(place / "kept", SECRET)
            parts.append(publisher.publish(stream[number * CHUNK : (number + 1) * CHUNK]))
            os.utime(place / "kept", (moment, moment))
        parts.append(ToPS.load(place / "kept", SECRET).publish(stream[2 * CHUNK :]))
    same = bool(np.array_equal(np.concatenate(parts), make_tops().publish(stream)))
    return Fault("clock at 1970, then at 2100", "ToPS with keep()", "(no error: nothing reads the clock)", True, same)


def concurrent_writers(writers: int = 4, rounds: int = 6) -> Fault:
    """Processes that all loaded one file publish different values: each time exactly one may."""
    stream = values(N)
    said: set[str] = set()
    published = 0
    with folder() as place:
        publisher = make_tops()
        publisher.keep(place / "kept", SECRET)
        publisher.publish(stream[:CHUNK])
        for _ in range(rounds):
            results = _race(place, writers)
            published += results.count("")
            said |= {result for result in results if result}
        intact = published == rounds and [path.name for path in place.iterdir()] == ["kept"]
        going = ToPS.load(place / "kept", SECRET)
        goes_on = going.n_seen == CHUNK + rounds * 100 and going.publish(stream[:CHUNK]).size == CHUNK
    name = f"{writers} writers of one state file, {rounds} times: {published} published"
    message = next(iter(said), "")
    return Fault(name, "ToPS.load", message if len({text[:20] for text in said}) == 1 else "", intact, goes_on)


def _race(place: Path, writers: int) -> list[str]:
    gate, open_gate = os.pipe()
    pipes, children = [], []
    for number in range(writers):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(open_gate)
            publisher = ToPS.load(place / "kept", SECRET)
            os.write(writing, b".")
            os.read(gate, 1)
            said = complaint(lambda publisher=publisher, n=number: publisher.publish(np.full(100, float(n))))  # type: ignore[misc]
            os.write(writing, said.encode())
            os._exit(0)
        os.close(writing)
        pipes.append(reading)
        children.append(child)
    for pipe in pipes:
        os.read(pipe, 1)
    os.close(gate)
    os.close(open_gate)
    said = []
    for pipe in pipes:
        with os.fdopen(pipe, "rb") as file:
            said.append(file.read().decode())
    for child in children:
        os.waitpid(child, 0)
    return said


FAULTS: tuple[Callable[[], Fault], ...] = (
    lambda: release_without_room("no room (RLIMIT_FSIZE 64 KiB)", lambda: limited_file(SMALL), unlimited_file),
    release_on_a_full_disk,
    release_to_a_full_device,
    release_in_a_read_only_folder,
    lambda: publisher_meets(
        "no room (RLIMIT_FSIZE 256 B)", lambda home: limited_file(LEAST), lambda home: unlimited_file()
    ),
    lambda: publisher_meets(
        "read-only folder", lambda home: home.chmod(0o555), lambda home: home.chmod(0o755), replaces=True
    ),
    lambda: publisher_meets("disk error at fsync of a record", *_failing("fsync")),
    lambda: publisher_meets("disk error at fsync of a new file", *_failing("fsync"), replaces=True),
    lambda: publisher_meets("disk error at rename", *_failing("replace"), replaces=True),
    state_of_another_user,
    wrong_clock,
    concurrent_writers,
)
