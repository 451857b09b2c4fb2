"""The square wave mechanism: reports from which the server estimates the whole distribution."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from fastdp.local.base import Mechanism
from fastdp.local.laws import CONTEXT, WindowLaw, window_law

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

    @property
    def _step_of_proof(self) -> str:
        return "near weight = floor(far weight e^epsilon), and what is left over does not look at the value"

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
