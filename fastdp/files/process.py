"""Which process this is: a forked child is another one, even if a new PID namespace gives it its parent's number."""

from __future__ import annotations

import os

#: Its entry is another object after every fork that Python takes part in.
token = [object()]


def _renew() -> None:
    token[0] = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def identity() -> tuple[int, object]:
    """Equal within one process only.

    The token differs after every fork that Python takes part in, the number after one by foreign code.
    """
    return os.getpid(), token[0]
