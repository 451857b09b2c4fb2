"""The parameters of PAK's smallest error bound (section VI-A): Eq. 16 minimised by truncated Newton.

The unknowns are ln p, r, eps1 / eps and the logarithms of four betas relative to beta_Lap, so that boxes and
the softmax express every constraint but kappa > 0, which is a wall.  lambda is no unknown: the best one is
the largest with g(lambda, p, m) <= beta_qt, where g is continued to real lambda p m (from above).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.kinds import Floats, Json
from fastdp.record import Kind, Real, Whole
from fastdp.thresholds import PAKQuantile
from fastdp_lab.planning.formulas import (
    Quantile,
    SmoothSensitivity,
    inverse_kappa,
    laplace_quantile,
    outlier_error,
    smoothing,
    spacing_sensitivity,
    tree_error,
    underestimate_probability,
)

#: n is at most this: above, log2 of a float says too little.
MAX_LENGTH = 2**62
RANGES: dict[str, Kind] = {
    "n": Whole(3, MAX_LENGTH),
    "bound": Real(above=0.0),
    "epsilon": Real(above=0.0),
    "delta": Real(above=0.0, below=1.0),
    "beta": Real(above=0.0, below=0.5),
    "p_max": Real(above=0.0, most=0.5),
}
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
    n, m, bound, epsilon, delta
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

    def arguments(self) -> Json:
        """Arguments of :class:`fastdp.PAK` for these parameters; the plain binary tree's for a fallback.

        All of them are public, so the search must use public information alone: a distribution, or public or
        simulated data.

        ``error`` and ``improvement`` are for the paper's constants a and b, PAK's are those that are proved: the same
        but at large epsilon and delta, and with ``as_printed``.  PAK takes delta up to 1/4.

        Returns
        -------
        dict
            For ``fastdp.PAK(**optimum.arguments(), key=...)``.

        Examples
        --------
        >>> import fastdp
        >>> trips = fastdp_lab.planning.exponential_quantile(28.0, 1440.0)
        >>> best = fastdp_lab.planning.optimise_pak(
        ...     trips, 25_000_000, 56_000, bound=1440.0, epsilon=1.0, delta=2.0**-20, beta=0.02
        ... )
        >>> publisher = fastdp.PAK(**best.arguments(), seed=1)
        >>> publisher.holdout == best.m, publisher.guarantee.epsilon
        (True, 1.0)
        """
        whole = {"epsilon": self.epsilon, "delta": self.delta, "bound": self.bound, "length": self.n}
        if self.fallback:
            return {**whole, "threshold": self.bound}
        rule = PAKQuantile(p=1.0 - self.lambda_ * self.p, beta=self.beta_lt, delta=self.delta)
        return {**whole, "holdout": self.m, "share": self.share, "tail_factor": self.r, "threshold": rule}


def optimise_pak(
    quantile: Quantile,
    n: int,
    m: int,
    bound: float,
    epsilon: float,
    delta: float,
    beta: float,
    *,
    p_max: float = 0.005,
    smooth_sensitivity: SmoothSensitivity | None = None,
    as_printed: bool = False,
) -> Optimum:
    """The parameters that minimise Eq. 16, and the improvement over the plain binary tree (section VI-A).

    With a ``quantile`` or ``smooth_sensitivity`` of a sample the result depends on that sample: not private,
    for analysis of public or simulated data.

    Parameters
    ----------
    quantile : callable
        q -> x_q, the value with a share q of the stream above it: :func:`exponential_quantile`,
        :func:`sample_quantile` or any other continuous one.
    n, m : int
        Length of the stream, at least 3, and of its first part, less than n - 1.
    bound : float
        B, in units of a value.
    epsilon, delta : float
        Budget.
    beta : float
        Probability that the error bound fails, in (0, 1/2).
    p_max : float
        Largest p, beyond whose quantile the stream is light-tailed; in (0, 1/2].
    smooth_sensitivity : callable or None
        (q, b) -> b-smooth sensitivity of the q-quantile of the m values, in units of a value:
        :func:`sample_sensitivity`; None takes Eq. 19 corrected, an approximation.
    as_printed : bool
        What is printed: a = epsilon / sqrt(ln(1 / delta)) for Laplace noise too (section VI-B), which is smaller than
        the proved epsilon / 2; and Eq. 16, which leaves out the noise on the sum of the first m values, r tau / eps2:
        then eps1 / eps goes to the end of its box, 0.999, because nothing is left to spend on.

    Returns
    -------
    Optimum
        The same for the same arguments; the plain tree where it is better or m is too small for any lambda.
        ``fastdp.PAK(**optimum.arguments())`` is the publisher.
    """
    given_as = {"n": n, "bound": bound, "epsilon": epsilon, "delta": delta, "beta": beta, "p_max": p_max}
    n, bound, epsilon, delta, beta, p_max = (RANGES[name].check(name, each) for name, each in given_as.items())  # type: ignore[assignment]
    size = validation.integer("m", m, 1, n - 2)
    as_printed = validation.flag("as_printed", as_printed)
    functions: dict[str, object] = {"quantile": quantile, "smooth_sensitivity": smooth_sensitivity}
    for name, function in functions.items():
        if not callable(function) and (name == "quantile" or function is not None):
            raise ParameterError(f"{name} = {validation.shown(function)}: expected a function of a share")
    plain_error = tree_error(bound, n, epsilon, beta)
    rest: Any = plain_error, n, size, bound, epsilon, delta

    def at(unknowns: Floats) -> Optimum | float:
        """The parameters at a point of the box, or how far they break a constraint."""
        p, r, share = math.exp(unknowns[0]), float(unknowns[1]), float(unknowns[2])
        weights = np.exp(np.append(unknowns[3:], 0.0))
        beta_qt, beta_lt, beta_out, beta_rt, beta_lap = (beta * weights / weights.sum()).tolist()
        count = _largest_count(size, p, beta_qt)
        if count < 1.0:  # 1 / (p m) < lambda
            return 1.0 - count
        scale = share * epsilon / (math.sqrt(-math.log(delta)) if as_printed else 2.0)
        smooth, offset = smoothing(share * epsilon, delta), laplace_quantile(beta_lt)
        inverse = inverse_kappa(scale, smooth, offset)
        if inverse <= 1e-9:
            return min(1e-9 - inverse, 1e9)
        q = count / size
        centre = quantile(q)
        if smooth_sensitivity is None:
            sensitivity = spacing_sensitivity(centre, q, size, smooth)
        else:
            sensitivity = smooth_sensitivity(q, smooth)
        tau = centre + sensitivity / (inverse * scale) * (offset + laplace_quantile(beta_rt))
        error = tree_error(tau * r, n - size, epsilon, beta_lap) if tau > 0.0 else 0.0
        if not as_printed:
            error = math.hypot(error, tau * r * math.sqrt(-8.0 * math.log(beta_lap)) / (epsilon * (1.0 - share)))
        error += outlier_error(centre, n, p, r, beta_out)
        if not error > 0.0:
            raise ParameterError(f"quantile returned no number above 0 at {q:g}: expected one")
        betas, found = (
            (beta_qt, beta_lt, beta_lap, beta_out, beta_rt),
            (centre, sensitivity, 1.0 / inverse, tau, error),
        )
        return Optimum(plain_error / error, False, r, count / (p * size), p, share, *betas, *found, *rest)

    def objective(unknowns: Floats) -> float:
        """ln(Eq. 16 / Eq. 3), or a wall that falls towards the allowed side."""
        found = at(unknowns)
        return -math.log(found.improvement) if isinstance(found, Optimum) else WALL + math.log1p(found)

    # The plain binary tree, written as in the first rows of Tables I and II.
    betas, nan = (0.0, 0.0, beta, 0.0, 0.0), math.nan
    best = Optimum(1.0, True, 1.0, 1.0, p_max, 0.0, *betas, nan, nan, nan, nan, plain_error, *rest)
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
    if underestimate_probability(0.0, m, p) >= beta_qt:
        return 0.0
    high = m * p
    if underestimate_probability(high, m, p) <= beta_qt:
        return high  # lambda <= 1
    return float(
        optimize.brentq(lambda k: underestimate_probability(k, m, p) - beta_qt, 0.0, high, xtol=1e-12, rtol=1e-14)
    )
