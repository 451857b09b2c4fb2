"""Which noise a perturber draws, and what its budget buys.

A perturber's ``epsilon`` is its pure loss where noise is discrete Laplace.  Where noise is discrete Gaussian it
stands for rho = epsilon^2 / 2, which is also what a pure loss of epsilon costs in concentrated DP (Bun and Steinke
2016, Proposition 1.4): budgets of thresholds and of perturbers are one kind of number.  An integer that a unit moves
by theta, released on h levels, then has noise of scale theta h / epsilon, or of sigma theta sqrt(h) / epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.data.kinds import Integers
from fastdp.guarantee import Guarantee, round_up, zcdp_loss
from fastdp.noise import gaussian, sampler
from fastdp.noise.gaussian import GaussianLaw, discrete_gaussian_law
from fastdp.noise.sampler import Law, discrete_laplace_law

NoiseName = Literal["laplace", "gaussian"]
AnyLaw = Law | GaussianLaw


def checked_noise(noise: object) -> NoiseName:
    """The name of a noise, or ParameterError."""
    return cast("NoiseName", validation.choice("noise", noise, get_args(NoiseName)))


@lru_cache(maxsize=256)
def noise_law(noise: NoiseName, theta_steps: int, levels: int, epsilon: float) -> AnyLaw:
    """The law of noise on an integer that a unit moves by ``theta_steps``, on each of so many levels."""
    if noise == "laplace":
        return discrete_laplace_law(Fraction(theta_steps * levels) / Fraction(epsilon))
    return discrete_gaussian_law(sigma_above(theta_steps * theta_steps * levels, epsilon))


def sigma_above(square: int, epsilon: float) -> Fraction:
    """A sigma for which integers of this squared L2 sensitivity have rho = epsilon^2 / 2: a float, rounded up."""
    wanted = Fraction(square) / Fraction(epsilon) ** 2
    sigma = math.sqrt(wanted)
    while Fraction(sigma) ** 2 < wanted:
        sigma = math.nextafter(sigma, math.inf)
    return Fraction(sigma)


def fill_from(
    out: Integers, law: AnyLaw, words: NDArray[np.uint64], further: Callable[[int, Integers], NDArray[np.uint64]]
) -> None:
    """:func:`fastdp.noise.gaussian.fill_from` for draws of either law."""
    if isinstance(law, GaussianLaw):
        gaussian.fill_from(out, law, words, further)
    else:
        sampler.fill_from(out, law, words, further)


def draw_scale(noise: NoiseName, levels: int, epsilon: float) -> float:
    """Scale, or sigma, of a draw over theta."""
    return float(Fraction(levels) / Fraction(epsilon)) if noise == "laplace" else math.sqrt(levels) / epsilon


def concentrated(epsilon: float, *derivation: str) -> Guarantee:
    """What Gaussian noise of this budget promises: rho, and no epsilon before a delta is chosen."""
    rho = round_up(Fraction(epsilon) ** 2 / 2)
    return Guarantee(math.inf, rho=rho, arithmetic="exact", derivation=derivation)


def group_share(epsilon: float, square: int | Fraction) -> float:
    """The largest float found that, times the root of ``square``, does not exceed epsilon."""
    share = epsilon / math.sqrt(square)
    while square * Fraction(share) ** 2 > Fraction(epsilon) ** 2:
        share = math.nextafter(share, 0.0)
    return share


def l2_square(contributions: int, per_window: int | None) -> int:
    """Squared L2 norm of what k rows of one unit change, at most j of them in one sum, in squares of one row's."""
    k, j = contributions, per_window or contributions
    return k // j * j**2 + (k % j) ** 2


def better_noise(epsilon: float, delta: float, contributions: int, per_window: int | None) -> NoiseName:
    """The noise of less variance for sums to which one unit adds so many rows, at equal (epsilon, delta)."""
    gaussian = l2_square(contributions, per_window) / zcdp_loss(epsilon, delta) ** 2
    return "gaussian" if gaussian < 2.0 * (contributions / epsilon) ** 2 else "laplace"
