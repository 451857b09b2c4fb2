"""The distribution for a budget, and arrays of exact draws for users; ``sampler`` and ``gaussian`` make the draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, round_up
from fastdp.kinds import Integers
from fastdp.noise import gaussian, sampler
from fastdp.noise.gaussian import GaussianDistribution, gaussian_distribution
from fastdp.noise.key import KEY_BYTES, Binding, Key
from fastdp.noise.sampler import LaplaceDistribution, geometric_distribution, laplace_distribution
from fastdp.noise.words import MAX_WORDS, Purpose, StreamId, Words

# Noise of perturbers, and the distribution that a budget buys.
#
# A perturber's ``epsilon`` is its pure loss where noise is discrete Laplace.  Where noise is discrete Gaussian it
# stands for rho = epsilon^2 / 2, which is also what a pure loss of epsilon costs in concentrated DP (Bun and
# Steinke 2016, Proposition 1.4): budgets of thresholds and of perturbers are one kind of number.  An integer that a
# unit moves by theta, released on h levels, then has noise of scale theta h / epsilon, or of sigma theta sqrt(h) /
# epsilon.

NoiseName = Literal["laplace", "gaussian"]
Distribution = LaplaceDistribution | GaussianDistribution


@lru_cache(maxsize=256)
def noise_distribution(noise: NoiseName, theta_steps: int, levels: int, epsilon: float) -> Distribution:
    """Distribution for an integer that a unit changes by `theta_steps` on `levels` levels."""
    if noise == "laplace":
        return laplace_distribution(Fraction(theta_steps * levels) / Fraction(epsilon))
    return gaussian_distribution(sigma_above(theta_steps * theta_steps * levels, epsilon))


def sigma_above(square: int, epsilon: float) -> Fraction:
    """Sigma, rounded up, with which squared L2 sensitivity `square` costs rho = epsilon^2 / 2."""
    wanted = Fraction(square) / Fraction(epsilon) ** 2
    sigma = math.sqrt(wanted)
    while Fraction(sigma) ** 2 < wanted:
        sigma = math.nextafter(sigma, math.inf)
    return Fraction(sigma)


def fill_noise(
    out: Integers, distribution: Distribution, words: Words, further: Callable[[int, Integers], Words]
) -> None:
    """:func:`fastdp.noise.gaussian.fill_from` for draws of either distribution."""
    if isinstance(distribution, GaussianDistribution):
        gaussian.fill_from(out, distribution, words, further)
    else:
        sampler.fill_from(out, distribution, words, further)


def draw_scale(noise: NoiseName, levels: int, epsilon: float) -> float:
    """Scale, or sigma, of a draw, in units of theta."""
    return float(Fraction(levels) / Fraction(epsilon)) if noise == "laplace" else math.sqrt(levels) / epsilon


def concentrated(epsilon: float, *derivation: str) -> Guarantee:
    """Guarantee of Gaussian noise: rho, and an infinite epsilon until a delta is chosen."""
    rho = round_up(Fraction(epsilon) ** 2 / 2)
    return Guarantee(math.inf, rho=rho, arithmetic="exact", derivation=derivation)


def group_share(epsilon: float, square: int | Fraction) -> float:
    """Large float s with s sqrt(`square`) <= `epsilon`."""
    share = epsilon / math.sqrt(square)
    while square * Fraction(share) ** 2 > Fraction(epsilon) ** 2:
        share = math.nextafter(share, 0.0)
    return share


def l2_square(contributions: int, per_window: int | None) -> int:
    """Squared L2 norm of one unit's change: k rows, at most `per_window` in one sum."""
    k, j = contributions, per_window or contributions
    return k // j * j**2 + (k % j) ** 2


# Arrays of draws, for noise that users add themselves.


def discrete_laplace(
    scale: float | Fraction,
    size: int | tuple[int, ...] | None = None,
    out: Integers | None = None,
    rng: np.random.Generator | Key | None = None,
    *,
    stream: int = 0,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
) -> Integers:
    """Independent exact discrete Laplace draws.

    Parameters
    ----------
    scale : float or Fraction
        s in [2^-40, 2^56], an exact rational; s = sensitivity / epsilon makes the Laplace mechanism on integers pure
        epsilon-DP on the machine (``docs/noise.md``, section 3; :func:`fastdp.add_noise`).
    size : int or tuple of int
        Number of draws, at most 2^33, or shape; optional with ``out``.
    out : int64 array, C-contiguous and writable, optional
        Receives the draws.
    rng : numpy.random.Generator or Key, optional
        A generator is for simulation (its next 32 bytes are the seed); a Key is the same as ``key=``.
    stream : int
        Below 2^40; key and stream determine the draws, so use each pair once.
    seed, key
        As for a publisher; by default a fresh key, fit for a release.

    Returns
    -------
    int64 array of the shape ``size``
        P[X = k] = (1 - q) / (1 + q) q^abs(k), q = exp(-1/s); variance 2 q / (1 - q)^2.

    Raises
    ------
    ParameterError
        For an argument that is not accepted.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> fastdp.discrete_laplace(2.0, (2, 3)).shape
    (2, 3)
    >>> fastdp.discrete_laplace(2.0, 3, rng=np.random.default_rng(1)).dtype
    dtype('int64')
    """
    of = _rational("scale", scale), laplace_distribution, sampler.fill
    return _draw("discrete_laplace", *of, size, out, stream, (rng, seed, key))


