"""Utility analysis of PAK (NDSS 2019): error bounds, lengths m, light tails, the best parameters.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from fastdp import validation
from fastdp.data.column import as_array, entry_at, kind_of
from fastdp.errors import ParameterError
from fastdp.kinds import Floats, Json
from fastdp.record import Choice, Flag, Kind, Real, Whole
from fastdp.thresholds import PAKQuantile

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


# Light tails: Definition 12 and section V-B.

#: One-sided 99.9 % point of the Kolmogorov distribution, sqrt(ln(1000) / 2).
KOLMOGOROV = math.sqrt(math.log(1000.0) / 2.0)


@dataclass(frozen=True)
class LightTail:
    """Result of :func:`check_light_tail`; values in units of the sample.

    Attributes
    ----------
    light : bool
        No violation is larger than ``tolerance``.
    p, x_p, gamma : float
        Share above the quantile, the quantile, and ln(1 / p) / x_p, the rate of the exponential distribution H.
    largest_violation : float
        Supremum of H(x) - F(x) over x >= x_p, or 0: a probability.
    at : float
        Where it is approached from below; x_p if there is none.
    violated_share : float
        Share of the sample's distinct values above x_p at which H - F exceeds ``tolerance``.
    tolerance : float
        A probability.
    """

    light: bool
    p: float
    x_p: float
    gamma: float
    largest_violation: float
    at: float
    violated_share: float
    tolerance: float


def _empirical(ascending: Floats, q: float) -> float:
    """The smallest value with at least a share 1 - q of the sample up to it (Definition 11)."""
    rank = math.ceil((1.0 - q) * ascending.size * (1.0 - 1e-14))
    return float(ascending[max(rank, 1) - 1])


@_checked("tolerance")
def check_light_tail(values: ArrayLike, p: float = 0.005, tolerance: float | None = None) -> LightTail:
    """Definition 12 for a sample: F(x) >= H(x; gamma) for all x >= x_p.

    This looks at the data: not private, for analysis of public or simulated data.

    Parameters
    ----------
    values : float64[m]
        The sample in any order: finite, from 0.
    p : float
        Share of values above the quantile.
    tolerance : float or None
        The violation that is accepted, a probability.  0 is Definition 12 to the letter, which the steps of an
        empirical F violate at once, by up to 1 / m, if any value lies above x_p.  None allows for the sampling
        error of the p m values of the tail: 1.86 sqrt(p / m), their one-sided 99.9 % Kolmogorov point.
    """
    ascending = _sorted_sample("values", values)
    slack = KOLMOGOROV * math.sqrt(p / ascending.size) if tolerance is None else tolerance
    x_p = _empirical(ascending, p)
    gamma = -math.log(p) / x_p if x_p > 0.0 else math.inf
    if not math.isfinite(gamma):
        raise ParameterError(f"values: the quantile at p = {p:g} is 0 or too small, expected one above 0")
    # F is flat and H rises between two values: the worst is just below the next value.
    points, counts = np.unique(ascending, return_counts=True)
    below = (np.cumsum(counts) - counts) / ascending.size
    above = points > x_p
    points, below = points[above], below[above]
    violation = -np.expm1(-gamma * points) - below
    largest, at = 0.0, x_p
    if violation.size and float(violation.max()) > 0.0:
        worst = int(np.argmax(violation))
        largest, at = float(violation[worst]), float(points[worst])
    share = float(np.mean(violation > slack)) if violation.size else 0.0
    return LightTail(largest <= slack, p, x_p, gamma, largest, at, share, slack)


@dataclass(frozen=True)
class TailSearch:
    """Result of :func:`search_p_max`.

    Attributes
    ----------
    p_max : float or None
        The largest p tried that works together with every smaller one; None if there is none.
    p : float64[n_p]
        The shares tried, falling.
    targets : float64[n_targets]
        The shares p^r, falling.
    error : float64[n_p, n_targets]
        r x_p / x_(p^r) - 1; NaN where p^r > p, that is r < 1.
    """

    p_max: float | None
    p: Floats
    targets: Floats
    error: Floats


#: A half-decade grid, as in Figure 6.
TRIED = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)


@_checked()
def search_p_max(
    values: ArrayLike, shares: Sequence[float] = TRIED, tolerance: float = 0.1, least_tail: int = 20
) -> TailSearch:
    """The search for p_max of section V-B: where r x_p reaches x_(p^r) for all r >= 1 (Eq. 15).

    This looks at the data: not private, for analysis of public or simulated data.  The paper compares by
    eye (Figure 6); here an r x_p that is too small by more than ``tolerance`` fails, one too large does not,
    because only the first costs accuracy that Eq. 16 does not count.

    Parameters
    ----------
    values : float64[m]
        The sample in any order: finite, from 0.
    shares : sequence of float
        The p to try, each in (0, 1).
    tolerance : float
        Accepted relative shortfall of r x_p, at least 0.
    least_tail : int
        Shares p^r go down by halves to the one with this many values of the sample above it; at least 1.
    """
    ascending = _sorted_sample("values", values)
    tried = _sorted_sample("shares", shares)[::-1]
    if not 0.0 < tried[-1] <= tried[0] < 1.0:
        raise ParameterError("shares: expected numbers above 0 and below 1")
    least = least_tail / ascending.size
    if tried[-1] <= least:
        raise ParameterError(
            f"shares has {tried[-1]:g}: expected numbers above {least:.3g}, "
            f"where the sample of {ascending.size} has {least_tail} values left"
        )
    halves = tried[0] * 0.5 ** np.arange(math.floor(math.log2(tried[0] / least)) + 1)
    targets = np.union1d(halves, tried)[::-1]
    far, near = (np.array([_empirical(ascending, float(q)) for q in shares]) for shares in (targets, tried))
    if near[0] <= 0.0:
        raise ParameterError(f"values has 0 as its quantile at p = {tried[0]:g}: expected one above 0")
    factor = np.log(targets)[None, :] / np.log(tried)[:, None]
    error = np.where(factor >= 1.0, factor * near[:, None] / far[None, :] - 1.0, np.nan)
    fails = np.flatnonzero(np.nanmin(error, axis=1) < -tolerance)
    first = int(fails[-1]) + 1 if fails.size else 0
    return TailSearch(float(tried[first]) if first < tried.size else None, tried, targets, error)


# The parameters of the smallest error bound (section VI-A): Eq. 16 minimised by truncated Newton.
#
# The unknowns are ln p, r, eps1 / eps and the logarithms of four betas relative to beta_Lap, so that boxes and
# the softmax express every constraint but kappa > 0, which is a wall.  lambda is no unknown: the best one is
# the largest with g(lambda, p, m) <= beta_qt, where g is continued to real lambda p m (from above).

#: (q, b) -> b-smooth sensitivity of the q-quantile of the m values, in units of a value.
SmoothSensitivity = Callable[[float, float], float]

#: Boxes: eps1 / eps, and the logarithm of a beta relative to beta_Lap.
SHARES = (0.01, 0.999)
LOGARITHMS = (-4.0, 2.0)
#: Smallest beta_qt / beta within these boxes: the others at their largest.
MIN_BETA = math.exp(LOGARITHMS[0]) / (1.0 + math.exp(LOGARITHMS[0]) + 3.0 * math.exp(LOGARITHMS[1]))
#: Starts (p / p_max, r, eps1 / eps), each with equal betas; the best end is taken.
STARTS = ((1.0, 1.0, 0.9), (1.0, 1.5, 0.9), (1.0, 2.0, 0.7), (0.5, 1.2, 0.9))
#: Steps of the numerical gradient: coarse to look past the kinks of a sample, fine to end at the minimum.
COARSE, FINE = 1e-3, 1e-7
#: Value of the objective, ln(error / plain error), where a constraint is broken: far above any other.
WALL = 60.0


@dataclass(frozen=True)
class Optimum:
    """Parameters of PAK with the smallest error bound; one row of Table I or II.

    Attributes
    ----------
    improvement : float
        plain_error / error (the paper's IF), at least 1.
    fallback : bool
        The plain binary tree is better: the parameters are those of the paper's first rows.
    r, lambda_, p : float
        Factor on the threshold, and the quantile lambda p that it is made of.
    share : float
        eps1 / eps, the part of the budget of the first m values that chooses the threshold.
    beta_qt, beta_lt, beta_lap, beta_out, beta_rt : float
        Probabilities; their sum is beta.
    quantile, sensitivity, kappa, tau_max : float
        x_(lambda p), its smooth sensitivity, Eq. 11 and Eq. 13 (before the factor r); NaN for a fallback.
    error, plain_error : float
        Eq. 16, and Eq. 3 with B; in units of a value.
    n, m, bound, epsilon, delta, noise
        Arguments of the search.
    """

    improvement: float
    fallback: bool
    r: float
    lambda_: float
    p: float
    share: float
    beta_qt: float
    beta_lt: float
    beta_lap: float
    beta_out: float
    beta_rt: float
    quantile: float
    sensitivity: float
    kappa: float
    tau_max: float
    error: float
    plain_error: float
    n: int
    m: int
    bound: float
    epsilon: float
    delta: float
    noise: Noise

    def arguments(self) -> Json:
        """Arguments of :class:`fastdp.PAK` for these parameters; the plain binary tree's for a fallback.

        All of them are public, so the search must use public information alone: a distribution, or public or
        simulated data.

        ``error`` and ``improvement`` are for the paper's constants a and b, PAK's are those that are proved: for
        Laplace noise the same but at large epsilon and delta; for Gaussian noise the threshold is 2 to 4 times as far
        above the quantile, in smooth sensitivities, and the error may exceed ``error``.  PAK takes delta up to 1/4.

        Returns
        -------
        dict
            For ``fastdp.PAK(**optimum.arguments(), key=...)``.

        Examples
        --------
        >>> import fastdp
        >>> trips = fastdp_lab.planning.exponential_quantile(28.0, 1440.0)
        >>> best = fastdp_lab.planning.optimise_pak(
        ...     trips, 25_000_000, None, bound=1440.0, epsilon=1.0, delta=2.0**-20, beta=0.02
        ... )
        >>> publisher = fastdp.PAK(**best.arguments(), seed=1)
        >>> publisher.holdout == best.m, publisher.guarantee.epsilon
        (True, 1.0)
        """
        whole = {"epsilon": self.epsilon, "delta": self.delta, "bound": self.bound, "length": self.n}
        if self.fallback:
            return {**whole, "threshold": self.bound}
        rule = PAKQuantile(p=1.0 - self.lambda_ * self.p, beta=self.beta_lt, delta=self.delta, noise=self.noise)
        return {**whole, "holdout": self.m, "share": self.share, "tail_factor": self.r, "threshold": rule}


@_checked(
    "m",
    "smooth_sensitivity",
    quantile=_Function(),
    n=Whole(3, MAX_LENGTH),
    beta=BELOW_HALF,
    p_max=Real(above=0.0, most=0.5),
    smooth_sensitivity=_Function(),
)
def optimise_pak(
    quantile: Quantile,
    n: int,
    m: int | None,
    bound: float,
    epsilon: float,
    delta: float,
    beta: float,
    *,
    noise: Noise = "laplace",
    p_max: float = 0.005,
    smooth_sensitivity: SmoothSensitivity | None = None,
    first_sum: bool = True,
) -> Optimum:
    """The parameters that minimise Eq. 16, and the improvement over the plain binary tree (section VI-A).

    With a ``quantile`` or ``smooth_sensitivity`` of a sample the result depends on that sample: not private,
    for analysis of public or simulated data.

    Parameters
    ----------
    quantile : callable
        q -> x_q, the value with a share q of the stream above it: :func:`exponential_quantile`,
        :func:`sample_quantile` or any other continuous one.
    n : int
        Length of the stream, at least 3.
    m : int or None
        Length of its first part, less than n - 1; None takes :func:`recommended_lag`, but at most half the stream.
    bound : float
        B, in units of a value.
    epsilon, delta : float
        Budget.
    beta : float
        Probability that the error bound fails, in (0, 1/2).
    noise : {"laplace", "gaussian"}
        Noise on the quantile; that of the tree is Laplace.
    p_max : float
        Largest p, beyond whose quantile the stream is light-tailed; in (0, 1/2].
    smooth_sensitivity : callable or None
        (q, b) -> b-smooth sensitivity of the q-quantile of the m values, in units of a value; None takes
        :func:`spacing_smooth_sensitivity`, which is an approximation.
    first_sum : bool
        Count the noise on the sum of the first m values, r tau / eps2, which Eq. 16 leaves out: one more
        term under the root of Eq. 3.  False is Eq. 16 as printed: then eps1 / eps goes to the end of its box,
        0.999, because nothing is left to spend on.

    Returns
    -------
    Optimum
        The same for the same arguments; the plain tree where it is better or m is too small for any lambda.
        ``fastdp.PAK(**optimum.arguments())`` is the publisher.
    """
    if m is not None:
        size = validation.integer("m", m, 1, n - 2)
    else:
        size, offset = n // 2, noise_quantile(beta, noise)
        # Without any kappa no lag helps, and the plain tree comes out.
        if _inverse_kappa(noise_scale(epsilon, delta, noise), smoothing(epsilon, delta), offset) > 0.0:
            size = min(size, recommended_lag(quantile, bound, epsilon, delta, beta, p_max, noise))
    plain_error = tree_error(bound, n, epsilon, beta)
    given: Any = plain_error, n, size, bound, epsilon, delta, noise

    def at(unknowns: Floats) -> Optimum | float:
        """The parameters at a point of the box, or how far they break a constraint."""
        p, r, share = math.exp(unknowns[0]), float(unknowns[1]), float(unknowns[2])
        weights = np.exp(np.append(unknowns[3:], 0.0))
        beta_qt, beta_lt, beta_out, beta_rt, beta_lap = (beta * weights / weights.sum()).tolist()
        count = _largest_count(size, p, beta_qt)
        if count < 1.0:  # 1 / (p m) < lambda
            return 1.0 - count
        scale, smooth = noise_scale(share * epsilon, delta, noise), smoothing(share * epsilon, delta)
        offset = noise_quantile(beta_lt, noise)
        inverse = _inverse_kappa(scale, smooth, offset)
        if inverse <= 1e-9:
            return min(1e-9 - inverse, 1e9)
        q = count / size
        centre = quantile(q)
        if smooth_sensitivity is None:
            sensitivity = spacing_smooth_sensitivity(centre, q, size, smooth)
        else:
            sensitivity = smooth_sensitivity(q, smooth)
        tau = centre + sensitivity / (inverse * scale) * (offset + noise_quantile(beta_rt, noise))
        error = tree_error(tau * r, n - size, epsilon, beta_lap) if tau > 0.0 else 0.0
        if first_sum:
            error = math.hypot(error, tau * r * math.sqrt(-8.0 * math.log(beta_lap)) / (epsilon * (1.0 - share)))
        error += outlier_error(centre, n, p, r, beta_out)
        if not error > 0.0:
            raise ParameterError(f"quantile returned no number above 0 at {q:g}: expected one")
        betas, found = (
            (beta_qt, beta_lt, beta_lap, beta_out, beta_rt),
            (centre, sensitivity, 1.0 / inverse, tau, error),
        )
        return Optimum(plain_error / error, False, r, count / (p * size), p, share, *betas, *found, *given)

    def objective(unknowns: Floats) -> float:
        """ln(Eq. 16 / Eq. 3), or a wall that falls towards the allowed side."""
        found = at(unknowns)
        return -math.log(found.improvement) if isinstance(found, Optimum) else WALL + math.log1p(found)

    # The plain binary tree, written as in the first rows of Tables I and II.
    betas, nan = (0.0, 0.0, beta, 0.0, 0.0), math.nan
    best = Optimum(1.0, True, 1.0, 1.0, p_max, 0.0, *betas, nan, nan, nan, nan, plain_error, *given)
    smallest = -2.0 * math.log(beta * MIN_BETA) / size  # below, no lambda may satisfy Eq. 5
    if smallest >= p_max:
        return best
    factor = max(2.0, -2.0 * math.log(n) / math.log(p_max))
    boxes = [(math.log(smallest), math.log(p_max)), (1.0, factor), SHARES, *[LOGARITHMS] * 4]

    def descend(start: Any, step: float) -> Floats:
        end = optimize.minimize(objective, start, method="TNC", bounds=boxes, options={"maxfun": 4000, "eps": step})
        inside: Floats = np.clip(end.x, *np.array(boxes).T)
        return inside

    ends = [
        descend([math.log(max(part * p_max, smallest)), min(r, factor), share, 0.0, 0.0, 0.0, 0.0], COARSE)
        for part, r, share in STARTS
    ]
    for step in (FINE, COARSE, FINE):
        ends.append(descend(min(ends, key=objective), step))
    found = [best, *(optimum for optimum in map(at, ends) if isinstance(optimum, Optimum))]
    return min(found, key=lambda optimum: optimum.error)


def _largest_count(m: int, p: float, beta_qt: float) -> float:
    """Lambda p m: the real count at which g is beta_qt; 0 where even no value at all is likelier."""
    if _binomial_cdf(0.0, m, p) >= beta_qt:
        return 0.0
    high = m * p
    if _binomial_cdf(high, m, p) <= beta_qt:
        return high  # lambda <= 1
    return float(optimize.brentq(lambda k: _binomial_cdf(k, m, p) - beta_qt, 0.0, high, xtol=1e-12, rtol=1e-14))
