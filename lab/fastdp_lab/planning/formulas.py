"""Distributions, constants and error bounds of PAK's utility analysis (NDSS 2019).

For planning and evaluation, not for release.  A function that takes a sample looks at it without privacy: it is for
public or simulated data.

Source: PAK Eq. 1, 3, 5, 11, 16, 18, 19, sections IV-C, V-B and VI.  The threshold is
x + kappa SS / a (Z + G^-1(1 - beta)) with Z and G of the standard Laplace distribution, SS the b-smooth sensitivity
of x.  The constants are the paper's; docs/explanation/papers.md lists where they are loose, and the claims that they
do not prove.  ``q`` and ``p`` are shares of values above a quantile (Definition 11), ``n`` and ``m`` lengths of the
stream and of its first part, ``r`` the factor on the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from fastdp import validation
from fastdp.data.column import as_column, as_floats
from fastdp.errors import ParameterError
from fastdp.kinds import Floats

#: q -> x_q, with Pr[X > x_q] = q; in units of a value.
Quantile = Callable[[float], float]
#: (q, b) -> b-smooth sensitivity of the q-quantile of the m values, in units of a value.
SmoothSensitivity = Callable[[float, float], float]


def exponential_quantile(scale: float, bound: float) -> Quantile:
    """Upper quantiles of an exponential distribution (Eq. 1), cut off at the bound.

    Returns q -> min(-scale ln q, bound), for q in (0, 1).
    """
    scale, bound = validation.positive("scale", scale), validation.positive("bound", bound)
    return lambda q: min(-scale * math.log(validation.probability("q", q)), bound)


def _sorted_sample(values: ArrayLike) -> Floats:
    """A copy of the sample, ascending."""
    numbers = as_floats(as_column(values, "values"))
    if numbers.size == 0 or not np.isfinite(numbers).all() or numbers.min() < 0.0:
        raise ParameterError("values: expected finite numbers from 0, at least one")
    return np.sort(numbers)


@validation.plain
def sample_quantile(values: ArrayLike) -> Quantile:
    """Upper quantiles of a sample, interpolated between neighbours: not private, for public or simulated data.

    Returns q -> the value of rank (1 - q) m, counted from 1; between ranks on the line through both neighbours.
    """
    ascending = _sorted_sample(values)
    ranks = np.arange(1.0, ascending.size + 1.0)
    return lambda q: float(np.interp((1.0 - validation.probability("q", q)) * ascending.size, ranks, ascending))


@validation.plain
def sample_sensitivity(values: ArrayLike, bound: float) -> SmoothSensitivity:
    """Smooth sensitivity of a sample's quantiles (section IV-C): not private, for public or simulated data.

    Returns (q, b) -> the maximum over k of e^(-b k) times the largest step by k + 1 ranks over the quantile's rank, 0
    below the sample and ``bound`` above it; between ranks on the line through both neighbours.
    """
    ascending, bound = _sorted_sample(values), validation.positive("bound", bound)
    size, origin = ascending.size, ascending.size + 1
    padded = np.concatenate([np.zeros(size + 2), ascending, np.full(size + 2, bound)])
    # The largest step by k + 1 ranks does not depend on b: found once for each rank, as far as needed.
    steps: dict[int, Floats] = {}

    def step(rank: int, k: int) -> float:
        here = origin + rank
        high, low = padded[here : here + k + 2], padded[here - k - 1 : here + 1]
        return float(np.max(high[: low.size] - low[: high.size]))

    def at_rank(rank: int, smooth: float) -> float:
        best, count = 0.0, 0
        while count < size + 2 and math.exp(-smooth * count) * bound > best:
            count = min(max(64, 2 * count), size + 2)
            known = steps.get(rank, np.empty(0))
            if known.size < count:
                further = [step(rank, k) for k in range(known.size, count)]
                known = steps[rank] = np.concatenate([known, further])
            best = float(np.max(np.exp(-smooth * np.arange(count)) * known[:count]))
        return best

    def sensitivity(q: float, smooth: float) -> float:
        rank = min(max((1.0 - q) * size, 1.0), float(size))
        left = min(math.floor(rank), size - 1)
        weight = rank - left
        return (1.0 - weight) * at_rank(max(left, 1), smooth) + weight * at_rank(left + 1, smooth)

    return sensitivity


def spacing_sensitivity(quantile: float, q: float, m: int, smooth: float) -> float:
    """Approximate smooth sensitivity of the q-quantile x of m values with an exponential tail (Eq. 18, 19).

    The density at x is -q ln(q) / x, so m values lie d = -m q ln(q) / x to the unit (Eq. 18), and k steps of 1 / d,
    discounted by e^(-bk), reach at most 1 / (e b d).  Eq. 19 prints d / (e b): that has the unit of 1 / value, and
    the paper's own second criterion for m follows from 1 / (e b d) only.  An estimate, not a bound: it knows nothing
    of B, of ties, or of the tail thinning out.
    """
    return quantile / (math.e * smooth * m * q * -math.log(q))


def laplace_quantile(beta: float) -> float:
    """G^-1(1 - beta): the bound that standard Laplace noise exceeds with probability beta."""
    return -math.log(2.0 * beta) if beta <= 0.5 else math.log(2.0 * (1.0 - beta))


def smoothing(epsilon: float, delta: float) -> float:
    """b = epsilon / (2 ln(1 / delta))."""
    return epsilon / (-2.0 * math.log(delta))


def inverse_kappa(scale: float, smooth: float, offset: float) -> float:
    """1 / kappa = 1 - (e^b - 1) G^-1(1 - beta) / a (Eq. 11); not positive where there is no kappa."""
    return 1.0 - (math.expm1(smooth) * offset / scale if smooth < 700.0 else math.inf)


def tree_error(sensitivity: float, n: int, epsilon: float, beta: float) -> float:
    """Error of the binary tree after n values (Eq. 3, with the constant that is printed).

    Returns sensitivity / epsilon * sqrt(8 ln(1 / beta)) * log2(n)^1.5.
    """
    return float(sensitivity / epsilon * math.sqrt(-8.0 * math.log(beta)) * math.log2(n) ** 1.5)


def outlier_error(quantile: float, n: int, p: float, r: float, beta_out: float) -> float:
    """Error of clipping a light-tailed stream at r times its p-quantile (second term of Eq. 16).

    Returns quantile / ln(1 / p) * (sqrt(p^r n) + sqrt(ln(1 / beta_out)))^2.
    """
    return float(-quantile / math.log(p) * (math.sqrt(p**r * n) + math.sqrt(-math.log(beta_out))) ** 2)


def underestimate_probability(count: float, m: int, p: float) -> float:
    """g: the chance that the sample's quantile with ``count`` = lambda p m values above lies below x_p (Eq. 5).

    Pr[Binomial(m, p) <= count], continued to real counts by the incomplete beta function: at whole counts it is the
    distribution function; in between it is above the step, and smooth, which the optimiser needs.
    """
    if count < 0.0:
        return 0.0
    return 1.0 if count >= m else float(special.betaincc(count + 1.0, m - count, p))
