"""Errors of fastdp: messages name argument, given and accepted, but never a value of private data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextvars import ContextVar


class FastDPError(Exception):
    """Base of fastdp's errors.

    ``parameter``: name of the argument or field with which the message begins, or None.
    """

    def __init__(self, *told: object, parameter: str | None = None) -> None:
        super().__init__(*told)
        self.parameter = parameter


class ParameterError(FastDPError, ValueError):
    """A parameter is not accepted; nothing was changed."""


class DataError(FastDPError, ValueError):
    """The data of one call are not accepted; the publisher is unchanged."""


class StateError(FastDPError, RuntimeError):
    """An object or state file is not in a condition for this call."""


class MissingError(StateError, AttributeError):
    """An attribute that an object does not have, or not yet."""


class BudgetError(StateError):
    """A release would pass a ledger's limit, or repeat noise; nothing was released or recorded."""


class AccuracyWarning(UserWarning):
    """The output is private as stated, but public numbers show that it will be inaccurate."""


def as_python(of: str, given: Mapping[str, object]) -> str:
    """Spell keyword arguments, of a call or of the record `of`."""
    said = ", ".join(f"{name}={'' if value is ... else repr(value)}" for name, value in given.items())
    return f"{of}{', ' if '(' in of else '('}{said})" if of else said


#: How messages write parameters; the command line writes its options.
spelling: ContextVar[Callable[[str, Mapping[str, object]], str]] = ContextVar("spelling", default=as_python)


def argument(of: str = "", /, **given: object) -> str:
    """Spell parameters as the reader types them: ``bound=10.0``; ``...`` is any value."""
    return spelling.get()(of, given)


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the caller's line, outside the package."""
    # On use: a client of the local model loads no kernels.
    from fastdp_kernels import caller

    frame = caller()
    told = frame.f_globals.setdefault("__warningregistry__", {})
    where = frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__")
    warnings.warn_explicit(message, category, *where, told)
