"""Ranges of the analysis' parameters, declared once by name; samples of real values."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdp import validation
from fastdp.data.column import as_array, entry_at, kind_of
from fastdp.errors import ParameterError

P = ParamSpec("P")
R = TypeVar("R")
#: A parameter's name and value to the value that is used.
Check = Callable[[str, Any], Any]
NOISES = ("laplace", "gaussian")
#: n is at most this: above, log2 of a float says too little.
MAX_LENGTH = 2**62


def _number(accepted: str, holds: Callable[[float], bool]) -> Check:
    def check(name: str, value: object) -> float:
        number = validation.real(name, value)
        if not holds(number):
            raise ParameterError(f"{name} = {validation.shown(value)}: expected a number {accepted}")
        return number

    return check


def share(high: float = 1.0) -> Check:
    """A real number above 0 and below ``high``."""
    return _number(f"above 0 and below {high:g}", lambda number: 0.0 < number < high)


def at_most(high: float) -> Check:
    """A real number above 0, ``high`` or less."""
    return _number(f"above 0 and at most {high:g}", lambda number: 0.0 < number <= high)


def at_least(low: float) -> Check:
    """A finite real number, ``low`` or more."""
    return _number(f"of at least {low:g}", lambda number: number >= low)


def whole(low: int) -> Check:
    """A whole number, ``low`` or more."""
    return lambda name, value: validation.integer(name, value, low, MAX_LENGTH)


def optional(check: Check) -> Check:
    """None, or a value that passes the check."""
    return lambda name, value: None if value is None else check(name, value)


def function(name: str, value: object) -> object:
    """A function, of a share and, for a sensitivity, of b."""
    if not callable(value):
        raise ParameterError(f"{name} = {validation.shown(value)}: expected a function of a share")
    return value


RANGES: dict[str, Check] = {
    **dict.fromkeys(("epsilon", "bound", "sensitivity", "tau", "scale", "smooth"), validation.positive),
    **dict.fromkeys(("delta", "beta", "beta_lap", "beta_out", "p", "p_max", "q", "lambda_"), share()),
    **dict.fromkeys(("beta_lt", "beta_rt"), share(0.5)),
    **dict.fromkeys(("quantile", "smooth_sensitivity", "tolerance"), at_least(0.0)),
    **dict.fromkeys(("r", "spread"), at_least(1.0)),
    **dict.fromkeys(("n", "m", "least_tail"), whole(1)),
    **dict.fromkeys(("as_printed", "first_sum"), validation.flag),
    "share_of_bound": at_most(1.0),
    "noise": lambda name, value: validation.choice(name, value, NOISES),
}


def checked(**own: Check) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check a function's arguments by their names in ``RANGES``, or by checks of its own."""
    checks = {**RANGES, **own}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @wraps(function)
        def check(*args: P.args, **kwargs: P.kwargs) -> R:
            given: Any = signature.bind(*args, **kwargs).arguments
            given.update((name, checks[name](name, value)) for name, value in given.items() if name in checks)
            return function(**given)  # type: ignore[call-arg]

        return check

    return decorate


def sorted_sample(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """A copy of the sample, ascending: one row of finite numbers from 0, at least one."""
    array = as_array(values)
    if array is None:
        raise ParameterError(f"{name} is a {type(values).__name__}: expected an array of numbers")
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "biuf":
        raise ParameterError(
            f"{name} has shape {array.shape} and dtype {kind_of(array.dtype)}: expected one row of real numbers, at "
            "least one"
        )
    numbers = array.astype(np.float64)
    bad = ~np.isfinite(numbers) | (numbers < 0.0)
    if bad.any():
        raise ParameterError(f"{entry_at(name, bad, 'not a finite number from 0')}; expected finite numbers from 0")
    return np.sort(numbers)
