"""The formulas of PAK's analysis: upper quantiles, constants of the noise on a quantile, error bounds.

Source: PAK Eq. 1, 3, 5, 11, 13, 14, 16, 18, 19 and section IV-C.  An upper quantile is a function from the share q of
values above it to the value (Definition 11).  The threshold is x + kappa SS / a (Z + G^-1(1 - beta)) with Z from the
standard Laplace or Gaussian distribution function G, and SS the b-smooth sensitivity of x.  Errors, bounds, quantiles
and sensitivities share the unit of a value; budgets, probabilities, a, b, G^-1 and kappa have none.  The constants
are the paper's; docs/pak.md lists where they are loose, and the claims that they do not prove.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp_lab.planning import _checks

#: q -> x_q, with Pr[X > x_q] = q; in units of a value.
Quantile = Callable[[float], float]
Noise = Literal["laplace", "gaussian"]


@_checks.checked()
def exponential_quantile(scale: float, bound: float) -> Quantile:
    """Upper quantiles of an exponential law (Eq. 1), cut off at the bound.

    Parameters
    ----------
    scale : float
        The mean, 1 / gamma, in units of a value; above 0.
    bound : float
        B, above 0.

    Returns
    -------
    callable
        q -> min(-scale ln q, bound).

    Raises
    ------
    ParameterError
        For a parameter outside its range; the result for a q outside (0, 1).
    """

    @_checks.checked()
    def quantile(q: float) -> float:
        return min(-scale * math.log(q), bound)

    return quantile


def sample_quantile(values: ArrayLike) -> Quantile:
    """Upper quantiles of a sample, interpolated between neighbours: not private, for public or simulated data.

    Parameters
    ----------
    values : float64[m]
        The sample in any order: finite, from 0.

    Returns
    -------
    callable
        q -> the value of rank (1 - q) m, counted from 1; between ranks on the line through both neighbours.

    Raises
    ------
    ParameterError
        For an empty sample, or one with values that are not accepted; the result for a q outside (0, 1).
    """
    ascending = _checks.sorted_sample("values", values)
    ranks = np.arange(1.0, ascending.size + 1.0)

    @_checks.checked()
    def quantile(q: float) -> float:
        return float(np.interp((1.0 - q) * ascending.size, ranks, ascending))

    return quantile


@_checks.checked()
def spacing_smooth_sensitivity(quantile: float, q: float, m: int, smooth: float) -> float:
    """Approximate smooth sensitivity of the q-quantile of m values with an exponential tail (Eq. 18, 19).

    The law with q-quantile x has density -q ln(q) / x there, so m values lie d = -m q ln(q) / x to the unit
    (Eq. 18), and k steps of 1 / d, discounted by e^(-bk), reach at most 1 / (e b d).  Eq. 19 prints d / (e b):
    that has the unit of 1 / value, and the paper's own second criterion for m follows from 1 / (e b d) only.
    It is an estimate, not a bound: it knows nothing of B, of ties, or of the tail thinning out.

    Parameters
    ----------
    quantile : float
        x, in units of a value; at least 0.
    q : float
        Share of values above x, in (0, 1).
    m : int
        Size of the sample, at least 1.
    smooth : float
        b, above 0.

    Returns
    -------
    float
        x / (e b m q ln(1 / q)), in units of a value.
    """
    return quantile / (math.e * smooth * m * q * -math.log(q))


@_checks.checked()
def noise_quantile(beta: float, noise: Noise = "laplace") -> float:
    """G^-1(1 - beta): the bound that the standard noise exceeds with probability beta.

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
    if noise == "gaussian":
        return -float(special.ndtri(beta))
    return -math.log(2.0 * beta) if beta <= 0.5 else math.log(2.0 * (1.0 - beta))


