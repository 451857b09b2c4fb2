"""Files that last, and that no other process writes meanwhile: locks, synced folders, the process that owns them."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import threading
import time
import weakref
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

#: Its entry is another object after every fork that Python takes part in.
token = [object()]
LOCK_TRIES, LOCK_PAUSE = 600, 0.05
LOCK_SECONDS = LOCK_TRIES * LOCK_PAUSE


def _renew() -> None:
    token[0] = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def identity() -> tuple[int, object]:
    """Equal within one process only: a forked child is another one, even if it has its parent's number.

    The token differs after every fork that Python takes part in, the number after one by foreign code.
    """
    return os.getpid(), token[0]


@functools.cache
def has_locks() -> bool:
    """Whether the system has flock."""
    return find_spec("fcntl") is not None


def lock(descriptor: int) -> bool:
    """Lock an open file or folder until :func:`unlock`; False if another owner kept it for LOCK_SECONDS.

    OSError where the file system has no locks, or fails.  In tries: an interrupted call of another thread may hold it
    until it is collected; one of this thread that has ended is released here.
    """
    for _ in range(LOCK_TRIES):
        if _locks(descriptor) or (_release_abandoned(descriptor) and _locks(descriptor)):
            return True
        time.sleep(LOCK_PAUSE)
    return False


def _locks(descriptor: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Give a lock back, before its file is closed.

    Closing alone does not: a child that was forked meanwhile has the same open file, and so the lock, as long as it
    lives.
    """
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_UN)


class Hold:
    """An open file or folder that may be locked; released at the latest when no reference to it is left.

    An interrupt on the way to :meth:`release`, or within it, leaves nothing locked: where its traceback is kept, the
    thread's next call of :func:`lock` for the same file finds the call ended and releases it.

    Parameters
    ----------
    descriptor : int
        Belongs to this object from now on.
    """

    descriptor = -1

    def __init__(self, descriptor: int) -> None:
        self._process = identity()
        self._thread, self._user = threading.get_ident(), id(_user_of(sys._getframe(1)))
        self.descriptor = descriptor
        _holds.add(self)

    def is_abandoned(self, running: set[int]) -> bool:
        """Whether a call of this thread has it that is none of its frames that are ``running``, by their numbers."""
        return self.descriptor >= 0 and self._thread == threading.get_ident() and self._user not in running

    def release(self) -> None:
        """Give the lock back and close, once."""
        if self.descriptor < 0:
            return
        # In a forked child the lock is its parent's.
        if identity() == self._process:
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


#: Of this process, open.
_holds: weakref.WeakSet[Hold] = weakref.WeakSet()
_CONTEXTLIB = contextlib.contextmanager.__code__.co_filename


def _user_of(frame: FrameType) -> FrameType:
    """The frame that runs while a lock is held: the one whose ``with`` entered the generators that take the lock.

    Where there is no such frame, the thread's first, which runs as long as the thread.
    """
    while frame.f_back is not None:
        entered = frame.f_code.co_filename == _CONTEXTLIB
        frame = frame.f_back
        # Not ExitStack.enter_context either, which has ended by then.
        if entered and frame.f_code.co_filename != _CONTEXTLIB and not frame.f_code.co_flags & inspect.CO_GENERATOR:
            break
    return frame


def _release_abandoned(descriptor: int) -> bool:
    """Whether locks of this file were released whose call, by this very thread, has ended: by an interrupt.

    A traceback that is kept keeps the call's open file too.  Waiting for a lock of one's own would never end.
    """
    wanted, running = os.fstat(descriptor), set()
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        running.add(id(frame))
        frame = frame.f_back
    ended = [
        hold
        for hold in list(_holds)
        if hold.is_abandoned(running) and os.path.samestat(os.fstat(hold.descriptor), wanted)
    ]
    for hold in ended:
        hold.release()
    return bool(ended)


def sync_folder(folder: Path) -> None:
    """Make a new name or a rename durable, where folders can be synced."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
