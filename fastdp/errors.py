"""Errors of fastdp: messages name the argument, the given and the accepted.

Of private data a message shows index, count and kind, never a value.
"""

from __future__ import annotations

import warnings


class FastDPError(Exception):
    """Base of fastdp's errors.

    ``parameter``: name of the argument or field at fault, with which the message begins; None if it is not one.
    """

    def __init__(self, *told: object, parameter: str | None = None) -> None:
        super().__init__(*told)
        self.parameter = parameter


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
    # On use: a client of the local model loads no kernels.
    from fastdp_kernels import caller

    frame = caller()
    told = frame.f_globals.setdefault("__warningregistry__", {})
    where = frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__")
    warnings.warn_explicit(message, category, *where, told)
