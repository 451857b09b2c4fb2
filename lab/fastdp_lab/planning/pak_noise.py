"""Constants of the noise that hides a quantile: a, b, G^-1 and kappa.

Source: PAK section IV-C and Eq. 11.  The threshold is x + kappa SS / a (Z + G^-1(1 - beta)) with Z from the
standard Laplace or Gaussian law of distribution function G, and SS the b-smooth sensitivity of x.
All numbers here are without unit.  The constants are the paper's; docs/pak.md says what they do not prove.
"""

from __future__ import annotations

import math
from typing import Literal

from scipy import special

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp_lab.planning import _checks

Noise = Literal["laplace", "gaussian"]
NOISES: tuple[Noise, ...] = ("laplace", "gaussian")


def noise_quantile(beta: float, noise: Noise = "laplace") -> float:
    """G^-1(1 - beta): what the standard noise exceeds with probability beta.

    Parameters
    ----------
    beta : float
        In (0, 1); the result is positive for beta < 1/2.
    noise : {"laplace", "gaussian"}
        Laplace of scale 1 or Gaussian of variance 1.

    Raises
    ------
    ParameterError
        For a beta outside (0, 1) or another noise.
    """
    tail = _checks.share("beta", beta)
    if validation.choice("noise", noise, NOISES) == "gaussian":
        return -float(special.ndtri(tail))
    return -math.log(2.0 * tail) if tail <= 0.5 else math.log(2.0 * (1.0 - tail))


def noise_scale(epsilon: float, delta: float, noise: Noise = "laplace") -> float:
    """a: the noise is multiplied by SS / a (section IV-C).

    Parameters
    ----------
    epsilon : float
        Budget of the threshold (the paper's eps1), above 0.
    delta : float
        In (0, 1).
    noise : {"laplace", "gaussian"}
        a = epsilon / 2, or epsilon / sqrt(ln(1 / delta)).

    Raises
    ------
    ParameterError
        For a parameter outside its range.
    """
    budget, failure = validation.positive("epsilon", epsilon), _checks.share("delta", delta)
    if validation.choice("noise", noise, NOISES) == "gaussian":
        return budget / math.sqrt(-math.log(failure))
    return budget / 2.0


def smoothing(epsilon: float, delta: float) -> float:
    """b = epsilon / (2 ln(1 / delta)), the same for both noises (section IV-C).

    Parameters
    ----------
    epsilon : float
        Budget of the threshold, above 0.
    delta : float
        In (0, 1).

    Raises
    ------
    ParameterError
        For a parameter outside its range.
    """
    return validation.positive("epsilon", epsilon) / (-2.0 * math.log(_checks.share("delta", delta)))


def inverse_kappa(scale: float, smooth: float, offset: float) -> float:
    """1 / kappa = 1 - (e^b - 1) G^-1(1 - beta) / a (Eq. 11); not positive where there is no kappa."""
    return 1.0 - (math.expm1(smooth) * offset / scale if smooth < 700.0 else math.inf)


def positive_inverse(epsilon: float, delta: float, beta: float, scale: float, offset: float) -> float:
    """1 / kappa of these parameters; ParameterError where there is no kappa."""
    inverse = inverse_kappa(scale, smoothing(epsilon, delta), offset)
    if inverse <= 0.0:
        raise ParameterError(
            f"epsilon = {epsilon!r}, delta = {delta!r}, beta = {beta!r}: 1 / kappa = {inverse:.4g} (Eq. 11), "
            "expected a number above 0; take a smaller delta or epsilon, or a larger beta"
        )
    return inverse


def kappa(epsilon: float, delta: float, beta: float, noise: Noise = "laplace") -> float:
    """Factor on the smooth sensitivity that also hides the offset G^-1(1 - beta) (Eq. 11).

    Parameters
    ----------
    epsilon, delta : float
        Budget of the threshold: above 0, and in (0, 1).
    beta : float
        The paper's beta_lt, the chance that noise pulls the threshold below the quantile; in (0, 1/2).
    noise : {"laplace", "gaussian"}
        The noise added to the quantile.

    Returns
    -------
    float
        At least 1.

    Raises
    ------
    ParameterError
        For a parameter outside its range, and where Eq. 11 gives no positive factor.
    """
    scale = noise_scale(epsilon, delta, noise)
    offset = noise_quantile(_checks.share("beta", beta, 0.5), noise)
    return 1.0 / positive_inverse(epsilon, delta, beta, scale, offset)
