"""Stochastic rounding: one bit a report, for means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fastdp.local.base import MeanMechanism
from fastdp.local.laws import Law, bit_law


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

    @property
    def _step_of_proof(self) -> str:
        return "the weights of a bit lie between two whose ratio is at most e^epsilon"
