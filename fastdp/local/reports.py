"""Distributions of a report as integer weights: epsilon is an inequality of integers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.guarantee import exp_below
from fastdp.kinds import Array, Floats

if TYPE_CHECKING:
    from fastdp.noise.key import Key
    from fastdp_kernels.local.local_reports import BitWeights, WindowWeights

WORDS = 2**64
WORD_BYTES = 8
MAX_STREAMS = 2**40
#: Words of one stream; those that follow are another stream's.
MAX_START = 2**33


@dataclass(frozen=True)
class Words:
    """Random words of one call: report i uses word `start` + i of a stream."""

    seed: int | str | None
    key: Key | bytes | None
    level: int
    stream: int
    start: int | None
    of: tuple[str | int | bytes, ...] = ()

    def __post_init__(self) -> None:
        validation.integer("stream", self.stream, 0, MAX_STREAMS - 1)
        if self.start is not None:
            validation.integer("start", self.start, 0, MAX_START)
        elif self.key is not None and self.seed is None:
            raise ParameterError(
                "start = None: expected the position of the first unused word, because a key is given"
            )

    def _check_end(self, count: int) -> None:
        if (self.start or 0) + count > MAX_START:
            raise ParameterError(
                f"start = {self.start}: expected at most {MAX_START - count} for {count} reports, "
                f"because a stream has {MAX_START} words"
            )

    def few(self, count: int) -> list[int]:
        self._check_end(count)
        if self.seed is None and self.key is None:
            raw = os.urandom(WORD_BYTES * count)
            return [int.from_bytes(raw[i : i + WORD_BYTES], "little") for i in range(0, len(raw), WORD_BYTES)]
        return [int(word) for block in self.blocks(count) for word in block]

    def blocks(self, count: int) -> Iterator[NDArray[np.uint64]]:
        from fastdp.noise.key import Key
        from fastdp.noise.words import CHUNK, Purpose, StreamId, WordStream

        self._check_end(count)
        stream = StreamId(Purpose.LOCAL, self.level, self.stream)
        key = Key.choose(self.seed, self.key).within(*self.of)
        source = WordStream(key, stream, self.start or 0)
        words: NDArray[np.uint64] = np.empty(min(CHUNK, count), np.uint64)
        for begin in range(0, count, CHUNK):
            block = words[: min(CHUNK, count - begin)]
            source.fill(block)
            yield block


class Term(NamedTuple):
    """Reports in [first, last) estimate x as offset + gain * (report - first)."""

    first: int
    last: int
    offset: Fraction
    gain: Fraction


class Estimator(NamedTuple):
    """Estimates in floats: offset + gain * r below `border`, else later_offset + later_gain * (r - border)."""

    border: int
    offset: float
    gain: float
    later_offset: float
    later_gain: float

    @classmethod
    def of(cls, terms: tuple[Term, ...], low: Fraction | float, unit: Fraction | float) -> Estimator:
        origin, step = Fraction(low), Fraction(unit)
        coefficients = [(float(origin + step * term.offset), float(step * term.gain)) for term in terms]
        return cls(terms[0].last, *coefficients[0], *coefficients[-1])

    def __call__(self, reports: Array) -> Floats:
        from fastdp_kernels.local import local_reports

        out = np.empty(reports.size)
        local_reports.estimate_reports(reports, *self, out)
        return out


def _sum(n: int) -> Fraction:
    return Fraction(n * (n - 1), 2)


def _sum_of_squares(n: int) -> Fraction:
    return Fraction(n * (n - 1) * (2 * n - 1), 6)


@dataclass(frozen=True)
class WindowDistribution:
    """Window of N = `near` likelier outputs from x on, x in 0..D (`steps`).

    Each output in the window has `near_weight` words, each other `far_weight`; left-over words go to all in turn.
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
        return self.steps + self.near

    @property
    def near_words(self) -> int:
        return self.near * self.near_weight

    @property
    def far_words(self) -> int:
        return self.steps * self.far_weight

    @property
    def left_over(self) -> int:
        return self.total - self.near_words - self.far_words

    def least_ratio(self) -> Fraction:
        """Ratio of near to far weight."""
        extra = self.left_over // self.outputs
        return Fraction(self.near_weight + extra, self.far_weight + extra)

    def report(self, word: int, x: int) -> int:
        if word < self.near_words:
            return x + word // self.near_weight
        word -= self.near_words
        if word < self.far_words:
            far = word // self.far_weight
            return far if far < x else far + self.near
        return (word - self.far_words) % self.outputs

    def fill(self, words: NDArray[np.uint64], steps: NDArray[np.int32], out: NDArray[np.int32]) -> None:
        from fastdp_kernels.local import local_reports

        local_reports.draw_window(words, steps, self.weights, out)

    @cached_property
    def weights(self) -> WindowWeights:
        from fastdp_kernels.local.local_reports import WindowWeights

        near_weight, far_weight, near_words, far_words = map(
            np.uint64, (self.near_weight, self.far_weight, self.near_words, self.far_words)
        )
        return WindowWeights(self.near, near_weight, far_weight, near_words, far_words, self.outputs)

    def weight(self, x: int, output: int) -> int:
        extra, further = divmod(self.left_over, self.outputs)
        inside = x <= output < x + self.near
        return (self.near_weight if inside else self.far_weight) + extra + (output < further)

    def terms(self) -> tuple[Term, ...]:
        """Unbiased estimate, because a report's mean is affine in x."""
        gain = 1 / self._slope
        return (Term(0, self.outputs, -self._mean(Fraction(0)) * gain, gain),)

    def variance_at(self, x: Fraction) -> Fraction:
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
        rounds, rest = divmod(self.left_over, self.outputs)
        everywhere = (self.far_weight + rounds) * _sum(self.outputs) + _sum(rest)
        return self._slope * (x + Fraction(self.near - 1, 2)) + everywhere / self.total


