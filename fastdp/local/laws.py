"""Laws of one report as integer weights, so that epsilon is an inequality between integers.

A value is a grid step x in 0..D, a report one of finitely many outputs.  One uniform word out of ``total`` (2^64
for a whole random word) decides; ``weight(x, output)`` counts the words that give the output.  A law is epsilon-DP
if no two weights of one output are further apart than e^epsilon, which holds here without any rounding: the
constants come from a rational number just below e^epsilon.

Source: square wave, stochastic rounding, piecewise and hybrid mechanisms of ToPL Appendix E (Li et al. 2020,
Duchi et al. 2018, Wang et al. 2019); the integer form is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp.kinds import Floats

WORDS = 2**64
#: Digits for e^epsilon <= 2^47 and for weights below 2^64, with room.
CONTEXT = Context(prec=80)


def exp_below(exponent: Fraction | float) -> Fraction:
    """A rational number below e^exponent (or equal, at 0), by less than 10^-76 of it."""
    ratio = Fraction(exponent)
    argument = CONTEXT.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    # A float has a finite decimal expansion, but it may be longer than the context: go down once for the quotient
    # and once for the exponential, each correctly rounded.
    return Fraction(CONTEXT.next_minus(CONTEXT.exp(CONTEXT.next_minus(argument)))) if ratio else Fraction(1)


class Term(NamedTuple):
    """Reports in [first, last) estimate x, in steps, as offset + gain * (report - first), without bias."""

    first: int
    last: int
    offset: Fraction
    gain: Fraction


class Estimator(NamedTuple):
    """Terms in floats, for a domain: estimate = offset + gain * report, from ``border`` on the later ones."""

    border: int
    offset: float
    gain: float
    later_offset: float
    later_gain: float

    def __call__(self, reports: NDArray[np.integer[Any]]) -> Floats:
        """Unbiased estimates from reports in range (int32[n] or int64[n])."""
        from fastdp_kernels.local import local_reports

        out = np.empty(reports.size)
        local_reports.estimate_reports(reports, *self, out)
        return out


def estimator(terms: tuple[Term, ...], low: Fraction | float = 0, unit: Fraction | float = 1) -> Estimator:
    """Estimates low + unit * x."""
    origin, step = Fraction(low), Fraction(unit)
    coefficients = [(float(origin + step * term.offset), float(step * term.gain)) for term in terms]
    return Estimator(terms[0].last, *coefficients[0], *coefficients[-1])


def _sum(n: int) -> Fraction:
    """0 + 1 + ... + (n - 1)."""
    return Fraction(n * (n - 1), 2)


def _sum_of_squares(n: int) -> Fraction:
    """0^2 + 1^2 + ... + (n - 1)^2."""
    return Fraction(n * (n - 1) * (2 * n - 1), 6)


@dataclass(frozen=True)
class WindowLaw:
    """Outputs in a window that starts at x are likelier than the others.

    Words in order: ``near_weight`` for each of the outputs x, ..., x + near - 1; ``far_weight`` for each of the
    others; the left-over is dealt out to all outputs in turn, whatever x is, which only brings the weights of an
    output closer together.

    Parameters
    ----------
    steps : int
        D: inputs are 0..D.
    near : int
        N: length of the window.
    near_weight, far_weight : int
        Words of an output in the window and outside.
    total : int
        S: number of words.
    """

    PROOF: ClassVar[str] = (
        "near weight = floor(far weight e^epsilon), and what is left over does not look at the value"
    )

    steps: int
    near: int
    near_weight: int
    far_weight: int
    total: int

    @property
    def outputs(self) -> int:
        """M = D + N."""
        return self.steps + self.near

    @property
    def near_words(self) -> int:
        """Words whose output is in the window."""
        return self.near * self.near_weight

    @property
    def far_words(self) -> int:
        """Words whose output is outside, without the left-over."""
        return self.steps * self.far_weight

    @property
    def left_over(self) -> int:
        """R: words that do not look at x."""
        return self.total - self.near_words - self.far_words

    def least_ratio(self) -> Fraction:
        """Of the weights of a near and a far output, as the left-over brings them together."""
        each = self.left_over // self.outputs
        return Fraction(self.near_weight + each, self.far_weight + each)

    def report(self, word: int, x: int) -> int:
        """The report of grid step x by one word below ``total``."""
        if word < self.near_words:
            return x + word // self.near_weight
        word -= self.near_words
        if word < self.far_words:
            far = word // self.far_weight
            return far if far < x else far + self.near
        return (word - self.far_words) % self.outputs

    def fill(self, words: NDArray[np.uint64], steps: NDArray[np.int32], out: NDArray[np.int32]) -> None:
        """Reports of many grid steps: words and steps in, int32[n] out."""
        from fastdp_kernels.local import local_reports

        local_reports.draw_window(words, steps, *self.constants(), out)

    def constants(self) -> tuple[int, np.uint64, np.uint64, np.uint64, np.uint64, int]:
        """The law as the kernels take it."""
        weights = (self.near_weight, self.far_weight, self.near_words, self.far_words)
        a, b, near_words, far_words = (np.uint64(weight) for weight in weights)
        return self.near, a, b, near_words, far_words, self.outputs

    def weight(self, x: int, output: int) -> int:
        """How many words give the output."""
        each, further = divmod(self.left_over, self.outputs)
        inside = x <= output < x + self.near
        return (self.near_weight if inside else self.far_weight) + each + (output < further)

    def terms(self) -> tuple[Term, ...]:
        """The mean of a report is affine in x, whatever the window's length."""
        gain = 1 / self._slope
        return (Term(0, self.outputs, -self._mean(Fraction(0)) * gain, gain),)

    def variance_at(self, x: Fraction) -> Fraction:
        """Exact variance of one estimate, in steps squared."""
        n, m = self.near, self.outputs
        rounds, rest = divmod(self.left_over, m)
        inside = n * x * x + 2 * x * _sum(n) + _sum_of_squares(n)
        everywhere = (self.far_weight + rounds) * _sum_of_squares(m) + _sum_of_squares(rest)
        square = ((self.near_weight - self.far_weight) * inside + everywhere) / self.total
        return (square - self._mean(x) ** 2) / self._slope**2

    @property
    def _slope(self) -> Fraction:
        return Fraction((self.near_weight - self.far_weight) * self.near, self.total)

    def _mean(self, x: Fraction) -> Fraction:
        """E[report]: far weights and left-over as if everywhere, the window's surplus on top."""
        rounds, rest = divmod(self.left_over, self.outputs)
        everywhere = (self.far_weight + rounds) * _sum(self.outputs) + _sum(rest)
        return self._slope * (x + Fraction(self.near - 1, 2)) + everywhere / self.total


