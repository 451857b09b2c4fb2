"""The mechanisms: square waves for distributions, and three for means.

Source: ToPL Appendix E.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.kinds import Floats
from fastdp.local.base import MeanMechanism, Mechanism
from fastdp.local.laws import CONTEXT, WORDS, Law, MixtureLaw, WindowLaw, bit_law, exp_below, window_law

if TYPE_CHECKING:
    from fastdp.local.distribution import Distribution, EstimateOptions, Method


def closeness(epsilon: float) -> Decimal:
    """b = (eps e^eps - e^eps + 1) / (2 e^eps (e^eps - 1 - eps)), half the window's length on [0, 1].

    Every operation names its context: the caller's own must not change the law.  Forty digits are right at epsilon
    1e-6, where both differences cancel to eps^2 / 2.  ToPL Appendix E.1; Li et al. 2020.
    """
    eps = Decimal.from_float(epsilon)
    power = CONTEXT.exp(eps)
    above = CONTEXT.add(CONTEXT.subtract(CONTEXT.multiply(eps, power), power), Decimal(1))
    rest = CONTEXT.subtract(CONTEXT.subtract(power, Decimal(1)), eps)
    below = CONTEXT.multiply(CONTEXT.multiply(Decimal(2), power), rest)
    return CONTEXT.divide(above, below)


@dataclass(frozen=True)
class SquareWave(Mechanism):
    """Reports close to the value are e^epsilon times likelier than the others (ToPL Appendix E.1).

    Parameters
    ----------
    epsilon : float
        Privacy loss of one report, in [1e-6, 32].
    low, high : float
        The public domain; values outside are clipped.

    Notes
    -----
    Window of N = 2 w + 1 grid steps around the value, w = rint(b STEPS) with b from :func:`closeness`.  Report j
    stands for low + (high - low) (j - w) / STEPS, so reports lie in [low - b width, high + b width].  A report alone
    is no unbiased estimate of its value, so there is no variance of one; the distribution's error has no formula.
    """

    WORDS: ClassVar[int] = 1

    low: float = 0.0
    high: float = 1.0
    law: WindowLaw = field(init=False, repr=False, compare=False)
    rule: ClassVar[int] = 1

    @classmethod
    def _make_law(cls, epsilon: float) -> WindowLaw:
        return window_law(epsilon, 2 * round(CONTEXT.multiply(closeness(epsilon), Decimal(cls.STEPS))) + 1, cls.STEPS)

    def estimate(self, reports: Any, bins: int = 1024, method: Method = "em") -> Distribution:
        """The distribution of the values by expectation maximisation; the server's side.

        Parameters
        ----------
        reports : one column of whole numbers
            From :meth:`perturb` of the same epsilon, low and high.
        bins : int
            Cells of equal width over [low, high].
        method : "em" or "ems"
            Without or with binomial smoothing in each iteration.

        Returns
        -------
        fastdp.local.distribution.Distribution
            Frequencies of the cells, with how they were found.

        Raises
        ------
        DataError
            If a report is no whole number in 0..n_outputs - 1; the message names its index.
        ParameterError
            If bins or method are not accepted.
        """
        counts = np.bincount(self.check_reports(reports), minlength=self.n_outputs)
        return self.estimate_counts(counts, bins, method)

    def estimate_counts(
        self, counts: Any, bins: int = 1024, method: Method = "em", **options: Unpack[EstimateOptions]
    ) -> Distribution:
        """The same from how often each output, or each cell of outputs, was reported.

        Parameters
        ----------
        counts : int[n_outputs], or int[bins]
            As :func:`fastdp.local.distribution.estimate` takes them.
        bins, method
            As for :meth:`estimate`.
        **options
            ``accelerate``, ``max_iterations``, ``tolerance`` of that function.
        """
        from fastdp.local.distribution import estimate

        return estimate(
            self.law, self.epsilon, counts, bins=bins, method=method, low=self.low, high=self.high, **options
        )


def octave(ratio: float) -> float:
    """Octaves above 1 of one finite ratio, on a scale that every machine computes alike; 0 for what is below.

    The place p of a ratio x >= 1 is e + (x / 2^e - 1), 2^e <= x < 2^(e + 1): within 9 % of an octave of log2 x,
    rising, continuous, and made of operations that IEEE 754 rounds correctly, so that one value and an array of
    values, on any machine, give the same place.  (Library logarithms differ in their last digits.)
    """
    mantissa, exponent = math.frexp(max(ratio, 1.0))
    return (exponent - 1) + (2.0 * mantissa - 1.0)


def octaves(ratios: Floats) -> Floats:
    """The same of an array; NaN stays NaN."""
    mantissas, exponents = np.frexp(np.maximum(ratios, 1.0))
    return (exponents - 1) + (2.0 * mantissas - 1.0)


def ratios_at(at: Floats) -> Floats:
    """The inverse, for positions of at least 0."""
    whole = np.floor(at)
    return np.ldexp(1.0 + (at - whole), whole.astype(np.int64))


MAX_OCTAVES = 256


@dataclass(frozen=True)
class LogSquareWave(SquareWave):
    """Square-wave reports of a value's place on a logarithmic scale.

    Parameters
    ----------
    epsilon : float
        Privacy loss of one report, in [1e-6, 32].
    low, high : float
        The public domain, low above 0 and high at most 2^256 times as much; values outside are clipped, so that all
        below low (and 0) look alike.

    Notes
    -----
    Value v is first mapped to a grid step, rint(STEPS p(v / low) / p(high / low)), p the octaves of
    :func:`fastdp.local.mechanisms.octave`; the law of the report given the step is :class:`SquareWave`'s, to the
    last word.

    Privacy: unchanged.  Any two steps are e^epsilon-indistinguishable, and whatever two values become two steps, so
    the map needs no property at all, not even that it is the same on two machines.
    """

    low: float = 1.0 / 2**14
    high: float = 1.0
    rule: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Check the parameters and compute the law."""
        super().__post_init__()
        if not 0.0 < self.low * 2.0 <= self.high <= self.low * 2.0**MAX_OCTAVES:
            raise ParameterError(
                f"low = {validation.shown(self.low)}: expected a number above 0, at most high / 2 and at least "
                f"high / 2^{MAX_OCTAVES}, for high = {self.high!r}"
            )

    @property
    def _steps_per_octave(self) -> float:
        return self.STEPS / octave(self.high / self.low)

    def _place(self, number: float) -> int:
        return round(octave(min(number, self.high) / self.low) * self._steps_per_octave)

    def _place_all(self, floats: Floats, out: NDArray[np.int32]) -> bool:
        if not np.isfinite(floats).all():
            return True
        at = octaves(np.minimum(floats, self.high) / self.low)
        out[...] = np.rint(at * self._steps_per_octave)
        return False

    def estimate_counts(
        self, counts: Any, bins: int = 56, method: Method = "em", **options: Unpack[EstimateOptions]
    ) -> Distribution:
        """The distribution on a logarithmic grid; as :meth:`SquareWave.estimate_counts`."""
        found = super().estimate_counts(counts, bins, method, **options)
        return replace(found, scale="logarithmic")


