"""What the analysis needs of a distribution: upper quantiles, and the scale of their smooth sensitivity.

An upper quantile is a function from the share q of values above it to the value (PAK, Definition 11).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from fastdp import validation
from fastdp_lab.planning import _checks

#: q -> x_q, with Pr[X > x_q] = q; in units of a value.
Quantile = Callable[[float], float]


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
    mean, limit = validation.positive("scale", scale), validation.positive("bound", bound)

    def quantile(q: float) -> float:
        return min(-mean * math.log(_checks.share("q", q)), limit)

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

    def quantile(q: float) -> float:
        return float(np.interp((1.0 - _checks.share("q", q)) * ascending.size, ranks, ascending))

    return quantile


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

    Raises
    ------
    ParameterError
        For a parameter outside its range.
    """
    centre, share = _checks.at_least("quantile", quantile, 0.0), _checks.share("q", q)
    size, decay = validation.integer("m", m, 1), validation.positive("smooth", smooth)
    return centre / (math.e * decay * size * share * -math.log(share))
