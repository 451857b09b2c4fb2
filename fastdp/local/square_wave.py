"""Square wave: private reports for a distribution, on cells of equal width or on octaves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.arrays.kinds import Floats
from fastdp.errors import ParameterError
from fastdp.local import octaves
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
    :mod:`fastdp.local.octaves`; the law of the report given the step is :class:`SquareWave`'s, to the last word.

    Privacy: unchanged.  Any two steps are e^epsilon-indistinguishable, and whatever two values become two steps, so
    the map needs no property at all, not even that it is the same on two machines.
    """

    low: float = 1.0 / 2**14
    high: float = 1.0

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
        return self.STEPS / octaves.position(self.high / self.low)

    def _place(self, number: float) -> int:
        return round(octaves.position(min(number, self.high) / self.low) * self._steps_per_octave)

    def _place_all(self, floats: Floats, out: NDArray[np.int32]) -> bool:
        if not np.isfinite(floats).all():
            return True
        at = octaves.positions(np.minimum(floats, self.high) / self.low)
        out[...] = np.rint(at * self._steps_per_octave)
        return False

    def estimate_counts(
        self, counts: Any, bins: int = 56, method: Method = "em", **options: Unpack[EstimateOptions]
    ) -> Distribution:
        """The distribution on a logarithmic grid; as :meth:`SquareWave.estimate_counts`."""
        found = super().estimate_counts(counts, bins, method, **options)
        return replace(found, scale="logarithmic")
