"""Error bars of released sums: quantiles and variances of sums of exact discrete Laplace noise.

Everything here is a function of public numbers: scales of noise and how many draws enter an answer.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from fastdp import validation
from fastdp.data.kinds import Floats, Integers
from fastdp.errors import ParameterError
from fastdp_kernels import laplace_sums

#: The errors of the law's numerical inversion, proved in the kernel, stay far below 1 - MAX_CONFIDENCE.
MAX_CONFIDENCE = 1.0 - 1e-9


def checked_confidence(confidence: object) -> float:
    """A confidence in (0, 1 - 10^-9], or ParameterError."""
    level = validation.real("confidence", confidence)
    if not 0.0 < level <= MAX_CONFIDENCE:
        raise ParameterError(f"confidence = {confidence!r}: expected above 0 and at most 1 - 1e-9, such as 0.95")
    return level


def laplace_variance(scale: Fraction | float) -> float:
    """Variance of one discrete Laplace variable, P[X = k] proportional to exp(-|k| / scale), in squared steps."""
    half = 0.5 / float(scale)
    # Beyond 350 the variance, about 2 exp(-2 half), is no ordinary float any more.
    return 0.5 / math.sinh(half) ** 2 if half < 350.0 else 0.0


def laplace_sum_quantile(scale: Fraction | float, m: int, confidence: float) -> int:
    """The least t with P[-t <= S <= t] >= confidence, S the sum of m independent discrete Laplace variables.

    Parameters
    ----------
    scale : Fraction or float
        s of each, in grid steps: P[X = k] is proportional to exp(-|k| / s).
    m : int
        How many, from 0 on.
    confidence : float
        Above 0, at most 1 - 10^-9.

    Returns
    -------
    int
        In grid steps.  Never too small: the coverage is at least the confidence.  Above 2^40 steps it may be one part
        in 2^40 too large.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Notes
    -----
    Privacy: a function of public numbers.  Source: the law's characteristic function, see
    :mod:`fastdp_kernels.laplace_sums`, where the error of the inversion is bounded.
    """
    return int(_quantiles(_scale(scale), (validation.integer("m", m, 0, 2**62),), checked_confidence(confidence))[0])


def laplace_sum_quantiles(scale: Fraction | float, counts: Integers, confidence: float) -> Floats:
    """:func:`laplace_sum_quantile` of each number in ``counts``, int64[q]: whole numbers as float64[q]."""
    distinct, place = np.unique(counts, return_inverse=True)
    return _quantiles(_scale(scale), tuple(distinct.tolist()), checked_confidence(confidence))[place]


class DrawnNoise(NamedTuple):
    """The law of the draws that an answer carries.

    Attributes
    ----------
    scale : Fraction or float
        Of discrete Laplace noise, in grid steps; sigma of discrete Gaussian noise.
    gaussian : bool
        Which of the two.
    """

    scale: Fraction | float
    gaussian: bool = False

    @property
    def variance(self) -> float:
        """Of one draw, in squared steps; of a Gaussian one the bound sigma^2 (Canonne et al. 2020, Corollary 9)."""
        return float(self.scale) ** 2 if self.gaussian else laplace_variance(self.scale)

    def quantiles(self, counts: Integers, confidence: float) -> Floats:
        """Half widths of intervals for sums of so many draws, in whole steps: float64[q].

        Of Gaussian draws the normal law's, a step wider: sums of two or more of them on integers are normal but for
        terms of the size of exp(-pi^2 sigma^2).
        """
        if not self.gaussian:
            return laplace_sum_quantiles(self.scale, counts, confidence)
        level = NormalDist().inv_cdf(0.5 + checked_confidence(confidence) / 2.0)
        return np.ceil(level * float(self.scale) * np.sqrt(counts)) + (counts > 0)


def _scale(scale: Fraction | float) -> float:
    # Divided, so that the quotient is rounded once; up by one float where it was rounded down.
    number = validation.positive("scale", float(scale) if isinstance(scale, Fraction) else scale)
    return math.nextafter(number, math.inf) if isinstance(scale, Fraction) and Fraction(number) < scale else number


@lru_cache(maxsize=4096)
def _quantiles(scale: float, counts: tuple[int, ...], confidence: float) -> Floats:
    out, memory = np.empty(len(counts)), np.empty(laplace_sums.MAX_TERMS + 1)
    laplace_sums.laplace_sum_quantiles(scale, np.array(counts, np.int64), confidence, memory, out)
    out.flags.writeable = False
    return out
