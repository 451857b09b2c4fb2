"""One case of a fault: what was said, and what is there afterwards; small disks, limits and other users."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from fastdp.errors import FastDPError

OTHER_USER = 65_534


@dataclass(frozen=True)
class Fault:
    """What became of one case."""

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
