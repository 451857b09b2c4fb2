"""Utility analysis of PAK (NDSS 2019): error bounds, lengths m, the best parameters.

For planning and evaluation, not for release.  A function that takes a sample looks at it without privacy: it is for
public or simulated data.

Source: PAK Eq. 1, 3, 5, 11, 13, 15 to 19, Definition 12, sections IV-C, V-B and VI.  The threshold is
x + kappa SS / a (Z + G^-1(1 - beta)) with Z from the standard Laplace or Gaussian distribution function G (``noise``)
and SS the b-smooth sensitivity of x.  The constants are the paper's; docs/explanation/papers.md lists where
they are loose, and the claims that they do not prove.  Names are the paper's, and their ranges stand in ``RANGES``:

* ``epsilon``, ``delta``: budget of the threshold (eps1), or of the tree; ``bound``: B; ``n``, ``m``: lengths of the
  stream and of its first part, the hold-out;
* ``quantile``: x_q, or the function from the share q of values above it to x_q (Definition 11); ``p``, ``p_max``,
  ``lambda_``: that share, its most, and the part of p at which the sample's quantile is taken; ``spread``: B / x;
* ``scale``, ``smooth``, ``offset``: a, b and G^-1(1 - beta); ``r``: factor on the threshold;
* ``beta``: probability of a larger error; ``beta_out``: of the clipping.

Errors, bounds, quantiles and sensitivities share the unit of a value; the others have none.  ParameterError says
which argument is outside its range.
"""

from __future__ import annotations

import bisect
import inspect
import math
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from fastdp import validation
from fastdp.data.column import as_array, entry_at, kind_of
from fastdp.errors import ParameterError
from fastdp.kinds import Floats
from fastdp.record import Choice, Flag, Kind, Real, Whole

P = ParamSpec("P")
R = TypeVar("R")
#: q -> x_q, with Pr[X > x_q] = q; in units of a value.
Quantile = Callable[[float], float]
Noise = Literal["laplace", "gaussian"]
#: n is at most this: above, log2 of a float says too little.
MAX_LENGTH = 2**62
#: The threshold's part of the budget and lambda, near those of Tables I and II.
SHARE, LAMBDA = 0.85, 0.8
POSITIVE, FROM_ZERO, FRACTION = Real(above=0.0), Real(least=0.0), Real(above=0.0, below=1.0)
UP_TO_ONE, BELOW_HALF = Real(above=0.0, most=1.0), Real(above=0.0, below=0.5)
FROM_ONE = Whole(1, MAX_LENGTH)


class _Function(Kind):
    """A function of a share and, for a sensitivity, of b."""

    def check(self, name: str, value: object) -> object:
        """The function."""
        if not callable(value):
            raise ParameterError(f"{name} = {validation.shown(value)}: expected a function of a share")
        return value


RANGES: dict[str, Kind] = {
    **dict.fromkeys(("epsilon", "bound", "sensitivity", "scale", "smooth"), POSITIVE),
    **dict.fromkeys(("delta", "beta", "beta_out", "p", "p_max", "q", "lambda_"), FRACTION),
    **dict.fromkeys(("quantile", "tolerance"), FROM_ZERO),
    **dict.fromkeys(("r", "spread"), Real(least=1.0)),
    **dict.fromkeys(("n", "m", "least_tail"), FROM_ONE),
    **dict.fromkeys(("as_printed", "first_sum"), Flag()),
    "noise": Choice(("laplace", "gaussian")),
}


