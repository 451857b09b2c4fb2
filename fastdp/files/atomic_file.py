"""A file that appears complete or not at all.

Until then only its owner can read it: a process killed without warning leaves a part of a release behind, and a
second run may draw other noise for the same values.  The next run for the same target removes such parts.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, cast

from fastdp.errors import ParameterError
from fastdp.files.durable import sync_folder

TOKEN_BYTES = 8
#: Errors that only a write can meet; the operating system does not say in which file.
NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@contextmanager
def atomic_file(target: Path, *, overwrite: bool, alone: bool = False) -> Iterator[BinaryIO]:
    """A temporary file beside ``target`` that takes its place, durably, when the block ends well.

    Parameters
    ----------
    target : Path
        Untouched until the end, and for ever if anything fails or is interrupted.
    overwrite : bool
        Whether an existing file may be replaced.
    alone : bool
        The caller holds a lock on the folder and has removed what killed writers left there.  The folder is neither
        listed nor synced: after a power cut the file may be missing.

    Yields
    ------
    binary file
        For writing and seeking.

    Raises
    ------
    ParameterError
        If the target exists and may not be replaced, or cannot be a file.
    """
    # A link stays a link: the file it points to is replaced.
    final = Path(os.path.realpath(target))
    check_target(target, overwrite=overwrite)
    if not alone:
        remove_leftovers(final)
    temporary, file, permissions = _open_beside(final)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            # Another process may have written the target meanwhile.
            check_target(target, overwrite=overwrite)
            if os.name == "nt":
                # An open file cannot be renamed there.
                file.close()
            temporary.replace(final)
            # Not before: a process that is killed in between leaves a whole release that the next run may repeat.
            final.chmod(permissions)
            # A folder may be open for writing and not for reading; then it cannot be synced.
            if not alone:
                with contextlib.suppress(PermissionError):
                    sync_folder(final.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        name_target(error, os.fspath(target))
        raise


def name_target(error: BaseException, target: str) -> None:
    """Say where there was no room for a write, if the error does not say it itself."""
    if isinstance(error, OSError) and error.filename is None and error.errno in NO_ROOM:
        error.filename = target


def _open_beside(final: Path) -> tuple[Path, BinaryIO, int]:
    """A new file for its owner, of which others can see that it is in use; and the permissions it shall have."""
    while True:
        temporary = final.with_name(f".{final.name}.{secrets.token_hex(TOKEN_BYTES)}.tmp")
        # What the user's umask gives can only be seen; opening this one gives no access to the one that is filled.
        with temporary.open("xb") as probe:
            permissions = stat.S_IMODE(os.fstat(probe.fileno()).st_mode)
        temporary.unlink()
        file = cast("BinaryIO", open(temporary, "x+b", opener=_for_owner))  # noqa: SIM115 - the caller closes it
        _lock(file, wait=True)
        if os.fstat(file.fileno()).st_nlink:
            return temporary, file, permissions
        # Taken for a leftover between its creation and its lock.
        file.close()


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _lock(file: BinaryIO, *, wait: bool) -> bool:
    """Whether the file is held from now on; False if another process holds it, or there are no such locks."""
    if find_spec("fcntl") is None:
        return False
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove_leftovers(final: Path) -> None:
    """Remove the parts of a target, behind its links, whose writers were killed: no process holds their locks."""
    remove_parts(final.parent, glob.escape(final.name))


def remove_parts(folder: Path, names: str) -> None:
    """Remove such parts of all targets in a folder whose names match a pattern."""
    for path in folder.glob(f".{names}.{'[0-9a-f]' * 2 * TOKEN_BYTES}.tmp"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            if _lock(file, wait=False):
                path.unlink()


def check_target(target: Path, *, overwrite: bool) -> None:
    """ParameterError if the target exists and may not be replaced, or cannot be a file."""
    final = Path(os.path.realpath(target))
    if final.is_dir():
        raise ParameterError(f"output {target}: is a folder; expected a file's name")
    if not final.parent.is_dir():
        raise ParameterError(f"output {target}: there is no folder {final.parent}")
    if not os.access(final.parent, os.W_OK | os.X_OK):
        raise ParameterError(f"output {target}: no permission to write in {final.parent}")
    if final.exists() and not overwrite:
        raise ParameterError(f"output {target}: exists already; expected a new name, or --force to replace it")