@_checks.checked()
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
    """
    return epsilon / (math.sqrt(-math.log(delta)) if noise == "gaussian" else 2.0)


@_checks.checked()
def smoothing(epsilon: float, delta: float) -> float:
    """b = epsilon / (2 ln(1 / delta)), the same for both noises (section IV-C).

    Parameters
    ----------
    epsilon : float
        Budget of the threshold, above 0.
    delta : float
        In (0, 1).
    """
    return epsilon / (-2.0 * math.log(delta))


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


@_checks.checked(beta=_checks.share(0.5))
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
    scale, offset = noise_scale(epsilon, delta, noise), noise_quantile(beta, noise)
    return 1.0 / positive_inverse(epsilon, delta, beta, scale, offset)


@_checks.checked()
def tree_error(sensitivity: float, n: int, epsilon: float, beta: float) -> float:
    """Error of the binary tree after n values (Eq. 3, with the constant that is printed).

    Parameters
    ----------
    sensitivity : float
        Sensitivity to one value: B for the plain tree; above 0.
    n : int
        Length of the stream, at least 1.
    epsilon : float
        Budget, above 0.
    beta : float
        Probability of a larger error, in (0, 1).

    Returns
    -------
    float
        sensitivity / epsilon * sqrt(8 ln(1 / beta)) * log2(n)^1.5, in units of a value.
    """
    levels = math.log2(n)
    return sensitivity / epsilon * math.sqrt(-8.0 * math.log(beta)) * levels * math.sqrt(levels)


def binomial_cdf(count: float, m: int, p: float) -> float:
    """Pr[Binomial(m, p) <= count], continued to real counts by the incomplete beta function.

    At whole counts it is the distribution function; in between it is above the step, and smooth, which the
    optimiser needs.  No validation: the optimiser calls it in its inner loop.
    """
    if count < 0.0:
        return 0.0
    return 1.0 if count >= m else float(special.betaincc(count + 1.0, m - count, p))


@_checks.checked(lambda_=_checks.at_most(1.0))
def underestimate_probability(lambda_: float, p: float, m: int) -> float:
    """g: the chance that the sample's lambda p-quantile lies below the true p-quantile (Eq. 5).

    Parameters
    ----------
    lambda_ : float
        In (0, 1]; the sum of Eq. 5 ends at the whole part of lambda p m.
    p : float
        Share of values above the quantile, in (0, 1).
    m : int
        Size of the sample, at least 1; tested to 1e7.

    Returns
    -------
    float
        Pr[Binomial(m, p) <= lambda p m], to nearly full relative precision also deep in the tail.

    Notes
    -----
    A product lambda p m that misses a whole number by rounding only counts as that number.
    """
    return binomial_cdf(math.floor(lambda_ * p * m * (1.0 + 1e-14)), m, p)


@_checks.checked()
def tau_max(
    quantile: float,
    smooth_sensitivity: float,
    epsilon: float,
    delta: float,
    beta_lt: float,
    beta_rt: float,
    noise: Noise = "laplace",
) -> float:
    """Bound that the threshold exceeds with probability at most beta_rt (Eq. 13).

    Parameters
    ----------
    quantile, smooth_sensitivity : float
        The sample's lambda p-quantile and its b-smooth sensitivity, in units of a value; at least 0.
    epsilon, delta : float
        Budget of the threshold (eps1, delta).
    beta_lt, beta_rt : float
        Chances that the threshold lies below the quantile, above tau_max; in (0, 1/2).
    noise : {"laplace", "gaussian"}
        The noise added to the quantile.

    Returns
    -------
    float
        quantile + kappa SS / a * (G^-1(1 - beta_lt) + G^-1(1 - beta_rt)); not cut off at the bound B.

    Raises
    ------
    ParameterError
        For a parameter outside its range, and where Eq. 11 gives no kappa.
    """
    unit = kappa(epsilon, delta, beta_lt, noise) * smooth_sensitivity / noise_scale(epsilon, delta, noise)
    return quantile + unit * (noise_quantile(beta_lt, noise) + noise_quantile(beta_rt, noise))


@_checks.checked(n=_checks.whole(2))
def worst_case_error(
    tau: float, bound: float, n: int, m: int, p: float, epsilon: float, beta_lap: float, beta_out: float
) -> float:
    """Error of PAK where every value above the p-quantile is the bound (Eq. 14).

    Parameters
    ----------
    tau : float
        The threshold, or tau_max; above 0 and at most ``bound``.
    bound : float
        B, in units of a value.
    n, m : int
        Length of the stream and of its first part; n > m >= 1.
    p : float
        Share of values above the threshold, in (0, 1).
    epsilon : float
        Budget of the tree, above 0.
    beta_lap, beta_out : float
        Probabilities of a larger error of the noise, of the clipping; in (0, 1).

    Returns
    -------
    float
        tree_error(tau, n - m) + (B - tau) p n (ln(1 / beta_out) + 1), in units of a value.
    """
    if tau > bound:
        raise ParameterError(f"tau = {tau!r}: expected at most bound = {bound:g}")
    noise = tree_error(tau, n - validation.integer("m", m, 1, n - 1), epsilon, beta_lap)
    return noise + (bound - tau) * p * n * (1.0 - math.log(beta_out))


@_checks.checked()
def outlier_error(quantile: float, n: int, p: float, r: float, beta_out: float) -> float:
    """Error of clipping a light-tailed stream at r times its p-quantile (second term of Eq. 16).

    Parameters
    ----------
    quantile : float
        x_p or an estimate not below it, in units of a value; at least 0.
    n : int
        Length of the stream, at least 1.
    p, beta_out : float
        Share of values above the quantile, probability of a larger error; in (0, 1).
    r : float
        Factor on the threshold, at least 1.

    Returns
    -------
    float
        quantile / ln(1 / p) * (sqrt(p^r n) + sqrt(ln(1 / beta_out)))^2, in units of a value.
    """
    return -quantile / math.log(p) * (math.sqrt(p**r * n) + math.sqrt(-math.log(beta_out))) ** 2


@_checks.checked(n=_checks.whole(2))
def light_tail_error(
    tau: float, quantile: float, n: int, m: int, p: float, r: float, epsilon: float, beta_lap: float, beta_out: float
) -> float:
    """Error of PAK on a stream that is light-tailed beyond its p-quantile (Eq. 16).

    Parameters
    ----------
    tau : float
        The threshold, or tau_max, before it is multiplied by r; above 0.
    quantile : float
        The sample's lambda p-quantile, in units of a value; at least 0.
    n, m : int
        Length of the stream and of its first part; n > m >= 1.
    p, r : float
        Share of values above the quantile, in (0, 1); factor on the threshold, at least 1.
    epsilon : float
        Budget of the tree, above 0.
    beta_lap, beta_out : float
        Probabilities of a larger error of the noise, of the clipping; in (0, 1).

    Returns
    -------
    float
        tree_error(r tau, n - m) + outlier_error(quantile, n), in units of a value.
    """
    noise = tree_error(tau * r, n - validation.integer("m", m, 1, n - 1), epsilon, beta_lap)
    return noise + outlier_error(quantile, n, p, r, beta_out)