@dataclass(frozen=True)
class StochasticRounding(MeanMechanism):
    """A bit whose probability grows linearly with the value (ToPL Appendix E.2; Duchi et al. 2018).

    Parameters
    ----------
    epsilon : float
        Privacy loss of one report, in [1e-6, 32].
    low, high : float
        The public domain; values outside are clipped.

    Notes
    -----
    On [-1, 1] the variance is ((e^eps + 1) / (e^eps - 1))^2 - v^2.
    """

    rule: ClassVar[int] = 1

    @classmethod
    def _make_law(cls, epsilon: float) -> Law:
        return bit_law(epsilon, cls.STEPS)


def piecewise_law(epsilon: float, steps: int, total: int) -> WindowLaw:
    """Window of N = max(1, rint(D e^(-epsilon / 2))) steps: the paper's r(v) - l(v) over 2 s, in steps."""
    return window_law(epsilon, max(1, round(steps / exp_below(epsilon / 2.0))), steps, total)


@dataclass(frozen=True)
class Piecewise(MeanMechanism):
    """Reports in a window that moves with the value are likelier (ToPL Appendix E.2; Wang et al. 2019).

    Parameters
    ----------
    epsilon : float
        Privacy loss of one report, in [1e-6, 32].
    low, high : float
        The public domain; values outside are clipped.

    Notes
    -----
    On [-1, 1] the variance is v^2 / (E - 1) + (E + 3) / (3 (E - 1)^2), E = e^(eps / 2).  The mean of a report is
    affine in the grid step whatever the window's length, so estimates are unbiased although N is rounded.
    """

    rule: ClassVar[int] = 1

    @classmethod
    def _make_law(cls, epsilon: float) -> Law:
        return piecewise_law(epsilon, cls.STEPS, WORDS)


#: Up to this epsilon the piecewise mechanism does not help (Wang et al. 2019, Eq. 8).
ROUNDING_ONLY = 0.61


@dataclass(frozen=True)
class Hybrid(MeanMechanism):
    """Piecewise with probability alpha, else stochastic rounding (ToPL Appendix E.2; Wang et al. 2019).

    Parameters
    ----------
    epsilon : float
        Privacy loss of one report, in [1e-6, 32].
    low, high : float
        The public domain; values outside are clipped.

    Notes
    -----
    alpha = 1 - e^(-eps / 2) above epsilon 0.61, where the v^2 terms of both variances cancel; 0 below.  Worst
    variance on [-1, 1] (ToPL Eq. 14): ((e^eps + 1) / (e^eps - 1))^2 up to 0.61, and above, for every v,
    1/E [((e^eps + 1) / (e^eps - 1))^2 + (E + 3) / (3 (E - 1))], E = e^(eps / 2).
    """

    rule: ClassVar[int] = 1

    @classmethod
    def _make_law(cls, epsilon: float) -> Law:
        if epsilon <= ROUNDING_ONLY:
            return bit_law(epsilon, cls.STEPS)
        first = int(WORDS * (1 - 1 / exp_below(epsilon / 2.0)))
        return MixtureLaw(piecewise_law(epsilon, cls.STEPS, first), bit_law(epsilon, cls.STEPS, WORDS - first))

    @property
    def _step_of_proof(self) -> str:
        return f"stochastic rounding alone: {self.law.PROOF}" if self.epsilon <= ROUNDING_ONLY else self.law.PROOF
