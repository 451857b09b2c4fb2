"""Errors of fastdp: messages name the argument, the given and the accepted.

Of private data a message shows index, count and kind, never a value.
"""

from __future__ import annotations

import sys
import warnings


class FastDPError(Exception):
    """Base of fastdp's errors."""


class ParameterError(FastDPError, ValueError):
    """A parameter is not accepted; nothing was changed."""


class DataError(FastDPError, ValueError):
    """The data of one call are not accepted; the publisher is unchanged."""


class StateError(FastDPError, RuntimeError):
    """Object or state file are not in a condition for this call."""


class MissingError(StateError, AttributeError):
    """An attribute that this object does not have, or not yet."""


class BudgetError(StateError):
    """A release would pass a ledger's limit, or repeat noise; nothing was released or recorded."""


class AccuracyWarning(UserWarning):
    """The output is private as stated, but public numbers show that it will be inaccurate."""


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the caller's line, outside the package."""
    package = __file__.removesuffix("errors.py")
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
