"""How many values to hold out for the threshold: the two criteria for m, and a third.

Source: PAK section VI-B, Eq. 17 to 19 with the correction of :func:`spacing_smooth_sensitivity`.  The third is ours:
Eq. 19 knows nothing of the bound, which smooth sensitivity reaches if too few values lie above the quantile.
"""

from __future__ import annotations

import bisect
import math

from scipy import optimize

from fastdp.errors import ParameterError
from fastdp_lab.planning import _checks
from fastdp_lab.planning.pak_formulas import (
    Noise,
    Quantile,
    noise_quantile,
    noise_scale,
    positive_inverse,
    smoothing,
    underestimate_probability,
)

#: The threshold's part of the budget and lambda, near those of Tables I and II.
SHARE, LAMBDA = 0.85, 0.8


@_checks.checked()
def quantile_criterion(beta: float, p_max: float = 0.005, lambda_: float = 0.5) -> int:
    """The first criterion: from which m on g(lambda, p_max, m) < beta.

    Parameters
    ----------
    beta : float
        Probability that the error bound fails, in (0, 1).
    p_max : float
        Share of values above the quantile, in (0, 1).
    lambda_ : float
        In (0, 1).

    Returns
    -------
    int
        The smallest m such that g < beta for it and every larger one; g has small steps up whenever
        lambda p m reaches a whole number, so single smaller m may do.

    Raises
    ------
    ParameterError
        For a parameter outside its range, or an m above 2^62.
    """

    def fails(m: int) -> bool:
        return underestimate_probability(lambda_, p_max, m) >= beta

    def reaching(count: int) -> int:
        """The smallest m whose sum in Eq. 5 ends at ``count``: where g is largest for that count."""
        return max(1, math.ceil(count / (lambda_ * p_max) * (1.0 - 1e-14)))

    high = 1
    while fails(reaching(high)):
        high *= 2
        if reaching(high) > _checks.MAX_LENGTH:
            raise ParameterError(f"beta = {beta!r}, p_max = {p_max!r}, lambda_ = {lambda_!r}: m would exceed 2^62")
    # The peaks of g fall with the count: those from high on all work, that of half as many does not.
    counts = range(high // 2 + 1, high)
    high = counts.start + bisect.bisect(counts, False, key=lambda count: not fails(reaching(count)))
    # Below reaching(high) the sum of Eq. 5 ends at high - 1, and g falls with m.
    sizes = range(reaching(high - 1) if high > 1 else 1, reaching(high))
    return sizes.start + bisect.bisect(sizes, False, key=lambda m: not fails(m))


@_checks.checked(beta=_checks.share(0.5))
def sensitivity_criterion(
    epsilon: float,
    delta: float,
    beta: float,
    p_max: float = 0.005,
    noise: Noise = "laplace",
    *,
    as_printed: bool = False,
    share_of_bound: float = 0.1,
) -> int:
    """The second criterion: the m from which the threshold's noise is a tenth of B (Eq. 17 solved for m).

    Parameters
    ----------
    epsilon, delta : float
        Budget of the threshold: above 0, and in (0, 1).
    beta : float
        In (0, 1/2): the noise is measured at its quantile 1 - beta.
    p_max : float
        Share of values above the quantile, in (0, 1).
    noise : {"laplace", "gaussian"}
        The noise added to the quantile.
    as_printed : bool
        The paper's mixture: G^-1 of ``noise`` with the Gaussian's a, whatever the noise.
    share_of_bound : float
        Of B, in (0, 1]; the paper takes 1/10.

    Returns
    -------
    int
        kappa G^-1(1 - beta) / (share_of_bound e a b p_max ln(1 / p_max)), rounded up.

    Raises
    ------
    ParameterError
        For a parameter outside its range, and where Eq. 11 gives no kappa.
    """
    smooth, offset = smoothing(epsilon, delta), noise_quantile(beta, noise)
    scale = noise_scale(epsilon, delta, "gaussian" if as_printed else noise)
    inverse = positive_inverse(epsilon, delta, beta, scale, offset)
    return math.ceil(offset / (inverse * share_of_bound * math.e * scale * smooth * -p_max * math.log(p_max)))


@_checks.checked()
def reach_criterion(epsilon: float, delta: float, spread: float, p_max: float = 0.005, lambda_: float = 0.8) -> int:
    """A third criterion: the m from which smooth sensitivity does not reach up to the bound.

    The bound lies m q steps above the q-quantile x, q = lambda p_max, and is discounted by e^(-b m q).  That is no
    more than the x / (e b m q ln(1 / q)) of :func:`spacing_smooth_sensitivity` from u - ln u = 1 + ln(B / x) +
    ln ln(1 / q) on, with u = b m q.  Below, sensitivity is a part of B, and PAK is soon no better than the plain
    binary tree.

    Parameters
    ----------
    epsilon, delta : float
        Budget of the threshold: above 0, and in (0, 1).
    spread : float
        B / x, at least 1.
    p_max, lambda_ : float
        In (0, 1); lambda as near to 1 as the optimum's.

    Returns
    -------
    int
        u / (b q), rounded up.
    """
    q, smooth = lambda_ * p_max, smoothing(epsilon, delta)
    target = max(1.0, 1.0 + math.log(spread) + math.log(-math.log(q)))
    reached: float = optimize.brentq(lambda u: u - math.log(u) - target, 1.0, 2.0 * target + 2.0)
    return math.ceil(reached / (smooth * q))


@_checks.checked(quantile=_checks.function)
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

    The threshold is taken to have 0.85 of the budget, as in :class:`fastdp.PAK`, and lambda to be 0.8.

    Parameters
    ----------
    quantile : callable
        q -> x_q, of the law or of public data; see :func:`exponential_quantile`.
    bound : float
        B, in units of a value; above 0.
    epsilon, delta : float
        Budget: above 0, and in (0, 1).
    beta : float
        Probability that the error bound fails, in (0, 1/2).
    p_max : float
        Share of values above the quantile, in (0, 1).
    noise : {"laplace", "gaussian"}
        The noise added to the quantile.

    Returns
    -------
    int
        m.  More values give a better threshold and a longer wait; fewer, mostly the plain binary tree.

    Raises
    ------
    ParameterError
        For a parameter outside its range, or a quantile that is not above 0.
    """
    budget, centre = SHARE * epsilon, float(quantile(LAMBDA * p_max))
    if not centre > 0.0:
        raise ParameterError(f"quantile returned no number above 0 at {LAMBDA * p_max:g}: expected one")
    return max(
        quantile_criterion(beta, p_max, LAMBDA),
        sensitivity_criterion(budget, delta, beta, p_max, noise),
        reach_criterion(budget, delta, max(1.0, bound / centre), p_max, LAMBDA),
    )
