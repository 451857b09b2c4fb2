"""Error bounds of PAK and of the plain binary tree, as the paper prints them.

Source: PAK Eq. 3, 5, 13, 14, 16.  Errors, bounds, quantiles and sensitivities share the unit of a value;
budgets and probabilities have none.  The constants are the paper's; docs/pak.md lists where they are loose.
"""

from __future__ import annotations

import math

from scipy import special

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp_lab.planning import _checks
from fastdp_lab.planning.pak_noise import Noise, kappa, noise_quantile, noise_scale

#: n is at most this: above, log2 of a float says too little.
MAX_LENGTH = 2**62


def tree_error(sensitivity: float, n: int, epsilon: float, beta: float) -> float:
    """Error of the binary tree after n values (Eq. 3, with the constant that is printed).

    Parameters
    ----------
    sensitivity : float
        What one value can change: B for the plain tree; above 0.
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

    Raises
    ------
    ParameterError
        For a parameter outside its range.
    """
    unit = validation.positive("sensitivity", sensitivity)
    levels = math.log2(validation.integer("n", n, 1, MAX_LENGTH))
    budget, tail = validation.positive("epsilon", epsilon), _checks.share("beta", beta)
    return unit / budget * math.sqrt(-8.0 * math.log(tail)) * levels * math.sqrt(levels)


def binomial_cdf(count: float, m: int, p: float) -> float:
    """Pr[Binomial(m, p) <= count], continued to real counts by the incomplete beta function.

    At whole counts it is the distribution function; in between it is above the step, and smooth, which the
    optimiser needs.  No validation: the optimiser calls it in its inner loop.
    """
    if count < 0.0:
        return 0.0
    return 1.0 if count >= m else float(special.betaincc(count + 1.0, m - count, p))


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

    Raises
    ------
    ParameterError
        For a parameter outside its range.

    Notes
    -----
    A product lambda p m that misses a whole number by rounding only counts as that number.
    """
    tail, size = _checks.share("p", p), validation.integer("m", m, 1, MAX_LENGTH)
    factor = validation.real("lambda_", lambda_)
    if not 0.0 < factor <= 1.0:
        raise ParameterError(f"lambda_ = {validation.shown(lambda_)}: expected a number above 0 and at most 1")
    return binomial_cdf(math.floor(factor * tail * size * (1.0 + 1e-14)), size, tail)


def tau_max(
    quantile: float,
    smooth_sensitivity: float,
    epsilon: float,
    delta: float,
    beta_lt: float,
    beta_rt: float,
    noise: Noise = "laplace",
) -> float:
    """What the threshold exceeds with probability at most beta_rt (Eq. 13).

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
    centre = _checks.at_least("quantile", quantile, 0.0)
    sensitivity = _checks.at_least("smooth_sensitivity", smooth_sensitivity, 0.0)
    _checks.share("beta_lt", beta_lt, 0.5)
    _checks.share("beta_rt", beta_rt, 0.5)
    unit = kappa(epsilon, delta, beta_lt, noise) * sensitivity / noise_scale(epsilon, delta, noise)
    return centre + unit * (noise_quantile(beta_lt, noise) + noise_quantile(beta_rt, noise))


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

    Raises
    ------
    ParameterError
        For a parameter outside its range.
    """
    limit, length, size = _lengths(bound, n, m)
    threshold = validation.positive("tau", tau)
    if threshold > limit:
        raise ParameterError(f"tau = {validation.shown(tau)}: expected at most bound = {limit:g}")
    tail, failure = _checks.share("p", p), _checks.share("beta_out", beta_out)
    _checks.share("beta_lap", beta_lap)
    noise = tree_error(threshold, length - size, epsilon, beta_lap)
    return noise + (limit - threshold) * tail * length * (1.0 - math.log(failure))


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

    Raises
    ------
    ParameterError
        For a parameter outside its range.
    """
    centre, length = _checks.at_least("quantile", quantile, 0.0), validation.integer("n", n, 1, MAX_LENGTH)
    tail, factor = _checks.share("p", p), _checks.at_least("r", r, 1.0)
    failure = _checks.share("beta_out", beta_out)
    return -centre / math.log(tail) * (math.sqrt(tail**factor * length) + math.sqrt(-math.log(failure))) ** 2


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

    Raises
    ------
    ParameterError
        For a parameter outside its range.
    """
    _, length, size = _lengths(1.0, n, m)
    factor = _checks.at_least("r", r, 1.0)
    _checks.share("beta_lap", beta_lap)
    noise = tree_error(validation.positive("tau", tau) * factor, length - size, epsilon, beta_lap)
    return noise + outlier_error(quantile, length, p, factor, beta_out)


def _lengths(bound: float, n: int, m: int) -> tuple[float, int, int]:
    """The bound, n and m of a stream whose first m values choose the threshold."""
    limit, length = validation.positive("bound", bound), validation.integer("n", n, 2, MAX_LENGTH)
    return limit, length, validation.integer("m", m, 1, length - 1)
