"""Budgets as whole numbers, and one distribution of noise that serves all of them.

Epsilon is cut into parts of 1 / UNITS.  All noise is discrete Laplace of scale UNITS, times a small whole number, so
that a number of steps that moves by at most `budget` costs `budget` parts.  A budget that depends on released values
then needs no other draws, only a finer or coarser grid for the value, and sums of budgets are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar, cast

import numba

from fastdp import discrete_laplace
from fastdp.errors import ParameterError
from fastdp.kinds import Integers

#: Parts of epsilon = 1.
UNITS = 2**24
F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a loop over values whose steps depend on each other."""
    return cast("F", numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def parts(epsilon: float) -> int:
    """Whole parts of a budget."""
    return int(Fraction(epsilon) * UNITS)


def spendable(budget: int) -> int:
    """The parts of a share, ParameterError where none is left."""
    if budget < 1:
        raise ParameterError("epsilon: a share of it is below 2^-24; expected at least that, by a larger epsilon")
    return budget


def draws(key: bytes, size: int, number: int = 0, times: int = 1) -> Integers:
    """Independent noise, of scale `times` UNITS; each use of a key has a `number`."""
    return discrete_laplace(Fraction(times * UNITS), size, key=key, stream=number)


def steps_of(values: Integers, sensitivity: float, budget: int) -> tuple[Integers, float]:
    """Whole steps that move by at most `budget` where a value moves by `sensitivity`, and the length of a step."""
    moved = max(int(sensitivity), 1)
    return values * spendable(budget) // moved, moved / budget