@lru_cache(maxsize=256)
def window_distribution(epsilon: float, near: int, steps: int, total: int = WORDS) -> WindowDistribution:
    """Largest far weight b with N floor(b e^epsilon) + D b <= S, or b + 1 and the rest near."""
    ratio = exp_below(epsilon)

    def used(b: int) -> int:
        return near * int(b * ratio) + steps * b

    # The floor takes less than 1 an output: b is the quotient or a little more.
    b = int(total / (near * ratio + steps))
    while used(b + 1) <= total:
        b += 1
    rounded = WindowDistribution(steps, near, int(b * ratio), b, total)
    # At a large epsilon one far word more is many near ones: filling up may waste less than the left-over does.
    filled = WindowDistribution(steps, near, (total - steps * (b + 1)) // near, b + 1, total)
    return max(rounded, filled, key=WindowDistribution.least_ratio)


@dataclass(frozen=True)
class BitDistribution:
    """A bit: low_weight + floor((high_weight - low_weight) x / D) words of low + high weight give 1."""

    PROOF: ClassVar[str] = "the weights of a bit lie between two whose ratio is at most e^epsilon"
    outputs: ClassVar[int] = 2

    steps: int
    low_weight: int
    high_weight: int
    total: int

    @property
    def _rise(self) -> int:
        return self.high_weight - self.low_weight

    def report(self, word: int, x: int) -> int:
        return int(word < self.weight(x, 1))

    def fill(self, words: NDArray[np.uint64], steps: NDArray[np.int32], out: NDArray[np.int32]) -> None:
        from fastdp_kernels.local import local_reports

        local_reports.draw_bit(words, steps, self.weights, out)

    @cached_property
    def weights(self) -> BitWeights:
        from fastdp_kernels.local.local_reports import BitWeights

        return BitWeights(
            *map(np.uint64, (self.low_weight, *divmod(self._rise, self.steps), self.steps.bit_length() - 1))
        )

    def weight(self, x: int, output: int) -> int:
        one = self.low_weight + self._rise * x // self.steps
        return one if output == 1 else self.total - one

    def terms(self) -> tuple[Term, ...]:
        gain = Fraction(self.total * self.steps, self._rise)
        return (Term(0, self.outputs, -Fraction(self.low_weight * self.steps, self._rise), gain),)

    def variance_at(self, x: Fraction) -> Fraction:
        one = (self.low_weight + self._rise * x / self.steps) / self.total
        return one * (1 - one) * self.terms()[0].gain ** 2


@lru_cache(maxsize=256)
def bit_distribution(epsilon: float, steps: int, total: int = WORDS) -> BitDistribution:
    """Bit with high weight floor(S e^epsilon / (e^epsilon + 1))."""
    ratio = exp_below(epsilon)
    high = int(total * ratio / (ratio + 1))
    # The proof of epsilon needs it; it could fail for an odd total only, and S (rho - 1) < rho + 1.
    if total - high > high:
        raise ArithmeticError(f"a bit of {high} words in {total}: expected at least half of them")
    return BitDistribution(steps, total - high, high, total)


@dataclass(frozen=True)
class MixtureDistribution:
    """First words draw from the window, others the bit, whose outputs are the last two."""

    PROOF: ClassVar[str] = (
        "a coin that does not look at the value picks one of two distributions, each with ratios of at most e^epsilon"
    )

    window: WindowDistribution
    bit: BitDistribution

    @property
    def outputs(self) -> int:
        return self.window.outputs + self.bit.outputs

    @property
    def total(self) -> int:
        return self.window.total + self.bit.total

    def report(self, word: int, x: int) -> int:
        if word < self.window.total:
            return self.window.report(word, x)
        return self.window.outputs + self.bit.report(word - self.window.total, x)

    def fill(self, words: NDArray[np.uint64], steps: NDArray[np.int32], out: NDArray[np.int32]) -> None:
        from fastdp_kernels.local import local_reports

        weights = self.window.weights, self.bit.weights
        local_reports.draw_hybrid(words, steps, np.uint64(self.window.total), *weights, out)

    def weight(self, x: int, output: int) -> int:
        if output < self.window.outputs:
            return self.window.weight(x, output)
        return self.bit.weight(x, output - self.window.outputs)

    def terms(self) -> tuple[Term, ...]:
        first = self.window.outputs
        (bit,) = self.bit.terms()
        return (*self.window.terms(), bit._replace(first=first, last=first + bit.last))

    def variance_at(self, x: Fraction) -> Fraction:
        mixed = self.window.total * self.window.variance_at(x) + self.bit.total * self.bit.variance_at(x)
        return mixed / self.total


ReportDistribution = WindowDistribution | BitDistribution | MixtureDistribution