@lru_cache(maxsize=256)
def window_law(epsilon: float, near: int, steps: int, total: int = WORDS) -> WindowLaw:
    """The window law with the largest far weight b such that N floor(b e^epsilon) + D b <= S, or b + 1.

    The near weight is floor(b e^epsilon), or with b + 1 what is left for it, which is less: the ratio is at most
    e^epsilon.
    """
    ratio = exp_below(epsilon)

    def used(b: int) -> int:
        return near * int(b * ratio) + steps * b

    # The floor takes less than 1 an output: b is the quotient or a little more.
    b = int(total / (near * ratio + steps))
    while used(b + 1) <= total:
        b += 1
    law = WindowLaw(steps, near, int(b * ratio), b, total)
    # At a large epsilon one far word more is many near ones: filling up may waste less than the left-over does.
    filled = WindowLaw(steps, near, (total - steps * (b + 1)) // near, b + 1, total)
    return max(law, filled, key=WindowLaw.least_ratio)


@dataclass(frozen=True)
class BitLaw:
    """One bit: W(x) = low_weight + floor((high_weight - low_weight) x / D) words give 1.

    Parameters
    ----------
    steps : int
        D, a power of two: inputs are 0..D.
    low_weight, high_weight : int
        W(0) and W(D); they add up to ``total``.
    total : int
        S: number of words.
    """

    PROOF: ClassVar[str] = "the weights of a bit lie between two whose ratio is at most e^epsilon"

    steps: int
    low_weight: int
    high_weight: int
    total: int

    @property
    def outputs(self) -> int:
        """Two."""
        return 2

    def report(self, word: int, x: int) -> int:
        """The report of grid step x by one word below ``total``."""
        return int(word < self.weight(x, 1))

    def fill(self, words: NDArray[np.uint64], steps: NDArray[np.int32], out: NDArray[np.int32]) -> None:
        """Reports of many grid steps: words and steps in, int32[n] out."""
        from fastdp_kernels.local import local_reports

        local_reports.draw_bit(words, steps, *self.constants(), out)

    def constants(self) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
        """The law as the kernels take it."""
        whole, rest = divmod(self.high_weight - self.low_weight, self.steps)
        shift = self.steps.bit_length() - 1
        return np.uint64(self.low_weight), np.uint64(whole), np.uint64(rest), np.uint64(shift)

    def weight(self, x: int, output: int) -> int:
        """How many words give the output."""
        one = self.low_weight + (self.high_weight - self.low_weight) * x // self.steps
        return one if output == 1 else self.total - one

    def terms(self) -> tuple[Term, ...]:
        """Unbiased up to the floor in W, one word in 2^64."""
        offset = -Fraction(self.low_weight * self.steps, self.high_weight - self.low_weight)
        return (Term(0, self.outputs, offset, self._gain),)

    def variance_at(self, x: Fraction) -> Fraction:
        """Variance of one estimate, in steps squared (without the floor in W)."""
        one = (self.low_weight + (self.high_weight - self.low_weight) * x / self.steps) / self.total
        return one * (1 - one) * self._gain**2

    @property
    def _gain(self) -> Fraction:
        return Fraction(self.total * self.steps, self.high_weight - self.low_weight)


@lru_cache(maxsize=256)
def bit_law(epsilon: float, steps: int, total: int = WORDS) -> BitLaw:
    """The bit law with high weight floor(S e^epsilon / (e^epsilon + 1)); the ratio W(D) / W(0) is the largest."""
    ratio = exp_below(epsilon)
    high = int(total * ratio / (ratio + 1))
    # The proof of epsilon needs it; it could fail for an odd total only, and S (rho - 1) < rho + 1.
    assert total - high <= high  # noqa: S101
    return BitLaw(steps, total - high, high, total)


@dataclass(frozen=True)
class MixtureLaw:
    """A coin that does not look at the data picks the window law (the first words) or the bit law.

    Outputs are those of the window law, then the bits 0 and 1.  The coin is the same for every x, so the mixture
    keeps the epsilon of its parts.

    Parameters
    ----------
    window : WindowLaw
        Over the first ``window.total`` words.
    bit : BitLaw
        Over the others.
    """

    PROOF: ClassVar[str] = (
        "a coin that does not look at the value picks one of two laws, each with ratios of at most e^epsilon"
    )

    window: WindowLaw
    bit: BitLaw

    @property
    def outputs(self) -> int:
        """Those of both parts."""
        return self.window.outputs + self.bit.outputs

    @property
    def total(self) -> int:
        """Words of both parts."""
        return self.window.total + self.bit.total

    def report(self, word: int, x: int) -> int:
        """The report of grid step x by one word below ``total``."""
        if word < self.window.total:
            return self.window.report(word, x)
        return self.window.outputs + self.bit.report(word - self.window.total, x)

    def fill(self, words: NDArray[np.uint64], steps: NDArray[np.int32], out: NDArray[np.int32]) -> None:
        """Reports of many grid steps: words and steps in, int32[n] out."""
        from fastdp_kernels.local import local_reports

        local_reports.draw_hybrid(
            words, steps, np.uint64(self.window.total), *self.window.constants(), *self.bit.constants(), out
        )

    def weight(self, x: int, output: int) -> int:
        """How many words give the output."""
        if output < self.window.outputs:
            return self.window.weight(x, output)
        return self.bit.weight(x, output - self.window.outputs)

    def terms(self) -> tuple[Term, ...]:
        """Each report by the law that it came from."""
        first = self.window.outputs
        (bit,) = self.bit.terms()
        return (*self.window.terms(), bit._replace(first=first, last=first + bit.last))

    def variance_at(self, x: Fraction) -> Fraction:
        """Variance of one estimate, in steps squared: both parts are unbiased, so the variances mix."""
        mixed = self.window.total * self.window.variance_at(x) + self.bit.total * self.bit.variance_at(x)
        return mixed / self.total


Law = WindowLaw | BitLaw | MixtureLaw
