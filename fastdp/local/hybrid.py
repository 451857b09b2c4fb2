"""The hybrid mechanism: piecewise or stochastic rounding by a coin, the best of the three for means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fastdp.local.base import MeanMechanism
from fastdp.local.laws import WORDS, Law, MixtureLaw, bit_law, exp_below
from fastdp.local.piecewise import piecewise_law

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
        return MixtureLaw(
            piecewise_law(epsilon, cls.STEPS, first),
            bit_law(epsilon, cls.STEPS, WORDS - first),
        )

    @property
    def _step_of_proof(self) -> str:
        if self.epsilon <= ROUNDING_ONLY:
            return "stochastic rounding alone: the weights of a bit lie between two whose ratio is at most e^epsilon"
        return "a coin that does not look at the value picks one of two laws, each with ratios of at most e^epsilon"