def geometric(
    scale: float | Fraction,
    size: int | tuple[int, ...] | None = None,
    out: Integers | None = None,
    rng: np.random.Generator | Key | None = None,
    *,
    stream: int = 0,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
) -> Integers:
    """As :func:`discrete_laplace`, one-sided: P[X = k] = (1 - q) q^k, k >= 0, q = exp(-1/scale)."""
    of = _rational("scale", scale), geometric_distribution, sampler.fill
    return _draw("geometric", *of, size, out, stream, (rng, seed, key))


def discrete_gaussian(
    sigma: float | Fraction,
    size: int | tuple[int, ...] | None = None,
    out: Integers | None = None,
    rng: np.random.Generator | Key | None = None,
    *,
    stream: int = 0,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
) -> Integers:
    """Independent exact discrete Gaussian draws.

    Parameters
    ----------
    sigma : float or Fraction
        In [2^-10, 2^44], an exact rational.  Integers of L2 sensitivity D get rho-zCDP, rho = D^2 / (2 sigma^2), on
        the machine (``docs/noise.md``, section 6).
    size, out, rng, stream, seed, key
        As for :func:`fastdp.discrete_laplace`, and its errors.

    Returns
    -------
    int64 array of the shape ``size``
        P[X = k] is proportional to exp(-k^2 / (2 sigma^2)); the variance is at most sigma^2.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.discrete_gaussian(10.0, (2, 3), seed=1).shape
    (2, 3)
    """
    of = _rational("sigma", sigma), gaussian_distribution, gaussian.fill
    return _draw("discrete_gaussian", *of, size, out, stream, (rng, seed, key))


Secrets = tuple[np.random.Generator | Key | None, int | str | None, Key | bytes | None]


def _rational(name: str, value: float | Fraction) -> Fraction:
    """Positive parameter as the exact rational that it denotes."""
    return value if isinstance(value, Fraction) else Fraction(validation.positive(name, value))


@dataclass(frozen=True)
class _Draws:
    """Mechanism behind a public function: name and parameter."""

    name: str
    numerator: int
    denominator: int

    rule: ClassVar[int] = 1


@lru_cache(maxsize=256)
def _composition(name: str, numerator: int, denominator: int) -> bytes:
    """Encoding of :class:`_Draws`, cached."""
    return Key.from_seed(0).composition(_Draws(name, numerator, denominator))


def _draw(
    name: str,
    parameter: Fraction,
    distribution_of: Callable[[Fraction], Any],
    fill: Callable[..., None],
    size: int | tuple[int, ...] | None,
    out: Integers | None,
    stream: int,
    secrets: Secrets,
) -> Integers:
    distribution, number = distribution_of(parameter), validation.integer("stream", stream, 0, 2**40 - 1)
    target = _target(size, out)
    # Last, because it moves a generator on.
    key = _secret(*secrets)
    if key.binding is Binding.ROOT:
        key = key.bound(_composition(name, parameter.numerator, parameter.denominator))
    fill(target.reshape(-1), distribution, key, StreamId(Purpose.DRAWS, number=number))
    return target


def _target(size: int | tuple[int, ...] | None, out: Integers | None) -> Integers:
    """Array for the draws: `out` after checks, or new."""
    if out is not None:
        given: Any = out
        usable = isinstance(given, np.ndarray) and given.dtype == np.int64 and given.flags.c_contiguous
        if not usable or not out.flags.writeable:
            raise ParameterError("out: expected a writable, C-contiguous int64 array")
        if size is None:
            return out
    if size is None:
        raise ParameterError("size = None: expected a whole number or a shape, because there is no out")
    if isinstance(size, tuple) and not all(isinstance(side, (int, np.integer)) for side in size):
        raise ParameterError(f"size = {validation.shown(size)}: expected whole numbers, a shape")
    sides = size if isinstance(size, tuple) else (size,)
    shape = tuple(validation.integer("size", side, 0, MAX_WORDS) for side in sides)
    validation.integer("size", math.prod(shape), 0, MAX_WORDS)
    if out is None:
        return np.empty(shape, np.int64)
    if out.shape != shape:
        raise ParameterError(f"size = {size}: expected {out.shape}, the shape of out")
    return out


def _secret(rng: np.random.Generator | Key | None, seed: int | str | None, key: Key | bytes | None) -> Key:
    """Key of `rng`, `seed` or `key`; ParameterError for several."""
    if rng is None:
        return Key.choose(seed, key)
    if seed is not None or key is not None:
        raise ParameterError("rng: expected None beside seed or key, one of them decides the noise")
    if isinstance(rng, np.random.Generator):
        return Key(rng.bytes(KEY_BYTES), simulated=True)
    if not isinstance(rng, Key):
        raise ParameterError(f"rng is a {type(rng).__name__}: expected a numpy.random.Generator or a fastdp.Key")
    return rng
