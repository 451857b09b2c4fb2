"""Files that appear complete or not at all, survive a power cut, and are locked between processes."""

from __future__ import annotations

import contextlib
import errno
import glob
import inspect
import json
import os
import secrets
import stat
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from fastdp.errors import ParameterError, argument
from fastdp.kinds import Json

if sys.platform == "win32":
    import msvcrt

    def try_lock(descriptor: int) -> bool:
        """Lock an open file without waiting; False if held elsewhere."""
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        """Release a lock before its file is closed."""
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def try_lock(descriptor: int) -> bool:
        """Lock an open file or folder without waiting; False if held elsewhere, OSError without support."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        """Release a lock before its file is closed, because a forked child shares it."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)


#: Every fork that Python knows of replaces the entry by a new object.
token = [object()]
TOKEN_BYTES = 8
#: Errors that only a write can meet; the operating system does not say in which file.
NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
LOCK_TRIES, LOCK_PAUSE = 600, 0.05
LOCK_SECONDS = LOCK_TRIES * LOCK_PAUSE
#: Where folders cannot be opened, a file in them is locked.
_FOLDERS_OPEN, _LOCK_FILE = hasattr(os, "O_DIRECTORY"), ".fastdp.lock"
_OWNER_ONLY = 0o600


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: token.__setitem__(0, object()))


def identity() -> tuple[int, object]:
    """Value that differs between processes, also after a fork."""
    return os.getpid(), token[0]


def open_owned(path: Path | str, flags: int) -> int:
    """Open a file, owner-only if new."""
    return os.open(path, flags | getattr(os, "O_BINARY", 0), _OWNER_ONLY)


def lock(descriptor: int) -> bool:
    """:func:`try_lock` for LOCK_SECONDS; locks of this thread's interrupted calls are released."""
    for _ in range(LOCK_TRIES):
        if try_lock(descriptor) or (_release_abandoned(descriptor) and try_lock(descriptor)):
            return True
        time.sleep(LOCK_PAUSE)
    return False


class Hold:
    """An open folder, released with its last reference or by the thread's next :func:`lock`."""

    descriptor = -1

    def __init__(self, folder: Path) -> None:
        self._process = identity()
        self.thread, self.user = threading.get_ident(), id(_user_of(sys._getframe(1)))
        place = (folder, os.O_RDONLY) if _FOLDERS_OPEN else (folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT)
        self.descriptor = open_owned(*place)
        _holds.add(self)

    def release(self) -> None:
        if self.descriptor < 0:
            return
        # In a forked child the lock belongs to its parent.
        if identity() == self._process:
            # An error here is harmless: the data is synced, and closing gives the lock back as well.
            with contextlib.suppress(OSError):
                unlock(self.descriptor)
        # Not closed twice: by then it may be another file's number.
        descriptor, self.descriptor = self.descriptor, -1
        os.close(descriptor)

    def __del__(self) -> None:
        # The end of the process closes the file.
        if self.descriptor >= 0 and not sys.is_finalizing():
            self.release()


#: Open ones of this process.
_holds: weakref.WeakSet[Hold] = weakref.WeakSet()
_CONTEXTLIB = contextlib.contextmanager.__code__.co_filename


def _user_of(frame: FrameType) -> FrameType:
    while frame.f_back is not None:
        entered = frame.f_code.co_filename == _CONTEXTLIB
        frame = frame.f_back
        # Not ExitStack.enter_context either, which has ended by then.
        if entered and frame.f_code.co_filename != _CONTEXTLIB and not frame.f_code.co_flags & inspect.CO_GENERATOR:
            break
    return frame


def _release_abandoned(descriptor: int) -> bool:
    wanted, running = os.fstat(descriptor), set()
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        running.add(id(frame))
        frame = frame.f_back
    ended = [
        hold
        for hold in list(_holds)
        if hold.descriptor >= 0
        and hold.thread == threading.get_ident()
        and hold.user not in running
        and os.path.samestat(os.fstat(hold.descriptor), wanted)
    ]
    for hold in ended:
        hold.release()
    return bool(ended)


