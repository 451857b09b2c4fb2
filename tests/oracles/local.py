"""Naive reports of the local model: every distribution as a list of cells of words, walked or bisected.

Sources: ToPL Appendix E.1 and E.2 (variances, window lengths), the integer form of ``fastdp.local.reports``: near
weight a, far weight b the largest with N floor(b e^epsilon) + D b <= S, left-over dealt out in turn.
"""

from __future__ import annotations

import bisect
import struct
import zlib
from dataclasses import dataclass
from fractions import Fraction

import mpmath

DIGITS = 120


def window_length_square(epsilon: float, steps: int) -> int:
    """2 w + 1 with w = rint(b D), b the paper's closeness (Appendix E.1)."""
    with mpmath.workdps(DIGITS):
        eps = mpmath.mpf(epsilon)
        power = mpmath.exp(eps)
        b = (eps * power - power + 1) / (2 * power * (power - 1 - eps))
        return 2 * int(mpmath.nint(b * steps)) + 1


def window_length_piecewise(epsilon: float, steps: int) -> int:
    """(r(v) - l(v)) / (2 s) = e^(-epsilon / 2) of the input's length times D, at least 1."""
    with mpmath.workdps(DIGITS):
        return max(1, int(mpmath.nint(steps * mpmath.exp(-mpmath.mpf(epsilon) / 2))))


@dataclass
class Window:
    """Outputs x, ..., x + near - 1 are near."""

    epsilon: float
    near: int
    steps: int
    total: int = 2**64

    def __post_init__(self) -> None:
        low, high = 0, self.total
        while low < high:  # the largest b that fits, by bisection
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.used(middle) <= self.total else (low, middle - 1)
        self.outputs = self.steps + self.near
        candidates = [(self.times_power(low), low), ((self.total - self.steps * (low + 1)) // self.near, low + 1)]
        self.a, self.b = max(candidates, key=self.ratio)

    def times_power(self, b: int) -> int:
        with mpmath.workdps(DIGITS):
            return int(mpmath.floor(b * mpmath.exp(mpmath.mpf(self.epsilon))))

    def used(self, b: int) -> int:
        return self.near * self.times_power(b) + self.steps * b

    def ratio(self, weights: tuple[int, int]) -> Fraction:
        """Near over far weight, the left-over dealt out."""
        a, b = weights
        each = (self.total - self.near * a - self.steps * b) // self.outputs
        return Fraction(a + each, b + each)

    def first_word(self, cell: int) -> int:
        """Cells in order: N near ones, then D far ones; cell M is the left-over."""
        return min(cell, self.near) * self.a + max(cell - self.near, 0) * self.b

    def report(self, word: int, x: int) -> int:
        cell = bisect.bisect_right(range(self.outputs + 1), word, key=self.first_word) - 1
        if cell == self.outputs:
            return (word - self.first_word(cell)) % self.outputs
        if cell < self.near:
            return x + cell
        before = cell - self.near  # far outputs that come before: first those left of the window
        return before if before < x else before + self.near


@dataclass
class Bit:
    """Weight of output 1 between S / (e^eps + 1) and S e^eps / (e^eps + 1), linear in x."""

    epsilon: float
    steps: int
    total: int = 2**64

    def __post_init__(self) -> None:
        with mpmath.workdps(DIGITS):
            power = mpmath.exp(mpmath.mpf(self.epsilon))
            self.high = int(mpmath.floor(self.total * power / (power + 1)))
        self.low = self.total - self.high
        self.outputs = 2

    def report(self, word: int, x: int) -> int:
        return 1 if word < self.low + (self.high - self.low) * x // self.steps else 0


@dataclass
class Mixture:
    """Window distribution on the first floor((1 - e^(-eps / 2)) 2^64) words, bit distribution on the others."""

    epsilon: float
    steps: int

    def __post_init__(self) -> None:
        with mpmath.workdps(DIGITS):
            first = int(mpmath.floor((1 - mpmath.exp(-mpmath.mpf(self.epsilon) / 2)) * 2**64))
        self.first = first
        self.window = Window(self.epsilon, window_length_piecewise(self.epsilon, self.steps), self.steps, first)
        self.bit = Bit(self.epsilon, self.steps, 2**64 - first)
        self.outputs = self.window.outputs + 2

    def report(self, word: int, x: int) -> int:
        if word < self.first:
            return self.window.report(word, x)
        return self.window.outputs + self.bit.report(word - self.first, x)


Distribution = Window | Bit | Mixture


def square_wave(epsilon: float, steps: int) -> Distribution:
    return Window(epsilon, window_length_square(epsilon, steps), steps)


def piecewise(epsilon: float, steps: int) -> Distribution:
    return Window(epsilon, window_length_piecewise(epsilon, steps), steps)


def stochastic_rounding(epsilon: float, steps: int) -> Distribution:
    return Bit(epsilon, steps)


def hybrid(epsilon: float, steps: int) -> Distribution:
    return Bit(epsilon, steps) if epsilon <= 0.61 else Mixture(epsilon, steps)


def step(value: float, low: float, high: float, steps: int) -> int:
    """Clip, then the nearest grid step, halves to even."""
    clipped = min(max(value, low), high)
    return min(steps, round((clipped - low) * (steps / (high - low))))


def variance_rounding(v: float, epsilon: float) -> float:
    """Of one report about v in [-1, 1] (ToPL Appendix E.2)."""
    power = mpmath.exp(epsilon)
    return float(((power + 1) / (power - 1)) ** 2 - v**2)


def variance_piecewise(v: float, epsilon: float) -> float:
    """Of one report about v in [-1, 1] (ToPL Appendix E.2)."""
    root = mpmath.exp(mpmath.mpf(epsilon) / 2)
    return float(v**2 / (root - 1) + (root + 3) / (3 * (root - 1) ** 2))


def variance_hybrid(v: float, epsilon: float) -> float:
    """The mixture of the two."""
    alpha = float(1 - mpmath.exp(-mpmath.mpf(epsilon) / 2)) if epsilon > 0.61 else 0.0
    return alpha * variance_piecewise(v, epsilon) + (1 - alpha) * variance_rounding(v, epsilon)


def read_messages(data: bytes, beginning: bytes, most: float) -> tuple[list[int], int]:
    """Reports of the messages that begin like this, one message after the other, and how many are refused."""
    reports: list[int] = []
    refused = 0
    while data:
        if len(data) < 39 or data[:5] != b"fdpL\x01" or not (1 <= data[5] <= 5 and 1 <= data[6] <= 4):
            return reports, refused + 1
        width, (count,) = data[6], struct.unpack("<I", data[31:35])
        end = 35 + count * width
        if len(data) < end + 4 or zlib.crc32(data[:end]) != int.from_bytes(data[end : end + 4], "little"):
            return reports, refused + 1
        if data[:31] == beginning and count <= most:
            reports += [int.from_bytes(data[i : i + width], "little") for i in range(35, end, width)]
        else:
            refused += 1
        data = data[end + 4 :]
    return reports, refused
