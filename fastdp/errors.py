"""Errors of fastdp: each message names the argument, what was given and what is accepted.

A parameter is shown.  Of private data a message shows index, count and kind, never a value: it ends up in logs.
"""

from __future__ import annotations

import sys
import warnings


class FastDPError(Exception):
    """Base of every error that fastdp raises on purpose."""


class ParameterError(FastDPError, ValueError):
    """A parameter has a value or type that is not accepted; nothing was changed."""


class DataError(FastDPError, ValueError):
    """The data of one call are not accepted; the publisher is as it was before the call."""


class StateError(FastDPError, RuntimeError):
    """The object, or the state file, is not in a condition that allows this call."""


class BudgetError(StateError):
    """A release would pass a ledger's limit, or use an earlier entry's noise; nothing was released or recorded."""


class AccuracyWarning(UserWarning):
    """The output is as private as stated, but public numbers show that it will be inaccurate."""


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the caller's line: the innermost stack frame outside the package."""
    package = __file__.removesuffix("errors.py")
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