def sync_folder(folder: Path) -> None:
    """Sync a folder, if possible, so that renames survive a power cut."""
    if not _FOLDERS_OPEN:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_file(target: Path, *, overwrite: bool, alone: bool = False) -> Iterator[BinaryIO]:
    """Yield a temporary file that replaces `target`, synced, after a block without error.

    `alone`: the caller checks, locks, cleans and syncs the folder, and the file stays owner-only; without `overwrite`
    FileExistsError.  Else ParameterError as of :func:`check_target`.
    """
    # A link stays a link: the file it points to is replaced.
    final = Path(os.path.realpath(target))
    if not alone:
        check_target(target, overwrite=overwrite)
        remove_parts(final.parent, glob.escape(final.name))
    temporary, file, permissions = _open_beside(final)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if not alone:
                # Another process may have written the target meanwhile.
                check_target(target, overwrite=overwrite)
            if os.name == "nt":
                # An open file cannot be renamed there.
                file.close()
            if alone and not overwrite:
                os.link(temporary, final)
            else:
                temporary.replace(final)
            if not alone:
                # Not before: a process killed in between leaves a complete release that the next run may repeat.
                final.chmod(permissions)
                # A folder may be open for writing and not for reading; then it cannot be synced.
                with contextlib.suppress(PermissionError):
                    sync_folder(final.parent)
    except BaseException as error:
        name_target(error, os.fspath(target))
        raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def described_file(target: Path, beside: Path | None, facts: Json, *, overwrite: bool) -> Iterator[BinaryIO]:
    """:func:`atomic_file` with `facts` as JSON `beside` it, written first; one left over is replaced."""
    for path in (target, beside or target):
        if path.exists() and not (overwrite or (path == beside and is_left_over(target, beside))):
            raise ParameterError(
                f"path = {str(path)!r}: exists already; expected a new name, or {argument(overwrite=True)}"
            )
    described = False
    try:
        with atomic_file(target, overwrite=overwrite) as file:
            yield file
            if beside is not None:
                # A full disk shows before the description does.
                file.flush()
                os.fsync(file.fileno())
                # Another process may have written both meanwhile: its description stays.
                check_target(target, overwrite=overwrite)
                with atomic_file(beside, overwrite=overwrite or is_left_over(target, beside)) as description:
                    description.write(json.dumps(facts, allow_nan=False, indent=1).encode() + b"\n")
                described = True
    except BaseException:
        if described and beside is not None and not target.exists():
            beside.unlink(missing_ok=True)
        raise


def is_left_over(target: Path, beside: Path) -> bool:
    """True for a description whose file never appeared."""
    try:
        return not target.exists() and "fastdp" in json.loads(beside.read_bytes())
    except (OSError, ValueError, TypeError):
        return False


def name_target(error: BaseException, target: str) -> None:
    """Name the target in a disk-full error without one."""
    if isinstance(error, OSError) and error.filename is None and error.errno in NO_ROOM:
        error.filename = target


def _open_beside(final: Path) -> tuple[Path, BinaryIO, int]:
    while True:
        temporary = final.with_name(f".{final.name}.{secrets.token_hex(TOKEN_BYTES)}.tmp")
        # The umask can only be observed on a new file; this empty one gives no access to the one that is filled.
        with temporary.open("xb") as probe:
            permissions = stat.S_IMODE(os.fstat(probe.fileno()).st_mode)
        # Another writer may have taken it for a leftover since its end.
        temporary.unlink(missing_ok=True)
        file = open(temporary, "x+b", opener=open_owned)  # noqa: SIM115 - the caller closes it
        # Without locks leftovers stay.
        with contextlib.suppress(OSError):
            lock(file.fileno())
        if os.fstat(file.fileno()).st_nlink:
            return temporary, file, permissions
        # Taken for a leftover between its creation and its lock.
        file.close()


def remove_parts(folder: Path, names: str) -> None:
    """Delete unlocked temporary files of targets that match the glob `names`."""
    for path in folder.glob(f".{names}.{'[0-9a-f]' * 2 * TOKEN_BYTES}.tmp"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            if try_lock(file.fileno()):
                path.unlink()


def check_target(target: Path, *, overwrite: bool) -> None:
    """ParameterError if `target` cannot be a file or must not be replaced."""
    final = Path(os.path.realpath(target))
    if final.is_dir():
        raise ParameterError(f"output {target}: is a folder; expected a file's name")
    if not final.parent.is_dir():
        raise ParameterError(f"output {target}: there is no folder {final.parent}")
    if not os.access(final.parent, os.W_OK | os.X_OK):
        raise ParameterError(f"output {target}: no permission to write in {final.parent}")
    if final.exists() and not overwrite:
        raise ParameterError(
            f"output {target}: exists already; expected a new name, or {argument(overwrite=True)} to replace it"
        )
