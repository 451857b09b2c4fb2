"""Arrays of exact draws, for noise that users add themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.kinds import Integers
from fastdp.noise import gaussian, sampler
from fastdp.noise.gaussian import gaussian_distribution
from fastdp.noise.key import KEY_BYTES, Binding, Key
from fastdp.noise.sampler import geometric_distribution, laplace_distribution
from fastdp.noise.words import MAX_WORDS, Purpose, StreamId
from fastdp.validation import refusal


@validation.spelled
def discrete_laplace(
    scale: float | Fraction,
    size: int | tuple[int, ...],
    rng: np.random.Generator | Key | None = None,
    *,
    stream: int = 0,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
) -> Integers:
    """Draw independent exact discrete Laplace noise.

    Parameters
    ----------
    scale : float or Fraction
        s in [2^-40, 2^56], an exact rational; s = sensitivity / epsilon makes integers pure epsilon-DP, exactly
        (``docs/noise.md``, section 3).
    size : int or tuple of int
        Number, at most 2^33, or shape.
    rng : numpy.random.Generator or Key, optional
        A generator is for simulation: its next 32 bytes are the key.
    stream : int
        Below 2^40; key and stream determine the draws, so use each pair once.
    seed, key
        As for :func:`fastdp.release`; by default a fresh key, fit for a release.

    Returns
    -------
    int64 array of the shape ``size``
        P[X = k] = (1 - q) / (1 + q) q^abs(k), q = exp(-1/s); variance 2 q / (1 - q)^2.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> fastdp.discrete_laplace(2.0, (2, 3)).shape
    (2, 3)
    >>> fastdp.discrete_laplace(2.0, 3, rng=np.random.default_rng(1)).dtype
    dtype('int64')
    """
    of = _rational("scale", scale), laplace_distribution, sampler.fill
    return _draw("discrete_laplace", *of, size, stream, (rng, seed, key))


def geometric(
    scale: float | Fraction,
    size: int | tuple[int, ...],
    rng: np.random.Generator | Key | None = None,
    *,
    stream: int = 0,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
) -> Integers:
    """Draw one-sided :func:`discrete_laplace` noise: P[X = k] = (1 - q) q^k, k >= 0, q = exp(-1/scale).

    Examples
    --------
    >>> from fastdp.noise import geometric
    >>> bool((geometric(2.0, 100) >= 0).all())
    True
    """
    of = _rational("scale", scale), geometric_distribution, sampler.fill
    return _draw("geometric", *of, size, stream, (rng, seed, key))


@validation.spelled
def discrete_gaussian(
    sigma: float | Fraction,
    size: int | tuple[int, ...],
    rng: np.random.Generator | Key | None = None,
    *,
    stream: int = 0,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
) -> Integers:
    """Draw independent exact discrete Gaussian noise.

    Parameters
    ----------
    sigma : float or Fraction
        In [2^-10, 2^44], an exact rational.  Integers of L2 sensitivity D get rho-zCDP, rho = D^2 / (2 sigma^2),
        exactly (``docs/noise.md``, section 6).
    size, rng, stream, seed, key
        As for :func:`fastdp.discrete_laplace`.

    Returns
    -------
    int64 array of the shape ``size``
        P[X = k] is proportional to exp(-k^2 / (2 sigma^2)); variance at most sigma^2.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.discrete_gaussian(10.0, (2, 3), seed=1).shape
    (2, 3)
    """
    of = _rational("sigma", sigma), gaussian_distribution, gaussian.fill
    return _draw("discrete_gaussian", *of, size, stream, (rng, seed, key))


Secrets = tuple[np.random.Generator | Key | None, int | str | None, Key | bytes | None]


def _rational(name: str, value: float | Fraction) -> Fraction:
    return value if isinstance(value, Fraction) else Fraction(validation.positive(name, value))


@dataclass(frozen=True)
class _Draws:
    name: str
    numerator: int
    denominator: int

    rule: ClassVar[int] = 1


@lru_cache(maxsize=256)
def _composition(name: str, numerator: int, denominator: int) -> bytes:
    return Key.from_seed(0).composition(_Draws(name, numerator, denominator))


def _draw(
    name: str,
    parameter: Fraction,
    distribution_of: Callable[[Fraction], Any],
    fill: Callable[..., None],
    size: int | tuple[int, ...],
    stream: int,
    secrets: Secrets,
) -> Integers:
    distribution, number = distribution_of(parameter), validation.integer("stream", stream, 0, 2**40 - 1)
    target: Integers = np.empty(_shape(size), np.int64)
    # Last, because it moves a generator on.
    key = _secret(*secrets)
    if key.binding is Binding.ROOT:
        key = key.bound(_composition(name, parameter.numerator, parameter.denominator))
    fill(target.reshape(-1), distribution, key, StreamId(Purpose.DRAWS, number=number))
    return target


def _shape(size: int | tuple[int, ...]) -> tuple[int, ...]:
    if isinstance(size, tuple) and not all(isinstance(side, (int, np.integer)) for side in size):
        raise refusal("size", size, "whole numbers, a shape")
    sides = size if isinstance(size, tuple) else (size,)
    shape = tuple(validation.integer("size", side, 0, MAX_WORDS) for side in sides)
    validation.integer("size", math.prod(shape), 0, MAX_WORDS)
    return shape


def _secret(rng: np.random.Generator | Key | None, seed: int | str | None, key: Key | bytes | None) -> Key:
    if rng is None:
        return Key.choose(seed, key)
    if seed is not None or key is not None:
        raise ParameterError("rng: expected None beside seed or key, one of them decides the noise")
    if isinstance(rng, np.random.Generator):
        return Key(rng.bytes(KEY_BYTES), simulated=True)
    if not isinstance(rng, Key):
        raise ParameterError(f"rng is a {type(rng).__name__}: expected a numpy.random.Generator or a fastdp.Key")
    return rng
