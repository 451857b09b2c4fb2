"""What makes a written file last and keeps others out while it is written: locks, synced folders."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from fastdp import process

LOCK_TRIES, LOCK_PAUSE = 600, 0.05
LOCK_SECONDS = LOCK_TRIES * LOCK_PAUSE


def has_locks() -> bool:
    """Whether the system has flock."""
    return find_spec("fcntl") is not None


def lock(descriptor: int) -> bool:
    """Lock an open file or folder until :func:`unlock`; False if somebody else kept it for LOCK_SECONDS.

    OSError where the file system has no locks, or fails.  In tries: an interrupted call of this very process may hold it until it is collected.
    """
    import fcntl

    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_PAUSE)
        else:
            return True
    return False


def unlock(descriptor: int) -> None:
    """Give a lock back, before its file is closed.

    Closing alone does not: a child that was forked meanwhile has the same open file, and so the lock, as long as it
    lives.
    """
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_UN)


class Hold:
    """An open file or folder that may be locked; released at the latest when nobody has it any more.

    An interrupt on the way to :meth:`release`, or within it, leaves nothing locked.

    Parameters
    ----------
    descriptor : int
        Belongs to this object from now on.
    """

    descriptor = -1

    def __init__(self, descriptor: int) -> None:
        self._process = process.identity()
        self.descriptor = descriptor

    def release(self) -> None:
        """Give the lock back and close."""
        # In a forked child the lock is its parent's.
        if process.identity() == self._process:
            # An error here says nothing about what was written and synced; closing gives the lock back as well.
            with contextlib.suppress(OSError):
                unlock(self.descriptor)
        # Not closed twice: by then it may be another file's number.
        descriptor, self.descriptor = self.descriptor, -1
        os.close(descriptor)

    def __del__(self) -> None:
        # The end of the process closes what is left.
        if self.descriptor >= 0 and not sys.is_finalizing():
            self.release()


def sync_folder(folder: Path) -> None:
    """Make a new name or a rename durable, where folders can be synced."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
