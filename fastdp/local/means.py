"""Means of private reports: stochastic rounding, the piecewise mechanism, and their mixture."""

from __future__ import annotations

from dataclasses import dataclass

from fastdp.local.base import MeanMechanism
from fastdp.local.laws import WORDS, Law, MixtureLaw, WindowLaw, bit_law, exp_below, window_law


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

    @classmethod
    def _make_law(cls, epsilon: float) -> Law:
        return bit_law(epsilon, cls.STEPS)

    @property
    def _step_of_proof(self) -> str:
        return "the weights of a bit lie between two whose ratio is at most e^epsilon"


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

    @classmethod
    def _make_law(cls, epsilon: float) -> Law:
        return piecewise_law(epsilon, cls.STEPS, WORDS)

    @property
    def _step_of_proof(self) -> str:
        return "near weight = floor(far weight e^epsilon), and what is left over does not look at the value"


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

    @classmethod
    def _make_law(cls, epsilon: float) -> Law:
        if epsilon <= ROUNDING_ONLY:
            return bit_law(epsilon, cls.STEPS)
        first = int(WORDS * (1 - 1 / exp_below(epsilon / 2.0)))
        return MixtureLaw(
            piecewise_law(epsilon, cls.STEPS, first),
            bit_law(epsilon, cls.STEPS, WORDS - first),
        )

    @property
    def _step_of_proof(self) -> str:
        if self.epsilon <= ROUNDING_ONLY:
            return "stochastic rounding alone: the weights of a bit lie between two whose ratio is at most e^epsilon"
        return "a coin that does not look at the value picks one of two laws, each with ratios of at most e^epsilon"
