"""Light tails of a stream: Definition 12 and section V-B of PAK."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fastdp.errors import ParameterError
from fastdp.kinds import Floats
from fastdp_lab.planning.formulas import _checked, _sorted_sample

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
