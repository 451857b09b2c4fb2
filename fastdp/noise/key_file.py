"""Files of keys: 256 bits of a user's own, from a file that only the user can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fastdp.errors import ParameterError
from fastdp.noise.key import KEY_BYTES, Key

OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_key(path: Path, option: str = "--key-file") -> Key:
    """The key in a file of 32 raw bytes or 64 hexadecimal digits.

    Parameters
    ----------
    path : Path
        Owner-only: anyone who can read the key can subtract the noise.
    option : str
        What the user called it.

    Raises
    ------
    ParameterError
        If others have any access, or the file holds something else.  The content is never shown.
    """
    with path.open("rb") as file:
        # The open file is asked, not its name, so that it cannot be swapped between check and use.
        mode = os.fstat(file.fileno()).st_mode
        if os.name == "posix" and mode & OTHERS:
            raise ParameterError(
                f"{option} {path}: group or others have access (mode {stat.S_IMODE(mode):04o}); "
                f"expected an owner-only file (chmod 600 {path})"
            )
        content = file.read(4 * KEY_BYTES)
    return Key.from_bytes(_decode(content, f"{option} {path}"))


def read_ledger_key(path: Path | None) -> Key | None:
    """The key of ``--ledger-key-file``, if there is one."""
    return None if path is None else read_key(path, "--ledger-key-file")


def _decode(content: bytes, shown: str) -> bytes:
    if len(content) == KEY_BYTES:
        return content
    digits = content.strip()
    if len(digits) == 2 * KEY_BYTES:
        try:
            # int() would accept signs and underscores, fromhex spaces; the length rules the latter out
            # only together with the result's length.
            secret = bytes.fromhex(digits.decode("ascii"))
        except ValueError:
            secret = b""
        if len(secret) == KEY_BYTES:
            return secret
    raise ParameterError(
        f"{shown}: expected exactly {KEY_BYTES} raw bytes or {2 * KEY_BYTES} hexadecimal digits "
        "(the content is not shown: it is secret)"
    )
