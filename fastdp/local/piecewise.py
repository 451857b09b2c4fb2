"""The piecewise mechanism: reports around the value, for means at large epsilon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fastdp.local.base import MeanMechanism
from fastdp.local.laws import WORDS, Law, WindowLaw, exp_below, window_law


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

    @property
    def _step_of_proof(self) -> str:
        return "near weight = floor(far weight e^epsilon), and what is left over does not look at the value"
