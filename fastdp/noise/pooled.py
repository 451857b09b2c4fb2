"""Exact noise one number at a time, from draws made together."""

from __future__ import annotations

import itertools
import math
import os
import sys
import weakref
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, cast

import numpy as np

from fastdp import validation
from fastdp.errors import DataError
from fastdp.guarantee import round_up
from fastdp.kinds import Array
from fastdp.noise.key import Key
from fastdp.noise.public_draws import discrete_gaussian, discrete_laplace
from fastdp.validation import refusal

#: Draws made together: a call of the sampler costs as much as some thousands of them.
POOL = 4_096
#: The largest float; further sums saturate.  Fewer steps, and a draw, are a float's.
MOST, MOST_STEPS = Fraction(sys.float_info.max), 2.0**900
#: Whole numbers up to this are floats.
EXACT = 2**53
_POOLS: weakref.WeakSet[_Pool] = weakref.WeakSet()


def steps_moved(distance: float, step: float) -> int:
    """Most steps between two numbers at this distance after rounding."""
    return math.floor(Fraction(distance) / Fraction(step)) + 1


class _Pool:
    """Draws of one distribution, in a list that threads share."""

    _draws: ClassVar[Callable[..., Array]]
    _name: ClassVar[str]

    def __init__(self, scale: float | Fraction, resolution: float = 1, *, seed: int | str | None = None) -> None:
        # A division by another number is rounded, which would move distant values by full steps.
        step = validation.positive("resolution", resolution)
        if math.frexp(step)[0] != 0.5:
            raise refusal("resolution", resolution, "a power of two, such as 1 or 2.0**-20")
        self._step = None if step == 1 else step
        given = scale if isinstance(scale, Fraction) else Fraction(validation.positive(self._name, scale))
        self._scale, self._seed = given / Fraction(step), seed
        self._begin()
        # The scale is checked here, and the first draws are ready.
        self._fill()
        _POOLS.add(self)

    def _begin(self) -> None:
        self._key, self._numbers, self._ready = Key.choose(self._seed, None), itertools.count(), list[int]()

    def __reduce__(self) -> tuple[Any, ...]:
        # Draws that wait here would serve twice, so a copy makes its own.
        step = 1 if self._step is None else self._step
        return _again, (type(self), self._scale * Fraction(step), step, self._seed)

    def _made(self, n: int) -> Array:
        return type(self)._draws(self._scale, n, key=self._key, stream=next(self._numbers))

    def _fill(self) -> None:
        self._ready.extend(self._made(POOL)[::-1].tolist())

    def _take(self) -> int:
        while True:
            try:
                return self._ready.pop()
            except IndexError:
                self._fill()

    def draw(self, n: int | None = None) -> Any:
        """Return one draw, or `n` of them.

        Parameters
        ----------
        n : int, optional
            At most 2^33.

        Returns
        -------
        int, or int64[n]
            Floats if ``resolution`` is not 1.
        """
        drawn: Any = self._take() if n is None else self._made(n)
        return drawn if self._step is None else drawn * self._step

    def add(self, value: float) -> float:
        """Return the number plus one draw; a float is first rounded to a multiple of ``resolution``.

        Parameters
        ----------
        value : int or float
            A whole number if ``resolution`` is 1.

        Raises
        ------
        DataError
            If the number is not finite, or not whole with ``resolution`` 1.
        """
        if type(value) is int and self._step is None:
            return value + self._take()
        return self._rounded_and_drawn(value)

    def _rounded_and_drawn(self, value: object) -> float:
        # Quotients by a power of two are exact, but for those beyond all floats, and so are whole numbers up to 2^53.
        plain = type(value) is float or (type(value) is int and -EXACT <= value <= EXACT)
        if plain and self._step is not None and abs(quotient := cast("float", value) / self._step) < MOST_STEPS:
            return (round(quotient) + self._take()) * self._step
        if isinstance(value, (int, np.integer)):
            # As a float it would be rounded before the grid does so, which moves distant numbers further.
            exact = Fraction(int(value))
        elif isinstance(value, (float, np.float32, np.float16)) and math.isfinite(value):
            exact = Fraction(float(value))
        else:
            raise DataError(f"value is a {type(value).__name__}: expected a finite number; arrays: fastdp.add_noise")
        if self._step is None:
            if exact.denominator != 1:
                raise DataError(f"value is not whole: expected a whole number, or {type(self).__name__}(resolution=)")
            return exact.numerator + self._take()
        # Whole numbers are added before they become a float, or the sum would tell the rounding of its parts.
        step = Fraction(self._step)
        return float(max(-MOST, min((round(exact / step) + self._take()) * step, MOST)))

    def _steps(self, sensitivity: float) -> Fraction:
        moved = validation.positive("sensitivity", sensitivity)
        return Fraction(moved) if self._step is None else Fraction(steps_moved(moved, self._step))


class Laplace(_Pool):
    """Draws exact discrete Laplace noise for single numbers.

    Parameters
    ----------
    scale : float or Fraction
        s = sensitivity / epsilon, in units of the numbers; P[X = k] is proportional to exp(-abs(k) / s).
    resolution : float
        Grid step of draws and floats, a power of two; 1 for whole numbers.
    seed : int or str, optional
        For simulation.  By default a fresh key, fit for a release.

    Notes
    -----
    Threads may share an object.  After a fork, copy or unpickling it begins with another key, or from the seed.

    Examples
    --------
    >>> from fastdp.noise import Laplace
    >>> noise = Laplace(4.0)
    >>> type(noise.add(100)), noise.draw(3).shape
    (<class 'int'>, (3,))
    >>> noise.loss(sensitivity=2)
    0.5
    """

    _draws = staticmethod(discrete_laplace)
    _name = "scale"

    def loss(self, sensitivity: float) -> float:
        """Return epsilon, rounded up, of one :meth:`add` for a number that moves by at most `sensitivity`.

        With another resolution than 1 rounding adds up to a step.
        """
        return round_up(self._steps(sensitivity) / self._scale)


class Gaussian(_Pool):
    """Draws exact discrete Gaussian noise for single numbers, as :class:`Laplace`; `sigma` bounds its deviation.

    Examples
    --------
    >>> from fastdp.noise import Gaussian
    >>> Gaussian(10.0).loss(10)
    0.5
    """

    _draws = staticmethod(discrete_gaussian)
    _name = "sigma"

    def __init__(self, sigma: float | Fraction, resolution: float = 1, *, seed: int | str | None = None) -> None:
        super().__init__(sigma, resolution, seed=seed)

    def loss(self, sensitivity: float) -> float:
        """Return rho of zero-concentrated DP, rounded up, as :meth:`Laplace.loss`."""
        return round_up((self._steps(sensitivity) / self._scale) ** 2 / 2)


def _again(kind: type[_Pool], scale: Fraction, resolution: float, seed: int | str | None) -> _Pool:
    return kind(scale, resolution, seed=seed)


def _begin_again() -> None:
    for pool in _POOLS:
        pool._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_again)
