"""Checks of parameters, one place for each kind; all raise :class:`~fastdp.errors.ParameterError`."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from numbers import Real

from fastdp.errors import ParameterError


def real(name: str, value: object) -> float:
    """A finite real number as float; bool and text are not numbers here."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ParameterError(f"{name} = {value!r}: expected a real number, got {type(value).__name__}")
    number = float(value)
    if not math.isfinite(number):
        raise ParameterError(f"{name} = {value!r}: expected a finite number")
    return number


def positive(name: str, value: object) -> float:
    """A finite real number above zero."""
    number = real(name, value)
    if number <= 0.0:
        raise ParameterError(f"{name} = {value!r}: expected a number above 0")
    return number


def integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """A whole number in [low, high]."""
    accepted = f"a whole number of at least {low}" + ("" if high is None else f" and at most {high}")
    if isinstance(value, bool):
        raise ParameterError(f"{name} = {value!r}: expected {accepted}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ParameterError(f"{name} = {value!r}: expected {accepted}") from None
    if number < low or (high is not None and number > high):
        raise ParameterError(f"{name} = {value!r}: expected {accepted}")
    return number


def choice(name: str, value: object, accepted: Sequence[str]) -> str:
    """One of a few names."""
    if not isinstance(value, str) or value not in accepted:
        listed = ", ".join(repr(option) for option in accepted)
        raise ParameterError(f"{name} = {value!r}: expected one of {listed}")
    return value