def _checked(*optional: str, **own: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check a function's arguments by their names in ``RANGES``, or as ``own``; ``optional`` ones may be None."""
    kinds = {**RANGES, **own}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @wraps(function)
        def check(*args: P.args, **kwargs: P.kwargs) -> R:
            given: Any = signature.bind(*args, **kwargs).arguments
            for name, value in given.items():
                if name in kinds and not (value is None and name in optional):
                    given[name] = kinds[name].check(name, value)
            return function(**given)  # type: ignore[call-arg]

        return check

    return decorate


def _sorted_sample(name: str, values: ArrayLike) -> Floats:
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


# Quantiles.


@_checked()
def exponential_quantile(scale: float, bound: float) -> Quantile:
    """Upper quantiles of an exponential distribution (Eq. 1), cut off at the bound.

    Returns q -> min(-scale ln q, bound), for q in (0, 1).
    """

    @_checked()
    def quantile(q: float) -> float:
        return min(-scale * math.log(q), bound)

    return quantile


def sample_quantile(values: ArrayLike) -> Quantile:
    """Upper quantiles of a sample, interpolated between neighbours: not private, for public or simulated data.

    Returns q -> the value of rank (1 - q) m, counted from 1; between ranks on the line through both neighbours.
    """
    ascending = _sorted_sample("values", values)
    ranks = np.arange(1.0, ascending.size + 1.0)

    @_checked()
    def quantile(q: float) -> float:
        return float(np.interp((1.0 - q) * ascending.size, ranks, ascending))

    return quantile


@_checked()
def spacing_smooth_sensitivity(quantile: float, q: float, m: int, smooth: float) -> float:
    """Approximate smooth sensitivity of the q-quantile of m values with an exponential tail (Eq. 18, 19).

    The density at the q-quantile x is -q ln(q) / x, so m values lie d = -m q ln(q) / x to the unit (Eq. 18), and k
    steps of 1 / d, discounted by e^(-bk), reach at most 1 / (e b d).  Eq. 19 prints d / (e b): that has the unit of
    1 / value, and the paper's own second criterion for m follows from 1 / (e b d) only.  An estimate, not a bound: it
    knows nothing of B, of ties, or of the tail thinning out.

    Returns x / (e b m q ln(1 / q)), in units of a value.
    """
    return quantile / (math.e * smooth * m * q * -math.log(q))


# Constants of the noise.


@_checked()
def noise_quantile(beta: float, noise: Noise = "laplace") -> float:
    """G^-1(1 - beta): the bound that the standard noise exceeds with probability beta."""
    if noise == "gaussian":
        return -float(special.ndtri(beta))
    return -math.log(2.0 * beta) if beta <= 0.5 else math.log(2.0 * (1.0 - beta))


@_checked()
def noise_scale(epsilon: float, delta: float, noise: Noise = "laplace") -> float:
    """a: the noise is multiplied by SS / a (section IV-C)."""
    return epsilon / (math.sqrt(-math.log(delta)) if noise == "gaussian" else 2.0)


@_checked()
def smoothing(epsilon: float, delta: float) -> float:
    """b = epsilon / (2 ln(1 / delta)), the same for both noises (section IV-C)."""
    return epsilon / (-2.0 * math.log(delta))


def _inverse_kappa(scale: float, smooth: float, offset: float) -> float:
    """1 / kappa = 1 - (e^b - 1) G^-1(1 - beta) / a (Eq. 11); not positive where there is no kappa."""
    return 1.0 - (math.expm1(smooth) * offset / scale if smooth < 700.0 else math.inf)


# Error bounds.


@_checked()
def tree_error(sensitivity: float, n: int, epsilon: float, beta: float) -> float:
    """Error of the binary tree after n values (Eq. 3, with the constant that is printed).

    Returns sensitivity / epsilon * sqrt(8 ln(1 / beta)) * log2(n)^1.5, in units of a value.
    """
    levels = math.log2(n)
    return sensitivity / epsilon * math.sqrt(-8.0 * math.log(beta)) * levels * math.sqrt(levels)


def _binomial_cdf(count: float, m: int, p: float) -> float:
    """Pr[Binomial(m, p) <= count], continued to real counts by the incomplete beta function: unchecked, for loops.

    At whole counts it is the distribution function; in between it is above the step, and smooth, which the optimiser
    needs.
    """
    if count < 0.0:
        return 0.0
    return 1.0 if count >= m else float(special.betaincc(count + 1.0, m - count, p))


@_checked(lambda_=UP_TO_ONE)
def underestimate_probability(lambda_: float, p: float, m: int) -> float:
    """g: the chance that the sample's lambda p-quantile lies below the true p-quantile (Eq. 5).

    Pr[Binomial(m, p) <= lambda p m], to nearly full relative precision also deep in the tail.
    """
    return _binomial_cdf(math.floor(lambda_ * p * m * (1.0 + 1e-14)), m, p)


@_checked()
def outlier_error(quantile: float, n: int, p: float, r: float, beta_out: float) -> float:
    """Error of clipping a light-tailed stream at r times its p-quantile (second term of Eq. 16).

    Returns quantile / ln(1 / p) * (sqrt(p^r n) + sqrt(ln(1 / beta_out)))^2, in units of a value.
    """
    return -quantile / math.log(p) * (math.sqrt(p**r * n) + math.sqrt(-math.log(beta_out))) ** 2


# Values to hold out for the threshold.  The third criterion is ours: Eq. 19 knows nothing of the bound, which smooth
# sensitivity reaches if too few values lie above the quantile.


@_checked()
def quantile_criterion(beta: float, p_max: float = 0.005, lambda_: float = 0.5) -> int:
    """The first criterion: from which m on g(lambda, p_max, m) < beta.

    The smallest m such that g < beta for it and every larger one; g has small steps up where lambda p m reaches a
    whole number, so single smaller m may do.
    """

    def fails(m: int) -> bool:
        return underestimate_probability(lambda_, p_max, m) >= beta

    def reaching(count: int) -> int:
        """The smallest m whose sum in Eq. 5 ends at ``count``: where g is largest for that count."""
        return max(1, math.ceil(count / (lambda_ * p_max) * (1.0 - 1e-14)))

    high = 1
    while fails(reaching(high)):
        high *= 2
        if reaching(high) > MAX_LENGTH:
            raise ParameterError(f"beta = {beta!r}, p_max = {p_max!r}, lambda_ = {lambda_!r}: m would exceed 2^62")
    # The peaks of g fall with the count: those from high on all work, that of half as many does not.
    counts = range(high // 2 + 1, high)
    high = counts.start + bisect.bisect(counts, False, key=lambda count: not fails(reaching(count)))
    # Below reaching(high) the sum of Eq. 5 ends at high - 1, and g falls with m.
    sizes = range(reaching(high - 1) if high > 1 else 1, reaching(high))
    return sizes.start + bisect.bisect(sizes, False, key=lambda m: not fails(m))


@_checked(beta=BELOW_HALF)
def sensitivity_criterion(
    epsilon: float,
    delta: float,
    beta: float,
    p_max: float = 0.005,
    noise: Noise = "laplace",
    *,
    as_printed: bool = False,
) -> int:
    """The second criterion: the m from which the threshold's noise is a tenth of B (Eq. 17 solved for m).

    Returns 10 kappa G^-1(1 - beta) / (e a b p_max ln(1 / p_max)), rounded up; ParameterError where there is no kappa.
    """
    smooth, offset = smoothing(epsilon, delta), noise_quantile(beta, noise)
    scale = noise_scale(epsilon, delta, "gaussian" if as_printed else noise)
    inverse = _inverse_kappa(scale, smooth, offset)
    if inverse <= 0.0:
        raise ParameterError(
            f"epsilon = {epsilon!r}, delta = {delta!r}, beta = {beta!r}: 1 / kappa = {inverse:.4g} (Eq. 11), "
            "expected a number above 0; take a smaller delta or epsilon, or a larger beta"
        )
    return math.ceil(offset / (inverse * 0.1 * math.e * scale * smooth * -p_max * math.log(p_max)))


@_checked()
def reach_criterion(epsilon: float, delta: float, spread: float, p_max: float = 0.005, lambda_: float = 0.8) -> int:
    """A third criterion: the m from which smooth sensitivity does not reach up to the bound.

    The bound lies m q steps above the q-quantile x, q = lambda p_max, and is discounted by e^(-b m q).  That is no
    more than the x / (e b m q ln(1 / q)) of :func:`spacing_smooth_sensitivity` from u - ln u = 1 + ln(B / x) +
    ln ln(1 / q) on, with u = b m q.  Below, sensitivity is a part of B, and PAK is soon no better than the plain
    binary tree.

    Returns u / (b q), rounded up.
    """
    q, smooth = lambda_ * p_max, smoothing(epsilon, delta)
    target = max(1.0, 1.0 + math.log(spread) + math.log(-math.log(q)))
    reached: float = optimize.brentq(lambda u: u - math.log(u) - target, 1.0, 2.0 * target + 2.0)
    return math.ceil(reached / (smooth * q))


@_checked(quantile=_Function())
def recommended_lag(
    quantile: Quantile,
    bound: float,
    epsilon: float,
    delta: float,
    beta: float,
    p_max: float = 0.005,
    noise: Noise = "laplace",
) -> int:
    """A hold-out of good utility: the largest of the three criteria for m (section VI-B takes that of two).

    The threshold is taken to have 0.85 of the budget, as in :class:`fastdp.PAK`, and lambda to be 0.8.  More values
    give a better threshold and a longer wait; fewer, mostly the plain binary tree.
    """
    budget, centre = SHARE * epsilon, float(quantile(LAMBDA * p_max))
    if not centre > 0.0:
        raise ParameterError(f"quantile returned no number above 0 at {LAMBDA * p_max:g}: expected one")
    return max(
        quantile_criterion(beta, p_max, LAMBDA),
        sensitivity_criterion(budget, delta, beta, p_max, noise),
        reach_criterion(budget, delta, max(1.0, bound / centre), p_max, LAMBDA),
    )
