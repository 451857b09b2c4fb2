"""A file that appears complete or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fastdp.errors import ParameterError


@contextmanager
def atomic_file(target: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """A temporary file beside ``target`` that takes its place when the block ends well.

    Parameters
    ----------
    target : Path
        Untouched until the end, and for ever if anything fails or is interrupted.
    overwrite : bool
        Whether an existing file may be replaced.

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
    _refuse(target, final, overwrite=overwrite)
    temporary = final.with_name(f".{final.name}.{secrets.token_hex(8)}.tmp")
    try:
        # Not mkstemp: its files are owner-only, and the output should have the permissions the user's
        # umask gives.
        with temporary.open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # Somebody may have written the target meanwhile.
        _refuse(target, final, overwrite=overwrite)
        temporary.replace(final)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _refuse(target: Path, final: Path, *, overwrite: bool) -> None:
    if final.is_dir():
        raise ParameterError(f"output {target}: is a folder; expected a file's name")
    if not final.parent.is_dir():
        raise ParameterError(f"output {target}: there is no folder {final.parent}")
    if not os.access(final.parent, os.W_OK | os.X_OK):
        raise ParameterError(f"output {target}: no permission to write in {final.parent}")
    if final.exists() and not overwrite:
        raise ParameterError(f"output {target}: exists already; expected a new name, or --force to replace it")
